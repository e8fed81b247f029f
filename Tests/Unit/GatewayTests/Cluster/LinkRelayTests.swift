import Cryptography
import Delivery
import EventLoops
import Platform
import Testing
import Wire

@testable import Gateway

@Suite("Relays between gateways")
struct LinkRelayTests {
    /// A loop that accepts devices and relays each to node 2.
    private final class Front {
        let loop: EventLoop
        private(set) var port: UInt16 = 0
        let ended = Lock(0)

        init(_ hub: ClusterTransport) throws {
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

    /// The owner's end of a relayed device, which echoes, does not read, or sends many bytes.
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
        _ habit: Owner.Habit = .echo, _ first: LinkVersions = .current, _ second: LinkVersions = .current,
        _ body: (_ front: Front, _ owner: Owner, _ rig: LinkRig) throws -> Void
    ) throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair(first, second)
        let front = try Front(one.hub)
        defer { front.stop() }
        // The event loop of the device's owner, which accepts connections as a gateway's loop does.
        let loop = try EventLoop(index: 1)
        let owner = Owner(habit)
        let arrived = Arrival(loop: loop, owners: owner)
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        two.probe.setRelayTaker { connection, preamble in arrived.take(connection, preamble) }
        try body(front, owner, rig)
    }

    private final class Arrival: @unchecked Sendable {
        // `@unchecked Sendable` is sound because the owners are used only on their loop, and locks guard the other state.
        let loop: EventLoop
        private var owners: [Owner]
        /// Sets the owner of each device in turn; the last owner serves all later devices.
        init(loop: EventLoop, owners: Owner...) { (self.loop, self.owners) = (loop, owners) }

        func take(_ connection: DetachedConnection, _ preamble: RelayPreamble) {
            loop.submit { [self] in
                let owner = owners.count > 1 ? owners.removeFirst() : owners[0]
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

    @Test(
        "the owner gets the device's Hello and address; bytes pass both ways, also between adjacent releases",
        arguments: ClusterTransportTests.neighbours)
    func bothWays(first: LinkVersions, second: LinkVersions) throws {
        try withRelay(.echo, first, second) { front, owner, rig in
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1, 2, 3])
            #expect(device.receive(exactly: 3) == [1, 2, 3])
            let seen = rig.nodes[1].probe.now
            let preamble = try #require(seen.preambles.first)
            #expect(preamble.hello.node == 1 && preamble.isSecure && preamble.peer.hasPrefix("127.0.0.1:"))
            #expect(preamble.device.hello == Self.hello.hello && preamble.device.transcript == [1, 2, 3])
            #expect(preamble.device.newSecret == Self.hello.newSecret && preamble.device.cid == Self.hello.cid)
            // More than all buffers in between hold, in pieces that the device reads.
            for start in stride(from: 0, to: 2_000_000, by: 50_000) {
                let piece = Array(Self.bulk[start..<start + 50_000])
                try device.send(piece)
                #expect(device.receive(exactly: piece.count) == piece)
            }
            #expect(front.ended.withLock { $0 } == 0)
        }
    }

