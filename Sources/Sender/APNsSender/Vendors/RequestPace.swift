/// The rate of a lane's requests: a token bucket whose rate falls when the vendor calls it too fast, and recovers.
///
/// Vendors limit an app, a device or a channel with the same answer. A lane that stopped for each of them would let one device
/// stop all others, so the rate is halved at most once a second.
struct RequestPace: Sendable, Equatable {
    let maximum: Double
    private(set) var rate: Double
    private var tokens: Double
    private var filledAt: UInt64 = 0
    private var slowedAt: UInt64?

    /// The rate stays reduced for this time after the last reduction, in milliseconds.
    private static let holdMilliseconds: UInt64 = 5_000
    /// The part of the maximum by which the rate recovers in a second.
    private static let recovery = 0.05
    /// The bucket holds the requests of this many seconds, so that ticks of 50 ms do not limit the rate.
    private static let burstSeconds = 0.2

    init(requestsPerSecond: Int) {
        maximum = Double(requestsPerSecond)
        rate = maximum
        tokens = max(1, maximum * Self.burstSeconds)
    }

    var isSlowed: Bool { rate < maximum }

    /// Adds the tokens of the elapsed time; `now` is in milliseconds.
    mutating func advance(to now: UInt64) {
        defer { filledAt = now }
        guard filledAt > 0, now > filledAt else { return }
        let seconds = Double(now - filledAt) / 1_000
        if let slowedAt, now >= slowedAt + Self.holdMilliseconds {
            rate = min(maximum, rate + maximum * Self.recovery * seconds)
            if rate == maximum { self.slowedAt = nil }
        }
        tokens = min(max(1, rate * Self.burstSeconds), tokens + rate * seconds)
    }

    /// Takes a token for one request; returns false if there is none.
    mutating func take() -> Bool {
        guard tokens >= 1 else { return false }
        tokens -= 1
        return true
    }

    /// Halves the rate; further calls within a second have no effect, because their requests were sent before.
    mutating func slowDown(_ now: UInt64) {
        if let slowedAt, now < slowedAt + 1_000 { return }
        slowedAt = now
        rate = max(1, rate / 2)
        tokens = min(tokens, 1)
    }
}
