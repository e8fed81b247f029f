internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import Synchronization
internal import Wire

/// A change of a link, for membership and the log.
enum LinkEvent: Sendable, Equatable {
    case up(node: Int, release: String)
    /// The link broke or could not be established.
    ///
    /// `wasRefused` means that the host is reachable, but no process listens at the address. Only changes are reported: a link
    /// that is down and then refused is reported twice.
    case down(node: Int, wasRefused: Bool, reason: String)
    /// The node's own link to this gateway is up, so its news arrives from now on.
    case heard(node: Int)
    /// A peer was rejected; `code` is `nil` if the peer had not proven the cluster's secret.
    case refused(peer: String, code: LinkClose.Code?, reason: String)

    /// The log level; a stale node number is only info, because peers still connect to a restarted gateway's old number.
    var level: LogLevel {
        switch self {
        case .up, .heard, .refused(_, .staleNode, _): .info
        case .down, .refused: .warning
        }
    }
}

/// The receiver of the links' messages; all methods except `relayArrived` are called on the link loop.
protocol LinkReceiver: AnyObject, Sendable {
    /// Takes messages for a partition from the front of the array; the caller answers the remaining questions as busy.
    func receive(_ messages: inout [LoopMessage], forPart part: Int)
    /// Takes answers for a host of this gateway; returns false if the host's mailbox is full, and the caller retries later.
    func receive(_ answers: AnswerBatch, forHost host: Int) -> Bool
    func receive(_ news: GatewayNews)
    func linkChanged(_ event: LinkEvent)
    /// Takes a relayed device's connection, whose Hello has been read; called on the relay loop.
    func relayArrived(_ connection: DetachedConnection, _ preamble: RelayPreamble)
}

struct LinkPeer: Sendable, Equatable {
    var node: Int
    var address: String
}

struct LinkSettings: Sendable {
    var cluster: String
    var release: String
    var parts: Int
    var tls: TLSContext
    var versions = LinkVersions.current
    var times = LinkLimits.Times()
    /// The backlog of one link, in bytes, above which batches are refused.
    var waitingByteLimit = LinkLimits.waitingByteCount
    var openingRelayCount = LinkLimits.openingRelayCount
    var names = NameLookups.shared
    /// A random value that distinguishes this process from earlier ones with the same number.
    var instance = SecureRandom.word()
}

struct LinkStatistics: Sendable, Equatable {
    var sentBytes: UInt64 = 0
    var receivedBytes: UInt64 = 0
    /// Questions answered as busy on behalf of a peer.
    var busyAnswers: UInt64 = 0
    /// Answers without a question in flight.
    var strayAnswers: UInt64 = 0
    /// Messages that one side could not decode.
    var unreadMessages: UInt64 = 0
    var refusedPeers: UInt64 = 0
    /// Batches that a loop could not send because the link was down or full.
    var refusedBatches: UInt64 = 0
    var relays: UInt64 = 0
    /// News items dropped because a gateway's queue was full.
    var droppedNews: UInt64 = 0
}

/// The thread-safe counters behind `LinkStatistics`.
final class LinkCounters: Sendable {
    enum Counter: Int, CaseIterable {
        case sentBytes, receivedBytes, busyAnswers, strayAnswers, unreadMessages, refusedPeers, refusedBatches, relays
    }

    private let values = Lock([UInt64](repeating: 0, count: Counter.allCases.count))

    func count(_ counter: Counter, _ number: UInt64 = 1) { values.withLock { $0[counter.rawValue] &+= number } }
    func sent(_ count: Int) { self.count(.sentBytes, UInt64(count)) }
    func received(_ count: Int) { self.count(.receivedBytes, UInt64(count)) }

    var statistics: LinkStatistics {
        let values = values.withLock { $0 }
        func value(_ counter: Counter) -> UInt64 { values[counter.rawValue] }
        return LinkStatistics(
            sentBytes: value(.sentBytes), receivedBytes: value(.receivedBytes), busyAnswers: value(.busyAnswers),
            strayAnswers: value(.strayAnswers), unreadMessages: value(.unreadMessages),
            refusedPeers: value(.refusedPeers), refusedBatches: value(.refusedBatches), relays: value(.relays))
    }
}

