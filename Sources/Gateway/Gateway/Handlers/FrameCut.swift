package import Wire

/// The first frame of the received bytes; all parsing of frames from a byte stream is here.
package enum FrameCut {
    case incomplete
    /// A frame of `byteCount` bytes, header included.
    case frame(FrameType, body: UnsafeRawBufferPointer, byteCount: Int)
    /// The connection must be closed.
    case refused(CloseCode, reason: StaticString)

    /// Parses the bytes from `offset` on.
    ///
    /// - Parameters:
    ///   - bytes: The received bytes that were not consumed.
    ///   - offset: The start of the next frame.
    ///   - bodyLimit: The largest body to accept.
    ///   - mustBeHello: Whether no frame was received yet. Another type, or a body too large for a Hello, is then refused by its
    ///     header, before the body arrives.
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
