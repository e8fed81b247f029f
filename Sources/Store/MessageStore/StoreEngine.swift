// An engine of the store, in parts that can be replaced one by one.
//
// Towards the gateway it is a `StoreEngine`, which makes a `LoopStore` for each loop. Delivery sees a loop's store as a
// `ShardStore` and knows no engine. Inside, a loop's store is a young overlay in memory (`EmbeddedShardStore`), over a
// durable log (`DurableLog`) and ordered rows (`OrderedRows`). The embedded engine has the journal for a log and RocksDB
// for rows; another engine brings its own two and keeps the overlay.
//
// An engine has an epoch: the number of this owner of the store, above those of all owners before it. The log writes it
// with its batches: the journal once for a segment (`SegmentHeader.run`), since no segment has batches of two owners. The
// folder's lock keeps a second owner out, and a start refuses segments whose owners do not follow each other (`Recovery`).

package import Delivery
internal import Journal

/// What every engine of the store has, however its loops' stores come and go; any thread may ask it.
package protocol StoreService: AnyObject, Sendable {
    /// False while a bound refuses new publishes.
    var acceptsWrites: Bool { get }
    /// False while no part of the store is of use: this process is better left alone.
    var isServing: Bool { get }
    /// A snapshot.
    var statistics: StoreStatistics { get }

    /// Moves everything that is young to the ordered rows as soon as it can; takes effect in the background.
    func requestSpill()

    /// Stops: what was handed over is durable afterwards, as far as the engine can reach its servers; every loop's store
    /// has been closed.
    func close()
}

/// A message store whose loops all stand in one process for as long as it is open.
package protocol StoreEngine: StoreService {
    /// The number of this owner; every owner before it had a lower one.
    var epoch: UInt64 { get }

    /// Makes one loop's side of the store; before any loop runs, or on that loop.
    ///
    /// - Parameters:
    ///   - index: the loop has the buckets whose number leaves this rest when divided by `count`.
    ///   - count: the same for all loops of a run; free to differ from one run to the next.
    ///   - post: runs a closure on the loop, soon, in order; called from the store's threads.
    /// - Returns: the loop's store, to be closed on its loop before the engine is.
    func makeLoopStore(
        index: Int, of count: Int, post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) -> any LoopStore
}

/// One loop's side of a store: Delivery's seam, and what the loop itself calls.
package protocol LoopStore: ShardStore {
    /// Whether a list may go on: lists leave part of the room to single publishes, which cannot wait for any.
    var hasRoomForLists: Bool { get }
    /// The log has stood still for a while: what is written now may wait for long.
    var isStuck: Bool { get }
    /// Young rows and remembered removals.
    var youngRowCount: Int { get }
    /// Memory of batches and values.
    var blockByteCount: Int { get }

    /// Every row of a table in the loop's buckets, for the start: before the loop's first write.
    ///
    /// - Parameters:
    ///   - table: not an ephemeral one.
    ///   - body: gets each row, valid during the call, ordered by key within a bucket.
    /// - Throws: the store's error when rows cannot be read.
    func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) throws(StoreError)

    /// Hands the turn's batches to the log; the loop calls it once at the end of each turn.
    ///
    /// - Parameter awaited: the last ticket that the loop waits for; batches without one may take some milliseconds
    ///   longer.
    func turnEnded(awaited: Ticket)

    /// To be called about once a second.
    func secondPassed()

    /// Takes the store out of service on its loop; nothing is delivered to it any more.
    func close()
}

extension LoopStore {
    /// As `turnEnded(awaited:)`, with everything awaited.
    package func turnEnded() { turnEnded(awaited: .max) }
}

/// What makes batches durable, in the order in which a loop hands them over.
protocol DurableLog: AnyObject, Sendable {
    /// See `StoreEngine.epoch`; every batch is written under it.
    var epoch: UInt64 { get }
    /// The bytes that one batch may have, its headers included.
    var batchByteCount: Int { get }
    /// Bytes handed over, or announced, and not yet durable.
    var uncommittedByteCount: Int { get }

    /// Adds a loop; `completion` is called on the log's thread with the last ticket that is durable.
    func register(_ completion: @escaping @Sendable (UInt64) -> Void) -> Int

    /// Counts bytes that a loop has encoded and will hand over later in its turn; a negative number takes some back.
    func announce(byteCount: Int)

    /// Takes batches, whole and in the order of their tickets; never waits for the disk.
    ///
    /// - Parameters:
    ///   - pieces: the batches' parts, which stay in place until their completion.
    ///   - shard: the loop's number, from `register`.
    ///   - byteCount: of their records.
    ///   - announcedByteCount: those of them that `announce` has counted.
    ///   - isAwaited: false when nothing waits for them: they may then take some milliseconds longer.
    func submit(_ pieces: [BatchPiece], shard: Int, byteCount: Int, announcedByteCount: Int, isAwaited: Bool)
}

/// Rows that have left memory, in the order of their keys, and their alarms.
protocol OrderedRows: AnyObject, Sendable {
    /// Asks for rows or alarms; the answer comes to the operation's mailbox.
    func submit(_ operation: ReadOperation)

    /// See `LoopStore.loadAll`.
    func loadAll(
        table: StoreKey.Table, buckets: [UInt16], _ body: (StoredRow) -> Void
    ) throws(StoreError)

    /// Notes entries of the alarm index that no row needs, to be removed.
    func dropStale(_ alarms: [StaleAlarm])

    /// True when every request id here was written since the start, so that the overlay's filter knows all of them.
    var hasOnlyKnownRequests: Bool { get }
    /// The oldest period of request ids that is kept.
    var oldestRequestPeriod: Int64 { get }
}

/// What holds a loop's overlay: the room that all loops share, and the way of rows out of memory.
protocol OverlayOwner: AnyObject, Sendable {
    func acceptsWrites(beside untoldByteCount: Int) -> Bool
    func isShortOfRoom(beside untoldByteCount: Int) -> Bool
    func hasRoomForLists(beside untoldByteCount: Int) -> Bool
    var isStuck: Bool { get }
    /// How many rows a loop collects or drops in one turn.
    var sliceRowCount: Int { get }

    /// Takes the rows that were asked for, oldest first.
    func collected(_ rows: [SpilledRow], from shard: EmbeddedShardStore)
    /// The overlay is out of service: the log alone has its young rows from now on.
    func retire(_ shard: EmbeddedShardStore)
}
