internal import Platform

/// The CPU load of this process; at high load the committer saves CPU rather than latency.
struct ProcessLoad {
    private(set) var isHigh = false
    private var lookedAt: UInt64 = 0
    private var usedThen: UInt64 = 0

    /// Samples the CPU time at most ten times a second.
    ///
    /// - Parameter threadCount: The number of worker threads. The load is relative to one core for each.
    mutating func look(threadCount: Int) {
        let now = SystemClock.monotonicNanoseconds
        guard now - lookedAt >= Limits.loadSampleNanoseconds else { return }
        let used = SystemClock.processNanoseconds
        let share = (Double(used) - Double(usedThen)) / Double(now - lookedAt) / Double(max(threadCount, 1))
        // Pausing lowers the load. Without hysteresis the state would oscillate.
        isHigh = lookedAt > 0 && share > (isHigh ? Limits.highLoadEnds : Limits.highLoadBegins)
        (lookedAt, usedThen) = (now, used)
    }
}
