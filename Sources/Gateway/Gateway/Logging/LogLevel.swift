package enum LogLevel: String, Sendable, CaseIterable, Comparable {
    /// Details for troubleshooting: each connection and refusal.
    case debug
    /// Events that operators look up later: start, stop, reload.
    case info
    /// A problem that needs attention soon.
    case warning
    /// A failure.
    case error

    private var rank: Int {
        switch self {
        case .debug: 0
        case .info: 1
        case .warning: 2
        case .error: 3
        }
    }

    /// The level in syslog(3).
    var priority: Int {
        switch self {
        case .debug: 7
        case .info: 6
        case .warning: 4
        case .error: 3
        }
    }

    package static func < (left: LogLevel, right: LogLevel) -> Bool { left.rank < right.rank }
}

package enum LogFormat: String, Sendable, CaseIterable {
    /// One JSON object per line, for log collectors.
    case json
    /// `TIME LEVEL event key=value …`, for operators.
    case text
}
