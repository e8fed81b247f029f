// Notification helpers over Apple's UserNotifications. Their rules are in `Notifications`, which is tested on Linux. This file
// is only type-checked against stubs (Tests/Checks/check-client.sh).
#if canImport(UserNotifications)
internal import Foundation
// The framework's classes have no `Sendable` annotations in older SDKs.
@preconcurrency public import UserNotifications

extension LongwireClient {
    /// Handles a tap; see `handleTap(userInfo:)`.
    ///
    /// - Returns: the notification, or `nil` if there is nothing to open. Dismissing a notification does not count as a tap.
    @discardableResult
    public func handleTap(_ response: UNNotificationResponse) -> PushNotification? {
        guard response.actionIdentifier != UNNotificationDismissActionIdentifier else { return nil }
        return handleTap(userInfo: response.notification.request.content.userInfo)
    }

    /// Handles a tap, and keeps it until the app calls `takeTaps`; see `keepTap(userInfo:)`.
    ///
    /// - Returns: false if there is nothing to open. Dismissing a notification does not count as a tap.
    @discardableResult
    public func keepTap(_ response: UNNotificationResponse) -> Bool {
        guard response.actionIdentifier != UNNotificationDismissActionIdentifier else { return false }
        return keepTap(userInfo: response.notification.request.content.userInfo)
    }

    /// Returns the options for `willPresent`: `shown` for a notification that the system should show, otherwise none.
    public func presentationOptions(
        for notification: UNNotification, shown: UNNotificationPresentationOptions = [.banner, .list, .sound]
    ) -> UNNotificationPresentationOptions {
        presentation(userInfo: notification.request.content.userInfo).isShown ? shown : []
    }

    /// Sets the icon's badge, and reports it to the gateway.
    ///
    /// - Parameters:
    ///   - badge: the new number.
    ///   - keepsNotifications: whether delivered notifications stay when the badge becomes 0; if false, iOS removes them.
    /// - Throws: the system's error.
    public func setIconBadge(_ badge: Int32, keepsNotifications: Bool = true) async throws {
        setBadge(max(0, badge))
        let center = UNUserNotificationCenter.current()
        switch IconBadge(badge, keepsNotifications: keepsNotifications) {
        case .count(let number): try await center.setBadgeCount(number)
        case .localNotification(let number):
            let content = UNMutableNotificationContent()
            content.badge = NSNumber(value: number)
            try await center.add(
                UNNotificationRequest(identifier: "longwire.badge", content: content, trigger: nil))
        }
    }
}

extension ReceivedMessage {
    /// A request for a local notification of this message, with the alert's texts and the `userInfo` for `handleTap`.
    ///
    /// `nil` for a message without an alert, because there is no text to show.
    public var notificationRequest: UNNotificationRequest? {
        guard let alert else { return nil }
        let content = UNMutableNotificationContent()
        (content.title, content.body) = (alert.title, alert.body)
        (content.userInfo, content.sound) = (notificationUserInfo, .default)
        return UNNotificationRequest(identifier: notificationIdentifier, content: content, trigger: nil)
    }
}

extension RevokedNotifications {
    /// Removes the notifications of a task from the notification centre.
    ///
    /// Call this after the event `ClientEvent.revoked`.
    public static func remove(of task: TaskID) async {
        let center = UNUserNotificationCenter.current()
        let shown = await center.deliveredNotifications().map(\.request)
        center.removeDeliveredNotifications(withIdentifiers: identifiers(of: task, among: shown))
        let pending = await center.pendingNotificationRequests()
        center.removePendingNotificationRequests(withIdentifiers: identifiers(of: task, among: pending))
    }

    private static func identifiers(of task: TaskID, among requests: [UNNotificationRequest]) -> [String] {
        identifiers(of: task, among: requests.map { (identifier: $0.identifier, userInfo: $0.content.userInfo) })
    }
}

extension PushNotification {
    /// Downloads the files of `media`, for a service extension.
    ///
    /// A file is left out if its download fails, or if it is too large or of an unsupported type. The system moves the files
    /// when the extension returns the content.
    ///
    /// - Parameter seconds: the timeout of each download. A service extension has about 30 s for all its work.
    /// - Returns: the attachments, in the order of `media`.
    public func attachments(within seconds: Double = 8) async -> [UNNotificationAttachment] {
        var attachments: [UNNotificationAttachment] = []
        for (index, item) in media.enumerated() {
            guard let url = URL(string: item.url) else { continue }
            var request = URLRequest(url: url)
            request.timeoutInterval = seconds
            request.allowsCellularAccess = !item.needsWiFi
            let folder = NSTemporaryDirectory()
            let place = URL(fileURLWithPath: folder + "/longwire-\(messageID)-\(index).\(item.fileExtension)")
            do {
                let (file, response) = try await URLSession.shared.download(for: request)
                let size = try FileManager.default.attributesOfItem(atPath: file.path)[.size] as? Int
                guard (response as? HTTPURLResponse)?.statusCode == 200, size ?? .max <= item.byteLimit else {
                    try? FileManager.default.removeItem(at: file)
                    continue
                }
                // An earlier download for the same message may have left a file.
                try? FileManager.default.removeItem(at: place)
                try FileManager.default.moveItem(at: file, to: place)
                attachments.append(try UNNotificationAttachment(identifier: "\(index)", url: place, options: nil))
            } catch {
                continue
            }
        }
        return attachments
    }

    /// Returns a copy of a notification's content with the files of `media` attached, for a service extension.
    public func attachingMedia(
        to content: UNNotificationContent, within seconds: Double = 8
    ) async -> UNNotificationContent {
        let attachments = await attachments(within: seconds)
        guard !attachments.isEmpty, let copy = content.mutableCopy() as? UNMutableNotificationContent else {
            return content
        }
        copy.attachments = attachments
        return copy
    }
}
#endif
