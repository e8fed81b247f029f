import Quotas
import Delivery
import Directory
import Foundation
import Testing
import Wire

@testable import PushAPI

@Suite("Fields of requests")
struct RequestFieldsTests {
    private let fixture = Fixture()
    private static let task = TaskID(kind: .list, month: 11, day: 14, random: (1, 2)).text
    private static let cid = Fixture.cid.description
    private static let other = Fixture.otherCID.description
    private static let message = #""push_message":{"transmission":"hi"}"#

    // MARK: Filters

    /// Calls that create or use a message, with a valid body.
    static let calls: [(path: String, audience: String, rest: String)] = {
        let fields = #""request_id":"news-000001",\#(message)"#
        let condition = #"{"tag":[{"key":"custom_tag","values":["a"],"opt_type":"or"}]}"#
        let list = #""taskid":"\#(task)""#
        return [
            ("push/all", #""all""#, fields), ("push/tag", condition, fields),
            ("push/fast_custom_tag", #"{"fast_custom_tag":"a"}"#, fields),
            ("push/single/cid", #"{"cid":["\#(cid)"]}"#, fields), ("push/single/alias", #"{"alias":["a"]}"#, fields),
            ("push/single/cid_by_tag", #"{"cid_by_tag":[{"cid":"\#(cid)","tag":["a"]}]}"#, fields),
            ("push/list/message", #""all""#, fields), ("push/list/cid", #"{"cid":["\#(cid)"]}"#, list),
            ("push/list/alias", #"{"alias":["a"]}"#, list),
            ("push/list/cid_by_tag", #"{"cid_by_tag":[{"cid":"\#(cid)","tag":["a"]}]}"#, list),
        ]
    }()

    private func post(_ path: String, _ body: String) -> PublicAction {
        fixture.call(.post, "/v2/demoApp/" + path, body)
    }

    @Test("an unsupported field that would narrow the audience is refused by its name", arguments: calls)
    func filters(path: String, audience: String, rest: String) {
        #expect(post(path, #"{"audience":\#(audience),\#(rest)}"#).response == nil)
        for (field, name) in [
            (#""settings":{"activate_filter_day":7}"#, "settings.activate_filter_day"),
            (#""settings":{"activate_filter_type":"-1"}"#, "settings.activate_filter_type"),
            (#""settings":{"filter_notify_off":true}"#, "settings.filter_notify_off"),
            (#""settings":{"filter_notify_off":"true","filter_notify_off":false}"#, "settings.filter_notify_off"),
            (#""settings":{"filter_notify_off":null,"filter_notify_off":true}"#, "settings.filter_notify_off"),
            (#""filter_notify_off":1"#, "filter_notify_off"), (#""tag":["a"]"#, "tag"),
            (#""settings":{"region":["11000000"]}"#, "settings.region"), (#""crowd_id":"c1""#, "crowd_id"),
            (#""settings":{"Filter_App_Version":"2"}"#, "settings.Filter_App_Version"),
            (#""excluded":["x"]"#, "excluded"),
        ] {
            let text = post(path, #"{"audience":\#(audience),\#(rest),\#(field)}"#).text
            #expect(text.hasPrefix(#"{"code":20001,"msg":"\#(name) is invalid"#), "\(path) \(field): \(text)")
        }
        let unset =
            #""settings":{"activate_filter_day":0,"activate_filter_type":"","filter_notify_off":"false"},"crowd_id":null"#
        #expect(post(path, #"{"audience":\#(audience),\#(rest),\#(unset)}"#).response == nil)
        guard audience.hasPrefix("{"), audience.hasSuffix("}") else { return }
        for extra in ["crowd_id", "region", "portrait", "anything"] {
            let text = post(path, #"{"audience":\#(audience.dropLast()),"\#(extra)":"x"},\#(rest)}"#).text
            #expect(text.contains("audience.\(extra) is invalid"), "\(path): \(text)")
        }
    }

    @Test(
        "conditions on unknown device properties are refused", arguments: ["region", "portrait"], ["and", "or", "not"])
    func unknownConditions(key: String, combination: String) {
        let condition = #"{"key":"\#(key)","values":["x"],"opt_type":"\#(combination)"}"#
        let text = post(
            "push/tag", #"{"request_id":"news-000001","audience":{"tag":[\#(condition)]},\#(Self.message)}"#
        ).text
        #expect(text.hasPrefix(#"{"code":20001,"msg":"\#(key) is invalid"#), "\(text)")
        let extra = #"{"key":"custom_tag","values":["x"],"opt_type":"and","since":5}"#
        let whole = post("push/tag", #"{"request_id":"news-000001","audience":{"tag":[\#(extra)]},\#(Self.message)}"#)
            .text
        #expect(whole.contains("audience.tag[].since is invalid"), "\(whole)")
    }

    @Test("a duplicate field is refused if the choice would be a guess")
    func repeated() {
        for (fields, name) in [
            (#""audience":"all","audience":{"tag":[]}"#, nil),
            (#""audience":"all","audience":{"tag":["a"]}"#, "audience"),
            (#""audience":"all","settings":{"ttl":1,"ttl":2}"#, "settings.ttl"),
            (#""audience":"all","settings":null,"settings":{"speed":2}"#, "settings"),
        ] {
            let action = post("push/all", #"{"request_id":"news-000001",\#(fields),\#(Self.message)}"#)
            if let name { #expect(action.text.contains("\(name) is invalid, it is there twice"), "\(action.text)") }
        }
    }

    // MARK: Ignored fields

    private static let noise =
        #""task_name":"t","whim":[1],"settings":{"ttl":5000,"custom_callback":"c","lst":1e400,"strategy":{"default":1,"hw":2,"st":2},"#
        + #""active_push":true,"need_backup":false,"new":{"a":"\ud800"}},"push_channel":{"android":{"ups":{},"x":1},"harmony":{},"#
        + #""mp":{"x":1},"ios":{"_gmid_":"x","aps":{"alert":"a"}}},"#
        + #""push_message":{"transmission":"hi","duration":"1-2","network_type":1,"revoke":{"old_task_id":"","force":false}}"#
    private static let noted = [
        "task_name", "whim", "settings.lst", "settings.strategy.st", "settings.active_push",
        "settings.new", "push_channel.android.x", "push_channel.mp", "push_channel.ios._gmid_", "push_message.duration",
        "push_message.network_type",
    ]

    @Test("every field without effect is named, even if unreadable")
    func ignored() throws {
        let id = #""request_id":"news-000001""#
        guard
            case .push(_, let single) = post(
                "push/single/cid", #"{\#(id),"audience":{"cid":["\#(Self.cid)"]},\#(Self.noise),"group_name":"g"}"#),
            case .push(let pushes, let batch) = post(
                "push/single/batch/cid",
                #"{"msg_list":[{\#(id),"audience":{"cid":["\#(Self.cid)"]},\#(Self.noise)}],"appkey":"k"}"#),
            case .campaign(.create(let broadcast)) = post(
                "push/all", #"{\#(id),"audience":"all",\#(Self.noise),"group_name":"g"}"#),
            case .campaign(.create(let list)) = post("push/list/message", #"{"audience":"all",\#(Self.noise)}"#),
            case .campaign(.list(let call)) = post(
                "push/list/cid",
                #"{"taskid":"\#(Self.task)","audience":{"cid":["\#(Self.cid)"]},"need_alias_detail":true,"group_name":"g"}"#
            )
        else { throw Fixture.Refused() }
        #expect(single.notes.ignored == Self.noted + ["group_name"])
        #expect(batch.notes.ignored == ["appkey"] + Self.noted && pushes.count == 1)
        #expect(broadcast.notes.ignored == Self.noted)
        #expect(list.notes.ignored == ["audience"] + Self.noted)
        #expect(call.notes.ignored == ["need_alias_detail", "group_name"])
        let record = TaskRecord(
            id: call.task, app: fixture.app.key, state: .open, createdAt: 1, validUntil: 2, scheduleAt: 0, group: "",
            content: broadcast.record.content)
        var timed = record
        timed.state = .scheduled
        for answer in [
            CampaignAnswer.list([], call, record: record, aliases: nil, durability: .fsync),
            CampaignAnswer.list([], call, record: timed, aliases: nil, durability: .fsync),
        ] { #expect(answer.text.contains(#""ignored":["need_alias_detail","group_name"]"#), "\(answer.text)") }
    }

    @Test("ignored fields of the user calls are named")
    func ignoredOfUsers() throws {
        let calls: [(APIRequest.Method, String, String, [String])] = [
            (
                .post, "user/alias", #"{"data_list":[{"cid":"\#(Self.cid)","alias":"a","x":1}],"alias_type":"t"}"#,
                ["alias_type", "data_list[].x"]
            ),
            (.post, "user/custom_tag/cid/\(Self.cid)", #"{"custom_tag":["a"],"x":1}"#, ["x"]),
            (.put, "user/custom_tag/batch/t", #"{"cid":["\#(Self.cid)"],"x":1}"#, ["x"]),
            (.post, "user/black/cid/\(Self.cid)", #"{"until":1}"#, ["until"]),
            (.post, "user/badge/cid/\(Self.cid)", #"{"badge":1,"x":{"y":1}}"#, ["x"]),
        ]
        for (method, path, body, names) in calls {
            guard case .users(let request) = fixture.call(method, "/v2/demoApp/" + path, body) else {
                throw Fixture.Refused()
            }
            #expect(request.notes.ignored == names, "\(path)")
        }
        guard
            case .testDevices(let request) = post(
                "user/test/cid/add", #"{"cid_list":[{"cid":"\#(Self.cid)","x":1}],"y":2}"#)
        else { throw Fixture.Refused() }
        #expect(request.notes.ignored == ["y", "cid_list[].x"])
        let text = TestDeviceAnswer.render(request, TestDeviceResult(), page: []).text
        #expect(text.contains(#""ignored":["y","cid_list[].x"]"#))
        let tokens = post("user/bind_dt/wx", #"{"dt_list":[{"cid":"a","z":1}]}"#).text
        #expect(tokens.contains(#""longwire":{"ignored":["dt_list[].z"]}"#), "\(tokens)")
    }

    @Test("the unknown fields of a call, over all its objects, and its keys and values are bounded")
    func bounds() {
        func unknown(_ count: Int) -> String { (0..<count).map { #""x\#($0)":1"# }.joined(separator: ",") }
        let most = Limits.unknownFieldCount
        #expect(fixture.push(#""settings":{\#(unknown(most))}"#).response == nil)
        for text in [
            fixture.push(#""settings":{\#(unknown(most + 1))}"#).text,
            fixture.push(#""settings":{\#(unknown(most / 2))},\#(unknown(most / 2 + 1))"#).text,
            post("user/custom_tag/cid/\(Self.cid)", #"{"custom_tag":["a"],\#(unknown(most + 1))}"#).text,
        ] {
            #expect(text.contains("size over limit, at most \(most) unknown fields"), "\(text.prefix(200))")
        }
        let many = "{" + (0..<Limits.requestWordCount / 2).map { #""x\#($0)":"" "# }.joined(separator: ",") + "}"
        let text = fixture.push(#""push_channel":{"android":{"ups":{"notification":\#(many)}}}"#).text
        #expect(text.contains("body size over limit, at most \(Limits.requestWordCount) keys and values"), "\(text)")
    }

    @Test("an unknown query parameter is refused")
    func queries() {
        for (method, path) in [
            (APIRequest.Method.get, "report/push/task/\(Self.task)?startDate=2023-11-01"),
            (.get, "report/push/count?day=1"),
            (.post, "push/all?audience=x"), (.delete, "task/\(Self.task)?force=true"),
            (.get, "user/status/\(Self.cid)?alias_type=x"), (.post, "user/alias?alias_type=t"),
        ] {
            let text = fixture.call(method, "/v2/demoApp/" + path, "").text
            #expect(text.contains("is invalid, the call has no such parameter"), "\(path): \(text)")
        }
    }

    // MARK: Items that cannot be read

    @Test(
        "one unreadable item is refused and named; the others are accepted",
        arguments: [#""cut \ud83d""#, "NaN", #"{"a":1}"#, "\"raw \u{1}\""])
    func badItem(value: String) throws {
        func item(_ number: Int, _ audience: String, _ payload: String) -> String {
            #"{"request_id":"request-\#(100 + number)","audience":\#(audience),"push_message":{"transmission":\#(payload)}}"#
        }
        for (path, audience) in [("cid", #"{"cid":["\#(Self.cid)"]}"#), ("alias", #"{"alias":["a"]}"#)] {
            let items = [item(0, audience, #""x""#), item(1, audience, value), item(2, audience, #""y""#)]
            let form: PushForm
            let count: Int
            switch post("push/single/batch/\(path)", #"{"msg_list":[\#(items.joined(separator: ","))]}"#) {
            case .push(let pushes, let given): (count, form) = (pushes.count, given)
            case .campaign(.aliases(let pushes, let given)): (count, form) = (pushes.count, given)
            case let action:
                Issue.record("not taken: \(action.text)")
                continue
            }
            #expect(count == 2 && form.refused.map(\.itemIndex) == [1])
            #expect(form.refused[0].message.contains("transmission"), "\(form.refused)")
        }
        let alone = post("push/single/cid", item(1, #"{"cid":["\#(Self.cid)"]}"#, value)).text
        #expect(alone.hasPrefix(#"{"code":20001"#) && alone.contains("transmission"), "\(alone)")
    }

    @Test("an unreadable value is refused by its path, and skipped where it is not used")
    func unreadablePaths() {
        func push(_ ios: String) -> PublicAction { fixture.push(#""push_channel":{"ios":\#(ios)}"#) }
        #expect(
            push(#"{"aps":{"alert":{"title":"\ud83d"}}}"#).text.contains("push_channel.ios.aps.alert.title is invalid"))
        #expect(push(#"{"aps":{"alert":"a"},"order":[1,NaN]}"#).text.contains("push_channel.ios.order[1] is invalid"))
        #expect(push(#"{"aps":{"alert":"a"},"\udc00":1}"#).text.contains("push_channel.ios.? is invalid"))
        #expect(fixture.push(#""push_channel":{"android":{"a":"\ud83d","b":NaN}}"#).response == nil)
        #expect(fixture.push(requestID: #""req-00000\ud83d""#).text.contains("request_id is invalid"))
    }

    @Test("unreadable members of an audience are named by place and text; the others get the message")
    func badMembers() throws {
        let list = #""taskid":"\#(Self.task)""#
        guard
            case .campaign(.list(let aliases)) = post(
                "push/list/alias",
                #"{\#(list),"audience":{"alias":["good1","550e8400-e29b",true,"x\ud83d",12345678901234567890123]}}"#),
            case .campaign(.list(let devices)) = post(
                "push/list/cid", #"{\#(list),"audience":{"cid":[null,"zz",1e400,"\#(Self.cid)","\ud83d"]}}"#),
            case .campaign(.list(let tagged)) = post(
                "push/list/cid_by_tag",
                #"{\#(list),"audience":{"cid_by_tag":[{"cid":"zz","tag":["a"]},7,{"cid":"\#(Self.cid)","tag":["a"]},{"cid":"\#(Self.other)","tag":["a b"]}]}}"#
            )
        else { throw Fixture.Refused() }
        guard case .aliases(let names) = aliases.audience, case .devices(let targets) = devices.audience,
            case .conditions(let candidates) = tagged.audience
        else { throw Fixture.Refused() }
        #expect(
            names.map(\.text) == ["good1", "12345678901234567890123"] && aliases.refused.map(\.index) == [1, 2, 3])
        #expect(
            targets.map(\.cid) == [Fixture.cid] && devices.unknown == ["zz"]
                && devices.refused.map(\.index) == [0, 2, 4])
        #expect(candidates.map(\.target.cid) == [Fixture.cid] && tagged.refused.map(\.index) == [0, 1, 3])
        let record = TaskRecord(
            id: aliases.task, app: fixture.app.key, state: .open, createdAt: 1, validUntil: 2, scheduleAt: 0, group: "",
            content: try fixture.newTask().record.content)
        let answer = CampaignAnswer.list([], aliases, record: record, aliases: nil, durability: .fsync).text
        #expect(
            answer.contains(#""refused":[{"index":1,"alias":"550e8400-e29b","code":20001,"msg":"alias is invalid"#),
            "\(answer)")
        let none = post("push/list/alias", #"{\#(list),"audience":{"alias":["a-b","c d"]}}"#).text
        #expect(none.contains("alias is invalid") && none.contains("alias[0] a-b"), "\(none)")
    }

    @Test("an invalid member of a user list is refused and named; the others are processed")
    func badPairs() throws {
        let pairs = #"{"cid":"\#(Self.cid)","alias":"good"},{"cid":"\#(Self.other)","alias":"not-good"},7"#
        guard case .users(let request) = post("user/alias", #"{"data_list":[\#(pairs)]}"#),
            case .bind(let items) = request.work
        else { throw Fixture.Refused() }
        #expect(items.map(\.name.text) == ["good"] && request.refused.map(\.itemIndex) == [1, 2])
        #expect(request.refused[0].message.hasSuffix("data_list[1] not-good"), "\(request.refused)")
        guard
            case .users(let tagged) = fixture.call(
                .put, "/v2/demoApp/user/custom_tag/batch/t", #"{"cid":["\#(Self.cid)",null,7,"\ud83d"]}"#)
        else { throw Fixture.Refused() }
        #expect(tagged.devices == [Fixture.cid] && tagged.notCIDs == ["cid[1]", "7", "cid[3]"])
        let tags = post("user/custom_tag/cid/\(Self.cid)", #"{"custom_tag":["a","b c"]}"#).text
        #expect(tags.contains("custom_tag is invalid") && tags.contains("custom_tag[1] b c"), "\(tags)")
    }

    @Test("numbers of any size are sent to APNs unchanged")
    func numbers() throws {
        let push = try fixture.accepted(
            fixture.push(
                #""push_channel":{"ios":{"aps":{"alert":"hi"},"order":1234567890123456789012345,"big":[1e400,0.10]}}"#))
        let body = try #require(push.seen.vendorBody)
        #expect(body.contains(#""order":1234567890123456789012345,"big":[1e400,0.10]"#), "\(body)")
        #expect(
            try fixture.accepted(fixture.push(message: #"{"transmission":-12345678901234567890123}"#)).seen.payload
                == "-12345678901234567890123")
    }

    // MARK: Fields that SDKs omit

    @Test(
        "an SDK's placeholder for an omitted field counts as absent everywhere",
        arguments: [
            #"{"notification":{"title":"t","body":"b","click_type":"startapp","badge_add_num":0,"big_text":"","logo":null},"transmission":""}"#,
            #"{"transmission":"x","notification":{"title":"","body":"","click_type":"","notify_id":0}}"#,
            #"{"transmission":"x","revoke":{"old_task_id":"","force":false},"notification":""}"#,
            #"{"transmission":"x","revoke":null,"notification":{},"network_type":0,"duration":""}"#,
        ])
    func leftOut(message: String) throws {
        let fields =
            #""group_name":"","settings":{"ttl":{},"strategy":{"default":0,"ios":0},"collapse_key":"","speed":null},"#
            + #""push_channel":{"ios":{"type":"","aps":{"alert":{"title":"","body":""},"sound":"","content-available":0,"#
            + #""mutable-content":0,"relevance-score":0.0},"auto_badge":"","payload":"","multimedia":{"url":"","type":0}}}"#
        let push = try fixture.accepted(fixture.push(fields, message: message))
        #expect(push.content.vendors.isEmpty && push.strategy == .liveElseVendor)
        guard case .push(_, let form) = fixture.push(fields, message: message) else { throw Fixture.Refused() }
        #expect(form.notes == RequestNotes())
    }

    @Test("a badge of 0 is a value, not an SDK's placeholder: it clears the badge")
    func badgeOfZero() throws {
        for ios in [#"{"aps":{"badge":0,"sound":""}}"#, #"{"aps":{"content-available":0},"auto_badge":0}"#] {
            let push = try fixture.accepted(fixture.push(#""push_channel":{"ios":\#(ios)}"#))
            #expect(push.content.vendors.count == 1)
        }
    }

    @Test("one request id for several aliases is several requests, as for several cids")
    func requestIDs() throws {
        func push(_ alias: String, type: String = "", text: String = "x") throws -> AliasPush {
            let body =
                #"{"request_id":"operation-1","audience":{"alias":["\#(alias)"],"alias_type":"\#(type)"},"push_message":{"transmission":"\#(text)"}}"#
            guard case .campaign(.aliases(let pushes, _)) = post("push/single/alias", body) else {
                throw Fixture.Refused()
            }
            return pushes[0]
        }
        let first = try push("a"), again = try push("a", text: "y")
        #expect(first.key == again.key && first.ownKey == again.ownKey && first.digest != again.digest)
        #expect(!first.isApart(from: again.task), "another body for the same alias is told")
        for other in [try push("b"), try push("a", type: "t-1")] {
            #expect(other.key == first.key, "the id alone finds the first push")
            #expect(other.ownKey != first.ownKey && other.isApart(from: first.task) && first.isApart(from: other.task))
        }
    }

    // MARK: Documentation

    @Test("the documentation lists the fields of each body in the tables' order")
    func documentation() throws {
        let page = try String(
            contentsOf: URL(fileURLWithPath: #filePath).deletingLastPathComponent()
                .appendingPathComponent("../../../docs/use/GetuiCompatibility.md"), encoding: .utf8)
        var expected = "Selections: \(Self.list(FieldTable.narrowing.map { "\($0.name)" })), "
        expected += "and any other field with \(Self.list(FieldTable.selectingWords)) in its name.\n"
        for (calls, tables) in FieldTable.documented { expected += "\n" + Self.describe(calls, tables) }
        #expect(page.contains(expected), "the section is to be:\n\(expected)")
    }

    private static func list(_ names: [String]) -> String { names.map { "`\($0)`" }.joined(separator: ", ") }

    private static func describe(_ calls: String, _ tables: [FieldTable]) -> String {
        var uses: [(title: String, names: [String])] = [("served", []), ("ignored", []), ("refused", [])]
        func add(_ table: FieldTable) {
            let path = "\(table.path)"
            for (name, use) in table.fields {
                switch use {
                case .served, .items: uses[0].names.append("`\(path)\(name)`")
                case .ignored: uses[1].names.append("`\(path)\(name)`")
                case .refused:
                    if "\(name)" == "cid" {
                        uses[2].names.append("selections\(path.isEmpty ? "" : " in `\(path.dropLast())`")")
                    }
                case .object(let inner), .list(let inner): add(inner)
                }
            }
            let rest = path.isEmpty ? "any other" : "any other of `\(path.dropLast())`"
            switch table.others {
            case .served, .items: uses[0].names.append(rest)
            case .refused: uses[2].names.append(rest)
            default: if path.isEmpty { uses[1].names.append(rest) }
            }
        }
        for table in tables { add(table) }
        let lines = uses.filter { !$0.names.isEmpty }.map { "- \($0.title): \($0.names.joined(separator: ", "))\n" }
        return "`\(calls)`:\n\n" + lines.joined()
    }
}
