@testable import EventLoops
import Glibc
import Platform
import Testing

/// Returns a delegate for frames of one length byte and that many bytes; it echoes each whole frame and leaves a partial one.
private func echoingFrames(paused: Bool = false) -> TestDelegate {
    let delegate = TestDelegate()
    delegate.onReceived = { bytes, stream in
        var done = 0
        while done < bytes.count, done + 1 + Int(bytes[done]) <= bytes.count {
            let frame = UnsafeRawBufferPointer(rebasing: bytes[done..<done + 1 + Int(bytes[done])])
            #expect(stream.write(frame))
            done += frame.count
        }
        return done
    }
    return delegate
}

@Suite("Byte stream")
struct ByteStreamTests {
    static let frames: [UInt8] = [3, 1, 2, 3, 0, 5, 9, 8, 7, 6, 5, 1, 42]

    @Test("frames are complete, wherever the bytes were split", arguments: 0...frames.count)
    func splits(at point: Int) throws {
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let port = try loop.serve {
                let delegate = echoingFrames()
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let client = try TestClient(port: port)
            try client.send(Array(Self.frames[..<point]))
            // The echo of all complete frames arrives before the remaining bytes are sent, so the split is real.
            let whole = [0, 4, 5, 11, 13].last { $0 <= point } ?? 0
            #expect(try client.receive(exactly: whole) == Array(Self.frames[..<whole]))
            _ = loop.run {}
            try client.send(Array(Self.frames[point...]))
            #expect(try client.receive(exactly: Self.frames.count - whole) == Array(Self.frames[whole...]))
            client.close()
            let delegate = try #require(delegates.values.first).value
            #expect(delegate.ended.wait { !$0.isEmpty } == [.endOfStream])
            #expect(loop.run { loop.streamCount } == 0)
        }
    }

    @Test("frames are complete when they arrive one byte at a time")
    func dribble() throws {
        try withLoop { loop in
            let port = try loop.serve { echoingFrames() }
            let client = try TestClient(port: port)
            for byte in Self.frames { try client.send([byte]) }
            #expect(try client.receive(exactly: Self.frames.count) == Self.frames)
        }
    }

    @Test("many megabytes in both directions arrive unchanged, through the outbox and the per-turn quota")
    func bulk() throws {
        try withLoop { loop in
            let port = try loop.serve(outboxByteLimit: 64 << 20) {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    #expect(stream.write(bytes))
                    return bytes.count
                }
                return delegate
            }
            let client = try TestClient(port: port)
            let chunk = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
            let isSent = Probe<Bool>()
            let sender = Unchecked(client)
            let thread = try Thread(named: "sender") {
                for _ in 0..<80 { try? sender.value.send(chunk) }
                isSent.note(true)
            }
            for _ in 0..<80 { #expect(try client.receive(exactly: chunk.count) == chunk) }
            thread.join()
            #expect(isSent.values == [true])
        }
    }

