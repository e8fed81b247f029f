internal import LongwireClient
internal import Wire

/// A client with a hostile gateway and an app that calls in any order.
///
/// Input: a script of frames, bytes, calls, time and failures. Invariants: the client sends only frames that a gateway can read.
/// It acks exactly the messages whose handlers returned, after it stored them. It never shows a message stored as processed. Its
/// state survives encoding.
enum ClientFuzz {
    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        var world = ClientWorld(&script)
        while !script.isAtEnd, world.steps < 400 { try world.step(&script) }
        try world.finish()
    }
}

private struct ClientWorld {
    private var core: ClientCore
    private var now = ClientTime(monotonic: 1_000_000, wall: 1_700_000_000_000)
    private var stored: ClientState?
    /// Shown messages whose handlers have not returned; `finish` ends them in a later step.
    private var open: [ReceivedMessage] = []
    /// The sequences received in this session that are neither processed nor rejected.
    private var unfinished: [UInt32: Set<UInt64>] = [:]
    private(set) var steps = 0
    private var storeFails = false

    init(_ script: inout Script) {
        var configuration = ClientConfiguration(host: "gateway.example", port: 7_000, appID: "demo", appSecret: "app")
        configuration.reconnects = script.choice(8) != 0
        configuration.replaysOpened = script.flag()
        if script.flag() { configuration.badge = 3 }
        var state: ClientState?
        if script.flag() {
            var known = ClientState(appID: "demo")
            (known.cid, known.deviceSecret) = (DeviceID(high: 1, low: 2), [UInt8](repeating: 7, count: 32))
            known.queueEpoch = 5
            state = known
        }
        core = ClientCore(
            configuration: configuration, state: state, cryptography: NoCryptography(), seed: script.word())
        core.start(at: now)
    }

