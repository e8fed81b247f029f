internal import Structures

/// The fields of a device's queue, which exist while messages are queued or in flight, or commands wait.
///
/// A device without a queue points to a shared record with the values of an empty queue, so reads need no check. The first write
/// of another value takes a record from the pool, and `DeviceTable.releaseQueue` returns the record.
struct DeviceQueue {
    /// The pool of the records, also set in the shared record.
    let pool: Place<DeviceQueuePool>
    var nextFree: Place<DeviceQueue>?

    /// The first message of the live stream in memory that was not offered to this session.
    var firstUnsent = MessageSlot.none
    /// The messages in memory: live stream by sequence, vendor table, and broadcasts by number.
    var streamed = SlotEnds<Message>()
    var unstreamed = SlotEnds<Message>()
    var broadcast = SlotEnds<Message>()
    var jobs = SlotEnds<JobEntry>()
    /// The live stream's rows in the store, the messages of these rows that are in memory, and the bytes of all rows.
    fileprivate(set) var messageCount: Int32 = 0
    fileprivate(set) var listedCount: Int32 = 0
    fileprivate(set) var messageBytes: Int64 = 0
    /// The next sequence that was not offered to this session.
    var cursor: UInt64 = 0
    /// The highest sequence sent in this session, plus one.
    var offeredBelow: UInt64 = 0
    /// The exclusive upper bound of sequences that this session resends.
    var resentBelow: UInt64 = 0
    fileprivate(set) var inFlightBytes: UInt32 = 0
    fileprivate(set) var inFlightCount: UInt16 = 0
    var round: UInt16 = 1
    fileprivate(set) var vendorCount: Int32 = 0
    fileprivate(set) var listedVendorCount: Int32 = 0
    fileprivate(set) var vendorBytes: Int64 = 0
    /// A Bloom filter of collapse keys in rows on disk; all ones until the shard has read the rows.
    var coldKeys: UInt64 = 0
    var suspectSince: GatewayTime = 0
    /// The time of the last search of the rows on disk for a message named by feedback.
    var queuedSearchAt: GatewayTime = 0
    /// The number of live messages that moved from memory to disk; a page requested before such a move may lack the message.
    var departures: UInt32 = 0
    /// The device's slot in `DeviceTable.waitLists`.
    var waiting = WaitSlot.none
    fileprivate(set) var dropped = DroppedCounts()
    /// Whether queued messages may have job rows, which a page of the queue must then read.
    ///
    /// The value becomes false when the queue is empty, and true with a job's first row or when a load finds messages on disk.
    var mayHaveJobRows = false

    init(pool: Place<DeviceQueuePool>) { self.pool = pool }
}

extension Place<DeviceQueue> {
    @inline(__always)
    var isNone: Bool { value.pool.value.none == self }

    @inline(__always)
    var isEmpty: Bool {
        value.messageCount | value.vendorCount | Int32(value.inFlightCount) == 0
            && value.streamed.first.number & value.broadcast.first.number & value.unstreamed.first.number == .max
            && value.jobs.first.number & value.waiting.number == .max
            && value.dropped.expired | value.dropped.collapsed | value.dropped.overflowed == 0
            && value.dropped.revoked | value.dropped.failed == 0
    }
}

struct DeviceQueuePool: ~Copyable {
    private static let chunkCount = 128

    let none: Place<DeviceQueue>
    private var firstFree: Place<DeviceQueue>?
    private var chunks = PlaceChunks<DeviceQueue>()
    private(set) var count = 0

    /// Creates the pool at a fixed address because every record refers to it.
    static func make() -> Place<DeviceQueuePool> {
        Place.make { DeviceQueuePool(at: $0) }
    }

    private init(at place: Place<DeviceQueuePool>) {
        var none: Place<DeviceQueue>?
        chunks.make(1, of: DeviceQueue(pool: place)) { none = $0 }
        guard let none else { preconditionFailure("one place is made") }
        self.none = none
    }

    mutating func take() -> Place<DeviceQueue> {
        if firstFree == nil { addChunk() }
        guard let queue = firstFree else { preconditionFailure("a chunk without records") }
        firstFree = queue.value.nextFree
        queue.update(from: none)
        count += 1
        return queue
    }

    mutating func put(_ queue: Place<DeviceQueue>) {
        count -= 1
        queue.value.nextFree = firstFree
        firstFree = queue
    }

    private mutating func addChunk() {
        var first = firstFree
        chunks.make(Self.chunkCount, of: none.value) { queue in
            queue.value.nextFree = first
            first = queue
        }
        firstFree = first
    }
}

// Accessors for the fields of a device's queue.
extension Device {
    /// Returns whether a value must be written, and takes a queue record if needed; a device without a queue has blank values.
    @inline(__always)
    private mutating func mayWrite(_ isBlank: Bool) -> Bool {
        guard queue.isNone else { return true }
        if isBlank { return false }
        takeQueue()
        return true
    }

    @inline(__always)
    private mutating func takeQueue() {
        if queue.isNone { queue = queue.value.pool.value.take() }
    }

    var firstUnsent: MessageSlot {
        @inline(__always) get { queue.value.firstUnsent }
        @inline(__always) set { if mayWrite(newValue == .none) { queue.value.firstUnsent = newValue } }
    }

    var firstMessage: MessageSlot { @inline(__always) get { queue.value.streamed.first } }
    var firstVendor: MessageSlot { @inline(__always) get { queue.value.unstreamed.first } }
    var firstBroadcast: MessageSlot { @inline(__always) get { queue.value.broadcast.first } }
    var lastBroadcast: MessageSlot { @inline(__always) get { queue.value.broadcast.last } }
    var firstJob: JobSlot { @inline(__always) get { queue.value.jobs.first } }

