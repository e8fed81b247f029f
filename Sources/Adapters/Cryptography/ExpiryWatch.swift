/// Which certificates an operator is to be told of because they end soon: at most once a day for each.
package struct ExpiryWatch: Sendable {
    private var told: [String: Int64] = [:]

    package init() {}

    /// Forgets what was told of all others.
    package mutating func keep(only listeners: Set<String>) { told = told.filter { listeners.contains($0.key) } }

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
}
