import Quotas
import Cryptography
import Delivery
import TestKit
import Testing
import Wire

@testable import PushAPI

@Suite("Push API authentication")
struct AuthenticationTests {
    private let fixture = Fixture()
    /// The reference's vector: demoKey, 1700000000000, demoSecret.
    static let sign = "d8e7a07d5f80cc821739f613fbc36fb1a1b28957ef40191d662caccc5ac0ce40"

    private func authenticate(
        _ body: String, app: String = "demoApp", now: GatewayTime = Fixture.now
    ) throws -> APIResponse {
        try #require(fixture.call(.post, "/v2/\(app)/auth", body, token: "stale", now: now).response)
    }

    @Test(
        "the reference's sign is accepted, with the timestamp as a string and as a number",
        arguments: ["1700000000000", "\"1700000000000\""])
    func sign(timestamp: String) throws {
        let response = try authenticate(#"{"appkey":"demoKey","timestamp":\#(timestamp),"sign":"\#(Self.sign)"}"#)
        #expect(response.status == 200)
        #expect(response.contentType.headerValue.description == "application/json;charset=utf-8")
        let parts = response.text.split(separator: "\"")
        #expect(response.text.hasPrefix(#"{"code":0,"msg":"success","data":{"token":""#))
        #expect(response.text.hasSuffix(#"","expire_time":"1700086400000"}}"#))
        let token = String(parts[11])
        guard case .userStatus = fixture.call(.get, "/v2/demoApp/user/status/\(Fixture.cid)", token: token) else {
            Issue.record("the new token does not work")
            return
        }
    }

    @Test("a sign is checked against the machine's clock, whatever the gateway's time")
    func machineClock() throws {
        let body = #"{"appkey":"demoKey","timestamp":1700000000000,"sign":"\#(Self.sign)"}"#
        let halfAnHour: Int64 = 1_800_000
        for offset in [halfAnHour, -halfAnHour] {
            fixture.api.clockOffset = offset
            #expect(try authenticate(body, now: 1_700_000_000_000 - offset).status == 200)
            #expect(try authenticate(body, now: 1_700_000_000_000).status == 400)
        }
        // A clock this far ahead may be the wrong one of the two.
        (fixture.api.clockOffset, fixture.api.isClockDoubted) = (7_200_000, true)
        #expect(try authenticate(body, now: 1_700_000_000_000).status == 200)
        #expect(try authenticate(body, now: 1_700_000_000_000 - 7_200_000).status == 200)
        #expect(try authenticate(body, now: 1_700_000_000_000 - halfAnHour).status == 400)
    }

    @Test("an old master secret still signs during its overlap")
    func overlap() throws {
        let fixture = Fixture(masterSecrets: ["newSecret", "demoSecret"])
        let body = #"{"appkey":"demoKey","timestamp":1700000000000,"sign":"\#(Self.sign)"}"#
        #expect(fixture.call(.post, "/v2/demoApp/auth", body).response?.status == 200)
        let replaced = Fixture(masterSecrets: ["newSecret"])
        #expect(replaced.call(.post, "/v2/demoApp/auth", body).response?.status == 400)
    }

    static let refusedCases: [(String, String)] = [
        ("", "appkey cannot be null"), ("null", "appkey cannot be null"), ("[]", "appkey cannot be null"),
        (#"{"appkey":null,"sign":null,"timestamp":0}"#, "appkey cannot be null"),
        (#"{"appkey":7,"timestamp":"1700000000000","sign":"x"}"#, "appkey type error"),
        (#"{"appkey":"demoKey","sign":"x"}"#, "timestamp cannot be null"),
        (#"{"appkey":"demoKey","timestamp":"1700000000000"}"#, "sign cannot be null"),
        (#"{"appkey":"demoKey","timestamp":"1700000000000","sign":1}"#, "sign type error"),
        (#"{"appkey":"other","timestamp":"1700000000000","sign":"\#(sign)"}"#, "appkey is invalid"),
        (#"{"appkey":"demoKey","timestamp":"now","sign":"\#(sign)"}"#, "timestamp is invalid"),
        (#"{"appkey":"demoKey","timestamp":"-9223372036854775808","sign":"\#(sign)"}"#, "timestamp is invalid"),
        (#"{"appkey":"demoKey","timestamp":[1],"sign":"\#(sign)"}"#, "timestamp type error"),
        (#"{"appkey":"demoKey","timestamp":"1700000000001","sign":"\#(sign)"}"#, "sign is invalid"),
        (#"{"appkey":"demoKey","timestamp":"1700000000000","sign":""}"#, "sign is invalid"),
        ("[1]", "body type error"),
    ]

    @Test(
        "each bad parameter is named under 20001, never 10001, after which PHP would authenticate again",
        arguments: refusedCases)
    func faults(body: String, message: String) throws {
        let response = try authenticate(body)
        #expect(response.status == 400)
        #expect(response.text == #"{"code":20001,"msg":"\#(message)"}"#)
    }

    @Test("an unknown app is a parameter error")
    func unknownApp() throws {
        let response = try authenticate(#"{"appkey":"demoKey","timestamp":1,"sign":"x"}"#, app: "nobody")
        #expect(response.text == #"{"code":20001,"msg":"appId is invalid"}"#)
    }

    @Test("a disabled app is reported as such; an unknown one is retryable until all apps are known")
    func unservedApps() throws {
        let fixture = Fixture()
        var app = fixture.app
        app.isEnabled = false
        fixture.api.registry = AppRegistry([app], isComplete: false)
        func text(_ name: String) -> String? {
            let body = #"{"appkey":"demoKey","timestamp":1,"sign":"x"}"#
            guard let response = fixture.call(.post, "/v2/\(name)/auth", body).response else { return nil }
            return response.text
        }
        #expect(text("demoApp") == #"{"code":20001,"msg":"appId is invalid, the app is disabled"}"#)
        #expect(text("nobody") == #"{"code":2,"msg":"the gateway is not ready, retry"}"#)
        // Its tokens are void while it is disabled, and valid again afterwards.
        guard case .respond(let refused) = fixture.push() else { throw Unexpected() }
        #expect(refused.text.contains("10001"))
        fixture.api.registry = AppRegistry([fixture.app])
        guard case .push = fixture.push() else { throw Unexpected() }
    }

    private struct Unexpected: Error {}

    /// Refuses uses above a number, and counts them.
    private final class Counting: RateLimiting {
        var left: Int
        init(left: Int) { self.left = left }
        func take(_: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> RateLimiter.Verdict {
            guard left > 0 else { return .minuteExceeded }
            left -= 1
            return .granted
        }
    }

    @Test("only authentications with the right sign use the app's rate")
    func strangersUseNothingUp() throws {
        let rates = Counting(left: 1)
        fixture.api.rates = rates
        func body(_ timestamp: String, _ sign: String) -> String {
            #"{"appkey":"demoKey","timestamp":"\#(timestamp)","sign":"\#(sign)"}"#
        }
        for (timestamp, sign) in [("1700000000000", "0000"), ("1700000000001", Self.sign), ("1", "x"), ("now", "x")] {
            #expect(try authenticate(body(timestamp, sign)).text.contains("20001"))
        }
        #expect(rates.left == 1)
        #expect(try authenticate(body("1700000000000", Self.sign)).status == 200)
        #expect(try authenticate(body("1700000000000", Self.sign)).text.contains("10003"))
    }

    @Test("voiding a token counts as an authentication, and voiding one that is void already counts nothing")
    func voiding() throws {
        let rates = Counting(left: 1)
        fixture.api.rates = rates
        let token = fixture.token
        let action = fixture.call(.delete, "/v2/demoApp/auth/\(token)")
        guard case .revokeToken(let id, let app, _) = action else { throw Unexpected() }
        #expect(app == fixture.app.key)
        #expect(rates.left == 0)
        #expect(fixture.call(.delete, "/v2/demoApp/auth/\(token)").response?.text.contains("10003") == true)
        fixture.api.tokens.revoke(id)
        #expect(fixture.call(.delete, "/v2/demoApp/auth/\(token)").response?.text.contains(#""code":0"#) == true)
    }

    @Test("the timestamp may be at most ten minutes off", arguments: [-1, 1] as [Int64])
    func tolerance(direction: Int64) throws {
        let body = #"{"appkey":"demoKey","timestamp":1700000000000,"sign":"\#(Self.sign)"}"#
        #expect(try authenticate(body, now: Fixture.now + direction * 600_000).status == 200)
        let late = try authenticate(body, now: Fixture.now + direction * 600_001)
        #expect(late.text.contains("timestamp is invalid"))
    }

    @Test("a body that is not JSON is code 1")
    func notJSON() throws {
        let response = try authenticate("appkey=demoKey")
        #expect(response.status == 200)
        #expect(response.text.hasPrefix(#"{"code":1,"msg":"body is not JSON"#))
    }

    @Test("a missing, foreign, expired or forged token is 401 and 10001")
    func badTokens() throws {
        let path = "/v2/demoApp/user/status/\(Fixture.cid)"
        let otherApp = fixture.api.tokens.issue(for: AppKey(appID: "otherApp"), expiresAt: .max, random: 1)
        let expired = fixture.api.tokens.issue(for: fixture.app.key, expiresAt: Fixture.now, random: 1)
        let forged = TokenAuthority(key: [1]).issue(for: fixture.app.key, expiresAt: .max, random: 1)
        for token in ["", "x", otherApp, expired, forged, String(repeating: "A", count: 64)] {
            let response = try #require(fixture.call(.get, path, token: token).response)
            #expect(response.status == 401)
            #expect(response.text.hasPrefix(#"{"code":10001,"msg":""#))
        }
        let none = fixture.call(.get, Array(path.utf8), [], token: nil)
        #expect(none.response?.status == 401)
    }

    @Test("in a cluster an unlisted app is looked up before a call is refused")
    func unlistedApp() throws {
        let token = fixture.token
        fixture.api.mayMissApps = true
        fixture.api.registry = AppRegistry()
        let push = fixture.push()
        guard case .unlistedApp(let refusal) = push else {
            Issue.record("not asked about: \(push.text)")
            return
        }
        #expect(refusal.status == 401)
        let authentication = #"{"appkey":"demoKey","timestamp":1,"sign":"x"}"#
        guard case .unlistedApp(let invalid) = fixture.call(.post, "/v2/demoApp/auth", authentication) else {
            Issue.record("an authentication is refused at once")
            return
        }
        #expect(invalid.text == #"{"code":20001,"msg":"appId is invalid"}"#)
        guard case .unlistedApp = fixture.call(.delete, "/v2/demoApp/auth/\(token)") else {
            Issue.record("a revocation is refused at once")
            return
        }
        // Its body is accepted only with a token that this cluster issued.
        func judge(_ token: String) -> BodyPolicy {
            Array("/v2/demoApp/push/single/cid".utf8).withUnsafeBytes { target in
                Array(token.utf8).withUnsafeBytes { token in
                    fixture.api.judge(
                        APIRequest(
                            method: .post, target: target, token: token,
                            body: UnsafeRawBufferPointer(start: nil, count: 0)),
                        bodyByteCount: 100_000, now: Fixture.now)
                }
            }
        }
        guard case .take(_, isProven: true) = judge(token) else {
            Issue.record("the body of a token of this cluster is refused")
            return
        }
        guard case .refuse(let refused) = judge(String(repeating: "A", count: token.utf8.count)) else {
            Issue.record("the body of a foreign token is taken")
            return
        }
        #expect(refused.status == 401)
    }

    @Test("a token is revoked by its own text, once, without a token header")
    func revocation() throws {
        let token = fixture.token
        guard
            case .revokeToken(let id, _, let answer) = fixture.call(
                .delete, Array("/v2/demoApp/auth/\(token)".utf8), Array("null".utf8), token: nil)
        else {
            Issue.record("not revoked")
            return
        }
        #expect(answer.text == #"{"code":0,"msg":""}"#)
        // The token is in the cache of authentic ones. The revocation must count anyway.
        guard case .push = fixture.push() else {
            Issue.record("the token should still work")
            return
        }
        fixture.api.tokens.revoke(id)
        #expect(fixture.push().response?.status == 401)
        #expect(fixture.call(.delete, "/v2/demoApp/auth/\(token)").text == #"{"code":0,"msg":""}"#)
        #expect(fixture.call(.delete, "/v2/demoApp/auth/nonsense").text == #"{"code":20001,"msg":"token is invalid"}"#)
        #expect(fixture.call(.delete, "/v2/otherApp/auth/\(token)").response?.status == 400)
    }

    @Test("a token waits for its signing key to be durable, and a starting gateway answers 503")
    func starting() {
        let body = #"{"appkey":"demoKey","timestamp":1700000000000,"sign":"\#(Self.sign)"}"#
        guard case .token = fixture.call(.post, "/v2/demoApp/auth", body) else {
            Issue.record("answered whatever the gateway's state is")
            return
        }
        let answer = APIResponse.starting
        #expect(answer.status == 503 && answer.retryAfterSeconds == 1 && answer.text.hasPrefix(#"{"code":2,"#))
    }
}

@Suite("Push API routes")
struct RouteTests {
    private let fixture = Fixture()

    @Test(
        "doubled and trailing slashes, queries and escapes lead to the same route",
        arguments: [
            "/v2/demoApp/user/status/C", "//v2/demoApp//user/status/C", "/v2/demoApp/user/status/C/",
            "/v2/demoApp/user/status/C?", "/v2/d%65moApp/user/%73tatus/C",
        ])
    func hygiene(target: String) {
        let path = target.split(separator: "C", omittingEmptySubsequences: false).joined(separator: "\(Fixture.cid)")
        guard case .userStatus(let query) = fixture.call(.get, path) else {
            Issue.record("\(path) leads elsewhere")
            return
        }
        #expect(query.devices.map(\.cid) == [Fixture.cid])
    }

    @Test(
        "an unknown path is 404 in Getui's format",
        arguments: [
            "", "/", "*", "/v2", "/v2/demoApp", "/v1/demoApp/auth", "/v2/demoApp/push", "/v2/demoApp/push/single/other",
            "/v2/demoApp/user/status", "/v2/demoApp/auth/a/b", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n", "http://host", "/%zz/%",
            "/metrics", "/v1/handoff/lease",
        ])
    func notFound(target: String) throws {
        let response = try #require(fixture.call(.post, target).response)
        #expect(response.status == 404)
        #expect(response.text == #"{"code":404,"msg":"not found."}"#)
    }

    static let wrongMethods: [(APIRequest.Method, String, String)] = [
        (.get, "/v2/demoApp/auth", "POST"), (.post, "/v2/demoApp/auth/x", "DELETE"),
        (.get, "/v2/demoApp/push/single/cid", "POST"), (.put, "/v2/demoApp/push/single/batch/cid", "POST"),
        (.post, "/v2/demoApp/user/status/x", "GET, HEAD"), (.delete, "/v2/check", "GET, HEAD"),
        (.post, "/healthz", "GET, HEAD"), (.other, "/readyz", "GET, HEAD"),
    ]

    @Test("a wrong method is 405 in Getui's format, and names the right one", arguments: wrongMethods)
    func wrongMethod(method: APIRequest.Method, target: String, allowed: String) throws {
        let response = try #require(fixture.call(method, target).response)
        #expect(response.status == 405)
        #expect(response.allow == allowed)
        #expect(response.text.hasPrefix(#"{"code":405,"msg":""#))
    }

    @Test("probes, the SDK's check and its health upload are answered without a token")
    func open() throws {
        guard case .healthz = fixture.call(.get, "/healthz", token: ""),
            case .readyz = fixture.call(.head, "/readyz", token: ""),
            case .check = fixture.call(.head, "/v2/check", token: "")
        else {
            Issue.record("no probe")
            return
        }
        let upload = fixture.call(.post, "/v2/demoApp/log/upload", "anything", token: "")
        #expect(upload.text == #"{"code":0,"msg":"success"}"#)
    }

    @Test("status accepts up to 1,000 cids, each once, and separates invalid ones")
    func status() throws {
        let target = "/v2/demoApp/user/status/\(Fixture.cid),nonsense,,\(Fixture.cid),\(Fixture.otherCID)"
        // PHP sends a body with a GET.
        guard case .userStatus(let query) = fixture.call(.get, target, "null") else {
            Issue.record("no status query")
            return
        }
        #expect(query.devices.map(\.cid) == [Fixture.cid, Fixture.otherCID])
        #expect(query.devices.first?.bucket == fixture.app.bucket(of: Fixture.cid))
        #expect(query.unknown == ["nonsense"])

        let many = Array(repeating: Fixture.cid.description, count: 1_001).joined(separator: ",")
        #expect(fixture.call(.get, "/v2/demoApp/user/status/\(many)").text.contains("cid size over limit"))
        #expect(fixture.call(.get, "/v2/demoApp/user/status/,").text.contains("cid can not be empty"))
    }

    @Test("status returns the reachability, and names unknown cids beside the data")
    func statusAnswer() {
        var query = StatusQuery()
        let ids = [Fixture.cid, Fixture.otherCID, DeviceID(high: 1, low: 2)]
        query.devices = ids.map { DeviceAddress(app: fixture.app.key, bucket: fixture.app.bucket(of: $0), cid: $0) }
        query.unknown = ["no\"pe"]
        var online = deviceStatus(app: fixture.app.key)
        online.isReachable = true
        let response = StatusAnswer.render(
            query,
            statuses: [
                ids[0]: online, ids[1]: deviceStatus(app: fixture.app.key), ids[2]: deviceStatus(app: AppKey(1)),
            ])
        #expect(
            response.text
                == #"{"code":0,"msg":"success","data":{"\#(ids[0])":{"last_login_time":"17","status":"online"},"#
                + #""\#(ids[1])":{"last_login_time":"17","status":"offline"}},"longwire":{"unknown":["no\"pe","\#(ids[2])"]}}"#
        )
    }

    @Test("random targets and bodies are answered and never trap")
    func randomRequests() {
        var generator = SeededGenerator(seed: 11)
        let pieces = [
            "/v2", "/demoApp", "/auth", "/push", "/single", "/cid", "/batch", "%", "%2", "%41", "?", ",", "\u{0}", "é",
        ]
        for _ in 0..<5_000 {
            let target = (0..<Int(generator.next() % 9)).map { _ in pieces[Int(generator.next() % UInt64(pieces.count))]
            }.joined()
            let body = (0..<Int(generator.next() % 40)).map { _ in UInt8(truncatingIfNeeded: generator.next()) }
            let methods: [APIRequest.Method] = [.get, .post, .delete]
            _ = fixture.call(methods[Int(generator.next() % 3)], Array(target.utf8), body, token: body)
        }
    }
}

func deviceStatus(app: AppKey) -> DeviceStatus {
    DeviceStatus(
        app: app, isConnected: false, isReachable: false, isSuspect: false, applicationState: .background,
        keepsRunning: false, generation: 3, heartbeatSeconds: 300, lastSeenAt: 19, lastLoginAt: 17, registeredAt: 5,
        queuedMessageCount: 2, queuedByteCount: 99, inFlightCount: 1, nextSequence: 8, badge: 4, pushModeOff: false,
        tokens: [
            .init(
                channel: .apns, kind: .alert, environment: .sandbox, topic: "t", token: "abcdef0123456789",
                isQuarantined: true)
        ], bounds: .init(messageCount: 10, byteCount: 20), names: .init(aliases: [], tags: []))
}