    @Test("a device that reads late gets every byte, then the end of the connection")
    func slowDevice() throws {
        try withRelay(.sendMuch) { front, owner, _ in
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1])
            // All buffers in between fill before the first byte is read.
            Pause.milliseconds(200)
            #expect(device.receiveAll() == Self.bulk)
            #expect(waits { front.ended.withLock { $0 } == 1 })
        }
    }

    @Test("a half-close by the device reaches the owner after all bytes")
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

    @Test("a relay to an owner that does not read is bounded, and the device's writes block")
    func deafOwner() throws {
        try withRelay(.deaf) { front, owner, _ in
            let device = try LinkStranger(port: front.port, tls: nil)
            device.setNonBlocking()
            var sent = 0
            // Sends until no byte is accepted for a while. The buffers of the kernel and of the relay are then full.
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

    /// Whether the bytes are a Close that lets the device reconnect.
    private func isFarewell(_ bytes: [UInt8]) -> Bool {
        guard bytes.count > FrameHeader.byteCount, bytes[0] == FrameType.close.rawValue else { return false }
        let close = Array(bytes[FrameHeader.byteCount...]).withUnsafeBytes { try? Close(decoding: $0.bytes) }
        return close?.code == CloseCode.overloaded.rawValue && close?.retryAfterMaximum ?? 0 > 0
    }

    @Test("without a link, or with a dead or renumbered owner, the device receives a Close that lets it reconnect")
    func farewells() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        let front = try Front(one.hub)
        defer { front.stop() }
        two.hub.renumber(5)
        // The node's listener now has number 5 and reports it. The relay then closes the device's connection.
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
        "the relays to a node end when it leaves, and those of a partition when it moves",
        arguments: Departure.allCases)
    func closedRelays(departure: Departure) throws {
        try withRelay { front, owner, rig in
            let hub = rig.nodes[0].hub
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1])
            #expect(device.receive(exactly: 1) == [1])
            // Devices of another partition stay.
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

    @Test("the relays to a node end when its link goes silent, and their devices reconnect to find the new owner")
    func silentNode() throws {
        try withRelay { front, _, rig in
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1])
            #expect(device.receive(exactly: 1) == [1])
            // The other gateway's link loop is blocked, as if its host were gone.
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

    /// Runs a front and node 2, whose devices get these owners in turn.
    private func withOwners(_ habits: Owner.Habit..., body: (_ front: Front, _ rig: LinkRig) throws -> Void) throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        let front = try Front(one.hub)
        defer { front.stop() }
        let loops = try habits.map { _ in try EventLoop(index: 1) }
        let arrivals = zip(loops, habits).map { Arrival(loop: $0, owners: Owner($1)) }
        for loop in loops { try loop.start() }
        defer {
            for loop in loops {
                loop.stop()
                loop.join()
            }
        }
        let count = Lock(0)
        two.probe.setRelayTaker { connection, preamble in
            let place = count.withLock { count in
                count += 1
                return min(count, arrivals.count) - 1
            }
            arrivals[place].take(connection, preamble)
        }
        try body(front, rig)
    }

    @Test("devices that read nothing, and owners that do not, stop no other device of their trunk")
    func noneInTheWay() throws {
        try withOwners(.deaf, .sendMuch, .echo) { front, rig in
            // Its owner does not read.
            let flooding = try LinkStranger(port: front.port, tls: nil)
            flooding.setNonBlocking()
            #expect(waits { rig.nodes[1].probe.now.preambles.count == 1 })
            // The device does not read the 8 MB that its owner sends.
            let silent = try LinkStranger(port: front.port, tls: nil)
            #expect(waits { rig.nodes[1].probe.now.preambles.count == 2 })
            let lively = try LinkStranger(port: front.port, tls: nil)
            for start in stride(from: 0, to: 2_000_000, by: 50_000) {
                for _ in 0..<4 { _ = flooding.trySend(Array(Self.bulk[..<65_536])) }
                let piece = Array(Self.bulk[start..<start + 50_000])
                try lively.send(piece)
                #expect(lively.receive(exactly: piece.count) == piece)
            }
            #expect(silent.receiveAll() == Self.bulk)
        }
    }

    @Test("hundreds of devices share a trunk: each gets only its own bytes, and connections end separately")
    func manyDevices() throws {
        try withOwners(.echo) { front, rig in
            var devices = try (0..<300).map { _ in try LinkStranger(port: front.port, tls: nil) }
            for (place, device) in devices.enumerated() { try device.send(Array("device \(place + 100)".utf8)) }
            for (place, device) in devices.enumerated() {
                #expect(device.receive(exactly: 10) == Array("device \(place + 100)".utf8))
            }
            let owner = rig.nodes[1].hub
            #expect(owner.relayEndCount == 300, "the owner has a second descriptor for each device")
            devices.removeFirst(150)
            #expect(waits { front.ended.withLock { $0 } == 150 && owner.relayEndCount == 150 })
            for device in devices { try device.send([7, 8]) }
            for device in devices { #expect(device.receive(exactly: 2) == [7, 8]) }
            #expect(rig.nodes[1].hub.statistics.relays == 300)
            devices = []
            #expect(waits { owner.relayEndCount == 0 })
        }
    }

    @Test("an owner refuses a trunk between releases two apart, and the device receives a Close that lets it reconnect")
    func twoReleasesApart() throws {
        let rig = LinkRig()
        let later = LinkVersions(
            version: LinkVersions.current.version + 2, lowest: LinkVersions.current.lowest + 2)
        let (one, two) = (try rig.add(1, try LinkRig.settings(versions: later)), try rig.add(2))
        one.hub.setPeers([two.peer])
        one.probe.wait { $0.events.contains { if case .down(2, false, _) = $0 { true } else { false } } }
        let front = try Front(one.hub)
        defer { front.stop() }
        let refused = two.hub.statistics.refusedPeers
        #expect(isFarewell(try LinkStranger(port: front.port, tls: nil).receiveAll()))
        let isRefusal = { (event: LinkEvent) in
            if case .refused(_, .wrongVersion, _) = event { true } else { false }
        }
        two.probe.wait { $0.events.contains(where: isRefusal) }
        #expect(two.hub.statistics.refusedPeers > refused && two.probe.now.preambles.isEmpty)
    }

    @Test("a device that its owner does not accept in time receives a Close that lets it reconnect")
    func unanswered() throws {
        let rig = LinkRig()
        var settings = try LinkRig.settings()
        settings.times.identificationMilliseconds = 300
        let (one, two) = (try rig.add(1, settings), try rig.add(2))
        one.hub.setPeers([two.peer])
        one.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        // The owner's relay loop is blocked.
        let isOver = Flag()
        defer { isOver.set() }
        two.probe.setRelayTaker { _, _ in while !isOver.isSet { Pause.milliseconds(5) } }
        let front = try Front(one.hub)
        defer { front.stop() }
        let first = try LinkStranger(port: front.port, tls: nil)
        #expect(waits { two.probe.now.preambles.count == 1 })
        let late = try LinkStranger(port: front.port, tls: nil)
        #expect(isFarewell(late.receiveAll()))
        #expect(waits { front.ended.withLock { $0 } >= 1 })
        withExtendedLifetime(first) {}
    }

    @Test("a device above a node's limit of pending devices receives a Close that lets it reconnect")
    func openingBound() throws {
        let rig = LinkRig()
        var settings = try LinkRig.settings()
        settings.openingRelayCount = 3
        let (one, two) = (try rig.add(1, settings), try rig.add(2))
        one.hub.setPeers([two.peer])
        one.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        let isOver = Flag()
        defer { isOver.set() }
        two.probe.setRelayTaker { _, _ in while !isOver.isSet { Pause.milliseconds(5) } }
        let front = try Front(one.hub)
        defer { front.stop() }
        // The owner accepts the first device, which blocks the owner's loop. Three others wait.
        let devices = try (0..<4).map { _ in
            let device = try LinkStranger(port: front.port, tls: nil)
            #expect(waits { two.probe.now.preambles.count == 1 })
            return device
        }
        #expect(isFarewell(try LinkStranger(port: front.port, tls: nil).receiveAll()))
        withExtendedLifetime(devices) {}
    }

    enum Offence: CaseIterable {
        case moreThanAWindow, unearnedCredit, repeatedNumber, noNumber, ownersFrame, brokenPreamble, laterHello
    }

    private func frame(_ kind: LinkFrame.Kind, _ number: UInt64, _ body: [UInt8] = []) -> [UInt8] {
        let block = LinkBlock()
        let start = block.beginFrame(kind)
        block.put(number)
        block.put(body)
        block.endFrame(start)
        return block.copy
    }

    private func hello(of node: Int, for wanted: Int) -> LinkHello {
        LinkHello(
            cluster: "test", node: node, instance: 5, wanted: wanted, release: "1.0",
            version: LinkVersions.current.version, lowestVersion: 0,
            parts: LinkSamples.parts)
    }

    @Test("the owner receives the names of what the accepting gateway removed from a Hello")
    func removedParts() throws {
        var device = Self.hello
        device.hello.droppedAttributes = ["model", "locale"]
        device.hello.refusedTokens.note(.characters)
        let sent = RelayPreamble(hello: hello(of: 7, for: 2), peer: "", isSecure: true, device: device)
        let received = try sent.encoded().withUnsafeBytes { try RelayPreamble($0) }.device.hello
        #expect(received.droppedAttributes == ["model", "locale"])
        #expect(received.refusedTokens == device.hello.refusedTokens && received.refusedTokens.count == 1)
    }

    @Test("a gateway that violates a trunk's rules loses only that trunk", arguments: Offence.allCases)
    func offences(offence: Offence) throws {
        try withOwners(.deaf) { front, rig in
            let two = rig.nodes[1]
            let peer = try LinkStranger(port: two.hub.address.port, tls: try LinkRig.settings().tls)
            let block = LinkBlock()
            let start = block.beginFrame(.trunk)
            block.put(hello(of: 7, for: 2).bytes)
            block.endFrame(start)
            let preamble = RelayPreamble(hello: hello(of: 7, for: 2), peer: "", isSecure: true, device: Self.hello)
            try peer.send(block.copy + frame(.relay, 1, try preamble.encoded()))
            let taken = frame(.relayed, 1)
            #expect(peer.receive(exactly: taken.count) == taken)
            // The owner ignores frames for a number without a device.
            try peer.send(frame(.relayBytes, 9, [1, 2]) + frame(.relayEnd, 9) + frame(.relayBytes, 1, [1, 2]))
            switch offence {
            case .moreThanAWindow:
                let piece = frame(.relayBytes, 1, [UInt8](repeating: 1, count: 8 << 10))
                // The owner takes as much as the socket pair holds, and grants credit only for that.
                for _ in 0..<400 { try? peer.send(piece) }
            case .unearnedCredit: try peer.send(frame(.relayCredit, 1, [1, 0, 0, 0]))
            case .repeatedNumber: try peer.send(frame(.relay, 1, try preamble.encoded()))
            case .noNumber: try peer.send([1, 0, 0, 0, LinkFrame.Kind.relayBytes.rawValue, 0, 0, 0, 1])
            case .ownersFrame: try peer.send(frame(.relayed, 1))
            case .brokenPreamble: try peer.send(frame(.relay, 2, [1, 2, 3]))
            case .laterHello: try peer.send(block.copy)
            }
            two.probe.wait { seen in
                seen.events.contains { if case .refused(_, .malformed?, _) = $0 { true } else { false } }
            }
            // Other trunks stay.
            let device = try LinkStranger(port: front.port, tls: nil)
            try device.send([1])
            #expect(waits { two.probe.now.preambles.count >= 2 })
        }
    }

    @Test("a device that reconnects at once is relayed")
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