    @inline(__always)
    func messages(of table: StoreKey.Table) -> SlotEnds<Message> {
        switch table {
        case .message: queue.value.streamed
        case .broadcast: queue.value.broadcast
        default: queue.value.unstreamed
        }
    }

    /// Sets the ends of a message list and adds `change` to its count.
    @inline(__always)
    mutating func setMessages(of table: StoreKey.Table, _ ends: SlotEnds<Message>, change: Int32) {
        guard mayWrite(ends.isEmpty) else { return }
        switch table {
        case .message:
            queue.value.streamed = ends
            queue.value.listedCount += change
        case .broadcast: queue.value.broadcast = ends
        default:
            queue.value.unstreamed = ends
            queue.value.listedVendorCount += change
        }
    }

    var jobs: SlotEnds<JobEntry> {
        @inline(__always) get { queue.value.jobs }
        @inline(__always) set { if mayWrite(newValue.isEmpty) { queue.value.jobs = newValue } }
    }

    var messageCount: Int32 { @inline(__always) get { queue.value.messageCount } }
    var messageBytes: Int64 { @inline(__always) get { queue.value.messageBytes } }
    var vendorCount: Int32 { @inline(__always) get { queue.value.vendorCount } }
    var vendorBytes: Int64 { @inline(__always) get { queue.value.vendorBytes } }
    /// The number of rows that are only on disk.
    var coldMessageCount: Int32 { queue.value.messageCount - queue.value.listedCount }
    var coldVendorCount: Int32 { queue.value.vendorCount - queue.value.listedVendorCount }
    var inFlightCount: UInt16 { @inline(__always) get { queue.value.inFlightCount } }
    var inFlightBytes: UInt32 { @inline(__always) get { queue.value.inFlightBytes } }

    @inline(__always)
    mutating func add(_ facts: MessageFacts) { count(facts.table, 1, Int64(facts.byteCount)) }

    @inline(__always)
    mutating func remove(_ facts: MessageFacts) {
        count(facts.table, -1, -Int64(facts.byteCount))
        if messageCount + vendorCount == 0 { queue.value.mayHaveJobRows = false }
    }

    mutating func setMeasured(_ table: StoreKey.Table, count: Int, byteCount: Int) {
        guard mayWrite(count == 0) else { return }
        if table == .message {
            queue.value.messageCount = Int32(truncatingIfNeeded: count)
            queue.value.messageBytes = Int64(byteCount)
        } else {
            queue.value.vendorCount = Int32(truncatingIfNeeded: count)
            queue.value.vendorBytes = Int64(byteCount)
        }
    }

    @inline(__always)
    private mutating func count(_ table: StoreKey.Table, _ change: Int32, _ byteChange: Int64) {
        takeQueue()
        if table == .message {
            queue.value.messageCount += change
            queue.value.messageBytes += byteChange
        } else {
            queue.value.vendorCount += change
            queue.value.vendorBytes += byteChange
        }
    }

    @inline(__always)
    mutating func addInFlight(_ facts: MessageFacts) {
        takeQueue()
        queue.value.inFlightCount += 1
        queue.value.inFlightBytes += facts.byteCount
    }

    @inline(__always)
    mutating func removeInFlight(_ facts: MessageFacts) {
        queue.value.inFlightCount -= 1
        queue.value.inFlightBytes -= facts.byteCount
    }

    var cursor: UInt64 {
        @inline(__always) get { queue.value.cursor }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.value.cursor = newValue } }
    }

    var offeredBelow: UInt64 {
        @inline(__always) get { queue.value.offeredBelow }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.value.offeredBelow = newValue } }
    }

    var resentBelow: UInt64 {
        @inline(__always) get { queue.value.resentBelow }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.value.resentBelow = newValue } }
    }

    var round: UInt16 {
        @inline(__always) get { queue.value.round }
        @inline(__always) set { if mayWrite(newValue == 1) { queue.value.round = newValue } }
    }

    var coldKeys: UInt64 {
        @inline(__always) get { queue.value.coldKeys }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.value.coldKeys = newValue } }
    }

    var suspectSince: GatewayTime {
        @inline(__always) get { queue.value.suspectSince }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.value.suspectSince = newValue } }
    }

    var queuedSearchAt: GatewayTime {
        @inline(__always) get { queue.value.queuedSearchAt }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.value.queuedSearchAt = newValue } }
    }

    var departures: UInt32 {
        @inline(__always) get { queue.value.departures }
        @inline(__always) set { if mayWrite(newValue == 0) { queue.value.departures = newValue } }
    }

    var waiting: WaitSlot {
        @inline(__always) get { queue.value.waiting }
        @inline(__always) set { if mayWrite(newValue == .none) { queue.value.waiting = newValue } }
    }

    var dropped: DroppedCounts { @inline(__always) get { queue.value.dropped } }

    mutating func loadDropped(_ counts: DroppedCounts) {
        if mayWrite(counts.isEmpty) { queue.value.dropped = counts }
    }

    /// Counts a message that ended unseen by the device, and marks the row as changed.
    @inline(__always)
    mutating func countDropped(_ state: FinalState) {
        var counts = dropped
        guard counts.count(state) else { return }
        loadDropped(counts)
        needsRow()
    }

    mutating func clearDropped() {
        loadDropped(DroppedCounts())
        needsRow()
    }

    var mayHaveJobRows: Bool {
        @inline(__always) get { queue.value.mayHaveJobRows }
        @inline(__always) set { if mayWrite(!newValue) { queue.value.mayHaveJobRows = newValue } }
    }
}
