/// The state of a WebSocket between two reads: a partial message, or the pending end; an idle WebSocket has none.
final class WebSocketSession {
    var reader = WebSocketReader()
    /// The pending end after a close frame or protocol violation, kept if the stream moves to another loop.
    var ending: Ending?
    /// Whether the client's close frame has arrived, after which it sends nothing.
    var hasClientClosed = false

    struct Ending {
        var code: WebSocketCode
        var reason: CloseReason
    }

    /// The head of a sent frame: unmasked, a whole message, with the shortest encoding of the length.
    enum Head {
        static func byteCount(payload byteCount: Int) -> Int { byteCount < 126 ? 2 : byteCount < 65_536 ? 4 : 10 }

        static func write(_ start: UInt8, payload byteCount: Int, to room: UnsafeMutableRawBufferPointer) {
            room[0] = start
            switch byteCount {
            case ..<126: room[1] = UInt8(byteCount)
            case ..<65_536:
                room[1] = 126
                room.storeBytes(of: UInt16(byteCount).bigEndian, toByteOffset: 2, as: UInt16.self)
            default:
                room[1] = 127
                room.storeBytes(of: UInt64(byteCount).bigEndian, toByteOffset: 2, as: UInt64.self)
            }
        }
    }

    /// The first bytes of sent frames, each with FIN.
    static let binary: UInt8 = 0x82
    static let close: UInt8 = 0x88
    static let ping: UInt8 = 0x89
    static let pong: UInt8 = 0x8A
}
