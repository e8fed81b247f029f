package import Wire

/// What stands at the front of received bytes: the one place where a stream of bytes becomes frames.
package enum FrameCut {
    /// Not a whole frame yet.
    case incomplete
    /// `byteCount` bytes, header included, with this body.
    case frame(FrameType, body: UnsafeRawBufferPointer, byteCount: Int)
    /// The connection cannot go on.
    case refused(CloseCode, reason: StaticString)

    /// Looks at the bytes from `offset` on.
    ///
    /// - Parameters:
    ///   - bytes: what was received and not consumed.
    ///   - offset: where the next frame begins.
    ///   - bodyLimit: the largest body to accept.
    ///   - mustBeHello: nothing was said yet; another type, or more than a Hello can be, is refused by its header, before its
    ///     body has come.
    package init(_ bytes: UnsafeRawBufferPointer, from offset: Int, bodyLimit: Int, mustBeHello: Bool) {
        let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
        do throws(FrameHeader.ParseError) {
            let limit = mustBeHello ? min(bodyLimit, Wire.Limits.clientBodyByteCount) : bodyLimit
            guard let header = try FrameHeader(parsing: rest.bytes, bodyLimit: limit) else {
                self = .incomplete
                return
            }
            guard header.type == .hello || !mustBeHello else {
                self = .refused(.unexpectedFrame, reason: "the first frame must be a Hello")
                return
            }
            let end = FrameHeader.byteCount + header.bodyByteCount
            guard rest.count >= end else {
                self = .incomplete
                return
            }
            let body = UnsafeRawBufferPointer(rebasing: rest[FrameHeader.byteCount..<end])
            self = .frame(header.type, body: body, byteCount: end)
        } catch {
            self = .refused(error.closeCode, reason: "the frame's header is not acceptable")
        }
    }
}
