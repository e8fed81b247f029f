import Cryptography
import EventLoops
import Glibc
import Platform
import Testing

private struct GatedServer {
    let loop: EventLoop
    let port: UInt16
    let trusting: TLSContext
    let told = Probe<String>()
    let ended = Probe<CloseReason>()
    private let gate: Unchecked<HandshakeGate>

    init(on loop: EventLoop, in folder: String, rules: HandshakeGate.Rules) throws {
        let (server, trusting) = try makeContexts(in: folder)
        let (told, ended) = (told, ended)
        (self.loop, self.trusting) = (loop, trusting)
        let made = loop.run { [unowned loop] in
            let gate = HandshakeGate(on: loop, rules: rules)
            loop.handshakeGate = gate
            loop.onHandshake { told.note(Self.word(for: $0)) }
            return Unchecked(gate)
        }
        gate = try #require(made)
        port = try loop.listen { [unowned loop] connection in
            _ = ByteStream(attaching: connection, on: loop, delegate: EndNoting(ended), tls: server, isGated: true)
        }
    }

    private static func word(for event: HandshakeEvent) -> String {
        switch event {
        case .done: "done"
        case .waits: "waits"
        case .refused: "refused"
        case .displaced: "displaced"
        case .timedOut: "timedOut"
        case .failed(let failure, _, _, _): "failed: \(failure)"
        }
    }

    /// The gate's number of handshakes in progress.
    var underWayCount: Int? { loop.run { [gate] in gate.value.underWayCount } }

    func waitUntilUnderWay(_ count: Int) {
        for _ in 0..<20_000 where underWayCount != count { usleep(1_000) }
        #expect(underWayCount == count)
    }

    var waitingCount: Int? { loop.run { [gate] in gate.value.waitingCount } }

    /// Waits until the loop has reported an event `count` times.
    func waitUntil(_ word: String, count: Int = 1) { told.wait { $0.filter { $0 == word }.count >= count } }

    func silentClient(source: UInt32? = nil) throws -> TestClient { try TestClient(port: port, source: source) }

    func handshake() throws -> TLSSession.Progress { try TestClient(port: port).startTLS(trusting) }
}

@Suite("The handshake gate")
struct HandshakeGateTests {
    private func withServer(_ rules: HandshakeGate.Rules, _ body: (GatedServer) throws -> Void) throws {
        try withTemporaryDirectory { folder in
            try withLoop { loop in try body(try GatedServer(on: loop, in: folder, rules: rules)) }
        }
    }

