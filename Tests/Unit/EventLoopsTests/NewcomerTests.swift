import Cryptography
import EventLoops
import Glibc
import Platform
import Testing

/// The number of newcomers that may be read; used only on its loop.
private final class Allowance: @unchecked Sendable {
    var count = 0

    func take() -> Bool {
        guard count > 0 else { return false }
        count -= 1
        return true
    }
}

/// A loop that reads as many newcomers as the test allows, and records each stream's input.
private struct Door {
    let loop: EventLoop
    let received = Probe<String>()
    let ended = Probe<CloseReason>()
    private let allowance = Allowance()

    init(on loop: EventLoop) {
        self.loop = loop
        let allowance = allowance
        _ = loop.run { [unowned loop] in loop.mayReadNewcomer = { allowance.take() } }
    }

    /// Returns the port of a listener whose streams are newcomers, or not.
    func listen(isNewcomer: Bool = true, tls: TLSContext? = nil) throws -> UInt16 {
        let (received, ended) = (received, ended)
        return try loop.listen { [unowned loop] connection in
            let delegate = Noting(received, ended)
            _ = ByteStream(attaching: connection, on: loop, delegate: delegate, tls: tls, isNewcomer: isNewcomer)
        }
    }

    /// Allows `count` more reads of newcomers in the next turn.
    func allow(_ count: Int) {
        let allowance = allowance
        _ = loop.run { [unowned loop] in
            allowance.count = count
            loop.turnAgain()
        }
    }

    /// Waits until `count` newcomers are queued.
    func waitForWaiting(_ count: Int) {
        var found: Int?
        for _ in 0..<2_000 {
            found = loop.run { [unowned loop] in loop.waitingNewcomerCount }
            if found == count { return }
            usleep(5_000)
        }
        Issue.record("\(String(describing: found)) newcomers wait in place of \(count)")
    }
}

private final class Noting: StreamDelegate {
    private let received: Probe<String>
    private let ended: Probe<CloseReason>
    init(_ received: Probe<String>, _ ended: Probe<CloseReason>) { (self.received, self.ended) = (received, ended) }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        received.note(String(decoding: bytes, as: UTF8.self))
        // This byte makes the stream an ordinary one.
        if bytes.first == UInt8(ascii: "!") { stream.isNewcomer = false }
        return bytes.count
    }
    override func handshakeFinished(_ stream: ByteStream) { received.note("handshake") }
    override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.note(reason) }
}

@Suite("Streams of newcomers")
struct NewcomerTests {
    @Test("newcomers are read in the order of their first bytes, and others at once")
    func order() throws {
        try withLoop { loop in
            let door = Door(on: loop)
            let (newcomers, others) = (try door.listen(), try door.listen(isNewcomer: false))
            let clients = try (0..<3).map { _ in try TestClient(port: newcomers) }
            for (index, client) in clients.enumerated() {
                try client.send("newcomer \(index)")
                door.waitForWaiting(index + 1)
            }
            let session = try TestClient(port: others)
            try session.send("session")
            door.received.wait { $0 == ["session"] }
            door.allow(2)
            door.received.wait { $0 == ["session", "newcomer 0", "newcomer 1"] }
            door.waitForWaiting(1)
            door.allow(1)
            door.received.wait { $0.last == "newcomer 2" }
        }
    }

    @Test("a later newcomer does not overtake an earlier one, whatever quota is available")
    func overtaking() throws {
        try withLoop { loop in
            let door = Door(on: loop)
            let port = try door.listen()
            let first = try TestClient(port: port)
            let second = try TestClient(port: port)
            try first.send("first")
            door.waitForWaiting(1)
            // The second one's event and the quota for one of the two arrive in one turn.
            try second.send("second")
            door.allow(2)
            door.received.wait { $0.count == 2 }
            #expect(door.received.values == ["first", "second"])
        }
    }

    @Test(
        "a waiting newcomer that disconnects ends at its turn, with its input"
    )
    func leaving() throws {
        try withLoop { loop in
            let door = Door(on: loop)
            let port = try door.listen()
            let clients = try (0..<2).map { _ in try TestClient(port: port) }
            try clients[0].send("last words")
            door.waitForWaiting(1)
            clients[0].close()
            try clients[1].send("stays")
            door.waitForWaiting(2)
            let early = door.ended.values
            #expect(early.isEmpty)
            door.allow(2)
            door.received.wait { $0 == ["last words", "stays"] }
            door.ended.wait { $0 == [.endOfStream] }
        }
    }

    @Test("a TLS handshake waits like any other read")
    func handshake() throws {
        try withTemporaryDirectory { folder in
            let (server, trusting) = try makeContexts(in: folder)
            try withLoop { loop in
                let door = Door(on: loop)
                let port = try door.listen(tls: server)
                let done = Probe<Bool>()
                let client = Unchecked(try TestClient(port: port))
                let thread = try Thread(named: "client") {
                    done.note((try? client.value.startTLS(trusting)) == .done)
                }
                door.waitForWaiting(1)
                #expect(door.received.values.isEmpty)
                // The ClientHello, then the client's response to the server's answer.
                door.allow(.max)
                done.wait { $0 == [true] }
                thread.join()
                door.received.wait { $0 == ["handshake"] }
                try client.value.send("hello")
                door.received.wait { $0 == ["handshake", "hello"] }
            }
        }
    }

    @Test("a stream that is no longer a newcomer is read at once")
    func settled() throws {
        try withLoop { loop in
            let door = Door(on: loop)
            let port = try door.listen()
            let client = try TestClient(port: port)
            try client.send("!")
            door.waitForWaiting(1)
            door.allow(1)
            door.received.wait { $0 == ["!"] }
            try client.send("more")
            door.received.wait { $0 == ["!", "more"] }
        }
    }

    @Test("a stopping loop ends waiting newcomers")
    func stop() throws {
        var ended: Probe<CloseReason>?
        var client: TestClient?
        try withLoop { loop in
            let door = Door(on: loop)
            client = try TestClient(port: try door.listen())
            try client?.send("too late")
            door.waitForWaiting(1)
            ended = door.ended
        }
        #expect(ended?.values == [.loopStopped])
        client?.close()
    }
}