/// The messages or answers of one loop to one node in one turn.
struct OutgoingBatch: Sendable {
    let node: Int
    let isAnswers: Bool
    let block: LinkBlock
    var questions: [LinkCodec.Question] = []
    var refused: [LoopAnswer] = []
}

/// All links of the gateway, confined to the link loop.
final class PeerConnections {
    /// The numbers that the register assigns.
    static let nodes = 1...1_023
    /// The TLS server name of every gateway; gateways authenticate by the pre-shared key, without certificates.
    static let serverName = "longwire-link"

    let loop: EventLoop
    let settings: LinkSettings
    let codec: LinkCodec.Reader
    let spares: SpareBlocks
    let counters: LinkCounters
    private let batches: SpareBatches
    let ports: PeerStates
    private let relays: RelayTable
    private let relayEnds: SharedCount
    private let relayLoop: EventLoop
    private let currentNode: Lock<Int>
    private let news: Lock<LinkNews>
    private let tellNews: () -> Void
    private weak var receiver: (any LinkReceiver)?
    /// This gateway's number; 0 before `start`.
    private(set) var node = 0
    private var listener: Listener?
    private var outgoing: [Int: OutgoingLink] = [:]
    private var incoming: [Int: IncomingLink] = [:]
    private var strangers: [ObjectIdentifier: IncomingLink] = [:]
    /// The number of unidentified connections per gateway address; the empty key counts all other addresses.
    private var strangerCounts: [String: Int] = [:]

    private struct Inbox {
        var messages: [LoopMessage] = []
        var senders: [IncomingLink?] = []
        /// Notices that the full mailbox refused; no answer would report their loss, so they are offered again.
        var kept: [LoopMessage] = []
    }

    private struct HostInbox {
        var open: AnswerBatch?
        /// Batches that the full mailbox refused.
        var kept: [AnswerBatch] = []
        var isEmpty: Bool { open == nil && kept.isEmpty }
    }

    private var inboxes: [Inbox]
    private var touched: Set<Int> = []
    /// The inboxes, indexed by this gateway's host numbers.
    private var hostInboxes = Array(repeating: HostInbox(), count: Route.loopLimit)
    private var touchedHosts: Set<Int> = []
    private var isPaused = false

    init(
        loop: EventLoop, settings: LinkSettings, ports: PeerStates, spares: SpareBlocks, batches: SpareBatches,
        counters: LinkCounters, relays: RelayTable, relayEnds: SharedCount, relayLoop: EventLoop,
        currentNode: Lock<Int>, news: Lock<LinkNews>, tellNews: @escaping () -> Void
    ) {
        (self.loop, self.settings, self.ports, self.spares) = (loop, settings, ports, spares)
        (self.batches, self.counters, self.relays) = (batches, counters, relays)
        (self.relayEnds, self.relayLoop, self.currentNode) = (relayEnds, relayLoop, currentNode)
        (self.news, self.tellNews) = (news, tellNews)
        codec = LinkCodec.Reader(parts: settings.parts, spares: batches)
        inboxes = (0..<settings.parts).map { _ in Inbox() }
        loop.onTick { [unowned self] now in tick(now) }
        loop.onTurnEnd(.beforeFlush) { [unowned self] in handOver() }
        loop.onStop { [unowned self] in stop() }
    }

    func start(node: Int, socket: ListeningSocket.Handle, receiver: any LinkReceiver) throws(SystemError) {
        (self.node, self.receiver) = (node, receiver)
        listener = try Listener(on: loop, socket: socket.take()) { [unowned self] in accept($0) }
    }

