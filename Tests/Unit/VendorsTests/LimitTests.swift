import Testing
import Wire

@testable import Vendors

@Suite("Limits of vendors") struct LimitTests {
    private func reason(_ vendor: Vendor, _ message: VendorMessage) -> String {
        do {
            _ = try Samples.request(message, vendor)
            return ""
        } catch let refusal as VendorRefusal {
            #expect(refusal.vendor == vendor && !refusal.advice.isEmpty)
            #expect(refusal.isTokenFault == (refusal.reason == "BadToken"))
            return refusal.reason
        } catch { return "\(error)" }
    }

    private func message(_ vendor: Vendor, title: String = "t", body: String = "b") -> VendorMessage {
        Samples.message(vendor, .notification(.init(title: title, body: body)))
    }

    @Test("a title or body at the limit is sent, and one character more is refused", arguments: Vendor.allCases)
    func lengths(vendor: Vendor) {
        let limits = vendor.limits
        if limits.titleLength > 0 {
            #expect(reason(vendor, message(vendor, title: String(repeating: "中", count: limits.titleLength))) == "")
            let long = String(repeating: "中", count: limits.titleLength + 1)
            #expect(reason(vendor, message(vendor, title: long)) == "TitleTooLong")
        }
        if limits.bodyLength > 0 {
            #expect(reason(vendor, message(vendor, body: String(repeating: "中", count: limits.bodyLength))) == "")
            let long = String(repeating: "中", count: limits.bodyLength + 1)
            #expect(reason(vendor, message(vendor, body: long)) == "BodyTooLong")
        } else {
            #expect(reason(vendor, message(vendor, body: String(repeating: "b", count: 3_000))) == "")
            #expect(reason(vendor, message(vendor, body: String(repeating: "b", count: 4_200))) == "MessageTooLarge")
        }
    }

    @Test("passthrough is refused where the vendor has none, and large data everywhere", arguments: Vendor.allCases)
    func passthrough(vendor: Vendor) {
        let small = reason(vendor, Samples.message(vendor, .transmission("text")))
        #expect(small == (vendor.limits.hasPassthrough ? "" : "NoPassthrough"))
        let large = reason(vendor, Samples.message(vendor, .transmission(String(repeating: "t", count: 5_000))))
        #expect(large == (vendor.limits.hasPassthrough ? "MessageTooLarge" : "NoPassthrough"))
        let payload = PushContent.Kind.notification(Samples.notice(.payload(String(repeating: "p", count: 9_000))))
        #expect(reason(vendor, Samples.message(vendor, payload)) == "MessageTooLarge")
    }

    @Test("lifetimes are kept within the vendor's range")
    func lifetimes() throws {
        for vendor in Vendor.allCases {
            let range = vendor.facts.secondsToLive
            let checks = MessageChecks(vendor)
            for seconds in [Int64.min, -1, 0, 1, .max] {
                #expect(range.contains(checks.secondsToLive(Samples.message(vendor, seconds: seconds))))
            }
        }
    }

    @Test("a token that could address other devices or end a header is refused", arguments: Vendor.allCases)
    func tokens(vendor: Vendor) {
        for token in ["", "a,b", "a;b", "a\r\nX: y", "a b", "中", String(repeating: "a", count: 5_000)] {
            var message = Samples.message(vendor)
            message.token = token
            #expect(reason(vendor, message) == "BadToken", "\(token)")
        }
    }

    @Test("a package name that could name several packages is refused", arguments: [Vendor.fcm, .xiaomi])
    func packages(vendor: Vendor) {
        for name in ["a.b,c.d", "a b", "中", String(repeating: "a", count: 256)] {
            var message = Samples.message(vendor)
            message.packageName = name
            #expect(reason(vendor, message) == "BadPackageName")
        }
    }

    @Test("Xiaomi gets no message for another package than the credential's")
    func otherPackage() {
        var message = Samples.message(.xiaomi)
        message.packageName = "com.example.debug"
        #expect(reason(.xiaomi, message) == "BadPackageName")
        message.packageName = ""
        #expect(reason(.xiaomi, message).isEmpty)
    }

    @Test("a request without an access token is refused")
    func bearer() throws {
        for vendor in Vendor.allCases where vendor.facts.tokenKind != .none {
            let api = try Samples.api(vendor)
            #expect(throws: VendorRefusal.self) {
                try api.request(for: Samples.message(vendor), bearer: nil, now: 0)
            }
        }
    }

    @Test("a click's address must be http or https", arguments: Vendor.allCases)
    func addresses(vendor: Vendor) {
        for url in [
            "javascript:alert(1)", "file:///etc/passwd", "https://a b",
            "https://" + String(repeating: "a", count: 3_000),
        ] {
            let kind = PushContent.Kind.notification(Samples.notice(.url(url)))
            #expect(reason(vendor, Samples.message(vendor, kind)) == "BadURL")
        }
    }

    @Test("custom messages are for HarmonyOS only")
    func custom() {
        for vendor in Vendor.allCases where vendor != .harmony {
            let found = reason(vendor, Samples.message(vendor, .custom(type: "live_view", data: [:])))
            #expect(found == "BadContent" || found == "NoPassthrough")
        }
    }

    @Test("a publisher's own extras for Xiaomi are bounded")
    func extras() throws {
        func options(_ count: Int, _ text: String) throws -> [PushContent.Option] {
            try (0..<count).map { try Samples.option("/extra.k\($0)", .string(text)) }
        }
        #expect(reason(.xiaomi, Samples.message(.xiaomi, options: try options(10, "v"))) == "")
        #expect(reason(.xiaomi, Samples.message(.xiaomi, options: try options(11, "v"))) == "TooManyExtras")
        let long = try options(2, String(repeating: "v", count: 600))
        #expect(reason(.xiaomi, Samples.message(.xiaomi, options: long)) == "TooManyExtras")
    }
}
