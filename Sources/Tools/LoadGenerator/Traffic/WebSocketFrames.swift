/// The client side of a WebSocket (RFC 6455), limited to the generator's needs.
enum WebSocketFrames {
    static let headByteCount = 14

    /// Returns the upgrade request.
    ///
    /// The key is constant, because it only proves that a WebSocket server answers and not a cache.
    static func request(host: String) -> [UInt8] {
        Array(
            """
            GET /v1/device HTTP/1.1\r\nHost: \(host)\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bG9uZ3dpcmUgYmVuY2ghIQ==\r\n\r\n
            """.utf8)
    }

    /// Returns the size of the answer's header, `nil` while it is incomplete, or 0 for any answer but 101.
    static func answerByteCount(_ bytes: UnsafeRawBufferPointer) -> Int? {
        guard zip(bytes, "HTTP/".utf8).allSatisfy({ $0 == $1 }) else { return 0 }
        for end in stride(from: 4, through: bytes.count, by: 1)
        where bytes[end - 4] == 13 && bytes[end - 3] == 10 && bytes[end - 2] == 13 && bytes[end - 1] == 10 {
            return bytes.starts(with: "HTTP/1.1 101 ".utf8) ? end : 0
        }
        return nil
    }

    /// Writes `bytes` as one masked binary message.
    ///
    /// `room` must have `headByteCount` bytes more than `bytes`.
    ///
    /// - Returns: the number of bytes written.
    @inline(__always)
    static func write(_ bytes: UnsafeRawBufferPointer, mask: UInt32, to room: UnsafeMutableRawPointer) -> Int {
        room.storeBytes(of: 0x82, as: UInt8.self)
        var head = 2
        switch bytes.count {
        case ..<126: room.storeBytes(of: 0x80 | UInt8(bytes.count), toByteOffset: 1, as: UInt8.self)
        case ..<65_536:
            room.storeBytes(of: 0x80 | 126, toByteOffset: 1, as: UInt8.self)
            room.storeBytes(of: UInt16(bytes.count).bigEndian, toByteOffset: 2, as: UInt16.self)
            head = 4
        default:
            room.storeBytes(of: 0x80 | 127, toByteOffset: 1, as: UInt8.self)
            room.storeBytes(of: UInt64(bytes.count).bigEndian, toByteOffset: 2, as: UInt64.self)
            head = 10
        }
        room.storeBytes(of: mask.littleEndian, toByteOffset: head, as: UInt32.self)
        head += 4
        for index in bytes.indices {
            let key = UInt8(truncatingIfNeeded: mask >> (UInt32(index & 3) * 8))
            room.storeBytes(of: bytes[index] ^ key, toByteOffset: head + index, as: UInt8.self)
        }
        return head + bytes.count
    }

    struct Frame {
        /// 2 for a binary message, 0 for a continuation, 8 for a close, 9 for a ping.
        var opcode: UInt8
        var payload: Range<Int>
    }

    /// - Returns: `nil` while the frame is incomplete.
    @inline(__always)
    static func frame(_ bytes: UnsafeRawBufferPointer, from start: Int) -> Frame? {
        guard bytes.count - start >= 2 else { return nil }
        var count = Int(bytes[start + 1] & 0x7F)
        var head = 2
        if count == 126 {
            guard bytes.count - start >= 4 else { return nil }
            (count, head) = (Int(bytes[start + 2]) << 8 | Int(bytes[start + 3]), 4)
        } else if count == 127 {
            guard bytes.count - start >= 10 else { return nil }
            count = (2..<10).reduce(0) { $0 << 8 | Int(bytes[start + $1]) }
            head = 10
        }
        guard count >= 0, count <= bytes.count - start - head else { return nil }
        return Frame(opcode: bytes[start] & 0x0F, payload: start + head..<start + head + count)
    }
}
