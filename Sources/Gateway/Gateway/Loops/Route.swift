internal import Delivery

/// The address of an answer, packed into `Origin.route`: a kind, the asking gateway and loop, a slot of that loop's table and a
/// stamp.
///
/// The stamp identifies the slot's occupant. A late answer for an earlier occupant is dropped, so an entry can be removed at any
/// time.
struct Route: Equatable, Sendable {
    enum Kind: UInt8, Sendable {
        /// A `Publish` frame.
        ///
        /// The slot is the sender connection's; `Origin.request` is the sender's own number.
        case sender = 1
        /// An HTTP push.
        ///
        /// The slot is that of the pending push; `Origin.request` is the index of the push's item.
        case push
        /// A question to a partition; the slot is in `PendingRequests`.
        case request
        /// A device of a list.
        ///
        /// The slot is the pending list's; `Origin.request` is the device's index.
        case list
    }

    static let slotLimit = 1 << 22
    static let loopLimit = 1 << 10
    static let nodeLimit = 1 << 10
    /// The bits of a stamp that fit into a route; tables that issue stamps must stay within them.
    static let stampMask: UInt32 = (1 << 18) - 1

    var kind: Kind
    /// The cluster number of the asking gateway; 0 for this gateway.
    ///
    /// This gateway's own routes use 0, so answers find their way even if its cluster number changes. The receiver of a message
    /// from a link sets the number of the link's peer (`LoopMessage.setAsker`).
    var node: Int
    var loop: Int
    var slot: UInt32
    var stamp: UInt32

    init(_ kind: Kind, node: Int, loop: Int, slot: UInt32, stamp: UInt32) {
        (self.kind, self.node, self.loop) = (kind, node, loop)
        (self.slot, self.stamp) = (slot, stamp & Self.stampMask)
    }

    /// Unpacks a route; returns `nil` for `Origin.none` and for any other word with an unknown kind.
    init?(_ word: UInt64) {
        guard let kind = Kind(rawValue: UInt8(word >> 60)) else { return nil }
        self.kind = kind
        node = Int(word >> 50) & (Self.nodeLimit - 1)
        loop = Int(word >> 40) & (Self.loopLimit - 1)
        slot = UInt32(truncatingIfNeeded: word >> 18) & UInt32(Self.slotLimit - 1)
        stamp = UInt32(truncatingIfNeeded: word) & Self.stampMask
    }

    var word: UInt64 {
        UInt64(kind.rawValue) << 60 | UInt64(node) << 50 | UInt64(loop) << 40 | UInt64(slot) << 18 | UInt64(stamp)
    }

    static let nodeMask = UInt64(nodeLimit - 1) << 50

    func origin(_ request: UInt64) -> Origin { Origin(route: word, request: request) }
}

extension Origin {
    /// Returns the origin with the number of the asking gateway.
    func asked(by node: Int) -> Origin {
        // `Origin.none` means that the question needs no answer.
        guard self != .none else { return self }
        return Origin(route: route & ~Route.nodeMask | UInt64(node) << 50 & Route.nodeMask, request: request)
    }
}
