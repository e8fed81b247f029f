public import Wire

/// A device of a Longwire gateway.
///
/// It registers, stays connected, and hands each message to the app exactly once.
///
/// The client calls `handler` with one message at a time, in order, on the client's thread. After the handler returns, the
/// client stores the message's sequence and then acks it. If the app dies between the return and the store, the message is
/// delivered again; there is no other source of repeats. To exclude these repeats, store the message's id in the same
/// transaction as the message's effect.
///
/// The client reconnects with exponential backoff and full jitter, or as the gateway's Close requests. Methods that are not
/// `async` do not wait for the network, except `waitUntilStopped` and `applicationWillTerminate`. All methods may be called from
/// any thread, and except these two also from the handler.
public final class LongwireClient: Sendable {
    /// The configuration with all later changes by the app; they also apply to the next start.
    private let configuration: Guarded<ClientConfiguration>
    private let store: any StateStore
    private let cryptography: any ClientCryptography
    private let handler: @Sendable (ReceivedMessage) -> MessageVerdict?
    private let report: @Sendable (ClientEvent) -> Void
    private let channel: MessageChannel
    private let fetches = FetchBoard()
    let namesBoard = NamesBoard()
    let calls: CallBoard
    let board = NotificationBoard()

    /// Creates a client with a handler for messages.
    ///
    /// The client is idle until `start`.
    ///
    /// - Parameters:
    ///   - configuration: the settings, checked by `start`.
    ///   - store: the store of the device's state. No other client may use it.
    ///   - cryptography: the platform's own, unless a test replaces it.
    ///   - events: receives all events other than messages, on the client's thread.
    ///   - handler: returns the verdict on each message. The client reads and acks nothing while it runs.
    public init(
        configuration: ClientConfiguration, store: any StateStore,
        cryptography: any ClientCryptography = SystemCryptography(),
        events: @escaping @Sendable (ClientEvent) -> Void = { _ in },
        handler: @escaping @Sendable (ReceivedMessage) -> MessageVerdict
    ) {
        (self.configuration, self.store, self.cryptography) = (Guarded(configuration), store, cryptography)
        let calls = CallBoard(store: store, appID: configuration.appID)
        self.calls = calls
        channel = MessageChannel { calls.postOrKeep([.finish($0, $1)]) }
        report = events
        self.handler = { [board] in handler(board.receive($0)) }
        (self.events, eventContinuation) = Self.makeEvents()
    }

    /// Creates a client whose messages and events are read as sequences.
    ///
    /// The client is idle until `start`.
    ///
    /// - Parameters:
    ///   - configuration: the settings, checked by `start`.
    ///   - store: the store of the device's state. No other client may use it.
    ///   - cryptography: the platform's own, unless a test replaces it.
    public init(
        configuration: ClientConfiguration, store: any StateStore,
        cryptography: any ClientCryptography = SystemCryptography()
    ) {
        (self.configuration, self.store, self.cryptography) = (Guarded(configuration), store, cryptography)
        let calls = CallBoard(store: store, appID: configuration.appID)
        self.calls = calls
        channel = MessageChannel { calls.postOrKeep([.finish($0, $1)]) }
        let (events, continuation) = Self.makeEvents()
        (self.events, eventContinuation) = (events, continuation)
        report = { continuation.yield($0) }
        handler = { [channel, board] in channel.offer(board.receive($0)) }
    }

