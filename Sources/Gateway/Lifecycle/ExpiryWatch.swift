/// Tells the operator that a listener's certificate ends soon: at most once a day for each.
package struct ExpiryWatch: Sendable {
    /// Two weeks, in seconds: time for people, where a machine should have renewed it.
    package static let warning: Int64 = 14 * 86_400

    private var told: [String: Int64] = [:]

    package init() {}

    /// Whether this is to be told now; all in seconds since 1970.
    package mutating func isNews(_ listener: String, end: Int64, now: Int64) -> Bool {
        guard end - now < Self.warning else {
            told[listener] = nil
            return false
        }
        if let last = told[listener], now - last < 86_400 { return false }
        told[listener] = now
        return true
    }

    mutating func look(at listener: String, end: Int64, now: Int64, _ log: Log) {
        guard isNews(listener, end: end, now: now) else { return }
        log.write(
            .warning, .certificateEnds, [.listener: .text(listener), .milliseconds: LogValue((end - now) * 1_000)])
    }
}
