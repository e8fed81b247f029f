// The receive paths of an app (docs/use/iOS.md explains each). The app presents; the client presents nothing.
import LongwireClient
import UIKit
import UserNotifications

// The system calls the notification centre's delegate on the main thread, though its protocol does not say so.
@main
final class AppDelegate: UIResponder, UIApplicationDelegate, @preconcurrency UNUserNotificationCenterDelegate {
    /// Shared with the service extension; both targets have this app group.
    static let group = "group.com.example.app"

    /// The folder of the device's identity; in one that the system cleans up the device would begin anew.
    private lazy var folder: String = {
        guard let group = FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: Self.group) else {
            fatalError("the app has no group \(Self.group): add it under Signing & Capabilities, App Groups")
        }
        return group.path
    }()
    private var lastTap: MessageID?
    private lazy var client: LongwireClient = {
        var configuration = ClientConfiguration(
            host: "gateway.example.com", port: 7_443, appID: "demo", appSecret: "demo-app-secret")
        configuration.usesTLS = true
        // A silent push may start the app in the background: say foreground only when it is.
        configuration.applicationState = .background
        return LongwireClient(configuration: configuration, store: FileStateStore(path: folder + "/longwire.state"))
    }()

    func application(
        _ application: UIApplication, didFinishLaunchingWithOptions options: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool {
        // Before this returns: the system calls `didReceive` for the tap that launched the app.
        UNUserNotificationCenter.current().delegate = self
        watchState()
        client.report(NotificationReports(path: folder + "/longwire.shown"))
        do {
            try client.start()
        } catch {
            // `.stateDamaged` stays so: `FileStateStore.setAside` lets the device begin anew. Others may pass by themselves.
            print("no messages: \(error)")
        }
        Task { @MainActor in
            for await message in client.messages { receive(message) }
        }
        application.registerForRemoteNotifications()
        return true
    }

    // MARK: Messages over the connection

    private func receive(_ message: ReceivedMessage) {
        // Data first: the message is acked when the loop asks for the next one.
        Inbox.shared.add(message.payload, id: message.messageID.description)
        switch message.provenance {
        case .live: Banner.show(message.alert?.title, message.alert?.body)
        // Queued or alerted: the user comes to it by the inbox; a second banner would only repeat.
        case .queued, .alerted: break
        }
        client.report(.shown(message.messageID))
    }

    // MARK: Foreground and background

    /// The system posts these to apps with scenes, too.
    ///
    /// There it does not call `applicationDidBecomeActive` and its like.
    private func watchState() {
        let center = NotificationCenter.default
        center.addObserver(forName: UIApplication.didBecomeActiveNotification, object: nil, queue: .main) {
            [weak self] _ in
            MainActor.assumeIsolated { self?.cameForward() }
        }
        center.addObserver(forName: UIApplication.didEnterBackgroundNotification, object: nil, queue: .main) {
            [weak self] _ in
            MainActor.assumeIsolated { self?.wentBack() }
        }
    }

    private func cameForward() {
        client.setApplicationState(.foreground)
        client.setBadge(0)
        UNUserNotificationCenter.current().setBadgeCount(0)
    }

    private func wentBack() { client.setApplicationState(.background) }

    // MARK: Notifications

    func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken token: Data) {
        #if DEBUG
        let environment = VendorToken.Environment.sandbox
        #else
        let environment = VendorToken.Environment.production
        #endif
        let text = token.map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
        client.setToken(VendorToken(environment: environment, topic: "com.example.app", token: text))
    }

    func userNotificationCenter(
        _ center: UNUserNotificationCenter, didReceive response: UNNotificationResponse,
        withCompletionHandler done: @escaping () -> Void
    ) {
        tapped(response)
        done()
    }

    /// Also for a scene that a tap connected (SceneDelegate.swift): the system may tell of one tap on both ways.
    func tapped(_ response: UNNotificationResponse) {
        // At launch, too; stored at once. The copy on the connection is then acked and not handed over.
        guard let tapped = client.handleTap(userInfo: response.notification.request.content.userInfo),
            tapped.messageID != lastTap
        else { return }
        lastTap = tapped.messageID
        Pages.open(payload: tapped.payload, id: tapped.messageID.description)
    }

    func userNotificationCenter(
        _ center: UNUserNotificationCenter, willPresent notification: UNNotification,
        withCompletionHandler show: @escaping (UNNotificationPresentationOptions) -> Void
    ) {
        // In the foreground the message itself is here or on its way, and the app shows it.
        show(PushNotification(userInfo: notification.request.content.userInfo) == nil ? [.banner, .sound] : [])
    }

    func application(
        _ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]
    ) async -> UIBackgroundFetchResult {
        guard PushNotification(userInfo: userInfo) != nil else { return .noData }
        let result = await client.fetch(within: .seconds(20))
        if result.messageCount > 0 { return .newData }
        return result.isComplete ? .noData : .failed
    }
}
