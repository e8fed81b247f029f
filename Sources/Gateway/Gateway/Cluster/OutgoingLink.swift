internal import Delivery
internal import EventLoops
internal import Platform
internal import Wire

/// This gateway's link to another gateway: connects, reconnects, sends questions and receives their answers.
///
/// States: paused (until a time) → resolving → connecting → identifying → up, and from each of them back to paused. A link that
/// breaks while it is up reconnects at once. A refused reconnect suggests a dead process, and a timeout suggests a network
/// failure.
final class OutgoingLink {
    private enum State {
        case paused(until: UInt64)
        case resolving(until: UInt64)
        /// Connecting or identifying.
        case trying(Connection)
        case up(Connection)
        case over
    }

    final class Connection: LinkConnection {
        /// Weak because a closing connection may outlast its link.
        private weak var link: OutgoingLink?
        private let port: PeerState

        init(_ link: OutgoingLink) {
            (self.link, port) = (link, link.port)
            super.init(link.peerConnections)
        }

        override var countingPort: PeerState? { port }
        override func handshakeFinished(_ stream: ByteStream) {
            send(.hello, peerConnections.hello(for: port.node).bytes)
        }
        override func take(_ frame: LinkFrame) throws(LinkFault) -> Bool { try link?.take(frame, on: self) ?? true }
        override func ended(_ reason: CloseReason) { link?.ended(self, reason) }
        override func wentSilent() { peerConnections.wentSilent(port.node) }
        override func closes() { link?.ended(self, .closedHere) }
        override func released(_ block: LinkBlock) {
            port.leave(block)
            super.released(block)
        }
    }

    unowned let peerConnections: PeerConnections
    let node: Int
    let port: PeerState
    private var address: LinkAddress
    private var state = State.paused(until: 0)
    private var resolved: [RemoteAddress] = [] {
        didSet { if !resolved.isEmpty { hosts = Set(resolved.map(\.host)) } }
    }
    private(set) var hosts: Set<String> = []
    private var tries = 0
    private var upSince: UInt64 = 0
    private var questions = LinkQuestions()
    /// The state in the last reported event; `nil` before the first one.
    private var told: (isUp: Bool, wasRefused: Bool)?
    /// The peer's Close on the last connection, if any.
    private var lastWord: LinkClose?

    init(_ peerConnections: PeerConnections, node: Int, address: LinkAddress, port: PeerState) {
        (self.peerConnections, self.node, self.address, self.port) = (peerConnections, node, address, port)
    }

    var questionCount: Int { questions.count }
    var connection: Connection? {
        switch state {
        case .trying(let connection), .up(let connection): connection
        case .paused, .resolving, .over: nil
        }
    }

    // MARK: Connecting

    func move(to address: LinkAddress) {
        guard address != self.address else { return }
        self.address = address
        resolved = []
        port.setAddresses([])
        // The pending resolution of the previous address is ignored.
        if case .resolving = state { state = .paused(until: peerConnections.loop.now) }
        connection?.close(.unavailable, "the node's address has changed")
    }

    private func connect() {
        guard resolved.isEmpty else { return connectNow() }
        state = .resolving(until: peerConnections.loop.now + peerConnections.settings.times.silenceMilliseconds)
        peerConnections.resolve(address) { [weak self, address] addresses in
            guard let self, case .resolving = state, address == self.address else { return }
            found(addresses, orElse: "\(address) has no address")
        }
    }

    /// Connects to the resolved addresses, or to the last known addresses of the name if the resolution failed.
    private func found(_ addresses: [RemoteAddress], orElse reason: String) {
        resolved =
            addresses.isEmpty ? peerConnections.settings.names.known(host: address.host, port: address.port) : addresses
        port.setAddresses(resolved)
        if resolved.isEmpty { down(wasRefused: false, reason) } else { connectNow() }
    }

    private func connectNow() {
        let target = resolved[tries % resolved.count]
        lastWord = nil
        do throws(SystemError) {
            let detached = try DetachedConnection(connectingTo: target)
            let connection = Connection(self)
            state = .trying(connection)
            connection.attach(detached, serverName: PeerConnections.serverName)
        } catch {
            down(wasRefused: error.isConnectionRefused, "\(error)")
        }
    }

    func tick(_ now: UInt64) {
        switch state {
        case .paused(let time): if now >= time { connect() }
        case .up(let connection), .trying(let connection): connection.tick(now)
        case .resolving(let end):
            if now >= end { found([], orElse: "the name server does not answer for \(address)") }
        case .over: break
        }
        questions.trim()
    }

    // MARK: Frames

