import Testing
import TextForms

@testable import APNs

@Suite("Requests to APNs") struct RequestRulesTests {
    private func notification(
        _ type: PushType = .alert, _ kind: TokenKind = .alert, token: String = "abcd",
        topic: String = "com.example.app",
        priority: Int = 10, expiration: Int64 = 0, collapseID: String = "", body: String = "{\"aps\":{}}"
    ) -> Notification {
        Notification(
            token: token, tokenKind: kind, environment: .production, topic: topic, pushType: type, priority: priority,
            expiration: expiration, collapseID: collapseID, id: "00000000-0000-0000-0000-000000000000",
            body: Array(body.utf8))
    }

    private var object: BodyFacts {
        var facts = BodyFacts()
        (facts.isObject, facts.hasAps) = (true, true)
        return facts
    }

    private func reason(_ notification: Notification, _ facts: BodyFacts? = nil) -> String {
        RequestRules.breach(of: notification, facts ?? object).map { "\($0.reason)" } ?? ""
    }

    @Test("topics have their suffix once, and a background push has priority 5")
    func headers() {
        #expect(notification().fullTopic == "com.example.app")
        #expect(notification(.voip, .voip).fullTopic == "com.example.app.voip")
        #expect(notification(.voip, .voip, topic: "com.example.app.voip").fullTopic == "com.example.app.voip")
        #expect(notification(.liveactivity, .liveActivity).fullTopic == "com.example.app.push-type.liveactivity")
        #expect(notification(.background).effectivePriority == 5 && notification(priority: 1).effectivePriority == 1)
    }

    @Test("a push that Apple would refuse or silently drop is refused before it is sent")
    func breaches() {
        #expect(reason(notification()) == "")
        for token in ["", "abc", "xyz0", String(repeating: "ab", count: 300)] {
            #expect(reason(notification(token: token)) == "BadDeviceToken")
        }
        for topic in ["", "com example", String(repeating: "a", count: 256)] {
            #expect(reason(notification(topic: topic)) == "MissingTopic")
        }
        #expect(reason(notification(collapseID: String(repeating: "a", count: 65))) == "BadCollapseId")
        #expect(reason(notification(collapseID: "中")) == "BadCollapseId")
        #expect(reason(notification(collapseID: String(repeating: "a", count: 64))) == "")
        for id in ["", "00000000-0000-0000-0000-00000000000", "00000000-0000-0000-0000-00000000000g", "a\r\nb: c"] {
            var damaged = notification()
            damaged.id = id
            #expect(reason(damaged) == "BadMessageId")
        }
        #expect(reason(notification(expiration: -1)) == "BadExpirationDate")
        #expect(reason(notification(priority: 7)) == "BadPriority")
        #expect(reason(notification(body: "")) == "PayloadEmpty")
        #expect(reason(notification(body: String(repeating: "a", count: 4_097))) == "PayloadTooLarge")
        #expect(reason(notification(.voip, .voip, body: String(repeating: "a", count: 5_120))) == "")
        #expect(reason(notification(.voip, .voip, body: String(repeating: "a", count: 5_121))) == "PayloadTooLarge")
        #expect(reason(notification(), BodyFacts()) == "BadBody")
    }

    @Test("each push type uses its own kind of token", arguments: PushType.allCases, TokenKind.allCases)
    func kinds(type: PushType, kind: TokenKind) {
        let fits: Bool
        switch type {
        case .alert, .background: fits = kind == .alert
        case .voip: fits = kind == .voip
        case .liveactivity: fits = kind == .liveActivity || kind == .liveActivityStart
        }
        #expect((reason(notification(type, kind)) == "InvalidPushType") == !fits)
    }

    @Test("a background push is silent")
    func background() {
        var facts = object
        #expect(reason(notification(.background), facts) == "BadBackgroundBody")
        facts.isContentAvailable = true
        #expect(reason(notification(.background), facts) == "")
        for path in [\BodyFacts.hasAlert, \.hasSound, \.hasBadge] as [WritableKeyPath<BodyFacts, Bool>] {
            var loud = facts
            loud[keyPath: path] = true
            #expect(reason(notification(.background), loud) == "BadBackgroundBody")
        }
    }

    @Test("a Live Activity push has an event, a time and a state, and uses its event's token")
    func activities() {
        var facts = object
        let update = notification(.liveactivity, .liveActivity)
        let start = notification(.liveactivity, .liveActivityStart)
        #expect(reason(update, facts) == "BadActivityBody")
        (facts.event, facts.hasTimestamp) = ("update", true)
        #expect(reason(update, facts) == "BadActivityBody")
        facts.hasContentState = true
        #expect(reason(update, facts) == "" && reason(start, facts) == "BadActivityBody")
        facts.hasTimestamp = false
        #expect(reason(update, facts) == "BadActivityBody")
        (facts.event, facts.hasTimestamp, facts.hasContentState) = ("end", true, false)
        #expect(reason(update, facts) == "")
        (facts.event, facts.hasContentState) = ("start", true)
        #expect(reason(start, facts) == "BadActivityBody" && reason(update, facts) == "BadActivityBody")
        (facts.hasAttributesType, facts.hasAttributes) = (true, true)
        #expect(reason(start, facts) == "")
        facts.event = "pause"
        #expect(reason(update, facts) == "BadActivityBody")
    }
}

