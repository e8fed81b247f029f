/// How long senders wait that have more than their slices, so that their loop is not at work all the time.
///
/// A loop that never sleeps serves each message in time only by its turns. The scheduler then lets it wait for other
/// threads, for milliseconds. So while several apps publish, apps that have used up their slices go on only as long as the loop has
/// used less than its share of a core: their sockets fill meanwhile, and other apps wait for nothing.
struct CPUShare {
    /// Per cent of the time that may be work before such senders wait.
    static let share: Int64 = 60
    /// Work that a loop may do beyond its share after it was calm, in nanoseconds.
    static let burst: Int64 = 200_000
    /// What is worked beyond that is paid for up to here.
    static let longestDebt: Int64 = 2_000_000

    private var credit: Int64 = 0
    private var now: Int64 = 0
    private var work: Int64 = 0

    /// Counts what the loop has worked since the last call.
    ///
    /// - Parameters:
    ///   - now: any clock that does not go back.
    ///   - work: the CPU time of the loop's thread so far.
    /// - Returns: nanoseconds until senders beyond their slices may go on; 0: now.
    mutating func wait(now: Int64, work: Int64) -> Int64 {
        let earned = min(now - self.now, Self.longestWait) * Self.share / 100
        credit = max(-Self.longestDebt, min(Self.burst, credit + earned - (work - self.work)))
        (self.now, self.work) = (now, work)
        return credit > 0 ? 0 : (1 - credit) * 100 / Self.share
    }

    /// After that, nothing is owed any more.
    static let longestWait = (longestDebt + burst) * 100 / share
}
