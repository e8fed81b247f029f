internal import Delivery
internal import Wire

/// One direction of a connection: a stream of bytes cut into segments that may arrive in any order, or twice.
struct Direction {
    var sentOffset = 0
    var arrivedOffset = 0
    /// What the application has taken; the rest fills the buffers in between.
    var consumedOffset = 0
    var stash: [(offset: Int, bytes: [UInt8])] = []
    /// No segment in order arrives before this.
    var nextTime: Int64 = 0
    /// Where an orderly end stands; −1: none yet.
    var endOffset = -1
    /// Everything sent from now on vanishes.
    var isDead = false
}

/// One TCP connection: its two directions, the gateway's end (what `DeviceHandshake` and `DeviceSessions` keep), the
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
    /// The device sends no more, and is still owed answers.
    var isEnding = false
    var identity: Identity?
    var hello = Hello()
    /// A byte of its Hello was changed on the way: it may never be welcomed.
    var helloWasDamaged = false
    var helloBody: [UInt8] = []
    var wasWelcomed = false
    /// Its Hello was overheard on another connection: it may never be welcomed.
    var isReplay = false

    // What the oracle keeps of the session.
    var window = 0
    var lastSequence: UInt64 = 0
    var lastBroadcast: UInt64 = 0
    var inFlight: [Record] = []
    var inFlightBytes = 0
    /// Updates under way: whether they make the stream begin anew.
    var updates: [(request: UInt32, recalls: Bool, leaves: Bool, ticket: Ticket)] = []
    var lastAck: UInt64 = 0
    /// In flight when an update began the stream anew: to be sent again before anything later.
    var recalled: [Record] = []
    /// Pings that have no Pong yet.
    var owedPongs = 0

    // The client's end.
    var unread: [UInt8] = []
    var isHalfClosed = false

    init(number: Int, device: Int) { (self.number, self.device) = (number, device) }
}

/// Slots of one loop's sessions, with stamps as in the gateway's table.
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
