@testable import EventLoops
import Platform
import Testing

@Suite("WebSocket streams")
struct WebSocketStreamTests {
    /// Serves a WebSocket without its handshake; the delegate's end is recorded.
    private func serve(
        on loop: EventLoop, outboxByteLimit: Int = Limits.outboxByteCount, ended: Probe<CloseReason>,
        empty: Probe<Int> = Probe(), opened: @escaping @Sendable (ByteStream) -> Void = { _ in },
        received: @escaping @Sendable ([UInt8], ByteStream) -> Void
    ) throws -> UInt16 {
        try loop.listen { [unowned loop] connection in
            let delegate = WebSocketDelegate(ended: ended, empty: empty)
            delegate.onReceived = { bytes, stream in
                received(Array(bytes), stream)
                return bytes.count
            }
            let stream = ByteStream(
                attaching: connection, on: loop, delegate: delegate, outboxByteLimit: outboxByteLimit)
            stream.beginWebSocket()
            opened(stream)
        }
    }

    @Test(
        "each write is a message with the shortest length encoding",
        arguments: [0, 1, 125, 126, 65_535, 65_536])
    func messages(byteCount: Int) throws {
        try withLoop { loop in
            let port = try serve(on: loop, ended: Probe()) { bytes, stream in
                let wanted = Int(bytes[0]) << 16 | Int(bytes[1]) << 8 | Int(bytes[2])
                #expect(stream.write(Array(repeating: 7, count: wanted)))
            }
            let client = try TestClient(port: port)
            let size = [16, 8, 0].map { UInt8(truncatingIfNeeded: byteCount >> $0) }
            try client.send(ClientFrame.binary(size).bytes)
            let head: [UInt8] =
                byteCount < 126
                ? [0x82, UInt8(byteCount)]
                : byteCount < 65_536 ? [0x82, 126, size[1], size[2]] : [0x82, 127, 0, 0, 0, 0, 0] + size
            #expect(try client.receive(exactly: head.count) == head)
            #expect(try client.receive(exactly: byteCount) == Array(repeating: 7, count: byteCount))
        }
    }

    @Test("frames that arrive byte by byte are one payload stream, with a ping answered in between")
    func trickle() throws {
        try withLoop { loop in
            let (seen, empty) = (Probe<[UInt8]>(), Probe<Int>())
            let port = try serve(on: loop, ended: Probe(), empty: empty) { bytes, _ in seen.note(bytes) }
            let client = try TestClient(port: port)
            let frames: [ClientFrame] = [
                .binary([1, 2, 3], isFinal: false), ClientFrame(opcode: 9, payload: [9, 9]),
                ClientFrame(opcode: 0, payload: [4, 5]),
            ]
            for byte in frames.flatMap(\.bytes) { try client.send([byte]) }
            seen.wait { $0.flatMap(\.self) == [1, 2, 3, 4, 5] }
            #expect(try client.receive(exactly: 4) == [0x8A, 2, 9, 9])
            #expect(empty.values == [1])
        }
    }

    @Test("a violation is sent to the client as a code, and reported to the delegate at once")
    func violation() throws {
        try withLoop { loop in
            let (ended, seen) = (Probe<CloseReason>(), Probe<[UInt8]>())
            let port = try serve(on: loop, ended: ended) { bytes, _ in seen.note(bytes) }
            let client = try TestClient(port: port)
            // Earlier bytes of the same read are processed.
            try client.send(ClientFrame.binary([1]).bytes + ClientFrame(opcode: 1, payload: [0x61]).bytes)
            ended.wait { $0 == [.webSocketFailed("messages are binary here")] }
            #expect(seen.values == [[1]])
            #expect(try client.receive(exactly: 4) == [0x88, 2, 3, 0xEB])
            // The server closes its half after the client's close, and not before.
            try client.send(ClientFrame.close(1003).bytes)
            #expect(client.receiveAll().isEmpty)
        }
    }

    @Test(
        "after the server's close only the client's close is read, whatever precedes it, in any pieces",
        arguments: [0, 1, 2, 3, 5, 8, 13, 21])
    func awaitingClose(cut: Int) throws {
        try withLoop { loop in
            let (ended, closing) = (Probe<CloseReason>(), Probe<Unchecked<ByteStream>>())
            let port = try serve(on: loop, ended: ended) { _, stream in
                stream.closeAfterFlush(code: .normal)
                closing.note(Unchecked(stream))
            }
            let client = try TestClient(port: port)
            try client.send(ClientFrame.binary([1]).bytes)
            #expect(try client.receive(exactly: 4) == [0x88, 2, 3, 0xE8])
            // Violations, an unmasked frame, and an unfinished message.
            var rest = ClientFrame(opcode: 1, payload: [0x61]).bytes + [0xF3, 2, 7, 7]
            rest += ClientFrame.binary([1, 2, 3], isFinal: false).bytes + [0x82, 126, 0, 1, 9]
            let close: [UInt8] = ClientFrame.close(1000).bytes
            try client.send(Array(rest[..<cut]))
            _ = loop.run {}
            try client.send(Array(rest[cut...]))
            let stream = try #require(closing.wait { !$0.isEmpty }.first)
            #expect(loop.run { stream.value.slot.map { $0.pointee.flags.contains(.isShut) } } == false)
            try client.send(close)
            #expect(client.receiveAll().isEmpty)
            client.shutDownWriting()
            ended.wait { $0 == [.closedHere] }
        }
    }

