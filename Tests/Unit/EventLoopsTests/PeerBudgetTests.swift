import Cryptography
import Glibc
import Platform
import Testing

@testable import EventLoops

@Suite("Budget of peers' bytes")
struct PeerBudgetTests {
    private static func rules(others: Int) -> PeerBudget.Rules {
        PeerBudget.Rules(requests: 1 << 20, requestsOfNetwork: 1 << 20, others: others)
    }

    @Test("upstream messages are bounded in total, by app and by address, and return their share")
    func upstream() throws {
        let budget = PeerBudget(Self.rules(others: 4_000))
        var shares: [PeerBudget.UpstreamShare] = []
        func take(_ app: UInt64, _ network: UInt64) -> Bool {
            guard let share = budget.takeUpstream(100, app: app, network: network) else { return false }
            shares.append(share)
            return true
        }
        for number in 0..<10 as Range<UInt64> { #expect(take(1, 100 + number)) }
        #expect(!take(1, 7), "the app has its quarter")
        for number in 0..<6 as Range<UInt64> { #expect(take(2 + number, 7)) }
        #expect(!take(1, 7) && budget.refusedCount == 2)
        for number in 0..<4 as Range<UInt64> { #expect(take(20 + number, 7)) }
        #expect(!take(30, 0), "all have half of everything")
        #expect(budget.upstreamByteCount == 2_000)
        budget.giveBack(shares.removeLast())
        #expect(!take(1, 7) && take(30, 7))
        for share in shares { budget.giveBack(share) }
        #expect(budget.upstreamByteCount == 0 && take(1, 7))
    }

    @Test("an address has its quarter of upstream messages, whichever apps it names")
    func upstreamOfNetwork() {
        let budget = PeerBudget(Self.rules(others: 4_000))
        for app in 0..<10 as Range<UInt64> { #expect(budget.takeUpstream(100, app: app, network: 7) != nil) }
        #expect(budget.takeUpstream(100, app: 10, network: 7) == nil)
        #expect(budget.takeUpstream(100, app: 10, network: 8) != nil)
        // Network 0 stands for an address that is not counted.
        #expect(budget.takeUpstream(100, app: 11, network: 0) != nil)
    }

    /// Starts a server with a budget whose streams consume nothing.
    private func serve(
        _ rules: PeerBudget.Rules, areNewcomers: Bool = false,
        _ body: (EventLoop, PeerBudget, UInt16, Probe<CloseReason>) throws -> Void
    ) throws {
        let budget = PeerBudget(rules)
        try withLoop { loop in
            let ended = Probe<CloseReason>()
            _ = loop.run { loop.peerBudget = budget }
            let port = try loop.listen { connection in
                _ = ByteStream(attaching: connection, on: loop, delegate: Silent(ended), isNewcomer: areNewcomers)
            }
            try body(loop, budget, port, ended)
        }
        #expect(budget.streamByteCount == 0)
    }

    /// A delegate that waits for the whole frame.
    private final class Silent: StreamDelegate {
        let ended: Probe<CloseReason>
        init(_ ended: Probe<CloseReason>) { self.ended = ended }
        override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int { 0 }
        override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.note(reason) }
    }

    /// A delegate that sends far more than a socket buffers.
    private final class Talkative: StreamDelegate {
        let ended: Probe<CloseReason>
        init(_ ended: Probe<CloseReason>) { self.ended = ended }
        override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
            #expect(stream.write(byteCount: 32 << 20) { $0.initializeMemory(as: UInt8.self, repeating: 5) })
            return bytes.count
        }
        override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.note(reason) }
    }

    @Test("partial frames above the budget end the largest holders, and small ones stay", arguments: [false, true])
    func halfFrames(areNewcomers: Bool) throws {
        // 512 KiB for streams, 256 KiB for unauthenticated peers.
        try serve(Self.rules(others: 1 << 20), areNewcomers: areNewcomers) { _, budget, port, ended in
            let small = try TestClient(port: port)
            try small.send([UInt8](repeating: 1, count: 100))
            var large: [TestClient] = []
            for _ in 0..<16 {
                let client = try TestClient(port: port)
                try? client.send([UInt8](repeating: 2, count: 60_000))
                large.append(client)
            }
            ended.wait { $0.contains(.budgetSpent) }
            let limit = areNewcomers ? budget.rules.strangersStreams : budget.rules.streams
            let slack = Limits.budgetStepByteCount
            for _ in 0..<20_000 where budget.streamByteCount > limit + slack { usleep(1_000) }
            #expect(budget.streamByteCount <= limit + slack)
            // The end of a stream is reported a turn later.
            ended.wait { $0.count == budget.closedCount }
            #expect(ended.values.allSatisfy { $0 == .budgetSpent })
            #expect(ended.values.count < 17)
            #expect(!Sockets.isPeerGone(descriptor: small.descriptor), "the small one stays")
        }
    }

    @Test("unread output counts, and the slowest reader is closed")
    func slowReaders() throws {
        let budget = PeerBudget(Self.rules(others: 8 << 20))
        try withLoop { loop in
            let ended = Probe<CloseReason>()
            let port = try loop.listen { connection in
                _ = ByteStream(
                    attaching: connection, on: loop, delegate: Talkative(ended), outboxByteLimit: 64 << 20)
            }
            _ = loop.run { loop.peerBudget = budget }
            let slow = try TestClient(port: port, receiveBufferByteCount: 4096)
            try slow.send([1])
            ended.wait { $0 == [.budgetSpent] }
            #expect(budget.streamByteCount <= budget.rules.streams)
            _ = loop.run { loop.peerBudget = nil }
            #expect(budget.streamByteCount == 0)
        }
    }

    /// Sends as many MiB in one piece as the first byte requests; used only on the loop.
    private final class Generous: StreamDelegate, @unchecked Sendable {
        let ended: Probe<Int>
        var stream: ByteStream?
        var mebibytes = 0
        init(_ ended: Probe<Int>) { self.ended = ended }
        override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
            (self.stream, mebibytes) = (stream, Int(bytes[0]))
            #expect(stream.write(byteCount: mebibytes << 20) { $0.initializeMemory(as: UInt8.self, repeating: 5) })
            return bytes.count
        }
        override func closed(_ stream: ByteStream, _ reason: CloseReason) {
            if reason == .budgetSpent { ended.note(mebibytes) }
        }
    }