    @Test("a peer that does not read fills the outbox: one refused write, one notification, then a close")
    func slowReader() throws {
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let refusals = Probe<Int>()
            let port = try loop.serve(outboxByteLimit: 100_000) {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    let block = [UInt8](repeating: 7, count: 50_000)
                    for number in 0..<1000 where !block.withUnsafeBytes({ stream.write($0) }) {
                        refusals.note(number)
                        #expect(stream.outboxByteCount <= 100_000)
                        break
                    }
                    return bytes.count
                }
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let client = try TestClient(port: port)
            try client.send([1])
            let delegate = try #require(delegates.wait { !$0.isEmpty }.first).value
            #expect(delegate.ended.wait { !$0.isEmpty } == [.outboxFull])
            #expect(refusals.values == [2])
        }
    }

    @Test("a full outbox may be kept: it drains when the peer reads, the delegate is notified of both, no byte is lost")
    func backpressure() throws {
        try withLoop { loop in
            let events = Probe<String>()
            // More than the kernel buffers of both ends hold.
            let total = 40 << 20
            let port = try loop.serve(outboxByteLimit: 1 << 20) {
                let delegate = TestDelegate()
                nonisolated(unsafe) var sent = 0
                func fill(_ stream: ByteStream) {
                    while sent < total {
                        let isIn = stream.write(byteCount: 65536) { room in
                            for index in stride(from: 0, to: room.count, by: 4096) {
                                room[index] = UInt8(truncatingIfNeeded: (sent + index) >> 12)
                            }
                        }
                        guard isIn else { return }
                        sent += 65536
                    }
                }
                delegate.onReceived = { bytes, stream in
                    fill(stream)
                    return bytes.count
                }
                delegate.onFilled = { _ in events.note("filled") }
                delegate.onDrained = { stream in
                    events.note("drained")
                    fill(stream)
                }
                return delegate
            }
            let client = try TestClient(port: port, receiveBufferByteCount: 16384)
            try client.send([1])
            events.wait { $0.first == "filled" }
            var position = 0
            while position < total {
                let part = try client.receive(exactly: 65536)
                guard part.count == 65536 else {
                    Issue.record("the stream ended at \(position)")
                    return
                }
                for index in stride(from: 0, to: part.count, by: 4096) {
                    #expect(part[index] == UInt8(truncatingIfNeeded: (position + index) >> 12))
                }
                position += part.count
            }
            #expect(events.values.contains("drained"))
        }
    }

    @Test("a paused stream keeps its unread bytes and reads nothing; after the resume it continues in order")
    func pausing() throws {
        try withLoop { loop in
            let seen = Probe<[UInt8]>()
            let streams = Probe<Unchecked<ByteStream>>()
            let port = try loop.serve {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    seen.note(Array(bytes))
                    if seen.values.count == 1 {
                        stream.pauseReading()
                        streams.note(Unchecked(stream))
                        return 1
                    }
                    return bytes.count
                }
                return delegate
            }
            let client = try TestClient(port: port)
            try client.send([1, 2, 3])
            let stream = try #require(streams.wait { !$0.isEmpty }.first)
            try client.send([4, 5])
            _ = loop.run {}
            _ = loop.run {}
            #expect(seen.values == [[1, 2, 3]])
            _ = loop.run { stream.value.resumeReading() }
            let rest = seen.wait { $0.dropFirst().flatMap { $0 } == [2, 3, 4, 5] }
            #expect(rest[1] == [2, 3])
        }
    }

    @Test("unconsumed bytes above the bound end the stream")
    func unconsumed() throws {
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let port = try loop.serve {
                let delegate = TestDelegate()
                delegate.onReceived = { _, _ in 0 }
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let client = try TestClient(port: port)
            try? client.send([UInt8](repeating: 1, count: Limits.unconsumedByteCount + Limits.receiveByteCount))
            let delegate = try #require(delegates.wait { !$0.isEmpty }.first).value
            #expect(delegate.ended.wait { !$0.isEmpty } == [.unconsumedOverflow])
        }
    }

    @Test("a close after the flush delivers every byte, then the end, whatever the peer still sends")
    func closeAfterFlush() throws {
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let port = try loop.serve(outboxByteLimit: 8 << 20) {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    #expect(stream.write(byteCount: 4 << 20) { $0.initializeMemory(as: UInt8.self, repeating: 5) })
                    stream.closeAfterFlush(deadlineMilliseconds: timeoutMilliseconds)
                    #expect(!stream.write(byteCount: 1) { _ in })
                    return bytes.count
                }
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let client = try TestClient(port: port)
            try client.send([UInt8](repeating: 1, count: 1000))
            try client.send([UInt8](repeating: 2, count: 1000))
            #expect(client.receiveAll() == [UInt8](repeating: 5, count: 4 << 20))
            client.close()
            let delegate = try #require(delegates.values.first).value
            #expect(delegate.ended.wait { !$0.isEmpty } == [.closedHere])
        }
    }

    @Test("a loop is sending until the peer's machine has everything, in the outbox and in the kernel")
    func sending() throws {
        try withLoop { loop in
            let port = try loop.serve(outboxByteLimit: 8 << 20) {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    // The second amount is small enough for the kernel to accept it all.
                    let count = bytes.first == 1 ? 6 << 20 : 64 << 10
                    #expect(stream.write(byteCount: count) { $0.initializeMemory(as: UInt8.self, repeating: 5) })
                    return bytes.count
                }
                return delegate
            }
            #expect(loop.run { loop.isSending } == false)
            for (first, count) in [(UInt8(1), 6 << 20), (2, 64 << 10)] {
                let client = try TestClient(port: port, receiveBufferByteCount: 4096)
                try client.send([first])
                #expect(becomes(true, on: loop))
                var left = count
                while left > 0 {
                    let piece = try client.receive().count
                    guard piece > 0 else { break }
                    left -= piece
                }
                #expect(left == 0)
                #expect(becomes(false, on: loop))
                client.close()
            }
        }
    }

    private func becomes(_ isSending: Bool, on loop: EventLoop) -> Bool {
        for _ in 0..<timeoutMilliseconds where loop.run({ loop.isSending }) != isSending { usleep(1_000) }
        return loop.run { loop.isSending } == isSending
    }

    @Test("a peer that never closes its half does not keep a closing stream")
    func closeDeadline() throws {
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let port = try loop.serve {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    stream.closeAfterFlush(deadlineMilliseconds: 100)
                    return bytes.count
                }
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let client = try TestClient(port: port)
            try client.send([1])
            #expect(try client.receive().isEmpty)
            let delegate = try #require(delegates.values.first).value
            #expect(delegate.ended.wait { !$0.isEmpty } == [.closedHere])
            client.close()
        }
    }

    @Test("a peer that only closes its half gets its answer, then the end")
    func halfClose() throws {
        try withLoop { loop in
            let port = try loop.serve { echoingFrames() }
            let client = try TestClient(port: port)
            try client.send(Self.frames)
            client.shutDownWriting()
            #expect(client.receiveAll() == Self.frames)
        }
    }

    @Test("a reset ends the stream once, with the system's error")
    func reset() throws {
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let port = try loop.serve {
                let delegate = echoingFrames()
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let client = try TestClient(port: port)
            try client.send([0])
            _ = try client.receive(exactly: 1)
            client.reset()
            let delegate = try #require(delegates.values.first).value
            let reasons = delegate.ended.wait { !$0.isEmpty }
            #expect(reasons.count == 1)
            guard case .failed(let error) = reasons.first else {
                Issue.record("ended by \(reasons)")
                return
            }
            #expect(error.code == ECONNRESET)
        }
    }

    @Test("the last timeout fires; earlier ones and a cleared one do not")
    func timeouts() throws {
        try withLoop { loop in
            let fired = Probe<Int>()
            let streams = Probe<Unchecked<ByteStream>>()
            for number in 0..<3 {
                let port = try loop.listen { [unowned loop] connection in
                    let delegate = TestDelegate()
                    delegate.onTimeout = { _ in fired.note(number) }
                    let stream = ByteStream(attaching: connection, on: loop, delegate: delegate)
                    stream.setTimeout(afterMilliseconds: 100)
                    switch number {
                    // An hour, then a shorter timeout: found in a bucket of an earlier rotation and moved back.
                    case 0:
                        stream.setTimeout(afterMilliseconds: 3_600_000)
                        stream.setTimeout(afterMilliseconds: 300)
                    case 1: stream.clearTimeout()
                    default: stream.setTimeout(afterMilliseconds: 3_600_000)
                    }
                    streams.note(Unchecked(stream))
                }
                let client = try TestClient(port: port)
                streams.wait { $0.count == number + 1 }
                withExtendedLifetime(client) {
                    if number == 0 { fired.wait { $0 == [0] } }
                }
            }
            // Long enough for a stale timeout to fire: several ticks beyond 100 ms.
            let ticks = Probe<UInt64>()
            _ = loop.run { loop.onTick { ticks.note($0) } }
            ticks.wait { $0.count >= 8 }
            #expect(fired.values == [0])
        }
    }

    @Test("a stopping loop ends its streams and notifies each delegate once")
    func loopStop() throws {
        let delegates = Probe<Unchecked<TestDelegate>>()
        var clients: [TestClient] = []
        try withLoop { loop in
            let port = try loop.serve {
                let delegate = echoingFrames()
                delegates.note(Unchecked(delegate))
                return delegate
            }
            for _ in 0..<100 { clients.append(try TestClient(port: port)) }
            delegates.wait { $0.count == 100 }
        }
        #expect(delegates.values.allSatisfy { $0.value.ended.values == [.loopStopped] })
        #expect(try clients[0].receive().isEmpty)
    }

    @Test("after its end a stream's operations do nothing, even if its slot has a new owner")
    func afterTheEnd() throws {
        try withLoop { loop in
            let streams = Probe<Unchecked<ByteStream>>()
            let port = try loop.listen { [unowned loop] connection in
                streams.note(Unchecked(ByteStream(attaching: connection, on: loop, delegate: echoingFrames())))
            }
            let first = try TestClient(port: port)
            let old = try #require(streams.wait { $0.count == 1 }.first)
            _ = loop.run { old.value.close() }
            #expect(try first.receive().isEmpty)
            let second = try TestClient(port: port)
            streams.wait { $0.count == 2 }
            _ = loop.run {
                #expect(!old.value.isOpen)
                #expect(!old.value.write(byteCount: 1) { $0[0] = 99 })
                old.value.close()
                old.value.setTimeout(afterMilliseconds: 1)
                #expect(old.value.detach() == nil)
            }
            try second.send(Self.frames)
            #expect(try second.receive(exactly: Self.frames.count) == Self.frames)
        }
    }

    @Test("a stream's slot stays within its budget, and an idle stream holds no block")
    func budget() {
        #expect(MemoryLayout<StreamSlot>.stride <= 224)
        #expect(MemoryLayout<ByteStream>.size <= 24)
    }

    @Test("using a stream off its loop stops the process")
    func offLoop() async {
        await #expect(processExitsWith: .failure) {
            let loop = try EventLoop(index: 0)
            let socket = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
            let stream = ByteStream(
                attaching: DetachedConnection(adopting: socket), on: loop, delegate: TestDelegate())
            try loop.start()
            _ = stream.write(byteCount: 1) { _ in }
        }
    }

    @Test("consuming more than was received stops the process")
    func overconsumption() async {
        await #expect(processExitsWith: .failure) {
            try withLoop { loop in
                let port = try loop.serve {
                    let delegate = TestDelegate()
                    delegate.onReceived = { bytes, _ in bytes.count + 1 }
                    return delegate
                }
                let client = try TestClient(port: port)
                try client.send([1])
                _ = client.receiveAll()
            }
        }
    }

    @Test("attaching a connection twice stops the process")
    func attachedTwice() async {
        await #expect(processExitsWith: .failure) {
            let loop = try EventLoop(index: 0)
            let connection = DetachedConnection(adopting: socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0))
            _ = ByteStream(attaching: connection, on: loop, delegate: TestDelegate())
            _ = ByteStream(attaching: connection, on: loop, delegate: TestDelegate())
        }
    }
}
