import Configuration
import Cryptography
import Testing

@testable import FakeVendors
@testable import Vendors

@Suite("Fake vendors")
struct FakeVendorServiceTests {
    @Test("a notification of the sender passes each vendor's checks and is shown", arguments: Vendor.allCases)
    func happyPath(vendor: Vendor) throws {
        var bench = try Bench()
        let (answer, outcome) = try bench.send(bench.message(vendor), vendor)
        guard case .accepted(let id) = outcome else {
            Issue.record("\(outcome): \(answer.reason)")
            return
        }
        #expect(!id.isEmpty)
        #expect(answer.isTaken && answer.code.isEmpty)
        #expect(bench.page.contains("\"vendor\":\"\(vendor.rawValue)\",\"token\":\"phone-1\""))
        #expect(bench.page.contains("\"title\":\"Title\",\"text\":\"Body\""))
        #expect(bench.page.contains("RASS_1129_x:0123456789abcdef0123456789abcdef"))
    }

    static let clicks: [PushContent.Click] = [
        .startApp, .none, .url("https://example.com/x"), .payload("text"), .intent("com.example.OPEN"),
        .intent("intent:#Intent;action=com.example.OPEN;component=com.example/.Main;end"),
    ]

    @Test("every click and every optional field passes each vendor's checks", arguments: Vendor.allCases, clicks)
    func fullNotices(vendor: Vendor, click: PushContent.Click) throws {
        var bench = try Bench()
        var notice = PushContent.Notice(title: "Title", body: "Body", click: click)
        (notice.notifyID, notice.channelID, notice.badgeIncrement) = (7, "channel", 1)
        (notice.bigText, notice.bigImage) = ("long", "https://example.com/i.png")
        notice.category = vendor == .vivo ? "ORDER" : "IM"
        let (answer, outcome) = try bench.send(bench.message(vendor, "phone-1", .notification(notice)), vendor)
        guard case .accepted = outcome else {
            Issue.record("\(outcome): \(answer.reason)")
            return
        }
    }

    @Test(
        "a passthrough message is kept with its data",
        arguments: [Vendor.fcm, .hms, .harmony, .honor, .xiaomi, .webPush])
    func passthrough(vendor: Vendor) throws {
        var bench = try Bench()
        let (answer, _) = try bench.send(bench.message(vendor, "phone-1", .transmission("for the app")), vendor)
        #expect(answer.isTaken, "\(answer.reason)")
        #expect(bench.page.contains("for the app"))
    }

    // MARK: Device tokens

    @Test("a token's name determines its state", arguments: Vendor.allCases)
    func names(vendor: Vendor) throws {
        var bench = try Bench()
        let dead = try bench.send(bench.message(vendor, "dead01"), vendor).outcome
        // Xiaomi's answer does not name the regid.
        let expected = vendor == .xiaomi ? VendorOutcome.rejected(reason: "20301") : .badToken(reason: dead.reason)
        #expect(dead == expected)
        let bad = try bench.send(bench.message(vendor, "bad0"), vendor).outcome
        // Honor lists a malformed token among the failed ones.
        #expect(vendor == .honor ? bad == .rejected(reason: "FailedToken") : bad == .badToken(reason: bad.reason))
        #expect(Self.isFlowControl(try bench.send(bench.message(vendor, "4290"), vendor).outcome))
        for token in ["5000", "5030"] {
            let outcome = try bench.send(bench.message(vendor, token), vendor).outcome
            // HTTP 503 of Huawei and Honor is flow control.
            if token == "5030", Self.isFlowControl(outcome), [.hms, .harmony, .honor].contains(vendor) { continue }
            guard case .retry = outcome else {
                Issue.record("\(token) is \(outcome), not a retry")
                return
            }
        }
        #expect(bench.service.takenCount == 0)
    }

    private static func isFlowControl(_ outcome: VendorOutcome) -> Bool {
        if case .tooFast = outcome { true } else { false }
    }

    @Test("a partial success lists the refused tokens")
    func partial() throws {
        var bench = try Bench()
        let (answer, _) = try bench.send(bench.message(.xiaomi, "phone-1"), .xiaomi) { request in
            request.body = Array(
                String(decoding: request.body, as: UTF8.self).replacing("phone-1", with: "phone-1%2Cdead").utf8)
        }
        #expect(String(decoding: answer.body, as: UTF8.self).contains("\"bad_regids\":\"dead\""))
        #expect(bench.service.takenCount == 1)
    }

