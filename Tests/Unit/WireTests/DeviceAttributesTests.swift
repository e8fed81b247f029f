import Testing
import Wire

@Suite("Attributes of a device")
struct DeviceAttributesTests {
    private typealias Path = WritableKeyPath<DeviceAttributes, String>

    private static func decode(_ fields: [UInt8]) throws -> DeviceAttributes? {
        let body = [0xA2, 1, UInt8(fields.count)] + fields
        return try Hello(decoding: body.span.bytes).attributes
    }

    /// Cleans the attributes and returns the names of the dropped ones.
    private static func clean(_ attributes: inout DeviceAttributes) -> [String] {
        let before = attributes
        let dropped = attributes.clean()
        let cleaned = attributes
        let again = attributes.clean()
        #expect(again == [] && attributes == cleaned && dropped.isEmpty == (cleaned == before))
        return dropped
    }

    @Test("attributes within the rules stay as they are")
    func kept() {
        var attributes = DeviceAttributes()
        (attributes.platform, attributes.notificationPermission) = (.harmony, .denied)
        (attributes.brand, attributes.model) = ("HUAWEI", "华为 Mate 60 Pro+ (ALN-AL00)")
        (attributes.systemVersion, attributes.appVersion) = ("5.0.1(13)", "2.7.0-beta.1")
        for (locale, zone) in [
            ("zh-Hans-CN", "Asia/Shanghai"), ("en_US", "America/Argentina/Buenos_Aires"), ("", "+08:00"),
            ("sr-Latn-RS", "Etc/GMT-14"),
        ] {
            (attributes.locale, attributes.timeZone) = (locale, zone)
            let (before, dropped) = (attributes, Self.clean(&attributes))
            #expect(dropped == [] && attributes == before)
        }
    }

    @Test(
        "an attribute that is too long or malformed is dropped, and the others stay",
        arguments: [
            String(repeating: "x", count: Limits.attributeByteCount + 1), "a\nb", "a\u{7F}", "a\u{85}", "a\u{0}",
            "a\u{202E}b", "a\u{2066}b", "a\u{2028}b", "a\u{FFFD}",
        ])
    func dropped(text: String) {
        let paths: [(Path, String)] = [
            (\.brand, "brand"), (\.model, "model"), (\.systemVersion, "system_version"), (\.appVersion, "app_version"),
            (\.locale, "locale"), (\.timeZone, "time_zone"),
        ]
        for (path, name) in paths {
            var attributes = DeviceAttributes()
            (attributes.platform, attributes.brand, attributes.model) = (.android, "b", "m")
            attributes[keyPath: path] = text
            var expected = attributes
            expected[keyPath: path] = ""
            let dropped = Self.clean(&attributes)
            #expect(dropped == [name] && attributes == expected)
        }
    }

    @Test("texts at their limits stay; a locale and a time zone have few characters")
    func limits() {
        var attributes = DeviceAttributes()
        attributes.model = String(repeating: "界", count: 21) + "x"
        attributes.locale = String(repeating: "a", count: Limits.localeByteCount)
        attributes.timeZone = String(repeating: "a", count: Limits.attributeByteCount)
        var dropped = Self.clean(&attributes)
        #expect(dropped == [])
        for text in ["a b", "a.b", "é", "a@b", "<x>"] {
            (attributes.locale, attributes.timeZone) = (text, text)
            dropped = Self.clean(&attributes)
            #expect(dropped == ["locale", "time_zone"])
        }
        attributes.locale = String(repeating: "a", count: Limits.localeByteCount + 1)
        dropped = Self.clean(&attributes)
        #expect(dropped == ["locale"])
    }

    @Test("the largest attributes fit their bound")
    func bound() {
        let text = String(repeating: "x", count: Limits.attributeByteCount)
        var attributes = DeviceAttributes()
        (attributes.platform, attributes.notificationPermission) = (.other, .denied)
        (attributes.brand, attributes.model, attributes.systemVersion) = (text, text, text)
        (attributes.appVersion, attributes.timeZone) = (text, text)
        attributes.locale = String(text.prefix(Limits.localeByteCount))
        var hello = Hello()
        let empty = hello.bodyByteCount
        hello.attributes = attributes
        // The tag of the field has two bytes, and so has the length.
        #expect(hello.bodyByteCount - empty == 4 + Limits.attributesByteCount)
    }

    @Test("unknown numbers and invalid UTF-8 do not make a Hello malformed")
    func lenient() throws {
        #expect(try Self.decode([8, 99])?.platform == .other)
        #expect(try Self.decode([0x40, 99])?.notificationPermission == .unknown)
        var attributes = try #require(try Self.decode([0x12, 2, 0x41, 0xFF, 0x1A, 1, 0x42]))
        let dropped = Self.clean(&attributes)
        #expect(dropped == ["brand"] && attributes.brand == "" && attributes.model == "B")
        #expect(throws: WireError.wrongWireType(field: 2)) { try Self.decode([0x10, 1]) }
        #expect(throws: WireError.truncated) { try Self.decode([0x12, 9, 0x41]) }
    }

    @Test("a Hello without attributes differs from one with empty attributes")
    func presence() throws {
        #expect(try Hello(decoding: [UInt8]().span.bytes).attributes == nil)
        #expect(try Self.decode([]) == DeviceAttributes())
        #expect(try Self.decode([])?.isEmpty == true)
    }
}
