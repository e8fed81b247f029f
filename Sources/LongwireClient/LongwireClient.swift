public import Wire

#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

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
    private enum Running {
        case no
        case yes(ClientMailbox, Latch)
    }

    private let configuration: ClientConfiguration
    private let store: any StateStore
    private let cryptography: any ClientCryptography
    private let handler: @Sendable (ReceivedMessage) -> MessageVerdict
    private let events: @Sendable (ClientEvent) -> Void
    private let running = Guarded(Running.no)

    /// Prepares a client; nothing happens before `start`.
    ///
    /// - Parameters:
    ///   - configuration: checked by `start`.
    ///   - store: read once by `start`, written on the client's thread; shared with no other client.
    ///   - cryptography: the platform's own unless a test wants another.
    ///   - events: everything else that happens, on the client's thread.
    ///   - handler: decides each message's fate. While it runs nothing else is read or acked.
    public init(
        configuration: ClientConfiguration, store: any StateStore,
        cryptography: any ClientCryptography = SystemCryptography(),
        events: @escaping @Sendable (ClientEvent) -> Void = { _ in },
        handler: @escaping @Sendable (ReceivedMessage) -> MessageVerdict
    ) {
        (self.configuration, self.store, self.cryptography) = (configuration, store, cryptography)
        (self.events, self.handler) = (events, handler)
    }

    deinit { stop() }

    /// Reads the state and begins to connect.
    ///
    /// - Parameter opened: messages opened from a notification that started the app; they are told to the gateway
    ///   with the first Hello, so that they do not arrive again.
    /// - Throws: `badConfiguration`, `stateUnreadable`, `systemResource`; `wrongState` when it runs already.
    public func start(opened: [MessageID] = []) throws(LongwireClientError) {
        try configuration.validate()
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
        var core = ClientCore(
            configuration: configuration, state: state, cryptography: cryptography,
            seed: cryptography.randomWord())
        for id in opened { core.perform(.opened(id), at: System.now()) }

        let mailbox = try ClientMailbox()
        let latch = Latch()
        let isFree = running.withValue { running in
            if case .yes(_, let earlier) = running, !earlier.isOpen { return false }
            running = .yes(mailbox, latch)
            return true
        }
        guard isFree else {
            throw LongwireClientError(code: .wrongState, message: "the client runs already; stop it first")
        }
        let runner = ClientRunner(core: core, mailbox: mailbox, store: store, handler: handler, events: events)
        let hasThread = ClientThread.start {
            runner.run()
            latch.open()
        }
        guard hasThread else {
            latch.open()
            throw LongwireClientError(code: .systemResource, message: "the system gave no thread")
        }
    }

    /// Says goodbye and ends; `stopped` is the last event.
    ///
    /// Does nothing when it does not run.
    public func stop() { post(.stop) }

    /// Waits until the client has ended, by `stop` or because the gateway refused it.
    ///
    /// Not for the handler.
    public func waitUntilStopped() {
        let latch = running.withValue { running -> Latch? in
            if case .yes(_, let latch) = running { latch } else { nil }
        }
        latch?.wait()
    }

    /// Tells the gateway how the app stands.
    ///
    /// Say `background` before the system freezes the app, and `foreground` first thing when it is back. What is read
    /// in between is left un-acked and comes again with its offline flag computed anew. So the app never shows as fresh
    /// what a notification has shown already.
    @discardableResult
    public func setApplicationState(_ state: ApplicationState, keepsRunning: Bool = false) -> Bool {
        post(.applicationState(state, keepsRunning: keepsRunning))
    }

    /// Sets the badge that the gateway counts on from.
    @discardableResult
    public func setBadge(_ badge: Int32) -> Bool { post(.badge(badge)) }

    /// Adds or replaces a vendor token; an empty one removes those of its channel and kind, or of its activity.
    ///
    /// A Live Activity has a token of its own, under the activity's name; the eight newest are kept.
    ///
    /// - Returns: false also for a token above 512 bytes, a topic above 255 or an activity above 64: no gateway would
    ///   take its Hello.
    @discardableResult
    public func setToken(_ token: VendorToken) -> Bool {
        ClientConfiguration.isSendable(token) && post(.token(token))
    }

    /// True: the gateway sends nothing on either channel until it is false again.
    @discardableResult
    public func setPushModeOff(_ isOff: Bool) -> Bool { post(.pushModeOff(isOff)) }

    /// Wishes for another heartbeat, 30 to 1800 s.
    @discardableResult
    public func setHeartbeat(seconds: UInt32) -> Bool { post(.heartbeat(seconds: seconds)) }

    /// The network is back, or is another one: the client ends a wait of its own, or tests the path it has.
    ///
    /// On Apple's systems it finds out by itself.
    @discardableResult
    public func networkChanged() -> Bool { post(.networkChanged) }

    /// The user opened this message from its notification: it will not be shown again, and the gateway is told now or
    /// with the next Hello.
    @discardableResult
    public func markOpened(_ message: MessageID) -> Bool { post(.opened(message)) }

    /// The message was shown, or a custom action (90001–90999) was taken on it.
    ///
    /// Lost when there is no session.
    @discardableResult
    public func report(_ kind: Feedback.Kind, of message: MessageID, action: UInt32 = 0) -> Bool {
        post(kind == .opened ? .opened(message) : .feedback(kind, message, action: action))
    }

    /// False when the client does not run, or too many calls wait for its thread already.
    @discardableResult
    private func post(_ command: ClientCommand) -> Bool {
        running.withValue { running in
            guard case .yes(let mailbox, let latch) = running, !latch.isOpen else { return false }
            return mailbox.post(command)
        }
    }
}
