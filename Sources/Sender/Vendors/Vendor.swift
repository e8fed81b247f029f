package import Wire

// Renders messages for the push services of Android vendors, HarmonyOS and browsers, and interprets their answers.
//
// The module is pure: the caller sends the requests, passes the time and keeps the access tokens. docs/use/Vendors.md has the
// sources of the vendors' rules.

package enum Vendor: String, Sendable, CaseIterable {
    case fcm, hms, harmony, honor, xiaomi, oppo, vivo, meizu, webPush
}

package enum TokenKind: Sendable, Equatable {
    /// The credential itself is in each request.
    case none
    /// An access token is requested from the vendor and kept until it expires.
    case exchanged
    /// A JWT is signed locally.
    case signed
}

/// The documented facts and limits of a vendor.
package struct VendorFacts: Sendable, Equatable {
    /// The names in Getui's `options`.
    package var optionNames: [String]
    package var tokenKind: TokenKind
    package var wantsHTTP2 = false
    package var secondsToLive: ClosedRange<Int64>
    /// The default bound of requests per second; vendors grant more to large apps.
    package var requestsPerSecond: Int
    /// Whether the vendor counts messages per day of Beijing.
    package var hasDayQuota = false
    /// The maximum bytes of a device token.
    package var tokenByteCount = 512
}

extension Vendor {
    /// The limits that the gateway checks, too.
    package var limits: VendorLimits { (VendorChannel(named: rawValue) ?? .fcm).limits }

    package var facts: VendorFacts {
        switch self {
        case .fcm:
            VendorFacts(
                optionNames: ["FCM"], tokenKind: .exchanged, wantsHTTP2: true, secondsToLive: 0...2_419_200,
                requestsPerSecond: 1_000, tokenByteCount: 4_096)
        case .hms:
            VendorFacts(
                optionNames: ["HW"], tokenKind: .exchanged, secondsToLive: 1...1_296_000,
                requestsPerSecond: 1_000)
        case .harmony:
            VendorFacts(
                optionNames: ["HARMONY", "HOSHW"], tokenKind: .signed, secondsToLive: 1...1_296_000,
                requestsPerSecond: 1_000)
        case .honor:
            VendorFacts(
                optionNames: ["HO"], tokenKind: .exchanged, secondsToLive: 1...1_296_000,
                requestsPerSecond: 1_000)
        case .xiaomi:
            VendorFacts(
                optionNames: ["XM"], tokenKind: .none, secondsToLive: 1...1_209_600, requestsPerSecond: 500,
                hasDayQuota: true)
        case .oppo:
            VendorFacts(
                optionNames: ["OP"], tokenKind: .exchanged, secondsToLive: 0...864_000, requestsPerSecond: 1_000,
                hasDayQuota: true)
        case .vivo:
            VendorFacts(
                optionNames: ["VV"], tokenKind: .exchanged, secondsToLive: 60...86_400, requestsPerSecond: 500,
                hasDayQuota: true)
        case .meizu:
            VendorFacts(
                optionNames: ["MZ"], tokenKind: .none, secondsToLive: 0...259_200, requestsPerSecond: 200)
        case .webPush:
            VendorFacts(
                optionNames: ["WEB"], tokenKind: .signed, wantsHTTP2: true, secondsToLive: 0...2_419_200,
                requestsPerSecond: 1_000,
                tokenByteCount: 2_048)
        }
    }
}

extension Vendor {
    /// Returns the next time after `now` at which it is `hour` o'clock in Beijing, in Unix seconds.
    package static func nextBeijingHour(_ hour: Int64, after now: Int64) -> Int64 {
        nextBeijingMidnight(after: min(max(now, 0), 1 << 48) - hour * 3_600) + hour * 3_600
    }

    /// Returns the first midnight in Beijing after `now`, both in Unix seconds; China has no daylight saving time.
    package static func nextBeijingMidnight(after now: Int64) -> Int64 {
        let day: Int64 = 86_400
        let offset: Int64 = 8 * 3_600
        // Times outside this range have no calendar meaning and could overflow.
        let local = min(max(now, 0), 1 << 48) + offset
        return (local / day + 1) * day - offset
    }
}
