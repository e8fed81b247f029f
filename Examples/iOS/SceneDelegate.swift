// For an app with scenes, in addition to AppDelegate.swift, which reports the state of all scenes together.
import LongwireClient
import UIKit
import UserNotifications

final class SceneDelegate: UIResponder, UIWindowSceneDelegate {
    func scene(
        _ scene: UIScene, willConnectTo session: UISceneSession, options connectionOptions: UIScene.ConnectionOptions
    ) {
        // The tap that launched the app.
        guard let response = connectionOptions.notificationResponse else { return }
        (UIApplication.shared.delegate as? AppDelegate)?.tapped(response)
    }
}
