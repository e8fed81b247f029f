import Cryptography
import Delivery
import EventLoops
import Glibc
import Platform
import PushAPI
import Testing
import Wire

@testable import Gateway

/// A receiver that records a hub's events and lets tests wait for them.
final class LinkProbe: LinkReceiver, @unchecked Sendable {
    // `@unchecked Sendable` is sound because the monitor guards all state.
    struct Seen {
        var messages: [(part: Int, message: LoopMessage)] = []
        var answers: [(part: Int, answer: LoopAnswer)] = []
        var events: [LinkEvent] = []
        var news: [GatewayNews] = []
        var preambles: [RelayPreamble] = []
        /// The number of messages that the receiver still accepts.
        var room = Int.max
    }

    private let seen: Monitor<Seen> = Monitor(Seen())
    /// Called on the link loop with each message that is not an answer.
    private let onMessage: Lock<@Sendable (Int, LoopMessage) -> Void> = Lock({ _, _ in })

    private let relayTaker: Lock<@Sendable (DetachedConnection, RelayPreamble) -> Void> = Lock({ _, _ in })

    func setRelayTaker(_ take: @escaping @Sendable (DetachedConnection, RelayPreamble) -> Void) {
        relayTaker.withLock { $0 = take }
    }

    func receive(_ messages: inout [LoopMessage], forPart part: Int) {
        let taken: [LoopMessage] = seen.broadcast { seen in
            let count = min(messages.count, seen.room)
            if seen.room < .max { seen.room -= count }
            for message in messages[..<count] { seen.messages.append((part, message)) }
            return Array(messages[..<count])
        }
        messages.removeFirst(taken.count)
        let body = onMessage.withLock { $0 }
        for message in taken { body(part, message) }
    }

    func receive(_ answers: AnswerBatch, forHost host: Int) -> Bool {
        seen.broadcast { seen in
            guard seen.room > 0 else { return false }
            if seen.room < .max { seen.room -= 1 }
            answers.forEach { seen.answers.append((host, $0)) }
            return true
        }
    }

    func receive(_ news: GatewayNews) { seen.broadcast { $0.news.append(news) } }
    func linkChanged(_ event: LinkEvent) { seen.broadcast { $0.events.append(event) } }

    func relayArrived(_ connection: DetachedConnection, _ preamble: RelayPreamble) {
        seen.broadcast { $0.preambles.append(preamble) }
        relayTaker.withLock { $0 }(connection, preamble)
    }

    func whenMessage(_ body: @escaping @Sendable (Int, LoopMessage) -> Void) { onMessage.withLock { $0 = body } }
    func setRoom(_ room: Int) { seen.broadcast { $0.room = room } }

    @discardableResult
    func wait(sourceLocation: SourceLocation = #_sourceLocation, until condition: (Seen) -> Bool) -> Seen {
        var found: Seen?
        let isReady = seen.wait(
            atMostMilliseconds: 20_000, while: { !condition($0) },
            then: { seen in
                found = seen
                return condition(seen)
            })
        #expect(
            isReady,
            "waited in vain; saw \(found?.events ?? []), \(found?.messages.count ?? 0) messages, \(found?.answers.count ?? 0) answers",
            sourceLocation: sourceLocation)
        return found ?? Seen()
    }

    var now: Seen { wait { _ in true } }
}

/// Hubs on loopback with real TLS, stopped at the end.
final class LinkRig {
    static let secret = [UInt8](repeating: 3, count: 40)

    struct Node {
        let number: Int
        let hub: ClusterTransport
        let probe: LinkProbe
        var peer: LinkPeer { LinkPeer(node: number, address: "127.0.0.1:\(hub.address.port)") }
    }

    private(set) var nodes: [Node] = []

    static func settings(
        cluster: String = "test", secret: [UInt8] = LinkRig.secret, versions: LinkVersions = .current
    ) throws -> LinkSettings {
        var settings = LinkSettings(
            cluster: cluster, release: "1.0", parts: LinkSamples.parts,
            tls: try TLSContext(psk: PresharedKey(secret: secret, group: cluster)))
        settings.versions = versions
        settings.times.firstPauseMilliseconds = 20
        settings.times.longestPauseMilliseconds = 100
        return settings
    }

