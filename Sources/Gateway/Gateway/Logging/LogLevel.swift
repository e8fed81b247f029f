/// How much an event matters.
package enum LogLevel: String, Sendable, CaseIterable, Comparable {
    /// For an operator who looks for a fault: each connection and refusal.
    case debug
    /// What an operator wants to find again: start, stop, reload.
    case info
    /// Something needs attention soon.
    case warning
    /// Something is broken now.
    case error

    private var rank: Int {
        switch self {
        case .debug: 0
        case .info: 1
        case .warning: 2
        case .error: 3
        }
    }
    package static func < (left: LogLevel, right: LogLevel) -> Bool { left.rank < right.rank }
}

/// How a log line is written.
package enum LogFormat: String, Sendable, CaseIterable {
    /// One JSON object a line, for collectors.
    case json
    /// `TIME LEVEL event key=value …`, for people.
    case text
}
