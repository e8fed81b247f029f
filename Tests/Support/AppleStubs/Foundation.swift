// Declarations of Apple's Foundation and CoreFoundation that the client uses. Only to check types against: each bridged pair is
// one type here.
public typealias CFString = String
public typealias CFData = Data
public typealias CFArray = [AnyObject]

public protocol ContiguousBytes {}
public protocol DataProtocol: RandomAccessCollection, ContiguousBytes where Element == UInt8 {}

public struct Data: DataProtocol, Hashable, Sendable {
    public init(_ elements: some Sequence<UInt8>) {}
    public init?(base64Encoded text: String) {}
    public var startIndex: Int { 0 }
    public var endIndex: Int { 0 }
    public subscript(index: Int) -> UInt8 { 0 }
}

public struct FileAttributeKey: Hashable, Sendable { public static let size = FileAttributeKey() }
public final class FileManager: Sendable {
    public static var `default`: FileManager { FileManager() }
    public func contents(atPath: String) -> Data? { nil }
    public func attributesOfItem(atPath: String) throws -> [FileAttributeKey: Any] { [:] }
    public func removeItem(at: URL) throws {}
    public func moveItem(at: URL, to: URL) throws {}
}
public final class Bundle: Sendable {
    public static var main: Bundle { Bundle() }
    public var bundlePath: String { "" }
    public func object(forInfoDictionaryKey: String) -> Any? { nil }
}
public struct OperatingSystemVersion: Sendable {
    public var majorVersion = 0
    public var minorVersion = 0
    public var patchVersion = 0
}
public final class ProcessInfo: Sendable {
    public static var processInfo: ProcessInfo { ProcessInfo() }
    public var operatingSystemVersion: OperatingSystemVersion { OperatingSystemVersion() }
}
public struct Locale: Sendable { public static var preferredLanguages: [String] { [] } }
public struct TimeZone: Sendable {
    public static var current: TimeZone { TimeZone() }
    public var identifier: String { "" }
}
open class NSObject { public init() {} }
public protocol NSObjectProtocol: AnyObject {}
public let NSLocalizedDescriptionKey = ""
public final class NSError: Error, Sendable { public init(domain: String, code: Int, userInfo: [String: Any]?) {} }
public final class NSNumber: Sendable { public init(value: Int) {} }

public struct URL: Sendable {
    public init?(string: String) {}
    public init(fileURLWithPath: String) {}
    public var path: String { "" }
}

public struct URLRequest: Sendable {
    public init(url: URL) {}
    public var httpMethod: String?
    public var httpBody: Data?
    public var timeoutInterval: Double = 60
    public var allowsCellularAccess = true
    public mutating func setValue(_ value: String?, forHTTPHeaderField field: String) {}
}
open class URLResponse: @unchecked Sendable { public init() {} }
public final class HTTPURLResponse: URLResponse, @unchecked Sendable { public var statusCode: Int { 0 } }
public final class URLSession: Sendable {
    public static var shared: URLSession { URLSession() }
    public func data(for request: URLRequest) async throws -> (Data, URLResponse) { (Data([]), URLResponse()) }
    public func download(for request: URLRequest) async throws -> (URL, URLResponse) { throw CancellationError() }
}
public func NSTemporaryDirectory() -> String { "" }
extension FileManager {
    public func containerURL(forSecurityApplicationGroupIdentifier: String) -> URL? { nil }
}

public struct Notification: Sendable { public struct Name: Sendable { public init() {} } }
public final class OperationQueue: Sendable { public static var main: OperationQueue { OperationQueue() } }
public final class NotificationCenter: Sendable {
    public static var `default`: NotificationCenter { NotificationCenter() }
    @discardableResult public func addObserver(
        forName: Notification.Name?, object: Any?, queue: OperationQueue?,
        using: @escaping @Sendable (Notification) -> Void
    ) -> AnyObject { self }
}
