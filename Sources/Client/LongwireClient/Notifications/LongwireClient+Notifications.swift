extension LongwireClient {
    /// Handles a tap on a notification: marks its message as opened, and returns the notification to show.
    ///
    /// A repeated tap is ignored, because iOS passes one tap both to the notification centre's delegate and to a scene. The
    /// last 256 opened messages are stored, so this also works after a restart. Before `start` and after `stop`, the call
    /// writes the mark to the state store at once.
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
    /// Use this for a tap that may arrive before the app's interface exists. The last eight notifications are stored and
    /// survive a restart of the app.
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

    /// Returns and removes the kept taps, oldest first.
    ///
    /// Call this as soon as the interface can show a page, and after each later `keepTap`.
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

    /// Reads the opened messages and kept taps of earlier processes, unless a start has read them.
    ///
    /// A failed read is retried at the next call. Until then only repeated taps of this process are ignored.
    private func learnNotifications() {
        guard !board.isLoaded else { return }
        do { board.learn(try calls.read()) } catch { return }
    }

    // MARK: Presentation

    /// Decides whether the system should show a notification that arrives while the app is in the foreground.
    ///
    /// If the push arrives before its message, the gateway may have failed to reach the app. The client then tests its
    /// connection, or shortens its backoff. After `hide(.arriving)` the message has `wasAlertHidden`, so that the app shows it.
    ///
    /// - Parameter userInfo: the notification's `userInfo`.
    /// - Returns: `hide` if the message has arrived, or if the existing connection will deliver it.
    ///   `show` for any other notification.
    public func presentation(userInfo: [AnyHashable: Any]) -> NotificationPresentation {
        guard let notification = PushNotification(userInfo: userInfo) else { return .show(.foreign) }
        if notification.isLocal { return .show(.local) }
        let presentation = board.present(notification.messageID)
        if presentation != .hide(.received) { _ = calls.post(.checkConnection) }
        return presentation
    }

    /// Handles a push that iOS passes to `didReceiveRemoteNotification`: receives the queued messages.
    ///
    /// iOS calls `didReceiveRemoteNotification` for a silent push, and for an alert with `content-available`. Both may belong
    /// to one message. This call delivers no content itself, so the message is in `messages` only once. A push whose message
    /// has arrived causes no fetch.
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
        /// The client has no session, so the message cannot arrive yet.
        case disconnected
    }

    /// The reason not to show a notification.
    public enum HideReason: Equatable, Sendable {
        /// The message has arrived over the connection.
        case received
        /// The message has not arrived yet. The existing connection will deliver it.
        case arriving
    }
}

/// The result of `LongwireClient.handleRemoteNotification`.
public enum RemoteNotificationResult: Equatable, Sendable {
    /// The push is not from the gateway and was ignored.
    case notFromGateway
    /// Messages arrived.
    case newData
    /// No new message arrived.
    case noData
    /// The gateway was not reached in time. The messages arrive later.
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
