internal import Delivery
internal import Wire

/// One direction of a connection: a byte stream cut into segments that may arrive reordered or duplicated.
struct Direction {
    var sentOffset = 0
    var arrivedOffset = 0
    /// The number of bytes that the application has read; all later bytes are in buffers.
    var consumedOffset = 0
    var stash: [(offset: Int, bytes: [UInt8])] = []
    /// The earliest arrival time of the next segment in order.
    var nextTime: Int64 = 0
    /// The offset of an orderly close; −1 if there is none yet.
    var endOffset = -1
    /// Whether everything sent from now on is lost.
    var isDead = false
}

/// One TCP connection: its two directions, the gateway's end (the state of `DeviceHandshake` and `DeviceSessions`) and the
/// client's end.
final class Link {
    enum Phase { case awaitingHello, awaitingWelcome, open, closed }

    let number: Int
    let device: Int
    var toGateway = Direction()
    var toClient = Direction()
    var isOpenAtClient = true
    var isOpenAtGateway = false

    // The gateway's end.
    var phase = Phase.awaitingHello
    var session = SessionRef.none
    var loop = -1
    var life = 0
    var received: [UInt8] = []
    var outbox: [UInt8] = []
    var isDirty = false
    var isKnownToShard = false
    var isAnnounced = false
    /// Whether the device has closed its sending half and still waits for answers.
    var isEnding = false
    var identity: Identity?
    var hello = Hello()
    /// Whether a byte of its Hello was changed in transit; such a Hello must never be welcomed.
    var helloWasDamaged = false
    var helloBody: [UInt8] = []
    var wasWelcomed = false
    /// Whether its Hello was recorded on another connection; such a Hello must never be welcomed.
    var isReplay = false

    // The oracle's state of the session.
    var window = 0
    var lastSequence: UInt64 = 0
    var lastBroadcast: UInt64 = 0
    var inFlight: [Record] = []
    var inFlightBytes = 0
    /// Pending updates, and whether each restarts the stream.
    var updates: [(request: UInt32, recalls: Bool, leaves: Bool, ticket: Ticket)] = []
    var lastAck: UInt64 = 0
    /// The messages in flight when an update restarted the stream; they must be sent again before any later message.
    var recalled: [Record] = []
    /// The number of Pings without a Pong.
    var owedPongs = 0

    // The client's end.
    var unread: [UInt8] = []
    var isHalfClosed = false

    init(number: Int, device: Int) { (self.number, self.device) = (number, device) }
}

/// The slots of one loop's sessions, with stamps as in the gateway's table.
struct SessionTable {
    private var links: [Link?] = []
    private var stamps: [UInt32] = []
    private var free: [Int] = []

    mutating func insert(_ link: Link) -> SessionRef {
        let slot: Int
        if let recycled = free.popLast() {
            slot = recycled
        } else {
            slot = links.count
            links.append(nil)
            stamps.append(0)
        }
        stamps[slot] &+= 1
        links[slot] = link
        return SessionRef(slot: UInt32(slot), stamp: stamps[slot])
    }

    subscript(_ session: SessionRef) -> Link? {
        let slot = Int(session.slot)
        guard slot < links.count, stamps[slot] == session.stamp else { return nil }
        return links[slot]
    }

    mutating func remove(_ session: SessionRef) {
        let slot = Int(session.slot)
        guard slot < links.count, stamps[slot] == session.stamp, links[slot] != nil else { return }
        links[slot] = nil
        free.append(slot)
    }
}
