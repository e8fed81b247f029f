// The store interface: ordered keys and small atomic batches of one bucket.
//
// A shard store belongs to one loop and is called only on that loop. Its writes are *visible* to `get` and `scan` immediately,
// and *durable* when the commit of their ticket is reported. Delivery therefore changes its memory and the store together, and
// delays each effect of a change until `committed(upTo:)` reports its ticket.
//
// Rows have two ages. *Young* rows are in the journal and in memory; reading one is a look-up. *Cold* rows are in the ordered
// store on disk; reading one is a request to a reader thread, answered with a `StoreReply`. After a restart every row is cold.
//
// A row may have an *alarm* (`wakeAt`, gateway time in milliseconds, 0 for none). Delivery keeps the deadline of a young row in
// its own timer wheel. When the row turns cold, the store calls `storeCooled` and keeps the alarm from then on. It reports a due
// alarm once, in the reply to `requestAlarms`. Deadlines therefore need no scan of queues.

package import Wire

/// The number of a shard's batch: 1, 2, 3… in the order of `endBatch()`.
package typealias Ticket = UInt64

/// The location of a young row's value in memory, valid until the row is overwritten, deleted or reported as cooled.
public struct ValueLocation: Sendable, Equatable {
    public var block: UInt32
    public var offset: UInt32
    public var byteCount: UInt32
    @inlinable public init(block: UInt32, offset: UInt32, byteCount: UInt32) {
        (self.block, self.offset, self.byteCount) = (block, offset, byteCount)
    }
}

/// The limits of every store.
///
/// A store's own limit of a batch's bytes is `ShardStore.batchByteCount`.
///
/// Delivery refuses larger input at admission, before it changes anything, and a test computes that no accepted input exceeds the
/// limits. A store that receives a larger write does not end the process; it reports a `StoreBreach`.
public enum StoreBounds {
    /// The maximum size of a row's value: the largest message with its vendor content, and a reserve.
    public static let valueByteCount = 128 << 10
    /// The maximum size of an operation in a batch without its value.
    public static let operationByteCount = 49
    /// The maximum number of operations per batch.
    public static let operationCount = 65_535
    /// The batch size, headers included, that every configurable store accepts.
    public static let smallestBatchByteCount = (2 << 20) - 64
}

/// A write beyond the store's limits; it is a bug of the caller, and the store reports it for the log.
package struct StoreBreach: Error, Sendable, Equatable {
    package enum Kind: Sendable, Equatable {
        /// The value exceeds `StoreBounds.valueByteCount`; the store accepted it.
        case largeValue(byteCount: Int)
        /// The value exceeds `ShardStore.batchByteCount`; the store did not accept it.
        case unfitValue(byteCount: Int)
        /// The batch has too many operations or bytes, and the store split it.
        ///
        /// Both parts are in one write, so only a power failure during that write can separate them.
        case longBatch(operationCount: Int, byteCount: Int)
        /// A row of a table without alarms had an alarm; the store dropped the alarm.
        case alarm
    }

    package var kind: Kind
    package var key: StoreKey

    package init(_ kind: Kind, _ key: StoreKey) { (self.kind, self.key) = (kind, key) }
}

extension StoreBreach: CustomStringConvertible {
    package var description: String {
        let what =
            switch kind {
            case .largeValue(let count): "a value of \(count) bytes, taken"
            case .unfitValue(let count): "a value of \(count) bytes, not taken"
            case .longBatch(let operations, let bytes):
                "a batch of \(operations) operations and \(bytes) bytes, written as two"
            case .alarm: "an alarm where there is none"
            }
        let owner = DeviceID(high: key.ownerHigh, low: key.ownerLow)
        return "\(what): table \(key.table), bucket \(key.bucket.index), owner \(owner), item \(key.item)"
    }
}

/// The caller's knowledge of an existing row under the key that it writes or deletes.
public enum PriorRow: Sendable, Equatable {
    /// No row has ever existed under this key; a later delete of the young row needs no write to disk.
    case none
    /// A row may exist; `wakeAt` is its alarm, 0 for none, and the store clears that alarm.
    case maybe(wakeAt: Int64)
}

