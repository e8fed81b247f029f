// Messages and notifications for Objective-C, and the interface for a service extension. See LWClient.swift.
#if canImport(ObjectiveC)
public import Foundation
@preconcurrency public import UserNotifications

/// A message that arrived over the connection.
@objc(LWMessage) public final class LWMessage: NSObject {
    let value: ReceivedMessage
    init(_ value: ReceivedMessage) {
        self.value = value
        super.init()
    }

    /// The message's id.
    ///
    /// Its notification has the same id.
    @objc public var messageID: String { value.messageID.description }
    /// The publisher's task.
    @objc public var taskID: String { value.taskID.text }
    /// The publisher's bytes.
    @objc public var payload: Data { Data(value.payload) }
    /// Whether the message was queued for the device, as in Getui's `offLine`.
    @objc public var isOffline: Bool { value.isOffline }
    /// Whether the app should show the message itself: it was delivered at once, or its notification was hidden.
    @objc public var isNew: Bool { value.provenance == .live }
    /// Whether APNs accepted an alert of the message.
    ///
    /// The user may have seen it.
    @objc public var wasAlerted: Bool { value.alertedAt != 0 }
    /// Whether the user opened the message's notification.
    @objc public var wasOpened: Bool { value.wasOpened }
    /// The alert's title, or `nil` for a message without an alert.
    @objc public var alertTitle: String? { value.alert?.title }
    /// The alert's body, or `nil` for a message without an alert.
    @objc public var alertBody: String? { value.alert?.body }
    /// The `userInfo` for a local notification of the message, whose tap is then handled like that of a push.
    @objc public var notificationUserInfo: [String: Any] { value.notificationUserInfo }
    /// A request for a local notification of the message, or `nil` for a message without an alert.
    @objc public var notificationRequest: UNNotificationRequest? { value.notificationRequest }
}

/// The message behind a notification.
@objc(LWNotification) public final class LWNotification: NSObject {
    let value: PushNotification
    init(_ value: PushNotification) {
        self.value = value
        super.init()
    }

    /// Reads the `userInfo` of a notification; returns `nil` if it is not from the gateway.
    @objc public init?(userInfo: [AnyHashable: Any]) {
        guard let value = PushNotification(userInfo: userInfo) else { return nil }
        self.value = value
        super.init()
    }

    /// The id of the message.
    @objc public var messageID: String { value.messageID.description }
    /// The publisher's task.
    @objc public var taskID: String { value.taskID.text }
    /// The text under `payload`, or `nil` if the push has none.
    @objc public var payload: String? { value.payload }
    /// The page to open, from the member `url`.
    ///
    /// Check this text of the publisher before use.
    @objc public var url: String? { value.url }
    /// The screen to open, from the member `class`; look it up in a list of screens, never in `NSClassFromString`.
    @objc public var jumpClassName: String? { value.jump?.className }
    /// The parameters of the screen, from the member `property`.
    @objc public var jumpProperties: [String: Any] { (value.jump?.properties ?? [:]).compactMapValues { $0.any } }
    /// The publisher's members other than `aps` and `payload`.
    @objc public var extras: [String: Any] { value.extras.compactMapValues { $0.any } }
    /// Every member of the push.
    @objc public var userInfo: [String: Any] { value.userInfo }
    /// Whether the push only wakes the app.
    @objc public var isSilent: Bool { value.isSilent }
    /// Whether the app created the notification itself.
    @objc public var isLocal: Bool { value.isLocal }
}

/// The work of a notification service extension.
@objc(LWServiceExtension) public final class LWServiceExtension: NSObject {
    /// Reports a notification as shown, and calls `completion` with its content and the files of `longwire_media`.
    @objc(handleRequest:gateway:statePath:shownPath:completion:)
    public static func handle(
        _ request: UNNotificationRequest, gateway: String, statePath: String, shownPath: String,
        completion: @escaping (UNNotificationContent) -> Void
    ) {
        // No other code uses the request, because the system creates one extension object for each notification.
        nonisolated(unsafe) let (request, completion) = (request, completion)
        Task {
            completion(
                await ServiceExtension.content(
                    for: request, gateway: gateway, statePath: statePath, shownPath: shownPath))
        }
    }
}
#endif
