internal import EventLoops
internal import Platform
internal import Wire

/// Connects the hosts to the links: passes messages to the hub, and received messages to the hosts' mailboxes.
final class ClusterLinks: GatewayLinks, LinkReceiver, @unchecked Sendable {
    // Sound because `context` is set once, before the hub starts; other mutable state is synchronized.

    /// The transport; `nil` without links to other gateways.
    let hub: ClusterTransport?
    private let changed = Lock<@Sendable (LinkEvent) -> Void>({ _ in })
    private let nudged = Lock<@Sendable () -> Void>({})
    private var context: GatewayContext?
    private var mailboxes: [Mailbox<Mail>] = []

    init(_ hub: ClusterTransport?) { self.hub = hub }

    /// Starts to accept and to make links; `changed` is called on the link loop.
    func start(
        _ context: GatewayContext, node: Int, mailboxes: [Mailbox<Mail>],
        changed: @escaping @Sendable (LinkEvent) -> Void, nudged: @escaping @Sendable () -> Void
    ) throws {
        (self.context, self.mailboxes) = (context, mailboxes)
        self.changed.withLock { $0 = changed }
        self.nudged.withLock { $0 = nudged }
        try hub?.start(node: node, receiver: self)
    }

    func stop() { hub?.stop() }

    func renumber(_ node: Int) { hub?.renumber(node) }

    /// Asks another gateway to read the register now instead of at its next poll.
    func nudge(_ node: Int) {
        var messages = [LoopMessage.news(.registerChanged)]
        _ = hub?.send(&messages, part: 0, to: node)
    }

    func setPeers(_ all: [Int: String]) {
        hub?.setPeers(all.map { LinkPeer(node: $0.key, address: $0.value) })
    }

    // MARK: Out

    func send(_ messages: inout [LoopMessage], part: Int, to node: Int) -> Bool {
        hub?.send(&messages, part: part, to: node) ?? false
    }

    func send(_ answers: AnswerBatch, loop: Int, to node: Int) -> Bool {
        hub?.send(answers, loop: loop, to: node) ?? false
    }

    func forget(part: Int, at node: Int) { hub?.forget(part: part, at: node) }

    func tell(_ news: GatewayNews) { hub?.tell(news) }

    var relayEndCount: Int { hub?.relayEndCount ?? 0 }

    func relay(
        _ connection: DetachedConnection, hello: AdoptedHello, isSecure: Bool, to node: Int, on loop: EventLoop,
        ended: @escaping () -> Void
    ) {
        guard let hub else {
            connection.turnAway(with: UnsafeRawBufferPointer(start: nil, count: 0))
            return ended()
        }
        hub.relay(connection, hello: hello, isSecure: isSecure, to: node, on: loop, ended: ended)
    }

    func endRelays(_ count: Int, on loop: EventLoop) -> Int { hub?.endRelays(count, on: loop) ?? 0 }

    // MARK: In

    func receive(_ messages: inout [LoopMessage], forPart part: Int) {
        guard !mailboxes.isEmpty else { return }
        let mailbox = mailboxes[part % mailboxes.count]
        var taken = 0
        while taken < messages.count, mailbox.send(Mail(messages[taken], partition: part)) { taken += 1 }
        messages.removeFirst(taken)
    }

    func receive(_ answers: AnswerBatch, forHost host: Int) -> Bool {
        // An answer for an unknown host belongs to no question of this gateway and is dropped.
        guard mailboxes.indices.contains(host) else { return true }
        return mailboxes[host].send(Mail(.answers(answers)))
    }

    func receive(_ news: GatewayNews) {
        if case .registerChanged = news { nudged.withLock { $0 }() } else { context?.tellAll { $0.take(news) } }
    }

    func linkChanged(_ event: LinkEvent) { changed.withLock { $0 }(event) }

    func relayArrived(_ connection: DetachedConnection, _ preamble: RelayPreamble) {
        guard let context else { return }
        let part = preamble.device.bucket.loop(of: context.partitionCount)
        let adopted = AdoptedConnection(
            connection: connection, isSecure: preamble.isSecure, hello: preamble.device, isRelayed: true)
        // A full mailbox closes the connection; the device reconnects after its own backoff.
        _ = mailboxes[part % mailboxes.count].send(Mail(.adopt(adopted)))
    }
}
