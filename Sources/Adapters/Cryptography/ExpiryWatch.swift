/// A filter for warnings about expiring certificates: at most one warning a day per listener.
package struct ExpiryWatch: Sendable {
    private var told: [String: Int64] = [:]

    package init() {}

    package mutating func keep(only listeners: Set<String>) { told = told.filter { listeners.contains($0.key) } }

    /// Returns whether to warn now; `now` and `end` are in seconds since 1970, `warning` in seconds before the end.
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
