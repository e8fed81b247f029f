package import Configuration
package import Wire

/// One batch for the hook's receiver; the id and the body are the same at every attempt.
package struct HookDelivery: Sendable, Equatable {
    /// The webhook-id, by which the receiver detects repeats.
    package var id: String
    package var body: [UInt8]
    /// The time at which the batch is given up because its jobs have expired, in monotonic milliseconds; `nil` for never.
    package var giveUpAt: Int64?

    package init(id: String, body: [UInt8], giveUpAt: Int64? = nil) {
        (self.id, self.body, self.giveUpAt) = (id, body, giveUpAt)
    }
}

package struct HookResponse: Sendable, Equatable {
    package var status: Int
    /// The complete body; a response above `HookLimits.responseByteCount` counts as a failure.
    package var body: [UInt8]
    package init(status: Int, body: [UInt8]) { (self.status, self.body) = (status, body) }
}

package enum HookDecision: Sendable, Equatable {
    /// The receiver accepted the batch; `HookOutcome.answered` follows.
    case done
    case retry
}

/// The final result of a batch, reported exactly once.
package enum HookOutcome: Sendable, Equatable {
    case answered(HookResponse)
    /// The batch expired (`giveUpAt`), or the hook was removed from the configuration.
    case givenUp
    case stopped
}

/// The reason for an attempt without a result.
package enum HookFailure: String, Sendable, CaseIterable {
    case none, resolve, connect, tls, timeout, tooLarge, notLoopback, other
    /// The receiver's certificate is not valid: expired, of another host, or of an unknown authority.
    case certificate
    /// A response arrived whose status requires a retry.
    case status

    /// Whether the receiver may have got the request; `false` only if that is certain.
    var mayHaveArrived: Bool {
        switch self {
        case .resolve, .connect, .tls, .certificate, .notLoopback: false
        case .none, .timeout, .tooLarge, .other, .status: true
        }
    }
}

/// The application logic of the hook dispatcher; all three methods are called on the dispatcher's thread and must not block.
package protocol HookPolicy: AnyObject, Sendable {
    /// Returns the headers of one attempt: signature, id and timestamp; each attempt has a new timestamp, because receivers
    /// refuse old ones.
    func headers(for delivery: HookDelivery, secrets: [Secret], unixSeconds: Int64) -> [(name: String, value: String)]
    func decide(_ response: HookResponse, for delivery: HookDelivery) -> HookDecision
    /// Reports the final result; `mayHaveArrived` is `false` if no attempt sent a request.
    func ended(_ delivery: HookDelivery, _ outcome: HookOutcome, mayHaveArrived: Bool)
}

package struct HookState: Sendable, Equatable {
    /// The time of the first failure since the last success, in Unix seconds; `nil` while healthy.
    package var failingSince: Int64?
    /// The last HTTP status; 0 without a response.
    package var lastStatus = 0
    package var lastFailure = HookFailure.none
    /// The text of the last failure, without the URL; empty before the first one.
    package var lastCause = ""
    package var attemptsAnswered: UInt64 = 0
    package var attemptsFailed: UInt64 = 0
    package var deliveriesAnswered: UInt64 = 0
    package var deliveriesGivenUp: UInt64 = 0
    /// The number of batches in flight or waiting for their next attempt.
    package var heldCount = 0
    /// The channels whose jobs the hook takes; empty for a feed's webhook.
    package var channels: [VendorChannel] = []
    package var isHealthy: Bool { failingSince == nil }
    package init() {}
}

/// The limits of the hook's requests; times in milliseconds.
package enum HookLimits {
    /// The most batches held by the dispatcher: in flight, or waiting for their next attempt.
    package static let heldCount = 16
    /// The concurrent requests while the receiver is healthy; a failing receiver gets one at a time.
    package static let concurrentCount = 4
    package static let connectTimeout: Int64 = 5_000
    package static let firstBackoff: Int64 = 1_000
    package static let longestBackoff: Int64 = 300_000
    /// The size limit of a response: several times the results of the largest batch.
    package static let responseByteCount = 1 << 20
}

/// The retry delay: exponential backoff from one second to five minutes, with jitter over the upper half.
package struct HookBackoff: Sendable {
    /// - Parameters:
    ///   - attempt: The number of failures so far, from 1.
    ///   - retryAfter: The receiver's Retry-After in milliseconds, capped at the longest backoff.
    ///   - random: The source of the jitter.
    /// - Returns: The delay in milliseconds.
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
