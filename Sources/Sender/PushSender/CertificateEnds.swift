internal import Cryptography

/// The expiry times of the certificates in use, and the state of their daily warnings.
struct CertificateEnds: Sendable {
    struct End: Sendable {
        let identity: String
        /// The users of the certificate: listeners and credentials.
        let names: [String]
        /// The expiry time, in seconds since 1970.
        let time: Int64
    }

    private(set) var ends: [End]
    /// The warning period before an expiry, in seconds.
    private(set) var warning: Int64
    private var watch = ExpiryWatch()

    init(ends: [End] = [], warning: Int64) { (self.ends, self.warning) = (ends, warning) }

    /// Replaces the certificates after a reload; a certificate that was already logged today is not logged again.
    mutating func replace(with new: CertificateEnds) {
        (ends, warning) = (new.ends, new.warning)
        watch.keep(only: Set(ends.map(\.identity)))
    }

    /// Marks expired certificates as logged, because a start or a reload has reported them.
    mutating func noteEnded(now: Int64) {
        for end in ends where end.time <= now {
            _ = watch.isNews(end.identity, end: end.time, now: now, warning: warning)
        }
    }

    /// Returns the warnings to log now: each expiring certificate once a day; `now` is in seconds since 1970.
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
