import Delivery
import JSON
import Testing
import Wire

@testable import PushAPI

@Suite("APNs rendering")
struct APNsRenderingTests {
    private let fixture = Fixture()
    private static let message = MessageID(high: 0x0123_4567_89AB_CDEF, low: 0xFEDC_BA98_7654_3210)

    private func seen(ios: String) throws -> Seen {
        try fixture.accepted(fixture.push(#""push_channel":{"ios":\#(ios)}"#)).seen
    }

    private func shape(ios: String) throws -> (PushType, UInt8, TokenKind) {
        let vendor = try #require(try seen(ios: ios).command.vendor)
        return (vendor.pushType, vendor.priority, vendor.tokenKind)
    }

    @Test("the reference's example yields aps as given, with a computed badge, payload and ids beside it")
    func example() throws {
        let seen = try seen(
            ios: #"""
                {"type":"notify","aps":{"alert":{"title":"Order shipped","body":"Arrives Tuesday"},"sound":"ding.caf",
                "badge":99,"interruption-level":"active","relevance-score":0.5},"auto_badge":"+1",
                "payload":"{\"orderId\":77}","apns-collapse-id":"order-77"}
                """#)
        let task = seen.command.task.text
        #expect(
            seen.leased(message: Self.message, badge: 3)
                == #"{"aps":{"alert":{"title":"Order shipped","body":"Arrives Tuesday"},"sound":"ding.caf","#
                + #""interruption-level":"active","relevance-score":0.5,"badge":3},"payload":"{\"orderId\":77}","#
                + #""_gmid_":"\#(task):0123456789abcdeffedcba9876543210"}"#)
        let vendor = try #require(seen.command.vendor)
        #expect(vendor.badge == .add(1))
        #expect(vendor.pushType == .alert && vendor.priority == 10 && vendor.tokenKind == .alert)
        #expect(seen.vendorCollapseID == "order-77")
        #expect(seen.alertTitle == "Order shipped" && seen.alertBody == "Arrives Tuesday")
    }

    @Test("without auto_badge the publisher's own badge is kept, without a placeholder")
    func ownBadge() throws {
        let seen = try seen(ios: #"{"aps":{"alert":"hi","badge":7}}"#)
        #expect(seen.command.vendor?.badgeOffset == -1)
        #expect(seen.command.vendor?.badge == VendorContent.Badge.none)
        #expect(
            seen.leased(message: Self.message, badge: 1).hasPrefix(
                #"{"aps":{"alert":"hi","badge":7},"payload":"hello","_gmid_""#))
        #expect(seen.alertTitle.isEmpty && seen.alertBody == "hi")
    }

    @Test("a badge alone creates an aps object")
    func badgeAlone() throws {
        let seen = try seen(ios: #"{"auto_badge":5,"aps":[]}"#)
        #expect(seen.command.vendor?.badge == .set(5))
        #expect(
            seen.leased(message: Self.message, badge: 5).hasPrefix(#"{"aps":{"badge":5},"payload":"hello","_gmid_""#))
    }

    static let badges: [(String, VendorContent.Badge)] = [
        (#""+1""#, .add(1)), (#""-1""#, .add(-1)), (#""5""#, .set(5)), ("5", .set(5)), ("-2", .add(-2)),
        (#""0""#, .set(0)), (#""+0""#, .add(0)), (#""""#, .none), ("null", .none), ("[]", .none),
        (#""2147483647""#, .set(.max)),
    ]

    @Test("auto_badge adds with a sign and sets without", arguments: badges)
    func autoBadge(text: String, expected: VendorContent.Badge) throws {
        let vendor = try #require(try seen(ios: #"{"aps":{"alert":"a"},"auto_badge":\#(text)}"#).command.vendor)
        #expect(vendor.badge == expected)
    }

    static let types: [(String, PushType, UInt8)] = [
        (#"{"aps":{"alert":"a","content-available":1}}"#, .alert, 10),
        (#"{"aps":{"content-available":1}}"#, .background, 5),
        (#"{"aps":{"content-available":"1","alert":[],"sound":""},"payload":"p"}"#, .background, 5),
        (#"{"aps":{"content-available":1,"sound":"com.gexin.ios.silence"}}"#, .background, 5),
        (#"{"aps":{"sound":"ding.caf"}}"#, .alert, 10), (#"{"aps":{"badge":0}}"#, .alert, 10),
        (#"{"auto_badge":"+1"}"#, .alert, 10), (#"{"aps":{"content-available":1},"auto_badge":"+1"}"#, .alert, 10),
        (#"{"type":"voip","payload":"p"}"#, .voip, 10),
        (
            #"{"type":"liveactivity","laId":"x","aps":{"event":"update","timestamp":1,"content-state":[]}}"#,
            .liveActivity, 10
        ),
    ]

    @Test("the push type and priority follow from the visible content", arguments: types)
    func pushTypes(ios: String, type: PushType, priority: UInt8) throws {
        let shape = try shape(ios: ios)
        #expect(shape.0 == type && shape.1 == priority)
    }

    @Test("an empty alert from PHP is omitted, an empty content-state is an object")
    func emptyObjects() throws {
        let silent = try seen(ios: #"{"aps":{"content-available":1,"alert":[],"sound":null}}"#)
        #expect(silent.vendorBody?.hasPrefix(#"{"aps":{"content-available":1},"payload":"hello","_gmid_""#) == true)
        let activity = try seen(
            ios: #"{"type":"liveactivity","laId":"x","aps":{"event":"end","timestamp":1,"content-state":[]}}"#)
        #expect(
            activity.vendorBody?.hasPrefix(#"{"aps":{"event":"end","timestamp":1,"content-state":{}},"_gmid_""#) == true
        )
        #expect(activity.command.vendor?.tokenKind == .liveActivity)
    }

    @Test("a Live Activity's push names its activity; one that starts an activity names the type")
    func activities() throws {
        let state = #""timestamp":1,"content-state":{}"#
        let update = try seen(ios: #"{"type":"liveactivity","laId":"ride-7","aps":{"event":"update",\#(state)}}"#)
        let content = try #require(update.command.vendor)
        #expect(content.channel == .apns && content.tokenKind == .liveActivity)
        #expect(content.activity == Activity.word("ride-7".utf8) && content.activity != 0)
        for (type, word) in [(#""Ride""#, Activity.word("Ride".utf8)), ("7", Activity.word("7".utf8))] {
            let start = try seen(
                ios: #"""
                    {"type":"liveactivity","laId":"x","aps":{"event":"start",\#(state),"attributes-type":\#(type),"attributes":{}}}
                    """#)
            #expect(start.command.vendor?.tokenKind == .liveActivityStart && start.command.vendor?.activity == word)
            #expect(start.command.vendor?.pushType == .liveActivity)
        }
        #expect(try seen(ios: #"{"aps":{"alert":"a"}}"#).command.vendor?.activity == 0)
    }

    @Test("VoIP has payload and ids, and no badge")
    func voip() throws {
        let seen = try seen(ios: #"{"type":"voip","payload":"call","auto_badge":"+1"}"#)
        let task = seen.command.task.text
        #expect(
            seen.leased(message: Self.message, badge: 1)
                == #"{"payload":"call","_gmid_":"\#(task):0123456789abcdeffedcba9876543210"}"#)
        #expect(seen.command.vendor?.tokenKind == .voip)
        #expect(seen.command.vendor?.badgeOffset == -1)
    }

    @Test("multimedia has a separate key and enables mutable-content")
    func multimedia() throws {
        let seen = try seen(
            ios:
                #"{"aps":{"alert":"a","mutable-content":0},"multimedia":[{"url":"https://e/x.png","type":1,"only_wifi":true}]}"#
        )
        #expect(
            seen.vendorBody?.hasPrefix(
                #"{"aps":{"alert":"a","mutable-content":1},"#
                    + #""longwire_media":[{"url":"https://e/x.png","type":1,"only_wifi":true}],"payload":"hello","_gmid_""#
            ) == true)
        let four = Array(repeating: #"{"url":"u","type":1}"#, count: 4).joined(separator: ",")
        let action = fixture.push(#""push_channel":{"ios":{"aps":{"alert":"a"},"multimedia":[\#(four)]}}"#)
        #expect(action.text.contains("multimedia size over limit"))
    }

    @Test("both placeholders are at the place of their digits, whatever text precedes them")
    func holes() throws {
        for text in ["", "é", "你好", "😀\u{1}\\\"", String(repeating: "x", count: 999)] {
            var writer = JSONWriter()
            writer.string(text)
            let quoted = String(decoding: writer.bytes, as: UTF8.self)
            let seen = try seen(
                ios: #"{"aps":{"alert":{"body":\#(quoted),"x":1}},"auto_badge":"+1","payload":\#(quoted)}"#)
            let body = seen.leased(message: Self.message, badge: 1_234_567_890)
            #expect(body.contains(#","badge":1234567890}"#))
            #expect(body.hasSuffix(#":0123456789abcdeffedcba9876543210"}"#))
            #expect(body.contains(#"{"aps":{"alert":{"body":\#(quoted),"x":1}"#))
            #expect(seen.alertBody == text)
        }
    }

    @Test(
        "a body fits to the byte, with ten badge digits and the ids in it",
        arguments: [("notify", #""aps":{"alert":"a"},"auto_badge":"+1","#, 4_096), ("voip", "", 5_120)])
    func sizes(type: String, fields: String, limit: Int) throws {
        func ios(_ count: Int) -> String {
            #"{"type":"\#(type)",\#(fields)"payload":"\#(String(repeating: "p", count: count))"}"#
        }
        let reserve = type == "voip" ? 0 : 10
        let frame = try seen(ios: ios(1)).vendorBytes.count - 1 + reserve
        let fitting = try seen(ios: ios(limit - frame))
        #expect(fitting.vendorBytes.count + reserve == limit)
        let over = fixture.push(#""push_channel":{"ios":\#(ios(limit - frame + 1))}"#)
        #expect(over.text.contains(#""code":20001,"msg":"ios size over limit, the APNs body has \#(limit + 1) bytes"#))
    }
}

@Suite("Native publishes")
struct NativePublishTests {
    private let app = Fixture().app
    private let publisher = NativePublisher()

    private struct Fields {
        var cid = Fixture.cid
        var payload = [UInt8]("hi".utf8)
        var timeToLive: Int64?
        var strategy: UInt32 = 0
        var collapseKey = ""
        var requestID = ""
        var title = ""
        var body = ""
        var apns = ""
    }

    private func publish(_ fields: Fields) throws -> Seen {
        let pieces = [
            fields.payload, Array(fields.collapseKey.utf8), Array(fields.requestID.utf8), Array(fields.title.utf8),
            Array(fields.body.utf8), Array(fields.apns.utf8),
        ]
        let joined = Array(pieces.joined())
        return try joined.withUnsafeBytes { joined in
            var place = 0
            let views = pieces.map { piece in
                defer { place += piece.count }
                return UnsafeRawBufferPointer(rebasing: joined[place..<place + piece.count])
            }
            let frame = NativePublish(
                cid: fields.cid, payload: views[0], timeToLive: fields.timeToLive ?? 0,
                hasTimeToLive: fields.timeToLive != nil, strategy: fields.strategy, collapseKey: views[1],
                requestID: views[2], alertTitle: views[3], alertBody: views[4], apns: views[5])
            return try publisher.withCommand(frame, sender: NativeSender(app), origin: .none, now: Fixture.now) {
                command, isIDsOnly in
                var seen = Seen(command)
                seen.isIDsOnly = isIDsOnly
                return seen
            }
        }
    }

    @Test("a frame whose payload only APNs could carry, but cannot, is refused with the reason")
    func binaryForVendorOnly() throws {
        var fields = Fields()
        (fields.payload, fields.title, fields.strategy) = ([0xFF], "T", 2)
        let fault = #expect(throws: NativePublishFault.self) { try publish(fields) }
        #expect(fault?.code == .invalidParameter && fault?.reason.contains("no text") == true)
        (fields.strategy, fields.timeToLive) = (4, 60_000)
        #expect(try !publish(fields).command.vendorCarriesAll)
    }

    @Test("an alert with other texts than the live channel marks the message as incomplete")
    func textsOfTwoChannels() throws {
        var fields = Fields()
        (fields.title, fields.apns) = ("T", #"{"aps":{"alert":"x"}}"#)
        #expect(try !publish(fields).command.vendorCarriesAll)
        fields.strategy = 2
        #expect(throws: NativePublishFault.self) { try publish(fields) }
        (fields.title, fields.apns) = ("T", #"{"aps":{"alert":{"title":"T"}}}"#)
        #expect(try publish(fields).command.vendorCarriesAll)
        (fields.title, fields.apns) = ("T", #"{"aps":{"badge":1}}"#)
        #expect(try !publish(fields).command.vendorCarriesAll)
    }

    @Test("a bare frame becomes a command with defaults and no vendor content")
    func bare() throws {
        let seen = try publish(Fields())
        #expect(seen.payload == "hi")
        #expect(seen.command.vendor == nil)
        #expect(seen.command.timeToLive == 7_200_000)
        #expect(seen.command.strategy == .liveElseVendor)
        #expect(seen.command.requestKey == (0, 0))
        #expect(seen.command.bucket == app.bucket(of: Fixture.cid))
        #expect(try publish(Fields(timeToLive: 0)).command.timeToLive == 0)
        #expect(try publish(Fields(timeToLive: -1, strategy: 4)).command.strategy == .vendorElseLive)
    }

    @Test("an alert is rendered for APNs and also delivered live")
    func alert() throws {
        let seen = try publish(Fields(title: "T\"", body: "B"))
        #expect(
            seen.vendorBody?.hasPrefix(
                #"{"aps":{"alert":{"title":"T\"","body":"B"},"sound":"default"},"payload":"hi","_gmid_":"RASS_1114_"#)
                == true)
        #expect(seen.alertTitle == "T\"" && seen.alertBody == "B")
        #expect(seen.command.vendor?.messageIDOffset == Int32(seen.vendorBytes.count - 34))
        #expect(
            try publish(Fields(title: "only")).vendorBody?.hasPrefix(#"{"aps":{"alert":{"title":"only"},"#) == true)
    }

    @Test("an apns object is used for APNs, and the alert for the live channel")
    func apns() throws {
        let seen = try publish(Fields(title: "T", apns: #"{"aps":{"alert":"from apns"},"auto_badge":"+1"}"#))
        #expect(seen.vendorBody?.hasPrefix(#"{"aps":{"alert":"from apns","badge":},"#) == true)
        #expect(seen.alertTitle == "T" && seen.alertBody == "")
        #expect(try publish(Fields(apns: #"{"aps":{"alert":"x"}}"#)).alertBody == "x")
        #expect(try publish(Fields(title: "T", apns: "{}")).vendorBody?.contains(#""title":"T""#) == true)
    }

    @Test("a request id yields a key, and every field counts in the digest")
    func digests() throws {
        let base = Fields(requestID: "0123456789")
        let first = try publish(base).command
        #expect(first.requestKey != (0, 0))
        #expect(try publish(base).command.requestDigest == first.requestDigest)
        let changes: [(inout Fields) -> Void] = [
            { $0.payload = Array("ho".utf8) }, { $0.timeToLive = 0 }, { $0.strategy = 1 }, { $0.collapseKey = "k" },
            { $0.title = "t" }, { $0.body = "b" }, { $0.apns = #"{"aps":{"alert":"x"}}"# },
            { $0.cid = Fixture.otherCID },
        ]
        for change in changes {
            var fields = base
            change(&fields)
            let other = try publish(fields).command
            #expect(other.requestKey == first.requestKey && other.requestDigest != first.requestDigest)
        }
    }

    private static let refusedCases: [(PublishResultCode, String, @Sendable (inout Fields) -> Void)] = [
        (.invalidParameter, "cid", { $0.cid = .none }),
        (.invalidParameter, "payload can not be empty", { $0.payload = [] }),
        (.sizeOverLimit, "payload size", { $0.payload = [UInt8](repeating: 0, count: 16_385) }),
        (.invalidParameter, "ttl_ms", { $0.timeToLive = -2 }),
        (.invalidParameter, "ttl_ms", { $0.timeToLive = .max }),
        (.invalidParameter, "strategy", { $0.strategy = 5 }),
        (.invalidParameter, "strategy", { $0.strategy = .max }),
        (.sizeOverLimit, "collapse_key", { $0.collapseKey = String(repeating: "k", count: 65) }),
        (.invalidParameter, "request_id", { $0.requestID = "short" }),
        (.invalidParameter, "apns is invalid", { $0.apns = "{" }),
        (.invalidParameter, "ios type error", { $0.apns = "[1]" }),
        (.invalidParameter, "aps is invalid", { $0.apns = #"{"payload":"p"}"# }),
        (
            .sizeOverLimit, "alert size over limit, at most 4096 bytes",
            {
                $0.apns = #"{"aps":{"alert":"x"}}"#
                ($0.title, $0.body) = (String(repeating: "t", count: 2_048), String(repeating: "b", count: 2_049))
            }
        ),
        (
            .sizeOverLimit, "alert size over limit, at most 4096 bytes",
            {
                $0.apns = #"{"aps":{"alert":"x"}}"#
                $0.body = String(repeating: "b", count: 114_600)
            }
        ),
        (.sizeOverLimit, "ios size over limit", { $0.body = String(repeating: "b", count: 4_096) }),
    ]

    @Test("each invalid field is refused with code and name", arguments: 0..<refusedCases.count)
    func faults(index: Int) {
        var fields = Fields()
        Self.refusedCases[index].2(&fields)
        do {
            _ = try publish(fields)
            Issue.record("accepted")
        } catch let fault as NativePublishFault {
            #expect(fault.code == Self.refusedCases[index].0)
            #expect(fault.reason.contains(Self.refusedCases[index].1), "\(fault.reason)")
        } catch {
            Issue.record("\(error)")
        }
    }

    @Test("result codes are the outcomes' own numbers, and stable")
    func codes() {
        for raw in UInt8(0)...9 {
            let code = PublishOutcome.Code(rawValue: raw)
            #expect(code.map { PublishResultCode($0).rawValue } == UInt32(raw))
        }
        #expect(PublishResultCode(.tooLarge) == .sizeOverLimit)
        #expect(PublishResultCode.invalidParameter.rawValue == 64 && PublishResultCode.sizeOverLimit.rawValue == 65)
        #expect(PublishResultCode.allCases.filter(\.isRetryable) == [.requestPending, .busy, .storeFailed])
    }

    @Test("undocumented keys of the iOS channel are named in the result, once each, up to a limit")
    func notedKeys() throws {
        let fixture = Fixture()
        func ask(_ ios: String) throws -> String {
            let body = """
                {"request_id":"ignored-0001","audience":{"cid":["\(Fixture.cid)"]},\
                "push_message":{"transmission":"x"},"push_channel":{"ios":\(ios)}}
                """
            guard case .push(let pushes, let form) = fixture.call(.post, "/v2/demoApp/push/single/cid", body) else {
                throw Fixture.Refused()
            }
            let outcome = PublishOutcome(code: .accepted, cid: Fixture.cid, task: pushes[0].task)
            return PushAnswer.render(outcomes: [outcome], form: form, durability: .fsync).text
        }
        let known = #""aps":{"alert":"hi"},"type":"notify","payload":"p","auto_badge":"+1","laId":"","multimedia":[]"#
        #expect(!(try ask("{\(known)}")).contains("Keys"))
        let some = try ask(#"{\#(known),"orderId":7,"Payload":"typo","orderId":8,"nothing":null,"empty":[]}"#)
        #expect(some.contains(#""topLevelKeys":["push_channel.ios.orderId","push_channel.ios.Payload"]"#), "\(some)")
        #expect(try ask(#"{\#(known),"_gmid_":"forged"}"#).contains(#""ignored":["push_channel.ios._gmid_"]"#))
        let many = (0..<70).map { #""key\#($0)":1"# }.joined(separator: ",")
        let answer = try ask("{\(known),\(many),\"\(String(repeating: "k", count: 500))\":1}")
        #expect(answer.contains("push_channel.ios.key63\"]") && !answer.contains("key64"))
        #expect(!(try ask("{\(known)}")).contains("Keys"), "nothing is left of the request before")
    }
}
