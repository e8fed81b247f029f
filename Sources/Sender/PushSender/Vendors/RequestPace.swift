/// The rate of a lane's requests: a token bucket whose rate falls when the vendor reports too many requests, and recovers.
///
/// Vendors limit an app, a device or a channel with the same answer. The rate is halved only if more than a tenth of a second's
/// answers report this limit. One device with too many messages therefore does not slow down all others.
struct RequestPace: Sendable, Equatable {
    let maximum: Double
    private(set) var rate: Double
    private var tokens: Double
    private var filledAt: UInt64 = 0
    private var slowedAt: UInt64?
    /// The start of the current second, and its answers.
    private var windowAt: UInt64 = 0
    private var answerCount = 0
    private var complaintCount = 0

    /// The rate stays reduced for this time after the last reduction, in milliseconds.
    private static let holdMilliseconds: UInt64 = 5_000
    private static let windowMilliseconds: UInt64 = 1_000
    /// The number of answers that suffice for a judgement before the second ends.
    private static let enoughAnswers = 20
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

    /// Counts an answer, and halves the rate if more than a tenth complain; returns whether it did.
    mutating func note(isTooFast: Bool, _ now: UInt64) -> Bool {
        if answerCount == 0 { windowAt = now }
        answerCount += 1
        if isTooFast { complaintCount += 1 }
        guard answerCount >= Self.enoughAnswers || now >= windowAt + Self.windowMilliseconds else { return false }
        let isSlower = complaintCount * 10 > answerCount
        (answerCount, complaintCount) = (0, 0)
        // Answers within a second of the last reduction belong to requests sent before it.
        if let slowedAt, now < slowedAt + Self.windowMilliseconds { return false }
        guard isSlower else { return false }
        slowedAt = now
        // A lower rate than a hundredth would make the recovery needlessly slow.
        rate = max(1, maximum / 100, rate / 2)
        tokens = min(tokens, 1)
        return true
    }
}
