import Cryptography
import Delivery
import EventLoops
import Platform
import Testing
import Wire

@testable import Gateway

/// Devices that one gateway passes on to another.
@Suite("Relays between gateways")
struct LinkRelayTests {
    /// A loop that takes devices and relays each to node 2.
    private final class Front {
        let loop: EventLoop
        private(set) var port: UInt16 = 0
        let ended = Lock(0)

        init(_ hub: LinkHub) throws {
            loop = try EventLoop(index: 0)
            let socket = try ListeningSocket("127.0.0.1:0")
            port = socket.address.port
            _ = try Listener(on: loop, socket: socket) { [unowned loop, ended] connection in
                hub.relay(connection, hello: LinkRelayTests.hello, isSecure: true, to: 2, on: loop) {
                    ended.withLock { $0 += 1 }
                }
            }
            try loop.start()
        }

        func stop() {
            loop.stop()
            loop.join()
        }
    }

    static var hello: AdoptedHello {
        var hello = Hello()
        (hello.appID, hello.cid, hello.timestamp) = ("demo", LinkSamples.cid, 5)
        hello.tokens = [VendorToken(topic: "t", token: "abc")]
        return AdoptedHello(
            app: LinkSamples.app, bucket: LinkSamples.bucket, cid: LinkSamples.cid,
            newSecret: [UInt8](repeating: 9, count: 32), transcript: [1, 2, 3], hello: hello)
    }

    /// The owner's end of a relayed device: echoes, or holds back.
    private final class Owner: StreamDelegate {
        enum Habit { case echo, deaf, sendMuch }
        let habit: Habit
        let received = Lock<[UInt8]>([])
        let ended: Lock<CloseReason?> = Lock(nil)
        var stream: ByteStream?
        init(_ habit: Habit) { self.habit = habit }

