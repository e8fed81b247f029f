internal import Delivery
internal import Journal

/// The bounds of this module, each with its reason.
package enum Limits {
    /// The journal's segments for its bound: eight of them at least, so that the spiller can free one while others are
    /// written, and none smaller than the largest batch.
    package static func segmentByteCount(journalByteLimit: Int) -> Int {
        let smallest = StoreBounds.smallestBatchByteCount + 64
        return min(Journal.Limits.segmentByteCount, max(smallest, journalByteLimit / 8 & ~4_095))
    }

    /// Bytes encoded and not yet synced: no more than the journal has room for while it is being emptied.
    package static func uncommittedByteCount(journalByteLimit: Int) -> Int { journalByteLimit / 4 }
    /// A block of a shard's memory.
    ///
    /// A row that stays pins its block, so blocks are small; yet a turn's batches should
    /// stand in one, so that they are one piece of the write.
    static let blockByteCount = 64 << 10
    /// Bytes that a shard encodes before the committer counts them: one shared number is changed for some thousand rows.
    static let announcedByteCount = 256 << 10
    /// Free blocks kept for reuse, a shard: what a busy turn and its commit need.
    static let spareBlockCount = 64
    /// Spares that nobody has needed for so long go back to the system.
    static let spareSeconds: UInt64 = 10
    /// Without a read and a spill for so long the process is calm; longer than spares stay.
    static let calmSeconds: UInt64 = 20
    /// A cache of this size is not worth emptying.
    static let keptCacheByteCount = 4 << 20
    /// Journal on disk before spilling is forced: bounds memory, disk and the time of a start.
    package static let journalByteCount = 512 << 20
    /// Spilling by bound begins at this share of it, so that the bound itself is met only when the disk falls behind.
    static let spillShare = 0.75
    /// Rows older than this leave for the ordered store: most messages are long gone by then.
    package static let youngMilliseconds: UInt64 = 60_000
    /// RocksDB's cache of blocks, indexes and filters; all its read memory is in it.
    package static let blockCacheByteCount = 64 << 20
    /// Nothing goes through memtables but a few deletes of stale alarms.
    static let memtableByteCount = 1 << 20
    /// What must be free on the disk at a start: more than opening the ordered store writes.
    static let roomByteCount = 1 << 20
    /// RocksDB's own log of events.
    static let infoLogByteCount = 1 << 20
    /// Files of the ordered store that stay open.
    package static let openFileCount = 512
    /// Reader threads: a cold read is one or two seeks; more threads than disks can seek gain nothing.
    package static let readerCount = 2
    /// Buckets that one read looks into for alarms, so that other reads need not wait long.
    static let bucketsPerAlarmRead = 64
    /// Alarms that one read looks at, with those that it leaves.
    static let alarmsPerRead = 2_048
    /// Alarms of a group that one read of a bucket examines and leaves; the next read continues behind them.
    static let leftAlarmsPerRead = 256
    /// The pause after a read of a whole group, and the addition to it for each alarm that was left.
    static let pilePauseMilliseconds: Int64 = 500
    static let leftAlarmMilliseconds: Int64 = 10
    /// A bucket whose alarms could not be read is asked again after this.
    static let alarmRetryMilliseconds: Int64 = 10_000
    /// Rows of a segment that a start sorts and writes at a time: three times as many are in memory, at 112 bytes each.
    ///
    /// A start that was cut off is repeated over the same pieces, since a row that one of them puts and removes leaves no
    /// trace: a change of this number is a change of the store's format.
    static let replayedRowCount = 400_000
    /// Rows that a loop collects or drops for the spiller in one turn, about a tenth of a millisecond's work; more while the
    /// journal is nearly full (`EmbeddedStore.sliceRowCount`).
    static let sliceRowCount = 500
    /// Request and trace rows live this long after they were written, at least.
    static let ephemeralMilliseconds: Int64 = 24 * 3_600_000
    /// One column family a period; it is dropped as a whole a day after its end.
    static let periodMilliseconds: Int64 = 4 * 3_600_000
    /// A period takes no more than this part of its kind's budget (and one spilled segment).
    ///
    /// So the spiller drops no more at once where the budget forces it. A kind has at most this number of column
    /// families, besides those of time.
    static let periodsInBudget = 16
    /// Spilled files of rows before they are merged into the first level: each overlaps all of it, so that merging few at a
    /// time writes the level again and again; a lookup asks the filter of each.
    static let sortedRunCount: Int32 = 16
    /// The first level's size, about that of the files that are merged into it.
    static let levelBaseByteCount: UInt64 = 1 << 30
    /// RocksDB merges nothing for so long after a start, unless rows come that need it.
    static let quietStartSeconds: UInt64 = 20
    /// Sorted files of a period before some are merged: a lookup asks the filter of each.
    static let ephemeralRunCount: Int32 = 16
    /// Request ids on disk, all periods together; past it the oldest period goes early.
    ///
    /// A single push with a request id takes about 220 bytes of it: 28 hours of 770 a second.
    package static let requestByteCount = 16 << 30
    /// The same for traces; one takes 190 to 350 bytes.
    package static let traceByteCount = 4 << 30
    /// A shard's filter of request ids, all periods together: at ten bits an id about 13 million of them.
    static let filterByteCount = 16 << 20
    /// Deletes that reached the ordered store before it is told to compact their range.
    package static let deletionsBeforeCompaction = 20_000
    /// Segment files kept for reuse.
    static let spareSegmentCount = 2
    /// The spiller looks after ages and periods this often.
    static let spillerTickMilliseconds: UInt64 = 500
    /// What has to run between two spills waits for one of them, which a full disk may hold up.
    static let taskMilliseconds: UInt64 = 60_000
    /// A backup copies files in pieces of this size.
    static let backupPieceByteCount = 1 << 20

    // MARK: Redis

    /// A batch of the log, its headers included: as the largest segment of the embedded engine takes one.
    static let logBatchByteCount = (8 << 20) - 64
    /// Publishes are refused once a group has been on its way to Redis for so long.
    static let stuckMilliseconds: UInt64 = 1_000
    /// One try of a commit: a server that has not answered by then counts as gone.
    static let commitMilliseconds = 2_500
    /// Within it, how long a server waits for its replicas before it says how many have it.
    static let replicaMilliseconds = 500
    /// Lanes that share the parts of one server out.
    static let commitLanesOfServer = 1
    /// Calls of small groups that a lane has under way at most, each over a connection of its own.
    ///
    /// What gathers meanwhile shares the next one. A server syncs for each call that comes alone, so fewer calls cost it less
    /// (docs/use/Cluster.md, "Speed").
    static let callsOfLane = 2
    /// Calls of a lane that carry one large group, beside those.
    static let largeCallsOfLane = 6
    /// What one call takes, but for one group that is larger: a server reads so much of a connection in a turn, and syncs
    /// after each turn.
    static let callByteCount = 15 << 10
    /// Connections without a call are looked at so often: those to servers that have no slots any more end.
    static let idlePipeMilliseconds: UInt64 = 5_000
    /// Groups of one log on their way.
    static let groupsOfLog = 2
    /// Another group may follow when those before it are together not larger than this: a server needs several turns for
    /// more, and the one that follows might overtake them.
    static let leadingGroupsByteCount = 12 << 10
    /// First bytes of a group that the one behind it looks for: the first record's header, with epoch, number, ticket and
    /// checksum, which nobody else can know.
    static let groupStartByteCount = 64
    /// Lanes for servers, those of servers that have gone included.
    static let laneCount = 512
    /// Trouble with commits that goes on is reported this often.
    static let reportMilliseconds: UInt64 = 5_000
    /// A span of the log ends at this size.
    static let spanByteCount = 4 << 20
    /// One collection of rows from an overlay comes from spans of about this size.
    static let spillByteCount = 64 << 20
    /// Rows and bytes of one call of the script that writes rows: some milliseconds of a server's time.
    static let rowsPerBatch = 1_000
    static let rowBatchByteCount = 512 << 10
    /// Batches of several groups that are sent together.
    static let rowWriteByteCount = 4 << 20
    /// Rows of one reply when all of a store are copied: some megabytes if each is as large as a row can be.
    static let copiedRowsPerPage = 200
    /// A spill that failed is tried again after this.
    static let spillRetryMilliseconds: UInt64 = 500
    /// A takeover's pieces of log between two writes of rows, and its pages.
    static let replayPieceRowCount = 100_000
    static let replayPieceByteCount = 32 << 20
    static let replayPageEntryCount = 1_024
    static let replayPageByteCount = 4 << 20
    /// Reads that one round trip carries at first.
    static let readsPerRound = 64
    /// A round trip of reads whose time is nearly over is given this much all the same: enough for a server that answers.
    static let shortestReadMilliseconds: UInt64 = 250
    /// Alarms of a server that does not answer are asked for again after this.
    static let silentAlarmMilliseconds: Int64 = 1_000
    /// Members of an index, and rows, that are asked for at a time.
    static let rowsPerPage = 512
    static let rowsPerRead = 64
    static let alarmsPerPage = 128
    /// Request ids and traces of this time go together, a day after its end, or before where their bytes are too many.
    static let redisPeriodMilliseconds: Int64 = 4 * 3_600_000
    /// What a server needs for a field of a large hash, beside its key and value.
    static let redisFieldByteCount = 64
    /// Shares of the servers' memory that request ids and traces take at most, whatever their bounds in bytes are.
    static let redisRequestShare = 8
    static let redisTraceShare = 16
    /// A part looks for periods that are over this often, and ends this number at a time.
    static let housekeepingMilliseconds: UInt64 = 5_000
    static let periodsPerTurn = 8
    /// Publishes are refused while a server's memory is filled beyond this share: what is left is for acks.
    static let redisMemoryShare = 0.9
}
