/// A limit on a loop's CPU time while several apps publish, applied to apps that have used up their slices.
///
/// The kernel scheduler suspends a thread that never sleeps, and the loop then serves no message for milliseconds. Apps that have
/// used up their slices therefore publish only while the loop is below its share of a core. Their sockets fill until then, and
/// other apps are not delayed.
struct CPUShare {
    /// The percentage of time for which the loop may work before it pauses apps that have used up their slices.
    static let share: Int64 = 60
    /// The work beyond the share that is allowed after a calm period, in nanoseconds.
    static let burst: Int64 = 200_000
    /// The largest excess of work that is recorded, in nanoseconds; apps do not wait for more than this.
    static let longestDebt: Int64 = 2_000_000

    private var credit: Int64 = 0
    private var now: Int64 = 0
    private var work: Int64 = 0

    /// Counts the loop's work since the last call.
    ///
    /// - Parameters:
    ///   - now: The time of a monotonic clock, in nanoseconds.
    ///   - work: The CPU time of the loop's thread so far, in nanoseconds.
    /// - Returns: The nanoseconds until paused apps may continue; 0 if they may continue now.
    mutating func wait(now: Int64, work: Int64) -> Int64 {
        let earned = min(now - self.now, Self.longestWait) * Self.share / 100
        credit = max(-Self.longestDebt, min(Self.burst, credit + earned - (work - self.work)))
        (self.now, self.work) = (now, work)
        return credit > 0 ? 0 : (1 - credit) * 100 / Self.share
    }

    /// The longest wait, in nanoseconds; the largest excess is repaid by then.
    static let longestWait = (longestDebt + burst) * 100 / share
}