    private func take(_ frame: LinkFrame, on connection: Connection) throws(LinkFault) -> Bool {
        switch (frame.kind, state) {
        case (.close, _):
            lastWord = LinkClose(frame.body) ?? LinkClose(code: .malformed, reason: "the peer closed the link")
            connection.stream?.close(.endOfStream)
        case (.heartbeat, .up): port.setLease(frame.lease)
        case (.hello, .trying):
            guard let hello = LinkHello(frame.body) else { throw .malformed("the peer's Hello cannot be read") }
            guard hello.node == node, hello.cluster == peerConnections.settings.cluster,
                hello.parts == peerConnections.settings.parts,
                peerConnections.settings.versions.common(with: hello.versions) != nil
            else { throw .malformed("the peer is not the expected node") }
            connection.identified()
            up(connection, hello)
        case (.published, .up):
            let isRead = LinkCodec.forEachPublished(in: frame.body) { answer in
                guard case .published(let origin, let outcome) = answer else { return }
                // An answer without a pending question is late or unknown, and is dropped.
                guard questions.take(origin, outcome.cid) else { return peerConnections.counters.count(.strayAnswers) }
                peerConnections.deliver(answer)
            }
            // The error closes the link, which answers the remaining questions as busy.
            guard isRead else { throw .malformed("an answer cannot be read") }
            port.setQuestions(questions.count)
        case (.answer, .up):
            guard let (origin, bytes) = LinkCodec.answer(in: frame.body) else {
                throw .malformed("an answer cannot be read")
            }
            guard let question = questions.take(origin) else {
                peerConnections.counters.count(.strayAnswers)
                break
            }
            let answer = bytes.flatMap { LinkCodec.answer(to: question.type, $0) }
            if answer == nil, bytes != nil { peerConnections.counters.count(.unreadMessages) }
            peerConnections.deliver(.answered(question.origin, answer))
            port.setQuestions(questions.count)
        case (.unread, .up):
            guard let number = frame.body.count >= 4 ? frame.body.loadUnaligned(as: UInt32.self) : nil else {
                throw .malformed("a number is missing")
            }
            peerConnections.counters.count(.unreadMessages)
            answerBusy(questions.takeBusy(number: UInt32(littleEndian: number)))
        default: throw .malformed("a frame of kind \(frame.kind) does not belong here")
        }
        return true
    }

    private func up(_ connection: Connection, _ hello: LinkHello) {
        state = .up(connection)
        upSince = peerConnections.loop.now
        told = (true, false)
        port.setUp(true)
        peerConnections.tell(.up(node: node, release: hello.release))
    }

    // MARK: Messages

    /// Sends an encoded block; answers its questions as busy if the link is down.
    func send(_ parcel: OutgoingBatch) {
        guard case .up(let connection) = state else { return refuse(parcel) }
        LinkCodec.forEachAsked(in: parcel.block) { asked, number, part in
            questions.add(asked, number: number, part: part)
        }
        for question in parcel.questions { questions.add(question) }
        port.setQuestions(questions.count)
        connection.send(parcel.block)
        for answer in parcel.refused { peerConnections.deliver(answer) }
    }

    private func refuse(_ parcel: OutgoingBatch) {
        port.leave(parcel.block)
        peerConnections.refuse(parcel)
    }

    /// Answers the questions to a moved partition as busy, because this node will not answer them.
    func forget(part: Int) { answerBusy(questions.takeBusy(part: part)) }

    private func answerBusy(_ answers: [LoopAnswer]) {
        port.setQuestions(questions.count)
        peerConnections.counters.count(.busyAnswers, UInt64(answers.count))
        for answer in answers { peerConnections.deliver(answer) }
    }

    // MARK: End

    private func ended(_ connection: Connection, _ reason: CloseReason) {
        guard self.connection === connection else { return }
        var wasRefused = false
        if case .failed(let error) = reason { wasRefused = error.isConnectionRefused }
        down(wasRefused: wasRefused, (lastWord ?? connection.closing).map { "\($0)" } ?? "\(reason)")
    }

    /// Answers all questions as busy and schedules the next attempt.
    private func down(wasRefused: Bool, _ reason: String) {
        if case .over = state { return }
        let wasUp = if case .up = state { true } else { false }
        if wasUp { peerConnections.linkEnded(node) }
        let times = peerConnections.settings.times
        // The first retry is immediate; later ones use exponential backoff with jitter. A link that breaks soon after it came up
        // continues the backoff.
        if wasUp, peerConnections.loop.now >= upSince + times.silenceMilliseconds { tries = 0 }
        let doubled = times.firstPauseMilliseconds << UInt64(min(max(0, tries - 1), 16))
        let pause = tries == 0 ? 0 : min(times.longestPauseMilliseconds, doubled)
        tries += 1
        if !wasUp { resolved = tries % max(1, resolved.count) == 0 ? [] : resolved }
        state = .paused(until: peerConnections.loop.now + pause / 2 + UInt64.random(in: 0...pause / 2))
        port.setUp(false)
        answerBusy(questions.takeBusy())
        if told?.isUp ?? true || (wasRefused && told?.wasRefused == false) {
            told = (false, wasRefused)
            peerConnections.tell(.down(node: node, wasRefused: wasRefused, reason: reason))
        }
    }

    func stop(_ reason: String) {
        let connection = connection
        state = .over
        port.setUp(false)
        connection?.close(.unavailable, reason)
        answerBusy(questions.takeBusy())
    }
}

extension LinkHello {
    var versions: LinkVersions { LinkVersions(version: version, lowest: lowestVersion) }
}
