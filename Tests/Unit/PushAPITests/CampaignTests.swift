import Quotas
import Delivery
import Testing
import Wire

@testable import PushAPI

extension Fixture {
    func campaign(
        _ method: APIRequest.Method, _ path: String, _ body: String = "", location: SourceLocation = #_sourceLocation
    ) throws -> CampaignAction {
        let action = call(method, "/v2/demoApp/" + path, body)
        guard case .campaign(let campaign) = action else {
            Issue.record("not taken: \(action.text)", sourceLocation: location)
            throw Refused()
        }
        return campaign
    }

    func refused(_ method: APIRequest.Method, _ path: String, _ body: String = "") -> (Int, String) {
        guard let response = call(method, "/v2/demoApp/" + path, body).response else { return (0, "taken") }
        return (response.status, response.text)
    }

    /// The action of `push/list/message` before its limits are asked.
    func parsed(_ body: String) -> PublicAction {
        parsed(
            .post, Array("/v2/demoApp/push/list/message".utf8), Array(body.utf8), token: Array(token.utf8),
            now: Self.now)
    }

    func newTask(_ fields: String = "") throws -> NewTask {
        let body = #"{"push_message":{"transmission":"hi"}\#(fields.isEmpty ? "" : "," + fields)}"#
        guard case .create(let task) = try campaign(.post, "push/list/message", body) else { throw Refused() }
        return task
    }
}

private let listTask = TaskID(kind: .list, month: 11, day: 21, random: (1, 2))
private let first = Fixture.cid.description

@Suite("List messages")
struct ListMessageTests {
    private let fixture = Fixture()

