internal import Delivery
internal import Journal

package enum Limits {
    /// Returns the segment size for a journal bound.
    ///
    /// The journal has at least eight segments, so that the spiller can free one while others are written. A segment is never
    /// smaller than the largest batch.
    package static func segmentByteCount(journalByteLimit: Int) -> Int {
        let smallest = StoreBounds.smallestBatchByteCount + 64
        return min(Journal.Limits.segmentByteCount, max(smallest, journalByteLimit / 8 & ~4_095))
    }

    /// Returns the bound of encoded, unsynced bytes: the quarter of the journal that is free when spilling starts (`spillShare`).
    package static func uncommittedByteCount(journalByteLimit: Int) -> Int { journalByteLimit / 4 }
    /// The size of a block of shard memory.
    ///
    /// A live row pins its block, so blocks are small. A turn's batches should fit into one block, so that they form one piece of
    /// the write.
    static let blockByteCount = 64 << 10
    /// The number of bytes that a shard encodes before the shared counter is updated, about a thousand rows.
    static let announcedByteCount = 256 << 10
    /// The number of free blocks kept per shard: enough for a busy turn and its commit.
    static let spareBlockCount = 64
    /// The time after which unneeded spare blocks are returned to the system.
    static let spareSeconds: UInt64 = 10
    /// The time without reads and spills after which memory is released; it exceeds `spareSeconds`.
    static let calmSeconds: UInt64 = 20
    /// The cache size below which the cache is not emptied.
    static let keptCacheByteCount = 4 << 20
    /// The journal size on disk that bounds memory, disk space and start time.
    package static let journalByteCount = 512 << 20
    /// The share of the journal bound at which spilling starts, so that only a slow disk lets the journal reach the bound.
    static let spillShare = 0.75
    /// The age at which rows move to the ordered store; most messages have been deleted by then.
    package static let youngMilliseconds: UInt64 = 60_000
    /// The size of RocksDB's cache for blocks, indexes and filters; all of its read memory is in this cache.
    package static let blockCacheByteCount = 64 << 20
    /// The memtable size; only some deletions of stale alarms use memtables.
    static let memtableByteCount = 1 << 20
    /// The disk space that must be free at a start, more than opening the ordered store writes.
    static let roomByteCount = 1 << 20
    static let infoLogByteCount = 1 << 20
    package static let openFileCount = 512
    /// The number of reader threads.
    ///
    /// A cold read takes one or two seeks; more threads than parallel seeks do not help.
    package static let readerCount = 2
    /// The number of buckets that one read scans for alarms; it bounds the delay of other reads.
    static let bucketsPerAlarmRead = 64
    /// The number of alarms that one read examines, including those left to their groups.
    static let alarmsPerRead = 2_048
    /// The number of alarms of a group that one read of a bucket examines and leaves; the next read continues behind them.
    static let leftAlarmsPerRead = 256
    /// The pause after a read of a whole group, and its increase for each alarm that was left.
    static let pilePauseMilliseconds: Int64 = 500
    static let leftAlarmMilliseconds: Int64 = 10
    /// The delay before a bucket with unreadable alarms is read again.
    static let alarmRetryMilliseconds: Int64 = 10_000
    /// The number of rows that a start sorts and writes at a time.
    ///
    /// Memory holds up to three such pieces, at 112 bytes a row. An interrupted start must be repeated over the same pieces,
    /// because a row that one piece both puts and deletes is never written. A change of this number therefore changes the store's
    /// format.
    static let replayedRowCount = 400_000
    /// The number of rows that a loop collects or drops for the spiller in one turn, about 0.1 ms of work.
    ///
    /// The number rises while the journal is nearly full (`EmbeddedStore.sliceRowCount`).
    static let sliceRowCount = 500
    /// The minimum lifetime of request and trace rows.
    static let ephemeralMilliseconds: Int64 = 24 * 3_600_000
    /// The length of a period; its column family is dropped one day after its end.
    static let periodMilliseconds: Int64 = 4 * 3_600_000
    /// The number of periods into which a kind's budget is divided.
    ///
    /// A period may exceed its part by one spilled segment. The division bounds the amount dropped at once when the budget is
    /// exceeded. A kind has at most this number of column families, in addition to those that ended by time.
    static let periodsInBudget = 16
    /// The number of spilled files that are merged into the first level at once.
    ///
    /// Each file overlaps the whole level, so merging few files rewrites the level more often. A lookup checks the filter of each
    /// file.
    static let sortedRunCount: Int32 = 16
    /// The size of the first level, about that of the files that are merged into it.
    static let levelBaseByteCount: UInt64 = 1 << 30
    /// The time after a start without compaction, unless new rows need it.
    static let quietStartSeconds: UInt64 = 20
    /// The number of a period's files before some are merged; a lookup checks the filter of each file.
    static let ephemeralRunCount: Int32 = 16
    /// The disk budget of request ids.
    ///
    /// Beyond it the oldest period is dropped early. A single push with a request id takes about 220 bytes: enough for 28 hours
    /// at 770 pushes a second.
    package static let requestByteCount = 16 << 30
    /// The disk budget of traces; a trace takes 190 to 350 bytes.
    package static let traceByteCount = 4 << 30
    /// The memory of a shard's filters for request ids: about 13 million ids at ten bits each.
    static let filterByteCount = 16 << 20
    /// The number of deletions in the ordered store after which it is compacted.
    package static let deletionsBeforeCompaction = 20_000
    static let spareSegmentCount = 2
    /// The spiller's interval for checks of age and periods.
    static let spillerTickMilliseconds: UInt64 = 500
    /// The maximum time that a task waits for its start between two spills; a full disk may block a spill.
    static let taskMilliseconds: UInt64 = 60_000
    static let backupPieceByteCount = 1 << 20

    // MARK: Redis

    /// The maximum size of a log batch, headers included; it equals the embedded engine's bound.
    static let logBatchByteCount = (8 << 20) - 64
    /// The commit time after which a group counts as stuck and publishes are refused.
    static let stuckMilliseconds: UInt64 = 1_000
    static let commitMilliseconds = 2_500
    /// The time within a commit attempt that a server waits for its replicas.
    static let replicaMilliseconds = 500
    /// The number of lanes that share the partitions of one server.
    static let commitLanesOfServer = 1
    /// The maximum number of a lane's concurrent calls that carry small groups of log batches; each call has its own connection.
    ///
    /// Groups that become ready while all calls are in flight share the next call. A server syncs once per separate call, so fewer calls cost it less
    /// (docs/use/Cluster.md, "Speed").
    static let callsOfLane = 2
    /// The maximum number of additional concurrent calls of a lane that carry one large group each.
    static let largeCallsOfLane = 6
    /// The maximum size of a call, unless it carries one larger group.
    ///
    /// A server reads this much from a connection in one turn and syncs after each turn.
    static let callByteCount = 15 << 10
    /// The interval of checks that close idle connections to servers without slots.
    static let idlePipeMilliseconds: UInt64 = 5_000
    /// The maximum number of groups of one log in flight.
    static let groupsOfLog = 2
    /// The maximum size of the groups in flight before another group may follow.
    ///
    /// A server needs several turns for more bytes, so the next group might overtake them.
    static let leadingGroupsByteCount = 12 << 10
    /// The number of leading bytes that identify the previous group.
    ///
    /// They are the header of its first record: epoch, number, ticket and checksum, which no other program can know.
    static let groupStartByteCount = 64
    /// The maximum number of server lanes, including those of servers that left the cluster.
    static let laneCount = 512
    /// The minimum interval between reports of commit failures.
    static let reportMilliseconds: UInt64 = 5_000
    static let spanByteCount = 4 << 20
    /// The approximate log size covered by one collection of rows from an overlay.
    static let spillByteCount = 64 << 20
    /// The maximum of rows and bytes per call of the batch script, some milliseconds of server time.
    static let rowsPerBatch = 1_000
    static let rowBatchByteCount = 512 << 10
    /// The size of the batches of several groups that are sent together.
    static let rowWriteByteCount = 4 << 20
    /// The number of rows in one reply while a store is copied: some megabytes at the maximum row size.
    static let copiedRowsPerPage = 200
    static let spillRetryMilliseconds: UInt64 = 500
    /// The sizes of a takeover's log pieces, each written to rows at once, and of its log pages.
    static let replayPieceRowCount = 100_000
    static let replayPieceByteCount = 32 << 20
    static let replayPageEntryCount = 1_024
    static let replayPageByteCount = 4 << 20
    /// The maximum number of reads whose first commands share a round trip.
    static let readsPerRound = 64
    /// The minimum timeout of a read round trip whose deadline is near; it suffices for a server that answers.
    static let shortestReadMilliseconds: UInt64 = 250
    /// The delay before the alarms of an unresponsive server are read again.
    static let silentAlarmMilliseconds: Int64 = 1_000
    /// The page sizes of reads from an index, of rows and of alarms.
    static let rowsPerPage = 512
    static let rowsPerRead = 64
    static let alarmsPerPage = 128
    /// The length of a period of request ids or traces; a period is dropped a day after its end, or earlier if its kind exceeds
    /// its budget.
    static let redisPeriodMilliseconds: Int64 = 4 * 3_600_000
    /// A server's overhead for a field of a large hash, in addition to key and value.
    static let redisFieldByteCount = 64
    /// The maximum shares (one eighth, one sixteenth) of server memory for request ids and for traces, whatever their byte
    /// budgets.
    static let redisRequestShare = 8
    static let redisTraceShare = 16
    /// The interval of a partition's search for expired periods, and the number of periods that one search drops.
    static let housekeepingMilliseconds: UInt64 = 5_000
    static let periodsPerTurn = 8
    /// The share of a server's memory beyond which publishes are refused; the remainder is reserved for acks.
    static let redisMemoryShare = 0.9
}
