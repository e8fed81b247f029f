/// The names of the keys in which the gateways of a cluster agree (`RegisterScripts` in the gateway says what each has).
package enum RegisterKeys {
    /// Constants, members, leases, owners, wishes, numbers: in this order the scripts take them.
    package static func all(_ name: String) -> [[UInt8]] {
        ["c", "n", "l", "o", "w", "u"].map { Array("{lw:\(name)}:\($0)".utf8) }
    }

    /// Who owns each part, under which epoch.
    package static func owners(_ name: String) -> [UInt8] { all(name)[3] }

    // Fields of the constants during a copy of a store, while `RegisterScripts` refuses every call.
    // `copy` is `to` (the cluster gets a copy and is not whole before the field is removed) or `from` (it is read).
    // `copyUntil` is the end of the reading, in milliseconds of the server's time. `copyNonce` numbers the copy.
    // `copyOther` names the other store. `copyEnded` is the nonce of the last copy that ended.

    /// The version of what the keys of a cluster hold; a gateway joins a cluster of its own format only.
    package static let format = 1
}
