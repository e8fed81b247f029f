// The replaceable parts of a storage engine.
//
// The gateway uses a `StoreEngine`, which creates a `LoopStore` for each loop. Delivery uses a loop's store as a `ShardStore` and
// does not depend on an engine. A loop's store consists of a young overlay in memory (`EmbeddedShardStore`), a durable log
// (`DurableLog`) and ordered rows (`OrderedRows`). The embedded engine uses the journal as log and RocksDB for rows. Other
// engines replace both and keep the overlay.
//
// An engine has an epoch: the number of this owner of the store, higher than those of all earlier owners. The log records it with
// its batches. The journal records it once per segment (`SegmentHeader.run`), because a segment has batches of one owner only.
// The folder's lock excludes a second owner, and a start refuses segments of runs in the wrong order (`Recovery`).

package import Delivery
internal import Journal

/// The operations of every engine; may be called from any thread.
package protocol StoreService: AnyObject, Sendable {
    /// Whether new publishes are accepted; false while a bound is exceeded.
    var acceptsWrites: Bool { get }
    /// Whether any part of the store works; false if traffic should go to another process.
    var isServing: Bool { get }
    var statistics: StoreStatistics { get }

    /// Requests that all young rows move to the ordered rows soon, in the background.
    func requestSpill()

    /// Stops the engine.
    ///
    /// Submitted batches are then durable if the engine can reach its servers. Every loop's store must be closed before.
    func close()
}

/// A message store whose loops all run in one process.
package protocol StoreEngine: StoreService {
    /// The number of this owner, higher than those of all earlier owners.
    var epoch: UInt64 { get }

    /// Creates one loop's store.
    ///
    /// Call before any loop runs, or on that loop.
    ///
    /// - Parameters:
    ///   - index: The loop has the buckets whose index modulo `count` is `index`.
    ///   - count: The number of loops, constant during a run; it may differ between runs.
    ///   - post: Runs a closure on the loop, soon and in order. Called from the store's threads.
    /// - Returns: The loop's store. It must be closed on its loop before the engine is closed.
    func makeLoopStore(
        index: Int, of count: Int, post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) -> any LoopStore
}

/// One loop's store: Delivery's interface, and the calls of the loop.
package protocol LoopStore: ShardStore {
    /// Whether a push to a list may continue; such pushes leave space to single pushes, which cannot be delayed.
    var hasRoomForLists: Bool { get }
    /// Whether the log has been blocked for some time, so that new writes may be delayed.
    var isStuck: Bool { get }
    /// The number of young rows and recorded deletions.
    var youngRowCount: Int { get }
    /// The memory of batches and values, in bytes.
    var blockByteCount: Int { get }

    /// Visits every row of a table in the loop's buckets.
    ///
    /// Call before the loop's first write.
    ///
    /// - Parameters:
    ///   - table: A table that is not ephemeral.
    ///   - body: Called with each row, ordered by key within a bucket. The row is valid during the call.
    /// - Throws: The store's error when rows cannot be read.
    func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) throws(StoreError)

    /// Submits the turn's batches to the log.
    ///
    /// The loop calls this once at the end of each turn.
    ///
    /// - Parameter awaited: The last ticket that the loop waits for. Batches that no caller waits for may take some milliseconds
    ///   longer.
    func turnEnded(awaited: Ticket)

    /// Frees unused memory; call about once a second.
    func secondPassed()

    /// Closes the store on its loop; no callbacks arrive afterwards.
    func close()
}

extension LoopStore {
    /// Ends the turn with every batch awaited.
    package func turnEnded() { turnEnded(awaited: .max) }
}

/// A log that makes batches durable in the order of submission.
protocol DurableLog: AnyObject, Sendable {
    /// The epoch of this owner (`StoreEngine.epoch`), recorded with every batch.
    var epoch: UInt64 { get }
    var batchByteCount: Int { get }
    /// The number of bytes submitted or announced and not yet durable.
    var uncommittedByteCount: Int { get }

    /// Adds a loop; `completion` is called on the log's thread with the last durable ticket.
    func register(_ completion: @escaping @Sendable (UInt64) -> Void) -> Int

    /// Counts bytes that a loop has encoded and will submit later in its turn; a negative number reverses an announcement.
    func announce(byteCount: Int)

    /// Submits whole batches in ticket order.
    ///
    /// Never waits for the disk.
    ///
    /// - Parameters:
    ///   - pieces: The batches' parts. Their memory must stay unchanged until completion.
    ///   - shard: The loop's number, from `register`.
    ///   - byteCount: The total size of the batches' records.
    ///   - announcedByteCount: The part of `byteCount` that `announce` has already counted.
    ///   - isAwaited: Whether a caller waits for the batches. If not, they may take some milliseconds longer.
    func submit(_ pieces: [BatchPiece], shard: Int, byteCount: Int, announcedByteCount: Int, isAwaited: Bool)
}

/// The rows that have left memory, in key order, and their alarms.
protocol OrderedRows: AnyObject, Sendable {
    /// Reads rows or alarms; the result is put into the operation's mailbox.
    func submit(_ operation: ReadOperation)

    func loadAll(
        table: StoreKey.Table, buckets: [UInt16], _ body: (StoredRow) -> Void
    ) throws(StoreError)

    /// Queues stale entries of the alarm index for removal.
    func dropStale(_ alarms: [StaleAlarm])

    /// Whether every stored request id was written since the start, so that the overlay's filter knows all of them.
    var hasOnlyKnownRequests: Bool { get }
    var oldestRequestPeriod: Int64 { get }
}

/// The owner of a loop's overlay; it provides the space shared by all loops and moves rows out of memory.
protocol OverlayOwner: AnyObject, Sendable {
    func acceptsWrites(beside untoldByteCount: Int) -> Bool
    func isShortOfRoom(beside untoldByteCount: Int) -> Bool
    func hasRoomForLists(beside untoldByteCount: Int) -> Bool
    var isStuck: Bool { get }
    var sliceRowCount: Int { get }

    /// Takes the requested rows, oldest first.
    func collected(_ rows: [SpilledRow], from shard: EmbeddedShardStore)
    /// Takes over a closed overlay; from then on only the log has its young rows.
    func retire(_ shard: EmbeddedShardStore)
}
