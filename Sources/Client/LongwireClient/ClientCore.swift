package import Wire

// The client's state machine, without I/O: bytes, time and the app's calls go in, actions come out.
//
// Phases and their transitions:
//   idle       → connecting (start)
//   connecting → greeting (connected) | waiting (disconnected, deadline)
//   greeting   → ready (Welcome) | waiting, connecting or stopped (Close, disconnected, deadline)
//   ready      → waiting, connecting or stopped (Close, disconnected, a Ping without answer)
//   waiting    → connecting (deadline)
//   stopped    → connecting (start)
//
// Required order: a handler returns, the state is stored, the ack is sent. Actions run in their order, so `endTurn` queues
// `persist` before the Ack's `send`. If storing fails, the remaining actions are discarded and the connection is closed.

/// The two clocks, in milliseconds; `monotonic` includes the time that the machine sleeps.
package struct ClientTime: Equatable, Sendable {
    package var monotonic: Int64
    package var wall: Int64

    package init(monotonic: Int64, wall: Int64) { (self.monotonic, self.wall) = (monotonic, wall) }
}

package struct Endpoint: Equatable, Sendable, CustomStringConvertible {
    /// A host name, or a numeric address without brackets.
    package var host: String
    package var port: UInt16

    package init(host: String, port: UInt16) {
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]") && host.contains(":")
        (self.host, self.port) = (isBracketed ? String(host.dropFirst().dropLast()) : host, port)
    }

    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// An action that the owner of the core performs; actions are performed in order.
package enum ClientAction: Equatable {
    case connect(Endpoint)
    case send([UInt8])
    /// Flush and close the connection; the core already left the session and does not expect `disconnected`.
    case disconnect
    case persist(ClientState)
    /// Call the app's handler, then `finish`.
    case handle(ReceivedMessage)
    /// Take back the messages that no loop over `messages` has received, and finish each as `deferred`; the gateway delivers them
    /// again.
    case withdraw
    /// Report to the app that this task is revoked, then call `finishRevoke`.
    case revoke(TaskID, sequence: UInt64)
    case report(ClientEvent)
}

