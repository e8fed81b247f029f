// The store seam: ordered keys and small atomic batches of one bucket.
//
// A shard store belongs to one loop and is called only on it. The committer takes its writes. They are *visible* to
// `get` and `scan` at once, and *durable* when the completion of their ticket arrives. Delivery therefore changes its
// memory and the store together, and holds back whatever leaves the process until `committed(upTo:)`.
//
// Rows come in two ages. *Young* rows are in the journal and in memory; reading one is a lookup. *Cold* rows are in
// the ordered store on disk; reading one is a request to a reader thread whose reply comes back through
// `StoreReply`. After a restart every row is cold.
//
// A row may carry an *alarm* (`wakeAt`, gateway time in milliseconds, 0 for none). While the row is young, its owner,
// Delivery, keeps the deadline in its own wheel. When the row turns cold, the store tells Delivery (`storeCooled`).
// From then on the store reports the alarm itself, once, when it is due and Delivery asks (`requestAlarms`). So no
// alarm needs a scan of queues, neither at run time nor at start.

package import Wire

/// A committed or pending batch of one shard: 1, 2, 3… in the order of `endBatch()`.
package typealias Ticket = UInt64

/// Where a young row's value stands in memory; valid until the row is overwritten, deleted or reported as cooled.
public struct ValueLocation: Sendable, Equatable {
    public var block: UInt32
    public var offset: UInt32
    public var byteCount: UInt32
    @inlinable public init(block: UInt32, offset: UInt32, byteCount: UInt32) {
        (self.block, self.offset, self.byteCount) = (block, offset, byteCount)
    }
}

/// What every store takes; a store's own bound for a batch's bytes is `ShardStore.batchByteCount`.
///
/// Delivery keeps within these bounds: it refuses larger input at admission, before it changes anything. A test
/// computes that no accepted input exceeds them. A store that gets more neither ends the process nor drops what
/// Delivery wrote: see `StoreBreach`.
public enum StoreBounds {
    /// A row's value: the largest message with its vendor content, and room to grow.
    public static let valueByteCount = 128 << 10
    /// The most that an operation takes in a batch besides its value.
    public static let operationByteCount = 49
    /// Operations of one batch.
    public static let operationCount = 65_535
    /// Every store that an operator can configure takes a batch of this many bytes, headers included.
    public static let smallestBatchByteCount = (2 << 20) - 64
}