    @discardableResult
    func add(_ number: Int, listen: String = "127.0.0.1:0", _ settings: LinkSettings? = nil) throws -> Node {
        let node = Node(
            number: number,
            hub: try ClusterTransport(
                listen: listen, settings: try settings ?? Self.settings(), batches: SpareBatches()),
            probe: LinkProbe())
        try node.hub.start(node: number, receiver: node.probe)
        nodes.append(node)
        return node
    }

    func pair(_ first: LinkVersions = .current, _ second: LinkVersions = .current) throws -> (Node, Node) {
        let (one, two) = (
            try add(1, try Self.settings(versions: first)), try add(2, try Self.settings(versions: second))
        )
        one.hub.setPeers([two.peer])
        one.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        return (one, two)
    }

    func stop(_ node: Node) {
        nodes.removeAll { $0.hub === node.hub }
        node.hub.stop()
    }

    deinit { for node in nodes { node.hub.stop() } }
}

@Suite("Links between gateways")
struct ClusterTransportTests {
    private func publishes(_ requests: Range<Int>) -> LoopMessage {
        .publishes(LinkSamples.batch(requests.count) { LinkSamples.origin(.sender, UInt64(requests.lowerBound + $0)) })
    }

    private func requests(_ seen: LinkProbe.Seen) -> [UInt64] {
        var requests: [UInt64] = []
        for case (_, .publishes(let batch)) in seen.messages { batch.forEach { requests.append($0.origin.request) } }
        return requests
    }

    /// Answers each incoming publish as accepted.
    private func answerPublishes(_ node: LinkRig.Node, to asker: Int) {
        node.probe.whenMessage { [hub = node.hub] _, message in
            guard case .publishes(let batch) = message else { return }
            let answers = AnswerBatch()
            batch.forEach { command in
                answers.append(
                    .published(command.origin, PublishOutcome(code: .accepted, cid: command.cid, task: command.task)))
            }
            _ = hub.send(answers, loop: 3, to: asker)
        }
    }

    private func codes(_ seen: LinkProbe.Seen) -> [UInt64: [PublishOutcome.Code]] {
        var codes: [UInt64: [PublishOutcome.Code]] = [:]
        for case (_, .published(let origin, let outcome)) in seen.answers {
            codes[origin.request, default: []].append(outcome.code)
        }
        return codes
    }

    @Test("messages reach their partition and answers their loop, each once and in the sender's order")
    func bothWays() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        two.hub.setPeers([one.peer])
        two.probe.wait { $0.events.contains(.up(node: 1, release: "1.0")) }
        answerPublishes(two, to: 1)
        answerPublishes(one, to: 2)
        for step in 0..<50 {
            for (node, target) in [(one, 2), (two, 1)] {
                var messages = [publishes(step * 20..<step * 20 + 20)]
                #expect(node.hub.send(&messages, part: LinkSamples.part, to: target))
                #expect(messages.isEmpty)
            }
        }
        for node in [one, two] {
            let seen = node.probe.wait { requests($0).count == 1_000 && $0.answers.count == 1_000 }
            #expect(requests(seen) == Array(0..<1_000))
            #expect(seen.messages.allSatisfy { $0.part == LinkSamples.part })
            // The route contains the asking loop.
            #expect(seen.answers.allSatisfy { $0.part == 3 })
            // The asking node is the link's peer, whatever the route contains.
            let asker = node.number == 1 ? 2 : 1
            for case (_, .publishes(let batch)) in seen.messages {
                batch.forEach { command in #expect(Route(command.origin.route)?.node == asker) }
            }
            #expect(codes(seen).values.allSatisfy { $0 == [.accepted] })
        }
        #expect(one.hub.statistics.busyAnswers == 0 && one.hub.statistics.strayAnswers == 0)
    }

    /// The versions of the release after this one.
    static let next = LinkVersions(version: LinkVersions.current.version + 1, lowest: LinkVersions.current.version)
    static let neighbours = [(LinkVersions.current, LinkVersions.current), (.current, next), (next, .current)]

