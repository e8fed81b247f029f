public import Wire

/// The processed sequences of one stream: everything up to `sequence`, and ranges above it.
///
/// A stream has gaps, because messages expire, are collapsed or were opened elsewhere. But a stream is in order: when a message
/// arrives, all lower ones that exist have arrived before, in this session or an earlier one. It is therefore enough to track
/// the *holes*: the messages that this session received and the app has not processed. Everything else up to the highest
/// processed sequence counts as processed.
public struct ProcessedSet: Equatable, Sendable {
    /// The sequence up to which everything is processed.
    public private(set) var sequence: UInt64
    /// The processed ranges above `sequence`: ascending, not adjacent, at most one more than there were holes.
    public private(set) var ranges: [SequenceRange]

    /// Creates a set.
    ///
    /// - Parameters:
    ///   - sequence: the sequence up to which everything is processed.
    ///   - ranges: processed ranges in any order. Overlapping ones are joined.
    public init(sequence: UInt64 = 0, ranges: [SequenceRange] = []) {
        self.sequence = sequence
        self.ranges = ranges.filter { $0.first <= $0.last && $0.last <= Limits.greatestSequence }
        normalize()
    }

    /// Whether the sequence is processed.
    public func contains(_ candidate: UInt64) -> Bool {
        candidate <= sequence || ranges.contains { $0.first <= candidate && candidate <= $0.last }
    }

    /// Marks one received sequence as processed.
    ///
    /// - Parameters:
    ///   - processed: at most `Limits.greatestSequence`, which the caller has checked.
    ///   - holes: sequences received in this session and not processed, ascending, without `processed`.
    mutating func insert(_ processed: UInt64, holes: [UInt64]) {
        guard let lowest = holes.first, lowest < processed else {
            sequence = max(sequence, processed)
            normalize()
            return
        }
        let nearest = holes.last { $0 < processed } ?? lowest
        sequence = max(sequence, lowest &- 1)
        ranges.append(SequenceRange(first: nearest &+ 1, last: processed))
        normalize()
    }

    /// Marks one sequence as processed, without a conclusion about lower ones.
    mutating func insertAlone(_ processed: UInt64) {
        ranges.append(SequenceRange(first: processed, last: processed))
        normalize()
    }

    /// Returns the position for a Hello or an Ack, with the lowest ranges that fit into a frame.
    package func position(stream: UInt32) -> StreamPosition {
        StreamPosition(stream: stream, sequence: sequence, ranges: Array(ranges.prefix(Limits.rangeCount)))
    }

    private mutating func normalize() {
        guard !ranges.isEmpty else { return }
        ranges.sort { $0.first < $1.first }
        var joined: [SequenceRange] = []
        for range in ranges where range.last > sequence {
            if range.first <= sequence &+ 1 {
                sequence = range.last
            } else if let last = joined.last, range.first <= last.last &+ 1 {
                joined[joined.count - 1].last = max(last.last, range.last)
            } else {
                joined.append(range)
            }
        }
        // The highest ranges are dropped beyond the limit. The gateway may deliver their messages again.
        ranges = Array(joined.prefix(Limits.processedRangeCount))
    }
}
