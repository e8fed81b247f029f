internal import Structures

/// The fields of a device's queue: they exist while something is queued, sent or waits.
///
/// A device without a queue points to its shard's record of no queue, whose values hold for every empty queue. So a
/// read needs no check. The first write of another value takes a record from the pool; `DeviceTable.releaseQueue` gives
/// it back.
struct DeviceQueue {
    typealias Pointer = UnsafeMutablePointer<DeviceQueue>

    /// The pool of the records; the shared record has it, too.
    let pool: UnsafeMutablePointer<DeviceQueuePool>
    /// The next free record, in a free one.
    var nextFree: Pointer?

    /// The first listed message of the live stream that the shard has not offered to this session.
    var firstUnsent = MessageSlot.none
    /// Messages in memory: of the live stream by sequence, of the vendor table, and of broadcasts by number.
    var streamed = SlotEnds<Message>()
    var unstreamed = SlotEnds<Message>()
    var broadcast = SlotEnds<Message>()
    var jobs = SlotEnds<JobEntry>()
    /// Rows in the stores, young and cold.
    var messageCount: Int32 = 0
    var listedCount: Int32 = 0
    var messageBytes: Int64 = 0
    /// The next sequence that the shard has not offered to this session yet.
    var cursor: UInt64 = 0
    /// One above the highest sequence sent in this session.
    var offeredBelow: UInt64 = 0
    /// This session got sequences below this before, and the shard sends them again.
    var resentBelow: UInt64 = 0
    var inFlightBytes: UInt32 = 0
    var inFlightCount: UInt16 = 0
    var round: UInt16 = 1
    var vendorCount: Int32 = 0
    var listedVendorCount: Int32 = 0
    var vendorBytes: Int64 = 0
    /// Digests of collapse keys among cold rows; all ones until the shard has looked through the rows.
    var coldKeys: UInt64 = 0
    var suspectSince: GatewayTime = 0
    /// When the shard last looked through its rows on disk for a message that feedback names.
    var queuedSearchAt: GatewayTime = 0
    /// Counts messages of the live stream that left memory for the disk: a page asked for before does not have them.
    var departures: UInt32 = 0
    /// Its place in `waitLists`.
    var waiting = WaitSlot.none
    var dropped = DroppedCounts()
    /// A queued message may have a job row: a page of the queue looks for them.
    ///
    /// False from the moment the queue is empty until a job's first row; true for a queue that a load finds on disk.
    var mayHaveJobRows = false

    init(pool: UnsafeMutablePointer<DeviceQueuePool>) { self.pool = pool }
}

extension DeviceQueue.Pointer {
    /// The shared record of no queue.
    @inline(__always)
    var isNone: Bool { pointee.pool.pointee.none == self }

    /// Nothing is queued, listed or waits: every device without a queue is like this.
    @inline(__always)
    var isEmpty: Bool {
        pointee.messageCount | pointee.vendorCount | Int32(pointee.inFlightCount) == 0
            && pointee.streamed.first.number & pointee.broadcast.first.number & pointee.unstreamed.first.number == .max
            && pointee.jobs.first.number & pointee.waiting.number == .max
            && pointee.dropped.expired | pointee.dropped.collapsed | pointee.dropped.overflowed == 0
            && pointee.dropped.revoked | pointee.dropped.failed == 0
    }
}

/// The queues of one shard's devices.
struct DeviceQueuePool: ~Copyable {
    private static let chunkCount = 128

    /// The shared record of no queue.
    let none: DeviceQueue.Pointer
    private var firstFree: DeviceQueue.Pointer?
    private var chunks: [DeviceQueue.Pointer] = []
    /// Queues that devices have.
    private(set) var count = 0

    /// The pool is behind a pointer, since every record names it.
    static func make() -> UnsafeMutablePointer<DeviceQueuePool> {
        let pool = UnsafeMutablePointer<DeviceQueuePool>.allocate(capacity: 1)
        let none = DeviceQueue.Pointer.allocate(capacity: 1)
        none.initialize(to: DeviceQueue(pool: pool))
        pool.initialize(to: DeviceQueuePool(none: none))
        return pool
    }

    private init(none: DeviceQueue.Pointer) { self.none = none }

    deinit {
        for chunk in chunks { chunk.deallocate() }
        none.deallocate()
    }

    /// A record with the values of no queue.
    mutating func take() -> DeviceQueue.Pointer {
        if firstFree == nil { addChunk() }
        guard let queue = firstFree else { preconditionFailure("a chunk without records") }
        firstFree = queue.pointee.nextFree
        queue.update(from: none, count: 1)
        count += 1
        return queue
    }

    mutating func put(_ queue: DeviceQueue.Pointer) {
        count -= 1
        keep(queue)
    }

    private mutating func keep(_ queue: DeviceQueue.Pointer) {
        queue.pointee.nextFree = firstFree
        firstFree = queue
    }

    private mutating func addChunk() {
        let chunk = DeviceQueue.Pointer.allocate(capacity: Self.chunkCount)
        chunk.initialize(repeating: none.pointee, count: Self.chunkCount)
        chunks.append(chunk)
        for index in (0..<Self.chunkCount).reversed() { keep(chunk + index) }
    }
}