    /// Changes the gateway's number, and closes all connections, because they identified it by the old number.
    func renumber(_ node: Int) {
        guard node != self.node else { return }
        self.node = node
        for link in outgoing.values { link.connection?.close(.staleNode, "the node has another number now") }
        for link in incoming.values { link.close(.staleNode, "the node has another number now") }
    }

    func hello(for wanted: Int) -> LinkHello {
        LinkHello(
            cluster: settings.cluster, node: node, instance: settings.instance, wanted: wanted,
            release: settings.release, version: settings.versions.version, lowestVersion: settings.versions.lowest,
            parts: settings.parts)
    }

    // MARK: Peers

    func setPeers(_ peers: [LinkPeer]) {
        var wanted: Set<Int> = []
        for peer in peers where peer.node != node && Self.nodes.contains(peer.node) {
            guard let address = LinkAddress(peer.address) else { continue }
            wanted.insert(peer.node)
            if let link = outgoing[peer.node] {
                link.move(to: address)
            } else {
                let link = OutgoingLink(self, node: peer.node, address: address, port: ports.make(peer.node))
                outgoing[peer.node] = link
                link.tick(loop.now)
            }
        }
        for (node, link) in outgoing where !wanted.contains(node) {
            outgoing[node] = nil
            link.stop("the node has left")
            relays.close(node)
        }
        news.withLock { $0.setPeers(Set(outgoing.keys)) }
    }

    /// Closes the relays to a silent node; the relayed devices reconnect and reach their current owner.
    func wentSilent(_ node: Int) { relays.close(node) }

    func linkEnded(_ node: Int) { news.withLock { $0.linkEnded(node, at: loop.now) } }

    func forget(part: Int, at node: Int) { outgoing[node]?.forget(part: part) }

    /// Resolves an address; `done` runs on the loop.
    func resolve(_ address: LinkAddress, done: @escaping ([RemoteAddress]) -> Void) {
        if let numeric = RemoteAddress.numeric(host: address.host, port: address.port) { return done([numeric]) }
        let (loop, bound) = (loop, LoopBound(done, on: loop))
        settings.names.ask(host: address.host, port: address.port) { outcome in
            loop.submit { bound.wrapped((try? outcome.get()) ?? []) }
        }
    }

    private func accept(_ connection: DetachedConnection) {
        // Unidentified connections cost TLS handshakes, so their number is bounded. Each gateway's address has its own bound, so
        // that neither strangers nor relayed devices prevent a link from reconnecting.
        let host = connection.peer.map { $0.host.hasPrefix("::ffff:") ? String($0.host.dropFirst(7)) : $0.host }
        let memberCount = host.map { host in outgoing.values.count { $0.hosts.contains(host) } } ?? 0
        let limit = memberCount > 0 ? memberCount * LinkLimits.memberStrangerCount : LinkLimits.strangerCount
        let place = memberCount > 0 ? host ?? "" : ""
        guard strangerCounts[place, default: 0] < limit else {
            counters.count(.refusedPeers)
            return connection.turnAway(with: UnsafeRawBufferPointer(start: nil, count: 0))
        }
        let link = IncomingLink(self, peerAddress: connection.peer?.description ?? "", place: place)
        strangerCounts[place, default: 0] += 1
        strangers[ObjectIdentifier(link)] = link
        link.attach(connection, serverName: nil)
    }

    func strangerLeft(_ link: IncomingLink) {
        guard strangers.removeValue(forKey: ObjectIdentifier(link)) != nil else { return }
        let count = strangerCounts[link.place, default: 0]
        strangerCounts[link.place] = count > 1 ? count - 1 : nil
    }

    /// Accepts a peer's link in place of its earlier one.
    ///
    /// - Returns: The peer's link state, or `nil` if another process uses the peer's number. The peer then receives a Close.
    func admit(_ link: IncomingLink, _ hello: LinkHello) -> PeerState? {
        if let earlier = incoming[hello.node], earlier !== link {
            guard earlier.peer?.instance == hello.instance || !earlier.isLively else {
                link.refuse(.duplicate, "another process is node \(hello.node)")
                return nil
            }
            incoming[hello.node] = nil
            earlier.close(.replaced, "a newer connection of the same node")
        }
        strangerLeft(link)
        incoming[hello.node] = link
        if isPaused { link.pauseReading() }
        let port = ports.make(hello.node)
        port.setAsking(true)
        tell(.heard(node: hello.node))
        return port
    }

