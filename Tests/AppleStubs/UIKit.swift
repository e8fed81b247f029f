// Declarations of Apple's UIKit that the examples use. Only to check types against.
@_exported public import Foundation

open class NSObject { public init() {} }

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
    func applicationDidBecomeActive(_: UIApplication)
    func applicationDidEnterBackground(_: UIApplication)
    func application(_: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken: Data)
    func application(
        _: UIApplication, didReceiveRemoteNotification: [AnyHashable: Any]
    ) async -> UIBackgroundFetchResult
}

extension UIApplicationDelegate {
    public static func main() {}
}
