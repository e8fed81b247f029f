/// The data that a gateway publishes to the other members with each lease renewal.
package struct MemberInfo: Hashable, Sendable {
    /// The address for links between gateways; empty if the gateway accepts no links and therefore works alone.
    package var address = ""
    package var release = ""
    /// The address for direct connections of devices; empty if devices of this gateway's partitions are relayed.
    package var deviceAddress = ""
    package var deviceTLSAddress = ""
    /// Marks that identify the link secrets without revealing them; the gateway uses the first secret and accepts all of them.
    package var secretMarks: [String] = []
    /// Whether the gateway is stopping: it hands over its partitions and takes no new ones.
    package var isLeaving = false
    /// The number of recent lease expiries of the running gateway; after an expiry it gains no partitions for a probation period.
    package var lapseCount = 0

    package init() {}

    /// Returns whether links work in both directions: each gateway accepts the secret that the other one uses.
    package func sharesSecret(with other: MemberInfo) -> Bool {
        guard let own = secretMarks.first, let its = other.secretMarks.first else {
            return secretMarks.isEmpty && other.secretMarks.isEmpty
        }
        return secretMarks.contains(its) && other.secretMarks.contains(own)
    }

    /// The register's text form: `key=value` pairs separated by spaces.
    ///
    /// Values must not contain spaces; empty values are omitted.
    package var text: String {
        var words: [String] = []
        func add(_ key: String, _ value: String) { if !value.isEmpty { words.append("\(key)=\(value)") } }
        add("address", address)
        add("release", release)
        add("devices", deviceAddress)
        add("devicesTLS", deviceTLSAddress)
        add("mark", secretMarks.joined(separator: ","))
        if isLeaving { add("leaving", "1") }
        if lapseCount > 0 { add("lapses", "\(lapseCount)") }
        return words.joined(separator: " ")
    }

    /// Parses `text`; unknown keys of later releases are ignored.
    package init(text: some StringProtocol) {
        for word in text.split(separator: " ") {
            guard let equals = word.firstIndex(of: "=") else { continue }
            let value = String(word[word.index(after: equals)...])
            switch word[..<equals] {
            case "address": address = value
            case "release": release = value
            case "devices": deviceAddress = value
            case "devicesTLS": deviceTLSAddress = value
            case "mark": secretMarks = value.split(separator: ",").map { String($0) }
            case "leaving": isLeaving = value == "1"
            case "lapses": lapseCount = min(max(Int(value) ?? 0, 0), 1_000)
            default: break
            }
        }
    }
}

package struct Member: Hashable, Sendable {
    package var info: MemberInfo
    /// A number that distinguishes two processes that both use the same node number.
    package var instance: UInt64
    /// The start of the current unbroken lease, in milliseconds of server time.
    package var since: Int64
    /// The end of the lease unless it is renewed, in milliseconds of server time.
    package var leaseEnd: Int64

    package init(info: MemberInfo, instance: UInt64, since: Int64, leaseEnd: Int64) {
        (self.info, self.instance, self.since, self.leaseEnd) = (info, instance, since, leaseEnd)
    }
}
