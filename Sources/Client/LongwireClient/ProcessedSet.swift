public import Wire

/// Which sequences of one stream are done with: everything up to `sequence`, and some ranges beyond it.
///
/// A stream has gaps: messages expire, are collapsed or were opened elsewhere, and their numbers never arrive. But it
/// is in order: when a message arrives, whatever exists below it has arrived before, in this session or an earlier
/// one. So only the *holes* count, the messages this session received and did not process; everything else up to the
/// highest processed sequence is done with.
public struct ProcessedSet: Equatable, Sendable {
    public private(set) var sequence: UInt64
    /// Ascending, apart from each other and from `sequence`, at most one more than there were holes.
    public private(set) var ranges: [SequenceRange]

    /// - Parameters:
    ///   - sequence: everything up to here is processed.
    ///   - ranges: in any order; overlaps are joined.
    public init(sequence: UInt64 = 0, ranges: [SequenceRange] = []) {
        self.sequence = sequence
        self.ranges = ranges.filter { $0.first <= $0.last && $0.last <= Limits.greatestSequence }
        normalize()
    }

    public func contains(_ candidate: UInt64) -> Bool {
        candidate <= sequence || ranges.contains { $0.first <= candidate && candidate <= $0.last }
    }

    /// Marks one received sequence as processed.
    ///
    /// - Parameters:
    ///   - processed: at most `Limits.greatestSequence`; the caller has checked.
    ///   - holes: ascending; received in this session and not processed, without `processed` itself.
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

    /// Marks one sequence as processed, without a word about the others.
    mutating func insertAlone(_ processed: UInt64) {
        ranges.append(SequenceRange(first: processed, last: processed))
        normalize()
    }

    /// As it stands in a Hello or an Ack: the lowest ranges, when there are more than a frame may carry.
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
        // Without the highest, when a gateway makes gaps without end: these messages may come again.
        ranges = Array(joined.prefix(Limits.processedRangeCount))
    }
}
