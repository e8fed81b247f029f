internal import Cryptography
internal import Platform
internal import Wire

/// A device or trusted sender that exchanges frames with the gateway.
struct FramePeer {
    var end: StreamEnd
    var isWelcome = false
    var closeCode: UInt32?
    /// Publishes without a result.
    var unanswered: Set<UInt64> = []
    /// The number of updates and Pings without an answer.
    var owedCount = 0
    /// The highest sequence received in this session, by stream.
    var highest: [UInt32: UInt64] = [:]

    mutating func send(_ message: some WireMessage) {
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        end.write(bytes)
    }

    private static let nonces = Lock<UInt64>(0)

    mutating func send(_ hello: Hello, key: [UInt8]) throws {
        var hello = hello
        // The gateway rejects a repeated Hello as a replay, so each one gets another nonce.
        hello.nonce = Self.nonces.withLock { count in
            count += 1
            return (0..<8).map { UInt8(truncatingIfNeeded: count >> (8 * $0)) }
        }
        var body: [UInt8] = []
        hello.appendBody(to: &body)
        let transcript: HelloTranscript
        do throws(WireError) { transcript = try HelloTranscript(body: body.span.bytes) } catch {
            throw FuzzFailure(description: "our own Hello cannot be read")
        }
        hello.proof = HMACSHA256.code(key: key, message: transcript.bytes)
        send(hello)
    }

    mutating func next() throws -> (FrameType, [UInt8])? {
        let waiting = end.waiting
        guard waiting.count >= FrameHeader.byteCount else { return nil }
        let start = waiting.startIndex
        let length = Int(waiting[start + 1]) << 16 | Int(waiting[start + 2]) << 8 | Int(waiting[start + 3])
        guard let type = FrameType(rawValue: waiting[start]) else {
            throw FuzzFailure(description: "the gateway sent a frame of type \(waiting[start])")
        }
        guard waiting.count >= FrameHeader.byteCount + length else { return nil }
        let body = Array(waiting[(start + FrameHeader.byteCount)..<(start + FrameHeader.byteCount + length)])
        end.take(FrameHeader.byteCount + length)
        return (type, body)
    }
}

func decode<Message: WireMessage>(_: Message.Type, _ body: [UInt8]) throws -> Message {
    do throws(WireError) {
        return try Message(decoding: body.span.bytes)
    } catch {
        throw FuzzFailure(description: "the gateway sent a \(Message.self) that cannot be read: \(error)")
    }
}
