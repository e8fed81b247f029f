import Quotas
import Delivery
import Directory
import Testing
import Wire

@testable import PushAPI

/// The requests that Getui's SDKs really send, line by line of the list in docs/use/GetuiCompatibility.md, "What is forgiven".
@Suite("Lenient parsing")
struct LenientParsingTests {
    private let fixture = Fixture()
    private static let cid = Fixture.cid.description
    private static let task = TaskID(kind: .list, month: 11, day: 21, random: (1, 2)).text

    private func isTaken(_ action: PublicAction) -> Bool {
        guard case .respond(let response) = action else { return true }
        return response.status == 200 && response.text.hasPrefix(#"{"code":0,"#)
    }

    private static let bodiless: [(APIRequest.Method, String)] = [
        (.post, "user/black/cid/\(cid)"), (.delete, "user/black/cid/\(cid)"), (.delete, "task/\(task)"),
        (.delete, "task/schedule/\(task)"), (.delete, "user/alias/alice"), (.post, "log/upload"),
    ]

    @Test("a call without parameters accepts null, nothing and empty brackets as a body", arguments: bodiless)
    func emptyBodies(method: APIRequest.Method, path: String) {
        for body in ["null", "", "[]", "{}", " null\n"] {
            #expect(isTaken(fixture.call(method, "/v2/demoApp/" + path, body)), "\(body)")
        }
    }

    @Test("revoking a token accepts them, too")
    func revoking() {
        for body in ["null", ""] {
            guard case .revokeToken = fixture.call(.delete, "/v2/demoApp/auth/\(fixture.token)", body) else {
                Issue.record("not taken: \(body)")
                continue
            }
        }
    }

    @Test(
        "empty objects are accepted as empty arrays",
        arguments: [
            #""settings":[]"#, #""push_channel":[]"#, #""settings":{"strategy":[]}"#, #""push_channel":{"ios":[]}"#,
            #""push_channel":{"ios":{"aps":{"alert":[],"sound":"x"}}}"#,
            #""push_channel":{"ios":{"aps":{"alert":[]}},"android":{"ups":{"notification":[]}}}"#,
            #""push_channel":{"ios":{"type":"","multimedia":[],"auto_badge":"+1"}}"#, #""push_channel":{"android":[]}"#,
        ])
    func emptyArrays(field: String) throws { _ = try fixture.accepted(fixture.push(field)) }

    @Test("an empty array in place of a required value counts as empty, not as another type")
    func emptyMessage() throws {
        #expect(fixture.push(message: "[]").text.contains("push_message can not be empty"))
        #expect(fixture.push(audience: "[]").text.contains("audience can not be empty"))
        #expect(fixture.push(message: #"{"transmission":"x","notification":[],"revoke":[]}"#).response == nil)
    }

    @Test(
        "the audience of a stored message is ignored", arguments: ["\"all\"", "[]", "null", "7", "{\"cid\":1}"])
    func audience(value: String) throws { _ = try fixture.newTask(#""audience":\#(value)"#) }

    @Test("both kinds of escapes are resolved")
    func escapes() throws {
        let push = try fixture.accepted(fixture.push(message: #"{"transmission":"\u4f60\ud83d\ude00\/\u002f\t"}"#))
        #expect(push.seen.payload == "你😀//\t")
    }

    @Test(
        "numbers may be texts and texts may be numbers",
        arguments: [
            (#""settings":{"ttl":"3600000"}"#, 3_600_000), (#""settings":{"ttl":3600000}"#, 3_600_000),
            (#""settings":{"ttl":3600000.0}"#, 3_600_000), (#""settings":{"ttl":""}"#, 7_200_000),
            (#""settings":{"ttl":null}"#, 7_200_000), (#""settings":{"schedule_time":"0","speed":"5"}"#, 7_200_000),
            (#""settings":{"schedule_time":1699999999999,"strategy":{"default":"3","ios":"1"}}"#, 7_200_000),
            (#""settings":{"schedule_time":"","speed":"","strategy":{"default":1,"ios":""}}"#, 7_200_000),
        ] as [(String, Int64)])
    func settings(field: String, ttl: Int64) throws {
        let command = try fixture.accepted(fixture.push(field)).seen.command
        #expect(command.timeToLive == ttl)
        #expect(command.strategy == .liveElseVendor)
    }

    @Test("a notification's numbers may be texts", arguments: ["7", #""7""#])
    func notification(number: String) {
        let message =
            #"{"notification":{"title":"t","body":"b","click_type":"none","notify_id":\#(number),"badge_add_num":\#(number),"#
            + #""channel_level":\#(number == "7" ? "3" : #""3""#)}}"#
        #expect(fixture.push(message: message).response == nil)
    }

    @Test("a number is used as its text where a text is required")
    func numbersForNames() throws {
        let message = #"{"transmission":-12345}"#
        let push = try fixture.accepted(
            fixture.push(
                #""group_name":7,"push_channel":{"ios":{"payload":8,"apns-collapse-id":9,"aps":{"alert":{"title":10,"#
                    + #""body":11,"loc-args":[12,"x"],"launch-image":null,"summary-arg-count":13},"sound":14,"#
                    + #""category":15,"thread-id":16,"badge":17}}}"#, message: message, requestID: "1795301415179"))
        #expect(push.seen.payload == "-12345" && push.seen.vendorCollapseID == "9")
        #expect(push.seen.alertTitle == "10" && push.seen.alertBody == "11")
        #expect(
            push.seen.vendorBody?.hasPrefix(
                #"{"aps":{"alert":{"title":"10","body":"11","loc-args":["12","x"],"summary-arg-count":13},"#
                    + #""sound":"14","category":"15","thread-id":"16","badge":17},"payload":"8","_gmid_":"#) == true)
        // One name in both forms.
        let quoted = try fixture.accepted(fixture.push(message: message, requestID: #""1795301415179""#))
        #expect(push.seen.command.requestKey == quoted.seen.command.requestKey)
    }

    @Test("an alias may be a number in a push, as in a bind")
    func numericAlias() throws {
        let body = #"{"request_id":"req-000001","audience":{"alias":[12345]},"push_message":{"transmission":"x"}}"#
        guard case .aliases(let pushes, _) = try fixture.campaign(.post, "push/single/alias", body) else {
            throw Fixture.Refused()
        }
        #expect(pushes.map(\.alias.text) == ["12345"])
        let list = #"{"taskid":"\#(Self.task)","audience":{"alias":[12345,"12345","b"]}}"#
        guard case .list(let call) = try fixture.campaign(.post, "push/list/alias", list),
            case .aliases(let names) = call.audience
        else { throw Fixture.Refused() }
        #expect(names.map(\.text) == ["12345", "b"])
    }

    @Test("an alert without text is no content, and null members are omitted")
    func emptyAlerts() throws {
        for aps in [#"{"alert":[]}"#, #"{"alert":{},"sound":null}"#, #"{"alert":{"title":null,"body":null}}"#] {
            let push = try fixture.accepted(fixture.push(#""push_channel":{"ios":{"type":"notify","aps":\#(aps)}}"#))
            #expect(push.seen.vendorBody == nil, "\(aps)")
        }
        let push = try fixture.accepted(
            fixture.push(#""push_channel":{"ios":{"aps":{"alert":{"title":null,"body":"b","loc-key":null}}}}"#))
        #expect(push.seen.vendorBody?.hasPrefix(#"{"aps":{"alert":{"body":"b"}},"payload":"hello","_gmid_""#) == true)
        // Together with other APNs content, an APNs body that shows nothing is reported.
        let sound = fixture.push(#""push_channel":{"ios":{"aps":{"alert":[],"thread-id":"t"}}}"#)
        #expect(sound.text.contains("aps is invalid"))
    }

    @Test("a notification's texts may be numbers")
    func numericNotification() {
        let message = #"{"notification":{"title":1,"body":2,"click_type":"none","big_text":3,"payload":4}}"#
        #expect(fixture.push(message: message).response == nil)
        let both = #"{"notification":{"title":1,"body":2,"click_type":"none","big_text":3,"big_image":4}}"#
        #expect(fixture.push(message: both).text.contains("choose one of big_text and big_image"))
    }

    @Test("a badge and a timestamp may be either", arguments: ["+1", "-1", "5"])
    func badges(number: String) throws {
        let digits = number.first == "+" ? String(number.dropFirst()) : number
        for value in ["\"\(number)\"", digits] {
            #expect(isTaken(fixture.call(.post, "/v2/demoApp/user/badge/cid/\(Self.cid)", #"{"badge":\#(value)}"#)))
            _ = try fixture.accepted(fixture.push(#""push_channel":{"ios":{"auto_badge":\#(value)}}"#))
        }
    }

    @Test(
        "unknown fields are skipped",
        arguments: [
            #""task_name":"x""#, #""appkey":null,"sign":null,"timestamp":0"#,
            #""push_channel":{"harmony":{"a":[1]},"mp":{}}"#,
            #""settings":{"custom_callback":"x","new_thing":{"a":1}}"#, #""need_alias_detail":false"#,
            #""push_channel":{"android":{"ups":{"notification":{"title":"t","body":"b","click_type":"none"},"options":{"HW":{"/x":1}}}}}"#,
        ])
    func unknown(field: String) throws { _ = try fixture.accepted(fixture.push(field)) }

    @Test(
        "a list call may have flags as null, false, texts and numbers",
        arguments: ["null", "false", "0", #""false""#, #""""#])
    func flags(value: String) throws {
        let body =
            #"{"taskid":"\#(Self.task)","audience":{"cid":["\#(Self.cid)"]},"is_async":\#(value),"need_alias_detail":\#(value)}"#
        guard case .list(let call) = try fixture.campaign(.post, "push/list/cid", body) else { throw Fixture.Refused() }
        #expect(!call.isAsync && !call.needsAliasDetail)
    }

    @Test("a GET may have a body", arguments: ["null", "{}", "not JSON"])
    func bodyOfGet(body: String) {
        guard case .userStatus = fixture.call(.get, "/v2/demoApp/user/status/\(Self.cid)", body),
            case .campaign(.quotaReport) = fixture.call(.get, "/v2/demoApp/report/push/count", body),
            case .users = fixture.call(.get, "/v2/demoApp/user/detail/\(Self.cid)", body)
        else {
            Issue.record("a GET with the body \(body) is not taken")
            return
        }
    }

    @Test("a past display window is ignored, and one request id may be used on several endpoints")
    func demo() throws {
        let past = #"{"transmission":"x","duration":"1590547347000-1590633747000"}"#
        let single = try fixture.accepted(fixture.push(message: past))
        let body = #"{"request_id":"req-000001","push_message":{"transmission":"x"}}"#
        guard case .create(let task) = try fixture.campaign(.post, "push/list/message", body) else {
            throw Fixture.Refused()
        }
        let key = try #require(single.seen.command.requestKey as (UInt64, UInt64)?)
        #expect(task.requestKey != CallKey(high: key.0, low: key.1))
    }

    @Test("a repeated cid counts once")
    func doubled() throws {
        let body = #"{"taskid":"\#(Self.task)","audience":{"cid":["\#(Self.cid)","\#(Self.cid)"]}}"#
        guard case .list(let call) = try fixture.campaign(.post, "push/list/cid", body),
            case .devices(let targets) = call.audience
        else { throw Fixture.Refused() }
        #expect(targets.map(\.cid) == [Fixture.cid])
    }

    @Test(
        "a path's names may be percent-encoded, and slashes may be doubled",
        arguments: [
            "/v2/demoApp/user/cid/alias/%E5%BC%A0%e4%b8%89", "/v2/demoApp/user/cid/alias/张三",
            "//v2/demoApp//user/cid/alias/张三/",
            "/v2/demoApp/user/cid/alias/张三?alias_type=a", "/v2/demoApp/user/cid/alias/张三/?&",
        ])
    func paths(target: String) throws {
        guard case .users(let request) = fixture.call(.get, target), case .resolve(let names) = request.work else {
            throw Fixture.Refused()
        }
        #expect(names.map(\.text) == ["张三"])
    }

    @Test("the stale token of a client that authenticates again is ignored")
    func staleToken() {
        let body = #"{"appkey":"demoKey","timestamp":"1700000000000","sign":"wrong"}"#
        #expect(fixture.call(.post, "/v2/demoApp/auth", body, token: "stale").text.contains("sign is invalid"))
    }
}
