/// What a gateway tells the others of itself with each renewal.
package struct MemberInfo: Hashable, Sendable {
    /// Where it takes links; empty: nowhere, so that it works alone.
    package var address = ""
    package var release = ""
    /// Where devices reach it; empty: they are relayed.
    package var deviceAddress = ""
    package var deviceTLSAddress = ""
    /// Tell, without saying them, which secrets its links have: it uses the first and accepts each.
    package var secretMarks: [String] = []
    /// It stops: it gives its parts away and takes none.
    package var isLeaving = false
    /// How often its lease ran out lately while it went on; others give it no part until it has been steady for a while.
    package var lapseCount = 0

    package init() {}

    /// Whether links between the two work both ways: each accepts what the other one uses.
    package func sharesSecret(with other: MemberInfo) -> Bool {
        guard let own = secretMarks.first, let its = other.secretMarks.first else {
            return secretMarks.isEmpty && other.secretMarks.isEmpty
        }
        return secretMarks.contains(its) && other.secretMarks.contains(own)
    }

    /// `key=value` with blanks between, as the register keeps it.
    ///
    /// Values without blanks only; `nil` values are left out.
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

    /// Reads what `text` writes; keys of later releases are passed over.
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

/// A gateway as the register knows it.
package struct Member: Hashable, Sendable {
    package var info: MemberInfo
    /// Tells two processes apart that believe to have one number.
    package var instance: UInt64
    /// The server's time at which its present, unbroken lease began, in milliseconds.
    package var since: Int64
    /// The server's time at which the lease runs out unless it is renewed.
    package var leaseEnd: Int64

    package init(info: MemberInfo, instance: UInt64, since: Int64, leaseEnd: Int64) {
        (self.info, self.instance, self.since, self.leaseEnd) = (info, instance, since, leaseEnd)
    }
}
