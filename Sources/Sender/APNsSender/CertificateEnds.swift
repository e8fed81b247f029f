internal import Cryptography

/// When the certificates in force end, and which the operator is to be told of.
struct CertificateEnds: Sendable {
    struct End: Sendable {
        let identity: String
        /// Of all that show it.
        let names: [String]
        /// In seconds since 1970.
        let time: Int64
    }

    private(set) var ends: [End]
    /// How long before an end it is told.
    private(set) var warning: Int64
    private var watch = ExpiryWatch()

    init(ends: [End] = [], warning: Int64) { (self.ends, self.warning) = (ends, warning) }

    /// Those of a reload are in force; what was told today of one that stays is not told again.
    mutating func replace(with new: CertificateEnds) {
        (ends, warning) = (new.ends, new.warning)
        watch.keep(only: Set(ends.map(\.identity)))
    }

    /// What a start or a reload has told of by now: the certificates that have ended.
    mutating func noteEnded(now: Int64) {
        for end in ends where end.time <= now {
            _ = watch.isNews(end.identity, end: end.time, now: now, warning: warning)
        }
    }

    /// What is to be told now, in seconds since 1970: each that ends soon, once a day.
    mutating func news(now: Int64) -> [String] {
        ends.compactMap { end in
            guard watch.isNews(end.identity, end: end.time, now: now, warning: warning) else { return nil }
            let distance = abs(end.time - now)
            let time = "\(distance / 86_400) days and \(distance % 86_400 / 3_600) hours"
            let names = end.names.joined(separator: ", ")
            return "\(names): the certificate \(end.time > now ? "ends in \(time)" : "ended \(time) ago"); "
                + "put the new files in place and send SIGHUP"
        }
    }
}