    /// Closes the link of a node that reads its answers too slowly; the node then answers its questions as busy and reconnects.
    func dropAsker(_ node: Int) {
        incoming[node]?.close(.unavailable, "the answers to this gateway found no room: it reads too slowly")
    }

    func left(_ link: IncomingLink) {
        guard let node = link.peer?.node, incoming[node] === link else { return }
        incoming[node] = nil
        link.port?.setAsking(false)
    }

    /// Moves another gateway's trunk to the relay loop, so that device traffic does not delay links.
    func trunkArrived(_ connection: DetachedConnection, from peer: String) {
        guard let receiver else { return }
        let relayLoop = relayLoop
        let arrival = RelayTrunk.Arrival(
            node: { [node = currentNode] in node.withLock { $0 } }, ends: relayEnds,
            take: { [counters] connection, preamble in
                counters.count(.relays)
                receiver.relayArrived(connection, preamble)
            },
            fault: { [counters, loop] reason in
                counters.count(.refusedPeers)
                loop.submit { receiver.linkChanged(.refused(peer: peer, code: .malformed, reason: reason)) }
            })
        relayLoop.submit { _ = RelayTrunk(accepting: connection, on: relayLoop, arrival) }
    }

    func tell(_ event: LinkEvent) { receiver?.linkChanged(event) }

    // MARK: Out

    func send(_ parcels: [OutgoingBatch]) {
        for parcel in parcels {
            if parcel.isAnswers {
                // The link is down, so the node has answered its questions as busy itself.
                guard let link = incoming[parcel.node], link.closing == nil else {
                    ports[parcel.node]?.answersLeft(parcel.block)
                    spares.keep(parcel.block)
                    continue
                }
                link.send(parcel.block)
            } else if let link = outgoing[parcel.node] {
                link.send(parcel)
            } else {
                ports[parcel.node]?.leave(parcel.block)
                refuse(parcel)
            }
        }
    }

    func refuse(_ parcel: OutgoingBatch) {
        var count: UInt64 = 0
        LinkCodec.forEachAsked(in: parcel.block) { asked, _, _ in
            count += 1
            deliver(asked.busy)
        }
        for question in parcel.questions { deliver(.answered(question.origin, nil)) }
        for answer in parcel.refused { deliver(answer) }
        counters.count(.busyAnswers, count + UInt64(parcel.questions.count + parcel.refused.count))
        spares.keep(parcel.block)
    }

    // MARK: In

    func take(_ message: LoopMessage, part: Int, from link: IncomingLink) {
        if case .news(let news) = message {
            receiver?.receive(news)
            return
        }
        var message = message
        message.setAsker(link.peer?.node ?? 0)
        inboxes[part].messages.append(message)
        inboxes[part].senders.append(link)
        touched.insert(part)
    }

    func deliver(_ answer: LoopAnswer) {
        guard let host = Route(answer.origin.route)?.loop else { return }
        let batch = hostInboxes[host].open ?? batches.takeAnswers()
        batch.append(answer)
        hostInboxes[host].open = batch
        touchedHosts.insert(host)
    }

    /// Moves the turn's messages and answers to the mailboxes.
    private func handOver() {
        guard !touched.isEmpty || !touchedHosts.isEmpty else { return }
        // A link that ends during this call creates answers for the next turn.
        let (parts, hosts) = (touched, touchedHosts)
        (touched, touchedHosts) = ([], [])
        for host in hosts { handOver(toHost: host) }
        for part in parts.sorted() { handOver(part) }
        pauseOrResume()
    }

