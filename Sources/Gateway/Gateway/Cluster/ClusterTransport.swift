internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import Wire

/// The links between this gateway and the others of its cluster, on a dedicated event loop.
///
/// A loop encodes its messages into one block for each node and partition per turn. The link loop moves bytes, and keeps each
/// question until its answer arrives. It decodes received messages and puts them in the partitions' mailboxes.
final class ClusterTransport: GatewayLinks {
    /// The address of the cluster's port, with the actual port number.
    let address: SocketAddress

    private let loop: EventLoop
    /// The loop for trunks that other gateways opened.
    private let relayLoop: EventLoop
    private let peerConnections: Confined<PeerConnections>
    private let parcels: Mailbox<OutgoingBatch>
    private let socket: ListeningSocket.Handle
    private let settings: LinkSettings
    private let ports = PeerStates()
    private let spares = SpareBlocks()
    private let batches: SpareBatches
    private let counters = LinkCounters()
    private let relays = RelayTable()
    private let relayEnds = SharedCount()
    private let news = Lock(LinkNews())
    private let node = Lock(0)

    /// Breaks the initialization cycle: the peer connections are created before the transport.
    private final class Retelling {
        weak var hub: ClusterTransport?
    }

    /// A value that only the link loop accesses.
    private struct Confined<Value>: @unchecked Sendable {
        let value: Value
    }

    /// Listens on `listen`, but accepts no connection before `start`.
    init(listen: String, settings: LinkSettings, batches: SpareBatches) throws {
        precondition((1...Route.loopLimit).contains(settings.parts), "a route has room for the number of a part")
        let listening = ListeningSocket.Handle(try ListeningSocket(listen))
        (socket, address) = (listening, listening.address)
        let retelling = Retelling()
        loop = try EventLoop(index: 0, name: "links")
        relayLoop = try EventLoop(index: 0, name: "relays")
        (self.settings, self.batches) = (settings, batches)
        let peerConnections = PeerConnections(
            loop: loop, settings: settings, ports: ports, spares: spares, batches: batches, counters: counters,
            relays: relays, relayEnds: relayEnds, relayLoop: relayLoop, currentNode: self.node,
            news: news, tellNews: { retelling.hub?.tellNews() })
        self.peerConnections = Confined(value: peerConnections)
        parcels = Mailbox(into: loop, capacity: LinkLimits.parcelCount) { [unowned peerConnections] parcels in
            peerConnections.send(parcels)
        }
        retelling.hub = self
    }

    /// Starts to accept and to make connections, as this node; does not retain the receiver.
    func start(node: Int, receiver: any LinkReceiver) throws {
        self.node.withLock { $0 = node }
        loop.takeOver()
        try peerConnections.value.start(node: node, socket: socket, receiver: receiver)
        relayLoop.takeOver()
        try relayLoop.start()
        try loop.start()
    }

    /// Changes this node's number after it lost its lease and joined again.
    func renumber(_ node: Int) {
        self.node.withLock { $0 = node }
        loop.submit { [peerConnections] in peerConnections.value.renumber(node) }
    }

    /// Ends all links, after answering pending questions as busy.
    func stop() {
        loop.stop()
        loop.join()
        relayLoop.stop()
        relayLoop.join()
    }

    /// Keeps links to exactly these nodes; ignores this node's own entry.
    func setPeers(_ peers: [LinkPeer]) { loop.submit { [peerConnections] in peerConnections.value.setPeers(peers) } }

    /// Forgets a partition's former owner; closes relays, too, because a crashed owner has not closed its devices.
    func forget(part: Int, at node: Int) {
        relays.close(node, part: part)
        loop.submit { [peerConnections] in peerConnections.value.forget(part: part, at: node) }
    }

    var statistics: LinkStatistics {
        var statistics = counters.statistics
        statistics.droppedNews = UInt64(news.withLock { $0.droppedCount })
        return statistics
    }
    func isUp(_ node: Int) -> Bool { ports[node]?.isLinkUp ?? false }

    func setLease(_ lease: LinkFrame.Lease) { ports.setLease(lease) }

    func holdsLease(_ node: Int) -> Bool { ports[node].map { $0.isLinkUp && $0.lease == .held } ?? false }

    // MARK: From the loops

