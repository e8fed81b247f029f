internal import Cryptography

/// When the certificates in force end, and which the operator is to be told of.
struct CertificateEnds: Sendable {
    /// In seconds since 1970, by what shows the certificate.
    private(set) var ends: [String: Int64]
    /// How long before an end it is told.
    private(set) var warning: Int64
    private var watch = ExpiryWatch()

    init(ends: [String: Int64] = [:], warning: Int64) { (self.ends, self.warning) = (ends, warning) }

    /// Those of a reload are in force; what was told today of one that stays is not told again.
    mutating func replace(with new: CertificateEnds) { (ends, warning) = (new.ends, new.warning) }

    /// What is to be told now, in seconds since 1970: each that ends soon, once a day.
    mutating func news(now: Int64) -> [String] {
        ends.sorted { $0.key < $1.key }.compactMap { name, end in
            guard watch.isNews(name, end: end, now: now, warning: warning) else { return nil }
            let (days, hours) = (abs(end - now) / 86_400, abs(end - now) % 86_400 / 3_600)
            let time = "\(days) days and \(hours) hours"
            return "\(name): the certificate \(end > now ? "ends in \(time)" : "ended \(time) ago"); "
                + "put the new files in place and send SIGHUP"
        }
    }
}
