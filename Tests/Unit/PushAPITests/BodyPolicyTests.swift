import Quotas
import Delivery
import Testing
import Wire

@testable import PushAPI

@Suite("Body policies from request heads")
struct BodyPolicyTests {
    private let fixture = Fixture()
    private let admin = AdminAPI(
        registry: AppRegistry([Fixture().app]),
        credentials: CredentialSet([
            Credential(name: "sender", token: "sender-token", may: [.handoff]),
            Credential(name: "support", token: "support-token", may: [.trace]),
        ]), random: RandomWords { 1 })

    private func judge(
        _ method: APIRequest.Method, _ target: String, _ byteCount: Int, token: String? = nil, bearer: String? = nil,
        isAdmin: Bool = false
    ) -> String {
        let pieces = [Array(target.utf8), Array((token ?? "").utf8), Array("Bearer \(bearer ?? "")".utf8)]
        let judgement = pieces[0].withUnsafeBytes { target in
            pieces[1].withUnsafeBytes { tokenBytes in
                pieces[2].withUnsafeBytes { bearerBytes in
                    let request = APIRequest(
                        method: method, target: target, token: token == nil ? nil : tokenBytes,
                        authorization: bearer == nil ? nil : bearerBytes)
                    return isAdmin
                        ? admin.judge(request, bodyByteCount: byteCount)
                        : fixture.api.judge(request, bodyByteCount: byteCount, now: Fixture.now)
                }
            }
        }
        switch judgement {
        case .take(let limit, let isProven): return "\(limit)\(isProven ? " proven" : "")"
        case .refuse(let response): return "\(response.status) \(response.text)"
        }
    }

    @Test("a push needs its app's token before any byte of its body is read, and may then have the API's limit")
    func push() {
        let path = "/v2/demoApp/push/single/cid"
        #expect(judge(.post, path, 9).hasPrefix(#"401 {"code":10001"#))
        #expect(judge(.post, path, 33_554_432).hasPrefix("401"))
        #expect(judge(.post, "/v2/otherApp/push/single/cid", 9, token: fixture.token).hasPrefix("401"))
        #expect(judge(.post, path, Limits.requestBodyByteCount, token: fixture.token) == "8388608 proven")
        let refused = judge(.post, path, Limits.requestBodyByteCount + 1, token: fixture.token)
        #expect(refused.hasPrefix(#"400 {"code":20001,"msg":"body size over limit"#), "\(refused)")
    }

    @Test("calls without a token accept only small bodies")
    func open() {
        for path in ["/v2/demoApp/auth", "/v2/demoApp/log/upload", "/v2/demoApp/receipt"] {
            #expect(judge(.post, path, 4_096) == "4096")
            #expect(judge(.post, path, 4_097, token: fixture.token).hasPrefix(#"400 {"code":20001"#))
        }
        #expect(judge(.get, "/healthz", 1) == "4096")
        #expect(judge(.post, "/healthz", 1).hasPrefix("405"))
        #expect(judge(.post, "/v2/nothing", 1).hasPrefix("404"))
    }

    @Test("the admin API accepts bodies from credentials with the permission to send them")
    func adminBodies() {
        let path = "/v1/handoff/results"
        #expect(judge(.post, path, 9, isAdmin: true).hasPrefix("401"))
        #expect(judge(.post, path, 9, bearer: "support-token", isAdmin: true).hasPrefix("403"))
        #expect(judge(.post, path, 1 << 20, bearer: "sender-token", isAdmin: true) == "1048576 proven")
        #expect(judge(.post, path, (1 << 20) + 1, bearer: "sender-token", isAdmin: true).hasPrefix("413"))
        #expect(judge(.get, "/metrics", 5_000, isAdmin: true).hasPrefix("413"))
    }

    @Test("a policy decision counts no call")
    func rates() {
        final class Counting: RateLimiting {
            var count = 0
            func take(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> RateLimiter.Verdict {
                count += 1
                return .granted
            }
        }
        let rates = Counting()
        fixture.api.rates = rates
        #expect(judge(.post, "/v2/demoApp/push/single/cid", 9, token: fixture.token).hasSuffix("proven"))
        #expect(rates.count == 0)
    }
}
