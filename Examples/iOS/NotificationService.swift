// A service extension: the push needs `mutable-content`. It runs without the app, so it only notes what is shown.
import LongwireClient
import UserNotifications

final class NotificationService: UNNotificationServiceExtension {
    override func didReceive(
        _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
    ) {
        if let push = PushNotification(userInfo: request.content.userInfo), let folder = Self.folder {
            // A note that cannot be written costs a figure in a report, never the notification.
            try? NotificationReports(path: folder + "/longwire.shown").addShown(push.messageID)
        }
        show(request.content)
    }

    private static var folder: String? {
        FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: "group.com.example.app")?.path
    }
}
