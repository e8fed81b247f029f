// Declarations of Apple's UIKit that the examples use. Only to check types against.
@_exported public import Foundation
public import UserNotifications

@MainActor open class UIResponder: NSObject {}

@MainActor public final class UIApplication {
    public struct LaunchOptionsKey: Hashable, Sendable {}
    public func registerForRemoteNotifications() {}
}

public enum UIBackgroundFetchResult: Sendable { case newData, noData, failed }

@MainActor public protocol UIApplicationDelegate: AnyObject {
    func application(
        _: UIApplication, didFinishLaunchingWithOptions: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool
    func application(_: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken: Data)
    func application(
        _: UIApplication, didReceiveRemoteNotification: [AnyHashable: Any]
    ) async -> UIBackgroundFetchResult
}

extension UIApplicationDelegate {
    public static func main() {}
}

extension UIApplication {
    public static var shared: UIApplication { UIApplication() }
    public var delegate: (any UIApplicationDelegate)? { nil }
    public static let didBecomeActiveNotification = Notification.Name()
    public static let didEnterBackgroundNotification = Notification.Name()
}

@MainActor open class UIScene: UIResponder {
    public final class ConnectionOptions { public var notificationResponse: UNNotificationResponse? { nil } }
}
@MainActor public final class UISceneSession {}
@MainActor public protocol UISceneDelegate: AnyObject {
    func scene(_: UIScene, willConnectTo: UISceneSession, options: UIScene.ConnectionOptions)
}
@MainActor public protocol UIWindowSceneDelegate: UISceneDelegate {}
