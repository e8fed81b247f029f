import Testing

@testable import Vendors

@Suite("Neutral contents") struct ContentTests {
    @Test("a notification is read with its click and its vendor's options only")
    func notification() throws {
        let content = try Samples.content(
            """
            {"notification":{"title":"t","body":"b","click_type":"intent","intent":"i","notify_id":5,
            "channel_id":"c","big_text":"x","big_image":"y","category":"z","badge_add_num":"3"},
            "options":{"HW":{"/message/android/urgency":"HIGH"},"XM":{"/extra.channel_id":"high"}}}
            """, .xiaomi)
        var notice = PushContent.Notice(title: "t", body: "b", click: .intent("i"))
        (notice.notifyID, notice.channelID, notice.bigText, notice.bigImage) = (5, "c", "x", "y")
        (notice.category, notice.badgeIncrement) = ("z", 3)
        #expect(content.kind == .notification(notice))
        #expect(content.options == [try Samples.option("/extra.channel_id", "high")])
    }

    @Test("each click type needs its field")
    func clicks() throws {
        func click(_ members: String) throws -> PushContent.Click? {
            let content = try Samples.content("{\"notification\":{\"title\":\"t\",\"body\":\"b\"\(members)}}", .hms)
            guard case .notification(let notice) = content.kind else { return nil }
            return notice.click
        }
        #expect(try click("") == .startApp && click(",\"click_type\":\"none\"") == PushContent.Click.none)
        #expect(try click(",\"click_type\":\"url\",\"url\":\"https://a\"") == .url("https://a"))
        #expect(try click(",\"click_type\":\"payload\",\"payload\":\"p\"") == .payload("p"))
        #expect(try click(",\"click_type\":\"want\",\"want\":\"{}\"") == .intent("{}"))
        for type in ["url", "payload", "intent", "want", "other"] {
            #expect(throws: PushContent.Failure.self) { try click(",\"click_type\":\"\(type)\"") }
        }
    }

    static let malformed: [(text: String, field: String)] = [
        ("[]", "body"), ("{}", "body"),
        ("{\"transmission\":\"t\",\"notification\":{\"title\":\"t\",\"body\":\"b\"}}", "body"),
        ("{\"transmission\":\"\"}", "transmission"), ("{\"transmission\":5}", "body.transmission"),
        ("{\"notification\":5}", "notification"), ("{\"notification\":{\"body\":\"b\"}}", "notification.title"),
        ("{\"notification\":{\"title\":\"t\",\"body\":7}}", "notification.body"),
        ("{\"notification\":{\"title\":\"t\",\"body\":\"b\",\"notify_id\":-1}}", "notification.notify_id"),
        ("{\"notification\":{\"title\":\"t\",\"body\":\"b\",\"badge_add_num\":100}}", "notification.badge_add_num"),
        ("{\"transmission\":\"t\",\"options\":5}", "options"),
        ("{\"transmission\":\"t\",\"options\":{\"HW\":5}}", "options.HW"),
        ("{\"transmission\":\"t\",\"options\":{\"HW\":{\"no\":5}}}", "options.HW"),
        ("{\"transmission\":\"t\",\"options\":{\"HW\":{\"/\":5}}}", "options.HW"),
        ("{\"transmission\":\"t\",\"options\":{\"HW\":{\"/a~2\":5}}}", "options.HW"),
        ("{\"custom\":{\"data\":{}}}", "custom.type"), ("{\"custom\":{\"type\":\"x\",\"data\":[]}}", "custom.data"),
    ]

    @Test("a wrong content names its field", arguments: malformed)
    func failures(text: String, field: String) {
        let failure = #expect(throws: PushContent.Failure.self) { try Samples.content(text, .hms) }
        #expect(failure?.field == field)
    }

    @Test("texts, options and trees are bounded")
    func bounds() {
        let long = String(repeating: "a", count: PushContent.textByteCount + 1)
        let options = (0...64).map { "\"/k\($0)\":1" }.joined(separator: ",")
        let deep = String(repeating: "[", count: 20) + String(repeating: "]", count: 20)
        let wide = "[" + (0..<1_100).map(String.init).joined(separator: ",") + "]"
        for text in [
            "{\"transmission\":\"\(long)\"}", "{\"notification\":{\"title\":\"\(long)\",\"body\":\"b\"}}",
            "{\"transmission\":\"t\",\"options\":{\"HW\":{\(options)}}}",
            "{\"transmission\":\"t\",\"options\":{\"HW\":{\"/a\":\(deep)}}}",
            "{\"transmission\":\"t\",\"options\":{\"HW\":{\"/a\":\(wide)}}}",
            "{\"transmission\":\"t\",\"options\":{\"HW\":{\"/\(long)\":1}}}",
            "{\"custom\":{\"type\":\"x\",\"data\":{\"a\":\(wide)}}}",
        ] {
            #expect(throws: PushContent.Failure.self) { try Samples.content(text, .hms) }
        }
    }

    @Test("each of Getui's option names belongs to one vendor")
    func optionNames() {
        let names = Vendor.allCases.flatMap(\.facts.optionNames)
        #expect(Set(names) == ["FCM", "HW", "HARMONY", "HOSHW", "HO", "XM", "OP", "VV", "MZ", "WEB"])
        #expect(names.count == Set(names).count)
    }

    @Test("a pointer sets members, creates objects, and replaces or appends elements")
    func pointers() throws {
        var tree: JSONTree = ["a": ["b": 1], "list": [1, 2]]
        func set(_ pointer: String, _ value: JSONTree) throws -> Bool {
            tree.set(value, at: try #require(JSONPointer(pointer)).tokens[...])
        }
        #expect(try set("/a/b", 2) && set("/a/c/d", "x") && set("/list/1", 9) && set("/list/-", 7))
        #expect(tree == ["a": ["b": 2, "c": ["d": "x"]], "list": [1, 9, 7]])
        let before = tree
        #expect(try !set("/a/b/c", 1) && !set("/list/9", 1) && !set("/list/x", 1) && !set("/list/-1", 1))
        #expect(tree == before)
        #expect(JSONPointer("/a~1b/~0c")?.tokens == ["a/b", "~c"])
        #expect(JSONPointer("") == nil && JSONPointer("a") == nil && JSONPointer("/a//b") == nil)
    }

    @Test("a written tree has the same digits and escapes")
    func roundTrip() throws {
        let text = "{\"a\":[1,-2.50,18446744073709551615,true,null],\"b\\\"\":\"\\u0001中\"}"
        #expect(try Samples.tree(text).text == text)
    }
}
