/// The bounds of this module, each with its reason.
package enum Limits {
    /// A segment's size by default: a second or two of the heaviest load, and quick to fill with zeros ahead of time.
    package static let segmentByteCount = 64 << 20
    /// The smallest segment: a batch of a few rows must fit.
    package static let smallestSegmentByteCount = 4096
    /// Records and segments start at multiples of this, so that the search behind a damaged record is short.
    package static let alignment = 8
    /// In a busy process groups below this size are followed by a rest, in which the next one gathers.
    ///
    /// At 20,000 messages a second the rest saves a fifth of the CPU and adds 0.3 ms to the median. At 25,000
    /// requests a second over 64 connections, where loops have no time left, it raises the rate by a tenth.
    package static let smallGroupBatchCount = 64
    package static let gatherMicroseconds: UInt32 = 300
    /// The share of the loops' cores at which the process counts as busy, and does so no more.
    static let highLoadBegins = 0.58
    static let highLoadEnds = 0.5
    static let loadSampleNanoseconds: UInt64 = 100_000_000
    /// How long batches that nobody waits for are kept back for company, and how many bytes of them.
    package static let unawaitedMilliseconds: UInt64 = 4
    package static let unawaitedByteCount = 1 << 20
    /// Bytes handed over and not yet synced, all shards together; past it publishes are refused.
    package static let uncommittedByteCount = 64 << 20
    /// Powers of two of microseconds in the histogram of commit times; the last one is about 8 s and more.
    package static let histogramBucketCount = 24
}
