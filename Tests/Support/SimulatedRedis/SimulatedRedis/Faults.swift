/// How often what goes wrong by chance, as shares of the calls (a call is one write with one or more commands).
package struct FaultRates: Sendable {
    /// The connection cannot be made, or breaks before the server has read anything.
    package var refused = 0.0
    /// The connection breaks after some of the commands ran; their replies are lost.
    package var cutWithin = 0.0
    /// All commands run, and the replies are lost.
    package var replyLost = 0.0
    /// The client's time is over; the commands run later, when the server gets to them.
    package var late = 0.0
    /// The client's time is over, and nothing ran.
    package var timedOut = 0.0
    /// A replica takes nothing over while WAIT waits.
    package var slowReplica = 0.0
    /// Not a fault: a replica takes something over right after a command, without anybody's waiting for it.
    package var eagerReplica = 0.3
    /// `-CLUSTERDOWN`, `-LOADING`, `-TRYAGAIN`, `-BUSY` or `-MISCONF` in place of a command's own reply.
    package var refusal = 0.0
    /// The server has forgotten its scripts.
    package var scriptsForgotten = 0.0

    package init() {}

    package static let none = FaultRates()
    /// Everything, about once in `count` calls.
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

/// Why a call has no replies.
package enum CallFailure: Error, Equatable, Sendable {
    /// Nobody listens there.
    case refused
    /// The connection broke; what was sent may have run, or parts of it.
    case broken
    /// The time is over; what was sent may have run, or runs later.
    case timedOut
}