// A device's queue, as if it were part of the record.
extension Device {
    /// Whether to write a value: a device without a queue has every empty queue's values already.
    @inline(__always)
    private mutating func mayWrite(_ isBlank: Bool) -> Bool {
        guard queue.isNone else { return true }
        if isBlank { return false }
        queue = queue.pointee.pool.pointee.take()
        return true
    }

    var firstUnsent: MessageSlot {
        @inline(__always) get { queue.pointee.firstUnsent }
        @inline(__always) set { if mayWrite(newValue == .none) { queue.pointee.firstUnsent = newValue } }
    }

    var firstMessage: MessageSlot { @inline(__always) get { queue.pointee.streamed.first } }
    var firstVendor: MessageSlot { @inline(__always) get { queue.pointee.unstreamed.first } }
    var firstBroadcast: MessageSlot { @inline(__always) get { queue.pointee.broadcast.first } }
    var lastBroadcast: MessageSlot { @inline(__always) get { queue.pointee.broadcast.last } }
    var firstJob: JobSlot { @inline(__always) get { queue.pointee.jobs.first } }

    /// The list of the device's messages of a table in memory.
    @inline(__always)
    func messages(of table: StoreKey.Table) -> SlotEnds<Message> {
        switch table {
        case .message: queue.pointee.streamed
        case .broadcast: queue.pointee.broadcast
        default: queue.pointee.unstreamed
        }
    }

    @inline(__always)
    mutating func setMessages(of table: StoreKey.Table, _ ends: SlotEnds<Message>) {
        guard mayWrite(ends.isEmpty) else { return }
        switch table {
        case .message: queue.pointee.streamed = ends
        case .broadcast: queue.pointee.broadcast = ends
        default: queue.pointee.unstreamed = ends
        }
    }

    var jobs: SlotEnds<JobEntry> {
        @inline(__always) get { queue.pointee.jobs }
        @inline(__always) set { if mayWrite(newValue.isEmpty) { queue.pointee.jobs = newValue } }
    }

    var messageCount: Int32 {
        @inline(__always) get { queue.pointee.messageCount }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.messageCount = newValue } }
    }

    var listedCount: Int32 {
        @inline(__always) get { queue.pointee.listedCount }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.listedCount = newValue } }
    }

    var messageBytes: Int64 {
        @inline(__always) get { queue.pointee.messageBytes }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.messageBytes = newValue } }
    }

    var cursor: UInt64 {
        @inline(__always) get { queue.pointee.cursor }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.cursor = newValue } }
    }

    var offeredBelow: UInt64 {
        @inline(__always) get { queue.pointee.offeredBelow }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.offeredBelow = newValue } }
    }

    var resentBelow: UInt64 {
        @inline(__always) get { queue.pointee.resentBelow }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.resentBelow = newValue } }
    }

    var inFlightBytes: UInt32 {
        @inline(__always) get { queue.pointee.inFlightBytes }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.inFlightBytes = newValue } }
    }

    var inFlightCount: UInt16 {
        @inline(__always) get { queue.pointee.inFlightCount }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.inFlightCount = newValue } }
    }

    var round: UInt16 {
        @inline(__always) get { queue.pointee.round }
        @inline(__always) set { if mayWrite(newValue == 1) { queue.pointee.round = newValue } }
    }

    var vendorCount: Int32 {
        @inline(__always) get { queue.pointee.vendorCount }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.vendorCount = newValue } }
    }

    var listedVendorCount: Int32 {
        @inline(__always) get { queue.pointee.listedVendorCount }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.listedVendorCount = newValue } }
    }

    var vendorBytes: Int64 {
        @inline(__always) get { queue.pointee.vendorBytes }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.vendorBytes = newValue } }
    }

    var coldKeys: UInt64 {
        @inline(__always) get { queue.pointee.coldKeys }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.coldKeys = newValue } }
    }

    var suspectSince: GatewayTime {
        @inline(__always) get { queue.pointee.suspectSince }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.suspectSince = newValue } }
    }

    var queuedSearchAt: GatewayTime {
        @inline(__always) get { queue.pointee.queuedSearchAt }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.queuedSearchAt = newValue } }
    }

    var departures: UInt32 {
        @inline(__always) get { queue.pointee.departures }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.pointee.departures = newValue } }
    }

    var waiting: WaitSlot {
        @inline(__always) get { queue.pointee.waiting }
        @inline(__always) set { if mayWrite(newValue == .none) { queue.pointee.waiting = newValue } }
    }

    var dropped: DroppedCounts {
        @inline(__always) get { queue.pointee.dropped }
        @inline(__always) set { if mayWrite(newValue.isEmpty) { queue.pointee.dropped = newValue } }
    }

    var mayHaveJobRows: Bool {
        @inline(__always) get { queue.pointee.mayHaveJobRows }
        @inline(__always) set { if mayWrite(!newValue) { queue.pointee.mayHaveJobRows = newValue } }
    }
}
