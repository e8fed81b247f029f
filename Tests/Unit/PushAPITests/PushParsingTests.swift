import Delivery
import TestKit
import Testing
import Wire

@testable import PushAPI

@Suite("Single pushes")
struct PushParsingTests {
    private let fixture = Fixture()

    @Test("a minimal push becomes a command with defaults, ids and digests")
    func minimal() throws {
        let push = try fixture.accepted(fixture.push())
        let command = push.seen.command
        #expect(push.seen.payload == "hello")
        #expect(command.app == fixture.app.key)
        #expect(command.cid == Fixture.cid)
        #expect(command.bucket.index == 0x4F7)
        #expect(command.strategy == .liveElseVendor)
        #expect(command.timeToLive == 7_200_000)
        #expect(command.vendor == nil)
        #expect(!command.isBulk)
        #expect(command.task.text.hasPrefix("RASS_1114_"))
        #expect(command.messageDigest == messageDigest(of: command.task, for: Fixture.cid))
        #expect(command.requestKey != (0, 0))
    }

    @Test("a repeated body has the same key, digest and task, another body another digest")
    func requestDigests() throws {
        let first = try fixture.accepted(fixture.push()).seen.command
        let second = try fixture.accepted(fixture.push()).seen.command
        let other = try fixture.accepted(fixture.push(message: #"{"transmission":"hullo"}"#)).seen.command
        #expect(first.requestKey == second.requestKey && first.requestDigest == second.requestDigest)
        #expect(first.task == second.task)
        #expect(other.requestKey == first.requestKey && other.requestDigest != first.requestDigest)
    }

    static let timesToLive: [(String, Int64)] = [
        ("-1", -1), ("0", 0), ("3600000", 3_600_000), (#""3600000""#, 3_600_000), (#""-1""#, -1),
        ("259200000", 259_200_000), ("null", 7_200_000), (#""""#, 7_200_000), ("3.6e6", 3_600_000),
    ]

    @Test("ttl is a number or its text", arguments: timesToLive)
    func timeToLive(text: String, expected: Int64) throws {
        #expect(try fixture.accepted(fixture.push(#""settings":{"ttl":\#(text)}"#)).timeToLive == expected)
    }

    static let strategyCases: [(String, Strategy)] = [
        ("{}", .liveElseVendor), ("[]", .liveElseVendor), (#"{"default":2}"#, .vendorOnly),
        (#"{"default":"3"}"#, .liveOnly), (#"{"default":1,"ios":4}"#, .vendorElseLive),
        (#"{"ios":3,"default":2}"#, .liveOnly), (#"{"default":6}"#, .liveElseVendor),
        (#"{"hw":2,"st":9}"#, .liveElseVendor), (#"{"default":3,"ios":null}"#, .liveOnly),
        (#"{"default":3,"ios":0}"#, .liveOnly), (#"{"default":"0","ios":0}"#, .liveElseVendor),
    ]

    @Test("ios overrides default, other vendors are ignored, 6 is 1", arguments: strategyCases)
    func strategies(text: String, expected: Strategy) throws {
        #expect(try fixture.accepted(fixture.push(#""settings":{"strategy":\#(text)}"#)).strategy == expected)
    }

    @Test(
        "additional fields of Getui's SDKs are skipped",
        arguments: [
            #""settings":[]"#, #""push_channel":[]"#, #""push_channel":{}"#, #""push_channel":null"#,
            #""push_channel":{"ios":[]}"#, #""push_channel":{"ios":{"aps":[],"payload":"","multimedia":[]}}"#,
            #""push_channel":{"android":{"ups":{"notification":{"title":"","click_type":""}}},"harmony":{},"mp":1}"#,
            #""task_name":"x","harmony":1,"custom_callback":"y","appkey":null,"sign":null,"timestamp":0"#,
            #""group_name":"a-B_9""#, #""group_name":null"#,
            #""settings":{"speed":0,"schedule_time":"","filter_notify_off":false,"first_ack_wins":false}"#,
        ])
    func leniency(fields: String) throws {
        #expect(try fixture.accepted(fixture.push(fields)).content.vendors.isEmpty)
    }

    @Test(
        "a custom callback is part of the message, and no answer names it as ignored",
        arguments: [(#""回执""#, "回执"), ("7", "7"), (#""""#, ""), ("null", "")])
    func customCallback(value: String, text: String) throws {
        let push = try fixture.accepted(fixture.push(#""settings":{"custom_callback":\#(value)}"#))
        #expect(String(decoding: push.content.customCallback, as: UTF8.self) == text)
        let longest = String(repeating: "x", count: 1_024)
        let long = try fixture.accepted(fixture.push(#""settings":{"custom_callback":"\#(longest)"}"#))
        #expect(long.content.customCallback.count == 1_024)
    }

    @Test("escaped text is resolved, and a past duration is ignored")
    func escapedTransmission() throws {
        let message = #"{"duration":"1-2","network_type":"0","transmission":"\u4f60\ud83d\ude00\/","notification":[]}"#
        #expect(try fixture.accepted(fixture.push(message: message)).seen.payload == "你😀/")
    }

    static let refusedCases: [(fields: String, message: String, requestID: String, audience: String, fault: String)] = {
        let cid = #"{"cid":["0123456789abcdef0123456789abcdef"]}"#
        let text = #"{"transmission":"t"}"#
        let id = #""req-000001""#
        func fields(_ fields: String, _ fault: String) -> (String, String, String, String, String) {
            (fields, text, id, cid, fault)
        }
        func message(_ message: String, _ fault: String) -> (String, String, String, String, String) {
            ("", message, id, cid, fault)
        }
        func requestID(_ requestID: String, _ fault: String) -> (String, String, String, String, String) {
            ("", text, requestID, cid, fault)
        }
        func audience(_ audience: String, _ fault: String) -> (String, String, String, String, String) {
            ("", text, id, audience, fault)
        }
        func notification(_ fields: String, _ fault: String) -> (String, String, String, String, String) {
            message(#"{"notification":{\#(fields)}}"#, fault)
        }
        let shown = #""title":"t","body":"b""#
        return [
            requestID("null", "request_id cannot be null"), requestID(#""""#, "request_id can not be empty"),
            requestID("true", "request_id type error"), requestID("12", "request_id is invalid"),
            requestID(#""123456789""#, "request_id is invalid"),
            requestID("\"\(String(repeating: "x", count: 33))\"", "request_id is invalid"),
            audience("null", "audience cannot be null"), audience("[]", "audience can not be empty"),
            audience(#""all""#, "audience type error"), audience(#"{"alias":["a"]}"#, "audience.alias is invalid"),
            audience(#"{"cid":[]}"#, "cid can not be empty"), audience(#"{"cid":"x"}"#, "cid type error"),
            audience(#"{"cid":[1]}"#, "cid type error"), audience(#"{"cid":["a","a"]}"#, "cid size over limit"),
            audience(#"{"cid":["a"]}"#, "target user is invalid"),
            audience(#"{"cid":["0123456789ABCDEF0123456789ABCDEF"]}"#, "target user is invalid"),
            message("null", "push_message cannot be null"), message("[]", "push_message can not be empty"),
            message("1", "push_message type error"),
            message(#"{"network_type":0}"#, "push_message must have exactly one of"),
            message(#"{"transmission":"a","notification":{"title":"t"}}"#, "push_message must have exactly one of"),
            message(#"{"transmission":""}"#, "transmission can not be empty"),
            message(#"{"transmission":"0","revoke":{"old_task_id":"x"}}"#, "push_message must have exactly one of"),
            message(#"{"transmission":"a","notification":{"title":"0"}}"#, "push_message must have exactly one of"),
            message(#"{"transmission":true}"#, "transmission type error"),
            message(#"{"revoke":{"old_task_id":"x"}}"#, "old_task_id is invalid"),
            notification(#""body":"b""#, "title cannot be null"), notification(#""title":"t""#, "body cannot be null"),
            notification(#""title":"","body":"b""#, "title can not be empty"),
            notification(shown, "click_type cannot be null"),
            notification(shown + #","click_type":"dance""#, "click_type is invalid"),
            notification(shown + #","click_type":"none","channel_level":"5""#, "channel_level is invalid"),
            notification(shown + #","click_type":"none","badge_add_num":-1"#, "badge_add_num is invalid"),
            notification(shown + #","click_type":"none","big_text":"a","big_image":"b""#, "choose one of big_text"),
            notification(#""title":"\#(String(repeating: "t", count: 51))","body":"b""#, "title size over limit"),
            notification(#""title":true,"body":"b""#, "title type error"),
            fields(#""settings":5"#, "settings type error"), fields(#""settings":{"ttl":-2}"#, "ttl is invalid"),
            fields(#""settings":{"ttl":259200001}"#, "ttl is invalid"),
            fields(#""settings":{"ttl":"1h"}"#, "ttl is invalid"), fields(#""settings":{"ttl":1.5}"#, "ttl is invalid"),
            fields(#""settings":{"ttl":18446744073709551615}"#, "ttl is invalid"),
            fields(#""settings":{"ttl":{"a":1}}"#, "ttl type error"),
            fields(#""settings":{"strategy":4}"#, "strategy type error"),
            fields(#""settings":{"strategy":{"default":5}}"#, "strategy is invalid"),
            fields(#""settings":{"strategy":{"ios":true}}"#, "strategy type error"),
            fields(#""settings":{"collapse_key":1}"#, "collapse_key type error"),
            fields(
                #""settings":{"collapse_key":"\#(String(repeating: "k", count: 65))"}"#, "collapse_key size over limit"),
            fields(#""settings":{"custom_callback":{"a":1}}"#, "custom_callback type error"),
            fields(
                #""settings":{"custom_callback":"\#(String(repeating: "k", count: 1_025))"}"#,
                "custom_callback size over limit"),
            fields(#""push_channel":"x""#, "push_channel type error"),
            fields(#""push_channel":{"ios":"x"}"#, "ios type error"),
            fields(#""push_channel":{"ios":{"type":"sms"}}"#, "type is invalid"),
            fields(#""push_channel":{"ios":{"aps":"x"}}"#, "aps type error"),
            fields(#""push_channel":{"ios":{"aps":{"alert":5}}}"#, "alert type error"),
            fields(#""push_channel":{"ios":{"payload":{"a":1}}}"#, "payload type error"),
            fields(#""push_channel":{"ios":{"payload":"x"}}"#, "aps is invalid"),
            fields(#""push_channel":{"ios":{"aps":{"content-available":0,"category":"c"}}}"#, "aps is invalid"),
            fields(#""push_channel":{"ios":{"auto_badge":"one"}}"#, "auto_badge is invalid"),
            fields(#""push_channel":{"ios":{"auto_badge":"99999999999"}}"#, "auto_badge is invalid"),
            fields(#""push_channel":{"ios":{"auto_badge":true}}"#, "auto_badge type error"),
            fields(#""push_channel":{"ios":{"type":"liveactivity","aps":{"event":"end"}}}"#, "laId cannot be null"),
            fields(#""push_channel":{"ios":{"type":"liveactivity","laId":"a"}}"#, "aps cannot be null"),
            fields(#""push_channel":{"ios":{"type":"liveactivity","laId":"a","aps":{"x":1}}}"#, "event is invalid"),
            fields(#""push_channel":{"ios":{"aps":{"alert":"a"},"multimedia":{"a":1}}}"#, "multimedia type error"),
            fields(#""push_channel":{"ios":{"aps":{"alert":"a"},"multimedia":[{"type":1}]}}"#, "multimedia.url cannot"),
            fields(
                #""push_channel":{"ios":{"aps":{"alert":"a"},"multimedia":[{"url":"u","type":4}]}}"#, "multimedia.type"),
            fields(
                #""push_channel":{"ios":{"aps":{"alert":"a"},"apns-collapse-id":"\#(String(repeating: "c", count: 65))"}}"#,
                "apns-collapse-id size over limit"),
        ]
    }()

    @Test("each bad parameter is 400 and 20001 and named", arguments: refusedCases)
    func faults(fields: String, message: String, requestID: String, audience: String, fault: String) throws {
        let action = fixture.push(fields, message: message, requestID: requestID, audience: audience)
        let response = try #require(action.response, "accepted")
        #expect(response.status == 400)
        #expect(response.text.hasPrefix(#"{"code":20001,"msg":"\#(fault)"#), "\(response.text)")
    }

    @Test(
        "a body that is no JSON object is reported as such",
        arguments: [
            ("{", 1), ("hello", 1), (#"{"a":"\ud800"}"#, 20001), ("{}{}", 1), ("null", 20001), ("", 20001),
            ("[]", 20001),
            ("[1]", 20001), ("7", 20001), (String(repeating: "[", count: 100), 1),
        ] as [(String, Int)])
    func malformedBodies(body: String, code: Int) throws {
        let response = try #require(fixture.call(.post, "/v2/demoApp/push/single/cid", body).response)
        #expect(response.text.hasPrefix(#"{"code":\#(code),"#), "\(response.text)")
        #expect(response.status == (code == 1 ? 200 : 400))
    }

    @Test("a body above the limit is 400 and 20001, not 413")
    func bodyLimit() throws {
        let body = [UInt8](repeating: UInt8(ascii: " "), count: Limits.requestBodyByteCount + 1)
        let action = fixture.call(
            .post, Array("/v2/demoApp/push/single/cid".utf8), body, token: Array(fixture.token.utf8))
        #expect(action.response?.status == 400)
        #expect(action.text.hasPrefix(#"{"code":20001,"msg":"body size over limit"#))
        #expect(APIResponse.bodyTooLarge.status == 400)
    }

    @Test("a transmission has up to 3,072 characters, however many bytes each takes")
    func transmissionLimit() throws {
        for character in ["a", "你", "😀"] {
            let full = String(repeating: character, count: 3_072)
            let push = try fixture.accepted(fixture.push(message: #"{"transmission":"\#(full)"}"#))
            #expect(push.seen.payload == full)
            let over = fixture.push(message: #"{"transmission":"\#(full)x"}"#)
            #expect(over.text.contains("transmission size over limit"))
        }
    }

    @Test("a notification's JSON is the payload")
    func notification() throws {
        let json = #"{"title":"t","body":"b \"é\"","click_type":"none","notify_id":"7","x":{"y":[1,null]}}"#
        let push = try fixture.accepted(fixture.push(message: #"{"notification": \#(json) }"#))
        #expect(push.seen.payload == json)
    }

    @Test("a batch keeps its valid items in order, and explains the invalid ones")
    func batch() throws {
        func item(_ id: String, _ cid: String) -> String {
            #"{"request_id":"\#(id)","audience":{"cid":["\#(cid)"]},"push_message":{"transmission":"\#(id)"}}"#
        }
        let items = [
            item("request-001", "\(Fixture.cid)"), item("request-002", "nobody"), "7",
            item("request-004", "\(Fixture.otherCID)"),
        ]
        let body = #"{"is_async":"true","msg_list":[\#(items.joined(separator: ","))]}"#
        guard case .push(let pushes, let form) = fixture.call(.post, "/v2/demoApp/push/single/batch/cid", body) else {
            Issue.record("not accepted")
            return
        }
        #expect(pushes.map(\.seen.payload) == ["request-001", "request-004"])
        #expect(pushes.map(\.itemIndex) == [0, 3])
        #expect(Set(pushes.map(\.task)).count == 2)
        #expect(form.kind == .batch(isAsync: true))
        #expect(form.refused.map(\.itemIndex) == [1, 2])
        #expect(form.refused.map(\.message) == ["target user is invalid", "msg_list type error"])
        // The same item in another batch keeps its digest.
        let alone = #"{"msg_list":[ \#(items[3]) ]}"#
        guard case .push(let again, _) = fixture.call(.post, "/v2/demoApp/push/single/batch/cid", alone) else {
            Issue.record("not accepted")
            return
        }
        #expect(again[0].seen.command.requestDigest == pushes[1].seen.command.requestDigest)
        #expect(again[0].seen.command.requestKey == pushes[1].seen.command.requestKey)
    }

    @Test(
        "an invalid batch is refused",
        arguments: [
            ("{}", "body"), (#"{"msg_list":null,"a":1}"#, "msg_list cannot be null"),
            (#"{"msg_list":[]}"#, "msg_list can not be empty"), (#"{"msg_list":{"a":1}}"#, "msg_list type error"),
            (#"{"msg_list":[{}],"is_async":"maybe"}"#, "is_async type error"),
            (#"{"msg_list":[{}]}"#, "request_id cannot be null"),
            (
                #"{"msg_list":[\#(Array(repeating: "{}", count: 201).joined(separator: ","))]}"#,
                "msg_list size over limit"
            ),
        ] as [(String, String)])
    func batchFaults(body: String, message: String) throws {
        let response = try #require(fixture.call(.post, "/v2/demoApp/push/single/batch/cid", body).response)
        #expect(response.status == 400)
        #expect(response.text.contains(message == "body" ? "msg_list cannot be null" : message), "\(response.text)")
    }

    @Test("bodies with random damage are accepted or refused, and never trap")
    func damagedBodies() {
        var generator = SeededGenerator(seed: 5)
        let body = Array(
            #"""
            {"request_id":"req-000001","settings":{"ttl":1,"strategy":{"ios":4},"collapse_key":"k"},
            "audience":{"cid":["0123456789abcdef0123456789abcdef"]},"push_message":{"transmission":"\u4f60"},
            "push_channel":{"ios":{"type":"notify","aps":{"alert":{"title":"t","body":"b","loc-args":[]},"badge":1},
            "auto_badge":"+1","payload":"p","multimedia":[{"url":"u","type":"1"}],"apns-collapse-id":"c"}}}
            """#.utf8)
        let replacements = Array(#"{}[]",:01-nt\"#.utf8)
        for _ in 0..<5_000 {
            var damaged = body
            for _ in 0..<(1 + generator.next() % 3) {
                let place = Int(generator.next() % UInt64(damaged.count))
                switch generator.next() % 3 {
                case 0: damaged[place] = UInt8(truncatingIfNeeded: generator.next())
                case 1: damaged[place] = replacements[Int(generator.next() % UInt64(replacements.count))]
                default: damaged.remove(at: place)
                }
            }
            let action = fixture.call(
                .post, Array("/v2/demoApp/push/single/cid".utf8), damaged, token: Array(fixture.token.utf8))
            if case .push(let pushes, _) = action { for push in pushes { _ = push.seen } }
        }
    }
}