/// One row in a reply; `value` is valid while the reply exists.
///
/// `@safe`: Delivery reads the value through a row's checks (`Store/Rows`).
@safe public struct StoredRow {
    public var key: StoreKey
    public var wakeAt: Int64
    public var value: UnsafeRawBufferPointer
    @inlinable public init(key: StoreKey, wakeAt: Int64, value: UnsafeRawBufferPointer) {
        unsafe (self.key, self.wakeAt, self.value) = (key, wakeAt, value)
    }
}

package typealias ReadToken = UInt64

/// One read.
///
/// A reader thread answers all reads of one request in one reply, so a device loads in one round trip.
///
/// `@safe`: the store keeps the bytes that it passes to `matches` valid during the call.
@safe package enum StoreRead: Sendable {
    case get(StoreKey)
    /// Reads rows of the partition in order, from `partition.item` on, up to both limits but at least one row.
    case scan(partition: StoreKey, rowLimit: Int, byteLimit: Int)
    /// Returns the number of rows of the partition, the sum of their value bytes, and the first and last item; examines up to
    /// `rowLimit` rows.
    case measure(partition: StoreKey, rowLimit: Int)
    /// Finds the first row on disk in the bucket's table for which `matches` returns true, as `.row`.
    ///
    /// The result is the current row, or none if it was deleted since. A reader thread runs `matches` over all rows of the table,
    /// so use it only for operator queries.
    case search(bucket: Bucket, table: StoreKey.Table, matches: @Sendable (UnsafeRawBufferPointer) -> Bool)
    /// Finds the trace rows of a bucket for which `matches` returns true, as `.rows`: highest keys first, at most `limit`.
    ///
    /// The readers and the loop run `matches` over all traces of the bucket, so use it only for operator queries.
    case traces(bucket: Bucket, limit: Int, matches: @Sendable (StoreKey, UnsafeRawBufferPointer) -> Bool)
}

package enum StoreReadResult {
    case row(StoredRow?)
    /// `isComplete` is false if a limit ended the scan before the end of the partition.
    case rows([StoredRow], isComplete: Bool)
    case measure(rowCount: Int, byteCount: Int, firstItem: UInt64, lastItem: UInt64)
}

/// A reader's answer, valid while this object exists.
///
/// The store passes it to Delivery on the requesting loop.
///
/// A reply shows the rows as of its delivery. The store merges young rows over cold rows on the loop, just before it passes the
/// reply on.
package final class StoreReply {
    package let token: ReadToken
    package let results: [StoreReadResult]
    /// The error of a failed cold read; `results` is then empty.
    ///
    /// The waiting command fails with a retryable error.
    package let failure: String?
    private let owner: AnyObject?

    /// Creates a reply; `owner` keeps the rows' bytes alive.
    package init(token: ReadToken, results: [StoreReadResult], failure: String? = nil, owner: AnyObject? = nil) {
        (self.token, self.results, self.failure, self.owner) = (token, results, failure, owner)
    }
}

/// The events of a shard store, reported on its loop; within a turn: commits, then replies, then cooled rows.
package protocol ShardStoreObserver: AnyObject {
    /// Reports that all batches up to and including `ticket` are durable.
    func storeCommitted(upTo ticket: Ticket)
    /// Reports the end of a read requested with `read(_:)` or `requestAlarms`.
    ///
    /// The reply shows the rows as of this call, including the observer's writes for earlier replies of the same turn.
    func storeReplied(_ reply: StoreReply)
    /// Reports that a young row is now cold: its location is invalid, and the store handles its alarm.
    ///
    /// Called only for rows of tables with alarms (`StoreKey.Table.hasAlarms`).
    func storeCooled(_ key: StoreKey)
    /// Reports a write of the observer beyond the store's limits.
    ///
    /// The call occurs inside that write, so the observer must not call the shard.
    func storeBreached(_ breach: StoreBreach)
}

extension ShardStoreObserver {
    package func storeBreached(_ breach: StoreBreach) {}
}

