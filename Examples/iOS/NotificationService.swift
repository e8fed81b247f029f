// A service extension: the push needs `mutable-content`. It runs without the app, so it tells the gateway itself.
import LongwireClient
import UserNotifications

final class NotificationService: UNNotificationServiceExtension {
    override func didReceive(
        _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
    ) {
        guard let push = PushNotification(userInfo: request.content.userInfo), let folder = Self.folder else {
            return show(request.content)
        }
        // For the app's next session, should the call below not get through. What is told twice counts once; a note
        // that cannot be written costs a figure in a report, never the notification.
        try? NotificationReports(path: folder + "/longwire.shown").addShown(push.messageID)
        let receipts = DisplayReceipts(
            gateway: "https://push.example.com", statePath: folder + "/longwire.state")
        // The system calls one extension object for one notification and ends it when the content is handed over.
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