/// A write beyond the store's bounds: a fault of the caller, which the store reports so that the log has it.
package struct StoreBreach: Error, Sendable, Equatable {
    package enum Kind: Sendable, Equatable {
        /// Above `StoreBounds.valueByteCount`; the store took it.
        case largeValue(byteCount: Int)
        /// Above `ShardStore.batchByteCount`; the store did not take it.
        case unfitValue(byteCount: Int)
        /// The batch has too many operations or bytes: the store continues it as another one.
        ///
        /// Both are in one write, so that only a power cut in that write can part them.
        case longBatch(operationCount: Int, byteCount: Int)
        /// A row of a table without alarms came with one; the store drops the alarm.
        case alarm
    }

    package var kind: Kind
    /// The row that was written.
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

/// What the store needs to know about the row that a write replaces or removes.
public enum PriorRow: Sendable, Equatable {
    /// There has never been a row under this key: a later delete of the young row leaves nothing to tell the disk.
    case none
    /// There may be one; its alarm, if it had one, is this (0 for none).
    ///
    /// The store clears that alarm.
    case maybe(wakeAt: Int64)
}

/// One row in a reply.
///
/// `value` is valid while the reply is. `@safe`: Delivery reads it through a row's checks (`Store/Rows`).
@safe public struct StoredRow {
    public var key: StoreKey
    public var wakeAt: Int64
    public var value: UnsafeRawBufferPointer
    @inlinable public init(key: StoreKey, wakeAt: Int64, value: UnsafeRawBufferPointer) {
        unsafe (self.key, self.wakeAt, self.value) = (key, wakeAt, value)
    }
}

/// A request to a reader thread; the reply carries the same number.
package typealias ReadToken = UInt64

/// One thing to read.
///
/// A reader answers several in one reply, so that one round trip loads a device. `@safe`: the store gives `matches` bytes
/// that it keeps during the call.
@safe package enum StoreRead: Sendable {
    /// One row.
    case get(StoreKey)
    /// The rows of `partition`'s partition from item `partition.item` on, in order, up to both bounds (but at least
    /// one).
    case scan(partition: StoreKey, rowLimit: Int, byteLimit: Int)
    /// How many rows the partition holds, the sum of their value bytes, and its first and last item, looking at up to
    /// `rowLimit` rows.
    case measure(partition: StoreKey, rowLimit: Int)
    /// A row by its value, as `.row`: the first of the bucket's table that is on disk and whose value there `matches`.
    ///
    /// The answer is the row as it is now, or none if it is gone. A reader runs `matches` on its thread, over all rows
    /// of the table. So this is for people's questions.
    case search(bucket: Bucket, table: StoreKey.Table, matches: @Sendable (UnsafeRawBufferPointer) -> Bool)
    /// The rows of a bucket's traces that `matches`, as `.rows`: those of the highest keys, highest first, `limit` at most.
    ///
    /// The readers and the loop run `matches`, over all traces of the bucket. So this is for people's questions, too.
    case traces(bucket: Bucket, limit: Int, matches: @Sendable (StoreKey, UnsafeRawBufferPointer) -> Bool)
}

/// The answer to one `StoreRead`.
package enum StoreReadResult {
    case row(StoredRow?)
    /// `isComplete` is false when a bound ended the scan before the partition did.
    case rows([StoredRow], isComplete: Bool)
    case measure(rowCount: Int, byteCount: Int, firstItem: UInt64, lastItem: UInt64)
}

/// A reader's answer, valid as long as this object; the store hands it to Delivery on the loop that asked.
///
/// A reply has every row that was visible on the loop at the request, less those changed since. The store merges young
/// rows over cold ones on the loop, just before it hands the reply over.
package final class StoreReply {
    package let token: ReadToken
    package let results: [StoreReadResult]
    /// Says that a cold read failed (a disk error).
    ///
    /// There are no results then, and the command that waits fails with a retryable error.
    package let failure: String?
    private let owner: AnyObject?

    /// Makes a reply; `owner` is what keeps the rows' bytes alive.
    package init(token: ReadToken, results: [StoreReadResult], failure: String? = nil, owner: AnyObject? = nil) {
        (self.token, self.results, self.failure, self.owner) = (token, results, failure, owner)
    }
}

/// What a shard store reports on its loop besides read replies, in this order in a turn.
package protocol ShardStoreObserver: AnyObject {
    /// Every batch up to and including `ticket` is durable.
    func storeCommitted(upTo ticket: Ticket)
    /// A read asked for with `read(_:)` or `requestAlarms` finished.
    ///
    /// The reply shows the rows as they are at this call: it has the observer's writes for an earlier reply of the same
    /// turn.
    func storeReplied(_ reply: StoreReply)
    /// This young row is cold now: its location is invalid, and the store handles its alarm.
    ///
    /// Only for rows of `device`, `message`, `vendorMessage` and `job`.
    func storeCooled(_ key: StoreKey)
    /// The observer wrote beyond the store's bounds.
    ///
    /// The call comes inside that write, so the observer must not call the shard.
    func storeBreached(_ breach: StoreBreach)
}

extension ShardStoreObserver {
    package func storeBreached(_ breach: StoreBreach) {}
}

/// The store as one shard sees it.
///
/// Confined to the shard's loop.
///
/// Conformance is defined by one suite (`Tests/Support/TestKit/ShardStoreConformance.swift`) that the in-memory fake and the
/// embedded store both pass.
package protocol ShardStore: AnyObject {
    /// Set once before the first call; a store may hold it until it is closed, and not longer.
    var observer: (any ShardStoreObserver)? { get set }

    /// The bytes that one batch may have, each operation with a header of `StoreBounds.operationByteCount`.
    var batchByteCount: Int { get }

    /// Starts a batch of rows of one bucket.
    ///
    /// Batches do not nest.
    func beginBatch(_ bucket: Bucket)

    /// Adds a row to the open batch.
    ///
    /// - Parameters:
    ///   - key: in the open batch's bucket.
    ///   - wakeAt: the row's alarm in gateway milliseconds, 0 for none.
    ///   - prior: what may stand under the key already.
    ///   - byteCount: the value's exact size, up to `StoreBounds.valueByteCount`.
    ///   - write: fills all `byteCount` bytes.
    /// - Returns: where the value now stands.
    @discardableResult
    func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation

    /// Removes a row in the open batch; removing what is not there is allowed.
    func delete(_ key: StoreKey, prior: PriorRow)

    /// Adds to the row of counts under a key (table `counters`), in the open batch.
    ///
    /// The batch has only the change. The store keeps the sum, and writes it when the change leaves the journal.
    ///
    /// - Parameters:
    ///   - key: in the open batch's bucket.
    ///   - change: what to add.
    ///   - total: fills in the whole row, this change included (`CountersRow.byteCount` bytes); called only when the store
    ///     does not have the row in memory.
    func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void)

    /// Closes the batch: it commits or is lost as a whole.
    ///
    /// An empty batch commits like any other.
    func endBatch() -> Ticket

    /// The highest ticket known durable.
    var committedTicket: Ticket { get }

    /// False while the journal or the uncommitted bytes are at their bound.
    ///
    /// The shard then refuses new publishes with a retryable error, and still settles messages that are here.
    var acceptsWrites: Bool { get }

    /// True when most of that room is taken: the rest is for apps below their share.
    var isShortOfRoom: Bool { get }

    /// The value of a young row.
    func value(at location: ValueLocation) -> UnsafeRawBufferPointer

    /// Looks up a young row (written since the last restart and not yet cooled); never touches the disk.
    func young(_ key: StoreKey) -> YoungLookup

    /// True when the row is certainly on neither side, which a filter tells without a read from disk.
    func isCertainlyAbsent(_ key: StoreKey) -> Bool

    /// Asks a reader thread.
    ///
    /// The reply comes through the observer in a later turn, never inside this call.
    func read(_ requests: [StoreRead]) -> ReadToken

    /// Asks for cold rows whose alarm is at or before the request's time, at most its limit.
    ///
    /// The store reports each alarm once per start, or again after the alarm changed. The reply holds one `.rows`
    /// result with the rows' current values, `isComplete` false when more are due; rows found before a failure come
    /// with it.
    ///
    /// The store skips the alarms that the request excludes, and continues after them; a later request names their group. A group
    /// may report an alarm of its app twice. The alarm of a row is not reported once the row's successor exists, which
    /// the request names.
    func requestAlarms(_ request: AlarmRequest) -> ReadToken

    /// The earliest alarm that the store itself keeps, or `Int64.max`: a request before that finds nothing.
    ///
    /// After a start, a store that has not looked everywhere yet says 0.
    var nextAlarm: Int64 { get }

    /// The groups that have alarms.
    var alarmGroups: [AlarmGroup] { get }

    /// When a group's next alarm is due for a look, or `Int64.max`.
    func nextAlarm(of group: AlarmGroup) -> Int64

    /// Gives back a cold row's alarm that the store reported.
    ///
    /// The group reports it again, not before `until` unless a recall or an eager request comes first.
    func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64)

    /// Makes the group's alarms of a bucket due for a look now.
    func recallAlarms(of group: AlarmGroup, in bucket: Bucket)
}

extension ShardStore {
    /// Asks for alarms of all apps.
    package func requestAlarms(upTo time: Int64, limit: Int) -> ReadToken {
        requestAlarms(AlarmRequest(upTo: time, limit: limit))
    }
}

/// What memory knows of a key.
package enum YoungLookup: Equatable, Sendable {
    case found(ValueLocation, wakeAt: Int64)
    /// Deleted since the disk last had it: absent, and the shard must not ask the disk.
    case deleted
    /// Memory has nothing; the disk may have the row.
    case unknown
}