/// The store of one shard, confined to the shard's loop.
///
/// The suite `Tests/Support/TestKit/ShardStoreConformance.swift` defines conformance. The in-memory fake and the embedded store
/// both pass it.
package protocol ShardStore: AnyObject {
    /// The observer, set once before the first call; a store may retain it until the store is closed.
    var observer: (any ShardStoreObserver)? { get set }

    /// The maximum size of a batch, including a header of `StoreBounds.operationByteCount` per operation.
    var batchByteCount: Int { get }

    /// Begins a batch of rows of one bucket; batches do not nest.
    func beginBatch(_ bucket: Bucket)

    /// Adds a row to the open batch.
    ///
    /// - Parameters:
    ///   - key: in the open batch's bucket.
    ///   - wakeAt: the row's alarm in gateway milliseconds, 0 for none.
    ///   - prior: the row that may already exist under the key.
    ///   - byteCount: the value's exact size, up to `StoreBounds.valueByteCount`.
    ///   - write: fills all `byteCount` bytes.
    /// - Returns: the location of the value.
    @discardableResult
    func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation

    /// Deletes a row in the open batch; the row need not exist.
    func delete(_ key: StoreKey, prior: PriorRow)

    /// Adds to a counters row (table `counters`), in the open batch.
    ///
    /// The batch contains only the change. The store keeps the sum and writes it when the change leaves the journal.
    ///
    /// - Parameters:
    ///   - key: in the open batch's bucket.
    ///   - change: the increments.
    ///   - total: fills the whole row, including this change (`CountersRow.byteCount` bytes); called only if the store does not
    ///     have the row in memory.
    func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void)

    /// Closes the batch, which commits or is lost as a whole; an empty batch also gets a ticket.
    func endBatch() -> Ticket

    /// The highest ticket known to be durable.
    var committedTicket: Ticket { get }

    /// Whether the store accepts writes; false while the journal or the uncommitted bytes are at their limit.
    ///
    /// The shard then refuses new publishes with a retryable error, but still settles existing messages.
    var acceptsWrites: Bool { get }

    /// Whether much of the journal or of the bound of uncommitted bytes is used; the remainder is for apps below their share.
    var isShortOfRoom: Bool { get }

    func value(at location: ValueLocation) -> UnsafeRawBufferPointer

    /// Looks up a young row (written since the last restart and not yet cooled); never reads the disk.
    func young(_ key: StoreKey) -> YoungLookup

    /// Returns whether the row certainly does not exist; a filter answers without a read from disk.
    func isCertainlyAbsent(_ key: StoreKey) -> Bool

    /// Sends a request to a reader thread; the reply arrives through the observer in a later turn, never inside this call.
    func read(_ requests: [StoreRead]) -> ReadToken

    /// Requests cold rows whose alarm is at or before the request's time, at most its limit.
    ///
    /// The store reports each alarm once per start, or again after the alarm changed. The reply contains one `.rows` result with
    /// the rows' current values; `isComplete` is false if more are due. Rows found before a failure are included.
    ///
    /// The store skips an alarm for which `AlarmRequest.judge` returns `leave`, and keeps it in a group. A later request reads
    /// the group, which may report an alarm twice. The alarm of a message is not reported if the job row named by
    /// `AlarmRequest.successor` exists.
    func requestAlarms(_ request: AlarmRequest) -> ReadToken

    /// The earliest alarm kept by the store, or `Int64.max`.
    ///
    /// A request for an earlier time finds nothing.
    ///
    /// After a start the value is 0 until the store has examined all alarms.
    var nextAlarm: Int64 { get }

    var alarmGroups: [AlarmGroup] { get }

    /// Returns the time of a group's next alarm, or `Int64.max`.
    func nextAlarm(of group: AlarmGroup) -> Int64

    /// Returns a reported alarm of a cold row to the store.
    ///
    /// The group reports the alarm again at `until`, or earlier after a recall or an eager request.
    func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64)

    func recallAlarms(of group: AlarmGroup, in bucket: Bucket)
}

extension ShardStore {
    package func requestAlarms(upTo time: Int64, limit: Int) -> ReadToken {
        requestAlarms(AlarmRequest(upTo: time, limit: limit))
    }
}

package enum YoungLookup: Equatable, Sendable {
    case found(ValueLocation, wakeAt: Int64)
    /// The row was deleted and the disk may still have it; the shard must not read the disk.
    case deleted
    /// Not in memory; the disk may have the row.
    case unknown
}
