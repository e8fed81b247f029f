internal import Cryptography

extension ExpiryWatch {
    /// Logs a warning if a listener's certificate, or the last of its client authorities, expires soon.
    mutating func look(at listener: String, end: Int64, now: Int64, warning: Int64, _ log: Log) {
        guard isNews(listener, end: end, now: now, warning: warning) else { return }
        log.write(
            .warning, .certificateEnds, [.listener: .text(listener), .milliseconds: LogValue((end - now) * 1_000)])
    }
}