    @Test("a WebSocket without output is pinged repeatedly, and its pongs are not payload")
    func quiet() throws {
        try withLoop { loop in
            _ = loop.run { loop.webSocketQuietMilliseconds = 100 }
            let (seen, empty) = (Probe<[UInt8]>(), Probe<Int>())
            let port = try serve(on: loop, ended: Probe(), empty: empty) { bytes, _ in seen.note(bytes) }
            let client = try TestClient(port: port)
            for _ in 0..<3 {
                #expect(try client.receive(exactly: 2) == [0x89, 0])
                try client.send(ClientFrame(opcode: 10).bytes)
            }
            try client.send(ClientFrame.binary([1]).bytes)
            seen.wait { $0 == [[1]] }
            #expect(empty.values.count == 3)
        }
    }

    @Test("a delegate's own timeout replaces the ping, which resumes after it")
    func timeoutBeforePing() throws {
        try withLoop { loop in
            _ = loop.run { loop.webSocketQuietMilliseconds = 100 }
            let (opened, timedOut) = (Probe<Unchecked<ByteStream>>(), Probe<Int>())
            let port = try loop.listen { [unowned loop] connection in
                let delegate = TestDelegate()
                delegate.onTimeout = { _ in timedOut.note(1) }
                let stream = ByteStream(attaching: connection, on: loop, delegate: delegate)
                stream.beginWebSocket()
                stream.setTimeout(afterMilliseconds: 1)
                opened.note(Unchecked(stream))
            }
            let client = try TestClient(port: port)
            let stream = try #require(opened.wait { !$0.isEmpty }.first)
            timedOut.wait { $0 == [1] }
            _ = loop.run { stream.value.clearTimeout() }
            #expect(try client.receive(exactly: 2) == [0x89, 0])
        }
    }

    @Test(
        "a client's close is answered with its own code, then the connection ends", arguments: [1000, 1001, 4100, nil])
    func closing(code: UInt16?) throws {
        try withLoop { loop in
            let ended = Probe<CloseReason>()
            let port = try serve(on: loop, ended: ended) { _, _ in }
            let client = try TestClient(port: port)
            try client.send((code.map { ClientFrame.close($0, Array("bye".utf8)) } ?? ClientFrame(opcode: 8)).bytes)
            ended.wait { $0 == [.endOfStream] }
            let answered = code ?? 1000
            #expect(client.receiveAll() == [0x88, 2, UInt8(answered >> 8), UInt8(truncatingIfNeeded: answered)])
        }
    }

    @Test("the server's close follows the written bytes once, and the client's answer is awaited")
    func ourClose() throws {
        try withLoop { loop in
            let ended = Probe<CloseReason>()
            let port = try serve(on: loop, ended: ended) { _, stream in
                #expect(stream.write([5]))
                stream.closeAfterFlush(code: WebSocketCode(rawValue: 4201))
                stream.closeAfterFlush(code: .normal)
                #expect(!stream.write([6]))
            }
            let client = try TestClient(port: port)
            try client.send(ClientFrame.binary([1]).bytes)
            #expect(try client.receive(exactly: 7) == [0x82, 1, 5, 0x88, 2, 0x10, 0x69])
            #expect(ended.values.isEmpty)
            try client.send(ClientFrame.close(4201).bytes)
            client.shutDownWriting()
            ended.wait { $0 == [.closedHere] }
        }
    }

    @Test("the largest write that the outbox allows fits with its frame header")
    func fullOutbox() throws {
        try withLoop { loop in
            let limit = ApproximateCount(atLeast: 65_540).value
            let port = try serve(on: loop, outboxByteLimit: limit, ended: Probe()) { _, stream in
                #expect(stream.write(Array(repeating: 1, count: limit)))
            }
            let client = try TestClient(port: port)
            try client.send(ClientFrame.binary([1]).bytes)
            #expect(try client.receive(exactly: limit + 10).count == limit + 10)
        }
    }

