internal import Structures
internal import Wire

/// Messages in memory, each in its device's list of its table.
///
/// The live stream is in the order of sequences, broadcasts in the order of their numbers, and the vendor table in the
/// order of arrival. The table keeps the lists and a device's counts of them; the shard decides about a message.
struct MessageTable: ~Copyable {
    private enum Chain: SlotChain {
        @inline(__always)
        static func links(_ message: UnsafeMutablePointer<Message>) -> UnsafeMutablePointer<SlotLinks<Message>> {
            withUnsafeMutablePointer(to: &message.pointee.links) { $0 }
        }
    }

    private var entries = Slab<Message>()
    var timers: SlotTimers<Message>

    init(now: GatewayTime) { timers = SlotTimers(resolution: 1, now: now) }

    var count: Int { entries.count }
    /// The slots ever used from a given one on, at most `limit`.
    func slots(from first: MessageSlot, limit: UInt32) -> SlotRange<Message> {
        entries.slots(from: first, limit: limit)
    }
    @inline(__always) func isOccupied(_ slot: MessageSlot) -> Bool { entries.isOccupied(slot) }
    /// The message's place, valid until the message is removed.
    @inline(__always) func pointer(_ slot: MessageSlot) -> UnsafeMutablePointer<Message> { entries.pointer(slot) }
    @inline(__always) func address(_ slot: MessageSlot) -> UnsafeMutablePointer<Message> { entries.address(slot) }

    /// Puts a message into memory and into its device's list.
    mutating func insert(_ message: Message, of device: UnsafeMutablePointer<Device>) -> MessageSlot {
        let (table, item) = (message.facts.table, message.facts.item)
        let slot = entries.insert(message)
        var ends = device.pointee.messages(of: table)
        var earlier = ends.last
        if table != .vendorMessage {
            while earlier != .none, pointer(earlier).pointee.facts.item > item {
                earlier = pointer(earlier).pointee.previous
            }
        }
        entries.link(slot, behind: earlier, in: &ends, of: Chain.self)
        device.pointee.setMessages(of: table, ends)
        switch table {
        case .message:
            device.pointee.listedCount += 1
            if pointer(slot).pointee.next == device.pointee.firstUnsent, !message.flags.contains(.inFlight) {
                device.pointee.firstUnsent = slot
            }
        case .vendorMessage:
            device.pointee.listedVendorCount += 1
        default: break
        }
        return slot
    }

    /// Takes a message out of memory, out of its list and out of the messages in flight.
    ///
    /// - Returns: its job's slot, or `.none`.
    mutating func remove(_ slot: MessageSlot, of device: UnsafeMutablePointer<Device>) -> JobSlot {
        let entry = pointer(slot)
        let table = entry.pointee.facts.table
        switch table {
        case .message:
            device.pointee.listedCount -= 1
            if device.pointee.firstUnsent == slot { device.pointee.firstUnsent = entry.pointee.next }
        case .vendorMessage: device.pointee.listedVendorCount -= 1
        default: break
        }
        var ends = device.pointee.messages(of: table)
        entries.unlink(slot, from: &ends, of: Chain.self)
        device.pointee.setMessages(of: table, ends)
        if entry.pointee.flags.contains(.inFlight) {
            device.pointee.inFlightCount -= 1
            device.pointee.inFlightBytes -= entry.pointee.facts.byteCount
        }
        timers.cancel(slot)
        return entries.remove(slot).job
    }

    /// The device's message under an id.
    func find(_ message: MessageID, of device: UnsafeMutablePointer<Device>) -> MessageSlot? {
        for first in [device.pointee.firstMessage, device.pointee.firstVendor, device.pointee.firstBroadcast] {
            var slot = first
            while slot != .none {
                if pointer(slot).pointee.facts.message == message { return slot }
                slot = pointer(slot).pointee.next
            }
        }
        return nil
    }

    /// The device's message under a row's key.
    func find(table: StoreKey.Table, item: UInt64, of device: UnsafeMutablePointer<Device>) -> MessageSlot? {
        let ends = device.pointee.messages(of: table)
        // Most lookups are for the newest message, by its own job; next for the oldest, when it turns cold.
        if ends.last != .none, pointer(ends.last).pointee.facts.item == item { return ends.last }
        let isOrdered = table != .vendorMessage
        var slot = ends.first
        while slot != .none {
            let found = pointer(slot).pointee.facts.item
            if found == item { return slot }
            if isOrdered, found > item { return nil }
            slot = pointer(slot).pointee.next
        }
        return nil
    }
}
