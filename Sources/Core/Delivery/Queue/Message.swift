internal import Structures
internal import Wire

/// A message in memory: its row is young, or it was sent in the current session.
struct Message {
    struct Flags: OptionSet {
        let rawValue: UInt16
        static let inFlight = Flags(rawValue: 1)
        /// The bytes are only on disk.
        static let cold = Flags(rawValue: 2)
        /// The live attempt timed out, or the device disconnected before the ack.
        static let missed = Flags(rawValue: 4)
        /// The message was sent in this or an earlier session.
        static let attempted = Flags(rawValue: 8)
        /// A newer message has the same collapse key; this one is not sent again and ends with its session, unless acked before.
        static let collapsed = Flags(rawValue: 16)
        /// The ack is overdue, so the job may be leased although the device is reachable.
        static let overdue = Flags(rawValue: 32)
        /// The message was sent in the current session; its ack counts even if it is no longer in flight.
        static let sentHere = Flags(rawValue: 128)
        /// The session sent later messages but not this one (again); a position beyond it does not settle it.
        static let passedOver = Flags(rawValue: 256)
        /// The store has reported the row's alarm; it reports each alarm only once.
        static let reported = Flags(rawValue: 512)
    }

    var facts: MessageFacts
    var device: DeviceSlot
    var links = SlotLinks<Message>()
    var job = JobSlot.none
    var flags: Flags = []
    var location = ValueLocation(block: 0, offset: 0, byteCount: 0)
    var ticket: Ticket = 0
    /// The time at which the job is due without an ack; 0: never.
    var fallbackAt: GatewayTime = 0
    var sentAt: GatewayTime = 0
    var ackDeadline: GatewayTime = 0
    var collapseHash: UInt64 = 0

    var next: MessageSlot { links.next }
    var previous: MessageSlot { links.previous }

    init(facts: MessageFacts, device: DeviceSlot) { (self.facts, self.device) = (facts, device) }

    init(cold facts: MessageFacts, device: DeviceSlot) {
        self.init(facts: facts, device: device)
        flags = [.cold]
    }

    var isOffline: Bool { facts.flags.contains(.offline) || flags.contains(.missed) }

    mutating func miss() { flags.insert(.missed) }

    mutating func markCollapsed() { flags.insert(.collapsed) }

    mutating func markReported() { flags.insert(.reported) }

    /// Records that the session skips this message and sends later ones.
    @inline(__always)
    mutating func passOver() {
        flags.insert(.passedOver)
        flags.remove(.sentHere)
    }
}

extension Place<Message> {
    /// Records that the message was sent; it is in flight until its ack, its end or a recall.
    @inline(__always)
    func send(to device: Place<Device>, at now: GatewayTime, ackDeadline: GatewayTime) {
        value.flags.insert([.inFlight, .attempted, .sentHere])
        if value.sentAt == 0 { value.sentAt = now }
        value.ackDeadline = ackDeadline
        device.value.addInFlight(value.facts)
    }

    /// Makes a sent message unsent again.
    ///
    /// The message stays `sentHere` while the session continues, because an ack may be in transit.
    func recall(from device: Place<Device>, isSessionOver: Bool) {
        if isSessionOver { value.flags.remove(.sentHere) }
        guard value.flags.contains(.inFlight) else { return }
        value.flags.subtract([.inFlight, .overdue])
        device.value.removeInFlight(value.facts)
    }
}
