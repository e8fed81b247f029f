package enum Limits {
    /// The default segment size.
    ///
    /// A segment lasts one to two seconds at the heaviest load, and is quickly filled with zeros in advance.
    package static let segmentByteCount = 64 << 20
    /// The smallest segment size; a batch of a few rows must fit.
    package static let smallestSegmentByteCount = 4096
    /// The alignment of records and segments, in bytes; a search for records behind a damaged one tests only aligned offsets.
    package static let alignment = 8
    /// The batch count below which a busy process pauses after a group, so that the next group gathers.
    ///
    /// At 20,000 messages a second the pause saves a fifth of the CPU and adds 0.3 ms to the median latency. At 25,000 requests a
    /// second over 64 connections, with saturated loops, the pause raises the throughput by a tenth.
    package static let smallGroupBatchCount = 64
    package static let gatherMicroseconds: UInt32 = 300
    /// The CPU share of the loops' cores at which high load begins, and the lower share at which it ends (hysteresis).
    static let highLoadBegins = 0.58
    static let highLoadEnds = 0.5
    static let loadSampleNanoseconds: UInt64 = 100_000_000
    /// The maximum delay of batches that no caller waits for, and the number of queued bytes that ends the delay early.
    package static let unawaitedMilliseconds: UInt64 = 4
    package static let unawaitedByteCount = 1 << 20
    /// The maximum of bytes submitted and not yet synced, over all shards; beyond it publishes are refused.
    package static let uncommittedByteCount = 64 << 20
    /// The number of power-of-two buckets, in microseconds, of the commit time histogram; the last bucket begins at about 8 s.
    package static let histogramBucketCount = 24
}
