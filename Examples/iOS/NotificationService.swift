// A service extension. The push needs `mutable-content`. The extension runs without the app and reports to the gateway itself.
import LongwireClient
import UserNotifications

final class NotificationService: UNNotificationServiceExtension {
    override func didReceive(
        _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
    ) {
        guard let folder = Self.folder else { return show(request.content) }
        // The system creates one extension object per notification, and ends it when the content is handed over.
        nonisolated(unsafe) let (request, show) = (request, show)
        Task {
            show(
                await ServiceExtension.content(
                    for: request, gateway: "https://push.example.com", statePath: folder + "/longwire.state",
                    shownPath: folder + "/longwire.shown"))
        }
    }

    private static var folder: String? {
        FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: "group.com.example.app")?.path
    }
}
