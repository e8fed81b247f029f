// Only the gateway uses `AckView`. Apple's systems that the client supports may lack `InlineArray`.
#if !canImport(Darwin)
/// An Ack decoded for the hot path.
///
/// It allocates only for rejections and for ranges in stream 1. The ranges are as in a decoded `StreamPosition`: not empty,
/// ascending, disjoint and above the cumulative sequence.
public struct AckView: Sendable {
    /// Stream 0: every message up to this sequence is processed.
    public private(set) var sequence: UInt64 = 0
    /// Stream 0: the processed ranges above `sequence`, of which only the first `rangeCount` are used.
    public private(set) var ranges = InlineArray<32, SequenceRange>(repeating: SequenceRange())
    public private(set) var rangeCount = 0
    /// Stream 1: like `sequence` and `ranges`; ranges are rare here, because they occur only when a handler defers one broadcast.
    public private(set) var broadcastSequence: UInt64 = 0
    public private(set) var broadcastRanges: [SequenceRange] = []
    /// Whether the Ack has a position for stream 1.
    public private(set) var hasBroadcasts = false
    public private(set) var rejected: [Rejected] = []

    /// Decodes the body of an Ack frame.
    ///
    /// Positions in streams above 1 are validated and ignored.
    ///
    /// - Throws: the first fault. A stream that is named twice is a fault, because neither position may be lost.
    public init(decoding body: RawSpan) throws(WireError) {
        var cursor = Cursor(body.byteOffsets)
        var positionCount = 0
        var seen: (direct: Bool, broadcast: Bool) = (false, false)
        while let field = try cursor.next(Ack.Field.self, in: body) {
            switch field {
            case .positions:
                let range = try cursor.lengthDelimited(in: body)
                positionCount += 1
                guard positionCount <= Limits.positionCount else { throw .tooMany(field: field.rawValue) }
                try readPosition(body, at: range, seen: &seen)
            case .rejected:
                try cursor.element(of: &rejected, field, limit: Limits.rejectedCount, in: body)
            }
        }
    }

    private mutating func readPosition(
        _ body: RawSpan, at range: Range<Int>, seen: inout (direct: Bool, broadcast: Bool)
    ) throws(WireError) {
        // The stream and the sequence are read first, because they may follow the ranges, whose checks need them.
        var stream: UInt32 = 0
        var cumulative: UInt64 = 0
        var cursor = Cursor(range)
        while let field = try cursor.next(StreamPosition.Field.self, in: body) {
            switch field {
            case .stream: stream = try cursor.uint32(in: body)
            case .sequence: cumulative = try cursor.varint(in: body)
            case .ranges: _ = try cursor.lengthDelimited(in: body)
            }
        }
        switch stream {
        case 0:
            guard !seen.direct else { throw .repeated(field: Ack.Field.positions.rawValue) }
            seen.direct = true
            sequence = cumulative
        case 1:
            guard !seen.broadcast else { throw .repeated(field: Ack.Field.positions.rawValue) }
            seen.broadcast = true
            broadcastSequence = cumulative
            hasBroadcasts = true
        default: break
        }
        try readRanges(body, at: range, beyond: cumulative, keep: stream)
    }

    private mutating func readRanges(
        _ body: RawSpan, at range: Range<Int>, beyond cumulative: UInt64, keep stream: UInt32
    ) throws(WireError) {
        var floor = cumulative
        var count = 0
        var cursor = Cursor(range)
        while let field = try cursor.next(StreamPosition.Field.self, in: body) {
            guard field == .ranges else {
                _ = try cursor.varint(in: body)
                continue
            }
            let element = try SequenceRange(body, at: cursor.lengthDelimited(in: body))
            try element.check(beyond: &floor)
            guard count < Limits.rangeCount else { throw .tooMany(field: field.rawValue) }
            if stream == 0 { ranges[count] = element }
            if stream == 1 { broadcastRanges.append(element) }
            count += 1
        }
        if stream == 0 { rangeCount = count }
    }
}
#endif