        override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
            switch habit {
            case .echo: _ = stream.write(bytes)
            case .deaf: stream.pauseReading()
            case .sendMuch: break
            }
            received.withLock { $0 += bytes }
            return bytes.count
        }
        override func outboxFilled(_ stream: ByteStream) {}
        override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.withLock { $0 = reason } }
    }

    private func withRelay(
        _ habit: Owner.Habit = .echo, _ body: (_ front: Front, _ owner: Owner, _ rig: LinkRig) throws -> Void
    ) throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        let front = try Front(one.hub)
        defer { front.stop() }
        // The loop of the device's owner, which takes the connection as a gateway's loop does.
        let loop = try EventLoop(index: 1)
        let owner = Owner(habit)
        let arrived = Arrival(loop: loop, owner: owner)
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        two.probe.setRelayTaker { connection, preamble in arrived.take(connection, preamble) }
        try body(front, owner, rig)
    }

    private final class Arrival: @unchecked Sendable {
        // Sound because the owner is used on its loop, but for what is behind locks.
        let loop: EventLoop
        let owner: Owner
        init(loop: EventLoop, owner: Owner) { (self.loop, self.owner) = (loop, owner) }

        func take(_ connection: DetachedConnection, _ preamble: RelayPreamble) {
            loop.submit { [self] in
                owner.stream = ByteStream(
                    attaching: connection, on: loop, delegate: owner, outboxByteLimit: 32 << 20)
                guard owner.habit == .sendMuch else { return }
                let bulk = LinkRelayTests.bulk
                _ = bulk.withUnsafeBytes { owner.stream?.write($0) }
                owner.stream?.closeAfterFlush(deadlineMilliseconds: 20_000)
            }
        }
    }

    private static let bulk = (0..<8_000_000).map { UInt8(truncatingIfNeeded: $0 &* 13 ^ $0 >> 9) }

    private func waits(_ condition: () -> Bool) -> Bool {
        for _ in 0..<4_000 {
            if condition() { return true }
            Pause.milliseconds(5)
        }
        return false
    }

    @Test("the owner gets the device's Hello and address; bytes go both ways, few and many")
    func bothWays() throws {
        try withRelay { front, owner, rig in
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1, 2, 3])
            #expect(device.receive(exactly: 3) == [1, 2, 3])
            let seen = rig.nodes[1].probe.now
            let preamble = try #require(seen.preambles.first)
            #expect(preamble.hello.node == 1 && preamble.isSecure && preamble.peer.hasPrefix("127.0.0.1:"))
            #expect(preamble.device.hello == Self.hello.hello && preamble.device.transcript == [1, 2, 3])
            #expect(preamble.device.newSecret == Self.hello.newSecret && preamble.device.cid == Self.hello.cid)
            // More than all buffers on the way hold, in pieces that the device reads as it goes.
            for start in stride(from: 0, to: 2_000_000, by: 50_000) {
                let piece = Array(Self.bulk[start..<start + 50_000])
                try device.send(piece)
                #expect(device.receive(exactly: piece.count) == piece)
            }
            #expect(front.ended.withLock { $0 } == 0)
        }
    }

    @Test("a device that reads late gets every byte, and then the owner's end")
    func slowDevice() throws {
        try withRelay(.sendMuch) { front, owner, _ in
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1])
            // All buffers on the way fill before the first byte is read.
            Pause.milliseconds(200)
            #expect(device.receiveAll() == Self.bulk)
            #expect(waits { front.ended.withLock { $0 } == 1 })
        }
    }

    @Test("a device that ends its half: the owner gets all of its bytes, then the end")
    func halfClose() throws {
        try withRelay { front, owner, _ in
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send(Array(Self.bulk[..<300_000]))
            device.shutDownWriting()
            #expect(waits { owner.ended.withLock { $0 } != nil })
            #expect(owner.received.withLock { $0 } == Array(Self.bulk[..<300_000]))
            #expect(waits { front.ended.withLock { $0 } == 1 })
        }
    }

    @Test("an owner that reads nothing: the relay holds a bound, and the device's writes wait")
    func deafOwner() throws {
        try withRelay(.deaf) { front, owner, _ in
            let device = try LinkStranger(port: front.port, tls: nil)
            device.setNonBlocking()
            var sent = 0
            // Until nothing is taken for a while: what buffers of the kernel and of the relay hold.
            var idle = 0
            while idle < 40, sent < 200 << 20 {
                let count = device.trySend(Array(Self.bulk[..<65_536]))
                sent += count
                idle = count == 0 ? idle + 1 : 0
                if count == 0 { Pause.milliseconds(10) }
            }
            #expect(sent > 0 && sent < 64 << 20, "\(sent) bytes went into a relay whose owner reads nothing")
        }
    }

    /// A Close that lets the device come back.
    private func isFarewell(_ bytes: [UInt8]) -> Bool {
        guard bytes.count > FrameHeader.byteCount, bytes[0] == FrameType.close.rawValue else { return false }
        let close = Array(bytes[FrameHeader.byteCount...]).withUnsafeBytes { try? Close(decoding: $0.bytes) }
        return close?.code == CloseCode.overloaded.rawValue && close?.retryAfterMaximum ?? 0 > 0
    }

    @Test("without a link, with a dead owner and with one of another number the device is told to come back")
    func farewells() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        let front = try Front(one.hub)
        defer { front.stop() }
        two.hub.renumber(5)
        // This is node 5 now: its listener says so, and the relay tells the device.
        let refused = try LinkStranger(port: front.port, tls: nil)
        #expect(isFarewell(refused.receiveAll()))
        rig.stop(two)
        let dead = try LinkStranger(port: front.port, tls: nil)
        try dead.send([1, 2, 3])
        #expect(isFarewell(dead.receiveAll()))
        #expect(waits { front.ended.withLock { $0 } == 2 })
    }

    enum Departure: CaseIterable { case left, partMoved }

    @Test(
        "relays to a node end when it has left, and those of a part when the part has moved",
        arguments: Departure.allCases)
    func closedRelays(departure: Departure) throws {
        try withRelay { front, owner, rig in
            let hub = rig.nodes[0].hub
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1])
            #expect(device.receive(exactly: 1) == [1])
            // Another part's devices stay.
            hub.forget(part: LinkSamples.part + 1, at: 2)
            try device.send([2])
            #expect(device.receive(exactly: 1) == [2])
            switch departure {
            case .left: hub.setPeers([])
            case .partMoved: hub.forget(part: LinkSamples.part, at: 2)
            }
            #expect(device.receiveAll().isEmpty)
            #expect(waits { owner.ended.withLock { $0 } != nil && front.ended.withLock { $0 } == 1 })
        }
    }

    @Test("relays to a node whose link falls silent end: their devices look for the new owner")
    func silentNode() throws {
        try withRelay { front, _, rig in
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1])
            #expect(device.receive(exactly: 1) == [1])
            // The other gateway's links stand still, as those of a host that is gone.
            let isOver = Flag()
            defer { isOver.set() }
            rig.nodes[1].probe.whenMessage { _, _ in while !isOver.isSet { Pause.milliseconds(5) } }
            let batch = LinkSamples.batch(1) { LinkSamples.origin(.sender, UInt64($0)) }
            var messages: [LoopMessage] = [.publishes(batch)]
            #expect(rig.nodes[0].hub.send(&messages, part: LinkSamples.part, to: 2))
            #expect(device.receiveAll().isEmpty)
            #expect(waits { front.ended.withLock { $0 } == 1 })
        }
    }

    @Test("beyond the relays that a node has to take the next device is told to come back")
    func openingBound() {
        let table = RelayTable()
        for _ in 0..<LinkLimits.openingRelayCount { #expect(table.beginOpening(to: 2)) }
        #expect(!table.beginOpening(to: 2) && table.beginOpening(to: 3))
        table.endOpening(to: 2)
        #expect(table.beginOpening(to: 2) && !table.beginOpening(to: 2))
    }

    @Test("a device that comes back at once is relayed, and not sent away again")
    func sentAway() {
        var table = SentAway()
        func take(_ device: UInt64, at time: UInt64) -> Bool {
            table.take(DeviceID(high: device, low: device), now: time)
        }
        #expect(take(7, at: 1_000) && take(9, at: 1_000))
        #expect(!take(7, at: 1_001) && !take(7, at: 1_000 + SentAway.milliseconds - 1))
        #expect(take(7, at: 1_000 + SentAway.milliseconds))
    }
}
