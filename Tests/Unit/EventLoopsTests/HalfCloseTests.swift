import EventLoops
import Platform
import Testing

@Suite("Half-closed streams")
struct HalfCloseTests {
    /// A delegate that answers its input later, when `answer` is called on the loop.
    private final class Late: @unchecked Sendable {
        let delegate = TestDelegate()
        let ends = Probe<Bool>()
        private var taken: [UInt8] = []
        private var stream: ByteStream?

        init() {
            delegate.onReceived = { [unowned self] bytes, stream in
                taken += bytes
                self.stream = stream
                return bytes.count
            }
            delegate.onPeerEnd = { [unowned self] stream in
                ends.note(true)
                stream.setTimeout(afterMilliseconds: 60_000)
                return true
            }
        }

        func answer(times: Int = 1) {
            for _ in 0..<times { _ = taken.withUnsafeBytes { stream?.write($0) } }
            stream?.closeAfterFlush(deadlineMilliseconds: 60_000)
        }
    }

    private func serve(_ loop: EventLoop) throws -> (port: UInt16, late: Unchecked<Late>) {
        let late = Unchecked(Late())
        return (try loop.serve(outboxByteLimit: 64 << 20) { late.value.delegate }, late)
    }

    @Test("a delayed answer still reaches a peer after its half-close, and then the stream ends")
    func lateAnswer() throws {
        try withLoop { loop in
            let (port, late) = try serve(loop)
            let client = try TestClient(port: port)
            try client.send([1, 2, 3])
            client.shutDownWriting()
            #expect(late.value.ends.wait { !$0.isEmpty } == [true])
            _ = loop.run { late.value.answer() }
            #expect(try client.receive(exactly: 3) == [1, 2, 3])
            #expect(try client.receive().isEmpty)
            #expect(late.value.delegate.ended.wait { !$0.isEmpty } == [.closedHere])
            #expect(loop.run { loop.streamCount } == 0)
        }
    }

    @Test("an answer larger than the socket buffer is sent as the peer reads it")
    func largeAnswer() throws {
        try withLoop { loop in
            let (port, late) = try serve(loop)
            let client = try TestClient(port: port, receiveBufferByteCount: 4_096)
            let piece = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            try client.send(piece)
            client.shutDownWriting()
            #expect(late.value.ends.wait { !$0.isEmpty } == [true])
            _ = loop.run { late.value.answer(times: 200) }
            for _ in 0..<200 { #expect(try client.receive(exactly: piece.count) == piece) }
            #expect(try client.receive().isEmpty)
            #expect(late.value.delegate.ended.wait { !$0.isEmpty } == [.closedHere])
        }
    }

    @Test("a delegate that resumes reading is called again, and may end the stream then")
    func resumed() throws {
        try withLoop { loop in
            let delegate = Unchecked(TestDelegate())
            let calls = Probe<Int>()
            delegate.value.onPeerEnd = { stream in
                calls.note(calls.values.count + 1)
                guard calls.values.count == 1 else { return false }
                let loop = stream.loop
                let reference = Unchecked(stream.reference)
                loop.submit { [unowned loop] in ByteStream(reference.value, on: loop).resumeReading() }
                return true
            }
            let port = try loop.serve { delegate.value }
            let client = try TestClient(port: port)
            client.shutDownWriting()
            #expect(try client.receive().isEmpty)
            #expect(delegate.value.ended.wait { !$0.isEmpty } == [.endOfStream])
            #expect(calls.values == [1, 2])
        }
    }

    @Test("the delegate's timeout ends a stream that gets no answer")
    func timeout() throws {
        try withLoop { loop in
            let delegate = Unchecked(TestDelegate())
            delegate.value.onPeerEnd = { stream in
                stream.setTimeout(afterMilliseconds: 10)
                return true
            }
            let port = try loop.serve { delegate.value }
            let client = try TestClient(port: port)
            client.shutDownWriting()
            #expect(try client.receive().isEmpty)
            #expect(delegate.value.ended.wait { !$0.isEmpty } == [.timedOut])
        }
    }
}
