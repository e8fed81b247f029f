internal import Gateway
internal import LongwireClient
internal import Wire

/// Splits a byte stream into frames: both ends must find the same frames for every division into pieces.
///
/// Input: the gateway's limit and rule, the number of pieces, a byte for the length of each, then the stream.
enum FrameFuzz {
    private enum End: Equatable { case open, refused(CloseCode) }

    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        let limit = script.pick([64 << 10, 16, 0, 1 << 24 - 1])
        let mustBeHello = script.flag()
        let pieces = (0..<script.choice(16)).map { _ in Int(script.byte()) }
        let stream = script.rest()

        let whole = cut(stream, pieces: [], limit: limit, mustBeHello: mustBeHello)
        let split = cut(stream, pieces: pieces, limit: limit, mustBeHello: mustBeHello)
        try require(whole.frames == split.frames, "pieces change what the gateway reads")
        try require(whole.end == split.end, "pieces change how the gateway ends")
        let total = whole.frames.reduce(0) { $0 + FrameHeader.byteCount + $1.body.count }
        try require(total == whole.consumed && total <= stream.count, "frames and bytes do not add up")
        for frame in whole.frames { try require(frame.body.count <= limit, "a body beyond the limit was taken") }

        let read = try Self.read(stream, pieces: [])
        try require(try Self.read(stream, pieces: pieces) == read, "pieces change what the client reads")
        // Both ends parse the same headers. Only the client also stops at a body that it cannot decode.
        let same = cut(stream, pieces: [], limit: 64 << 10, mustBeHello: false)
        try require(read.types == same.frames.prefix(read.types.count).map(\.type), "the ends cut different frames")
        if read.types.count < same.frames.count {
            try require(read.failure == .malformed, "a client stopped without a reason")
        } else if same.end == .open {
            try require(read.failure == nil, "a client refused what the gateway takes")
        }
    }

    private struct Cut: Equatable {
        struct Frame: Equatable {
            var type: FrameType
            var body: [UInt8]
        }
        var frames: [Frame] = []
        var end = End.open
        var consumed = 0
    }

    /// Parses received bytes as a gateway connection does.
    private static func cut(_ stream: [UInt8], pieces: [Int], limit: Int, mustBeHello: Bool) -> Cut {
        var cut = Cut()
        var received = 0
        for piece in pieces + [stream.count] {
            received = min(stream.count, received + piece)
            // A separate allocation lets AddressSanitizer detect a read past the received bytes.
            let arrived = Array(stream[..<received])
            let isOver = arrived.withUnsafeBytes { bytes in
                while true {
                    let mustGreet = mustBeHello && cut.frames.isEmpty
                    switch FrameCut(bytes, from: cut.consumed, bodyLimit: limit, mustBeHello: mustGreet) {
                    case .incomplete: return false
                    case .refused(let code, _):
                        cut.end = .refused(code)
                        return true
                    case .frame(let type, let body, let byteCount):
                        cut.frames.append(Cut.Frame(type: type, body: Array(body)))
                        cut.consumed += byteCount
                    }
                }
            }
            if isOver { break }
        }
        return cut
    }

    private struct Read: Equatable {
        var types: [FrameType] = []
        var bytes: [UInt8] = []
        var failure: CloseCode?
    }

    private static func read(_ stream: [UInt8], pieces: [Int]) throws -> Read {
        var reader = FrameReader()
        var result = Read()
        var received = 0
        for piece in pieces + [stream.count] {
            let end = min(stream.count, received + piece)
            reader.append(Array(stream[received..<end]))
            received = end
            do throws(FrameReader.Failure) {
                while let frame = try reader.next() { result.types.append(append(frame, to: &result.bytes)) }
            } catch {
                result.failure = error.code
                return result
            }
        }
        return result
    }

    private static func append(_ frame: IncomingFrame, to bytes: inout [UInt8]) -> FrameType {
        func add<Message: WireMessage>(_ message: Message) -> FrameType {
            message.appendFrame(to: &bytes)
            return Message.frameType
        }
        return switch frame {
        case .welcome(let message): add(message)
        case .close(let message): add(message)
        case .ping(let message): add(message)
        case .pong(let message): add(message)
        case .deliver(let message): add(message)
        case .updateResult(let message): add(message)
        case .revoke(let message): add(message)
        case .upstreamResult(let message): add(message)
        case .deviceNamesResult(let message): add(message)
        case .misplaced(let type): type
        }
    }
}
