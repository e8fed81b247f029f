/// How fast a gateway empties itself of its devices: a number of devices a second, of all loops together.
///
/// A value: the loops ask it in their ticks, with the time in milliseconds.
struct DrainPace: Equatable {
    /// Sessions a second.
    let pace: Int

    /// A loop that did not ask for longer gets no more than this much time's worth at once.
    private static let longestBurst: Int64 = 200

    private var lastGrantAt: Int64
    /// Thousandths of a session that are due and not granted.
    private var due: Int64 = 0

    init(pace: Int, startedAt: Int64) { (self.pace, lastGrantAt) = (pace, startedAt) }

    /// How many of a loop's sessions are told to go now.
    ///
    /// - Parameters:
    ///   - wanted: the sessions it has.
    ///   - now: does not fall.
    /// - Returns: 0 to `wanted`.
    mutating func grant(_ wanted: Int, now: Int64) -> Int {
        let elapsed = max(0, now - lastGrantAt)
        lastGrantAt = max(lastGrantAt, now)
        // What nobody took does not add up to a wave.
        due = min(due + elapsed * Int64(pace), max(1_000, Self.longestBurst * Int64(pace)))
        let count = min(wanted, Int(due / 1_000))
        due -= Int64(count) * 1_000
        return count
    }

    /// Takes back what a loop was granted and had no use for, for those that ask next.
    mutating func giveBack(_ count: Int) { due += Int64(count) * 1_000 }

    /// How long the rest takes, in whole seconds, rounded up.
    func secondsLeft(for connections: Int) -> Int { (max(0, connections) + pace - 1) / pace }
}
