import Quotas
import Delivery
import Testing
import Wire

@testable import PushAPI

@Suite("Broadcast requests")
struct BroadcastRequestTests {
    private let fixture = Fixture()
    private static let message = #""push_message":{"transmission":"hi"}"#

    private func made(
        _ path: String = "push/all", _ audience: String = #""all""#, _ fields: String = ""
    ) throws -> NewTask {
        let action = try fixture.campaign(.post, path, body(audience, fields))
        guard case .create(let task) = action else { throw Fixture.Refused() }
        return task
    }

    private func body(_ audience: String, _ fields: String = "") -> String {
        let rest = fields.isEmpty ? "" : "," + fields
        return #"{"request_id":"news-000001","audience":\#(audience),\#(Self.message)\#(rest)}"#
    }

    @Test("a broadcast is stored in its app's bucket, beside its request, and reports the known fallback")
    func home() throws {
        let task = try made(fields: #""settings":{"ttl":60000,"speed":500},"group_name":"am-1""#)
        #expect(task.record.id.kind == .app && task.record.id.text.hasPrefix("RASA_"))
        #expect(
            task.record.id.home == fixture.app.key.home && Bucket(digest: task.requestKey.high) == task.record.id.home)
        #expect(task.record.state == .open && task.record.content.timeToLive == 60_000)
        #expect(task.record.broadcast?.speed == 500 && task.record.broadcast?.audience == TagExpression())
        #expect(task.group != nil && task.fallback == .noContent)
        let again = try made(fields: #""settings":{"ttl":60000,"speed":500},"group_name":"am-1""#)
        #expect(again.requestKey == task.requestKey && again.requestDigest == task.requestDigest)
        let other = try made("push/fast_custom_tag", #"{"fast_custom_tag":"t"}"#)
        #expect(other.requestKey != task.requestKey, "request ids are counted per endpoint")
    }

    private func made(fields: String) throws -> NewTask { try made("push/all", #""all""#, fields) }

    @Test("schedule_time creates a timed broadcast, within seven days")
    func schedule() throws {
        let later = Fixture.now + 3_600_000
        #expect(try made(fields: #""settings":{"schedule_time":\#(later)}"#).record.state == .scheduled)
        let tooLate = body(#""all""#, #""settings":{"schedule_time":\#(Fixture.now + 8 * 86_400_000)}"#)
        #expect(fixture.refused(.post, "push/all", tooLate).1.contains(#""code":22002"#))
    }

    @Test("conditions become an expression")
    func conditions() throws {
        let task = try made(
            "push/tag",
            #"{"tag":[{"key":"custom_tag","values":["a","b"],"opt_type":"and"},{"key":"phone_type","values":["IOS"],"opt_type":"or"}]}"#
        )
        let audience = try #require(task.record.broadcast?.audience)
        #expect(audience.tags.map(\.text) == ["a", "b", "android", "harmony", "web", "miniprogram", "other"])
        let tags = ["a", "b"].map { TagName(app: fixture.app.key, text: $0) }
        #expect(audience.isTrue(ofTags: tags) && !audience.isTrue(ofTags: [tags[0]]))
        let one = try made("push/fast_custom_tag", #"{"fast_custom_tag":"a"}"#)
        #expect(one.record.broadcast?.audience.isTrue(ofTags: [tags[0]]) == true)
        #expect(one.record.broadcast?.audience.isTrue(ofTags: []) == false)
    }

    static let bad: [(path: String, audience: String, fault: String)] = [
        ("push/all", "null", "audience cannot be null"), ("push/all", "[]", "audience type error"),
        ("push/all", #""some""#, "audience is invalid"), ("push/all", #"{"cid":["x"]}"#, "audience type error"),
        ("push/tag", #""all""#, "audience type error"), ("push/tag", "{}", "audience can not be empty"),
        ("push/tag", #"{"tag":[]}"#, "tag can not be empty"),
        ("push/tag", #"{"tags":[1]}"#, "audience.tags is invalid"),
        ("push/tag", #"{"tag":[{"key":"shoe","values":["1"],"opt_type":"or"}]}"#, "key is invalid"),
        ("push/tag", #"{"tag":[{"key":"custom_tag","values":["1"],"opt_type":"xor"}]}"#, "opt_type is invalid"),
        ("push/fast_custom_tag", #"{"tag":"x"}"#, "audience.tag is invalid"),
        ("push/fast_custom_tag", #"{"fast_custom_tag":""}"#, "fast_custom_tag can not be empty"),
        ("push/fast_custom_tag", #"{"fast_custom_tag":{}}"#, "fast_custom_tag type error"),
        ("push/fast_custom_tag", #"{"fast_custom_tag":"a b"}"#, "fast_custom_tag is invalid"),
        ("push/single/cid_by_tag", "{}", "audience can not be empty"),
        ("push/single/cid_by_tag", #"{"cid":["x"]}"#, "audience.cid is invalid"),
        ("push/single/cid_by_tag", #"{"cid_by_tag":[{"tag":["a"]}]}"#, "cid cannot be null"),
        ("push/single/cid_by_tag", #"{"cid_by_tag":[{"cid":"zz","tag":["a"]}]}"#, "target user is invalid"),
        (
            "push/single/cid_by_tag", #"{"cid_by_tag":[{"cid":"\#(Fixture.cid)","tag":[]}]}"#, "tag can not be empty"
        ),
        (
            "push/single/cid_by_tag", #"{"cid_by_tag":[{"cid":"\#(Fixture.cid)","tag":["a"],"op_type":3}]}"#,
            "op_type is invalid"
        ),
    ]

    @Test("a bad audience is named", arguments: bad)
    func badAudience(path: String, audience: String, fault: String) {
        let (status, text) = fixture.refused(.post, path, body(audience))
        #expect(status == 400 && text.contains(fault) && text.contains(#""code":20001"#), "\(text)")
    }

    @Test("a request id is required, a tag has its bounds, methods are POST")
    func bounds() {
        let without = #"{"audience":"all",\#(Self.message)}"#
        #expect(fixture.refused(.post, "push/all", without).1.contains("request_id cannot be null"))
        let long = String(repeating: "x", count: 64)
        let (status, text) = fixture.refused(
            .post, "push/fast_custom_tag", body(#"{"fast_custom_tag":"\#(long)"}"#))
        #expect(status == 403 && text.contains(#""code":30005"#))
        let many = (0..<64).map { #""t\#($0)""# }.joined(separator: ",")
        let crowded = #"{"tag":[{"key":"custom_tag","values":[\#(many)],"opt_type":"or"}]}"#
        #expect(fixture.refused(.post, "push/tag", body(crowded)).1.contains(#""code":30016"#))
        for path in ["all", "tag", "fast_custom_tag", "single/cid_by_tag", "list/cid_by_tag"] {
            #expect(fixture.refused(.get, "push/\(path)").0 == 405, "\(path)")
        }
    }

    @Test("conditions and their values are bounded, and repeated ones do not count")
    func conditionBounds() throws {
        func conditions(_ count: Int, _ values: String = #""a""#) -> String {
            let one = #"{"key":"custom_tag","values":[\#(values)],"opt_type":"or"}"#
            return #"{"tag":[\#(Array(repeating: one, count: count).joined(separator: ","))]}"#
        }
        let task = try made("push/tag", conditions(Limits.tagConditionCount))
        #expect(try made("push/tag", conditions(1)).record.broadcast?.audience == task.record.broadcast?.audience)
        for count in [Limits.tagConditionCount + 1, 15_000] {
            let (status, text) = fixture.refused(.post, "push/tag", body(conditions(count)))
            #expect(status == 400 && text.contains("tag size over limit, at most 100 conditions"), "\(text)")
            let counted = fixture.call(.post, "/v2/demoApp/user/count", conditions(count)).text
            #expect(counted.contains("tag size over limit, at most 100 conditions"), "\(counted)")
        }
        let values = Array(repeating: #""a""#, count: Limits.tagValueCount).joined(separator: ",")
        _ = try made("push/tag", conditions(1, values))
        let many = fixture.refused(.post, "push/tag", body(conditions(1, values + #","a""#))).1
        #expect(many.contains("values size over limit, at most 10000 in one request"), "\(many)")
        let cid = Fixture.cid.description
        let named = #"{"cid_by_tag":[{"cid":"\#(cid)","tag":[\#(values),"a"]}]}"#
        let byTag = fixture.refused(.post, "push/single/cid_by_tag", body(named)).1
        #expect(byTag.contains("tag size over limit, at most 10000 in one request"), "\(byTag)")
        let repeated = Array(repeating: #"{"cid":"\#(cid)","tag":["a"]}"#, count: 1_001).joined(separator: ",")
        let crowd = fixture.refused(.post, "push/single/cid_by_tag", body(#"{"cid_by_tag":[\#(repeated)]}"#)).1
        #expect(crowd.contains("cid_by_tag size over limit, at most 1000"), "\(crowd)")
    }

    @Test("a device under a condition: any of the tags, all of them, none of them")
    func conditionsOfDevices() throws {
        let cid = Fixture.cid.description, other = Fixture.otherCID.description
        let audience =
            #"{"cid_by_tag":[{"cid":"\#(cid)","tag":["a","b"]},{"cid":"\#(other)","tag":["a"],"op_type":"2"},{"cid":"\#(cid)","tag":["z"]}]}"#
        guard case .byTag(let push) = try fixture.campaign(.post, "push/single/cid_by_tag", body(audience)) else {
            Issue.record("not by tag")
            return
        }
        let tag = TagName(app: fixture.app.key, text: "a")
        #expect(push.candidates.count == 2, "a doubled cid counts once")
        #expect(push.candidates[0].expression.isTrue(ofTags: [tag]))
        #expect(
            !push.candidates[1].expression.isTrue(ofTags: [tag]) && push.candidates[1].expression.isTrue(ofTags: []))
        let task = TaskID(kind: .list, month: 11, day: 21, random: (1, 2)).text
        let list = #"{"taskid":"\#(task)","audience":\#(audience)}"#
        guard case .list(let call) = try fixture.campaign(.post, "push/list/cid_by_tag", list),
            case .conditions(let candidates) = call.audience
        else {
            Issue.record("no list under conditions")
            return
        }
        #expect(candidates.count == 2 && call.task.text == task)
    }

    @Test("each kind of broadcast has its quota's code", arguments: [(0, 1), (1, 0)])
    func quotas(perMinute: Int, perDay: Int) throws {
        let cases: [(String, String, minute: Int, day: Int)] = [
            ("push/all", #""all""#, 30_014, 30_007),
            ("push/tag", #"{"tag":[{"key":"custom_tag","values":["a"],"opt_type":"or"}]}"#, 30_014, 30_010),
            ("push/fast_custom_tag", #"{"fast_custom_tag":"a"}"#, 30_013, 30_006),
        ]
        for (path, audience, minute, day) in cases {
            var app = fixture.app
            (app.rates.broadcastsPerMinute, app.rates.broadcastsPerDay) = (perMinute, perDay)
            (app.rates.fastTagBroadcastsPerMinute, app.rates.fastTagBroadcastsPerDay) = (perMinute, perDay)
            fixture.api.registry = AppRegistry([app])
            let book = Book()
            fixture.api.rates = book
            _ = try made(path, audience)
            let (status, text) = fixture.refused(.post, path, body(audience))
            #expect(status == 403 && text.contains("\"code\":\(perMinute > 0 ? minute : day)"), "\(path): \(text)")
        }
    }

    private final class Book: RateLimiting {
        var book = RateLimiter()
        func take(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> RateLimiter.Verdict {
            book.take(kind, app: app, limits: limits, now: now)
        }
    }
}
