internal import Journal

/// The store in numbers, for metrics; times in microseconds, counts since the start.
package struct StoreStatistics: Sendable, Equatable {
    /// What is kept of request ids, or of traces.
    package struct Retention: Sendable, Equatable {
        /// Size of the files, and what it may come to before the oldest go early.
        package var byteCount = 0
        package var byteLimit = 0
        /// The age of the oldest row, as the begin of its period tells it; 0 if there is none or the time is not known.
        package var milliseconds: Int64 = 0
        /// Periods that went before their rows were a day old.
        package var cutCount = 0
        /// How long the youngest row of the last such period was kept.
        package var cutMilliseconds: Int64 = 0
        package init() {}
    }

    /// Why a store on Redis refuses writes, with the servers; `nil` where it does not, and for an embedded one.
    package var refusalReason: String?
    package var batchCount = 0
    package var groupCount = 0
    /// Batches in the largest group.
    package var largestGroup = 0
    package var journalWrittenByteCount = 0
    package var longestCommit: UInt64 = 0
    package var totalCommitTime: UInt64 = 0
    /// Groups whose write and sync took below 2^(index + 1) µs; the last one has all that took longer.
    package var commitTimes: [Int] = []
    package var uncommittedByteCount = 0
    /// Segments that a start would replay, and their size.
    package var segmentCount = 0
    package var journalByteCount = 0
    package var spilledRowCount = 0
    package var spilledDeletionCount = 0
    /// Size of RocksDB's files.
    package var rowFileByteCount = 0
    package var ephemeralFileByteCount = 0
    /// What the primaries of Redis use and may use, all together; 0 without Redis, and without a bound.
    package var redisByteCount = 0
    package var redisByteLimit = 0
    package var requests = Retention()
    package var traces = Retention()
    /// Why the spiller is waiting, or waited last: a full disk.
    package var lastSpillFailure: String?
    /// Attempts to spill, or to make room for it, that failed and will be repeated.
    package var spillFailureCount = 0
    /// Of a store on Redis: commits that were tried again.
    package var failedCommitCount = 0
    /// Of a store on Redis: round trips of cold reads, as `commitTimes`.
    package var readTimes: [Int] = []
    package var totalReadTime: UInt64 = 0

    package init() {}
}

extension EmbeddedStore {
    /// A snapshot; from any thread.
    package var statistics: StoreStatistics {
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
        let families = database.ephemeralFamilies
        let byteCounts = families.map { database.fileByteCount($0.family) }
        result.ephemeralFileByteCount = byteCounts.reduce(0, +)
        let now = configuration.now()
        func retention(_ kind: Period.Kind, limit: Int, cuts: Int, cutAt: Int64) -> StoreStatistics.Retention {
            var retention = StoreStatistics.Retention()
            retention.byteLimit = limit
            (retention.cutCount, retention.cutMilliseconds) = (cuts, cutAt)
            for (family, byteCount) in zip(families, byteCounts) where family.period.kind == kind {
                retention.byteCount += byteCount
            }
            let oldest = zip(families, byteCounts).first { $0.period.kind == kind && $1 > 0 }
            if let now, let oldest { retention.milliseconds = max(0, now - min(now, oldest.0.period.begin)) }
            return retention
        }
        let drops = spiller.earlyDrops
        result.requests = retention(
            .requests, limit: configuration.requestByteLimit, cuts: drops.requestCount, cutAt: drops.requestMilliseconds
        )
        result.traces = retention(
            .traces, limit: configuration.traceByteLimit, cuts: drops.traceCount, cutAt: drops.traceMilliseconds)
        (result.lastSpillFailure, result.spillFailureCount) = spiller.failures
        return result
    }
}

/// Periods that went before their rows were a day old, because their budget was used up.
struct EarlyDrops: Sendable {
    private(set) var requestCount = 0
    private(set) var traceCount = 0
    /// How long the youngest row of the last such period was kept.
    private(set) var requestMilliseconds: Int64 = 0
    private(set) var traceMilliseconds: Int64 = 0

    mutating func note(_ kind: Period.Kind, keptMilliseconds: Int64) {
        if kind == .requests {
            requestCount += 1
            requestMilliseconds = keptMilliseconds
        } else {
            traceCount += 1
            traceMilliseconds = keptMilliseconds
        }
    }
}