    @Test("a WebSocket moves within a frame, also with its end after it", arguments: 0...14)
    func moving(cut: Int) throws {
        try withLoops(2) { loops in
            let (ended, seen) = (Probe<CloseReason>(), Probe<[UInt8]>())
            let target = loops[1]
            let port = try serve(on: loops[0], ended: Probe()) { bytes, stream in
                #expect(stream.write([100]))
                let connection = bytes[1...].withUnsafeBytes { stream.detach(unconsumed: $0) }
                guard let connection else {
                    Issue.record("the stream could not be detached")
                    return
                }
                target.submit {
                    let delegate = WebSocketDelegate(ended: ended, empty: Probe())
                    delegate.onReceived = { bytes, _ in
                        seen.note(Array(bytes))
                        return bytes.count
                    }
                    let moved = ByteStream(attaching: connection, on: target, delegate: delegate)
                    #expect(moved.isWebSocket)
                    #expect(moved.write([101]))
                }
            }
            let client = try TestClient(port: port)
            let rest = ClientFrame.binary([3, 4, 5]).bytes + ClientFrame.close(1001).bytes
            try client.send(ClientFrame.binary([1, 2]).bytes + rest[..<min(cut, rest.count)])
            #expect(try client.receive(exactly: 6) == [0x82, 1, 100, 0x82, 1, 101])
            try client.send(Array(rest[min(cut, rest.count)...]))
            ended.wait { $0 == [.endOfStream] }
            #expect(seen.values.flatMap(\.self) == [2, 3, 4, 5])
            #expect(client.receiveAll() == [0x88, 2, 3, 0xE9])
        }
    }

    @Test("a stream keeps state of a message only while one is in progress", arguments: 1...8)
    func keeping(cut: Int) throws {
        try withLoop { loop in
            let (opened, seen) = (Probe<Unchecked<ByteStream>>(), Probe<[UInt8]>())
            let port = try serve(on: loop, ended: Probe(), opened: { opened.note(Unchecked($0)) }) { bytes, _ in
                seen.note(bytes)
            }
            let client = try TestClient(port: port)
            let stream = try #require(opened.wait { !$0.isEmpty }.first)
            let ping = ClientFrame(opcode: 9, payload: [1])
            // A message of two frames, split anywhere within or after the first.
            let (first, second) = (
                ClientFrame.binary([3], isFinal: false).bytes, ClientFrame(opcode: 0, payload: [4]).bytes
            )
            let cut = min(cut, first.count)
            try client.send(ping.bytes + first[..<cut])
            #expect(try client.receive(exactly: 3) == [0x8A, 1, 1])
            #expect(loop.run { stream.value.slot.map { $0.pointee.webSocket != nil } } == true)
            try client.send(first[cut...] + second + ping.bytes)
            #expect(try client.receive(exactly: 3) == [0x8A, 1, 1])
            #expect(loop.run { stream.value.slot.map { $0.pointee.webSocket == nil } } == true)
            #expect(loop.run { stream.value.isWebSocket } == true)
            #expect(seen.values.flatMap(\.self) == [3, 4])
        }
    }

    @Test("a paused stream keeps its payload, and its frames are read once")
    func pausing() throws {
        try withLoop { loop in
            let (seen, opened) = (Probe<[UInt8]>(), Probe<Unchecked<ByteStream>>())
            let port = try loop.listen { [unowned loop] connection in
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    guard seen.values.isEmpty else {
                        seen.note(Array(bytes))
                        return bytes.count
                    }
                    seen.note([])
                    stream.pauseReading()
                    opened.note(Unchecked(stream))
                    return 0
                }
                ByteStream(attaching: connection, on: loop, delegate: delegate).beginWebSocket()
            }
            let client = try TestClient(port: port)
            try client.send(ClientFrame.binary([1, 2]).bytes)
            let stream = try #require(opened.wait { !$0.isEmpty }.first)
            try client.send(ClientFrame.binary([3]).bytes)
            loop.submit { stream.value.resumeReading() }
            seen.wait { $0.flatMap(\.self) == [1, 2, 3] }
        }
    }
}

private final class WebSocketDelegate: StreamDelegate {
    private let ended: Probe<CloseReason>
    private let empty: Probe<Int>
    var onReceived: (UnsafeRawBufferPointer, ByteStream) -> Int = { bytes, _ in bytes.count }

    init(ended: Probe<CloseReason>, empty: Probe<Int>) { (self.ended, self.empty) = (ended, empty) }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int { onReceived(bytes, stream) }
    override func receivedEmpty(_ frameCount: Int, on stream: ByteStream) { empty.note(frameCount) }
    override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.note(reason) }
}

extension ByteStream {
    fileprivate func write(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes { write($0) } }
}
