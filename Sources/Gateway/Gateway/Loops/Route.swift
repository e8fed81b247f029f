internal import Delivery

/// Who asked, packed into `Origin.route`: a kind, a gateway and its loop, a slot of that loop's table and the slot's stamp.
///
/// The stamp tells a late answer from one for the slot's present occupant, so an occupant may simply leave.
struct Route: Equatable, Sendable {
    enum Kind: UInt8, Sendable {
        /// A `Publish` frame; the slot is the sender connection's, `Origin.request` its own number.
        case sender = 1
        /// An HTTP push; the slot is a pending push's, `Origin.request` the item's index.
        case push
        /// A question to a partition; the slot is the one in `PendingRequests`.
        case request
        /// A device of a list; the slot is the pending list's, `Origin.request` the device's place.
        case list
    }

    static let slotLimit = 1 << 22
    static let loopLimit = 1 << 10
    static let nodeLimit = 1 << 10
    /// The bits of a stamp that travel; tables that make stamps keep within them.
    static let stampMask: UInt32 = (1 << 18) - 1

    var kind: Kind
    /// The other gateway that asked, by its number in the cluster; 0: this one, whatever number it has.
    ///
    /// A gateway's own routes have no number, so what it asked finds the way back after it got another one. Who takes a
    /// message off a link writes the number of the link's peer into it (`LoopMessage.setAsker`).
    var node: Int
    var loop: Int
    var slot: UInt32
    var stamp: UInt32

    init(_ kind: Kind, node: Int, loop: Int, slot: UInt32, stamp: UInt32) {
        (self.kind, self.node, self.loop) = (kind, node, loop)
        (self.slot, self.stamp) = (slot, stamp & Self.stampMask)
    }

    /// `nil` for `Origin.none` and anything else that no loop made.
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

    /// The bits of a word that name the gateway.
    static let nodeMask = UInt64(nodeLimit - 1) << 50

    func origin(_ request: UInt64) -> Origin { Origin(route: word, request: request) }
}

extension Origin {
    /// The same question, as it was asked by another gateway.
    func asked(by node: Int) -> Origin {
        // Nobody waits for an answer to it.
        guard self != .none else { return self }
        return Origin(route: route & ~Route.nodeMask | UInt64(node) << 50 & Route.nodeMask, request: request)
    }
}
