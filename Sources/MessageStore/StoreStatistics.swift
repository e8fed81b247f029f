internal import Journal

/// The store in numbers, for metrics; times in microseconds, counts since the start.
public struct StoreStatistics: Sendable, Equatable {
    public var batchCount = 0
    public var groupCount = 0
    /// Batches in the largest group.
    public var largestGroup = 0
    public var journalWrittenByteCount = 0
    public var longestCommit: UInt64 = 0
    public var totalCommitTime: UInt64 = 0
    /// Groups whose write and sync took below 2^(index + 1) µs; the last one has all that took longer.
    public var commitTimes: [Int] = []
    public var uncommittedByteCount = 0
    /// Segments that a start would replay, and their size.
    public var segmentCount = 0
    public var journalByteCount = 0
    public var spilledRowCount = 0
    public var spilledDeletionCount = 0
    /// Size of RocksDB's files.
    public var rowFileByteCount = 0
    public var ephemeralFileByteCount = 0
    /// Why the spiller is waiting, or waited last: a full disk.
    public var lastSpillFailure: String?
    /// Attempts to spill, or to make room for it, that failed and will be repeated.
    public var spillFailureCount = 0
}

extension EmbeddedStore {
    /// A snapshot; from any thread.
    public var statistics: StoreStatistics {
        let journal = committer.statistics
        var result = StoreStatistics()
        result.batchCount = journal.batchCount
        result.groupCount = journal.groupCount
        result.largestGroup = journal.largestGroup
        result.journalWrittenByteCount = journal.byteCount
        result.longestCommit = journal.longestCommit
        result.totalCommitTime = journal.totalCommitTime
        result.commitTimes = journal.commitTimes
        result.uncommittedByteCount = committer.uncommittedByteCount
        result.segmentCount = ledger.segmentCount
        result.journalByteCount = ledger.byteCount
        result.spilledRowCount = spiller.spilledRowCount
        result.spilledDeletionCount = spiller.spilledDeletionCount
        result.rowFileByteCount = [database.rows, database.alarms, database.start].reduce(0) {
            $0 + database.fileByteCount($1)
        }
        result.ephemeralFileByteCount = database.ephemeralFamilies.reduce(0) { $0 + database.fileByteCount($1.family) }
        (result.lastSpillFailure, result.spillFailureCount) = spiller.failures
        return result
    }
}
