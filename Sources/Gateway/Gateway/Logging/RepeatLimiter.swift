/// Limits the lines of each event per window and counts the others, so that a misbehaving peer cannot fill a disk.
struct RepeatLimiter {
    private struct State {
        var windowEnd: Int64 = .min
        var passedCount = 0
        var leftOutCount = 0
    }
    private var states: [LogName: State] = [:]
    private(set) var hasLeftOut = false

    /// Returns whether the event may be written; `now` is in monotonic milliseconds.
    mutating func admit(_ name: LogName, now: Int64) -> Bool {
        var state = states[name] ?? State()
        defer { states[name] = state }
        if now >= state.windowEnd {
            state.windowEnd = now + LogLimits.repeatWindow
            state.passedCount = 0
        }
        if state.passedCount < LogLimits.repeatCount {
            state.passedCount += 1
            return true
        }
        state.leftOutCount += 1
        hasLeftOut = true
        return false
    }

    /// Removes and returns the suppressed counts of windows that have ended.
    mutating func takeLeftOut(now: Int64, all: Bool = false) -> [(name: LogName, count: Int)] {
        guard hasLeftOut else { return [] }
        var found: [(name: LogName, count: Int)] = []
        hasLeftOut = false
        for name in LogName.allCases {
            guard var state = states[name], state.leftOutCount > 0 else { continue }
            if all || now >= state.windowEnd {
                found.append((name, state.leftOutCount))
                state.leftOutCount = 0
                states[name] = state
            } else {
                hasLeftOut = true
            }
        }
        return found
    }
}
