internal import Structures
internal import Wire

/// A message in memory: young, or sent in the current session.
struct Message {
    struct Flags: OptionSet {
        let rawValue: UInt16
        static let inFlight = Flags(rawValue: 1)
        /// Its bytes are on disk only.
        static let cold = Flags(rawValue: 2)
        /// Its live attempt timed out, or its device disconnected before the ack.
        static let missed = Flags(rawValue: 4)
        /// It was sent in an earlier session or earlier in this one.
        static let attempted = Flags(rawValue: 8)
        /// A newer message has the same collapse key: this one ends when it is not in flight.
        static let collapsed = Flags(rawValue: 16)
        /// Sent, and its ack is overdue: its job may be leased though the device is reachable.
        static let overdue = Flags(rawValue: 32)
        /// It was sent in the current session, so an ack of it counts even when it is not in flight any more.
        static let sentHere = Flags(rawValue: 128)
        /// The session sent later messages but not this one (again): a position beyond it is no evidence of it.
        static let passedOver = Flags(rawValue: 256)
        /// The store has reported the alarm of its row and will not do so again.
        static let reported = Flags(rawValue: 512)
    }

    var facts: MessageFacts
    var device: DeviceSlot
    var links = SlotLinks<Message>()
    var job = JobSlot.none
    var flags: Flags = []
    var location = ValueLocation(block: 0, offset: 0, byteCount: 0)
    var ticket: Ticket = 0
    /// When its job is due unless the device acks it; 0: never.
    var fallbackAt: GatewayTime = 0
    var sentAt: GatewayTime = 0
    var ackDeadline: GatewayTime = 0
    var collapseHash: UInt64 = 0

    /// The next and the previous message in its device's list.
    var next: MessageSlot { links.next }
    var previous: MessageSlot { links.previous }

    init(facts: MessageFacts, device: DeviceSlot) { (self.facts, self.device) = (facts, device) }

    /// Creates a message whose bytes are on disk only.
    init(cold facts: MessageFacts, device: DeviceSlot) {
        self.init(facts: facts, device: device)
        flags = [.cold]
    }

    var isOffline: Bool { facts.flags.contains(.offline) || flags.contains(.missed) }

    /// Notes that its live attempt timed out, or that its device disconnected before the ack.
    mutating func miss() { flags.insert(.missed) }

    /// Notes a newer message with the same collapse key: this one ends when it is not in flight.
    mutating func markCollapsed() { flags.insert(.collapsed) }

    /// Notes that the store has reported the alarm of its row.
    mutating func markReported() { flags.insert(.reported) }

    /// Notes that the session sends later messages but not this one.
    @inline(__always)
    mutating func passOver() {
        flags.insert(.passedOver)
        flags.remove(.sentHere)
    }
}

extension Place<Message> {
    /// Notes that the message was sent: it is in flight until its ack, its end or a recall.
    @inline(__always)
    func send(to device: Place<Device>, at now: GatewayTime, ackDeadline: GatewayTime) {
        value.flags.insert([.inFlight, .attempted, .sentHere])
        if value.sentAt == 0 { value.sentAt = now }
        value.ackDeadline = ackDeadline
        device.value.addInFlight(value.facts)
    }

    /// Makes a sent message unsent again.
    ///
    /// While the session continues an ack may be on its way, so that the message stays `sentHere`.
    func recall(from device: Place<Device>, isSessionOver: Bool) {
        if isSessionOver { value.flags.remove(.sentHere) }
        guard value.flags.contains(.inFlight) else { return }
        value.flags.subtract([.inFlight, .overdue])
        device.value.removeInFlight(value.facts)
    }
}
