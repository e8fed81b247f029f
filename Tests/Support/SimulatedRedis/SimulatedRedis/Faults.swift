/// The probability of each fault per call; a call is one write with one or more commands.
package struct FaultRates: Sendable {
    /// The connection is refused, or breaks before the server has read anything.
    package var refused = 0.0
    /// The connection breaks after some of the commands ran; their replies are lost.
    package var cutWithin = 0.0
    /// All commands run; their replies are lost.
    package var replyLost = 0.0
    /// The client times out; the commands run later, when the server processes them.
    package var late = 0.0
    /// The client times out; nothing ran.
    package var timedOut = 0.0
    /// A replica applies nothing while WAIT waits.
    package var slowReplica = 0.0
    /// The probability that a replica applies an entry right after the command, without a WAIT; this is not a fault.
    package var eagerReplica = 0.3
    /// An error reply in place of the command's own: `-CLUSTERDOWN`, `-LOADING`, `-TRYAGAIN`, `-BUSY` or `-MISCONF`.
    package var refusal = 0.0
    /// The server has lost its script cache.
    package var scriptsForgotten = 0.0

    package init() {}

    package static let none = FaultRates()
    /// Returns rates at which most faults happen about once in `count` calls.
    package static func all(oneIn count: Double) -> FaultRates {
        var rates = FaultRates()
        let share = 1 / count
        (rates.refused, rates.cutWithin, rates.replyLost, rates.late) = (share, share, share, share)
        (rates.timedOut, rates.slowReplica, rates.refusal, rates.scriptsForgotten) = (
            share / 2, share * 3, share, share
        )
        return rates
    }
}

/// The reason why a call has no replies.
package enum CallFailure: Error, Equatable, Sendable {
    /// No process listens at the address.
    case refused
    /// The connection broke; all, some or none of the commands ran.
    case broken
    /// The client timed out; the commands ran, run later or never run.
    case timedOut
}
