// The work of a notification service extension. Type-checked against stubs (Tests/Checks/check-client.sh).
#if canImport(UserNotifications)
internal import Foundation
// The framework's classes have no `Sendable` annotations in older SDKs.
@preconcurrency public import UserNotifications

/// The work of a notification service extension: a report to the gateway, and the files of the push.
public enum ServiceExtension {
    /// Reports a notification as shown, and returns its content with the files of `longwire_media`.
    ///
    /// The message is also recorded in the file `shownPath`, which the app's client reports in its next session. Repeated
    /// reports count once.
    ///
    /// - Parameters:
    ///   - request: the extension's request.
    ///   - gateway: the URL of the gateway's public HTTP listener, as in `DisplayReceipts`.
    ///   - statePath: the file of the app's `FileStateStore`, in the app group's folder.
    ///   - shownPath: the file of the app's `NotificationReports`, in the same folder.
    /// - Returns: the content to show. A notification that is not from the gateway keeps the content of the request.
    public static func content(
        for request: UNNotificationRequest, gateway: String, statePath: String, shownPath: String
    ) async -> UNNotificationContent {
        guard let push = PushNotification(userInfo: request.content.userInfo) else { return request.content }
        // If both the file and the call fail, the statistics lack one report. The notification is shown nevertheless.
        try? NotificationReports(path: shownPath).addShown(push.messageID)
        let receipts = DisplayReceipts(gateway: gateway, statePath: statePath)
        _ = try? await receipts.report([.shown(push.messageID)], timeoutSeconds: 5)
        return await push.attachingMedia(to: request.content)
    }
}
#endif