package enum ClientCommand: Equatable, Sendable {
    case applicationState(ApplicationState, keepsRunning: Bool)
    case badge(Int32)
    case token(VendorToken)
    case pushModeOff(Bool)
    case heartbeat(seconds: UInt32)
    case attributes(DeviceAttributes?)
    case opened(MessageID)
    /// A tap to keep until the app calls `takeTaps`.
    case tapped(PushNotification)
    case tapsTaken([MessageID])
    case report(MessageReport)
    case send([UInt8], answering: TaskID)
    case names(DeviceNames)
    /// Receive the queued messages, also in the background, and report `fetched` at the end.
    case fetch(milliseconds: Int64)
    case finish(ReceivedMessage, MessageVerdict)
    /// A network became usable; `nil` if its name is unknown.
    case networkChanged(name: String?)
    /// A connection test or a shorter backoff, because a push has shown that its message did not arrive.
    case checkConnection
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

    /// The rule for dropping deliveries without an ack (docs/Semantics.md, "Reachability and fallback").
    enum DropRule: Equatable {
        case none
        /// The app is suspended and has sent no DeviceUpdate since.
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
    /// The name of the network that `heartbeat` belongs to.
    var network = ""
    var lastReceivedAt: Int64 = 0
    /// Whether the Ping in flight follows a silence of the gateway of at least 90 % of the heartbeat.
    var isProbing = false
    var welcomedAt: Int64 = 0
    /// The values of the last Hello, confirmed by its Welcome.
    var greeted = Greeting()

    // Messages.
    /// Sequences by stream, ascending, that this session received and the app has not processed.
    var holes: [UInt32: [UInt64]] = [:]
    /// Messages that the app has and has not decided on; a second copy is not handed to the app.
    var handling: [Handling] = []
    /// Rejections to send at the end of this turn.
    var pendingRejections: [Rejected] = []
    /// Rejections in flight; the Pong to the Ping after them confirms them, because the gateway handles frames in order.
    var sentRejections: [(nonce: UInt64, rejections: [Rejected])] = []
    /// Tokens that the app set without a session.
    var renewedTokens: [VendorToken] = []
    var owesAck = false
    var isDirty = false
    /// Whether the last write of the state failed.
    var owesWrite = false
    var dropRule = DropRule.none

    // The app's settings and reports for the gateway.
    var nextRequest: UInt32 = 1
    /// Updates in flight; values that Hello cannot carry are sent again after a reconnect.
    var pendingUpdates: [UInt32: DeviceUpdate] = [:]
    var pendingBadge: Int32?
    var pushModeOff: Bool?
    /// Feedback in flight; the Pong to the Ping after it confirms it, because the gateway handles frames in order.
    var sentReports: (nonce: UInt64, opened: [MessageID], others: [MessageReport])?
    var fetch: Fetch?
    var outgoing = Outgoing()
    var names: Names

    // Reconnecting.
    var backoff: Backoff
    /// Whether the gateway, not the backoff, set the current delay.
    var isWaitNamed = false
    var skewRetryCount = 0
    var correctionCount = 0
    /// The number of lost registrations since the last session of at least `Limits.steadyMilliseconds`.
    var lossCount = 0

    struct Fetch {
        var until: Int64
        /// The time when the gateway's silence completes the fetch, or `nil` without a session.
        var quietAt: Int64?
        var messageCount = 0
        /// Whether the fetch, not the app, set `keepsRunning`.
        var ownsRunning = false

        var deadline: Int64 { min(until, quietAt ?? until) }
    }

    struct Handling: Equatable {
        var origin: ReceivedMessage.Origin
        var stream: UInt32
        var sequence: UInt64
        var byteCount = 0
        /// Whether an earlier session delivered this message and the current one has not yet.
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
        names = Names(token: configuration.registrationToken)
        backoff = Backoff(seed: seed)
        pendingBadge = configuration.badge
        if let state, state.appID == configuration.appID {
            self.state = state
        } else {
            self.state = ClientState(appID: configuration.appID)
        }
        // The client assumes the network of its last run until the system reports another.
        network = self.state.heartbeats.last?.network ?? ""
        heartbeat = self.state.heartbeat(on: network)
    }

    /// The time of the next call of `wake`, in monotonic milliseconds.
    package var deadline: Int64? {
        let ofSession = phase == .ready ? [outgoing.retryAt, names.deadline] : []
        return ([fetch?.deadline, phaseDeadline] + ofSession).compactMap { $0 }.min()
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

    /// Reconnects after the socket failed or the gateway closed it without a Close.
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

    package mutating func wake(at now: ClientTime) {
        if let fetch, now.monotonic >= fetch.deadline { endFetch(at: now) }
        if outgoing.retryAt != nil { sendOutgoing(at: now) }
        wakeNames(at: now)
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
                // After a sleep of the machine the silence is longer than planned, and a lost connection says nothing about it.
                let isLate = now.monotonic - phaseDeadline > Limits.pongMilliseconds
                isProbing = !isLate && now.monotonic - lastReceivedAt >= heartbeatMilliseconds * 9 / 10
                sendPing(at: now)
            }
        }
    }

    /// Handles a failure to store the state: nothing is acked, and the client reconnects later.
    ///
    /// The state stays in memory, and the next Hello stores it first. `skipped` has the actions after the failed one. They are
    /// not performed, except the answers to requests about names.
    package mutating func persistFailed(
        _ error: LongwireClientError, skipping skipped: some Sequence<ClientAction>, at now: ClientTime
    ) {
        var answers: [ClientAction] = []
        for action in Array(skipped) + actions {
            switch action {
            // The state does not contain requests about names. Without its answer a caller would wait forever.
            case .report(.namesAnswered): answers.append(action)
            case .handle(let message): handling.removeAll { $0.isOf(message) }
            case .revoke(_, let sequence): handling.removeAll { ($0.stream, $0.sequence) == (0, sequence) }
            default: break
            }
        }
        actions.removeAll()
        // If the state stayed dirty, the end of this turn would try to store it again in an endless loop. The next Hello or the stop
        // stores it.
        (isDirty, owesWrite) = (false, true)
        actions = answers
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
            if owesWrite { isDirty = true }
            endTurn(at: now)
            var close = Close()
            close.code = CloseCode.goodbye.rawValue
            close.reason = "the client stops"
            send(close, at: now)
        }
        halt(error)
    }

    /// Closes the connection and stops the client.
    mutating func halt(_ error: LongwireClientError?) {
        if isDirty || owesWrite { persist() }
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

    /// Resets the state of the ended connection.
    ///
    /// The holes stay until the next connection, because handlers may still have messages of this one.
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
        names.leaveSession()
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
