extension ReceivedMessage {
    /// The `userInfo` for a local notification that the app makes from this message.
    ///
    /// With it, `LongwireClient.handleTap` handles a tap as that of a push: the message is marked as opened, and a repeated tap
    /// is filtered. A payload that is valid UTF-8 is included as a text.
    public var notificationUserInfo: [String: Any] {
        var userInfo: [String: Any] = [
            PushNotification.Key.ids: "\(taskID.text):\(messageID)", PushNotification.Key.local: true,
        ]
        let text = String(decoding: payload, as: UTF8.self)
        // Decoding replaces invalid bytes, and the text then differs from the payload.
        if !text.isEmpty, text.utf8.elementsEqual(payload) { userInfo[PushNotification.Key.payload] = text }
        return userInfo
    }

    /// The identifier for a local notification of this message; a second copy of the message replaces the first one's.
    public var notificationIdentifier: String { messageID.description }
}

/// Notifications of a revoked task.
public enum RevokedNotifications {
    /// Returns the identifiers of the notifications to remove after the event `ClientEvent.revoked`.
    ///
    /// - Parameters:
    ///   - task: the revoked task.
    ///   - notifications: the delivered or pending notifications. Those of other tasks, or not from the gateway, are left out.
    /// - Returns: the identifiers, in the order of `notifications`.
    public static func identifiers(
        of task: TaskID, among notifications: some Sequence<(identifier: String, userInfo: [AnyHashable: Any])>
    ) -> [String] {
        notifications.compactMap { PushNotification(userInfo: $0.userInfo)?.taskID == task ? $0.identifier : nil }
    }
}

/// The change to make to the app's icon for a new badge.
public enum IconBadge: Equatable, Sendable {
    /// Set the number with `UNUserNotificationCenter.setBadgeCount`.
    ///
    /// iOS removes all delivered notifications of the app if the number is 0.
    case count(Int)
    /// Add a silent local notification with this badge, which is −1.
    ///
    /// It clears the icon's badge, and the delivered notifications stay.
    case localNotification(badge: Int)

    /// Chooses the way to set the icon's badge.
    ///
    /// - Parameters:
    ///   - badge: the new number; a negative number is set as 0.
    ///   - keepsNotifications: whether delivered notifications stay when the badge is cleared.
    public init(_ badge: Int32, keepsNotifications: Bool) {
        self = badge <= 0 && keepsNotifications ? .localNotification(badge: -1) : .count(Int(max(0, badge)))
    }
}
