import Cryptography
import EventLoops
import Platform
import Testing

/// Sends one byte, then echoes.
private func echo(_ connection: DetachedConnection, on target: EventLoop, ended: Probe<CloseReason>) {
    let echo = TestDelegate()
    echo.onReceived = { bytes, stream in
        #expect(stream.loop === target)
        #expect(stream.write(bytes))
        return bytes.count
    }
    let stream = ByteStream(attaching: connection, on: target, delegate: echo)
    #expect(stream.write(byteCount: 1) { $0[0] = 101 })
    target.onStop { for reason in echo.ended.values { ended.note(reason) } }
}

@Suite("Moving a stream between loops")
struct StreamMoveTests {
    /// Serves on loop 0: the first byte names the loop to which the connection moves and which echoes.
    private func serveMoving(_ loops: [EventLoop], tls: TLSContext? = nil, ended: Probe<CloseReason>) throws -> UInt16 {
        let first = loops[0]
        for target in loops where target.hasOwnTable {
            target.run { target.onArrival { connection, _ in connection.map { echo($0, on: target, ended: ended) } } }
        }
        return try first.serve(tls: tls) {
            let delegate = TestDelegate()
            delegate.onReceived = { bytes, stream in
                // Output from before the move must precede the next loop's output.
                #expect(stream.write(byteCount: 1) { $0[0] = 100 })
                let target = loops[Int(bytes[0])]
                let rest = UnsafeRawBufferPointer(rebasing: bytes[1...])
                guard let connection = stream.detach(unconsumed: rest) else {
                    Issue.record("the stream could not be detached")
                    return bytes.count
                }
                #expect(!stream.isOpen)
                if target.hasOwnTable {
                    #expect(target.pass(connection, with: 0))
                } else {
                    target.submit { echo(connection, on: target, ended: ended) }
                }
                return bytes.count
            }
            return delegate
        }
    }

    @Test("leftover bytes come first on the new loop, and later ones follow", arguments: 0...6, [false, true])
    func leftovers(sentAtOnce: Int, hasOwnTables: Bool) throws {
        let ended = Probe<CloseReason>()
        try withLoops(2, hasOwnTables: hasOwnTables) { loops in
            let port = try serveMoving(loops, ended: ended)
            let client = try TestClient(port: port)
            let tail: [UInt8] = [1, 2, 3, 4, 5, 6]
            try client.send([1] + tail[..<sentAtOnce])
            #expect(try client.receive(exactly: 2) == [100, 101])
            try client.send(Array(tail[sentAtOnce...]))
            #expect(try client.receive(exactly: 6) == tail)
            #expect(loops[0].run { loops[0].streamCount } == 0)
            #expect(loops[1].run { loops[1].streamCount } == 1)
        }
    }

    @Test("a TLS connection moves with its session and its decrypted bytes", arguments: [false, true])
    func movingTLS(hasOwnTables: Bool) throws {
        try withTemporaryDirectory { folder in
            let (server, client) = try makeContexts(in: folder)
            try withLoops(2, hasOwnTables: hasOwnTables) { loops in
                let ended = Probe<CloseReason>()
                let port = try serveMoving(loops, tls: server, ended: ended)
                let peer = try TestClient(port: port)
                #expect(try peer.startTLS(client) == .done)
                try peer.send([1, 7, 8, 9])
                #expect(try peer.receive(exactly: 2) == [100, 101])
                #expect(try peer.receive(exactly: 3) == [7, 8, 9])
                try peer.send([10, 11])
                #expect(try peer.receive(exactly: 2) == [10, 11])
            }
        }
    }

    @Test("many connections move at once, and each keeps its own bytes", arguments: [false, true])
    func many(hasOwnTables: Bool) throws {
        try withLoops(2, hasOwnTables: hasOwnTables) { loops in
            let port = try serveMoving(loops, ended: Probe())
            var clients: [TestClient] = []
            for number in 0..<100 {
                let client = try TestClient(port: port)
                try client.send([UInt8(number % 2), UInt8(number)])
                clients.append(client)
            }
            for (number, client) in clients.enumerated() {
                let bytes = try client.receive(exactly: 3)
                #expect(bytes == [100, 101, UInt8(number)])
            }
        }
    }
}
