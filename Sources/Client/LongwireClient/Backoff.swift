/// Exponential backoff with full jitter, so that a fleet that lost its gateway does not reconnect in waves.
struct Backoff {
    private var failureCount = 0
    private var generator: SplitMix

    init(seed: UInt64) { generator = SplitMix(state: seed) }

    mutating func reset() { failureCount = 0 }

    /// Returns the delay before the next attempt, in milliseconds.
    mutating func next() -> Int64 {
        let doublings = min(failureCount, 16)
        failureCount += 1
        let ceiling = min(Limits.backoffCapMilliseconds, Limits.backoffBaseMilliseconds << Int64(doublings))
        return Int64.random(in: 0...ceiling, using: &generator)
    }

    /// Returns a random time within a window that the gateway set, in milliseconds.
    mutating func next(in window: ClosedRange<Int64>) -> Int64 { Int64.random(in: window, using: &generator) }
}

/// A random number generator (SplitMix64) whose sequence a test can repeat; jitter does not have to be unpredictable.
struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}