    @Test(
        "every kind of message and answer passes a link, also between adjacent releases",
        arguments: neighbours)
    func everyKind(first: LinkVersions, second: LinkVersions) throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair(first, second)
        // Each message has its own origin, so that each question finds its answer.
        for (message, part) in LinkSamples.sent {
            if case .news = message { continue }
            let (before, count) = (two.probe.now.messages.count, message.busyAnswers.count)
            var messages = [message]
            #expect(one.hub.send(&messages, part: part, to: 2))
            let seen = two.probe.wait { $0.messages.count == before + 1 }
            let last = try #require(seen.messages.last)
            let answered = one.probe.now.answers.count
            let answers = AnswerBatch()
            for answer in last.message.busyAnswers { answers.append(answer) }
            #expect(two.hub.send(answers, loop: 3, to: 1))
            one.probe.wait { $0.answers.count == answered + count }
        }
        for news in [
            GatewayNews.jobsAvailable(.apns, part: 1), .taskChanged(LinkSamples.task), .tokenRevoked(LinkSamples.token),
        ] {
            one.hub.tell(news)
        }
        let told = two.probe.wait { $0.news.count == 3 }.news
        #expect("\(told[2])" == "\(GatewayNews.tokenRevoked(LinkSamples.token))")
        #expect(one.hub.statistics.strayAnswers == 0 && one.hub.statistics.unreadMessages == 0)
    }

    @Test("a hanging name server delays no other link and no stop, and a known gateway is found again")
    func hungNames() throws {
        let rig = LinkRig()
        let isOver = Flag()
        defer { isOver.set() }
        let isHung = Flag()
        var settings = try LinkRig.settings()
        settings.times.silenceMilliseconds = 500
        settings.names = NameLookups { host, port in
            if host == "hung.test" || isHung.isSet { while !isOver.isSet { Pause.milliseconds(5) } }
            return NameLookups.askSystem("127.0.0.1", port)
        }
        let (one, two, three) = (try rig.add(1, settings), try rig.add(2), try rig.add(3))
        let named = LinkPeer(node: 2, address: "known.test:\(two.hub.address.port)")
        let hung = LinkPeer(node: 4, address: "hung.test:\(two.hub.address.port)")
        one.hub.setPeers([hung, named, three.peer])
        one.probe.wait { seen in
            seen.events.contains(.up(node: 2, release: "1.0")) && seen.events.contains(.up(node: 3, release: "1.0"))
        }
        one.probe.wait { seen in
            seen.events.contains {
                if case .down(4, false, let reason) = $0 { reason.contains("name server") } else { false }
            }
        }
        isHung.set()
        let port = two.hub.address.port
        rig.stop(two)
        one.probe.wait { $0.events.contains { if case .down(2, _, _) = $0 { true } else { false } } }
        try rig.add(2, listen: "127.0.0.1:\(port)")
        one.probe.wait { seen in seen.events.filter { $0 == .up(node: 2, release: "1.0") }.count == 2 }
        let began = SystemClock.monotonicMilliseconds
        rig.stop(one)
        #expect(SystemClock.monotonicMilliseconds - began < 3_000, "the stop waited for the name server")
    }

    @Test("news that a full or broken link refuses is sent to each gateway once its link accepts it")
    func lateNews() throws {
        let rig = LinkRig()
        var settings = try LinkRig.settings()
        settings.waitingByteLimit = 0
        let (full, two) = (try rig.add(1, settings), try rig.add(2))
        full.hub.setPeers([two.peer])
        full.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        full.hub.tell(.tokenRevoked(LinkSamples.token))
        Pause.milliseconds(100)
        #expect(two.probe.now.news.isEmpty)

        let three = try rig.add(3)
        let port = two.hub.address.port
        three.hub.setPeers([two.peer])
        three.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        rig.stop(two)
        three.probe.wait { $0.events.contains { if case .down(2, _, _) = $0 { true } else { false } } }
        three.hub.tell(.tokenRevoked(LinkSamples.token))
        three.hub.tell(.taskChanged(LinkSamples.task))
        three.hub.tell(.tokenRevoked(LinkSamples.token))
        let again = try rig.add(2, listen: "127.0.0.1:\(port)")
        let told = again.probe.wait { $0.news.count >= 2 }.news
        #expect(told == [.tokenRevoked(LinkSamples.token), .taskChanged(LinkSamples.task)])
        #expect(three.hub.statistics.droppedNews == 0)
    }

    @Test("news sent just before a link broke is sent again; news above the bound is dropped and counted")
    func doubtfulNews() {
        var book = LinkNews()
        book.setPeers([2, 3])
        func token(_ number: Int) -> GatewayNews { .tokenRevoked(TokenID(expiresAt: 1, random: UInt64(number))) }
        book.add(token(1))
        #expect(book.waitingNodes == [2, 3])
        book.sent(book.take(2), 2, at: 1_000)
        book.add(token(2))
        #expect(book.take(3) == [token(1), token(2)])
        book.sent(book.take(2), 2, at: 5_000)
        #expect(book.waitingNodes.isEmpty)
        book.linkEnded(2, at: 1_001 + LinkNews.doubtMilliseconds)
        #expect(book.take(2) == [token(2)], "the first went out long before")
        book.linkEnded(2, at: 7_000)
        #expect(book.take(2).isEmpty)
        // Returned news is placed before news that was added since.
        book.add(token(4))
        let taken = book.take(2)
        book.add(token(5))
        book.putBack(taken, 2)
        #expect(book.take(2) == [token(4), token(5)])
        book.setPeers([2])
        for number in 0..<LinkNews.itemLimit + 3 { book.add(token(number)) }
        #expect(book.droppedCount == 3)
        let rest = book.take(2)
        #expect(rest.count == LinkNews.itemLimit && rest.first == token(3))
    }

    @Test("every question gets one answer when a link breaks, the owner's or busy; then the link reconnects")
    func brokenLink() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        // The owner answers every other batch.
        let count = Lock(0)
        two.probe.whenMessage { [hub = two.hub] _, message in
            guard case .publishes(let batch) = message,
                count.withLock({
                    $0 += 1; return $0
                }).isMultiple(of: 2)
            else {
                return
            }
            let answers = AnswerBatch()
            batch.forEach { command in
                answers.append(
                    .published(command.origin, PublishOutcome(code: .accepted, cid: command.cid, task: command.task)))
            }
            _ = hub.send(answers, loop: 3, to: 1)
        }
        for step in 0..<20 {
            var messages: [LoopMessage] = [
                publishes(step * 10..<step * 10 + 10),
                .request(
                    DeviceStatusRequest(device: LinkSamples.address), LinkSamples.origin(.request, UInt64(step))),
            ]
            #expect(one.hub.send(&messages, part: LinkSamples.part, to: 2))
            two.probe.wait { requests($0).count == step * 10 + 10 }
        }
        one.probe.wait { codes($0).count == 100 }
        let port = two.hub.address.port
        rig.stop(two)
        let seen = one.probe.wait { $0.answers.count == 220 }
        let found = codes(seen)
        #expect(found.count == 200 && found.values.allSatisfy { $0.count == 1 })
        #expect(found.values.count { $0 == [.busy] } == 100)
        let unreadable = seen.answers.filter {
            if case .answered(_, nil) = $0.answer { true } else { false }
        }
        #expect(unreadable.count == 20)
        // The peer no longer listens, which the next attempt detects.
        one.probe.wait { seen in
            seen.events.contains { if case .down(2, true, _) = $0 { true } else { false } }
        }
        var messages = [publishes(0..<1)]
        #expect(!one.hub.send(&messages, part: LinkSamples.part, to: 2) && messages.count == 1)

        let again = try rig.add(2, listen: "127.0.0.1:\(port)")
        one.probe.wait { $0.events.last == .up(node: 2, release: "1.0") }
        #expect(one.hub.send(&messages, part: LinkSamples.part, to: 2))
        again.probe.wait { requests($0) == [0] }
        #expect(one.probe.now.answers.count == 220)
    }

    @Test("questions to a moved partition are answered as busy; so are those to a node that leaves")
    func forgotten() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        let other = Bucket(LinkSamples.bucket.index + 1)
        var here = [publishes(0..<5)]
        #expect(one.hub.send(&here, part: LinkSamples.part, to: 2))
        var there: [LoopMessage] = [
            .request(
                DeviceStatusRequest(
                    device: DeviceAddress(app: LinkSamples.app, bucket: other, cid: LinkSamples.cid)),
                LinkSamples.origin(.request))
        ]
        #expect(one.hub.send(&there, part: LinkSamples.part + 1, to: 2))
        two.probe.wait { $0.messages.count == 2 }
        one.hub.forget(part: LinkSamples.part, at: 2)
        one.probe.wait { $0.answers.count == 5 }
        one.hub.setPeers([])
        one.probe.wait { $0.answers.count == 6 }
        #expect(!one.hub.isUp(2))
    }

    @Test("questions to a full partition are answered as busy, and answers wait for room")
    func fullMailboxes() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        two.probe.setRoom(0)
        var messages = [publishes(0..<3)]
        #expect(one.hub.send(&messages, part: LinkSamples.part, to: 2))
        let seen = one.probe.wait { $0.answers.count == 3 }
        #expect(codes(seen).values.allSatisfy { $0 == [.busy] })

        two.probe.setRoom(.max)
        answerPublishes(two, to: 1)
        one.probe.setRoom(0)
        messages = [publishes(10..<13)]
        #expect(one.hub.send(&messages, part: LinkSamples.part, to: 2))
        two.probe.wait { requests($0).count == 3 }
        one.probe.setRoom(.max)
        #expect(codes(one.probe.wait { $0.answers.count == 6 })[11] == [.accepted])
    }

    @Test(
        "a peer that does not read is bounded: sends are refused, and pending questions end with the link")
    func slowPeer() throws {
        let rig = LinkRig()
        var settings = try LinkRig.settings()
        settings.waitingByteLimit = 256 << 10
        let one = try rig.add(1, settings)
        let tls = settings.tls
        // A peer that identifies itself and then stops reading.
        let loop = try EventLoop(index: 0)
        let silent = SilentPeer(node: 2, cluster: "test")
        let socket = try ListeningSocket("127.0.0.1:0")
        let port = socket.address.port
        _ = try Listener(on: loop, socket: socket) { [unowned loop] connection in
            silent.stream = ByteStream(attaching: connection, on: loop, delegate: silent, tls: tls)
        }
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        one.hub.setPeers([LinkPeer(node: 2, address: "127.0.0.1:\(port)")])
        one.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        // Sends until several sends in a row were refused, so that pending bytes are no longer written.
        var (sent, refusals) = (0, 0)
        while refusals < 50, sent < 10_000, one.hub.isUp(2) {
            var messages = [publishes(sent * 1_000..<sent * 1_000 + 1_000)]
            if one.hub.send(&messages, part: LinkSamples.part, to: 2) {
                (sent, refusals) = (sent + 1, 0)
            } else {
                refusals += 1
                Pause.milliseconds(5)
            }
        }
        #expect(sent < 10_000, "a link takes without bound")
        // The peer sends nothing either, so its link ends at the idle timeout.
        let seen = one.probe.wait { $0.answers.count >= sent * 1_000 }
        #expect(codes(seen).count == sent * 1_000 && codes(seen).values.allSatisfy { $0 == [.busy] })
        #expect(seen.events.contains { if case .down(2, _, _) = $0 { true } else { false } })
    }

    // MARK: Admission of peers

    @Test("answers without room end the link, so that the asker gets busy and retries")
    func answersWithoutRoom() throws {
        let rig = LinkRig()
        var settings = try LinkRig.settings()
        settings.waitingByteLimit = 0
        let (one, two) = (try rig.add(1), try rig.add(2, settings))
        one.hub.setPeers([two.peer])
        one.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        let hub = two.hub
        two.probe.whenMessage { _, message in
            let answers = AnswerBatch()
            for answer in message.busyAnswers { answers.append(answer) }
            #expect(!hub.send(answers, loop: 0, to: 1))
        }
        var messages = [
            LoopMessage.request(DeviceStatusRequest(device: LinkSamples.address), LinkSamples.origin(.request))
        ]
        #expect(one.hub.send(&messages, part: 3, to: 2))
        one.probe.wait { $0.answers.count == 1 && $0.events.count { $0 == .up(node: 2, release: "1.0") } == 2 }
        #expect(two.hub.statistics.refusedBatches == 1)
    }

    @Test("adjacent versions connect, others are refused with the reason")
    func versions() throws {
        let rig = LinkRig()
        let middle = try rig.add(1, try LinkRig.settings(versions: LinkVersions(version: 5, lowest: 4)))
        let older = try rig.add(2, try LinkRig.settings(versions: LinkVersions(version: 4, lowest: 3)))
        let newer = try rig.add(3, try LinkRig.settings(versions: LinkVersions(version: 6, lowest: 5)))
        for node in [older, newer] {
            middle.hub.setPeers([node.peer])
            middle.probe.wait { $0.events.contains(.up(node: node.number, release: "1.0")) }
            node.hub.setPeers([middle.peer])
            node.probe.wait { $0.events.contains(.up(node: 1, release: "1.0")) }
        }
        older.hub.setPeers([newer.peer])
        older.probe.wait { seen in
            seen.events.contains {
                if case .down(3, false, let reason) = $0 { reason.contains("upgrade one release") } else { false }
            }
        }
        newer.probe.wait { seen in
            seen.events.contains { if case .refused(_, .wrongVersion, _) = $0 { true } else { false } }
        }
    }

    @Test("a wrong secret and another cluster's name are refused; so is a node number that has changed")
    func refusals() throws {
        let rig = LinkRig()
        let one = try rig.add(1)
        func turnedAway(_ node: LinkRig.Node, _ isMeant: (LinkEvent) -> Bool) {
            node.hub.setPeers([one.peer])
            node.probe.wait { $0.events.contains { if case .down(1, false, _) = $0 { true } else { false } } }
            one.probe.wait { $0.events.contains(where: isMeant) }
            node.hub.setPeers([])
        }
        let isTLS = { (event: LinkEvent) in if case .refused(_, nil, _) = event { true } else { false } }
        turnedAway(try rig.add(2, try LinkRig.settings(secret: [UInt8](repeating: 4, count: 32))), isTLS)
        turnedAway(try rig.add(3, try LinkRig.settings(cluster: "other")), isTLS)
        var parts = try LinkRig.settings()
        parts.parts = 32
        turnedAway(try rig.add(4, parts)) {
            if case .refused(_, .otherCluster, _) = $0 { true } else { false }
        }
        // The node's own number.
        let double = try rig.add(1)
        double.hub.setPeers([LinkPeer(node: 2, address: one.peer.address)])
        one.probe.wait {
            $0.events.contains { if case .refused(_, .staleNode, _) = $0 { $0.level == .info } else { false } }
        }
        // A second process with a number that is in use.
        let first = try rig.add(7), second = try rig.add(7)
        first.hub.setPeers([one.peer])
        first.probe.wait { $0.events.contains(.up(node: 1, release: "1.0")) }
        second.hub.setPeers([one.peer])
        one.probe.wait {
            $0.events.contains { if case .refused(_, .duplicate, _) = $0 { $0.level == .warning } else { false } }
        }
        #expect(first.hub.isUp(1) && !second.hub.isUp(1))
    }

    @Test("a gateway is notified of another one's link, so that it requests missed news")
    func heard() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        two.probe.wait { $0.events == [.heard(node: 1)] }
        let address = one.peer
        rig.stop(one)
        let again = try rig.add(1, listen: address.address)
        again.hub.setPeers([two.peer])
        two.probe.wait { seen in seen.events.filter { $0 == .heard(node: 1) }.count == 2 }
    }

    @Test("idle unauthenticated connections do not displace a gateway's link")
    func silentStrangers() throws {
        let rig = LinkRig()
        var settings = try LinkRig.settings()
        settings.times.identificationMilliseconds = 60_000
        let (one, two) = (try rig.add(1), try rig.add(2, settings))
        two.hub.setPeers([one.peer])
        two.probe.wait { $0.events.contains(.up(node: 1, release: "1.0")) }
        let port = two.hub.address.port
        let silent = try (0..<LinkLimits.strangerCount).map { _ in try LinkStranger(port: port, tls: nil, from: 2) }
        // The next connection is refused at once, which shows that all earlier ones were accepted.
        #expect(try LinkStranger(port: port, tls: nil, from: 2).receiveAll().isEmpty)
        #expect(two.hub.statistics.refusedPeers == 1)
        one.hub.setPeers([two.peer])
        one.probe.wait { $0.events.contains(.up(node: 2, release: "1.0")) }
        #expect(two.hub.statistics.refusedPeers == 1 && silent.count == LinkLimits.strangerCount)
    }

    @Test("bytes without a valid greeting do not affect the links")
    func strangers() throws {
        let rig = LinkRig()
        let (one, two) = try rig.pair()
        let port = two.hub.address.port
        let tls = try LinkRig.settings().tls
        let block = LinkBlock()
        LinkCodec.encode(
            {
                let batch = AnswerBatch(); batch.append(.answered(.none, nil)); return batch
            }(), into: block)
        let inside: [[UInt8]] = [
            // With the secret, followed by invalid bytes: a length beyond the bound, an unknown kind, an invalid Hello, an
            // invalid preamble, an answer before a Hello.
            [255, 255, 255, 255, 1, 0, 0, 0], [0, 0, 0, 0, 77, 0, 0, 0], [3, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9],
            [1, 0, 0, 0, 4, 0, 0, 0, 8], block.copy,
        ]
        for bytes in inside {
            let peer = try LinkStranger(port: port, tls: tls)
            try peer.send(bytes)
            let answer = peer.receiveAll()
            #expect(answer.count > 8 && answer[4] == LinkFrame.Kind.close.rawValue)
        }
        let plain = try LinkStranger(port: port, tls: nil)
        try plain.send((0..<5_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        _ = plain.receiveAll()
        #expect(throws: (any Error).self) {
            _ = try LinkStranger(port: port, tls: try TLSContext(trusting: .anyone)).receiveAll()
        }
        answerPublishes(two, to: 1)
        var messages = [publishes(0..<4)]
        #expect(one.hub.send(&messages, part: LinkSamples.part, to: 2))
        one.probe.wait { $0.answers.count == 4 }
        #expect(two.hub.statistics.refusedPeers >= 1)
    }
}

