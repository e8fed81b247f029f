/// Counters of the committer since the start; times in microseconds.
package struct JournalStatistics: Sendable, Equatable {
    package var batchCount = 0
    package var groupCount = 0
    package var byteCount = 0
    package var largestGroup = 0
    package var longestCommit: UInt64 = 0
    package var totalCommitTime: UInt64 = 0
    package var lastGeneration: UInt64 = 0
    package var lastEnd = 0
    /// The number of groups per commit time: bucket `index` counts times below 2^(index + 1) µs, the last one all longer times.
    package var commitTimes = [Int](repeating: 0, count: Limits.histogramBucketCount)

    package init() {}

    package mutating func add(batches: Int, bytes: Int, microseconds: UInt64) {
        batchCount += batches
        groupCount += 1
        byteCount += bytes
        largestGroup = max(largestGroup, batches)
        longestCommit = max(longestCommit, microseconds)
        totalCommitTime += microseconds
        let bucket = microseconds == 0 ? 0 : UInt64.bitWidth - 1 - microseconds.leadingZeroBitCount
        commitTimes[min(bucket, commitTimes.count - 1)] += 1
    }
}
