/// The state of a WebSocket between two reads: the part of a message that has come, and how the WebSocket ends.
///
/// An idle WebSocket has none. It moves with its connection from loop to loop.
final class WebSocketSession {
    var reader = WebSocketReader()
    /// The client closed or broke the protocol while its stream was on its way to another loop.
    var ending: Ending?
    /// The client's close frame has come, behind which it sends nothing.
    var hasClientClosed = false

    /// How the stream is to end.
    struct Ending {
        var code: WebSocketCode
        var reason: CloseReason
    }

    /// The head of a frame that we send: never masked, a whole message, its length in as few bytes as it takes.
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

    /// First bytes of our frames, each with FIN.
    static let binary: UInt8 = 0x82
    static let close: UInt8 = 0x88
    static let ping: UInt8 = 0x89
    static let pong: UInt8 = 0x8A
}