    @Test("the message is rendered once, stored in its own bucket, and valid for its TTL")
    func stored() throws {
        let task = try fixture.newTask(#""settings":{"ttl":60000},"group_name":"am-1""#)
        #expect(task.record.id.kind == .list && task.record.id.text.hasPrefix("RASL_1114_"))
        #expect(task.record.state == .open && task.record.validUntil == Fixture.now + 60_000)
        #expect(task.record.group == "am-1" && task.group != nil && task.requestKey == .none)
        #expect(Array(task.record.content.payload) == Array("hi".utf8))
        #expect(task.fallback == .noContent, "what is known of the fallback is said at once")
        let unlimited = try fixture.newTask(#""settings":{"ttl":-1}"#)
        #expect(unlimited.record.validUntil == Fixture.now + Limits.defaultTimeToLive)
        #expect(unlimited.record.content.timeToLive == -1)
    }

    @Test("a requested task is stored beside its request, so that one batch holds both")
    func requested() throws {
        let task = try fixture.newTask(#""request_id":"news-000001""#)
        #expect(Bucket(digest: task.requestKey.high) == task.record.id.home)
        let again = try fixture.newTask(#""request_id":"news-000001""#)
        #expect(again.requestKey == task.requestKey && again.requestDigest == task.requestDigest)
        let other = try fixture.newTask(#""request_id":"news-000001","group_name":"x""#)
        #expect(other.requestDigest != task.requestDigest)
    }

    @Test("PHP's audience of \"all\", empty arrays and an empty request id are accepted")
    func lenient() throws {
        _ = try fixture.newTask(
            #""audience":"all","settings":[],"push_channel":[],"request_id":"","group_name":null,"task_name":"t""#)
        for (name, fault) in [(#""a b""#, "group_name is invalid"), ("1.5", "group_name type error")] {
            let body = #"{"push_message":{"transmission":"x"},"group_name":\#(name)}"#
            #expect(fixture.refused(.post, "push/list/message", body).1.contains(fault))
        }
    }

    @Test(
        "schedule_time creates a timed task, within seven days; a past one runs at once or is refused")
    func schedule() throws {
        let later = Fixture.now + 3_600_000
        let task = try fixture.newTask(#""settings":{"schedule_time":"\#(later)"}"#)
        #expect(task.record.state == .scheduled && task.record.scheduleAt == later)
        #expect(task.record.validUntil == later + Limits.defaultTimeToLive)
        // Callers use the machine's clock. A gateway two hours ahead of it plans in gateway time.
        fixture.api.clockOffset = -7_200_000
        let planned = Fixture.now - 7_200_000 + 5_400_000
        // Until then the gateway's slewing removes a twentieth of that time.
        let record = try fixture.newTask(#""settings":{"schedule_time":\#(planned)}"#).record
        #expect(record.scheduleAt == Fixture.now + 5_400_000 - 5_400_000 / 20)
        // Long before then the two clocks agree.
        let far = Fixture.now + 3 * 86_400_000
        #expect(try fixture.newTask(#""settings":{"schedule_time":\#(far)}"#).record.scheduleAt == far)
        fixture.api.isClockDoubted = true
        #expect(try fixture.newTask(#""settings":{"schedule_time":\#(planned)}"#).record.state == .open)
        (fixture.api.clockOffset, fixture.api.isClockDoubted) = (0, false)
        let gone = Fixture.now - ScheduleRules.grace
        #expect(try fixture.newTask(#""settings":{"schedule_time":\#(gone)}"#).record.state == .open)
        for time in [5, Fixture.now / 1_000 + 3_600, gone - 1] {
            let body = #"{"push_message":{"transmission":"x"},"settings":{"schedule_time":\#(time)}}"#
            let (status, text) = fixture.refused(.post, "push/list/message", body)
            #expect(status == 400 && text.contains(#""code":22002"#) && text.contains("milliseconds"), "\(text)")
        }
        let body =
            #"{"push_message":{"transmission":"x"},"settings":{"schedule_time":\#(Fixture.now + 8 * 86_400_000)}}"#
        let (status, text) = fixture.refused(.post, "push/list/message", body)
        #expect(status == 400 && text.contains(#""code":22002"#))
        #expect(fixture.push(#""settings":{"schedule_time":\#(later)}"#).text.contains("schedule_time is invalid"))
        // The time may have become too old since the first call, whose answer a repeat gets.
        let old = #"{"push_message":{"transmission":"x"},"settings":{"schedule_time":\#(gone - 1)}}"#
        guard case .campaign(.create(let task)) = fixture.parsed(old) else { throw Fixture.Refused() }
        #expect(fixture.api.refusal(of: .create(task), now: Fixture.now)?.text.contains("22002") == true)
    }

    @Test("a repeated call to a timed list has the same answer before and after its time", arguments: [true, false])
    func parked(isDue: Bool) throws {
        guard
            case .list(let call) = try fixture.campaign(
                .post, "push/list/cid", #"{"taskid":"\#(listTask.text)","audience":{"cid":["\#(first)"]}}"#)
        else { throw Fixture.Refused() }
        var record = try fixture.newTask().record
        (record.id, record.state, record.scheduleAt) = (listTask, isDue ? .open : .scheduled, 5)
        let outcomes = [
            PublishOutcome(code: .accepted, cid: Fixture.cid, task: listTask, isRepeat: true),
            PublishOutcome(code: .unknownDevice, cid: Fixture.otherCID, task: listTask, isRepeat: true),
        ]
        let text = CampaignAnswer.list(outcomes, call, record: record, aliases: nil, durability: .fsync).text
        #expect(
            text.contains(#""data":{"\#(listTask.text)":{"\#(first)":"successed_offline"}}"#)
                && text.contains(#""scheduledFor":5,"targets":1,"unknown":["\#(Fixture.otherCID)"]"#), "\(text)")
    }

    @Test("a revoke needs the old task's id, is sent live and contains it", arguments: ["list", "single"])
    func revoke(kind: String) throws {
        let old = kind == "list" ? listTask : TaskID(kind: .single, month: 1, day: 2, random: (3, 4))
        let message = #"{"revoke":{"old_task_id":"\#(old.text)","force":true}}"#
        guard
            case .create(let task) = try fixture.campaign(
                .post, "push/list/message", #"{"push_message":\#(message),"settings":{"strategy":{"ios":2}}}"#)
        else { throw Fixture.Refused() }
        #expect(task.record.content.revokes == old && Array(task.record.content.payload) == old.bytes)
        #expect(task.record.content.strategy == .liveOnly)
        let seen = try fixture.accepted(fixture.push(message: message)).seen
        #expect(seen.command.revokes == old)
        #expect(seen.command.revokedDigest == messageDigest(of: old, for: Fixture.cid))
        for (bad, text) in [
            (#"{"revoke":{"force":true}}"#, "old_task_id cannot be null"),
            (#"{"revoke":{"old_task_id":""}}"#, "old_task_id can not be empty"),
            (#"{"revoke":{"old_task_id":7}}"#, "old_task_id type error"),
            (#"{"revoke":{"old_task_id":"GT_1"}}"#, "old_task_id is invalid"),
            (#"{"revoke":7}"#, "revoke type error"),
        ] { #expect(fixture.push(message: bad).text.contains(text), "\(bad)") }
    }

    @Test("settings that a call reads are validated, so that an error is reported")
    func checkedFields() {
        for (field, text) in [
            (#""speed":-1"#, "speed is invalid"), (#""speed":[1]"#, "speed type error"),
            (#""first_ack_wins":true"#, "first_ack_wins is invalid"), (#""strategy":{"ios":9}"#, "strategy is invalid"),
            (#""schedule_time":{"a":1}"#, "schedule_time type error"),
        ] { #expect(fixture.push(#""settings":{\#(field)}"#).text.contains(text), "\(field)") }
        for field in [
            #""speed":"100""#, #""filter_notify_off":"false""#, #""active_push":1"#, #""custom_callback":"a""#,
            #""strategy":{"ios":4,"hw":1}"#, #""first_ack_wins":false"#, #""active_push_platform":[1,3]"#,
        ] { #expect(fixture.push(#""settings":{\#(field)}"#).response == nil, "\(field)") }
    }

}

@Suite("List calls")
struct ListCallTests {
    private let fixture = Fixture()

    private func call(_ fields: String, to path: String = "cid") throws -> ListCall {
        let body = #"{"taskid":"\#(listTask.text)",\#(fields)}"#
        guard case .list(let call) = try fixture.campaign(.post, "push/list/\(path)", body) else {
            throw Fixture.Refused()
        }
        return call
    }

    @Test("each device is used once, with its bucket and msgId; invalid cids are separated")
    func devices() throws {
        let call = try call(
            #""audience":{"cid":["\#(first)","zz","\#(Fixture.otherCID)","\#(first)"]},"is_async":"true""#)
        guard case .devices(let targets) = call.audience else { throw Fixture.Refused() }
        #expect(targets.map(\.cid) == [Fixture.cid, Fixture.otherCID])
        #expect(targets[0].bucket == fixture.app.bucket(of: Fixture.cid))
        #expect(targets[0].digest == messageDigest(of: listTask, for: Fixture.cid))
        #expect(call.unknown == ["zz"] && call.isAsync && !call.needsAliasDetail)
        #expect(call.key == CallKey(high: 0, low: 0))
    }

    @Test("aliases stay names until the directory is asked")
    func aliases() throws {
        let call = try call(
            #""audience":{"alias":["a","张三","a"]},"need_alias_detail":1,"request_id":"0123456789""#, to: "alias")
        guard case .aliases(let names) = call.audience else { throw Fixture.Refused() }
        #expect(names.map(\.text) == ["a", "张三"] && call.needsAliasDetail && call.key != CallKey(high: 0, low: 0))
    }

    @Test(
        "each error is named",
        arguments: [
            (#"{"audience":{"cid":["a"]}}"#, "taskid cannot be null"),
            (#"{"taskid":"","audience":{"cid":["a"]}}"#, "taskid can not be empty"),
            (#"{"taskid":7,"audience":{"cid":["a"]}}"#, "taskid type error"),
            (#"{"taskid":"RASS_0101_000000000000000000000001","audience":{"cid":["a"]}}"#, "taskid is invalid"),
            (#"{"taskid":"T"}"#, "taskid is invalid"), (#"{"taskid":"T!"}"#, "audience cannot be null"),
            (#"{"taskid":"T!","audience":[]}"#, "audience can not be empty"),
            (#"{"taskid":"T!","audience":"all"}"#, "audience type error"),
            (#"{"taskid":"T!","audience":{"alias":["a"]}}"#, "audience.alias is invalid"),
            (#"{"taskid":"T!","audience":{"cid":"a"}}"#, "cid type error"),
            (#"{"taskid":"T!","audience":{"cid":[]}}"#, "cid can not be empty"),
            (#"{"taskid":"T!","audience":{"cid":[7]}}"#, "cid type error"),
            (#"{"taskid":"T!","audience":{"cid":["zz"]}}"#, "target user is invalid"),
            (#"{"taskid":"T!","audience":{"cid":["zz"]},"is_async":"perhaps"}"#, "is_async type error"),
            (#"{"taskid":"T!","audience":{"cid":["zz"]},"request_id":"short"}"#, "request_id is invalid"),
            ("null", "taskid cannot be null"), ("{", "body is not JSON"),
        ])
    func faults(body: String, text: String) {
        let body = body.replacing("T!", with: listTask.text)
        let (status, answer) = fixture.refused(.post, "push/list/cid", body)
        #expect(answer.contains(text), "\(answer)")
        #expect(status == (text.contains("JSON") ? 200 : 400))
    }

    @Test("at most a thousand devices are accepted")
    func bound() throws {
        func body(_ count: Int) -> String {
            let cids = (0..<count).map { #""\#(DeviceID(high: 1, low: UInt64($0)))""# }.joined(separator: ",")
            return #"{"taskid":"\#(listTask.text)","audience":{"cid":[\#(cids)]}}"#
        }
        guard case .list(let call) = try fixture.campaign(.post, "push/list/cid", body(1_000)),
            case .devices(let targets) = call.audience
        else { throw Fixture.Refused() }
        #expect(targets.count == 1_000)
        #expect(fixture.refused(.post, "push/list/cid", body(1_001)).1.contains("cid size over limit"))
    }

    @Test("a push to an alias is one task of several devices; a bad alias is named")
    func singleAlias() throws {
        func body(_ alias: String) -> String {
            #"{"request_id":"0123456789","audience":{"alias":\#(alias)},"push_message":{"transmission":"x"}}"#
        }
        guard case .aliases(let pushes, let form) = try fixture.campaign(.post, "push/single/alias", body(#"["al"]"#))
        else { throw Fixture.Refused() }
        #expect(pushes.count == 1 && pushes[0].alias.text == "al" && form.kind == .single)
        #expect(pushes[0].task.kind == .list && pushes[0].key != CallKey(high: 0, low: 0))
        for (alias, text) in [
            (#"["a","b"]"#, "alias size over limit"), (#"[""]"#, "alias can not be empty"),
            ("[true]", "alias type error"),
            ("[]", "alias can not be empty"), (#""a""#, "alias type error"),
            (#"["\#(String(repeating: "x", count: 40))"]"#, "alias size over limit"),
            // With a zero character it would name an alias of the type "vip".
            (#"["a\u0000vip"]"#, "alias is invalid"),
        ] { #expect(fixture.refused(.post, "push/single/alias", body(alias)).1.contains(text), "\(alias)") }
    }

    @Test("the refused devices of an alias are named")
    func refusedOfAnAlias() {
        let other = DeviceID(high: 1, low: 2)
        let outcomes = [
            PublishOutcome(code: .accepted, cid: Fixture.cid, task: listTask),
            PublishOutcome(code: .busy, cid: other, task: listTask),
        ]
        let answer = CampaignAnswer.aliases(
            [(itemIndex: 0, result: .reached(listTask, outcomes))], form: PushForm(kind: .single), durability: .fsync)
        let text = String(decoding: answer.body, as: UTF8.self)
        #expect(answer.status == 200 && text.contains(#""cid":"\#(other)","code":30019"#), "\(text)")
    }

    @Test("each item of an alias batch is independent, 200 at most")
    func aliasBatch() throws {
        func item(_ number: Int, _ alias: String) -> String {
            #"{"request_id":"request-\#(number + 10)","audience":{"alias":\#(alias)},"push_message":{"transmission":"x"}}"#
        }
        let body = #"{"is_async":true,"msg_list":[\#(item(0, #"["a"]"#)),\#(item(1, "[]")),7]}"#
        guard case .aliases(let pushes, let form) = try fixture.campaign(.post, "push/single/batch/alias", body)
        else { throw Fixture.Refused() }
        #expect(pushes.map(\.itemIndex) == [0] && form.kind == .batch(isAsync: true))
        #expect(form.refused.map(\.itemIndex) == [1, 2])
        let many = (0...200).map { item($0, #"["a"]"#) }.joined(separator: ",")
        #expect(
            fixture.refused(.post, "push/single/batch/alias", #"{"msg_list":[\#(many)]}"#).1
                .contains("msg_list size over limit"))
    }

    @Test("content sent again under another task's id uses that id for the vendor")
    func renamed() throws {
        let task = try fixture.newTask(#""push_channel":{"ios":{"aps":{"alert":"x"}}}"#)
        let content = task.record.content.renamed(from: task.record.id, to: listTask)
        let text = String(decoding: content.arena, as: UTF8.self)
        #expect(text.contains(listTask.text + ":") && !text.contains(task.record.id.text))
    }
}

@Suite("Tasks and reports")
struct TaskRouteTests {
    private let fixture = Fixture()

    @Test("stop, schedule and detail read the ids of their paths")
    func paths() throws {
        guard case .stop(let stopped, let app) = try fixture.campaign(.delete, "task/\(listTask.text)", "null"),
            case .schedule(let asked, _) = try fixture.campaign(.get, "task/schedule/\(listTask.text)"),
            case .cancel(let cancelled, _) = try fixture.campaign(.delete, "task/schedule/\(listTask.text)/"),
            case .detail(let query) = try fixture.campaign(.get, "task/detail/\(first)/\(listTask.text)")
        else { throw Fixture.Refused() }
        #expect(stopped == listTask && app == fixture.app.key && asked == listTask && cancelled == listTask)
        #expect(query.digest == messageDigest(of: listTask, for: Fixture.cid))
    }

    @Test(
        "bad ids and methods have their codes",
        arguments: [
            (APIRequest.Method.delete, "task/x", 400, 20001), (.get, "task/\(listTask.text)", 405, 405),
            (.get, "task/schedule/x", 400, 22002), (.post, "task/schedule/\(listTask.text)", 405, 405),
            (.delete, "task/schedule/x", 400, 22002), (.get, "task/detail/zz/\(listTask.text)", 400, 20001),
            (.get, "task/detail/\(first)/x", 400, 20001), (.get, "push/list/cid", 405, 405),
            (.post, "push/list/other", 404, 404), (.post, "report/online_user", 405, 405),
            (.get, "report/push/other", 404, 404), (.get, "report/push/task_group/a%20b", 400, 20001),
            (.get, "report/push/task/,", 400, 20001),
            (.get, "report/push/date/2023-11-15", 400, 20001), (.get, "report/push/date/2023-11-31", 400, 20001),
            (.get, "report/user/date/2023-8-1", 400, 20001), (.get, "report/user/date/2023-11-14", 400, 20001),
        ])
    func faults(method: APIRequest.Method, path: String, status: Int, code: Int) {
        let (found, text) = fixture.refused(method, path)
        #expect(found == status && text.contains(#""code":\#(code)"#), "\(path): \(text)")
    }

    @Test("without a token every call is refused", arguments: ["task/x", "report/push/count", "push/list/cid"])
    func authentication(path: String) {
        let method: APIRequest.Method = path.hasPrefix("report") ? .get : path.hasPrefix("task") ? .delete : .post
        let response = fixture.call(method, "/v2/demoApp/\(path)", "", token: "x").response
        #expect(response?.status == 401 && response?.text.contains("10001") == true)
    }

    @Test("reports accept up to 200 tasks, and one of the 90 days before today")
    func reports() throws {
        let names = (0..<200).map { TaskID(kind: .list, month: 1, day: 1, random: (0, UInt64($0))).text }
        guard
            case .taskReport(let query) = try fixture.campaign(
                .get, "report/push/task/\(names.joined(separator: ","))?actionIdList=90001,90002"),
            case .taskReport(let detail) = try fixture.campaign(.get, "/report/push/task/\(names[0]),zz/detail"),
            case .dayReport(let day) = try fixture.campaign(.get, "report/push/date/2023-11-13"),
            case .dayReport(let users) = try fixture.campaign(.get, "report/user/date/2023-08-16"),
            case .groupReport(let group) = try fixture.campaign(
                .get, "report/push/task_group/am-1?startDate=&endDate=2023-11-14")
        else { throw Fixture.Refused() }
        #expect(query.tasks.count == 200 && query.actions == [90_001, 90_002] && !query.isDetailed)
        #expect(detail.isDetailed && detail.unknown == ["zz"] && detail.tasks.count == 1)
        #expect(day.isKept && users.isKept)
        #expect(day.day == 19_674 && !day.isAboutUsers && users.isAboutUsers && group.group == "am-1")
        let tooMany = (names + [listTask.text]).joined(separator: ",")
        #expect(fixture.refused(.get, "report/push/task/\(tooMany)").1.contains("taskid size over limit"))
    }

    @Test("a group's report covers the tasks created on the given days; a bad day is refused")
    func groupDays() throws {
        func query(_ days: String) throws -> GroupReportQuery {
            guard case .groupReport(let query) = try fixture.campaign(.get, "report/push/task_group/am?\(days)") else {
                throw Fixture.Refused()
            }
            return query
        }
        // The fixture's day is 2023-11-14.
        let made = [(8, 20), (12, 31), (11, 13), (11, 14), (11, 15)].map { month, day in
            TaskID(kind: .list, month: month, day: day, random: (1, 2))
        }
        for (days, expected) in [
            ("", [true, true, true, true, true]), ("startDate=2023-11-14", [false, false, false, true, true]),
            ("endDate=2023-11-13", [true, true, true, false, false]),
            ("startDate=2022-12-31&endDate=2023-08-20", [true, true, false, false, false]),
            ("startDate=2023-11-13&endDate=2023-11-13", [false, false, true, false, false]),
        ] {
            let query = try query(days)
            #expect(made.map(query.asks) == expected, "\(days)")
        }
        for bad in [
            "startDate=x", "endDate=2023-02-29", "startDate=20231101", "startDate=2023-11-02&endDate=2023-11-01",
            "day=1",
        ] {
            let (status, text) = fixture.refused(.get, "report/push/task_group/am?\(bad)")
            #expect(status == 400 && text.contains(#""code":20001"#), "\(bad): \(text)")
        }
        #expect(try query("needGetuiByBrand=true").notes.ignored == ["needGetuiByBrand"])
    }

    @Test("an invalid action in a list is named and ignored; if all are invalid, none is counted")
    func unknownActions() throws {
        for (list, expected) in [
            ("90001,x", #""actionCntMap":{"90001":3}"#), ("x,-1", #""actionCntMap":{}"#),
            ("", #""actionCntMap":{"90001":3,"90002":1}"#),
        ] {
            guard
                case .taskReport(let query) = try fixture.campaign(
                    .get, "report/push/task/\(listTask.text)?actionIdList=\(list)")
            else { throw Fixture.Refused() }
            var totals = TaskTotals()
            totals.accepted = 1
            totals.actions = [90_001: 3, 90_002: 1]
            let text = ReportAnswer.tasks([(listTask, totals)], query).text
            #expect(text.contains(expected), "\(list)")
            let unknown = list.split(separator: ",").filter { UInt32($0) == nil }
            #expect(text.contains("unknownActions") == !unknown.isEmpty)
            for name in unknown { #expect(text.contains(#""\#(name)""#)) }
        }
    }

    @Test("a task that accepted nothing has a report anyway; an unknown one is named")
    func nothingAccepted() throws {
        guard case .taskReport(let query) = try fixture.campaign(.get, "report/push/task/\(listTask.text)") else {
            throw Fixture.Refused()
        }
        let empty = ReportAnswer.tasks([(listTask, TaskTotals())], query).text
        #expect(empty.contains(#""data":{"\#(listTask.text)":{"#) && !empty.contains("unknown"))
        #expect(ReportAnswer.tasks([(listTask, nil)], query).text.contains(#""unknown":["\#(listTask.text)"]"#))
    }

    @Test(
        "an older day is answered without numbers, and named",
        arguments: ["push/date/2020-11-30", "user/date/2020-11-30", "user/date/2023-08-15"])
    func forgottenDays(path: String) throws {
        guard case .dayReport(let query) = try fixture.campaign(.get, "report/\(path)") else { throw Fixture.Refused() }
        #expect(!query.isKept)
        #expect(
            ReportAnswer.day(DayTotals(), online: 1, query).text
                == #"{"code":0,"msg":"success","data":{},"longwire":{"unknown":["\#(query.date)"]}}"#)
    }

    @Test("an app's exhausted quota is refused with its code")
    func rates() {
        final class Keeper: RateLimiting {
            var verdict = RateLimiter.Verdict.granted
            var kinds: [RateKind] = []
            func take(
                _ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime
            ) -> RateLimiter.Verdict {
                kinds.append(kind)
                return verdict
            }
        }
        let keeper = Keeper()
        fixture.api.rates = keeper
        let body = #"{"push_message":{"transmission":"x"}}"#
        _ = fixture.parsed(body)
        #expect(keeper.kinds == [], "a repeat is not counted, so the caller asks for the limit")
        keeper.verdict = .dayExceeded
        #expect(fixture.refused(.post, "push/list/message", body).1.contains(#""code":30008"#))
        keeper.verdict = .minuteExceeded
        let (status, text) = fixture.refused(.post, "push/list/message", body)
        #expect(status == 403 && text.contains(#""code":30015"#))
        let alias = #"{"taskid":"\#(listTask.text)","audience":{"alias":["a"]}}"#
        #expect(fixture.refused(.post, "push/list/alias", alias).1.contains(#""code":30015"#))
        let auth = #"{"appkey":"demoKey","timestamp":"\#(Fixture.now)","sign":"\#(AuthenticationTests.sign)"}"#
        let answer = fixture.call(.post, "/v2/demoApp/auth", auth).response
        #expect(answer?.status == 401 && answer?.text.contains(#""code":10003"#) == true)
        var app = fixture.app
        app.rates.callsPerMinute = 1
        fixture.api.registry = AppRegistry([app])
        let (calls, callText) = fixture.refused(.get, "report/online_user")
        #expect(calls == 401 && callText.contains(#""code":10005"#))
        #expect(keeper.kinds == [.list, .list, .list, .authentication, .call])
    }

    @Test("times are written as Getui writes them")
    func clock() {
        #expect(dateTime(1_700_000_000_000) == "2023-11-14 22:13:20")
        #expect(dateTime(951_782_400_000) == "2000-02-29 00:00:00")
        #expect(dateTime(1_704_067_199_000) == "2023-12-31 23:59:59")
    }
}