/// A peer that identifies itself, and then neither reads nor sends.
private final class SilentPeer: StreamDelegate, @unchecked Sendable {
    // Used only on its loop once that runs.
    var stream: ByteStream?
    private let hello: LinkHello

    init(node: Int, cluster: String) {
        hello = LinkHello(
            cluster: cluster, node: node, instance: 1, wanted: 1, release: "1.0", version: LinkVersions.current.version,
            lowestVersion: LinkVersions.current.lowest, parts: LinkSamples.parts)
    }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        let block = LinkBlock()
        let start = block.beginFrame(.hello)
        block.put(hello.bytes)
        block.endFrame(start)
        _ = block.withBytes { stream.write($0) }
        stream.pauseReading()
        return bytes.count
    }
}

/// A blocking client, with TLS or without.
final class LinkStranger {
    private let descriptor: CInt
    private var tls: TLSSession?

    // `source` is the last byte of the client's address in 127.0.0.0/24.
    init(port: UInt16, tls context: TLSContext?, from source: UInt8 = 1) throws {
        descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        var own = sockaddr_in()
        own.sin_family = sa_family_t(AF_INET)
        own.sin_addr.s_addr = (UInt32(0x7F00_0000) + UInt32(source)).bigEndian
        _ = withUnsafeBytes(of: &own) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { bind(descriptor, $0.baseAddress, socklen_t(bytes.count)) }
        }
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var bound = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &bound, socklen_t(MemoryLayout<timeval>.size))
        let result = withUnsafeBytes(of: &address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { connect(descriptor, $0.baseAddress, socklen_t(bytes.count)) }
        }
        guard result == 0 else { throw SystemError.last("connect") }
        guard let context else { return }
        let session = try TLSSession(connecting: context, descriptor: descriptor, serverName: "longwire-link")
        tls = session
        guard session.handshake() == .done else { throw SystemError(operation: "handshake", code: EIO) }
    }

    deinit {
        tls = nil
        close(descriptor)
    }

    func send(_ bytes: [UInt8]) throws {
        var done = 0
        try bytes.withUnsafeBytes { all in
            while done < all.count {
                let rest = UnsafeRawBufferPointer(rebasing: all[done...])
                if let tls {
                    guard case .bytes(let count) = tls.write(rest) else { throw SystemError.last("SSL_write") }
                    done += count
                } else {
                    let count = Glibc.send(descriptor, rest.baseAddress, rest.count, CInt(MSG_NOSIGNAL))
                    guard count > 0 else { return }
                    done += count
                }
            }
        }
    }

    func setNonBlocking() { _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) }

    /// Sends as many bytes as the socket accepts at once, without TLS; returns their number.
    func trySend(_ bytes: [UInt8]) -> Int {
        max(0, bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) })
    }

    func shutDownWriting() {
        tls?.sayGoodbye()
        shutdown(descriptor, CInt(SHUT_WR))
    }

    func receive(atMost limit: Int = 65_536) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: limit)
        let count: Int = buffer.withUnsafeMutableBytes { bytes in
            guard let tls else { return recv(descriptor, bytes.baseAddress, bytes.count, 0) }
            if case .bytes(let count) = tls.read(into: bytes) { return count }
            return 0
        }
        return Array(buffer[..<max(0, count)])
    }

    func receive(exactly count: Int) -> [UInt8] {
        var result: [UInt8] = []
        while result.count < count {
            let part = receive(atMost: count - result.count)
            if part.isEmpty { break }
            result += part
        }
        return result
    }

    /// Returns all bytes up to the end of the stream.
    func receiveAll() -> [UInt8] {
        var result: [UInt8] = []
        while true {
            let part = receive()
            if part.isEmpty { return result }
            result += part
        }
    }
}
