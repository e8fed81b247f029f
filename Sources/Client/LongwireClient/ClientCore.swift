package import Wire

// The client without its socket: bytes, time and the app's calls go in, actions come out.
//
// Phases and who moves between them:
//   idle       → connecting (start)
//   connecting → greeting (connected) | waiting (disconnected, deadline)
//   greeting   → ready (Welcome) | waiting, connecting or stopped (Close, disconnected, deadline)
//   ready      → waiting, connecting or stopped (Close, disconnected, a Ping without answer)
//   waiting    → connecting (deadline)
//   stopped    → connecting (start)
//
// The order that must hold: a handler returns, then the state is stored, then the ack leaves. Actions are performed in
// their order, so `endTurn` queues `persist` before the Ack's `send`; when storing fails the rest of the queue is
// thrown away with the connection.

/// The two clocks, in milliseconds; `monotonic` goes on while the machine sleeps.
package struct ClientTime: Equatable, Sendable {
    package var monotonic: Int64
    package var wall: Int64

    package init(monotonic: Int64, wall: Int64) { (self.monotonic, self.wall) = (monotonic, wall) }
}

package struct Endpoint: Equatable, Sendable, CustomStringConvertible {
    /// A name, or a numeric address without brackets.
    package var host: String
    package var port: UInt16

    package init(host: String, port: UInt16) {
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]") && host.contains(":")
        (self.host, self.port) = (isBracketed ? String(host.dropFirst().dropLast()) : host, port)
    }

    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// What the owner of the core does, in order.
package enum ClientAction: Equatable {
    case connect(Endpoint)
    case send([UInt8])
    /// Flush what can be flushed, then close. The core has moved on already and expects no `disconnected`.
    case disconnect
    case persist(ClientState)
    /// Call the app's handler, then `finish`.
    case handle(ReceivedMessage)
    /// Take back what no loop of the app has: it comes again, with flags computed anew. Each one is `deferred`.
    case withdraw
    /// Tell the app that this task is withdrawn, then `finishRevoke`.
    case revoke(TaskID, sequence: UInt64)
    case report(ClientEvent)
}

/// The app's calls.
package enum ClientCommand: Equatable, Sendable {
    case applicationState(ApplicationState, keepsRunning: Bool)
    case badge(Int32)
    case token(VendorToken)
    case pushModeOff(Bool)
    case heartbeat(seconds: UInt32)
    case opened(MessageID)
    case report(MessageReport)
    /// A message to the app's server.
    case send([UInt8], answering: TaskID)
    /// Bring what the gateway holds, also from the background, and say so with `fetched`.
    case fetch(milliseconds: Int64)
    /// A loop of the app has decided.
    case finish(ReceivedMessage, MessageVerdict)
    /// The system has a network; `nil`: it may be any.
    case networkChanged(name: String?)
    case stop
}