@Suite("Answers of APNs") struct AnswerTests {
    @Test("every documented reason has its action, and its status alone leads to a safe one")
    func reasons() {
        for reason in Reason.allCases {
            let answer = Answer(status: reason.status, reason: reason.rawValue)
            #expect(answer.action == reason.action && answer.name == reason.rawValue && !"\(reason.advice)".isEmpty)
            #expect(answer.action != .accept)
        }
        #expect(Answer(status: 200).action == .accept && Answer(status: 200).name == "")
        for (status, action) in [
            (400, .reject), (403, .restCredential), (410, .voidToken), (413, .reject), (429, .slowDownToken),
            (500, .retry), (503, .retry), (302, .retry), (0, .retry),
        ] as [(Int, Action)] {
            #expect(Answer(status: status, reason: "SomethingNew").action == action)
            #expect(Answer(status: status, reason: "SomethingNew").name == "SomethingNew")
            #expect(Answer(status: status).name == "status \(status)")
        }
        // Apple always sends a reason. Without one a proxy or another server may have answered.
        for status in [400, 404, 405, 407, 418, 421] { #expect(Answer(status: status).action == .retry) }
        #expect(Answer(status: 413).action == .reject && Answer(status: 410).action == .voidToken)
        #expect(Answer(status: 403).action == .restCredential)
    }

    @Test("a token that may belong to the other environment is tried there, and an unregistered one is not")
    func tokens() {
        #expect(Reason.badDeviceToken.action == .tryOtherEnvironment && Reason.unregistered.action == .voidToken)
        #expect(Environment.production.other == .sandbox && Environment.sandbox.other == .production)
    }
}

@Suite("Provider tokens") struct ProviderTokenTests {
    @Test("a token is header, claims and signature in base64url")
    func text() throws {
        let token = ProviderToken(keyID: "ABC123DEFG", teamID: "DEF123GHIJ", issuedAt: 1_437_179_036)
        let text = try #require(token.text { _ in [UInt8](repeating: 0xFB, count: 64) })
        let parts = text.utf8.split(separator: UInt8(ascii: "."))
        #expect(parts.count == 3)
        let header = try #require(Base64.decode(parts[0], .url))
        let claims = try #require(Base64.decode(parts[1], .url))
        #expect(String(decoding: header, as: UTF8.self) == #"{"alg":"ES256","kid":"ABC123DEFG","typ":"JWT"}"#)
        #expect(String(decoding: claims, as: UTF8.self) == #"{"iss":"DEF123GHIJ","iat":1437179036}"#)
        #expect(Base64.decode(parts[2], .url) == [UInt8](repeating: 0xFB, count: 64))
        #expect(token.text { _ in nil } == nil)
        #expect(ProviderToken.isIdentifier("ABC123DEFG") && !ProviderToken.isIdentifier("abc123defg"))
    }

    @Test("one token serves fifty minutes, and a refused one is replaced no sooner than Apple allows")
    func clock() {
        var clock = ProviderTokenClock()
        #expect(clock.mustRenew(now: 1_000))
        clock.renewed(at: 1_000, jitter: 1)
        #expect(!clock.mustRenew(now: 1_000 + 3_000) && clock.mustRenew(now: 1_000 + 3_120))
        clock.renewed(at: 5_000, jitter: -7)
        #expect(clock.mustRenew(now: 5_000 + 2_880) && !clock.mustRenew(now: 5_000 + 2_879))
        // The wall clock moved backwards.
        #expect(clock.mustRenew(now: 4_000))
        clock.refused()
        #expect(!clock.mustRenew(now: 5_100) && clock.restsUntil(now: 5_100) == 6_200)
        #expect(clock.mustRenew(now: 6_200) && clock.restsUntil(now: 6_200) == nil)
        clock.tooManyUpdates(now: 6_000)
        #expect(!clock.mustRenew(now: 7_199) && clock.mustRenew(now: 7_200))
        clock.renewed(at: 7_200, jitter: 0)
        #expect(clock.restsUntil(now: 7_201) == nil)
    }
}

@Suite("Memory of tokens") struct TokenMemoryTests {
    @Test("the memory has the right environment and the backoffs, within its bound")
    func memory() {
        var memory = TokenMemory(limit: 3)
        memory.belongs("a", to: .sandbox)
        #expect(memory.environment(of: "a", registered: .production) == .sandbox)
        #expect(memory.environment(of: "b", registered: .production) == .production)
        #expect(memory.tooMuch("b", now: 100, retryAfter: nil) == 1_000)
        #expect(memory.restsUntil("b", now: 1_099) == 1_100 && memory.restsUntil("b", now: 1_100) == nil)
        #expect(memory.tooMuch("b", now: 2_000, retryAfter: nil) == 2_000)
        #expect(memory.tooMuch("b", now: 2_000, retryAfter: 7) == 7_000)
        for _ in 0..<20 { _ = memory.tooMuch("b", now: 0, retryAfter: nil) }
        #expect(memory.tooMuch("b", now: 0, retryAfter: nil) == 300_000)
        memory.took("b")
        #expect(memory.count == 1 && memory.tooMuch("b", now: 0, retryAfter: nil) == 1_000)
        for index in 0..<1_000 {
            memory.belongs("\(index)", to: .sandbox)
            #expect(memory.count <= 3)
        }
        #expect(memory.environment(of: "999", registered: .production) == .sandbox)
        #expect(memory.environment(of: "a", registered: .production) == .production)
        for index in 0..<1_000 {
            _ = memory.tooMuch("t\(index % 2)", now: 0, retryAfter: nil)
            memory.took("t\(index % 2)")
        }
        #expect(memory.count <= 3)
    }
}