    @Test("the stream that holds most is closed, however little of that is unread")
    func held() throws {
        // 40 MiB of streams.
        let budget = PeerBudget(Self.rules(others: 80 << 20))
        try withLoop { loop in
            let ended = Probe<Int>()
            let served = Probe<Generous>()
            let port = try loop.listen { connection in
                let delegate = Generous(ended)
                served.note(delegate)
                _ = ByteStream(attaching: connection, on: loop, delegate: delegate, outboxByteLimit: 64 << 20)
            }
            _ = loop.run { loop.peerBudget = budget }
            let first = try TestClient(port: port, receiveBufferByteCount: 4096)
            try first.send([32])
            let holder = try #require(served.wait { !$0.isEmpty }.first)
            var waiting = Int.max
            while waiting > 1 << 20 {
                _ = try first.receive(exactly: 64 << 10)
                waiting = loop.run { holder.stream?.outboxByteCount ?? 0 } ?? 0
            }
            #expect(waiting > 0)
            let second = try TestClient(port: port, receiveBufferByteCount: 4096)
            try second.send([16])
            ended.wait { !$0.isEmpty }
            #expect(ended.values == [32] && budget.streamByteCount <= budget.rules.streams)
        }
    }

    @Test("stalled TLS handshakes count as bytes of unauthenticated peers, and are closed above the bound")
    func handshakes() throws {
        let budget = PeerBudget(Self.rules(others: 16 * Limits.handshakeByteCount))
        try withTemporaryDirectory { folder in
            let (server, trusting) = try makeContexts(in: folder)
            try withLoop { loop in
                let ended = Probe<CloseReason>()
                _ = loop.run { loop.peerBudget = budget }
                let port = try loop.listen { connection in
                    _ = ByteStream(
                        attaching: connection, on: loop, delegate: Silent(ended), tls: server, isNewcomer: true)
                }
                // Four fit. Some of the next ones make room.
                let silent = try (0..<12).map { _ in try TestClient(port: port) }
                ended.wait { $0.count >= 7 }
                #expect(ended.values.allSatisfy { $0 == .budgetSpent })
                for client in silent { client.close() }
                ended.wait { $0.count == 12 }
                let honest = try TestClient(port: port)
                #expect(try honest.startTLS(trusting) == .done)
                for _ in 0..<20_000 where budget.streamByteCount > Limits.budgetStepByteCount { usleep(1_000) }
                #expect(budget.streamByteCount <= Limits.budgetStepByteCount)
            }
        }
        #expect(budget.streamByteCount == 0)
    }
}