    private struct NoCryptography: ClientCryptography {
        func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] { [UInt8](repeating: 1, count: 32) }
        func randomWord() -> UInt64 { 4 }
    }

    // MARK: Steps

    mutating func step(_ script: inout Script) throws {
        steps += 1
        switch script.choice(16) {
        case 0: core.connected(at: now)
        case 1: core.disconnected(reason: "gone", at: now)
        case 2: core.start(at: now)
        case 3: pass(script.pick([1, 1_000, 10_000, 300_000, 4_000_000]))
        case 4: core.receive(script.bytes(upTo: 64), at: now)
        case 5: core.receive(frame(Welcome.self, script.bytes(upTo: 64)), at: now)
        case 6: receive(welcome(&script))
        case 7...9: receive(deliver(&script))
        case 10: receive(other(&script))
        case 11, 12: command(&script)
        case 13: finishOne(&script)
        case 14:
            // The session is connected at once, so that scripts reach most of the code early.
            core.connected(at: now)
            try turn()
            var welcome = Welcome()
            (welcome.generation, welcome.queueEpoch, welcome.cid) = (1, 5, DeviceID(high: 1, low: 2))
            welcome.deviceSecret = [UInt8](repeating: 7, count: 32)
            receive(welcome)
        default: storeFails = script.flag()
        }
        try turn()
    }

    /// Ends every handler and repairs the disk; the last state written must equal the one in memory.
    mutating func finish() throws {
        storeFails = false
        unfinished = [:]
        while !open.isEmpty { core.finish(open.removeFirst(), .processed) }
        try turn()
        let again: ClientState
        do { again = try ClientState(serialized: core.state.serialized) } catch {
            throw FuzzFailure(description: "the state cannot be read: \(error)")
        }
        try require(again == core.state || !core.state.isRegistered, "the state changes when it is written")
    }

    private mutating func pass(_ milliseconds: Int64) {
        now.monotonic += milliseconds
        now.wall += milliseconds
        core.wake(at: now)
    }

    private mutating func receive(_ message: some WireMessage) {
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        core.receive(bytes, at: now)
    }

    private func frame<Message: WireMessage>(_ type: Message.Type, _ body: [UInt8]) -> [UInt8] {
        [Message.frameType.rawValue, 0, 0, UInt8(body.count)] + body
    }

    private func welcome(_ script: inout Script) -> Welcome {
        var welcome = Welcome()
        (welcome.generation, welcome.queueEpoch) = (script.number(), UInt64(script.choice(3)) + 4)
        welcome.heartbeatSeconds = UInt32(truncatingIfNeeded: script.number())
        if script.flag() {
            welcome.cid = DeviceID(high: 1, low: 2)
            welcome.deviceSecret = [UInt8](repeating: 7, count: script.choice(4) == 0 ? script.choice(65) : 32)
        }
        return welcome
    }

    private mutating func deliver(_ script: inout Script) -> Deliver {
        var deliver = Deliver()
        deliver.stream = script.choice(4) == 0 ? UInt32(truncatingIfNeeded: script.number()) : 0
        deliver.sequence = script.number()
        deliver.messageID = MessageID(high: 9, low: UInt64(script.choice(8)))
        deliver.attempt = 1
        // A faulty gateway may use one sequence for two messages. The second one settles it if it was opened.
        if core.state.opened.contains(deliver.messageID) { unfinished[deliver.stream]?.remove(deliver.sequence) }
        return deliver
    }

    private mutating func other(_ script: inout Script) -> any WireMessage {
        switch script.choice(6) {
        case 0: return Ping(nonce: script.number())
        case 1: return Pong(nonce: script.number())
        case 2:
            var revoke = Revoke()
            (revoke.sequence, revoke.revokedTaskID) = (script.number(), TaskID(high: 1, low: 2))
            // A faulty gateway may use one sequence twice. The first message then settles both.
            unfinished[0]?.remove(revoke.sequence)
            return revoke
        case 3:
            var result = UpdateResult()
            (result.request, result.code) = (UInt32(script.choice(8)), UInt32(script.choice(2)))
            result.heartbeatSeconds = UInt32(truncatingIfNeeded: script.number())
            return result
        default:
            var close = Close()
            close.code = script.pick([100, 200, 201, 300, 301, 302, 303, 400, 401, 402, 500, 503])
            close.code &+= UInt32(script.choice(4))
            close.retryAfterMinimum = UInt32(truncatingIfNeeded: script.number())
            close.retryAfterMaximum = UInt32(truncatingIfNeeded: script.number())
            close.serverTime = script.number()
            close.alternate = script.text(upTo: 16)
            return close
        }
    }

    private mutating func command(_ script: inout Script) {
        let id = MessageID(high: 9, low: UInt64(script.choice(8)))
        let states: [ApplicationState] = [.foreground, .background, .terminated]
        let command: ClientCommand =
            switch script.choice(10) {
            case 9: .networkChanged(name: script.pick([nil, "", "wifi", "cellular"]))
            case 0: .stop
            case 1, 2: .applicationState(script.pick(states), keepsRunning: script.flag())
            case 3: .badge(Int32(truncatingIfNeeded: script.number()))
            case 4: .token(VendorToken(kind: script.pick(VendorToken.Kind.allCases), token: script.text(upTo: 8)))
            case 5: .pushModeOff(script.flag())
            case 6: .heartbeat(seconds: 30 + UInt32(script.byte()))
            case 7: .opened(id)
            default: script.flag() ? .report(.shown(id)) : .fetch(milliseconds: Int64(script.byte()))
            }
        core.perform(command, at: now)
    }

    private mutating func finishOne(_ script: inout Script) {
        guard !open.isEmpty else { return }
        let message = open.remove(at: script.choice(open.count))
        let verdict: MessageVerdict =
            switch script.choice(4) {
            case 0: .deferred
            case 1: .rejected(reason: String(repeating: script.text(upTo: 16), count: 1 + script.choice(100)))
            default: .processed
            }
        if verdict != .deferred { unfinished[message.stream]?.remove(message.sequence) }
        core.finish(message, verdict)
    }

    // MARK: The runner and its invariants

    private mutating func turn() throws {
        var rounds = 0
        repeat {
            rounds += 1
            try require(rounds < 1_000, "a turn has no end")
            // A failed write discards the following actions, as in the runner.
            let actions = core.takeActions()
            actions: for (index, action) in actions.enumerated() {
                switch action {
                case .connect:
                    // Handlers of the old session may still run. Their messages stay open.
                    unfinished = [:]
                case .disconnect, .report, .withdraw: break
                case .send(let bytes): try check(bytes)
                case .handle(let message): try show(message)
                case .revoke(_, let sequence): core.finishRevoke(sequence)
                case .persist(let state):
                    if storeFails {
                        core.persistFailed(
                            LongwireClientError(code: .stateUnwritable, message: "full"),
                            skipping: actions[(index + 1)...], at: now)
                        break actions
                    }
                    stored = state
                }
            }
            core.endTurn(at: now)
            // On a disk that stays full each turn would fail again, so the next turn is the next step.
        } while core.hasActions
    }

    private mutating func show(_ message: ReceivedMessage) throws {
        let processed = stored?.streams[message.stream]?.contains(message.sequence) ?? false
        try require(!processed, "\(message.sequence) was shown after it was stored as processed")
        open.append(message)
        unfinished[message.stream, default: []].insert(message.sequence)
    }

    private func check(_ bytes: [UInt8]) throws {
        let span = bytes.span.bytes
        guard let header = try FrameHeader(parsing: span),
            FrameHeader.byteCount + header.bodyByteCount == bytes.count
        else { throw FuzzFailure(description: "not one whole frame") }
        let body = span.extracting(FrameHeader.byteCount..<bytes.count)
        do throws(WireError) {
            switch header.type {
            case .hello:
                _ = try Hello(decoding: body)
                _ = try HelloTranscript(body: body)
            case .ack: _ = try AckView(decoding: body)
            case .ping: _ = try Ping(decoding: body)
            case .pong: _ = try Pong(decoding: body)
            case .deviceUpdate: _ = try DeviceUpdate(decoding: body)
            case .feedback: _ = try Feedback(decoding: body)
            case .close: _ = try Close(decoding: body)
            default: break
            }
        } catch {
            throw FuzzFailure(description: "the gateway cannot read the client's \(header.type): \(error)")
        }
        switch header.type {
        case .hello: try requireStored(try Hello(decoding: body))
        case .ack: try requireEarned(try Ack(decoding: body))
        case .ping, .pong, .deviceUpdate, .feedback, .close: break
        default: throw FuzzFailure(description: "a client sends no \(header.type)")
        }
    }

    private func requireStored(_ hello: Hello) throws {
        try require(stored?.lastTimestamp == hello.timestamp, "a timestamp was sent before it was stored")
    }

    private func requireEarned(_ ack: Ack) throws {
        for position in ack.positions {
            let known = stored?.streams[position.stream]
            try require(known?.position(stream: position.stream) == position, "an ack before its state was stored")
            for sequence in unfinished[position.stream] ?? [] {
                let isCovered =
                    sequence <= position.sequence
                    || position.ranges.contains { ($0.first...$0.last).contains(sequence) }
                try require(!isCovered, "\(sequence) was acked while its handler runs")
            }
        }
    }
}
