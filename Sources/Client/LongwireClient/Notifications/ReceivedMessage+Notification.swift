extension ReceivedMessage {
    /// The `userInfo` for a local notification that the app creates for this message.
    ///
    /// `LongwireClient.handleTap` then handles its tap like the tap of a push. A payload in valid UTF-8 is included as text.
    public var notificationUserInfo: [String: Any] {
        var userInfo: [String: Any] = [
            PushNotification.Key.ids: "\(taskID.text):\(messageID)", PushNotification.Key.local: true,
        ]
        let text = String(decoding: payload, as: UTF8.self)
        // Decoding replaces invalid UTF-8, so the text of such a payload differs from its bytes.
        if !text.isEmpty, text.utf8.elementsEqual(payload) { userInfo[PushNotification.Key.payload] = text }
        return userInfo
    }

    /// The identifier for a local notification of this message.
    ///
    /// A notification for a second copy replaces the first.
    public var notificationIdentifier: String { messageID.description }
}

/// Notifications of a revoked task.
public enum RevokedNotifications {
    /// Returns the identifiers of the notifications to remove after the event `ClientEvent.revoked`.
    ///
    /// - Parameters:
    ///   - task: the revoked task.
    ///   - notifications: the delivered or pending notifications, including those of other tasks or services.
    /// - Returns: the identifiers, in the order of `notifications`.
    public static func identifiers(
        of task: TaskID, among notifications: some Sequence<(identifier: String, userInfo: [AnyHashable: Any])>
    ) -> [String] {
        notifications.compactMap { PushNotification(userInfo: $0.userInfo)?.taskID == task ? $0.identifier : nil }
    }
}

/// The way to set the badge of the app's icon.
public enum IconBadge: Equatable, Sendable {
    /// A call of `UNUserNotificationCenter.setBadgeCount` with this number.
    ///
    /// If the number is 0, iOS removes all delivered notifications of the app.
    case count(Int)
    /// A silent local notification with this badge, which is −1.
    ///
    /// The notification clears the icon's badge without removing the delivered notifications.
    case localNotification(badge: Int)

    /// Chooses the way to set the icon's badge.
    ///
    /// - Parameters:
    ///   - badge: the new number; negative numbers count as 0.
    ///   - keepsNotifications: whether delivered notifications stay when the badge becomes 0.
    public init(_ badge: Int32, keepsNotifications: Bool) {
        self = badge <= 0 && keepsNotifications ? .localNotification(badge: -1) : .count(Int(max(0, badge)))
    }
}
