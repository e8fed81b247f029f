/// Tells the operator that a listener's certificate ends soon: at most once a day for each.
package struct ExpiryWatch: Sendable {
    private var told: [String: Int64] = [:]

    package init() {}

    /// Whether this is to be told now; `now` and `end` in seconds since 1970, `warning` in seconds before the end.
    package mutating func isNews(_ listener: String, end: Int64, now: Int64, warning: Int64) -> Bool {
        guard end - now < warning else {
            told[listener] = nil
            return false
        }
        if let last = told[listener], now - last < 86_400 { return false }
        told[listener] = now
        return true
    }

    mutating func look(at listener: String, end: Int64, now: Int64, warning: Int64, _ log: Log) {
        guard isNews(listener, end: end, now: now, warning: warning) else { return }
        log.write(
            .warning, .certificateEnds, [.listener: .text(listener), .milliseconds: LogValue((end - now) * 1_000)])
    }
}