    /// Sends messages to a partition's owner; if it returns false, the array is unchanged, and the caller refuses the messages.
    func send(_ messages: inout [LoopMessage], part: Int, to node: Int) -> Bool {
        guard !messages.isEmpty else { return true }
        guard let port = ports[node], port.mayAsk(byteLimit: settings.waitingByteLimit) else {
            countRefused(node)
            return false
        }
        let block = spares.take()
        var remainder = LinkCodec.Remainder()
        for message in messages {
            LinkCodec.encode(message, part: part, into: block, &remainder) { port.nextNumber() }
        }
        port.enter(block)
        let parcel = OutgoingBatch(
            node: node, isAnswers: false, block: block, questions: remainder.questions, refused: remainder.refused)
        guard parcels.send(parcel) else {
            port.leave(block)
            spares.keep(block)
            countRefused(node)
            return false
        }
        for message in messages {
            if case .publishes(let batch) = message { batches.keep(batch) }
        }
        messages.removeAll(keepingCapacity: true)
        return true
    }

    /// Sends answers to the node that asked; closes the node's link if the link is full.
    ///
    /// - Returns: false if the answers were not sent. The node then answers its questions as busy itself.
    func send(_ answers: AnswerBatch, loop: Int, to node: Int) -> Bool {
        guard let port = ports[node], port.hasAsker else {
            countRefused(node)
            return false
        }
        guard port.hasRoomForAnswers(byteLimit: settings.waitingByteLimit) else { return dropAsker(node) }
        let block = spares.take()
        LinkCodec.encode(answers, into: block)
        port.answersEnter(block)
        guard parcels.send(OutgoingBatch(node: node, isAnswers: true, block: block)) else {
            port.answersLeft(block)
            spares.keep(block)
            return dropAsker(node)
        }
        return true
    }

    /// Closes the node's link; otherwise the caller of a lost answer would wait for as long as the link stays open.
    private func dropAsker(_ node: Int) -> Bool {
        countRefused(node)
        loop.submit { [peerConnections] in peerConnections.value.dropAsker(node) }
        return false
    }

    private func countRefused(_ node: Int) {
        counters.count(.refusedBatches)
        ports[node]?.countRefused()
    }

    func figures(of node: Int) -> LinkFigures { ports[node]?.figures ?? LinkFigures() }

    func tell(_ item: GatewayNews) {
        news.withLock { $0.add(item) }
        tellNews()
    }

    private func tellNews() {
        for node in news.withLock({ $0.waitingNodes }) {
            guard ports[node]?.mayAsk(byteLimit: settings.waitingByteLimit) ?? false else { continue }
            // The news is recorded as sent first, so a link that breaks during the send queues it again.
            let now = SystemClock.monotonicMilliseconds
            let items = news.withLock { news in
                let items = news.take(node)
                news.sent(items, node, at: now)
                return items
            }
            var messages = items.map { LoopMessage.news($0) }
            if !send(&messages, part: 0, to: node) { news.withLock { $0.putBack(items, node) } }
        }
    }

    // MARK: Relays

    var relayEndCount: Int { relayEnds.value }

    /// Relays a device over the trunk of `loop`; if its owner is unreachable, the device receives a Close with a retry window.
    func relay(
        _ connection: DetachedConnection, hello device: AdoptedHello, isSecure: Bool, to node: Int, on loop: EventLoop,
        ended: @escaping () -> Void
    ) {
        counters.count(.relays)
        let hello = LinkHello(
            cluster: settings.cluster, node: self.node.withLock { $0 }, instance: settings.instance, wanted: node,
            release: settings.release, version: settings.versions.version, lowestVersion: settings.versions.lowest,
            parts: settings.parts)
        let preamble = RelayPreamble(
            hello: hello, peer: connection.peer?.description ?? "", isSecure: isSecure, device: device)
        let trunk = relays.trunk(to: node, on: loop) { ended in
            guard let address = ports[node]?.address else { return nil }
            return try? RelayTrunk(connectingTo: address, hello, settings, on: loop, ended: ended)
        }
        let part = device.bucket.loop(of: settings.parts)
        guard let trunk else {
            let relay = Relay(0, part: part, on: nil, farewell: Self.farewell, ended: ended)
            relay.attach(connection, on: loop)
            return relay.end()
        }
        trunk.open(
            connection, preamble, part: part, farewell: Self.farewell,
            timeoutMilliseconds: settings.times.identificationMilliseconds, ended: ended)
    }

    func endRelays(_ count: Int, on loop: EventLoop) -> Int { relays.end(count, on: loop) }

    /// The Close frame for a device whose owner is unreachable.
    private static let farewell: [UInt8] = {
        var close = Close()
        close.code = CloseCode.overloaded.rawValue
        close.reason = "the gateway that serves this device cannot be reached; reconnect"
        (close.retryAfterMinimum, close.retryAfterMaximum) = EventLoopHost.refusedWindow
        var bytes: [UInt8] = []
        close.appendFrame(to: &bytes)
        return bytes
    }()
}
