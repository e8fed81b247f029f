internal import Delivery
internal import MessageStore
internal import Wire

/// The store of a part that this gateway does not own: it has no rows, takes none, and says so.
///
/// The shard over it is asked nothing (`GatewayLoop.isHere`). What it writes of its own accord goes nowhere.
final class VacantStore: LoopStore {
    weak var observer: (any ShardStoreObserver)?
    private var scratch = UnsafeMutableRawBufferPointer.allocate(
        byteCount: StoreBounds.valueByteCount, alignment: 16)
    private var lastTicket: Ticket = 0
    private var lastToken: ReadToken = 0

    deinit { scratch.deallocate() }

    var hasRoomForLists: Bool { false }
    var isStuck: Bool { false }
    var youngRowCount: Int { 0 }
    var blockByteCount: Int { 0 }
    var batchByteCount: Int { StoreBounds.smallestBatchByteCount }
    var committedTicket: Ticket { lastTicket }
    var acceptsWrites: Bool { false }
    var isShortOfRoom: Bool { true }
    var nextAlarm: Int64 { .max }
    var alarmGroups: [AlarmGroup] { [] }

    func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) throws(StoreError) {}
    func turnEnded(awaited: Ticket) {}
    func secondPassed() {}
    func close() { observer = nil }

    func beginBatch(_ bucket: Bucket) {}

    func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation {
        write(UnsafeMutableRawBufferPointer(rebasing: scratch[..<min(byteCount, scratch.count)]))
        return ValueLocation(block: 0, offset: 0, byteCount: 0)
    }

    func delete(_ key: StoreKey, prior: PriorRow) {}
    func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void) {}

    func endBatch() -> Ticket {
        lastTicket += 1
        return lastTicket
    }

    func value(at location: ValueLocation) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: scratch[..<0])
    }

    func young(_ key: StoreKey) -> YoungLookup { .deleted }
    func isCertainlyAbsent(_ key: StoreKey) -> Bool { true }

    func read(_ requests: [StoreRead]) -> ReadToken {
        lastToken += 1
        return lastToken
    }

    func requestAlarms(_ request: AlarmRequest) -> ReadToken { read([]) }
    func nextAlarm(of group: AlarmGroup) -> Int64 { .max }
    func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64) {}
    func recallAlarms(of group: AlarmGroup, in bucket: Bucket) {}
}
