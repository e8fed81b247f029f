// The ways in which an app receives messages; docs/use/iOS.md explains each. The client presents nothing, the app does.
import LongwireClient
import UIKit
import UserNotifications

// The system calls this delegate on the main thread, although the protocol does not declare it.
@main
final class AppDelegate: UIResponder, UIApplicationDelegate, @preconcurrency UNUserNotificationCenterDelegate {
    /// The app group that the app shares with its service extension.
    static let group = "group.com.example.app"

    /// The folder of the device's state; the system must not clean it up, or the device registers anew.
    private lazy var folder: String = {
        guard let group = FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: Self.group) else {
            fatalError("the app has no group \(Self.group): add it under Signing & Capabilities, App Groups")
        }
        return group.path
    }()
    private lazy var client: LongwireClient = {
        var configuration = ClientConfiguration(
            host: "gateway.example.com", port: 7_443, appID: "demo", appSecret: "demo-app-secret")
        configuration.usesTLS = true
        // A silent push may start the app in the background, so the client starts in this state.
        configuration.applicationState = .background
        return LongwireClient(configuration: configuration, store: FileStateStore(path: folder + "/longwire.state"))
    }()

    func application(
        _ application: UIApplication, didFinishLaunchingWithOptions options: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool {
        // Set before this method returns, so that the system calls `didReceive` for the tap that launched the app.
        UNUserNotificationCenter.current().delegate = self
        watchState()
        client.report(NotificationReports(path: folder + "/longwire.shown"))
        do {
            try client.start()
        } catch {
            // After `.stateDamaged`, `FileStateStore.setAside` allows the device to register anew. Other errors may be
            // temporary.
            print("no messages: \(error)")
        }
        Task { @MainActor in
            for await message in client.messages { receive(message) }
        }
        Task { @MainActor in
            for await event in client.events {
                if case .revoked(let task) = event { await RevokedNotifications.remove(of: task) }
            }
        }
        application.registerForRemoteNotifications()
        return true
    }

    // MARK: Messages over the connection

    private func receive(_ message: ReceivedMessage) {
        // The message is stored first. It is acked when the loop requests the next one.
        Inbox.shared.add(message.payload, id: message.messageID.description)
        // A queued or alerted message appears only in the inbox, because a notification would repeat its alert.
        guard message.provenance == .live, let request = message.notificationRequest else { return }
        UNUserNotificationCenter.current().add(request)
        client.report(.shown(message.messageID))
    }

    // MARK: Foreground and background

    /// Observes the notifications that the system also posts for apps with scenes.
    ///
    /// For these apps the system does not call `applicationDidBecomeActive` and similar methods.
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
        openTaps()
        let client = client
        // This clears the badge and keeps the notifications.
        Task { try? await client.setIconBadge(0) }
    }

    private func wentBack() { client.setApplicationState(.background) }

    func applicationWillTerminate(_ application: UIApplication) { client.applicationWillTerminate() }

    // MARK: Notifications

    func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken token: Data) {
        do {
            let environment = try VendorToken.Environment.ofApp()
            let token = VendorToken(deviceToken: token, environment: environment, topic: "com.example.app")
            client.setToken(try token.checked())
        } catch {
            print("no alerts: \(error)")
        }
    }

    func userNotificationCenter(
        _ center: UNUserNotificationCenter, didReceive response: UNNotificationResponse,
        withCompletionHandler done: @escaping () -> Void
    ) {
        tapped(response)
        done()
    }

    /// Handles a tap; with scenes (SceneDelegate.swift) the system may report the same tap twice.
    func tapped(_ response: UNNotificationResponse) {
        // The client stores the tap at once and ignores a repeated one. It acks the copy on the connection without passing it
        // to the app.
        client.keepTap(response)
        openTaps()
    }

    /// Opens the pages of the kept taps, if the app can show pages already.
    func openTaps() {
        guard Pages.areReady else { return }
        for tap in client.takeTaps() { Pages.open(payload: tap.payload, id: tap.messageID.description) }
    }

    func userNotificationCenter(
        _ center: UNUserNotificationCenter, willPresent notification: UNNotification,
        withCompletionHandler show: @escaping (UNNotificationPresentationOptions) -> Void
    ) {
        // In the foreground the connection delivers the message, and the app shows it.
        show(client.presentationOptions(for: notification))
    }

    func application(
        _ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]
    ) async -> UIBackgroundFetchResult {
        switch await client.handleRemoteNotification(userInfo: userInfo) {
        case .newData: .newData
        case .noData, .notFromGateway: .noData
        case .failed: .failed
        }
    }
}
