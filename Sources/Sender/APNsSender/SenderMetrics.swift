/// What the sender counts; gauges are read from the lanes.
struct SenderMetrics: Sendable, Equatable {
    var jobsTaken: UInt64 = 0
    var jobsUnreadable: UInt64 = 0
    /// Requests that went to Apple, repeats included.
    var requests: UInt64 = 0
    /// Answers by Apple's reason; "" stands for 200.
    var answers: [String: UInt64] = [:]
    /// Requests of which no answer came: what became of them is not known.
    var unknown: UInt64 = 0
    /// Requests that Apple had not looked at, sent again.
    var refused: UInt64 = 0
    /// Requests sent again with the same ids after one without an answer.
    var repeated: UInt64 = 0
    /// Jobs that came again after Apple's word on them, before the gateway had it; not sent again.
    var repeatedOutcomes: UInt64 = 0
    /// Calls of the hook that came again, whose jobs were taken before.
    var repeatedCalls: UInt64 = 0
    var connectionsOpened: UInt64 = 0
    var connectionsFailed: UInt64 = 0
    var goodbyes: UInt64 = 0
    var outcomes: [JobOutcome.Kind: UInt64] = [:]
    /// Milliseconds from when a job fell due to its request: counts up to each bound, and above.
    static let delayBounds: [UInt64] = [1, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000]
    var delays = [UInt64](repeating: 0, count: delayBounds.count + 1)
    var delaySum: UInt64 = 0

    mutating func noteDelay(_ milliseconds: UInt64) {
        let place = Self.delayBounds.firstIndex { milliseconds <= $0 } ?? Self.delayBounds.count
        delays[place] += 1
        delaySum += milliseconds
    }
}
