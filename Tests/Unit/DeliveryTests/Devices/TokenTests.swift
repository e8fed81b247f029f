import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Vendor tokens")
struct TokenTests {
    private let harness = DeliveryHarness()

    private func quarantined(_ phone: Phone) -> [String] {
        (harness.status(phone)?.tokens ?? []).filter(\.isQuarantined).map(\.token)
    }

    private func kept(_ phone: Phone) -> [String] { (harness.status(phone)?.tokens ?? []).map(\.token) }

    @Test("a Hello with the same token keeps its quarantine, and an update with it ends the quarantine")
    func quarantine() throws {
        var phone = harness.register(state: .background, token: "aa")
        _ = harness.publish(phone)
        harness.settle(try #require(harness.lease().first), .badToken, timestamp: harness.now)
        #expect(quarantined(phone) == ["aa"])
        for _ in 0..<2 {
            harness.connect(&phone, state: .background) { $0.tokens = [VendorToken(token: "aa")] }
            #expect(quarantined(phone) == ["aa"])
            #expect(harness.publish(phone).fallbackReason == .noToken)
            harness.crash()
        }
        harness.connect(&phone, state: .background) { $0.tokens = [VendorToken(token: "aa")] }
        harness.update(phone) { $0.tokens = [VendorToken(token: "aa")] }
        #expect(quarantined(phone).isEmpty && harness.publish(phone).fallback == .due)
    }

    @Test("a Hello with a quarantined token for another environment keeps the quarantine")
    func otherEnvironment() throws {
        var phone = harness.register(state: .background, token: "aa")
        _ = harness.publish(phone)
        let job = try #require(harness.lease().first)
        let vendorTime = harness.now
        harness.advance(1_000)
        // The token is not invalid yet, and its registration time is unchanged.
        harness.connect(&phone, state: .background) { $0.tokens = [VendorToken(environment: .sandbox, token: "aa")] }
        harness.settle(job, .badToken, timestamp: vendorTime)
        #expect(quarantined(phone) == ["aa"])
        for environment: VendorToken.Environment in [.production, .sandbox, .production] {
            harness.connect(&phone, state: .background) {
                $0.tokens = [VendorToken(environment: environment, token: "aa")]
            }
            #expect(quarantined(phone) == ["aa"] && kept(phone) == ["aa"])
            harness.crash()
        }
        // The vendor's report concerned this topic.
        harness.connect(&phone, state: .background) { $0.tokens = [VendorToken(topic: "com.example.b", token: "aa")] }
        #expect(quarantined(phone).isEmpty)
    }

    @Test("a quarantined token for starting activities stays so when a Hello has it for another type")
    func otherActivity() throws {
        var phone = harness.register(state: .background)
        func start(_ type: String) -> VendorToken {
            VendorToken(kind: .liveActivityStart, token: "s", activity: type)
        }
        harness.update(phone) { $0.tokens = [start("Ride")] }
        _ = harness.publish(phone, kind: .liveActivityStart, activity: "Ride")
        harness.settle(try #require(harness.lease().first), .badToken)
        harness.connect(&phone, state: .background) { $0.tokens = [start("Ride"), start("Meal")] }
        #expect(quarantined(phone) == ["s", "s"])
        harness.update(phone) { $0.tokens = [start("Ride"), start("Meal")] }
        #expect(quarantined(phone).isEmpty)
    }

    @Test("a new token only replaces its predecessor")
    func newToken() throws {
        var phone = harness.register(state: .background, token: "aa")
        _ = harness.publish(phone)
        harness.settle(try #require(harness.lease().first), .badToken)
        harness.connect(&phone, state: .background) { $0.tokens = [VendorToken(token: "bb")] }
        #expect(kept(phone) == ["bb"] && quarantined(phone).isEmpty)
    }

    @Test("a Hello with the same token does not renew its registration time")
    func helloIsNoRegistration() throws {
        var phone = harness.register(state: .background, token: "aa")
        _ = harness.publish(phone)
        let job = try #require(harness.lease().first)
        let vendorTime = harness.now
        harness.advance(1_000)
        harness.connect(&phone, state: .background) { $0.tokens = [VendorToken(token: "aa")] }
        harness.settle(job, .badToken, timestamp: vendorTime)
        #expect(quarantined(phone) == ["aa"])
    }

    @Test("a device has a token per kind, environment and topic, at most sixteen; the newest of a kind is used")
    func many() throws {
        let phone = harness.register(state: .background)
        harness.update(phone) {
            $0.tokens = [
                VendorToken(environment: .production, topic: "com.example.app", token: "aa"),
                VendorToken(environment: .sandbox, topic: "com.example.app", token: "bb"),
                VendorToken(kind: .voip, topic: "com.example.app", token: "cc"),
            ]
        }
        #expect(kept(phone) == ["aa", "bb", "cc"])
        _ = harness.publish(phone)
        let job = try #require(harness.lease().first)
        #expect(job.token == "bb" && job.environment == .sandbox)
        harness.settle(job, .badToken)
        #expect(harness.lease().map(\.token) == ["aa"], "the other one is good, as far as is known")
        harness.update(phone) { update in
            update.tokens = (0..<16).map { VendorToken(topic: "com.example.t\($0)", token: "t\($0)") }
        }
        // Quarantined tokens are evicted first, then the oldest.
        #expect(kept(phone) == (0..<16).map { "t\($0)" })
        harness.update(phone) { $0.tokens = [VendorToken(topic: "com.example.t3", token: "u3")] }
        #expect(kept(phone).count == 16 && kept(phone).last == "u3" && !kept(phone).contains("t3"))
        harness.update(phone) { $0.tokens = [VendorToken(topic: "com.example.new", token: "u3")] }
        #expect(kept(phone).filter { $0 == "u3" }.count == 1, "one token under two topics is one")
        harness.update(phone) { $0.tokens = [VendorToken(token: "")] }
        #expect(kept(phone).isEmpty)
    }

    @Test("in an app without a topic only tokens with a topic count")
    func topics() throws {
        func reload(topic: String) {
            harness.apps[0].apnsTopic = topic
            harness.shard.reload(apps: harness.apps)
            harness.drain()
        }
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        reload(topic: "")
        #expect(harness.publish(phone).fallbackReason == .noToken && !harness.hasDueJobs)
        #expect(harness.publish(phone, strategy: .vendorOnly).code == .noToken)
        #expect(harness.status(phone)?.appHasTopic == false)
        var other = harness.register()
        harness.update(other) {
            $0.tokens = [VendorToken(topic: "com.example.own", token: "bb"), VendorToken(token: "cc")]
        }
        harness.disconnect(other)
        harness.letTimePass(5_000)
        let outcome = harness.publish(other)
        #expect(outcome.fallbackReason == .applies)
        let job = try #require(harness.lease().first)
        #expect(job.message == outcome.message && job.token == "bb" && job.topic == "com.example.own")
        reload(topic: "com.example.app")
        #expect(harness.publish(phone).fallbackReason == .applies)
        // An accepted message ends when the app has lost the topic that it needs.
        reload(topic: "")
        #expect(harness.lease().isEmpty && !harness.hasDueJobs)
        harness.connect(&other)
    }

    @Test("a Live Activity's push uses its activity's token, or one without an activity, never another's")
    func activities() throws {
        var phone = harness.register(state: .background, token: "alert")
        func activity(_ name: String, _ token: String) -> VendorToken {
            VendorToken(kind: .liveActivity, token: token, activity: name)
        }
        func leased(_ name: String, kind: TokenKind = .liveActivity) -> String? {
            _ = harness.publish(phone, kind: kind, activity: name)
            let job = harness.lease().first
            if let job { harness.settle(job, .accepted) }
            return job?.token
        }
        harness.update(phone) { $0.tokens = [activity("ride", "r1"), activity("meal", "m1")] }
        #expect(leased("ride") == "r1" && leased("meal") == "m1")
        #expect(harness.publish(phone, kind: .liveActivity, activity: "game").fallbackReason == .noToken)
        harness.update(phone) { $0.tokens = [activity("", "old")] }
        #expect(leased("game") == "old" && leased("ride") == "r1", "as a client without names registers it")
        harness.update(phone) { $0.tokens = [activity("ride", "r2")] }
        #expect(leased("ride") == "r2" && kept(phone) == ["alert", "m1", "old", "r2"])
        // An invalid token of one activity does not affect the others, also after a crash.
        _ = harness.publish(phone, kind: .liveActivity, activity: "ride")
        harness.settle(try #require(harness.lease().first), .badToken)
        harness.crash()
        harness.connect(&phone, state: .background)
        #expect(quarantined(phone) == ["r2"] && leased("meal") == "m1" && leased("ride") == "old")
        // The end of an activity removes only its token.
        harness.update(phone) { $0.tokens = [activity("meal", "")] }
        #expect(kept(phone) == ["alert", "old", "r2"])
        // One token may start activities of several types, and is invalid for all of them.
        harness.update(phone) {
            $0.tokens = ["Ride", "Meal"].map { VendorToken(kind: .liveActivityStart, token: "s", activity: $0) }
        }
        #expect(leased("Meal", kind: .liveActivityStart) == "s" && leased("Ride", kind: .liveActivityStart) == "s")
        #expect(harness.publish(phone, kind: .liveActivityStart, activity: "Game").fallbackReason == .noToken)
        _ = harness.publish(phone, kind: .liveActivityStart, activity: "Ride")
        harness.settle(try #require(harness.lease().first), .badToken)
        #expect(quarantined(phone) == ["r2", "s", "s"])
        harness.update(phone) { $0.tokens = [activity("", "")] }
        #expect(kept(phone) == ["alert", "s", "s"], "without an activity an empty token removes all of its kind")
    }

    @Test("eight activities have tokens, and none of them displaces an app's own token")
    func manyActivities() {
        let phone = harness.register(state: .background, token: "alert")
        for number in 0..<40 {
            harness.update(phone) {
                $0.tokens = [VendorToken(kind: .liveActivity, token: "t\(number)", activity: "a\(number)")]
            }
        }
        #expect(kept(phone) == ["alert"] + (32..<40).map { "t\($0)" })
        harness.update(phone) { $0.tokens = (0..<15).map { VendorToken(topic: "com.example.t\($0)", token: "u\($0)") } }
        #expect(
            kept(phone) == ["alert"] + (0..<15).map { "u\($0)" }, "tokens that stay for long make no room for these")
        harness.update(phone) { $0.tokens = [VendorToken(kind: .liveActivity, token: "t", activity: "a")] }
        #expect(kept(phone) == (0..<15).map { "u\($0)" } + ["t"])
    }

    @Test("a frame may contain as many tokens as a device may have")
    func oneBound() {
        #expect(Delivery.Limits.tokensPerDevice == Wire.Limits.tokenCount)
        #expect(Wire.Limits.topicByteCount <= UInt8.max, "a device's row has one byte for its length")
        #expect(Wire.Limits.activityByteCount <= UInt8.max && Wire.Limits.activityTokenCount < Wire.Limits.tokenCount)
        #expect(VendorChannel.allCases.allSatisfy { $0.rawValue < 16 }, "rows have four bits for a channel")
        #expect(TokenKind.allCases.allSatisfy { $0.rawValue < 16 }, "and four for a kind")
    }
}
