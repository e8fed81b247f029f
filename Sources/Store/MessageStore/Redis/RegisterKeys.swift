/// The names of the keys of a cluster's register; `RegisterScripts` in the gateway documents their content.
package enum RegisterKeys {
    /// Returns the keys in the order of the scripts: constants, members, leases, owners, operator requests, numbers.
    package static func all(_ name: String) -> [[UInt8]] {
        ["c", "n", "l", "o", "w", "u"].map { Array("{lw:\(name)}:\($0)".utf8) }
    }

    /// Returns the key with the owner and epoch of each partition.
    package static func owners(_ name: String) -> [UInt8] { all(name)[3] }

    // Fields of the constants during a copy of a store, while `RegisterScripts` refuses every call. `copy` is `to` (the cluster
    // is the target and incomplete until the field is removed) or `from` (the cluster is being read). `copyUntil` is the end of
    // the reading, in milliseconds of server time. `copyNonce` identifies the copy. `copyOther` names the other store.
    // `copyEnded` is the nonce of the last finished copy.

    /// The format of a cluster's keys; a gateway joins only a cluster of the same format.
    package static let format = 1
}
