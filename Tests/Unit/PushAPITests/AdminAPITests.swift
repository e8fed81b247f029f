import Delivery
import TestKit
import Testing
import Webhooks
import Wire

@testable import PushAPI

@Suite("Admin API")
struct AdminAPITests {
    private let app = Fixture().app
    private let api: AdminAPI

    init() {
        let other = App(appID: "otherApp", appKey: "k", appSecrets: ["a"], masterSecrets: ["b"])
        api = AdminAPI(
            registry: AppRegistry([app, other]),
            credentials: CredentialSet([
                Credential(name: "sender", token: "sender-token", apps: [app.key], may: [.handoff]),
                Credential(name: "support", token: "support-token", apps: [app.key], may: [.trace]),
                Credential(name: "root", token: "root-token", may: [.admin]),
            ]), random: RandomWords { 0x1234_5678 })
    }

    private func call(
        _ method: APIRequest.Method, _ target: String, _ body: String = "", bearer: String? = "root-token",
        isLoopback: Bool = false, api: AdminAPI? = nil
    ) -> AdminAction {
        let pieces = [Array(target.utf8), Array(body.utf8), Array((bearer.map { "Bearer \($0)" } ?? "").utf8)]
        return pieces[0].withUnsafeBytes { target in
            pieces[1].withUnsafeBytes { body in
                pieces[2].withUnsafeBytes { authorization in
                    (api ?? self.api).handle(
                        APIRequest(
                            method: method, target: target, authorization: bearer == nil ? nil : authorization,
                            body: body, peerIsLoopback: isLoopback), now: Fixture.now)
                }
            }
        }
    }

    private func refusal(_ action: AdminAction) -> APIResponse? {
        if case .respond(let response) = action, response.status >= 400 { return response }
        return nil
    }