    private func handOver(toHost host: Int) {
        // Earlier batches that a full mailbox refused come first.
        var batches = hostInboxes[host].kept
        if let open = hostInboxes[host].open { batches.append(open) }
        var taken = 0
        while taken < batches.count, receiver?.receive(batches[taken], forHost: host) ?? true { taken += 1 }
        hostInboxes[host] = HostInbox(kept: Array(batches[taken...]))
    }

    private func handOver(_ part: Int) {
        var kept: [LoopMessage] = []
        swap(&kept, &inboxes[part].kept)
        let keptCount = kept.count
        // Earlier messages that a full mailbox refused come first.
        var messages = kept
        messages += inboxes[part].messages
        let senders = inboxes[part].senders
        inboxes[part].messages.removeAll(keepingCapacity: true)
        inboxes[part].senders.removeAll(keepingCapacity: true)
        let count = messages.count
        receiver?.receive(&messages, forPart: part)
        guard !messages.isEmpty else { return }
        let takenCount = count - messages.count
        for (index, message) in messages.enumerated() {
            let place = takenCount + index - keptCount
            switch message {
            case .request where message.isNotice: inboxes[part].kept.append(message)
            default: if place >= 0, let sender = senders[place] { answerBusy(message, to: sender) }
            }
        }
    }

    /// Answers a message as busy because the partition's mailbox is full.
    private func answerBusy(_ message: LoopMessage, to link: IncomingLink) {
        let answers = batches.takeAnswers()
        for answer in message.busyAnswers { answers.append(answer) }
        counters.count(.busyAnswers, UInt64(message.busyAnswers.count))
        let block = spares.take()
        LinkCodec.encode(answers, into: block)
        batches.keep(answers)
        link.send(block)
    }

    /// Pauses reading on all links while too many messages and answers are undelivered.
    private func pauseOrResume() {
        let waiting = inboxes.reduce(0) { $0 + $1.kept.count } + hostInboxes.reduce(0) { $0 + $1.kept.count }
        let mustPause = waiting > LinkLimits.undeliveredCount
        guard mustPause != isPaused else { return }
        isPaused = mustPause
        let connections: [LinkConnection] = outgoing.values.compactMap(\.connection) + Array(incoming.values)
        for connection in connections {
            if mustPause { connection.pauseReading() } else { connection.resumeReading() }
        }
    }

    // MARK: Time and end

    private func tick(_ now: UInt64) {
        for link in outgoing.values { link.tick(now) }
        for link in incoming.values { link.tick(now) }
        tellNews()
        for part in inboxes.indices where !inboxes[part].kept.isEmpty { touched.insert(part) }
        for host in hostInboxes.indices where !hostInboxes[host].isEmpty { touchedHosts.insert(host) }
    }

    private func stop() {
        for link in outgoing.values { link.stop("the gateway stops") }
        outgoing = [:]
        for link in incoming.values { link.close(.unavailable, "the gateway stops") }
        handOver()
    }
}

/// The link states of all nodes; can be used from any thread.
final class PeerStates: Sendable {
    /// The lease state that this gateway's heartbeats report.
    private let ownLease = Atomic<UInt8>(0)
    private let ports = Lock<[PeerState?]>(Array(repeating: nil, count: PeerConnections.nodes.upperBound + 1))

    func setLease(_ lease: LinkFrame.Lease) { ownLease.store(lease.rawValue, ordering: .relaxed) }
    var lease: LinkFrame.Lease { LinkFrame.Lease(rawValue: ownLease.load(ordering: .relaxed)) ?? .unstated }

    subscript(node: Int) -> PeerState? {
        guard PeerConnections.nodes.contains(node) else { return nil }
        return ports.withLock { $0[node] }
    }

    /// Returns the node's link state, creating it if needed; `node` must be in `PeerConnections.nodes`.
    func make(_ node: Int) -> PeerState {
        ports.withLock { ports in
            if let port = ports[node] { return port }
            let port = PeerState(node: node)
            ports[node] = port
            return port
        }
    }
}
