internal import Delivery

/// The parts that share an event loop, confined to it: what a limit allows one loop is shared out among those that have a
/// shard.
///
/// So a gateway holds no more when it has all parts, and no less when it has a few. Where a loop has one part for good,
/// that has all of it.
final class LoopPartitions {
    private struct Member {
        unowned let loop: GatewayLoop
    }

    private var members: [Member] = []
    private var desk: AcceptQueue?

    /// Before the event loop runs.
    func add(_ member: GatewayLoop) {
        if desk == nil {
            desk = AcceptQueue(member)
            member.openHandshakeGate()
        }
        members.append(Member(loop: member))
    }

    /// Of the event loop, whichever of its parts a device is of.
    var welcomes: AcceptQueue {
        guard let desk else { preconditionFailure("asked for before a part was there") }
        return desk
    }

    /// Parts with a shard here; a loop that has none is about to get one.
    var seatCount: Int { max(1, members.count { $0.loop.core.pointee.isOwned }) }

    /// Hellos that are with parts whose stores stand still.
    var standingHelloCount: Int {
        members.reduce(0) { $0 + ($1.loop.isStandingStill ? $1.loop.sessions.openingCount : 0) }
    }

    /// A part came or left: each of the others has another share.
    func shareOut() {
        for member in members where member.loop.core.pointee.isOwned {
            let limits = member.loop.shardLimits
            member.loop.core.pointee.seat.setLimits(limits)
        }
    }
}
