/// The app's opened messages, kept taps and received messages, for filtering repeated taps and alerts.
///
/// The entries of earlier processes are read from the state store once. Later changes are recorded here first. Each list has a
/// maximum length; its oldest entries are dropped.
final class NotificationBoard: Sendable {
    private struct State {
        var isLoaded = false
        var opened: [MessageID] = []
        var waiting: [PushNotification] = []
        var received: [MessageID] = []
        /// Messages that have not arrived yet and whose notification was hidden in the foreground.
        var hidden: [MessageID] = []
        var isConnected = false
    }

    private let state = Guarded(State())

    /// Whether the entries of earlier processes have been read.
    var isLoaded: Bool { state.withValue(\.isLoaded) }

    /// Adds the stored entries of earlier processes; only the first call has an effect.
    func learn(_ stored: ClientState?) {
        state.withValue { state in
            guard !state.isLoaded else { return }
            state.isLoaded = true
            guard let stored else { return }
            let (opened, waiting) = (Set(state.opened), state.waiting)
            let earlier = stored.taps.filter { tap in !waiting.contains { $0.messageID == tap.messageID } }
            state.waiting = (earlier + waiting).suffix(Limits.tapCount)
            state.opened = (stored.opened.filter { !opened.contains($0) } + state.opened).suffix(Limits.openedCount)
        }
    }

    /// Records that the message was opened; returns false if it was opened before.
    func open(_ id: MessageID) -> Bool {
        state.withValue { state in
            guard !state.opened.contains(id) else { return false }
            state.opened = (state.opened + CollectionOfOne(id)).suffix(Limits.openedCount)
            return true
        }
    }

    /// Keeps a tap for `takeTaps`.
    ///
    /// Beyond `Limits.tapCount` taps the oldest is dropped.
    func keep(_ tap: PushNotification) {
        state.withValue { $0.waiting = ($0.waiting + CollectionOfOne(tap)).suffix(Limits.tapCount) }
    }

    /// Returns and removes the kept taps, oldest first.
    func takeTaps() -> [PushNotification] {
        state.withValue { state in
            defer { state.waiting = [] }
            return state.waiting
        }
    }

    /// Records that a message arrived over the connection.
    ///
    /// Returns the message, with `wasAlertHidden` true if its notification was hidden.
    func receive(_ message: ReceivedMessage) -> ReceivedMessage {
        state.withValue { state in
            var message = message
            let id = message.messageID
            message.wasAlertHidden = state.hidden.contains(id)
            state.hidden.removeAll { $0 == id }
            if !state.received.contains(id) {
                state.received = (state.received + CollectionOfOne(id)).suffix(Limits.openedCount)
            }
            return message
        }
    }

    /// Tracks whether the client has a session.
    func note(_ event: ClientEvent) {
        switch event {
        case .welcomed: state.withValue { $0.isConnected = true }
        case .disconnected, .closed, .stopped, .stateNotStored: state.withValue { $0.isConnected = false }
        default: break
        }
    }

    /// Decides whether to show the notification of a message while the app is in the foreground.
    func present(_ id: MessageID) -> NotificationPresentation {
        state.withValue { state in
            if state.received.contains(id) { return .hide(.received) }
            guard state.isConnected else { return .show(.disconnected) }
            if !state.hidden.contains(id) {
                state.hidden = (state.hidden + CollectionOfOne(id)).suffix(Limits.openedCount)
            }
            return .hide(.arriving)
        }
    }

    /// Returns whether the message arrived over the connection in this process.
    func hasReceived(_ id: MessageID) -> Bool { state.withValue { $0.received.contains(id) } }
}
