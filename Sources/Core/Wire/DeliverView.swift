/// A Deliver decoded for a load generator without allocation: the message's position and the payload's range.
package struct DeliverView: Equatable, Sendable {
    package private(set) var stream: UInt32 = 0
    package private(set) var sequence: UInt64 = 0
    package private(set) var payload = BodyRange.empty

    /// Decodes the body of a Deliver frame.
    ///
    /// - Parameter body: at most `Limits.largestFrameBodyByteCount` bytes.
    /// - Throws: the first fault. Fields that are not kept are skipped without validation.
    package init(decoding body: RawSpan) throws(WireError) {
        precondition(body.byteCount <= Limits.largestFrameBodyByteCount, "no frame has such a body")
        var cursor = Cursor(body.byteOffsets)
        while let field = try cursor.next(Deliver.Field.self, in: body) {
            switch field {
            case .stream: stream = try cursor.uint32(in: body)
            case .sequence: sequence = try cursor.varint(in: body)
            case .payload: payload = BodyRange(try cursor.lengthDelimited(in: body))
            default: try cursor.skip(field.shape.wireType, in: body)
            }
        }
    }
}
