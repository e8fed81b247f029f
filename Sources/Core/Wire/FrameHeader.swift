/// The four bytes before every body: the frame's type and a 24-bit big-endian body length.
///
/// Described in Proto/README.md, "Frames".
public struct FrameHeader: Equatable, Sendable {
    public static let byteCount = 4

    /// A header after which the connection must be closed; `closeCode` is the code to send.
    public enum ParseError: Error, Equatable, Sendable {
        case unknownType(UInt8)
        case bodyTooLarge(byteCount: Int, limit: Int)

        public var closeCode: CloseCode {
            switch self {
            case .unknownType: .unexpectedFrame
            case .bodyTooLarge: .frameTooLarge
            }
        }
    }

    public let type: FrameType
    public let bodyByteCount: Int

    /// - Precondition: `bodyByteCount` is 0 to `Limits.largestFrameBodyByteCount`.
    public init(type: FrameType, bodyByteCount: Int) {
        precondition(
            bodyByteCount >= 0 && bodyByteCount <= Limits.largestFrameBodyByteCount, "a frame's body is too large")
        (self.type, self.bodyByteCount) = (type, bodyByteCount)
    }

    /// Parses the header at the start of `bytes`; `nil` means that fewer than four bytes have arrived.
    ///
    /// - Parameters:
    ///   - bytes: the received bytes, beginning with the header.
    ///   - limit: the largest body to accept.
    /// - Throws: when the connection must be closed.
    public init?(parsing bytes: RawSpan, bodyLimit limit: Int = Limits.frameBodyByteCount) throws(ParseError) {
        guard bytes.byteCount >= Self.byteCount else { return nil }
        guard let type = FrameType(rawValue: bytes.byte(at: 0)) else { throw .unknownType(bytes.byte(at: 0)) }
        let length = Int(bytes.byte(at: 1)) << 16 | Int(bytes.byte(at: 2)) << 8 | Int(bytes.byte(at: 3))
        guard length <= limit else { throw .bodyTooLarge(byteCount: length, limit: limit) }
        (self.type, self.bodyByteCount) = (type, length)
    }

    func write(to sink: inout some ByteSink) {
        sink.put(type.rawValue)
        sink.put(UInt8(truncatingIfNeeded: bodyByteCount >> 16))
        sink.put(UInt8(truncatingIfNeeded: bodyByteCount >> 8))
        sink.put(UInt8(truncatingIfNeeded: bodyByteCount))
    }
}
