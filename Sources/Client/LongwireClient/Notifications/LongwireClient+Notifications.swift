extension LongwireClient {
    /// Handles a tap on a notification: marks its message as opened, and returns what the app should show.
    ///
    /// The mark is stored, so a repeated tap is filtered also after a restart of the app: iOS passes one tap both to the
    /// notification centre's delegate and to a scene. Before `start` and after `stop` the mark goes into the state store at
    /// once. The last 256 opened messages are known.
    ///
    /// - Parameter userInfo: the notification's `userInfo`, of a push or a local notification.
    /// - Returns: the notification, or `nil` if there is nothing to open: it is not from the gateway, or its message was opened
    ///   before.
    @discardableResult
    public func handleTap(userInfo: [AnyHashable: Any]) -> PushNotification? {
        guard let notification = PushNotification(userInfo: userInfo), isNewlyOpened(notification.messageID) else {
            return nil
        }
        calls.postOrKeep([.opened(notification.messageID)])
        return notification
    }

    /// Handles a tap like `handleTap`, and keeps the notification until the app calls `takeTaps`.
    ///
    /// For a tap that may arrive before the app's interface exists. The notification is stored, so that it survives the end of
    /// the app. The last eight are kept.
    ///
    /// - Parameter userInfo: the notification's `userInfo`, of a push or a local notification.
    /// - Returns: false if there is nothing to open, as in `handleTap`.
    @discardableResult
    public func keepTap(userInfo: [AnyHashable: Any]) -> Bool {
        guard let notification = PushNotification(userInfo: userInfo), isNewlyOpened(notification.messageID) else {
            return false
        }
        board.keep(notification)
        calls.postOrKeep([.tapped(notification)])
        return true
    }

    /// Returns the kept taps, oldest first, and forgets them.
    ///
    /// Call this when the interface can show a page, and after each `keepTap` from then on.
    public func takeTaps() -> [PushNotification] {
        learnNotifications()
        let taps = board.takeTaps()
        if !taps.isEmpty { calls.postOrKeep([.tapsTaken(taps.map(\.messageID))]) }
        return taps
    }

    /// Records that the user opened this message from its notification.
    ///
    /// The message is not shown again, and the gateway is informed now or with the next Hello. Before `start` and after `stop`
    /// the record goes into the state store at once. A later `handleTap` of the message returns `nil`.
    ///
    /// - Returns: false when the record could not be kept: 512 calls already wait for a store that cannot be written.
    @discardableResult
    public func markOpened(_ message: MessageID) -> Bool {
        _ = isNewlyOpened(message)
        return calls.postOrKeep([.opened(message)])
    }

    private func isNewlyOpened(_ message: MessageID) -> Bool {
        learnNotifications()
        return board.open(message)
    }

    /// Reads the opened messages and kept taps of earlier processes, if a start has not done so.
    ///
    /// A store that cannot be read is tried again at the next call; until then only this process's taps are filtered.
    private func learnNotifications() {
        guard !board.isLoaded else { return }
        do { board.learn(try calls.read()) } catch { return }
    }

    // MARK: Presentation

    /// Decides whether the system should show a notification that arrives while the app is in the foreground.
    ///
    /// A push of a message that has not arrived shows that the gateway did not reach the app. The client then tests its connection,
    /// or shortens its backoff. After `hide` the message arrives with `wasAlertHidden`, so that the app shows it.
    ///
    /// - Parameter userInfo: the notification's `userInfo`.
    /// - Returns: `hide` for a push whose message has arrived, or arrives over the existing connection.
    public func presentation(userInfo: [AnyHashable: Any]) -> NotificationPresentation {
        guard let notification = PushNotification(userInfo: userInfo) else { return .show(.foreign) }
        if notification.isLocal { return .show(.local) }
        let presentation = board.present(notification.messageID)
        if presentation != .hide(.received) { _ = calls.post(.checkConnection) }
        return presentation
    }

    /// Handles a push that iOS passes to `didReceiveRemoteNotification`: receives the queued messages.
    ///
    /// iOS calls this method for a silent push, and for an alert with `content-available`. Both may belong to one message. The
    /// message is in `messages` once: this call passes on no content itself. A second push of a received message ends at once.
    ///
    /// - Parameters:
    ///   - userInfo: the push's `userInfo`.
    ///   - time: the longest duration, as in `fetch`.
    /// - Returns: the result for the system's completion handler.
    public func handleRemoteNotification(
        userInfo: [AnyHashable: Any], within time: Duration = .seconds(20)
    ) async -> RemoteNotificationResult {
        await handleRemoteNotification(PushNotification(userInfo: userInfo), within: time)
    }

    func handleRemoteNotification(
        _ notification: PushNotification?, within time: Duration
    ) async -> RemoteNotificationResult {
        guard let notification else { return .notFromGateway }
        if board.hasReceived(notification.messageID) { return .noData }
        let result = await fetch(within: time)
        if result.messageCount > 0 { return .newData }
        return result.isComplete ? .noData : .failed
    }
}

/// The presentation of a notification that arrives while the app is in the foreground.
public enum NotificationPresentation: Equatable, Sendable {
    case show(ShowReason)
    case hide(HideReason)

    /// Whether the system should show the notification.
    public var isShown: Bool { if case .show = self { true } else { false } }

    /// The reason to show a notification.
    public enum ShowReason: Equatable, Sendable {
        /// The notification is not from the gateway.
        case foreign
        /// The app itself made the notification.
        case local
        /// The client has no session, so the message arrives over the connection only later.
        case disconnected
    }

    /// The reason not to show a notification.
    public enum HideReason: Equatable, Sendable {
        /// The message has arrived over the connection.
        case received
        /// The message arrives over the connection.
        case arriving
    }
}

/// The result of `LongwireClient.handleRemoteNotification`.
public enum RemoteNotificationResult: Equatable, Sendable {
    /// The push is not from the gateway, and nothing was done.
    case notFromGateway
    /// Messages arrived.
    case newData
    /// There is no new message.
    case noData
    /// The gateway was not reached in time; the messages arrive later.
    case failed

    /// The value of UIKit's `UIBackgroundFetchResult`, or −1 for a push that is not from the gateway.
    public var backgroundFetchResult: Int {
        switch self {
        case .newData: 0
        case .noData: 1
        case .failed: 2
        case .notFromGateway: -1
        }
    }
}
