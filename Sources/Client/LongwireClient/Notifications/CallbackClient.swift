/// A client that calls back on the main actor: the base of the Objective-C interface.
///
/// Messages are delivered in order, one at a time. A message is acked after its callback has returned.
final class CallbackClient: Sendable {
    /// An event for the app.
    enum Callback: Equatable, Sendable {
        /// The gateway accepted a session of the device with this id.
        case connected(cid: String)
        case disconnected(reason: String)
        case received(ReceivedMessage)
        case revoked(task: String)
        /// The gateway has stored a message to the app's server, or refused it.
        case sent(payload: [UInt8], refusal: String?)
        case stopped(LongwireClientError?)
    }

    let client: LongwireClient
    private let deliver: @MainActor @Sendable (Callback) -> Void
    private let tasks = Guarded<[Task<Void, Never>]>([])

    init(
        configuration: ClientConfiguration, store: any StateStore,
        deliver: @escaping @MainActor @Sendable (Callback) -> Void
    ) {
        client = LongwireClient(configuration: configuration, store: store)
        self.deliver = deliver
        let events = client.events
        // The loop ends when the client is released, because the client then finishes its events.
        Task {
            for await event in events { if let callback = Self.callback(for: event) { await deliver(callback) } }
        }
    }

    deinit { for task in tasks.withValue({ $0 }) { task.cancel() } }

    func start() throws(LongwireClientError) {
        try client.start()
        let messages = client.messages
        let task = Task { [deliver] in
            // The loop requests the next message only after the callback, and the request acks this message.
            for await message in messages { await deliver(.received(message)) }
        }
        let earlier = tasks.withValue { tasks in
            defer { tasks = [task] }
            return tasks
        }
        for task in earlier { task.cancel() }
    }

    /// Returns the callback for an event, or `nil` for an event that has none.
    static func callback(for event: ClientEvent) -> Callback? {
        switch event {
        case .welcomed(let details): .connected(cid: details.cid.description)
        case .disconnected(let reason): .disconnected(reason: reason)
        case .closed(let code, let reason): .disconnected(reason: "the gateway closed with \(code): \(reason)")
        case .revoked(let task): .revoked(task: task.text)
        case .messageTaken(let message): .sent(payload: message.payload, refusal: nil)
        case .messageRefused(let message, let code, let reason):
            .sent(payload: message.payload, refusal: "code \(code): \(reason)")
        case .stopped(let error): .stopped(error)
        default: nil
        }
    }
}

extension LongwireClientError {
    /// The domain of the `NSError` for Objective-C.
    ///
    /// The number of a code never changes; 0 stands for a code without a number.
    static let domain = "LongwireClient"

    var number: Int {
        let codes: [Code] = [
            .stateUnreadable, .stateDamaged, .stateUnwritable, .badConfiguration, .refused, .protocolViolation,
            .unreachable, .systemResource, .wrongState, .namesRefused, .tryLater,
        ]
        return codes.firstIndex(of: code).map { $0 + 1 } ?? 0
    }
}
