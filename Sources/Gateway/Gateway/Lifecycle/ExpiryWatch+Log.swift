internal import Cryptography

extension ExpiryWatch {
    /// Tells the operator that a listener's certificate ends soon.
    mutating func look(at listener: String, end: Int64, now: Int64, warning: Int64, _ log: Log) {
        guard isNews(listener, end: end, now: now, warning: warning) else { return }
        log.write(
            .warning, .certificateEnds, [.listener: .text(listener), .milliseconds: LogValue((end - now) * 1_000)])
    }
}
