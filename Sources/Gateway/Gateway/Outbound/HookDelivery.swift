package import Configuration

/// One batch for the hook's receiver.
///
/// The same id and body go out at every attempt.
package struct HookDelivery: Sendable, Equatable {
    /// The webhook-id: the receiver's key for recognising a repeat.
    package var id: String
    package var body: [UInt8]
    /// When the batch stops making sense (its leases lapse), milliseconds on the monotonic clock; `nil`: never.
    package var giveUpAt: Int64?

    package init(id: String, body: [UInt8], giveUpAt: Int64? = nil) {
        (self.id, self.body, self.giveUpAt) = (id, body, giveUpAt)
    }
}

/// What the receiver answered.
package struct HookResponse: Sendable, Equatable {
    package var status: Int
    /// Whole; an answer beyond `HookLimits.responseByteCount` counts as a failure.
    package var body: [UInt8]
    package init(status: Int, body: [UInt8]) { (self.status, self.body) = (status, body) }
}

/// What the gateway makes of an answer.
package enum HookDecision: Sendable, Equatable {
    /// The receiver has it; `HookOutcome.answered` follows.
    case done
    /// The same batch again, later.
    case retry
}

/// How a batch ended, told exactly once each.
package enum HookOutcome: Sendable, Equatable {
    case answered(HookResponse)
    /// `giveUpAt` came, or the hook was taken out of the configuration.
    case givenUp
    /// The gateway stops.
    case stopped
}

/// Why an attempt brought no answer.
package enum HookFailure: String, Sendable, CaseIterable {
    case none, resolve, connect, tls, timeout, tooLarge, notLoopback, other
    /// An answer came, and it says "again".
    case status

    /// False when the receiver certainly had nothing of the request.
    var mayHaveArrived: Bool {
        switch self {
        case .resolve, .connect, .tls, .notLoopback: false
        case .none, .timeout, .tooLarge, .other, .status: true
        }
    }
}

/// What the dispatcher is told by the wiring.
///
/// All three are called on the dispatcher's own thread and must not block.
package protocol HookPolicy: AnyObject, Sendable {
    /// The headers of one attempt: signature, id and timestamp. The timestamp is the attempt's own, since receivers
    /// refuse old ones.
    func headers(for delivery: HookDelivery, secrets: [Secret], unixSeconds: Int64) -> [(name: String, value: String)]
    func decide(_ response: HookResponse, for delivery: HookDelivery) -> HookDecision
    /// `mayHaveArrived` is false when no attempt got as far as a request.
    func ended(_ delivery: HookDelivery, _ outcome: HookOutcome, mayHaveArrived: Bool)
}

/// The hook as the metrics and `/readyz` show it.
package struct HookState: Sendable, Equatable {
    /// `nil` while healthy; else the first failure since the last success, Unix seconds.
    package var failingSince: Int64?
    /// 0: no answer came.
    package var lastStatus = 0
    package var lastFailure = HookFailure.none
    package var attemptsAnswered: UInt64 = 0
    package var attemptsFailed: UInt64 = 0
    package var deliveriesAnswered: UInt64 = 0
    package var deliveriesGivenUp: UInt64 = 0
    /// Under way or waiting for their next attempt.
    package var heldCount = 0
    package var isHealthy: Bool { failingSince == nil }
    package init() {}
}

/// Bounds of the hook's requests; times in milliseconds.
package enum HookLimits {
    /// Batches the dispatcher holds; leases run meanwhile, so more would only lapse here.
    package static let heldCount = 16
    /// Requests at once while the receiver is healthy; while it fails, one.
    package static let concurrentCount = 4
    package static let connectTimeout: Int64 = 5_000
    package static let firstBackoff: Int64 = 1_000
    package static let longestBackoff: Int64 = 300_000
    /// Holds the outcomes of the largest batch several times over.
    package static let responseByteCount = 1 << 20
}

/// When to try again: exponential from a second to five minutes, with full jitter on the upper half.
package struct HookBackoff: Sendable {
    /// - Parameters:
    ///   - attempt: failures so far, from 1.
    ///   - retryAfter: what the receiver asked for, in milliseconds; honoured up to the longest backoff.
    ///   - random: the jitter's source.
    /// - Returns: the wait in milliseconds.
    package static func delay(
        afterAttempt attempt: Int, retryAfter: Int64?, random: inout some RandomNumberGenerator
    ) -> Int64 {
        let doublings = min(max(attempt, 1) - 1, 20)
        let ceiling = min(HookLimits.longestBackoff, HookLimits.firstBackoff << Int64(doublings))
        let delay = Int64.random(in: ceiling / 2...ceiling, using: &random)
        guard let retryAfter else { return delay }
        return max(delay, min(retryAfter, HookLimits.longestBackoff))
    }
}
