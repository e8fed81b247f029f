internal import Journal

/// Metrics of the store: times in microseconds, counters since the start.
package struct StoreStatistics: Sendable, Equatable {
    package struct Retention: Sendable, Equatable {
        /// The size of the files, and the budget beyond which the oldest rows are dropped early.
        package var byteCount = 0
        package var byteLimit = 0
        /// The age of the oldest row, derived from the begin of its period; 0 if there is none or the time is unknown.
        package var milliseconds: Int64 = 0
        /// The number of periods dropped before their rows were a day old.
        package var cutCount = 0
        /// The age of the youngest row in the last period that was dropped early.
        package var cutMilliseconds: Int64 = 0
        package init() {}
    }

    /// The reason why a store on Redis refuses writes, with the servers; `nil` if it accepts writes or is embedded.
    package var refusalReason: String?
    package var batchCount = 0
    package var groupCount = 0
    package var largestGroup = 0
    package var journalWrittenByteCount = 0
    package var longestCommit: UInt64 = 0
    package var totalCommitTime: UInt64 = 0
    /// The number of groups per commit time: bucket `index` counts times below 2^(index + 1) µs, the last one all longer times.
    package var commitTimes: [Int] = []
    package var uncommittedByteCount = 0
    /// The number and size of the segments that a start would replay.
    package var segmentCount = 0
    package var journalByteCount = 0
    package var spilledRowCount = 0
    package var spilledDeletionCount = 0
    package var rowFileByteCount = 0
    package var ephemeralFileByteCount = 0
    /// The memory use and memory limit of all Redis primaries together; the limit is 0 if a primary has none.
    package var redisByteCount = 0
    package var redisByteLimit = 0
    package var requests = Retention()
    package var traces = Retention()
    /// The last error that blocked spilling: a full disk, or an error of a Redis server.
    package var lastSpillFailure: String?
    /// The number of failed attempts to spill or to make space for spilling; they are retried.
    package var spillFailureCount = 0
    /// For a store on Redis: the number of retried commits.
    package var failedCommitCount = 0
    /// For a store on Redis: round trips of cold reads, in the buckets of `commitTimes`.
    package var readTimes: [Int] = []
    package var totalReadTime: UInt64 = 0

    package init() {}
}

extension EmbeddedStore {
    /// A snapshot of the metrics; may be read from any thread.
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

/// Periods dropped before their rows were a day old, because their budget was exceeded.
struct EarlyDrops: Sendable {
    private(set) var requestCount = 0
    private(set) var traceCount = 0
    /// The age of the youngest row in the last period that was dropped early.
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
