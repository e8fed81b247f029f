internal import Delivery

/// Who asked, packed into `Origin.route`: a kind, a loop, a slot of that loop's table and the slot's stamp.
///
/// The stamp tells a late answer from one for the slot's present occupant, so an occupant may simply leave.
struct Route: Equatable, Sendable {
    enum Kind: UInt8, Sendable {
        /// A `Publish` frame; the slot is the sender connection's, `Origin.request` its own number.
        case sender = 1
        /// An HTTP push; the slot is a pending push's, `Origin.request` the item's index.
        case push
        /// `user/status`; the slot is a pending status query's, `Origin.request` the item's index.
        case userStatus
        /// An admin query for one device or message; the slot is the pending exchange's.
        case admin
        /// A lease or settlement; the slot is the lease coordinator's.
        case handoff
        /// A step of a directory operation; the slot is the operation's, `Origin.request` the step's number.
        case directory
        /// A question about a task; the slot is the task coordinator's.
        case task
        /// A device of a list; the slot is the pending list's, `Origin.request` the device's place.
        case list
        /// A receipt; the slot is the waiting exchange's.
        case receipt
    }

    static let slotLimit = 1 << 24
    static let loopLimit = 1 << 12

    var kind: Kind
    var loop: Int
    var slot: UInt32
    var stamp: UInt32

    init(_ kind: Kind, loop: Int, slot: UInt32, stamp: UInt32) {
        (self.kind, self.loop, self.slot, self.stamp) = (kind, loop, slot, stamp & 0xF_FFFF)
    }

    /// `nil` for `Origin.none` and anything else that no loop made.
    init?(_ word: UInt64) {
        guard let kind = Kind(rawValue: UInt8(word >> 56)) else { return nil }
        self.kind = kind
        loop = Int(word >> 44 & 0xFFF)
        slot = UInt32(word >> 20 & 0xFF_FFFF)
        stamp = UInt32(word & 0xF_FFFF)
    }

    var word: UInt64 {
        UInt64(kind.rawValue) << 56 | UInt64(loop) << 44 | UInt64(slot) << 20 | UInt64(stamp & 0xF_FFFF)
    }

    func origin(_ request: UInt64) -> Origin { Origin(route: word, request: request) }
}
