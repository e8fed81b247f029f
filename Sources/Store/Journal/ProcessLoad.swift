internal import Platform

/// How busy the process is, by its own CPU time: whether CPU that is saved serves its peers better than haste.
struct ProcessLoad {
    private(set) var isHigh = false
    private var lookedAt: UInt64 = 0
    private var usedThen: UInt64 = 0

    /// Looks at the CPU time ten times a second, however often it is called.
    ///
    /// - Parameter threadCount: the threads that do the process's work, each taken for a core.
    mutating func look(threadCount: Int) {
        let now = SystemClock.monotonicNanoseconds
        guard now - lookedAt >= Limits.loadSampleNanoseconds else { return }
        let used = SystemClock.processNanoseconds
        let share = (Double(used) - Double(usedThen)) / Double(now - lookedAt) / Double(max(threadCount, 1))
        // Resting makes the load less: without the distance between the two it would go to and fro.
        isHigh = lookedAt > 0 && share > (isHigh ? Limits.highLoadEnds : Limits.highLoadBegins)
        (lookedAt, usedThen) = (now, used)
    }
}
