/// A message of the schema, as a frame or embedded.
package protocol MessageBody: Equatable, Sendable {
    associatedtype Field: MessageField

    init()

    /// Decodes the fields in `range`: replaces scalars, appends repeated fields, merges embedded messages.
    ///
    /// The caller discards the message after an error.
    mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError)

    func write(to sink: inout some ByteSink)
}

extension MessageBody {
    init(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        self.init()
        try merge(bytes, at: range)
    }
}

package protocol WireMessage: MessageBody {
    static var frameType: FrameType { get }
}

extension WireMessage {
    /// Decodes a body; unknown fields are skipped, and the last occurrence of a scalar counts.
    ///
    /// - Throws: the first fault. The body must not be used then.
    package init(decoding body: RawSpan) throws(WireError) {
        try self.init(body, at: body.byteOffsets)
    }

    package var bodyByteCount: Int {
        var counter = ByteCounter()
        write(to: &counter)
        return counter.byteCount
    }

    package func appendBody(to bytes: inout [UInt8]) {
        var sink = ArraySink()
        swap(&sink.bytes, &bytes)
        write(to: &sink)
        swap(&sink.bytes, &bytes)
    }

    /// Appends header and body.
    ///
    /// - Precondition: the body fits the header's 24 bits. The caller checks the peer's limit (`Limits.frameBodyByteCount` by
    ///   default) with `bodyByteCount`.
    package func appendFrame(to bytes: inout [UInt8]) {
        let header = FrameHeader(type: Self.frameType, bodyByteCount: bodyByteCount)
        var sink = ArraySink()
        swap(&sink.bytes, &bytes)
        header.write(to: &sink)
        write(to: &sink)
        swap(&sink.bytes, &bytes)
    }
}