    // MARK: Refusals

    /// A changed part of the request's body, and the vendor's code.
    static let breaches: [(Vendor, String, String, String)] = [
        (.fcm, "\"HIGH\"", "\"LOUD\"", "INVALID_ARGUMENT"), (.fcm, "\"3600s\"", "\"9999999s\"", "INVALID_ARGUMENT"),
        (.fcm, "\"title\":", "\"titel\":", "INVALID_ARGUMENT"),
        (.fcm, "\"_gmid_\"", "\"google.x\"", "INVALID_ARGUMENT"),
        (.hms, "\"HIGH\"", "\"LOUD\"", "80100003"), (.hms, "\"3600s\"", "\"0s\"", "80100004"),
        (.hms, "\"token\":[\"phone-1\"]", "\"token\":[]", "80300010"), (.hms, "\"type\":3", "\"type\":2", "80100003"),
        (.harmony, "\"MARKETING\"", "\"marketing\"", "80100003"), (.harmony, "\"ttl\":3600", "\"ttl\":0", "80100004"),
        (.honor, "\"title\":\"Title\",", "", "80100003"), (.honor, "\"3600s\"", "3600", "80100004"),
        (.xiaomi, "title=Title", "title=" + String(repeating: "x", count: 50), "65009"),
        (.xiaomi, "&extra.channel_id=fake-channel", "", "10016"),
        (.xiaomi, "pass_through=0", "pass_through=2", "10017"),
        (.oppo, "%22content%22%3A%22Body%22", "%22content%22%3A5", "41"),
        (.oppo, "%22title%22%3A%22Title%22%2C", "", "40"),
        (.oppo, "%22style%22%3A1", "%22style%22%3A9", "41"), (.vivo, "\"title\":\"Title\",", "", "10055"),
        (.vivo, "\"content\":\"Body\"", "\"content\":\"" + String(repeating: "x", count: 101) + "\"", "10058"),
        (.vivo, "\"skipType\":1", "\"skipType\":2", "10061"), (.vivo, "\"notifyType\":4", "\"notifyType\":5", "10054"),
    ]

    @Test("each violated rule has the vendor's code", arguments: breaches)
    func refusals(vendor: Vendor, part: String, other: String, code: String) throws {
        var bench = try Bench()
        let (answer, outcome) = try bench.send(bench.message(vendor), vendor) { request in
            let text = String(decoding: request.body, as: UTF8.self)
            #expect(text.contains(part), "\(text)")
            request.body = Array(text.replacing(part, with: other).utf8)
        }
        #expect(answer.code == code, "\(answer.reason)")
        #expect(!answer.isTaken && bench.service.takenCount == 0)
        if case .accepted = outcome { Issue.record("accepted") }
    }

    @Test("a message above the vendor's size is refused", arguments: [Vendor.fcm, .hms, .harmony, .honor, .xiaomi])
    func sizes(vendor: Vendor) throws {
        var bench = try Bench()
        let (answer, _) = try bench.send(bench.message(vendor), vendor) { request in
            let text = String(decoding: request.body, as: UTF8.self)
            let long = "RASS_1129_x" + String(repeating: "y", count: 4_096)
            request.body = Array(text.replacing("RASS_1129_x", with: long).utf8)
        }
        #expect(answer.reason.hasSuffix("bytes"), "\(answer.code) \(answer.reason)")
    }

    @Test("another address, method or content type is refused")
    func requests() throws {
        var bench = try Bench()
        let other = try bench.send(bench.message(.hms), .hms) { $0.url = "https://localhost:2194/v1/other" }
        #expect(other.answer.status == 404)
        let plain = try bench.send(bench.message(.hms), .hms) { request in
            request.headers.removeAll { $0.name == "Content-Type" }
        }
        #expect(plain.answer.code == "80100003")
        let app = try bench.send(bench.message(.hms), .hms) { request in
            request.url = request.url.replacing("100001", with: "5")
        }
        #expect(app.answer.code == "80300002")
    }

    // MARK: Credentials

    static let secrets: [(Vendor, String)] = [
        (.hms, "appSecret"), (.honor, "clientSecret"), (.oppo, "masterSecret"), (.vivo, "appSecret"), (.hms, "appId"),
        (.honor, "clientId"), (.oppo, "appKey"), (.vivo, "appKey"),
    ]

