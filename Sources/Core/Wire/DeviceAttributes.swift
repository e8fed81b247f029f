/// The description of a device by its app: the system, the app's version and the user's settings.
///
/// An empty text and an `unknown` value mean that the app did not name the attribute.
public struct DeviceAttributes: Equatable, Sendable, Codable {
    public enum Platform: UInt8, Sendable, Codable, CaseIterable {
        case unknown = 0, android, ios, harmony, web, miniProgram, other
    }
    public enum NotificationPermission: UInt8, Sendable, Codable, CaseIterable { case unknown = 0, allowed, denied }

    public var platform = Platform.unknown
    /// The manufacturer, such as `HUAWEI`.
    public var brand = ""
    public var model = ""
    public var systemVersion = ""
    public var appVersion = ""
    /// A BCP 47 language tag, such as `zh-Hans-CN`.
    public var locale = ""
    /// A name of the IANA database or an offset from UTC.
    public var timeZone = ""
    public var notificationPermission = NotificationPermission.unknown
    public init() {}

    package var isEmpty: Bool { self == DeviceAttributes() }

    private enum Rule {
        case text, locale, timeZone

        var byteCount: Int { self == .locale ? Limits.localeByteCount : Limits.attributeByteCount }

        func allows(_ scalar: Unicode.Scalar) -> Bool {
            switch self {
            case .text:
                switch scalar.value {
                // Control characters, line separators, and the marks that reverse the direction of the text around them.
                case 0...0x1F, 0x7F...0x9F, 0x2028...0x202E, 0x2066...0x2069: false
                // Invalid UTF-8.
                case 0xFFFD: false
                default: true
                }
            case .locale: isAlphanumeric(scalar) || scalar == "-" || scalar == "_"
            case .timeZone: isAlphanumeric(scalar) || "/_-+:".unicodeScalars.contains(scalar)
            }
        }

        private func isAlphanumeric(_ scalar: Unicode.Scalar) -> Bool {
            switch scalar.value {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
            default: false
            }
        }
    }

    /// Empties each text that is too long or has a character that its rule does not allow.
    ///
    /// - Returns: the names of the dropped attributes.
    package mutating func clean() -> [String] {
        var dropped: [String] = []
        func check(_ text: inout String, _ name: String, _ rule: Rule = .text) {
            guard text.utf8.count > rule.byteCount || !text.unicodeScalars.allSatisfy(rule.allows) else { return }
            text = ""
            dropped.append(name)
        }
        check(&brand, "brand")
        check(&model, "model")
        check(&systemVersion, "system_version")
        check(&appVersion, "app_version")
        check(&locale, "locale", .locale)
        check(&timeZone, "time_zone", .timeZone)
        return dropped
    }
}

extension DeviceAttributes: MessageBody {
    package enum Field: UInt32, MessageField {
        case platform = 1, brand, model, systemVersion, appVersion, locale, timeZone, notificationPermission

        package var shape: FieldShape {
            switch self {
            case .platform, .notificationPermission: .enumeration
            case .brand, .model, .systemVersion, .appVersion, .locale, .timeZone: .string
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .platform: platform = try cursor.value(Platform.self, in: bytes) ?? .other
            case .brand: brand = try cursor.lenientString(in: bytes)
            case .model: model = try cursor.lenientString(in: bytes)
            case .systemVersion: systemVersion = try cursor.lenientString(in: bytes)
            case .appVersion: appVersion = try cursor.lenientString(in: bytes)
            case .locale: locale = try cursor.lenientString(in: bytes)
            case .timeZone: timeZone = try cursor.lenientString(in: bytes)
            case .notificationPermission:
                notificationPermission = try cursor.value(NotificationPermission.self, in: bytes) ?? .unknown
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.value(platform, Field.platform)
        sink.text(brand, Field.brand)
        sink.text(model, Field.model)
        sink.text(systemVersion, Field.systemVersion)
        sink.text(appVersion, Field.appVersion)
        sink.text(locale, Field.locale)
        sink.text(timeZone, Field.timeZone)
        sink.value(notificationPermission, Field.notificationPermission)
    }
}

extension DeviceAttributes {
    /// Merges a repeated occurrence of a message field into the earlier one, as protobuf requires.
    static func merge(
        _ bytes: RawSpan, at range: Range<Int>, into attributes: inout DeviceAttributes?
    ) throws(WireError) {
        var whole = attributes ?? DeviceAttributes()
        try whole.merge(bytes, at: range)
        attributes = whole
    }
}

extension Cursor {
    /// Reads a text of any length, with U+FFFD in place of invalid UTF-8; `DeviceAttributes.clean` drops what is not allowed.
    fileprivate mutating func lenientString(in bytes: RawSpan) throws(WireError) -> String {
        bytes.string(try lengthDelimited(in: bytes))
    }
}
