// Fakes of the push services of Android vendors, HarmonyOS and browsers, for tests and trials.
//
// The checks follow the pages that docs/use/Vendors.md cites. They share no rule with the module Vendors, so that an error of the
// sender is detected here.

package import Configuration

package enum FakeVendor: String, Sendable, CaseIterable {
    case fcm, hms, harmony, honor, xiaomi, oppo, vivo, meizu, webPush
}

/// The scripted behavior of one vendor, beyond the vendor's own checks.
package struct VendorScript: Sendable, Equatable {
    /// The action for a request that matches a rule.
    package enum Deed: String, Sendable, CaseIterable {
        case answer
        /// Accepts the message and closes the connection without an answer, so that the sender cannot know the result.
        case cutTaken
        /// Closes the connection without an answer and accepts nothing.
        case cut
        /// Accepts the message and never answers.
        case silence
    }

    /// A rule; the first one that matches a request applies.
    package struct Rule: Sendable, Equatable {
        /// The prefix of the matching device tokens, or of the ids of Web Push endpoints; empty for all.
        package var prefix = ""
        /// Whether the rule is for requests of access tokens instead of messages.
        package var isForAccessTokens = false
        package var deed = Deed.answer
        package var status = 200
        /// The vendor's code in the answer; without a code and a `body`, status 200 means success.
        package var code: String?
        /// The answer's whole body, instead of the vendor's form.
        package var body: String?
        package var retryAfterSeconds: Int64?
        package var delayMilliseconds: UInt64 = 0
        /// The number of requests that the rule applies to, or `nil` for all.
        package var times: Int?

        package init() {}

        var isSuccess: Bool { status == 200 && code == nil && body == nil }
    }

    package var rules: [Rule] = []
    /// The accepted messages per day of Beijing, or `nil` for any number.
    package var dayQuota: Int?
    /// The messages per second, or `nil` for any number.
    package var requestsPerSecond: Int?
    /// The lifetime of access tokens, or `nil` for the vendor's.
    package var accessTokenSeconds: Int64?
    /// The difference of the vendor's clock from the machine's, in seconds.
    package var clockSeconds: Int64 = 0

    package init() {}

    /// Reads the object `vendors` of a script: a script for each vendor.
    package static func read(_ object: ConfigurationObject?) -> [FakeVendor: VendorScript] {
        var scripts: [FakeVendor: VendorScript] = [:]
        for vendor in FakeVendor.allCases {
            scripts[vendor] = object?.object(vendor.rawValue).map { VendorScript($0) }
        }
        object?.finish()
        return scripts
    }

    private init(_ object: ConfigurationObject) {
        rules = (object.objects("rules", limit: 10_000) ?? []).map { Rule($0) }
        dayQuota = object.integer("dayQuota", in: 0...1_000_000_000).map { Int($0) }
        requestsPerSecond = object.integer("requestsPerSecond", in: 0...1_000_000).map { Int($0) }
        accessTokenSeconds = object.integer("accessTokenSeconds", in: 1...86_400)
        clockSeconds = object.integer("clockSeconds", in: -1_000_000_000...1_000_000_000) ?? 0
        object.finish()
    }
}

extension VendorScript.Rule {
    fileprivate init(_ object: ConfigurationObject) {
        prefix = object.string("prefix", allowed: "at most 512 bytes", where: { $0.utf8.count <= 512 }) ?? ""
        isForAccessTokens = object.boolean("accessTokens") ?? false
        deed = object.choice("deed", VendorScript.Deed.self) ?? .answer
        status = Int(object.integer("status", in: 200...599) ?? 200)
        code = object.string("code", allowed: "at most 64 bytes", where: { $0.utf8.count <= 64 })
        body = object.string("body", allowed: "at most 65,536 bytes", where: { $0.utf8.count <= 65_536 })
        retryAfterSeconds = object.integer("retryAfterSeconds", in: 0...86_400)
        delayMilliseconds = UInt64(object.integer("delayMilliseconds", in: 0...3_600_000) ?? 0)
        times = object.integer("times", in: 1...1_000_000_000).map { Int($0) }
        object.finish()
    }
}
