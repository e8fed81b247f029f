internal import Structures

/// What a device's queue needs besides its rows: there while something is queued, sent or waited for.
///
/// A device without one points to its shard's record of no queue, whose values hold for every empty queue; so reading needs
/// no question. The first write of anything else takes a record from the pool; `Shard.releaseQueue` gives it back.
struct DeviceQueue {
    typealias Pointer = UnsafeMutablePointer<DeviceQueue>

    /// Where records come from; read through the shared record, too.
    let pool: UnsafeMutablePointer<DeviceQueuePool>
    /// Its place in the pool; `.max` for the shared record of no queue.
    let slot: UInt32

    /// The first listed message of the live stream that this session has not been offered.
    var firstUnsent: UInt32 = .max
    /// Messages in memory, of either table, linked in sequence order; those of the vendor table are in their own list.
    var firstMessage: UInt32 = .max
    var lastMessage: UInt32 = .max
    /// Rows in the stores, young and cold.
    var messageCount: Int32 = 0
    var listedCount: Int32 = 0
    var messageBytes: Int64 = 0
    /// The next sequence this session has not been offered yet.
    var cursor: UInt64 = 0
    /// One above the highest sequence sent in this session.
    var offeredBelow: UInt64 = 0
    /// Sequences below this were sent in this session before and are being sent again.
    var resentBelow: UInt64 = 0
    var inFlightBytes: UInt32 = 0
    var inFlightCount: UInt16 = 0
    var round: UInt16 = 1
    var firstJob: UInt32 = .max
    /// Messages of broadcasts in memory, by number.
    var firstBroadcast: UInt32 = .max
    var lastBroadcast: UInt32 = .max
    var firstVendor: UInt32 = .max
    var lastVendor: UInt32 = .max
    var vendorCount: Int32 = 0
    var listedVendorCount: Int32 = 0
    var vendorBytes: Int64 = 0
    /// Digests of collapse keys among cold rows; all ones until they were looked through.
    var coldKeys: UInt64 = 0
    var suspectSince: GatewayTime = 0
    /// Counts messages of the live stream that were left to the disk: a page asked for before does not have them.
    var departures: UInt32 = 0
    /// Its place in `waitLists`.
    var waiting: UInt32 = .max
    var dropped = DroppedCounts()

    init(pool: UnsafeMutablePointer<DeviceQueuePool>, slot: UInt32) { (self.pool, self.slot) = (pool, slot) }

    var isNone: Bool { slot == .max }

    /// Nothing is queued, listed, or waiting: every device without a queue is like this one.
    var isEmpty: Bool {
        messageCount == 0 && vendorCount == 0 && inFlightCount == 0
            && firstMessage & firstBroadcast & firstVendor & firstJob & waiting == .max && dropped.isEmpty
    }
}

/// The queues of one shard's devices.
struct DeviceQueuePool: ~Copyable {
    private var queues = Slab<DeviceQueue>()
    /// The shared record of no queue.
    private(set) var none: DeviceQueue.Pointer

    /// The pool lies behind a pointer, since every record names it.
    static func make() -> UnsafeMutablePointer<DeviceQueuePool> {
        let pool = UnsafeMutablePointer<DeviceQueuePool>.allocate(capacity: 1)
        let none = DeviceQueue.Pointer.allocate(capacity: 1)
        none.initialize(to: DeviceQueue(pool: pool, slot: .max))
        pool.initialize(to: DeviceQueuePool(none: none))
        return pool
    }

    private init(none: DeviceQueue.Pointer) { self.none = none }

    deinit { none.deallocate() }

    var count: Int { queues.count }

    mutating func take(_ pool: UnsafeMutablePointer<DeviceQueuePool>) -> DeviceQueue.Pointer {
        let slot = queues.nextSlot
        return queues.pointer(queues.insert(DeviceQueue(pool: pool, slot: slot)))
    }

    mutating func put(_ queue: DeviceQueue.Pointer) { queues.remove(queue.pointee.slot) }
}

// A device's queue, as if it were part of the record.
extension Device {
    /// Whether a value is to be written: it need not be where it is what every empty queue has.
    @inline(__always)
    private mutating func mayWrite(_ isBlank: Bool) -> Bool {
        guard queue.pointee.isNone else { return true }
        if isBlank { return false }
        queue = queue.pointee.pool.pointee.take(queue.pointee.pool)
        return true
    }

    var firstUnsent: UInt32 {
        get { queue.pointee.firstUnsent }
        set { if mayWrite(newValue == .max) { queue.pointee.firstUnsent = newValue } }
    }

    var firstMessage: UInt32 {
        get { queue.pointee.firstMessage }
        set { if mayWrite(newValue == .max) { queue.pointee.firstMessage = newValue } }
    }