    private func expect(_ action: AdminAction, _ status: Int, _ code: String, _ part: String = "") {
        let response = refusal(action)
        #expect(response?.status == status)
        #expect(
            response?.text.hasPrefix(#"{"error":{"code":"\#(code)","message":""#) == true, "\(response?.text ?? "")")
        #expect(part.isEmpty || response?.text.contains(part) == true, "\(response?.text ?? "")")
    }

    @Test("a lease has its numbers, its app scope and a lease id")
    func lease() {
        let body = #"{"channel":"apns","max":500,"leaseSeconds":5,"waitSeconds":30}"#
        guard case .lease(let lease) = call(.post, "/v1/handoff/lease", body, bearer: "sender-token") else {
            Issue.record("no lease")
            return
        }
        #expect(lease.holder == "sender" && lease.apps == [app.key])
        #expect(lease.limit == 500 && lease.leaseMilliseconds == 5_000 && lease.waitMilliseconds == 30_000)
        #expect(lease.leaseID != (0, 0))
        // The request of a sender from before channels existed.
        guard case .lease(let plain) = call(.post, "/v1/handoff/lease", "{}") else {
            Issue.record("no lease")
            return
        }
        #expect(plain.channel == .apns && lease.channel == .apns)
        #expect(plain.apps == nil && plain.limit == 100)
        #expect(plain.leaseMilliseconds == 60_000 && plain.waitMilliseconds == 0)
    }

    static let refusedLeases: [(String, String)] = [
        ("[]", "the body is an object"), ("null", "the body is an object"),
        (#"{"channel":"post"}"#, "channel is one of: apns"), (#"{"channel":""}"#, "channel is one of: apns"),
        (#"{"channel":1}"#, "channel is a string"),
        (#"{"channel":"apns","max":0}"#, "max is an integer from 1 to 500"),
        (#"{"channel":"apns","max":501}"#, "max is an integer"),
        (#"{"channel":"apns","max":"5"}"#, "max is an integer"),
        (#"{"channel":"apns","max":1.5}"#, "max is an integer"),
        (#"{"channel":"apns","leaseSeconds":4}"#, "leaseSeconds is an integer from 5 to 300"),
        (#"{"channel":"apns","leaseSeconds":301}"#, "leaseSeconds"),
        (#"{"channel":"apns","waitSeconds":31}"#, "waitSeconds is an integer from 0 to 30"),
        (#"{"channel":"apns","waitSeconds":-1}"#, "waitSeconds"),
        (#"{"channel":"apns","leaseSecond":60}"#, "leaseSecond is unknown here"),
    ]

    @Test("a lease's errors are specific", arguments: refusedLeases)
    func leaseFaults(body: String, part: String) {
        expect(call(.post, "/v1/handoff/lease", body), 400, "invalidParameter", part)
    }

    private static let jobID = "00f00000000000000000000000000001"
    private static let leaseID = "0000000000000001000000000000000f"

    @Test("results are accepted as an array or under their name, with all fields")
    func results() {
        let long = String(repeating: "é", count: 40)
        let item =
            #"{"jobId":"\#(Self.jobID)","leaseId":"\#(Self.leaseID)","outcome":"retry","reason":"\#(long)","#
            + #""vendorId":"v","timestamp":17,"retryAfterSeconds":9}"#
        for body in ["[\(item)]", #"{"results":[\#(item)]}"#] {
            guard case .results(let request) = call(.post, "/v1/handoff/results", body),
                let result = request.results.first
            else {
                Issue.record("no results")
                return
            }
            #expect(result.job == MessageID(Self.jobID))
            #expect(result.leaseID == (1, 15))
            #expect(result.outcome == .retry)
            #expect(result.reason == String(repeating: "é", count: 32))
            #expect(result.vendorID == "v" && result.timestamp == 17 && result.retryAfterMilliseconds == 9_000)
        }
        guard case .results(let none) = call(.post, "/v1/handoff/results", "[]") else {
            Issue.record("no results")
            return
        }
        #expect(none.results.isEmpty)
    }

    static let refusedResults: [(String, String)] = [
        ("{}", "results is an array"), ("[1]", "results[0] is an object"),
        ("[{}]", "results[0].jobId is 32 lower-case hex digits"),
        (#"[{"jobId":"ff000000000000000000000000000001"}]"#, "results[0].jobId"),
        (#"[{"jobId":"\#(jobID)"}]"#, "results[0].leaseId"),
        (#"[{"jobId":"\#(jobID)","leaseId":"\#(leaseID)","outcome":"done"}]"#, "results[0].outcome is one of"),
        (
            #"[{"jobId":"\#(jobID)","leaseId":"\#(leaseID)","outcome":"accepted","retryAfterSeconds":86401}]"#,
            "retryAfter"
        ),
        (#"[{"jobId":"\#(jobID)","leaseId":"\#(leaseID)","outcome":"accepted","x":1}]"#, "results[0].x is unknown"),
        (
            "[\(Array(repeating: #"{"jobId":"\#(jobID)","leaseId":"\#(leaseID)","outcome":"accepted"}"#, count: 501).joined(separator: ","))]",
            "at most 500"
        ),
    ]

    @Test("a result's errors name its place", arguments: refusedResults)
    func resultFaults(body: String, part: String) {
        expect(call(.post, "/v1/handoff/results", body), 400, "invalidParameter", part)
    }

    @Test("an extension names jobs and seconds")
    func extend() {
        let body = #"{"leaseSeconds":60,"jobs":[{"jobId":"\#(Self.jobID)","leaseId":"\#(Self.leaseID)"}]}"#
        guard case .extend(let request) = call(.post, "/v1/handoff/extend", body) else {
            Issue.record("no extension")
            return
        }
        #expect(request.leaseMilliseconds == 60_000 && request.items.map(\.leaseID.1) == [15])
        expect(call(.post, "/v1/handoff/extend", #"{"jobs":[]}"#), 400, "invalidParameter", "leaseSeconds is missing")
        expect(call(.post, "/v1/handoff/extend", #"{"leaseSeconds":60}"#), 400, "invalidParameter", "jobs is an array")
    }

    @Test("a missing credential, a wrong permission and a wrong app are distinguished")
    func authorization() {
        let lease = "/v1/handoff/lease"
        for bearer in [nil, "", "wrong", "root-toke", "root-token2"] {
            let action = call(.post, lease, #"{"channel":"apns"}"#, bearer: bearer, isLoopback: true)
            expect(action, 401, "unauthorized")
            #expect(refusal(action)?.asksForBearer == true)
        }
        expect(call(.post, lease, "{}", bearer: "support-token"), 403, "forbidden", "lacks the permission handoff")
        expect(call(.get, "/v1/messages/\(Self.jobID)", bearer: "sender-token"), 403, "forbidden")
        expect(call(.get, "/v1/apps/otherApp/devices/\(Fixture.cid)", bearer: "support-token"), 404, "notFound")
        expect(call(.get, "/metrics", bearer: nil), 401, "unauthorized")
    }

    @Test("the list of apps is refused while this gateway does not know all apps")
    func appsNotKnown() {
        #expect(refusal(call(.get, "/v1/apps")) == nil)
        api.registry = AppRegistry([app], isComplete: false)
        expect(call(.get, "/v1/apps"), 503, "unavailable", "retry")
    }

    /// The access rule of an endpoint, and an example call.
    private struct Rule {
        var method = APIRequest.Method.post
        var target: String
        var body = ""
        /// Any of these permissions suffices, besides `admin`; `nil`: no credential is required.
        var permissions: Set<Credential.Permission>?
        /// Returns the scope of the action; nothing for an endpoint that is not about apps.
        var scope: (AdminAction) -> Set<AppKey>?? = { _ in .none }
        /// Whether a call about one app is refused as if the app did not exist.
        var namesApp = false
        /// Whether the call concerns every app, so that a credential for some apps is refused.
        var needsAllApps = false
    }

    /// One entry per endpoint; a new endpoint does not compile without an entry.
    private func rule(_ endpoint: AdminEndpoint) -> Rule {
        let item = #"{"jobId":"\#(Self.jobID)","leaseId":"\#(Self.leaseID)""#
        return switch endpoint {
        case .lease:
            Rule(target: "/v1/handoff/lease", body: #"{"channel":"apns"}"#, permissions: [.handoff]) {
                if case .lease(let request) = $0 { .some(request.apps) } else { .none }
            }
        case .results:
            Rule(
                target: "/v1/handoff/results", body: #"[\#(item),"outcome":"accepted"}]"#, permissions: [.handoff]
            ) {
                if case .results(let request) = $0 { .some(request.apps) } else { .none }
            }
        case .receipts:
            Rule(
                target: "/v1/handoff/receipts", body: #"[{"msgId":"\#(Self.jobID)","kind":"clicked"}]"#,
                permissions: [.handoff]
            ) {
                if case .receipts(_, let apps) = $0 { .some(apps) } else { .none }
            }
        case .extend:
            Rule(
                target: "/v1/handoff/extend", body: #"{"leaseSeconds":60,"jobs":[\#(item)}]}"#,
                permissions: [.handoff]
            ) {
                if case .extend(let request) = $0 { .some(request.apps) } else { .none }
            }
        case .backup: Rule(target: "/v1/backup", body: #"{"name":"b-1"}"#, permissions: [], needsAllApps: true)
        case .backupState: Rule(method: .get, target: "/v1/backup", permissions: [], needsAllApps: true)
        case .drain: Rule(target: "/v1/drain", body: #"{"pace":200}"#, permissions: [], needsAllApps: true)
        case .drainState: Rule(method: .get, target: "/v1/drain", permissions: [])
        case .cluster: Rule(method: .get, target: "/v1/cluster", permissions: [])
        case .clusterDrain: Rule(target: "/v1/cluster/drain", body: "{}", permissions: [], needsAllApps: true)
        case .clusterMove:
            Rule(target: "/v1/cluster/move", body: #"{"part":3,"to":2}"#, permissions: [], needsAllApps: true)
        case .message:
            Rule(method: .get, target: "/v1/messages/\(Self.jobID)", permissions: [.trace]) {
                if case .message(_, let scope) = $0 { .some(scope) } else { .none }
            }
        case .device:
            Rule(
                method: .get, target: "/v1/apps/demoApp/devices/\(Fixture.cid)", permissions: [.trace], namesApp: true)
        case .appCreate: Rule(target: "/v1/apps", body: #"{"appId":"a"}"#, permissions: [], needsAllApps: true)
        case .app:
            Rule(
                method: .get, target: "/v1/apps/demoApp", permissions: Set(Credential.Permission.allCases),
                namesApp: true)
        case .appChange:
            Rule(method: .patch, target: "/v1/apps/demoApp", body: "{}", permissions: [], needsAllApps: true)
        case .appDelete: Rule(method: .delete, target: "/v1/apps/demoApp", permissions: [], needsAllApps: true)
        case .appRotate: Rule(target: "/v1/apps/demoApp/rotate", body: "{}", permissions: [], needsAllApps: true)
        case .appEnable: Rule(target: "/v1/apps/demoApp/enable", permissions: [], needsAllApps: true)
        case .appDisable: Rule(target: "/v1/apps/demoApp/disable", permissions: [], needsAllApps: true)
        case .apps: Rule(method: .get, target: "/v1/apps", permissions: Set(Credential.Permission.allCases))
        case .push: Rule(target: "/v1/apps/demoApp/push", body: "{}", permissions: [], namesApp: true)
        case .upstream:
            Rule(method: .get, target: "/v1/apps/demoApp/upstream", permissions: [.upstream], namesApp: true)
        case .upstreamAck:
            Rule(
                target: "/v1/apps/demoApp/upstream/ack", body: #"{"cursor":"1"}"#, permissions: [.upstream],
                namesApp: true)
        case .events: Rule(method: .get, target: "/v1/apps/demoApp/events", permissions: [.events], namesApp: true)
        case .eventsAck:
            Rule(
                target: "/v1/apps/demoApp/events/ack", body: #"{"cursor":"1"}"#, permissions: [.events], namesApp: true)
        case .devices: traceRule("/v1/apps/demoApp/devices")
        case .deviceMessages: traceRule("/v1/apps/demoApp/devices/\(Fixture.cid)/messages")
        case .devicePurge: changeRule("purge")
        case .deviceReplay: changeRule("replay")
        case .deviceDisconnect: changeRule("disconnect")
        case .deviceUnblacklist: changeRule("unblacklist")
        case .alias: traceRule("/v1/apps/demoApp/aliases/alice")
        case .task: traceRule("/v1/apps/demoApp/tasks/\(Self.task)")
        case .taskMessage: traceRule("/v1/apps/demoApp/tasks/\(Self.task)/devices/\(Fixture.cid)")
        case .request: traceRule("/v1/apps/demoApp/requests/request-0001")
        case .jobs:
            Rule(method: .get, target: "/v1/handoff/jobs", permissions: [.trace]) {
                if case .inspect(.jobs(let apps, _)) = $0 { .some(apps) } else { .none }
            }
        // The code of the one-time link is the credential; the gateway checks it.
        case .signIn: Rule(target: "/v1/sign-in", permissions: nil)
        case .metrics: Rule(method: .get, target: "/metrics", permissions: Set(Credential.Permission.allCases))
        case .metricHistory:
            Rule(method: .get, target: "/v1/metrics/history", permissions: Set(Credential.Permission.allCases))
        case .health: Rule(method: .get, target: "/v1/health", permissions: Set(Credential.Permission.allCases))
        case .healthz: Rule(method: .get, target: "/healthz", permissions: nil)
        case .readyz: Rule(method: .get, target: "/readyz", permissions: nil)
        }
    }

    private static let task = "RASL_1121_6aad9b8ecc60ab4eb1b62f0e"

    private func traceRule(_ target: String) -> Rule {
        Rule(method: .get, target: target, permissions: [.trace], namesApp: true)
    }

    private func changeRule(_ change: String) -> Rule {
        Rule(target: "/v1/apps/demoApp/devices/\(Fixture.cid)/\(change)", permissions: [], namesApp: true)
    }

    @Test("inspections take their numbers from the query, and report those they cannot parse")
    func inspections() {
        guard
            case .inspect(.devices(app.key, after: let start?, limit: 7)) = call(
                .get, "/v1/apps/demoApp/devices?limit=7&after=\(Fixture.cid)"),
            case .inspect(.recent(let address, limit: Limits.inspectedCount)) = call(
                .get, "/v1/apps/demoApp/devices/\(Fixture.cid)/messages"),
            case .inspect(.alias(let alias, _)) = call(.get, "/v1/apps/demoApp/aliases/%E7%8E%8B?alias_type=home"),
            case .inspect(.request(let name)) = call(.get, "/v1/apps/demoApp/requests/a%2Fb%20c")
        else {
            Issue.record("a route is missing")
            return
        }
        #expect(start == DeviceCursor(address) && address.cid == Fixture.cid)
        #expect(alias == AliasName(app: app.key, text: "王", type: "home"))
        // An alias that a call can have bound is found, whatever its length and type.
        let longest = String(repeating: "%F0%A0%80%80", count: Limits.aliasCharacterCount)
        for target in ["aliases/\(longest)", "aliases/a?alias_type=user-id", "aliases/a?alias_type=\(longest)"] {
            guard case .inspect(.alias) = call(.get, "/v1/apps/demoApp/\(target)") else {
                Issue.record("refused: \(target)")
                continue
            }
        }
        #expect(name.text == "a/b c" && name.singles.count == 3 && name.calls.count == 8)
        #expect(Set(name.singles + name.calls.map(\.key)).count == 11, "each endpoint has request ids of its own")
        for target in [
            "devices?limit=0", "devices?limit=501", "devices?limit=x", "devices?after=x", "devices/x/messages",
            "aliases/a%20b", "aliases/a?alias_type=+", "aliases/\(longest)a", "tasks/x", "tasks/\(Self.task)/devices/x",
            "requests/\(String(repeating: "x", count: 129))",
        ] {
            expect(call(.get, "/v1/apps/demoApp/\(target)"), 400, "invalidParameter")
        }
    }

    @Test(
        "an unknown parameter is refused by name, with the known ones",
        arguments: AdminEndpoint.allCases)
    func unknownParameters(endpoint: AdminEndpoint) throws {
        let rule = rule(endpoint)
        let api = AdminAPI(
            registry: AppRegistry([app]),
            credentials: CredentialSet([Credential(name: "c", token: "t", apps: nil, may: [.admin])]))
        func called(_ query: String, bearer: String? = "t") -> AdminAction {
            call(rule.method, "\(rule.target)?\(query)", rule.body, bearer: bearer, api: api)
        }
        guard let known = endpoint.queryNames else {
            #expect(refusal(called("verbose")) == nil)
            return
        }
        let names = known.isEmpty ? "it has none" : "it has: \(known.map { "\($0)" }.joined(separator: ", "))"
        for query in ["state=pending", "state", "&state=pending", "stat%65=pending"] {
            let action = called(query)
            expect(action, 400, "invalidParameter")
            guard case .respond(let response) = action else { continue }
            let text = String(decoding: response.body, as: UTF8.self)
            #expect(text.contains("the call has no parameter stat") && text.contains(names), "\(text)")
        }
        for query in ["", "&", "&&"] { #expect(refusal(called(query)) == nil) }
        // An unauthenticated caller learns nothing about the calls.
        if rule.permissions != nil { expect(called("state=pending", bearer: "wrong"), 401, "unauthorized") }
        for name in known where !["after", "waitSeconds"].contains("\(name)") {
            #expect(refusal(called("\(name)=7")) == nil)
        }
    }

    @Test("every endpoint is checked with every kind of credential", arguments: AdminEndpoint.allCases)
    func everyCredential(endpoint: AdminEndpoint) {
        let rule = rule(endpoint)
        let route = Array(rule.target.utf8).withUnsafeBytes { AdminEndpoint.table.match(RequestPath($0), rule.method) }
        guard case .endpoint(endpoint) = route else {
            Issue.record("\(endpoint) is called as another one")
            return
        }
        let other = AppKey(appID: "otherApp")
        for permission in Credential.Permission.allCases {
            for apps: Set<AppKey>? in [nil, [app.key], [other], [app.key, other], []] {
                let api = AdminAPI(
                    registry: AppRegistry([app]),
                    credentials: CredentialSet([Credential(name: "c", token: "t", apps: apps, may: [permission])]))
                let action = call(rule.method, rule.target, rule.body, bearer: "t", api: api)
                let may = rule.permissions.map { permission == .admin || $0.contains(permission) } ?? true
                let name = "\(endpoint), \(permission), \(String(describing: apps?.count)) apps"
                guard may, !rule.needsAllApps || apps == nil else {
                    expect(action, 403, "forbidden")
                    continue
                }
                if rule.namesApp, apps?.contains(app.key) == false {
                    expect(action, 404, "notFound")
                    continue
                }
                #expect(refusal(action) == nil, "\(name)")
                if let scope = rule.scope(action) { #expect(scope == apps, "\(name)") }
            }
        }
        for bearer in [nil, "", "wrong"] {
            let action = call(rule.method, rule.target, rule.body, bearer: bearer, isLoopback: true)
            if rule.permissions == nil { #expect(refusal(action) == nil) } else { expect(action, 401, "unauthorized") }
        }
    }

    @Test("a credential sees only its own apps; a test push is for admins only")
    func apps() {
        func text(_ bearer: String) -> String? {
            if case .respond(let response) = call(.get, "/v1/apps", bearer: bearer) { response.text } else { nil }
        }
        let demo = #"{"appId":"demoApp","source":"file","state":"enabled"}"#
        let other = #"{"appId":"otherApp","source":"file","state":"enabled"}"#
        #expect(text("support-token") == #"{"apps":[\#(demo)]}"#)
        #expect(text("root-token") == #"{"apps":[\#(demo),\#(other)]}"#)
        expect(call(.post, "/v1/apps/demoApp/push", "{}", bearer: "support-token"), 403, "forbidden", "admin")
        guard case .push(let pushed, let name) = call(.post, "/v1/apps/demoApp/push", "{}") else {
            Issue.record("no push")
            return
        }
        #expect(pushed.key == app.key && name == "root")
    }

    @Test("a generated credential is accepted only from loopback")
    func loopback() {
        let api = AdminAPI(
            registry: AppRegistry([app]),
            credentials: CredentialSet(
                [Credential(name: "generated", token: "t", may: [.admin])], isLoopbackOnly: true))
        expect(call(.get, "/metrics", bearer: "t", api: api), 403, "forbidden")
        guard case .metrics = call(.get, "/metrics", bearer: "t", isLoopback: true, api: api) else {
            Issue.record("no metrics")
            return
        }
    }

    @Test("devices, messages, metrics and probes are found; probes need no credential")
    func routes() {
        guard
            case .device(let address) = call(.get, "/v1/apps/demoApp/devices/\(Fixture.cid)", bearer: "support-token"),
            case .message(let message, scope: let scope) = call(
                .get, "/v1/messages/\(Self.jobID)", bearer: "support-token"),
            case .metrics(scope: nil) = call(.get, "/metrics"),
            case .metrics(scope: let metricScope) = call(.get, "/metrics", bearer: "support-token"),
            case .healthz = call(.get, "/healthz", bearer: nil),
            case .readyz = call(.head, "/readyz/", bearer: nil)
        else {
            Issue.record("a route is missing")
            return
        }
        #expect(address == DeviceAddress(app: app.key, bucket: app.bucket(of: Fixture.cid), cid: Fixture.cid))
        #expect(message == MessageID(Self.jobID) && scope == [app.key] && metricScope == [app.key])
        expect(call(.get, "/v1/messages/xyz"), 400, "invalidParameter")
        expect(call(.get, "/v1/apps/demoApp/devices/xyz"), 400, "invalidParameter")
        for path in ["", "/", "/v1", "/v1/handoff", "/v1/handoff/x", "/v2/demoApp/auth", "/a/b/c"] {
            expect(call(.get, path), 404, "notFound")
        }
        let wrong = call(.get, "/v1/handoff/lease")
        expect(wrong, 405, "methodNotAllowed")
        #expect(refusal(wrong)?.allow == "POST")
        expect(call(.delete, "/metrics"), 405, "methodNotAllowed")
    }

    @Test("a body that is no JSON or too large has a specific error")
    func bodies() {
        for body in ["", "{", "{\"a\":01}"] { expect(call(.post, "/v1/handoff/lease", body), 400, "badJSON") }
        let large = String(repeating: " ", count: Limits.adminBodyByteCount + 1)
        expect(call(.post, "/v1/handoff/results", large), 413, "bodyTooLarge")
        #expect(APIResponse.adminUnavailable("starting").status == 503)
    }

    @Test("random bodies are refused or accepted, and never trap")
    func randomBodies() {
        var generator = SeededGenerator(seed: 3)
        let pieces = [
            "{", "}", "[", "]", ",", ":", #""jobId""#, #""leaseId""#, #""outcome""#, #""\#(Self.jobID)""#, "1", "-1",
            #""accepted""#, "null", #""channel":"apns""#,
        ]
        for _ in 0..<5_000 {
            let body = (0..<Int(generator.next() % 12)).map { _ in pieces[Int(generator.next() % UInt64(pieces.count))]
            }
            for path in ["lease", "results", "extend"] { _ = call(.post, "/v1/handoff/\(path)", body.joined()) }
        }
    }
}

@Suite("Admin answers")
struct AdminAnswerTests {
    private let app = Fixture().app
    private var registry: AppRegistry { AppRegistry([app]) }

    @Test("a device shows its session, queue and badge, and only the start of its tokens")
    func device() {
        let address = DeviceAddress(app: app.key, bucket: app.bucket(of: Fixture.cid), cid: Fixture.cid)
        let answer = AdminAnswer.device(deviceStatus(app: app.key), at: address, registry: registry)
        #expect(
            answer.text
                == #"{"appId":"demoApp","cid":"\#(Fixture.cid)","bucket":1271,"connected":false,"reachable":false,"#
                + #""suspect":false,"state":"background","keepsRunning":false,"generation":3,"heartbeatSeconds":300,"#
                + #""lastSeenAt":19,"registeredAt":5,"queue":{"messages":2,"bytes":99,"inFlight":1,"nextSequence":8,"#
                + #""messageLimit":10,"byteLimit":20},"#
                + #""badge":4,"pushModeOff":false,"blacklisted":false,"inactive":false,"aliases":[],"tags":[],"#
                + #""tokens":[{"channel":"apns","kind":"alert","environment":"sandbox","topic":"t","#
                + #""token":"abcdef01…","quarantined":true}],"appDisabled":false,"fallback":"none","#
                + #""fallbackReason":"tokenQuarantined"}"#)
        #expect(AdminAnswer.device(nil, at: address, registry: registry).status == 404)
        #expect(AdminAnswer.device(deviceStatus(app: AppKey(1)), at: address, registry: registry).status == 404)
    }

    private var disabledApp: App {
        var app = app
        app.isEnabled = false
        return app
    }

    @Test("a device shows whether it can receive alerts, and the vendor's reason for the last one")
    func fallback() {
        let address = DeviceAddress(app: app.key, bucket: app.bucket(of: Fixture.cid), cid: Fixture.cid)
        func answer(_ change: (inout DeviceStatus) -> Void) -> String {
            var status = deviceStatus(app: app.key)
            status.tokens[0].isQuarantined = false
            change(&status)
            return AdminAnswer.device(status, at: address, registry: registry).text
        }
        #expect(answer { _ in }.hasSuffix(#""appDisabled":false,"fallback":"available"}"#))
        #expect(answer { $0.tokens[0].kind = .voip }.contains(#""fallback":"none","fallbackReason":"noToken"}"#))
        #expect(answer { $0.pushModeOff = true }.contains(#""fallback":"none","fallbackReason":"pushModeOff"}"#))
        #expect(answer { $0.isBlacklisted = true }.contains(#""fallback":"none","fallbackReason":"blacklisted"}"#))
        #expect(answer { $0.isInactive = true }.contains(#""fallback":"none","fallbackReason":"inactive"}"#))
        #expect(
            answer { $0.refusedHello = .init(time: 9, code: 401, reason: "the proof does not match") }.contains(
                #""refusedHello":{"time":9,"code":401,"reason":"the proof does not match"}"#))
        #expect(answer { $0.refusedHello = nil }.contains("refusedHello") == false)
        let disabled = AppRegistry([disabledApp])
        #expect(
            AdminAnswer.device(deviceStatus(app: app.key), at: address, registry: disabled).text.hasSuffix(
                #""appDisabled":true,"fallback":"none","fallbackReason":"appDisabled"}"#))
        let named = answer {
            ($0.isBlacklisted, $0.names) = (true, .init(aliases: ["a\"b"], tags: ["x", "y"]))
        }
        #expect(named.contains(#""messageLimit":10,"byteLimit":20},"badge""#))
        #expect(named.contains(#""blacklisted":true,"inactive":false,"aliases":["a\"b"],"tags":["x","y"],"tokens""#))
        let failure = VendorFailure(
            message: MessageID(high: 1, low: 2), at: 77, outcome: .badToken, attempts: 3, reason: "Unregistered")
        #expect(
            answer { $0.vendorFailure = failure }.hasSuffix(
                #""fallback":"available","vendorFailure":{"msgId":"00000000000000010000000000000002","time":77,"#
                    + #""outcome":"badToken","attempts":3,"reason":"Unregistered"}}"#))
    }

    @Test("a trace has every step, and hides other apps' messages from a credential")
    func trace() {
        let task = TaskID(kind: .single, month: 1, day: 2, random: (3, 4))
        var trace = MessageTrace(
            message: MessageID(high: 1, low: 2), task: task, cid: Fixture.cid, app: app.key, strategy: .liveElseVendor,
            isOffline: true, sequence: 9, acceptedAt: 10, expiresAt: 20, finalState: nil, finalReason: "",
            steps: [.init(event: .accepted, time: 10), .init(event: .vendorRejected, time: 11, detail: "Bad\"Device")])
        trace.fallback = .armed
        let answer = AdminAnswer.trace(trace, scope: nil, registry: registry)
        #expect(
            answer.text
                == #"{"msgId":"00000000000000010000000000000002","taskId":"\#(task.text)","appId":"demoApp","#
                + #""cid":"\#(Fixture.cid)","strategy":1,"offline":true,"sequence":9,"acceptedAt":10,"expiresAt":20,"#
                + #""state":"pending","fallback":"armed","alert":"refused","vendorReason":"Bad\"Device","steps":[{"event":"accepted","time":10},"#
                + #"{"event":"vendorRejected","time":11,"detail":"Bad\"Device"}]}"#)
        trace.channel = .apns
        #expect(
            AdminAnswer.trace(trace, scope: nil, registry: registry).text.contains(
                #"[{"event":"accepted","time":10},{"event":"vendorRejected","time":11,"channel":"apns","detail":"#))
        (trace.finalState, trace.finalReason) = (.failed, "noToken")
        let final = AdminAnswer.trace(trace, scope: [app.key], registry: registry)
        #expect(
            final.text.contains(
                #""state":"failed","reason":"noToken","fallback":"armed","alert":"refused","vendorReason""#))
        (trace.fallback, trace.fallbackReason) = (PublishOutcome.Fallback.none, .noToken)
        let reasoned = AdminAnswer.trace(trace, scope: nil, registry: registry)
        #expect(
            reasoned.text.contains(#""fallback":"none","fallbackReason":"noToken","alert":"refused","vendorReason""#))
        trace.fallback = .armed
        #expect(
            AdminAnswer.trace(trace, scope: nil, registry: registry).text.contains(
                #""fallback":"armed","alert":"refused","vendorReason""#))
        trace.attempts = 2
        #expect(AdminAnswer.trace(trace, scope: nil, registry: registry).text.contains(#""attempts":2,"vendorReason""#))
        trace.steps.append(.init(event: .vendorAccepted, time: 12, detail: "an id"))
        #expect(!AdminAnswer.trace(trace, scope: nil, registry: registry).text.contains("vendorReason"))
        #expect(AdminAnswer.trace(trace, scope: [AppKey(1)], registry: registry).status == 404)
        #expect(AdminAnswer.trace(nil, scope: nil, registry: registry).status == 404)
    }

    @Test("steps are in time order, and the alert's state follows the last one at the vendor")
    func alert() {
        func view(_ events: [(TraceEvent, GatewayTime)], _ final: FinalState? = nil) -> String {
            var trace = MessageTrace(
                message: MessageID(high: 1, low: 2), task: TaskID(kind: .single, month: 1, day: 2, random: (3, 4)),
                cid: Fixture.cid, app: app.key, strategy: .liveElseVendor, isOffline: false, sequence: 9,
                acceptedAt: 10, expiresAt: 20, finalState: final, finalReason: "",
                steps: events.map { .init(event: $0.0, time: $0.1) })
            trace.fallback = .armed
            let text = AdminAnswer.trace(trace, scope: nil, registry: registry).text
            let state = text.split(separator: "\"alert\":\"").last?.prefix { $0 != "\"" } ?? ""
            let names = text.split(separator: "\"event\":\"").dropFirst().map { $0.prefix { $0 != "\"" } }
            return "\(state): \(names.joined(separator: " "))"
        }
        #expect(view([(.accepted, 10), (.sent, 30), (.jobDue, 20)]) == "due: accepted jobDue sent")
        #expect(view([(.accepted, 10), (.jobDue, 10), (.leased, 11)]) == "leased: accepted jobDue leased")
        let lapsed: [(TraceEvent, GatewayTime)] = [(.jobDue, 10), (.leased, 11), (.leaseLapsed, 12)]
        #expect(view(lapsed) == "due: jobDue leased leaseLapsed")
        #expect(view(lapsed + [(.leased, 13), (.unsent, 14)]).hasPrefix("due: "))
        #expect(view(lapsed + [(.leased, 13), (.vendorRejected, 14)]).hasPrefix("refused: "))
        #expect(view(lapsed + [(.leased, 13), (.vendorAccepted, 14)]).hasPrefix("accepted: "))
        #expect(view(lapsed + [(.acked, 13)], .delivered).hasPrefix("unneeded: "))
        #expect(view([(.accepted, 10)]) == "armed: accepted")
        #expect(view([(.accepted, 10), (.acked, 11)], .delivered) == "unneeded: accepted acked")
    }

    @Test("a leased job has every field of the contract")
    func lease() {
        let answer = HandoffAnswer.lease([job(1)], registry: registry)
        #expect(
            answer.text
                == #"{"jobs":[{"channel":"apns","jobId":"00f00000000000010000000000000001","#
                + #""msgId":"00f00000000000010000000000000001","#
                + #""taskId":"RASS_0102_000000030000000000000004","appId":"demoApp","cid":"\#(Fixture.cid)","#
                + #""deviceToken":"beef","tokenKind":"alert","environment":"sandbox","topic":"com.example.demo","#
                + #""pushType":"alert","priority":10,"expiration":1700000,"collapseId":"c","#
                + #""apnsId":"00f00000-0000-0001-0000-000000000001","body":{"aps":{}},"attempt":2,"acceptedAt":5,"dueAt":6,"#
                + #""leaseId":"00000000000000070000000000000008","leasedUntil":6}]}"#)
        #expect(HandoffAnswer.lease([], registry: registry).text == #"{"jobs":[]}"#)
    }

    @Test("verdicts are returned in their order")
    func verdicts() {
        let all: [ResultVerdict.Verdict] = [.recorded, .stale, .cancelled, .unknownJob, .storeFailed]
        let answer = HandoffAnswer.verdicts(all.map { ResultVerdict(job: MessageID(high: 0, low: 1), verdict: $0) })
        for name in ["recorded", "stale", "cancelled", "unknownJob", "storeFailed"] {
            #expect(answer.text.contains(#"{"jobId":"00000000000000000000000000000001","verdict":"\#(name)"}"#))
        }
    }
}

func job(_ number: UInt64) -> Job {
    Job(
        channel: .apns, message: MessageID(high: 0x00F0_0000_0000_0001, low: number), leaseID: (7, 8), leasedUntil: 6,
        task: TaskID(kind: .single, month: 1, day: 2, random: (3, 4)), app: AppKey(appID: "demoApp"), cid: Fixture.cid,
        token: "beef", tokenKind: .alert, environment: .sandbox, topic: "com.example.demo", pushType: .alert,
        priority: 10, expiration: 1_700_000_999, collapseID: "c", body: Array(#"{"aps":{}}"#.utf8), attempt: 2,
        acceptedAt: 5, dueAt: 6)
}

@Suite("Hook")
struct HookTests {
    private let registry = AppRegistry([Fixture().app])

    private func makeDelivery(_ count: UInt64 = 2) -> HookDelivery {
        HookDelivery(jobs: (1...count).map(job), channel: .apns, leaseID: (7, 8), registry: registry)
    }

    private func answer(_ status: Int, _ body: String = "") -> HookAnswer {
        Array(body.utf8).withUnsafeBytes { HookAnswer(status: status, body: $0, delivery: makeDelivery()) }
    }

    /// Computed with Python's hmac and base64 over "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}".
    @Test("the signature matches an independent computation")
    func signature() throws {
        let secret = try #require(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="))
        let signature = secret.signature(
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: 1_614_265_330, body: Array(#"{"test": 2432232314}"#.utf8))
        #expect(signature == "v1,O4Gjv1HqPqsMrjmczoggs/sWA8gZD0VyHG+fLh4+ktI=")
    }

    @Test(
        "a secret is whsec_ and the base 64 of 24 to 64 bytes",
        arguments: [
            "", "whsec_", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_AAEC",
            "whsec_*AECAwQFBgcICQoLDA0ODxAREhMUFRYX",
        ])
    func badSecrets(text: String) {
        #expect(HookSecret(text) == nil)
    }

    @Test("a secret is whsec_ and Base64 of 24 to 64 bytes")
    func secret() {
        #expect(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")?.key == Array(0..<24))
        #expect(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGA==")?.key == Array(0..<25))
        #expect(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGA")?.key == Array(0..<25))
        for text in [
            "", "whsec_", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "whsec_AAEC", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY?",
        ] {
            #expect(HookSecret(text) == nil)
        }
    }

    @Test("a delivery keeps its id and body, and is signed anew each time")
    func delivery() throws {
        let secret = try #require(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="))
        let delivery = makeDelivery()
        #expect(delivery.id == "msg_00000000000000070000000000000008")
        let text = String(decoding: delivery.body, as: UTF8.self)
        #expect(text.hasPrefix(#"{"type":"longwire.handoff","channel":"apns","jobs":[{"channel":"apns","jobId":""#))
        let headers = Dictionary(uniqueKeysWithValues: delivery.headers(secret: secret, now: 5_999))
        #expect(headers["webhook-id"] == delivery.id && headers["webhook-timestamp"] == "5")
        #expect(
            headers["webhook-signature"] == secret.signature(id: delivery.id, timestamp: 5, body: delivery.body))
        #expect(headers["content-type"] == "application/json;charset=utf-8")
    }

    @Test(
        "an empty 2xx accepts all",
        arguments: [(200, ""), (204, ""), (201, " \r\n"), (200, "{}"), (200, "null"), (200, "[]")])
    func empty(status: Int, body: String) {
        guard case .settled(let results) = answer(status, body) else {
            Issue.record("not settled")
            return
        }
        #expect(results.map(\.outcome) == [.accepted, .accepted])
        #expect(results.allSatisfy { $0.leaseID == (7, 8) })
    }

    @Test("a body names outcomes, unnamed jobs are accepted, unknown ones are ignored")
    func named() {
        let second =
            #"{"jobId":"00f00000000000010000000000000002","outcome":"badToken","reason":"Unregistered","timestamp":3}"#
        let stranger = #"{"jobId":"00f00000000000010000000000000009","outcome":"rejected"}"#
        for body in ["[\(second),\(stranger)]", #"{"results":[\#(stranger),\#(second)]}"#] {
            guard case .settled(let results) = answer(200, body) else {
                Issue.record("not settled")
                return
            }
            #expect(results.map(\.outcome) == [.accepted, .badToken])
            #expect(results[1].reason == "Unregistered" && results[1].timestamp == 3)
            #expect(results[1].leaseID == (7, 8))
        }
    }

    @Test("202 defers")
    func deferred() {
        guard case .deferred = answer(202, "whatever") else {
            Issue.record("not deferred")
            return
        }
    }

    @Test(
        "any other answer causes a retry with the reason, without a quote of the body",
        arguments: [
            (301, ""), (400, ""), (410, ""), (500, ""), (0, ""), (200, "ok-secret"), (200, "[1]"),
            (200, #"[{"jobId":"00f00000000000010000000000000001","outcome":"done"}]"#), (200, #"{"results":1}"#),
        ])
    func retry(status: Int, body: String) {
        guard case .retry(let reason) = answer(status, body) else {
            Issue.record("not retried")
            return
        }
        #expect(reason.hasPrefix("status \(status)"))
        #expect(!reason.contains("secret"))
    }
}
