import Quotas
import Delivery
import Directory
import Testing
import Wire

@testable import PushAPI

/// An example call for each code of docs/use/Errors.md; a new code without an example does not compile.
@Suite("Documented codes")
struct DocumentedCodeTests {
    private let fixture = Fixture()
    private static let cid = Fixture.cid.description

    private final class Spent: RateLimiting {
        let verdict: RateLimiter.Verdict
        init(_ verdict: RateLimiter.Verdict) { self.verdict = verdict }
        func take(_: RateKind, app _: AppKey, limits _: RateLimits, now _: GatewayTime) -> RateLimiter.Verdict {
            verdict
        }
    }

    private func answer(_ code: GetuiCode) throws -> APIResponse? {
        let message = #"{"push_message":{"transmission":"x"}}"#
        func call(_ method: APIRequest.Method, _ path: String, _ body: String = "", token: String? = nil)
            -> APIResponse?
        {
            fixture.call(method, "/v2/demoApp/" + path, body, token: token).response
        }
        func spent(_ verdict: RateLimiter.Verdict, _ path: String, _ body: String) -> APIResponse? {
            var app = fixture.app
            app.rates.callsPerMinute = path == "user/count" ? 1 : 0
            fixture.api.registry = AppRegistry([app])
            fixture.api.rates = Spent(verdict)
            return call(.post, path, body)
        }
        func tagged(_ reply: (UserRequest) -> APIResponse) throws -> APIResponse {
            let body = #"{"cid":["\#(Self.cid)"]}"#
            guard case .users(let request) = fixture.call(.put, "/v2/demoApp/user/custom_tag/batch/t", body) else {
                throw Fixture.Refused()
            }
            return reply(request)
        }
        func broadcast(_ path: String, _ verdict: RateLimiter.Verdict) -> APIResponse? {
            let audiences = [
                "push/all": #""all""#, "push/fast_custom_tag": #"{"fast_custom_tag":"t"}"#,
                "push/tag": #"{"tag":[{"key":"custom_tag","values":["t"],"opt_type":"or"}]}"#,
            ]
            let fields = #""request_id":"news-000001","push_message":{"transmission":"x"}"#
            return spent(verdict, path, #"{"audience":\#(audiences[path] ?? ""),\#(fields)}"#)
        }
        switch code {
        case .ok: return call(.post, "log/upload")
        case .failure: return call(.post, "push/single/cid", "{")
        case .starting: return .starting
        case .notFound: return call(.post, "push/nobody")
        case .methodNotAllowed: return call(.get, "push/single/cid")
        case .badToken: return call(.post, "push/single/cid", message, token: "")
        case .authenticationRate:
            let sign = AuthenticationTests.sign
            let body = #"{"appkey":"demoKey","timestamp":"\#(Fixture.now)","sign":"\#(sign)"}"#
            return spent(.minuteExceeded, "auth", body)
        case .noDetail:
            let task = TaskID(kind: .list, month: 11, day: 21, random: (1, 2))
            guard case .detail(let query) = try fixture.campaign(.get, "task/detail/\(Self.cid)/\(task.text)") else {
                return nil
            }
            return CampaignAnswer.detail(nil, query)
        case .callRate: return spent(.minuteExceeded, "user/count", "{}")
        case .parameter: return call(.post, "push/single/cid", message)
        case .alreadyRan: return CampaignAnswer.cancelled(.refused(.open))
        case .badSchedule: return call(.get, "task/schedule/nonsense")
        case .tagFailed:
            return try tagged { request in
                var operation = DirectoryOperation(request.work, loopCount: 1)
                var steps = operation.start()
                while let step = steps.popLast() { steps += operation.receive(step.request, .unknown) }
                return UserAnswer.render(request, operation)
            }
        case .tagTooLong:
            let tag = String(repeating: "t", count: 33)
            return call(.put, "user/custom_tag/batch/\(tag)", #"{"cid":["\#(Self.cid)"]}"#)
        case .fastTagDayQuota: return broadcast("push/fast_custom_tag", .dayExceeded)
        case .broadcastDayQuota: return broadcast("push/all", .dayExceeded)
        case .tagBroadcastDayQuota: return broadcast("push/tag", .dayExceeded)
        case .fastTagRate: return broadcast("push/fast_custom_tag", .minuteExceeded)
        case .broadcastRate: return broadcast("push/all", .minuteExceeded)
        case .listDayQuota: return spent(.dayExceeded, "push/list/message", message)
        case .tooManyBroadcasts: return CampaignAnswer.created(.full, try fixture.newTask(), durability: .fsync)
        case .queueFull:
            let outcome = PublishOutcome(code: .queueFull, cid: Fixture.cid, task: .none)
            return PushAnswer.render(outcomes: [outcome], form: PushForm(kind: .single), durability: .fsync)
        case .tagCallsPerDay: return try tagged { UserAnswer.refused($0, .dayExceeded) }
        case .tagCallsPerMinute: return try tagged { UserAnswer.refused($0, .minuteExceeded) }
        case .listRate: return spent(.minuteExceeded, "push/list/message", message)
        case .tooManyTags:
            let tags = (0..<64).map { #""t\#($0)""# }.joined(separator: ",")
            return call(.post, "user/count", #"{"tag":[{"key":"custom_tag","values":[\#(tags)],"opt_type":"or"}]}"#)
        case .busy: return .busy
        case .appQuota: return .overQuota(QuotaRefusal(quota: .devices, retryAfterSeconds: 1))
        case .addressRate: return .tooFast(isGetui: true, retryAfterSeconds: 1)
        case .badProof: return ReceiptRequest.answer(.refused)
        case .clockSkew: return ReceiptRequest.answer(.clockSkew(serverTime: Fixture.now))
        }
    }

    @Test("each code is answered with its own status, in Getui's envelope", arguments: GetuiCode.allCases)
    func brought(code: GetuiCode) throws {
        let response = try #require(try answer(code))
        #expect(response.text.hasPrefix(#"{"code":\#(code.rawValue),"msg":""#), "\(response.text)")
        #expect(response.status == code.httpStatus)
        #expect(response.contentType.headerValue == "application/json;charset=utf-8")
    }
}
