// A service extension. The push needs `mutable-content`. The extension runs without the app and reports to the gateway itself.
import LongwireClient
import UserNotifications

final class NotificationService: UNNotificationServiceExtension {
    override func didReceive(
        _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
    ) {
        guard let push = PushNotification(userInfo: request.content.userInfo), let folder = Self.folder else {
            return show(request.content)
        }
        // A note for the app's next session, in case the call below fails. The gateway counts a repeated report once. If the
        // note cannot be written, only the report is lost.
        try? NotificationReports(path: folder + "/longwire.shown").addShown(push.messageID)
        let receipts = DisplayReceipts(
            gateway: "https://push.example.com", statePath: folder + "/longwire.state")
        // The system creates one extension object per notification, and ends it when the content is handed over.
        nonisolated(unsafe) let (content, show) = (request.content, show)
        Task {
            _ = try? await receipts.report([.shown(push.messageID)], timeoutSeconds: 5)
            show(content)
        }
    }

    private static var folder: String? {
        FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: "group.com.example.app")?.path
    }
}
