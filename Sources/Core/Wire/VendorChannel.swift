/// A device platform; a push has at most one vendor content for each.
///
/// Raw values are stored.
public enum VendorPlatform: UInt8, Sendable, CaseIterable, Codable {
    case apple = 0, android, harmony
    /// Channels that need no token of the device, such as SMS, for a message that has not arrived after a delay.
    case followUp
}

/// The documented limits of a vendor's notifications; docs/use/Vendors.md has the sources.
public struct VendorLimits: Sendable, Equatable {
    /// The largest lengths of title and body in UTF-16 code units; 0 if only `contentByteCount` limits the text.
    public var titleLength = 0
    public var bodyLength = 0
    /// The largest content in bytes, measured as the vendor's documentation says.
    public var contentByteCount = 4_096
    /// Whether the vendor delivers data to the app without showing it.
    public var hasPassthrough = true
}

/// A push vendor with its own tokens, jobs and leases, or a follow-up channel that an app's own sender serves.
///
/// Raw values are stored in four bits and sent in frames, so a value must never be reused. A new vendor needs a case here, a row in
/// `facts`, its number in `Proto/longwire/v1/longwire.proto`, and a renderer in the sender (`Vendors`).
public enum VendorChannel: UInt8, Sendable, CaseIterable, Codable {
    case apns = 0, fcm, hms, harmony, honor, xiaomi, oppo, vivo, meizu, webPush
    case sms, mail, voice, custom

    private struct Facts {
        var name: StaticString
        var platform: VendorPlatform
        /// The key of the vendor in Getui's `settings.strategy` and reports.
        var getuiName: StaticString
        var limits = VendorLimits()
    }

    private var facts: Facts {
        switch self {
        case .apns: Facts(name: "apns", platform: .apple, getuiName: "ios")
        case .fcm: Facts(name: "fcm", platform: .android, getuiName: "fcm")
        case .hms: Facts(name: "hms", platform: .android, getuiName: "hw")
        case .harmony: Facts(name: "harmony", platform: .harmony, getuiName: "hoshw")
        case .honor: Facts(name: "honor", platform: .android, getuiName: "ho")
        case .xiaomi:
            Facts(
                name: "xiaomi", platform: .android, getuiName: "xm",
                limits: VendorLimits(titleLength: 49, bodyLength: 127))
        case .oppo:
            Facts(
                name: "oppo", platform: .android, getuiName: "op",
                limits: VendorLimits(titleLength: 50, bodyLength: 128, contentByteCount: 8_192, hasPassthrough: false))
        case .vivo:
            Facts(
                name: "vivo", platform: .android, getuiName: "vv",
                limits: VendorLimits(titleLength: 40, bodyLength: 100, contentByteCount: 8_192, hasPassthrough: false))
        case .meizu:
            Facts(
                name: "meizu", platform: .android, getuiName: "mz",
                limits: VendorLimits(titleLength: 32, bodyLength: 100, contentByteCount: 8_192, hasPassthrough: false))
        case .webPush:
            Facts(
                name: "webPush", platform: .android, getuiName: "web",
                limits: VendorLimits(contentByteCount: 3_993))
        case .sms: Facts(name: "sms", platform: .followUp, getuiName: "sms")
        case .mail: Facts(name: "mail", platform: .followUp, getuiName: "mail")
        case .voice: Facts(name: "voice", platform: .followUp, getuiName: "voice")
        case .custom: Facts(name: "custom", platform: .followUp, getuiName: "custom")
        }
    }

    /// The vendors whose tokens devices register.
    public static let vendors = allCases.filter { $0.platform != .followUp }
    public static let followUps = allCases.filter { $0.platform == .followUp }
    public var isFollowUp: Bool { platform == .followUp }

    /// The name in requests, answers, metrics and logs.
    public var name: StaticString { facts.name }
    public var platform: VendorPlatform { facts.platform }
    public var getuiName: StaticString { facts.getuiName }
    public var limits: VendorLimits { facts.limits }

    public init?(named name: String) {
        guard let channel = Self.allCases.first(where: { "\($0.name)" == name }) else { return nil }
        self = channel
    }
}