package struct ClientCore {
    package enum Phase: Equatable {
        case idle
        case connecting(deadline: Int64)
        case greeting(deadline: Int64)
        case ready
        case waiting(until: Int64)
        case stopped
    }

    /// Which deliveries are dropped un-acked (docs/Semantics.md, "Reachability and fallback").
    enum DropRule: Equatable {
        case none
        /// Suspended; no DeviceUpdate since.
        case untilNextUpdate
        case untilResult(of: UInt32)
    }

    package var configuration: ClientConfiguration
    let cryptography: any ClientCryptography

    package var phase = Phase.idle
    package var state: ClientState
    package var actions: [ClientAction] = []

    // The connection.
    var reader = FrameReader()
    var endpoint: Endpoint
    var lastSentAt: Int64 = 0
    var pingSentAt: Int64?
    var nextNonce: UInt64 = 1
    var heartbeatMilliseconds = Limits.defaultHeartbeatSeconds * 1_000
    var heartbeat = HeartbeatPlan()
    /// The name of the network that the plan is of.
    var network = ""
    var lastReceivedAt: Int64 = 0
    /// The Ping on its way follows a silence of a whole heartbeat in both directions.
    var isProbing = false
    var welcomedAt: Int64 = 0
    /// What the current Hello carried, to be settled by its Welcome.
    var greeted = Greeting()

    // Messages.
    /// Ascending, by stream: received in this session and not processed.
    var holes: [UInt32: [UInt64]] = [:]
    /// Given to the app, which has not decided yet: another copy read meanwhile is not given to it again.
    var handling: [Handling] = []
    /// Rejections of this turn.
    var pendingRejections: [Rejected] = []
    /// Rejections sent, confirmed by the Pong behind them: the gateway handles frames in order.
    var sentRejections: [(nonce: UInt64, rejections: [Rejected])] = []
    /// Tokens that the app set while there was no session.
    var renewedTokens: [VendorToken] = []
    var owesAck = false
    var isDirty = false
    var dropRule = DropRule.none

    // What the app wants the gateway to know.
    var nextRequest: UInt32 = 1
    /// Updates without a result yet; what Hello cannot carry is said again after a reconnect.
    var pendingUpdates: [UInt32: DeviceUpdate] = [:]
    var pendingBadge: Int32?
    var pushModeOff: Bool?
    /// Feedback sent, settled by the Pong behind it: frames are answered in order.
    var sentReports: (nonce: UInt64, opened: [MessageID], others: [MessageReport])?
    var fetch: Fetch?
    var outgoing = Outgoing()

    // Coming back.
    var backoff: Backoff
    /// The gateway, not the backoff, named the time of the current wait.
    var isWaitNamed = false
    var skewRetryCount = 0
    var correctionCount = 0
    /// Registrations that were lost since a session last lasted.
    var lossCount = 0

    struct Fetch {
        var until: Int64
        /// When the silence of the gateway will have lasted long enough; `nil`: there is no session yet.
        var quietAt: Int64?
        var messageCount = 0
        /// The fetch, not the app, keeps it running.
        var ownsRunning = false

        var deadline: Int64 { min(until, quietAt ?? until) }
    }

    struct Handling: Equatable {
        var origin: ReceivedMessage.Origin
        var stream: UInt32
        var sequence: UInt64
        var byteCount = 0
        /// This session has not sent it (again).
        var isOfEarlierSession = false

        func isOf(_ message: ReceivedMessage) -> Bool {
            (origin, stream, sequence) == (message.origin, message.stream, message.sequence)
        }
    }

    struct Greeting {
        var timestamp: UInt64 = 0
        var opened: [MessageID] = []
        var badge: Int32?
        var applicationState = ApplicationState.foreground
        var keepsRunning = false
        var tokens: [VendorToken] = []
    }

    package init(
        configuration: ClientConfiguration, state: ClientState?, cryptography: any ClientCryptography, seed: UInt64
    ) {
        self.configuration = configuration
        self.cryptography = cryptography
        endpoint = Endpoint(host: configuration.host, port: configuration.port)
        pushModeOff = configuration.pushModeOff
        backoff = Backoff(seed: seed)
        pendingBadge = configuration.badge
        if let state, state.appID == configuration.appID {
            self.state = state
        } else {
            self.state = ClientState(appID: configuration.appID)
        }
        // Until the system says otherwise it is the network of the last time.
        network = self.state.heartbeats.last?.network ?? ""
        heartbeat = self.state.heartbeat(on: network)
    }

    /// When `wake` wants to be called, in monotonic milliseconds.
    package var deadline: Int64? {
        [fetch?.deadline, phaseDeadline, phase == .ready ? outgoing.retryAt : nil].compactMap { $0 }.min()
    }

    private var phaseDeadline: Int64? {
        switch phase {
        case .idle, .stopped: nil
        case .connecting(let deadline), .greeting(let deadline): deadline
        case .waiting(let until): until
        case .ready:
            if let pingSentAt { pingSentAt + Limits.pongMilliseconds } else { lastSentAt + heartbeatMilliseconds }
        }
    }

    package var isStopped: Bool { phase == .stopped }

    package var hasActions: Bool { !actions.isEmpty }

    package mutating func takeActions() -> [ClientAction] {
        var taken: [ClientAction] = []
        swap(&taken, &actions)
        return taken
    }

    // MARK: The connection's phases

    package mutating func start(at now: ClientTime) {
        switch phase {
        case .idle, .stopped: connect(at: now)
        default: break
        }
    }

    mutating func connect(at now: ClientTime) {
        reader.reset()
        phase = .connecting(deadline: now.monotonic + Limits.connectMilliseconds)
        actions.append(.report(.connecting(host: endpoint.host, port: endpoint.port)))
        actions.append(.connect(endpoint))
    }

    package mutating func connected(at now: ClientTime) {
        guard case .connecting = phase else { return }
        holes = [:]
        for index in handling.indices { handling[index].isOfEarlierSession = true }
        (pendingRejections, sentRejections) = ([], [])
        phase = .greeting(deadline: now.monotonic + Limits.welcomeMilliseconds)
        sendHello(at: now)
    }

    /// The socket failed, or the gateway closed it without saying why.
    package mutating func disconnected(reason: String, at now: ClientTime) {
        switch phase {
        case .idle, .stopped, .waiting: return
        case .connecting, .greeting, .ready: break
        }
        actions.append(.report(.disconnected(reason: reason)))
        if isProbing, phase == .ready {
            heartbeat.lost(after: UInt32(clamping: heartbeatMilliseconds / 1_000))
            keepHeartbeat()
        }
        retry(at: now, error: LongwireClientError(code: .unreachable, message: reason))
    }

    /// The time that `deadline` named has come.
    package mutating func wake(at now: ClientTime) {
        if let fetch, now.monotonic >= fetch.deadline { endFetch(at: now) }
        if outgoing.retryAt != nil { sendOutgoing(at: now) }
        guard let phaseDeadline, now.monotonic >= phaseDeadline else { return }
        switch phase {
        case .idle, .stopped: break
        case .waiting: connect(at: now)
        case .connecting: abandon("no connection within \(Limits.connectMilliseconds / 1_000) s", at: now)
        case .greeting: abandon("no Welcome within \(Limits.welcomeMilliseconds / 1_000) s", at: now)
        case .ready:
            if pingSentAt != nil {
                abandon("a Ping was not answered within \(Limits.pongMilliseconds / 1_000) s", at: now)
            } else {
                isProbing = now.monotonic - lastReceivedAt >= heartbeatMilliseconds * 9 / 10
                sendPing(at: now)
            }
        }
    }

    /// Nothing was acked of what was processed since the last `persist`.
    ///
    /// This process remembers it all the same, and the next Hello stores it first.
    ///
    /// `skipped` are the actions behind the one that failed: they are not done.
    package mutating func persistFailed(
        _ error: LongwireClientError, skipping skipped: some Sequence<ClientAction>, at now: ClientTime
    ) {
        for action in Array(skipped) + actions {
            switch action {
            case .handle(let message): handling.removeAll { $0.isOf(message) }
            case .revoke(_, let sequence): handling.removeAll { ($0.stream, $0.sequence) == (0, sequence) }
            default: break
            }
        }
        actions.removeAll()
        // Not dirty, or the end of this very turn would try again, for ever.
        isDirty = false
        actions.append(.report(.stateNotStored(error)))
        actions.append(.disconnect)
        switch phase {
        case .idle, .waiting: break
        case .stopped: actions.append(.report(.stopped(error)))
        case .connecting, .greeting, .ready: retry(at: now, error: error)
        }
    }

    mutating func stop(at now: ClientTime, error: LongwireClientError? = nil) {
        guard phase != .stopped else { return }
        if phase == .ready {
            endTurn(at: now)
            var close = Close()
            close.code = CloseCode.goodbye.rawValue
            close.reason = "the client stops"
            send(close, at: now)
        }
        halt(error)
    }

    /// Closes and stays closed.
    mutating func halt(_ error: LongwireClientError?) {
        actions.append(.disconnect)
        leaveSession()
        phase = .stopped
        fetch = nil
        actions.append(.report(.stopped(error)))
    }

    mutating func abandon(_ reason: String, at now: ClientTime) {
        actions.append(.disconnect)
        disconnected(reason: reason, at: now)
    }

    /// Forgets what belongs to one connection only.
    ///
    /// The holes stay until the next connection: handlers of what this one brought may still have to return.
    mutating func leaveSession() {
        if !handling.isEmpty { actions.append(.withdraw) }
        reader.reset()
        owesAck = false
        pingSentAt = nil
        isProbing = false
        sentReports = nil
        fetch?.quietAt = nil
        pendingUpdates = [:]
        outgoing = Outgoing()
    }

    // MARK: Sending

    mutating func send(_ message: some WireMessage, at now: ClientTime) {
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        actions.append(.send(bytes))
        lastSentAt = now.monotonic
    }

    @discardableResult
    mutating func sendPing(at now: ClientTime) -> UInt64 {
        let nonce = nextNonce
        nextNonce &+= 1
        send(Ping(nonce: nonce), at: now)
        if pingSentAt == nil { pingSentAt = now.monotonic }
        return nonce
    }
}
