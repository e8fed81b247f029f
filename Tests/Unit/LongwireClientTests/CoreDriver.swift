import Cryptography
import Testing
import Wire

@testable import LongwireClient

/// A client core whose gateway, time, frames and handlers the test controls.
struct CoreDriver {
    static let secret = [UInt8](repeating: 7, count: 32)
    static let cid = DeviceID(high: 1, low: 2)

    var core: ClientCore
    var now = ClientTime(monotonic: 1_000_000, wall: 1_700_000_000_000)
    /// The handler's verdicts by sequence; all others are processed.
    var verdicts: [UInt64: MessageVerdict] = [:]
    var shown: [UInt64] = []
    /// Whether the app is slow: its messages wait in `open`, and no loop has them unless the test takes them out.
    var isSlow = false
    var open: [ReceivedMessage] = []
    var sent: [Sent] = []
    var events: [ClientEvent] = []
    var stored: ClientState?
    /// The names of all actions in order.
    var log: [String] = []
    var connectedTo: [Endpoint] = []
    var storeFails = false

    enum Sent: Equatable {
        case hello(Hello)
        case ack(Ack)
        case ping(Ping)
        case pong(Pong)
        case update(DeviceUpdate)
        case feedback(Feedback)
        case upstream(Upstream)
        case names(DeviceNames)
        case close(Close)
    }

    init(state: ClientState? = nil, seed: UInt64 = 1, _ change: (inout ClientConfiguration) -> Void = { _ in }) {
        var configuration = ClientConfiguration(host: "gateway.example", port: 7_000, appID: "demo", appSecret: "app")
        change(&configuration)
        core = ClientCore(configuration: configuration, state: state, cryptography: SystemCryptography(), seed: seed)
    }

    static var registered: ClientState {
        var state = ClientState(appID: "demo")
        state.cid = cid
        state.deviceSecret = secret
        state.queueEpoch = 5
        return state
    }

    static func ready(
        _ state: ClientState = registered, _ change: (inout ClientConfiguration) -> Void = { _ in }
    ) throws -> CoreDriver {
        var driver = CoreDriver(state: state, change)
        driver.start()
        try driver.welcome()
        return driver
    }

    mutating func start() {
        core.start(at: now)
        turn()
        connect()
    }

    mutating func connect() {
        core.connected(at: now)
        turn()
    }

    mutating func welcome(_ change: (inout Welcome) -> Void = { _ in }) throws {
        var welcome = Welcome()
        (welcome.generation, welcome.queueEpoch, welcome.heartbeatSeconds, welcome.window) = (1, 5, 60, 32)
        change(&welcome)
        try receive(welcome)
    }

    mutating func receive(_ messages: any WireMessage...) throws {
        var bytes: [UInt8] = []
        for message in messages { message.appendFrame(to: &bytes) }
        core.receive(bytes, at: now)
        turn()
    }

    mutating func close(_ code: CloseCode, _ change: (inout Close) -> Void = { _ in }) throws {
        var close = Close()
        close.code = code.rawValue
        change(&close)
        try receive(close)
    }

    /// Keeps the session for one more heartbeat, whose Ping is answered.
    mutating func stayAlive() throws {
        pass(milliseconds: core.heartbeatMilliseconds)
        if let ping = pings.last { try receive(Pong(nonce: ping.nonce)) }
    }

    mutating func perform(_ command: ClientCommand) {
        core.perform(command, at: now)
        turn()
    }

    mutating func pass(milliseconds: Int64) {
        now.monotonic += milliseconds
        now.wall += milliseconds
        core.wake(at: now)
        turn()
    }

    /// Performs actions as the runner does.
    mutating func turn() {
        repeat {
            perform(core.takeActions())
            core.endTurn(at: now)
        } while !core.actions.isEmpty
    }

    private mutating func perform(_ actions: [ClientAction]) {
        for (index, action) in actions.enumerated() {
            switch action {
            case .connect(let endpoint): connectedTo.append(endpoint)
            case .disconnect: log.append("disconnect")
            case .send(let bytes): note(bytes)
            case .report(let event): events.append(event)
            case .withdraw:
                for message in open { core.finish(message, .deferred) }
                open = []
            case .handle(let message):
                log.append("handle \(message.sequence)")
                shown.append(message.sequence)
                if isSlow {
                    open.append(message)
                    continue
                }
                core.finish(message, verdicts[message.sequence] ?? .processed)
            case .revoke(let task, let sequence):
                events.append(.revoked(task))
                core.finishRevoke(sequence)
            case .persist(let state):
                guard !storeFails else {
                    let error = LongwireClientError(code: .stateUnwritable, message: "disk full")
                    return core.persistFailed(error, skipping: actions[(index + 1)...], at: now)
                }
                log.append("persist")
                stored = state
            }
        }
    }

    private mutating func note(_ bytes: [UInt8]) {
        let frame = bytes.span.bytes
        do {
            guard let header = try FrameHeader(parsing: frame) else { return }
            let body = frame.extracting(FrameHeader.byteCount..<bytes.count)
            log.append("\(header.type)")
            switch header.type {
            case .hello: sent.append(.hello(try Hello(decoding: body)))
            case .ack: sent.append(.ack(try Ack(decoding: body)))
            case .ping: sent.append(.ping(try Ping(decoding: body)))
            case .pong: sent.append(.pong(try Pong(decoding: body)))
            case .deviceUpdate: sent.append(.update(try DeviceUpdate(decoding: body)))
            case .feedback: sent.append(.feedback(try Feedback(decoding: body)))
            case .upstream: sent.append(.upstream(try Upstream(decoding: body)))
            case .deviceNames: sent.append(.names(try DeviceNames(decoding: body)))
            case .close: sent.append(.close(try Close(decoding: body)))
            default: Issue.record("a client does not send \(header.type)")
            }
        } catch {
            Issue.record("the client sent what cannot be read: \(error)")
        }
    }

    // MARK: State for tests

    var hellos: [Hello] { sent.compactMap { if case .hello(let hello) = $0 { hello } else { nil } } }
    var acks: [Ack] { sent.compactMap { if case .ack(let ack) = $0 { ack } else { nil } } }
    var updates: [DeviceUpdate] { sent.compactMap { if case .update(let update) = $0 { update } else { nil } } }
    var pings: [Ping] { sent.compactMap { if case .ping(let ping) = $0 { ping } else { nil } } }

    var wait: Int64? {
        events.reversed().lazy.compactMap { event -> Int64? in
            if case .retrying(let milliseconds) = event { milliseconds } else { nil }
        }.first
    }

    static func deliver(_ sequence: UInt64, stream: UInt32 = 0, _ change: (inout Deliver) -> Void = { _ in }) -> Deliver
    {
        var deliver = Deliver()
        (deliver.stream, deliver.sequence, deliver.payload) = (stream, sequence, [1, 2, 3])
        deliver.messageID = MessageID(high: 9, low: sequence)
        deliver.attempt = 1
        change(&deliver)
        return deliver
    }
}
