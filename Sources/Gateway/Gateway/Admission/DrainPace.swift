/// The rate at which a drain closes device sessions, in sessions per second over all loops.
///
/// A value type: the loops call it in their ticks, with the time in milliseconds.
struct DrainPace: Equatable {
    let pace: Int

    /// The cap of the accumulated budget, in milliseconds at `pace`, so that a pause in the ticks causes no large burst.
    private static let longestBurst: Int64 = 200

    private var lastGrantAt: Int64
    /// The accumulated budget, in thousandths of a session.
    private var due: Int64 = 0

    init(pace: Int, startedAt: Int64) { (self.pace, lastGrantAt) = (pace, startedAt) }

    /// Returns the number of sessions that a loop closes now.
    ///
    /// - Parameters:
    ///   - wanted: The number of sessions of the loop.
    ///   - now: The time in milliseconds; must not decrease.
    /// - Returns: 0 to `wanted`.
    mutating func grant(_ wanted: Int, now: Int64) -> Int {
        let elapsed = max(0, now - lastGrantAt)
        lastGrantAt = max(lastGrantAt, now)
        // Unused grants do not accumulate into a burst.
        due = min(due + elapsed * Int64(pace), max(1_000, Self.longestBurst * Int64(pace)))
        let count = min(wanted, Int(due / 1_000))
        due -= Int64(count) * 1_000
        return count
    }

    /// Returns an unused part of a grant to the budget.
    mutating func giveBack(_ count: Int) { due += Int64(count) * 1_000 }

    /// Returns the remaining time in whole seconds, rounded up.
    func secondsLeft(for connections: Int) -> Int { (max(0, connections) + pace - 1) / pace }
}
