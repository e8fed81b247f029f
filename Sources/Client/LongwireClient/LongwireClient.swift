public import Wire

/// A device of a Longwire gateway: registers, stays connected, and hands each message to the app exactly once.
///
/// `handler` gets the messages one at a time, in order, on the client's own thread. When it returns, the message is
/// recorded in the state store, and only then acked. The time between its return and the record is the only source of
/// repeats: an app that dies right there gets the message again. A handler that must never act twice keeps the
/// message's id with the effect of the message, in one transaction of its own.
///
/// The client reconnects by itself, with exponential backoff and full jitter, and as each Close of the gateway says.
/// All methods may be called from any thread, and from the handler; they return at once.
public final class LongwireClient: Sendable {
    /// With what the app has said since: it holds for the next start, too.
    private let configuration: Guarded<ClientConfiguration>
    private let store: any StateStore
    private let cryptography: any ClientCryptography
    private let handler: @Sendable (ReceivedMessage) -> MessageVerdict?
    private let report: @Sendable (ClientEvent) -> Void
    private let channel: MessageChannel
    private let fetches = FetchBoard()
    private let calls: CallBoard

    /// Prepares a client; nothing happens before `start`.
    ///
    /// - Parameters:
    ///   - configuration: checked by `start`.
    ///   - store: read by `start`, written on the client's thread; shared with no other client.
    ///   - cryptography: the platform's own unless a test wants another.
    ///   - events: everything else that happens, on the client's thread.
    ///   - handler: decides each message's fate. While it runs nothing else is read or acked.
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
        self.handler = { handler($0) }
        (self.events, eventContinuation) = Self.makeEvents()
    }

    /// Prepares a client whose messages and events are read as sequences; nothing happens before `start`.
    ///
    /// - Parameters:
    ///   - configuration: checked by `start`.
    ///   - store: read by `start`, written on the client's thread; shared with no other client.
    ///   - cryptography: the platform's own unless a test wants another.
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
        handler = { [channel] in channel.offer($0) }
    }

    private static func makeEvents() -> (AsyncStream<ClientEvent>, AsyncStream<ClientEvent>.Continuation) {
        AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(Limits.eventCount))
    }

    deinit {
        stop()
        eventContinuation.finish()
    }

    /// What happens besides messages, for one loop; empty for a client with a handler.
    ///
    /// The newest 256 wait for the loop.
    public let events: AsyncStream<ClientEvent>
    private let eventContinuation: AsyncStream<ClientEvent>.Continuation

    /// The messages, one at a time; empty for a client with a handler.
    ///
    /// While a loop has a message, others wait un-acked, up to the gateway's window.
    public var messages: ReceivedMessages { ReceivedMessages(channel: channel) }

    /// Decides the fate of the message that a loop has, before the loop asks for the next one.
    ///
    /// - Returns: false when it was decided already.
    @discardableResult
    public func finish(_ message: ReceivedMessage, _ verdict: MessageVerdict = .processed) -> Bool {
        channel.decide(message, verdict)
    }

    /// Reads the state and begins to connect.
    ///
    /// - Parameter opened: messages opened from a notification that started the app; they are told to the gateway
    ///   with the first Hello, so that they do not arrive again.
    /// - Throws: `badConfiguration`, `stateUnreadable`, `stateDamaged`, `systemResource`; `wrongState` when it runs
    ///   already. After any of them it can be started again.
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
        configuration.tokens = configuration.tokens.map { (try? $0.cleaned()) ?? $0 }
        calls.postOrKeep(opened.map { .opened($0) })
        calls.flush()
        let core = ClientCore(
            configuration: configuration, state: try loadState(for: configuration), cryptography: cryptography,
            seed: cryptography.randomWord())
        let (mailbox, ended) = (try ClientMailbox(), Latch())
        let runner = ClientRunner(
            core: core, mailbox: mailbox, store: store, handler: handler, withdraw: { [channel] in channel.withdraw() }
        ) { [fetches, report] in
            fetches.note($0)
            report($0)
        }
        channel.open()
        calls.run(mailbox, ended: ended)
        let isStarted = ClientThread.start { [channel, fetches, calls] in
            runner.run()
            channel.close()
            // One that was asked for behind the end.
            fetches.end(FetchResult())
            calls.release()
            ended.open()
        }
        guard isStarted else {
            channel.close()
            // Kept again; the caller of this releases the store.
            calls.postOrKeep(mailbox.shut().filter(\.isKept))
            ended.open()
            throw LongwireClientError(code: .systemResource, message: "the system gave no thread")
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
        guard state?.isRegistered == true || !configuration.appSecret.isEmpty else {
            throw LongwireClientError(
                code: .badConfiguration, message: "this device is not registered yet, and no appSecret is given")
        }
        (store as? FileStateStore)?.removeDrafts()
        return state
    }

    /// With what the app has set.
    var currentConfiguration: ClientConfiguration { configuration.withValue { $0 } }

    /// Says what the app has set since `start` took its copy.
    private func catchUp(with old: ClientConfiguration) {
        let new = configuration.withValue { $0 }
        if (new.applicationState, new.keepsRunning) != (old.applicationState, old.keepsRunning) {
            _ = calls.post(.applicationState(new.applicationState, keepsRunning: new.keepsRunning))
        }
        if let badge = new.badge, badge != old.badge { _ = calls.post(.badge(badge)) }
        if let isOff = new.pushModeOff, isOff != old.pushModeOff { _ = calls.post(.pushModeOff(isOff)) }
        for token in new.tokens where !old.tokens.contains(token) { _ = calls.post(.token(token)) }
    }

    /// Says goodbye and ends; `stopped` is the last event.
    ///
    /// Does nothing when it does not run.
    public func stop() {
        _ = calls.post(.stop)
        channel.close()
    }

    /// Waits until the client has ended, by `stop` or because the gateway refused it.
    ///
    /// Not for the handler.
    public func waitUntilStopped() {
        calls.ended?.wait()
    }

    // The setters below hold for the next start, too, also where they return false because the client does not run.

    /// Tells the gateway how the app stands.
    ///
    /// Say `background` before the system freezes the app, and `foreground` first thing when it is back. What is read
    /// in between is left un-acked and comes again with its offline flag computed anew. So the app never shows as fresh
    /// what a notification has shown already.
    @discardableResult
    public func setApplicationState(_ state: ApplicationState, keepsRunning: Bool = false) -> Bool {
        configuration.withValue { ($0.applicationState, $0.keepsRunning) = (state, keepsRunning) }
        return calls.post(.applicationState(state, keepsRunning: keepsRunning))
    }

    /// Sets the badge that the gateway counts on from.
    @discardableResult
    public func setBadge(_ badge: Int32) -> Bool {
        configuration.withValue { $0.badge = badge }
        return calls.post(.badge(badge))
    }

    /// Adds or replaces a vendor token; an empty one removes those of its channel and kind, or of its activity.
    ///
    /// A Live Activity has a token of its own, under the activity's name; the eight newest are kept.
    ///
    /// Blanks and angle brackets in it, as in a copied description, count for nothing.
    ///
    /// - Returns: false also for a token that no gateway takes: above 512 bytes, a topic above 255 or an activity above 64,
    ///   or characters other than visible ASCII.
    @discardableResult
    public func setToken(_ token: VendorToken) -> Bool {
        guard let token = try? token.cleaned() else { return false }
        configuration.withValue { $0.set(token) }
        return calls.post(.token(token))
    }

    /// True: the gateway sends nothing on either channel until it is false again.
    @discardableResult
    public func setPushModeOff(_ isOff: Bool) -> Bool {
        configuration.withValue { $0.pushModeOff = isOff }
        return calls.post(.pushModeOff(isOff))
    }

    /// Wishes for another heartbeat.
    ///
    /// - Returns: false also for anything but 30 to 1800 s.
    @discardableResult
    public func setHeartbeat(seconds: UInt32) -> Bool {
        guard (30...1_800).contains(seconds) else { return false }
        configuration.withValue { $0.heartbeatSeconds = seconds }
        return calls.post(.heartbeat(seconds: seconds))
    }

    /// The network is back, or is another one: the client ends a wait of its own, or tests the path it has.
    ///
    /// On Apple's systems it finds out by itself, and tells networks apart by their kind.
    ///
    /// - Parameter name: the app's own name for the network, at most 64 bytes of it count. What a network has taught about
    ///   silent connections is kept under its name, also across starts. `nil`: an unknown one, of which nothing is known.
    /// - Returns: false when the client does not run.
    @discardableResult
    public func networkChanged(named name: String? = nil) -> Bool {
        calls.post(
            .networkChanged(
                name: name.map { String(decoding: $0.utf8.prefix(Limits.networkNameByteCount), as: UTF8.self) }))
    }

    // MARK: Notifications

    /// The user opened this message from its notification: it will not be shown again, and the gateway is told now or
    /// with the next Hello.
    ///
    /// Before `start` and after `stop` it goes into the state store at once.
    @discardableResult
    public func markOpened(_ message: MessageID) -> Bool { calls.postOrKeep([.opened(message)]) }

    /// The user tapped a notification: what it said, and the message counts as opened.
    ///
    /// Before `start` and after `stop` it goes into the state store at once.
    ///
    /// - Returns: `nil` when the notification is none of the gateway's.
    @discardableResult
    public func handleTap(userInfo: [AnyHashable: Any]) -> PushNotification? {
        let notification = PushNotification(userInfo: userInfo)
        if let notification { markOpened(notification.messageID) }
        return notification
    }

    /// Tells the publisher's reports what was shown or done; kept until the gateway has it, across restarts.
    ///
    /// Before `start` and after `stop` it goes into the state store at once.
    ///
    /// - Returns: false also for an action that is not 90001 to 90999.
    @discardableResult
    public func report(_ report: MessageReport) -> Bool {
        if case .action(let number, _) = report, !(90_001...90_999).contains(number) { return false }
        return calls.postOrKeep([.report(report)])
    }

    /// Reports what a service extension has noted as shown.
    public func report(_ reports: NotificationReports) {
        calls.postOrKeep(reports.take().map { .report(.shown($0)) })
    }

    /// Sends a message to the app's server, through the gateway.
    ///
    /// It is kept until the gateway has it on disk, across restarts, and sent in the order of these calls; the event
    /// `messageTaken` says when. Before `start` and after `stop` it goes into the state store at once. At most 128 messages
    /// or 512 KiB wait; what is beyond ends with the event `messageRefused`.
    ///
    /// - Parameters:
    ///   - payload: 1 byte to 16 KiB, whatever the two sides agree on.
    ///   - task: the task that it answers, if it is an answer; the server gets its id.
    /// - Returns: false for a payload of another size, or when it can be neither sent nor kept.
    @discardableResult
    public func send(_ payload: [UInt8], answering task: TaskID = .none) -> Bool {
        guard 1...Limits.outgoingPayloadByteCount ~= payload.count else { return false }
        return calls.postOrKeep([.send(payload, answering: task)])
    }

    /// Brings what the gateway holds, after a silent push for example.
    ///
    /// A client that waits to reconnect does so at once. In the background the device counts as running meanwhile.
    ///
    /// - Parameter time: a silent push leaves an app 30 s; the rest is for the app.
    /// - Returns: how many messages were handled, and whether the gateway had no more.
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

/// What a fetch has brought.
public struct FetchResult: Equatable, Sendable {
    public var messageCount = 0
    /// False: the time was over, or the client does not run.
    public var isComplete = false
}

/// The fetches that wait for their end.
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
