// Only the gateway reads acks so; `InlineArray` is newer than the Apple systems that a client's app supports.
#if !canImport(Darwin)
/// An Ack as the live path reads it: no allocation, unless the device rejects something.
///
/// Ranges are as in a decoded `StreamPosition`: not empty, ascending, apart, beyond the cumulative sequence.
public struct AckView: Sendable {
    /// Stream 0: everything up to here is processed.
    public private(set) var sequence: UInt64 = 0
    /// Stream 0: processed ranges beyond `sequence`, the first `rangeCount` of them; the rest is zero.
    public private(set) var ranges = InlineArray<32, SequenceRange>(repeating: SequenceRange())
    public private(set) var rangeCount = 0
    /// Stream 1: as in stream 0.
    ///
    /// Ranges beyond are rare there: a handler that put one broadcast off.
    public private(set) var broadcastSequence: UInt64 = 0
    public private(set) var broadcastRanges: [SequenceRange] = []
    /// Stream 1 was named at all.
    public private(set) var hasBroadcasts = false
    public private(set) var rejected: [Rejected] = []

    /// Reads the body of an Ack frame.
    ///
    /// Positions in streams above 1 are checked and passed over.
    ///
    /// - Throws: what is wrong first; also when one stream is named twice, since neither position may be lost.
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
        // First the two numbers: they may stand behind the ranges, and they say what the ranges mean.
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
