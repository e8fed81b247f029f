package import Wire

package enum IncomingFrame {
    case welcome(Welcome)
    case close(Close)
    case ping(Ping)
    case pong(Pong)
    case deliver(Deliver)
    case updateResult(UpdateResult)
    case revoke(Revoke)
    case upstreamResult(UpstreamResult)
    case deviceNamesResult(DeviceNamesResult)
    /// A frame type that only a client sends.
    case misplaced(FrameType)
}

package struct FrameReader {
    package struct Failure: Error, Equatable {
        package let code: CloseCode
        package let reason: String
    }

    /// A `ContiguousArray`, because the `span` of an `Array` needs newer systems than the client supports.
    private var bytes: ContiguousArray<UInt8> = []
    private var offset = 0

    package init() {}

    package mutating func append(_ more: [UInt8]) {
        if offset > 0 {
            bytes.removeFirst(offset)
            offset = 0
        }
        bytes += more
    }

    mutating func reset() { (bytes, offset) = ([], 0) }

    /// Returns the next complete frame, or `nil` if more bytes are needed.
    package mutating func next() throws(Failure) -> IncomingFrame? {
        guard let (frame, byteCount) = try Self.parse(bytes.span.bytes.extracting(offset..<bytes.count)) else {
            return nil
        }
        offset += byteCount
        return frame
    }

    private static func parse(_ bytes: RawSpan) throws(Failure) -> (IncomingFrame, byteCount: Int)? {
        let header: FrameHeader?
        do {
            header = try FrameHeader(parsing: bytes, bodyLimit: Limits.frameByteCount)
        } catch {
            throw Failure(code: error.closeCode, reason: "\(error)")
        }
        guard let header, bytes.byteCount - FrameHeader.byteCount >= header.bodyByteCount else { return nil }
        let end = FrameHeader.byteCount + header.bodyByteCount
        do {
            return (try decode(header.type, bytes.extracting(FrameHeader.byteCount..<end)), end)
        } catch {
            throw Failure(code: .malformed, reason: "\(header.type): \(error)")
        }
    }

    private static func decode(_ type: FrameType, _ body: RawSpan) throws(WireError) -> IncomingFrame {
        switch type {
        case .welcome: .welcome(try Welcome(decoding: body))
        case .close: .close(try Close(decoding: body))
        case .ping: .ping(try Ping(decoding: body))
        case .pong: .pong(try Pong(decoding: body))
        case .deliver: .deliver(try Deliver(decoding: body))
        case .updateResult: .updateResult(try UpdateResult(decoding: body))
        case .revoke: .revoke(try Revoke(decoding: body))
        case .upstreamResult: .upstreamResult(try UpstreamResult(decoding: body))
        case .deviceNamesResult: .deviceNamesResult(try DeviceNamesResult(decoding: body))
        case .hello, .ack, .deviceUpdate, .feedback, .upstream, .publish, .publishResult, .deviceNames:
            .misplaced(type)
        }
    }
}
