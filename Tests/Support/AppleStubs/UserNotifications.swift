// Declarations of Apple's UserNotifications that the examples use. Only to check types against.
@_exported public import Foundation

public final class UNNotificationContent { public var userInfo: [AnyHashable: Any] { [:] } }
public final class UNNotificationRequest { public let content = UNNotificationContent() }
public final class UNNotification { public let request = UNNotificationRequest() }
public final class UNNotificationResponse { public let notification = UNNotification() }

public struct UNNotificationPresentationOptions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let sound = Self(rawValue: 2)
    public static let banner = Self(rawValue: 16)
}

public final class UNUserNotificationCenter {
    public static func current() -> UNUserNotificationCenter { UNUserNotificationCenter() }
    public weak var delegate: (any UNUserNotificationCenterDelegate)?
    public func setBadgeCount(_: Int, withCompletionHandler: (@Sendable ((any Error)?) -> Void)? = nil) {}
}

public protocol UNUserNotificationCenterDelegate: AnyObject {
    func userNotificationCenter(
        _: UNUserNotificationCenter, didReceive: UNNotificationResponse, withCompletionHandler: @escaping () -> Void)
    func userNotificationCenter(
        _: UNUserNotificationCenter, willPresent: UNNotification,
        withCompletionHandler: @escaping (UNNotificationPresentationOptions) -> Void)
}

open class UNNotificationServiceExtension {
    public init() {}
    open func didReceive(
        _: UNNotificationRequest, withContentHandler: @escaping (UNNotificationContent) -> Void
    ) {}
}