    @Test("handshakes above the rate wait for their turn, and all complete")
    func rate() throws {
        try withServer(HandshakeGate.Rules(perSecond: 20, waitMilliseconds: 8_000)) { server in
            // Two of six simultaneous handshakes start at once.
            let clients = try (0..<6).map { _ in try server.silentClient() }
            server.waitUntil("waits", count: 4)
            for client in clients { #expect(try client.startTLS(server.trusting) == .done) }
            server.waitUntil("done", count: 6)
            #expect(server.underWayCount == 0)
            #expect(!server.told.values.contains("refused"))
        }
    }

    @Test("a handshake whose turn would be too late ends at once")
    func tooLate() throws {
        try withServer(HandshakeGate.Rules(perSecond: 1, waitMilliseconds: 0)) { server in
            #expect(try server.handshake() == .done)
            let late = try server.silentClient()
            server.waitUntil("refused")
            #expect(late.receiveAll().isEmpty)
            server.ended.wait { $0.contains(.tlsFailed("more handshakes were asked for than are done in time")) }
            #expect(server.underWayCount == 0)
        }
    }

    @Test("stalled handshakes make room for others, the oldest first")
    func standingStill() throws {
        try withServer(HandshakeGate.Rules(atOnce: 2, perSecond: 10_000, waitMilliseconds: 8_000)) { server in
            let silent = try (0..<2).map { _ in try server.silentClient() }
            #expect(try server.handshake() == .done)
            #expect(silent[0].receiveAll().isEmpty, "the oldest made room")
            let told = server.told.values
            #expect(told.filter { $0 == "displaced" }.count == 1)
            #expect(told.contains("waits"))
            silent[1].close()
            server.waitUntil("failed: ended")
            #expect(server.underWayCount == 0)
        }
    }

    @Test("a crowd of one address makes room for another address at once")
    func crowd() throws {
        // A handshake with the usual wait of a second would be refused.
        try withServer(HandshakeGate.Rules(atOnce: 4, perSecond: 10_000, waitMilliseconds: 100)) { server in
            let crowd = try (0..<4).map { _ in try server.silentClient(source: 9) }
            server.waitUntilUnderWay(4)
            #expect(try server.handshake() == .done)
            server.waitUntil("done")
            #expect(server.told.values == ["displaced", "done"])
            for client in crowd { client.close() }
        }
    }

    @Test("a client that disconnects while it waits frees its place for the next one")
    func leavesWhileItWaits() throws {
        try withServer(HandshakeGate.Rules(atOnce: 1, perSecond: 10_000, waitMilliseconds: 8_000)) { server in
            let silent = try server.silentClient()
            let leaving = try server.silentClient()
            server.waitUntil("waits")
            leaving.reset()
            server.ended.wait { !$0.isEmpty }
            server.waitUntil("failed: ended")
            #expect(server.waitingCount == 0)
            silent.close()
            #expect(try server.handshake() == .done)
            #expect(server.underWayCount == 0)
        }
    }

    @Test("disconnected clients do not lengthen the wait of others")
    func leaversDoNotCount() throws {
        try withServer(HandshakeGate.Rules(atOnce: 1, perSecond: 10, waitMilliseconds: 1_000)) { server in
            let silent = try server.silentClient()
            let leaving = try (0..<8).map { _ in try server.silentClient() }
            server.waitUntil("waits", count: 8)
            for one in leaving { one.reset() }
            server.waitUntil("failed: ended", count: 8)
            let newcomers = try (0..<8).map { _ in try server.silentClient() }
            server.waitUntil("waits", count: 16)
            #expect(server.waitingCount == 8)
            #expect(!server.told.values.contains("refused"))
            withExtendedLifetime((silent, newcomers)) {}
        }
    }

    @Test("the simultaneous input of many handshakes is processed a few steps per turn")
    func steps() throws {
        try withServer(HandshakeGate.Rules(atOnce: 512, perSecond: 10_000, waitMilliseconds: 8_000)) { server in
            let clients = Unchecked(try (0..<64).map { _ in try server.silentClient() })
            while server.underWayCount != 64 { Pause.milliseconds(1) }
            let perTurn = Probe<Int>()
            let (loop, told) = (server.loop, server.told)
            _ = loop.run { [unowned loop] in
                nonisolated(unsafe) var seen = told.values.count
                loop.onTurnEnd {
                    let count = told.values.count
                    perTurn.note(count - seen)
                    seen = count
                }
                // Each step fails and is reported. All input is available before the loop runs again.
                for client in clients.value { try? client.send("no TLS at all") }
            }
            server.waitUntil("failed: form", count: 64)
            let most = try #require(perTurn.values.max())
            #expect(1...8 ~= most)
            #expect(server.underWayCount == 0)
        }
    }

    @Test("a close requested during the handshake keeps its timeout")
    func closesInHandshake() throws {
        try withTemporaryDirectory { folder in
            try withLoop { loop in
                let (context, trusting) = try makeContexts(in: folder)
                let ended = Probe<CloseReason>()
                let port = try loop.listen { [unowned loop] connection in
                    let stream = ByteStream(attaching: connection, on: loop, delegate: EndNoting(ended), tls: context)
                    stream.closeAfterFlush(deadlineMilliseconds: 1_000)
                }
                let client = try TestClient(port: port)
                #expect(try client.startTLS(trusting) == .done)
                // The client never closes its half.
                #expect(ended.wait { !$0.isEmpty } == [.closedHere])
                withExtendedLifetime(client) {}
            }
        }
    }

    @Test("a stopping loop ends the streams that wait at its gate")
    func stop() throws {
        try withServer(HandshakeGate.Rules(atOnce: 1, perSecond: 10_000, waitMilliseconds: 8_000)) { server in
            let clients = try (0..<2).map { _ in try server.silentClient() }
            server.waitUntil("waits")
            server.loop.stop()
            server.ended.wait { $0.count == 2 }
            for client in clients { #expect(client.receiveAll().isEmpty) }
        }
    }
}
