/// The sender's counters; gauges are read from the lanes.
struct SenderMetrics: Sendable, Equatable {
    var jobsTaken: UInt64 = 0
    var jobsUnreadable: UInt64 = 0
    /// Requests to Apple, including repeats.
    var requests: UInt64 = 0
    /// Answers by Apple's reason; "" stands for status 200.
    var answers: [String: UInt64] = [:]
    /// Requests without an answer, whose result is unknown.
    var unknown: UInt64 = 0
    /// Undocumented answers of a vendor other than Apple.
    var unknownAnswers: UInt64 = 0
    /// Requests that Apple refused unprocessed, sent again.
    var refused: UInt64 = 0
    /// Requests sent again with the same id after one without an answer.
    var repeated: UInt64 = 0
    /// Jobs leased again after Apple had decided, before the gateway had the result; they were not sent again.
    var repeatedOutcomes: UInt64 = 0
    /// Repeated hook calls whose jobs were already taken.
    var repeatedCalls: UInt64 = 0
    var connectionsOpened: UInt64 = 0
    var connectionsFailed: UInt64 = 0
    var goodbyes: UInt64 = 0
    var outcomes: [JobOutcome.Kind: UInt64] = [:]
    /// A histogram of the time from a job's due time to its request, in milliseconds.
    static let delayBounds: [UInt64] = [1, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000]
    var delays = [UInt64](repeating: 0, count: delayBounds.count + 1)
    var delaySum: UInt64 = 0

    mutating func noteDelay(_ milliseconds: UInt64) {
        let place = Self.delayBounds.firstIndex { milliseconds <= $0 } ?? Self.delayBounds.count
        delays[place] += 1
        delaySum += milliseconds
    }
}
