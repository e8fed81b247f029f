/// A message of the schema, embedded or not, as the codec sees it.
package protocol MessageBody: Equatable, Sendable {
    associatedtype Field: MessageField

    /// All fields at their defaults.
    init()

    /// Takes over the fields found in `range`: scalars are replaced, repeated fields grow, embedded messages merge.
    /// After an error the value is half changed and of no use.
    mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError)

    /// Writes all fields in the order of their numbers.
    func write(to sink: inout some ByteSink)
}

extension MessageBody {
    init(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        self.init()
        try merge(bytes, at: range)
    }
}

/// A message that travels as a frame of its own.
package protocol WireMessage: MessageBody {
    static var frameType: FrameType { get }
}

extension WireMessage {
    /// Reads one body.
    ///
    /// Unknown fields are skipped; of a scalar that comes twice the last counts.
    ///
    /// - Throws: what is wrong first; nothing of the body may be used then.
    package init(decoding body: RawSpan) throws(WireError) {
        try self.init(body, at: body.byteOffsets)
    }

    /// The size of the body alone.
    package var bodyByteCount: Int {
        var counter = ByteCounter()
        write(to: &counter)
        return counter.byteCount
    }

    /// Appends the body without a header.
    package func appendBody(to bytes: inout [UInt8]) {
        var sink = ArraySink()
        swap(&sink.bytes, &bytes)
        write(to: &sink)
        swap(&sink.bytes, &bytes)
    }

    /// Appends header and body.
    ///
    /// - Precondition: the body fits the header's 24 bits. The peer's limit (`Limits.frameBodyByteCount` by default) is
    ///   the caller's to keep, see `bodyByteCount`.
    package func appendFrame(to bytes: inout [UInt8]) {
        let header = FrameHeader(type: Self.frameType, bodyByteCount: bodyByteCount)
        var sink = ArraySink()
        swap(&sink.bytes, &bytes)
        header.write(to: &sink)
        write(to: &sink)
        swap(&sink.bytes, &bytes)
    }
}
