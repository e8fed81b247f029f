import Testing
import Wire

@testable import LongwireClient

@Suite("Tokens of Apple")
struct VendorTokenTests {
    @Test("the system's bytes become lower-case hex digits")
    func bytes() {
        let token = VendorToken(deviceToken: [0x00, 0x0F, 0xAB, 0xFF], environment: .sandbox, topic: "t")
        #expect(
            token.token == "000fabff" && token.environment == .sandbox && token.topic == "t" && token.kind == .alert)
        let activity = VendorToken(
            deviceToken: [1], kind: .liveActivity, environment: .production, topic: "t", activity: "ride")
        #expect(activity.kind == .liveActivity && activity.activity == "ride" && activity.token == "01")
    }

    @Test("a copied description is cleaned before it is sent")
    func cleaned() throws {
        #expect(try VendorToken(token: "<0011AABB ccddeeff>\n").checked().token == "0011aabbccddeeff")
        #expect(try VendorToken(token: "").checked().token == "", "an empty token removes others")
    }

    @Test(
        "a token that is no token of Apple is refused, with the fault and without the token",
        arguments: [
            ("abc", "3 hex digits"), ("0x00ff", "hex digits"), ("zz", "hex digits"), ("{length=32}", "hex digits"),
            (String(repeating: "a", count: 514), "514 hex digits"), ("< >", "visible ASCII"),
        ])
    func refused(text: String, fault: String) {
        let error = #expect(throws: LongwireClientError.self) { try VendorToken(token: text).checked() }
        #expect(error?.code == .badConfiguration)
        #expect(error?.message.contains(fault) == true)
        #expect(error?.message.contains(text) == false)
    }

    @Test("tokens of other vendors keep their form")
    func otherVendors() throws {
        #expect(try VendorToken(channel: .fcm, token: "abc:def-XYZ").checked().token == "abc:def-XYZ")
    }

    @Test("neither a call nor a configuration accepts a wrong token")
    func sent() {
        var configuration = ClientConfiguration(host: "127.0.0.1", port: 9, appID: "demo", appSecret: "s")
        configuration.tokens = [VendorToken(token: "xyz")]
        #expect(throws: LongwireClientError.self) { try configuration.validate() }
        configuration.tokens = [VendorToken(token: "<AB cd>")]
        #expect(throws: Never.self) { try configuration.validate() }
        let client = LongwireClient(configuration: configuration, store: MemoryStateStore())
        client.setToken(VendorToken(token: "xyz", activity: "other"))
        client.setToken(VendorToken(kind: .voip, token: " EF "))
        #expect(client.currentConfiguration.tokens.map(\.token) == ["<AB cd>", "ef"], "the start cleans the first")
    }

    // MARK: The environment

    /// Returns a profile like `embedded.mobileprovision`: DER bytes around a property list.
    private static func profile(_ entitlement: String) -> [UInt8] {
        let list = """
            <?xml version="1.0" encoding="UTF-8"?>
            <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
            <plist version="1.0"><dict>
            <key>AppIDName</key><string>production</string>
            <key>Entitlements</key><dict>
            <key>application-identifier</key><string>TEAM.com.example.app</string>
            \(entitlement)
            <key>get-task-allow</key><true/>
            </dict></dict></plist>
            """
        let head: [UInt8] = [0x30, 0x82, 0x2F, 0xA1, 0x06, 0x09, 0x2A, 0x3C, 0x70, 0x6C, 0x3C, 0xFF, 0x00, 0x04, 0x82]
        return head + Array(list.utf8) + [0xA0, 0x82, 0x0D] + Array("<key>aps-environment</key><string>x</string>".utf8)
    }

    @Test("the profile's entitlement decides on the environment")
    func environment() throws {
        typealias Environment = VendorToken.Environment
        let names = ["aps-environment", "com.apple.developer.aps-environment"]
        for name in names {
            for (value, expected) in [("development", Environment.sandbox), ("production", .production)] {
                let profile = Self.profile("<key>\(name)</key>\n\t\t<string>\(value)</string>")
                #expect(try Environment(provisioningProfile: profile) == expected)
            }
        }
        #expect(try Environment(provisioningProfile: nil) == .production, "an app from the App Store")
    }

    @Test("a profile without the entitlement, or that is no profile, is refused with the reason")
    func refusedProfile() {
        let cases: [([UInt8], String)] = [
            (Self.profile(""), "no aps-environment"),
            (Self.profile("<key>aps-environment</key><true/><string>development</string>"), "no aps-environment"),
            (Self.profile("<key>aps-environment</key><string>beta</string>"), "is beta"),
            ([], "no property list"), ([0x30, 0x82], "no property list"),
            (Array("<plist><key>aps-environment</key><string>development".utf8), "no property list"),
            ([UInt8](repeating: 0, count: Limits.profileByteCount + 1), "\(Limits.profileByteCount + 1) bytes"),
        ]
        for (profile, fault) in cases {
            let error = #expect(throws: LongwireClientError.self) {
                try VendorToken.Environment(provisioningProfile: profile)
            }
            #expect(error?.message.contains(fault) == true)
        }
    }
}