    @Test("a wrong id or secret gets no access token", arguments: secrets)
    func wrongSecrets(vendor: Vendor, field: String) throws {
        var bench = try Bench()
        let api = try bench.api(vendor, [field: "12345"])
        let answer = bench.call(try #require(api.tokenRequest(now: bench.now)))
        guard case .failure(.credentialRefused) = api.readToken(Bench.reply(answer), now: bench.now) else {
            Issue.record("\(answer)")
            return
        }
    }

    @Test("a wrong signature or secret in a message is refused", arguments: [Vendor.xiaomi, .meizu])
    func wrongProof(vendor: Vendor) throws {
        var bench = try Bench()
        let api = try bench.api(vendor, ["appSecret": "another"])
        guard case .credentialRefused = try bench.send(bench.message(vendor), vendor, through: api).outcome else {
            Issue.record("not refused")
            return
        }
    }

    @Test("a signature of another time is refused", arguments: [Vendor.fcm, .oppo, .vivo, .harmony])
    func wrongClock(vendor: Vendor) throws {
        var bench = try Bench([try #require(FakeVendor(rawValue: vendor.rawValue)): .with { $0.clockSeconds = 7_200 }])
        if vendor == .harmony {
            #expect(try bench.send(bench.message(vendor), vendor).outcome == .renewToken(reason: "80200005"))
        } else {
            let api = try bench.api(vendor)
            let answer = bench.call(try #require(api.tokenRequest(now: bench.now)))
            guard case .failure(.credentialRefused) = api.readToken(Bench.reply(answer), now: bench.now) else {
                Issue.record("\(answer)")
                return
            }
        }
    }

    @Test("an access token expires after its lifetime", arguments: [Vendor.fcm, .hms, .honor, .oppo, .vivo])
    func expiry(vendor: Vendor) throws {
        var bench = try Bench([
            try #require(FakeVendor(rawValue: vendor.rawValue)): .with { $0.accessTokenSeconds = 600 }
        ])
        #expect(try bench.send(bench.message(vendor), vendor).answer.isTaken)
        bench.now += 601
        let (answer, outcome) = try bench.send(bench.message(vendor), vendor)
        #expect(outcome == .renewToken(reason: outcome.reason), "\(answer.code)")
        bench.bearers[vendor] = nil
        #expect(try bench.send(bench.message(vendor), vendor).answer.isTaken)
    }

    // MARK: Web Push

    @Test("a message of Web Push must be encrypted for the subscription, and signed for its origin")
    func webPush() throws {
        var bench = try Bench()
        let message = bench.message(.webPush)
        let damaged = try bench.send(message, .webPush) { $0.body[100] ^= 1 }
        #expect((damaged.answer.status, damaged.answer.reason) == (400, "undecryptable body"))
        let headers: [(String, String, Int)] = [
            ("TTL", "soon", 400), ("Urgency", "urgent", 400), ("Topic", "not allowed", 400),
            ("Content-Encoding", "aesgcm", 400), ("Authorization", "vapid t=a.b.c, k=d", 401),
        ]
        for (name, value, status) in headers {
            let answer = try bench.send(message, .webPush) { request in
                request.headers.removeAll { $0.name == name }
                request.headers.append(.init(name, value))
            }.answer
            #expect(answer.status == status, "\(name): \(answer.reason)")
        }
        let large = try bench.send(message, .webPush) { $0.body += [UInt8](repeating: 0, count: 4_096) }
        #expect(large.answer.status == 413)
        bench.now += 86_400
        let api = try bench.api(.webPush)
        let old = api.signToken(scope: bench.accounts.pushOrigin, now: Bench.now)?.text
        let late = bench.call(try api.request(for: message, bearer: old, now: bench.now))
        #expect((late.status, late.reason) == (401, "exp"))
        let foreign = api.signToken(scope: "https://push.example.com", now: bench.now)?.text
        #expect(bench.call(try api.request(for: message, bearer: foreign, now: bench.now)).reason == "aud")
        #expect(bench.service.takenCount == 0)
    }

    @Test("another VAPID key than that of the subscription is refused")
    func foreignKey() throws {
        var bench = try Bench()
        let pem = String(decoding: try SigningKey.makePEM(), as: UTF8.self)
        let api = try bench.api(.webPush, ["privateKey": pem])
        #expect(try bench.send(bench.message(.webPush), .webPush, through: api).answer.status == 403)
    }

    // MARK: Scripts

    @Test("a day's quota ends at midnight in Beijing", arguments: [Vendor.xiaomi, .oppo, .vivo])
    func quota(vendor: Vendor) throws {
        var bench = try Bench([try #require(FakeVendor(rawValue: vendor.rawValue)): .with { $0.dayQuota = 1 }])
        #expect(try bench.send(bench.message(vendor), vendor).answer.isTaken)
        let outcome = try bench.send(bench.message(vendor), vendor).outcome
        let midnight = Vendor.nextBeijingMidnight(after: bench.now)
        #expect(outcome == .quotaUsedUp(until: midnight, reason: outcome.reason))
        (bench.now, bench.bearers) = (midnight, [:])
        #expect(try bench.send(bench.message(vendor), vendor).answer.isTaken)
    }

    @Test("a rate is counted by the second", arguments: Vendor.allCases)
    func rate(vendor: Vendor) throws {
        var bench = try Bench([
            try #require(FakeVendor(rawValue: vendor.rawValue)): .with { $0.requestsPerSecond = 2 }
        ])
        let outcomes = try (0..<3).map { _ in try bench.send(bench.message(vendor), vendor).outcome }
        #expect(Self.isFlowControl(outcomes[2]), "\(outcomes)")
        #expect(bench.service.takenCount == 2)
        bench.now += 1
        #expect(try bench.send(bench.message(vendor), vendor).answer.isTaken)
    }

    @Test("the script's rules count uses, and choose code, body, delay and deed")
    func rules() throws {
        var bench = try Bench([
            .xiaomi: .rule { ($0.prefix, $0.code, $0.times) = ("ab", "10001", 1) },
            .oppo: .rule { ($0.body, $0.delayMilliseconds) = ("<html>", 50) },
            .vivo: .rule { $0.deed = .cutTaken }, .meizu: .rule { $0.deed = .cut },
            .fcm: .rule { ($0.isForAccessTokens, $0.status, $0.retryAfterSeconds) = (true, 503, 9) },
            .hms: .rule { $0.prefix = "dead" },
        ])
        #expect(
            try bench.send(bench.message(.xiaomi, "abc"), .xiaomi).outcome == .retry(afterSeconds: nil, reason: "10001")
        )
        #expect(try bench.send(bench.message(.xiaomi, "abc"), .xiaomi).answer.isTaken)
        let page = try bench.send(bench.message(.oppo), .oppo)
        #expect(page.outcome == .unknown(reason: "UnreadableReply") && page.answer.delayMilliseconds == 50)
        let lost = try bench.send(bench.message(.vivo), .vivo).answer
        #expect(lost.deed == .cutTaken && lost.isTaken)
        let cut = try bench.send(bench.message(.meizu), .meizu).answer
        #expect(cut.deed == .cut && !cut.isTaken)
        let api = try bench.api(.fcm)
        let refused = bench.call(try #require(api.tokenRequest(now: bench.now)))
        #expect(
            api.readToken(Bench.reply(refused), now: bench.now) == .failure(.retry(afterSeconds: 9, reason: "HTTP503")))
        // A rule without code and body switches off the rules by the token's name.
        #expect(try bench.send(bench.message(.hms, "dead"), .hms).answer.isTaken)
        bench.service.play([:])
        #expect(!(try bench.send(bench.message(.hms, "dead"), .hms).answer.isTaken))
    }

    @Test("a script is read by vendor, and an unknown key is reported")
    func reading() throws {
        let problems = ConfigurationProblems()
        let text = """
            {hms: {dayQuota: 3, accessTokenSeconds: 60, rules: [{prefix: "ab", status: 503, deed: "silence", times: 2}]},
             getui: {}}
            """
        let root = try ConfigurationObject.root(Array(text.utf8), file: "script", problems: problems)
        let script = try #require(VendorScript.read(root)[.hms])
        #expect((script.dayQuota, script.accessTokenSeconds, script.rules.first?.times) == (3, 60, 2))
        #expect(script.rules.first?.deed == .silence)
        #expect(problems.all.map(\.path) == ["getui"])
    }

    @Test("the checks of doctor are accepted and shown on no phone", arguments: [Vendor.fcm, .hms, .harmony])
    func doctor(vendor: Vendor) throws {
        var bench = try Bench()
        let api = try bench.api(vendor)
        let bearer = try bench.bearer(api, bench.message(vendor))
        let answer = bench.call(try #require(api.testRequest(bearer: bearer, now: bench.now)))
        #expect(api.testFailure(Bench.reply(answer), now: bench.now) == nil)
        #expect(bench.service.takenCount == 0)
    }
}