    var lastMessage: UInt32 {
        get { queue.pointee.lastMessage }
        set { if mayWrite(newValue == .max) { queue.pointee.lastMessage = newValue } }
    }

    var messageCount: Int32 {
        get { queue.pointee.messageCount }
        set { if mayWrite(newValue == 0) { queue.pointee.messageCount = newValue } }
    }

    var listedCount: Int32 {
        get { queue.pointee.listedCount }
        set { if mayWrite(newValue == 0) { queue.pointee.listedCount = newValue } }
    }

    var messageBytes: Int64 {
        get { queue.pointee.messageBytes }
        set { if mayWrite(newValue == 0) { queue.pointee.messageBytes = newValue } }
    }

    var cursor: UInt64 {
        get { queue.pointee.cursor }
        set { if mayWrite(newValue == 0) { queue.pointee.cursor = newValue } }
    }

    var offeredBelow: UInt64 {
        get { queue.pointee.offeredBelow }
        set { if mayWrite(newValue == 0) { queue.pointee.offeredBelow = newValue } }
    }

    var resentBelow: UInt64 {
        get { queue.pointee.resentBelow }
        set { if mayWrite(newValue == 0) { queue.pointee.resentBelow = newValue } }
    }

    var inFlightBytes: UInt32 {
        get { queue.pointee.inFlightBytes }
        set { if mayWrite(newValue == 0) { queue.pointee.inFlightBytes = newValue } }
    }

    var inFlightCount: UInt16 {
        get { queue.pointee.inFlightCount }
        set { if mayWrite(newValue == 0) { queue.pointee.inFlightCount = newValue } }
    }

    var round: UInt16 {
        get { queue.pointee.round }
        set { if mayWrite(newValue == 1) { queue.pointee.round = newValue } }
    }

    var firstJob: UInt32 {
        get { queue.pointee.firstJob }
        set { if mayWrite(newValue == .max) { queue.pointee.firstJob = newValue } }
    }

    var firstBroadcast: UInt32 {
        get { queue.pointee.firstBroadcast }
        set { if mayWrite(newValue == .max) { queue.pointee.firstBroadcast = newValue } }
    }

    var lastBroadcast: UInt32 {
        get { queue.pointee.lastBroadcast }
        set { if mayWrite(newValue == .max) { queue.pointee.lastBroadcast = newValue } }
    }

    var firstVendor: UInt32 {
        get { queue.pointee.firstVendor }
        set { if mayWrite(newValue == .max) { queue.pointee.firstVendor = newValue } }
    }

    var lastVendor: UInt32 {
        get { queue.pointee.lastVendor }
        set { if mayWrite(newValue == .max) { queue.pointee.lastVendor = newValue } }
    }

    var vendorCount: Int32 {
        get { queue.pointee.vendorCount }
        set { if mayWrite(newValue == 0) { queue.pointee.vendorCount = newValue } }
    }

    var listedVendorCount: Int32 {
        get { queue.pointee.listedVendorCount }
        set { if mayWrite(newValue == 0) { queue.pointee.listedVendorCount = newValue } }
    }

    var vendorBytes: Int64 {
        get { queue.pointee.vendorBytes }
        set { if mayWrite(newValue == 0) { queue.pointee.vendorBytes = newValue } }
    }

    var coldKeys: UInt64 {
        get { queue.pointee.coldKeys }
        set { if mayWrite(newValue == 0) { queue.pointee.coldKeys = newValue } }
    }

    var suspectSince: GatewayTime {
        get { queue.pointee.suspectSince }
        set { if mayWrite(newValue == 0) { queue.pointee.suspectSince = newValue } }
    }

    var departures: UInt32 {
        get { queue.pointee.departures }
        set { if mayWrite(newValue == 0) { queue.pointee.departures = newValue } }
    }

    var waiting: UInt32 {
        get { queue.pointee.waiting }
        set { if mayWrite(newValue == .max) { queue.pointee.waiting = newValue } }
    }

    var dropped: DroppedCounts {
        get { queue.pointee.dropped }
        set { if mayWrite(newValue.isEmpty) { queue.pointee.dropped = newValue } }
    }
}

extension Shard {
    /// Gives a queue back that nothing is in; to be called whenever that may have come to be.
    ///
    /// What is asked for at the disk, and a missed ack, still refer to what stands in it.
    mutating func releaseQueue(_ slot: UInt32) {
        let device = devices.pointer(slot)
        guard !device.pointee.queue.pointee.isNone, device.pointee.queue.pointee.isEmpty,
            device.pointee.flags.isDisjoint(with: [.suspect, .paging, .loading, .busy])
        else { return }
        queues.pointee.put(device.pointee.queue)
        device.pointee.queue = queues.pointee.none
    }
}
