// Declarations of Apple's UserNotifications that the examples use. Only to check types against.
@_exported public import Foundation

open class UNNotificationContent {
    public init() {}
    public var userInfo: [AnyHashable: Any] { [:] }
    public func mutableCopy() -> Any { self }
}
public final class UNNotificationSound: Sendable { public static var `default`: UNNotificationSound { .init() } }
public final class UNNotificationAttachment {
    public init(identifier: String, url: URL, options: [AnyHashable: Any]?) throws {}
}
public final class UNMutableNotificationContent: UNNotificationContent {
    public var title = ""
    public var body = ""
    public var sound: UNNotificationSound?
    public var badge: NSNumber?
    public var attachments: [UNNotificationAttachment] = []
    public override var userInfo: [AnyHashable: Any] {
        get { [:] }
        set {}
    }
}
open class UNNotificationTrigger { public init() {} }
public final class UNNotificationRequest {
    public let identifier: String
    public let content: UNNotificationContent
    public init(identifier: String, content: UNNotificationContent, trigger: UNNotificationTrigger?) {
        (self.identifier, self.content) = (identifier, content)
    }
}
public final class UNNotification {
    public let request = UNNotificationRequest(identifier: "", content: UNNotificationContent(), trigger: nil)
}
public final class UNNotificationResponse {
    public let notification = UNNotification()
    public var actionIdentifier: String { "" }
}
public let UNNotificationDismissActionIdentifier = ""

public struct UNNotificationPresentationOptions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let sound = Self(rawValue: 2)
    public static let list = Self(rawValue: 8)
    public static let banner = Self(rawValue: 16)
}

public final class UNUserNotificationCenter {
    public static func current() -> UNUserNotificationCenter { UNUserNotificationCenter() }
    public weak var delegate: (any UNUserNotificationCenterDelegate)?
    public func setBadgeCount(_: Int, withCompletionHandler: (@Sendable ((any Error)?) -> Void)? = nil) {}
    public func setBadgeCount(_: Int) async throws {}
    public func add(_: UNNotificationRequest, withCompletionHandler: (@Sendable ((any Error)?) -> Void)? = nil) {}
    public func add(_: UNNotificationRequest) async throws {}
    public func deliveredNotifications() async -> [UNNotification] { [] }
    public func pendingNotificationRequests() async -> [UNNotificationRequest] { [] }
    public func removeDeliveredNotifications(withIdentifiers: [String]) {}
    public func removePendingNotificationRequests(withIdentifiers: [String]) {}
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
