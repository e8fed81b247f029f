internal import Structures
internal import Wire

/// The messages in memory, each in its device's list of its table.
///
/// Live messages are ordered by sequence, broadcasts by number, and the vendor table by arrival. The table maintains the lists
/// and their counts; the shard makes the decisions.
struct MessageTable: ~Copyable {
    private enum Chain: SlotChain {
        @inline(__always)
        static func links(_ message: Place<Message>) -> SlotLinks<Message> { message.value.links }
        @inline(__always)
        static func setLinks(_ message: Place<Message>, _ links: SlotLinks<Message>) { message.value.links = links }
    }

    private var entries = Slab<Message>()
    var timers: SlotTimers<Message>

    init(now: GatewayTime) { timers = SlotTimers(resolution: 1, now: now) }

    var count: Int { entries.count }
    /// Returns at most `limit` slots from `first` on, occupied or not.
    func slots(from first: MessageSlot, limit: UInt32) -> SlotRange<Message> {
        entries.slots(from: first, limit: limit)
    }
    @inline(__always) func isOccupied(_ slot: MessageSlot) -> Bool { entries.isOccupied(slot) }
    /// Returns the message's address, valid until the message is removed.
    @inline(__always) func at(_ slot: MessageSlot) -> Place<Message> { entries.at(slot) }
    @inline(__always) func unchecked(_ slot: MessageSlot) -> Place<Message> { entries.unchecked(slot) }

    mutating func insert(_ message: Message, of device: Place<Device>) -> MessageSlot {
        let (table, item) = (message.facts.table, message.facts.item)
        let slot = entries.insert(message)
        var ends = device.value.messages(of: table)
        var earlier = ends.last
        if table != .vendorMessage {
            while earlier != .none, at(earlier).value.facts.item > item {
                earlier = at(earlier).value.previous
            }
        }
        entries.link(slot, behind: earlier, in: &ends, of: Chain.self)
        device.value.setMessages(of: table, ends, change: 1)
        if table == .message, at(slot).value.next == device.value.firstUnsent, !message.flags.contains(.inFlight) {
            device.value.firstUnsent = slot
        }
        return slot
    }

    /// Removes a message from memory, from its list and from the in-flight count.
    ///
    /// - Returns: the job's slot, or `.none`.
    mutating func remove(_ slot: MessageSlot, of device: Place<Device>) -> JobSlot {
        let entry = at(slot)
        let table = entry.value.facts.table
        if device.value.firstUnsent == slot { device.value.firstUnsent = entry.value.next }
        var ends = device.value.messages(of: table)
        entries.unlink(slot, from: &ends, of: Chain.self)
        device.value.setMessages(of: table, ends, change: -1)
        if entry.value.flags.contains(.inFlight) { device.value.removeInFlight(entry.value.facts) }
        timers.cancel(slot)
        return entries.remove(slot).job
    }

    func find(_ message: MessageID, of device: Place<Device>) -> MessageSlot? {
        for first in [device.value.firstMessage, device.value.firstVendor, device.value.firstBroadcast] {
            var slot = first
            while slot != .none {
                if at(slot).value.facts.message == message { return slot }
                slot = at(slot).value.next
            }
        }
        return nil
    }

    func find(table: StoreKey.Table, item: UInt64, of device: Place<Device>) -> MessageSlot? {
        let ends = device.value.messages(of: table)
        // Most look-ups are for the newest message, by its own job. The next most frequent are for the oldest, when it leaves
        // memory.
        if ends.last != .none, at(ends.last).value.facts.item == item { return ends.last }
        let isOrdered = table != .vendorMessage
        var slot = ends.first
        while slot != .none {
            let found = at(slot).value.facts.item
            if found == item { return slot }
            if isOrdered, found > item { return nil }
            slot = at(slot).value.next
        }
        return nil
    }
}