    private static func makeEvents() -> (AsyncStream<ClientEvent>, AsyncStream<ClientEvent>.Continuation) {
        AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(Limits.eventCount))
    }

    deinit {
        stop()
        eventContinuation.finish()
    }

    /// The events other than messages, to be read by one loop.
    ///
    /// Empty for a client with a handler. At most 256 events are buffered; older ones are dropped.
    public let events: AsyncStream<ClientEvent>
    private let eventContinuation: AsyncStream<ClientEvent>.Continuation

    /// The messages, one at a time.
    ///
    /// Empty for a client with a handler. While the loop has a message, the following ones stay un-acked, up to the gateway's
    /// window.
    public var messages: ReceivedMessages { ReceivedMessages(channel: channel) }

    /// Decides on the message in a loop over `messages`, before the loop requests the next message.
    ///
    /// - Returns: false when the message was already decided.
    @discardableResult
    public func finish(_ message: ReceivedMessage, _ verdict: MessageVerdict = .processed) -> Bool {
        channel.decide(message, verdict)
    }

    /// Reads the state and starts to connect.
    ///
    /// - Parameter opened: messages opened from a notification that started the app. The first Hello reports them to the
    ///   gateway, so that the gateway does not deliver them again.
    /// - Throws: `badConfiguration`, `stateUnreadable`, `stateDamaged`, `systemResource`, or `wrongState` when the client
    ///   already runs. The client can be started again after any of them.
    public func start(opened: [MessageID] = []) throws(LongwireClientError) {
        guard calls.reserve() else {
            throw LongwireClientError(code: .wrongState, message: "the client runs already; stop it first")
        }
        do throws(LongwireClientError) {
            try run(opened: opened)
        } catch {
            calls.release()
            throw error
        }
    }

    private func run(opened: [MessageID]) throws(LongwireClientError) {
        var configuration = self.configuration.withValue { $0 }
        try configuration.validate()
        configuration.tokens = configuration.tokens.map { (try? $0.checked()) ?? $0 }
        calls.postOrKeep(opened.map { .opened($0) })
        calls.flush()
        let state = try loadState(for: configuration)
        board.learn(state)
        for id in opened { _ = board.open(id) }
        let core = ClientCore(
            configuration: configuration, state: state, cryptography: cryptography, seed: cryptography.randomWord())
        let (mailbox, ended) = (try ClientMailbox(), Latch())
        let runner = ClientRunner(
            core: core, mailbox: mailbox, store: store, handler: handler,
            withdraw: { [channel] in channel.withdraw($0) }
        ) { [fetches, namesBoard, board, report] in
            fetches.note($0)
            namesBoard.note($0)
            board.note($0)
            report($0)
        }
        channel.open()
        calls.run(mailbox, ended: ended)
        let isStarted = ClientThread.start { [channel, fetches, namesBoard, calls] in
            runner.run()
            channel.close()
            // A fetch or a request about names may have been posted after the stop.
            fetches.end(FetchResult())
            namesBoard.note(.stopped(nil))
            calls.release()
            ended.open()
        }
        guard isStarted else {
            channel.close()
            // Keeps the posted calls; `start` then releases the call board, which stores them.
            calls.postOrKeep(mailbox.shut().filter(\.isKept))
            namesBoard.note(.stopped(nil))
            ended.open()
            throw LongwireClientError(code: .systemResource, message: "the system could not start a thread")
        }
        catchUp(with: configuration)
    }

    private func loadState(for configuration: ClientConfiguration) throws(LongwireClientError) -> ClientState? {
        let state: ClientState?
        do {
            state = try store.load()
        } catch {
            throw error as? LongwireClientError
                ?? LongwireClientError(code: .stateUnreadable, message: "\(error)")
        }
        if let state, state.appID != configuration.appID, state.isRegistered {
            throw LongwireClientError(
                code: .stateUnreadable,
                message: "the state belongs to the app \(state.appID), not to \(configuration.appID); use another one")
        }
        guard
            state?.isRegistered == true || !configuration.appSecret.isEmpty || !configuration.registrationToken.isEmpty
        else {
            throw LongwireClientError(
                code: .badConfiguration,
                message: "this device is not registered yet; give a registrationToken or an appSecret")
        }
        (store as? FileStateStore)?.removeDrafts()
        return state
    }

    var currentConfiguration: ClientConfiguration { configuration.withValue { $0 } }

    /// Posts the changes that the app made after `start` had copied the configuration.
    private func catchUp(with old: ClientConfiguration) {
        let new = configuration.withValue { $0 }
        if (new.applicationState, new.keepsRunning) != (old.applicationState, old.keepsRunning) {
            _ = calls.post(.applicationState(new.applicationState, keepsRunning: new.keepsRunning))
        }
        if let badge = new.badge, badge != old.badge { _ = calls.post(.badge(badge)) }
        if let isOff = new.pushModeOff, isOff != old.pushModeOff { _ = calls.post(.pushModeOff(isOff)) }
        if new.attributes != old.attributes { _ = calls.post(.attributes(new.attributes)) }
        for token in new.tokens where !old.tokens.contains(token) { _ = calls.post(.token(token)) }
    }

    /// Disconnects and stops the client.
    ///
    /// `stopped` is the last event. Does nothing when the client does not run.
    public func stop() {
        _ = calls.post(.stop)
        channel.close()
    }

    /// Waits until the client has stopped, through `stop` or because the gateway refused it.
    ///
    /// Do not call this from the handler: the client cannot stop before the handler returns.
    public func waitUntilStopped() {
        calls.ended?.wait()
    }

    /// Reports that the system terminates the app, and stops the client.
    ///
    /// Call this from `applicationWillTerminate`. The gateway then sends the next message to the vendor at once, without a
    /// delivery timeout. The configuration keeps its application state for a later start.
    ///
    /// - Parameter time: the maximum wait for the stop, up to 5 s. iOS allows the app about five seconds.
    /// - Returns: false if the client had not stopped in time.
    @discardableResult
    public func applicationWillTerminate(within time: Duration = .seconds(2)) -> Bool {
        guard let ended = calls.ended else { return true }
        _ = calls.post(.applicationState(.terminated, keepsRunning: false))
        stop()
        let parts = min(max(time, .zero), .milliseconds(Limits.terminateMilliseconds)).components
        return ended.wait(milliseconds: parts.seconds * 1_000 + parts.attoseconds / 1_000_000_000_000_000)
    }

    // The setters below also change the configuration of the next start, even if they return false because the client does not
    // run.

    /// Reports the app's state to the gateway.
    ///
    /// Call this with `background` before the system suspends the app, and with `foreground` as soon as the app runs again.
    /// Messages that arrive between the two calls stay un-acked, and the gateway delivers them again with a new offline flag. The
    /// app therefore does not present a message as new after its notification was shown.
    ///
    /// - Parameters:
    ///   - state: foreground or background.
    ///   - keepsRunning: whether the app keeps its socket open in the background.
    /// - Returns: false when the client does not run.
    @discardableResult
    public func setApplicationState(_ state: ApplicationState, keepsRunning: Bool = false) -> Bool {
        configuration.withValue { ($0.applicationState, $0.keepsRunning) = (state, keepsRunning) }
        return calls.post(.applicationState(state, keepsRunning: keepsRunning))
    }

    /// Sets the badge number that the gateway continues from.
    ///
    /// - Returns: false when the client does not run.
    @discardableResult
    public func setBadge(_ badge: Int32) -> Bool {
        configuration.withValue { $0.badge = badge }
        return calls.post(.badge(badge))
    }

    /// Adds or replaces a vendor token.
    ///
    /// An empty token removes the tokens of its channel and kind, or of its activity. A Live Activity has a separate token
    /// under the activity's name. The newest eight are kept. Spaces and angle brackets, as in a copied `description`, are
    /// removed from the token. A removal is kept, across restarts, until the gateway has confirmed it.
    ///
    /// - Returns: false if the client does not run or the token is invalid. `VendorToken.checked` throws the reason.
    @discardableResult
    public func setToken(_ token: VendorToken) -> Bool {
        guard let token = try? token.checked() else { return false }
        configuration.withValue { $0.set(token) }
        let isRunning = calls.post(.token(token))
        // The next Hello lists the tokens. It cannot remove one.
        if !isRunning, token.token.isEmpty { calls.postOrKeep([.token(token)]) }
        return isRunning
    }

    /// Turns all pushes to this device off or on, both over the connection and through the vendor.
    ///
    /// - Returns: false when the client does not run.
    @discardableResult
    public func setPushModeOff(_ isOff: Bool) -> Bool {
        configuration.withValue { $0.pushModeOff = isOff }
        return calls.post(.pushModeOff(isOff))
    }

    /// Sets the attributes that the next connection reports, such as a new notification permission.
    ///
    /// - Returns: false when the client does not run.
    @discardableResult
    public func setAttributes(_ attributes: DeviceAttributes?) -> Bool {
        configuration.withValue { $0.attributes = attributes }
        return calls.post(.attributes(attributes))
    }

    /// Sets the registration token, issued by the app's server, for the next start.
    ///
    /// An empty token removes it. On a running client, bind the alias of another user with `bindAlias(token:)`.
    public func setRegistrationToken(_ token: String) { configuration.withValue { $0.registrationToken = token } }

    /// Requests another heartbeat.
    ///
    /// - Parameter seconds: 30 to 1800.
    /// - Returns: false for other values, or when the client does not run.
    @discardableResult
    public func setHeartbeat(seconds: UInt32) -> Bool {
        guard (30...1_800).contains(seconds) else { return false }
        configuration.withValue { $0.heartbeatSeconds = seconds }
        return calls.post(.heartbeat(seconds: seconds))
    }

    /// Reports that the network is usable again or has changed.
    ///
    /// The client shortens its backoff, or tests its connection. On Apple's systems the client detects this itself and
    /// distinguishes networks by their kind.
    ///
    /// - Parameter name: the app's name for the network, of which 64 bytes are used. The client keeps the heartbeat learnt on a
    ///   network under its name, also across starts. `nil` stands for an unknown network.
    /// - Returns: false when the client does not run.
    @discardableResult
    public func networkChanged(named name: String? = nil) -> Bool {
        calls.post(
            .networkChanged(
                name: name.map { String(decoding: $0.utf8.prefix(Limits.networkNameByteCount), as: UTF8.self) }))
    }

    // MARK: Reports

    /// Reports a shown message or an action to the publisher's statistics.
    ///
    /// The report is kept across restarts until the gateway has confirmed it. Before `start` and after `stop` it goes into the
    /// state store at once.
    ///
    /// - Returns: false for an action outside 90001 to 90999, or when the report could not be kept.
    @discardableResult
    public func report(_ report: MessageReport) -> Bool {
        if case .action(let number, _) = report, !(90_001...90_999).contains(number) { return false }
        return calls.postOrKeep([.report(report)])
    }

    /// Reports the messages that a service extension has noted as shown.
    public func report(_ reports: NotificationReports) {
        calls.postOrKeep(reports.take().map { .report(.shown($0)) })
    }

    /// Sends a message to the app's server, through the gateway.
    ///
    /// The client keeps messages across restarts until the gateway has them on disk, and sends them in the order of the calls.
    /// The event `messageTaken` confirms a message. Before `start` and after `stop` a message goes into the state store at
    /// once. At most 128 messages and 512 KiB are kept; a running client reports `messageRefused` for messages beyond these
    /// limits.
    ///
    /// - Parameters:
    ///   - payload: 1 byte to 16 KiB of any content.
    ///   - task: the id of the task that this message answers, passed to the server.
    /// - Returns: false for a payload of another size, or when the message can be neither sent nor kept.
    @discardableResult
    public func send(_ payload: [UInt8], answering task: TaskID = .none) -> Bool {
        guard 1...Limits.outgoingPayloadByteCount ~= payload.count else { return false }
        return calls.postOrKeep([.send(payload, answering: task)])
    }

    /// Receives the queued messages, for example after a silent push.
    ///
    /// A client that backs off reconnects at once, unless the gateway requested the delay. A device in the background counts as
    /// running until the fetch ends.
    ///
    /// - Parameter time: the longest duration, at most one hour. A silent push gives an app 30 s, so the default leaves 10 s to
    ///   the app.
    /// - Returns: the number of handled messages, and whether the gateway had no more.
    public func fetch(within time: Duration = .seconds(20)) async -> FetchResult {
        let most = Duration.milliseconds(Limits.fetchMilliseconds)
        let parts = min(max(time, .zero), most).components
        let milliseconds = parts.seconds * 1_000 + parts.attoseconds / 1_000_000_000_000_000
        return await withCheckedContinuation { continuation in
            fetches.add(continuation)
            if !calls.post(.fetch(milliseconds: milliseconds)) { fetches.end(FetchResult()) }
        }
    }
}

/// The result of a fetch.
public struct FetchResult: Equatable, Sendable {
    /// The number of messages that the app processed.
    public var messageCount = 0
    /// Whether the gateway had no more messages; false after a timeout, or when the client does not run.
    public var isComplete = false
}

/// The callers of `fetch` that wait for the end.
final class FetchBoard: Sendable {
    private let waiting = Guarded<[CheckedContinuation<FetchResult, Never>]>([])

    func add(_ continuation: CheckedContinuation<FetchResult, Never>) { waiting.withValue { $0.append(continuation) } }

    func note(_ event: ClientEvent) {
        switch event {
        case .fetched(let count, let isComplete): end(FetchResult(messageCount: count, isComplete: isComplete))
        case .stopped: end(FetchResult())
        default: break
        }
    }

    func end(_ result: FetchResult) {
        let ended = waiting.withValue { list in
            defer { list = [] }
            return list
        }
        for continuation in ended { continuation.resume(returning: result) }
    }
}
