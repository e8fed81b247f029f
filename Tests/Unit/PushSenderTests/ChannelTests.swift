import APNs
import EventLoops
import Platform
import Testing

@testable import PushSender
@testable import FakeAPNs

@Suite("Channels of Live Activities", .serialized) struct ChannelTests {
    private static let body = Array(#"{"aps":{"timestamp":1,"event":"update","content-state":{}}}"#.utf8)

    private func text(_ report: ChannelReport) -> String { String(decoding: report.body, as: UTF8.self) }

    private func made(_ rig: Rig, _ storage: ChannelStorage = .none) throws -> String {
        let report = rig.call(.create(storage))
        #expect(report.status == 201)
        return try #require(text(report).split(separator: "\"").dropFirst(3).first.map { String($0) })
    }

    private func broadcast(_ channel: String, expiration: Int64 = 0, priority: Int = 10) -> ChannelRequest.Call {
        .broadcast(
            Broadcast(channelID: channel, expiration: expiration, priority: priority, body: ChannelTests.body))
    }

    @Test("a channel is created, listed, read, broadcast on and deleted, over one connection to each Apple host")
    func life() throws {
        let rig = try Rig()
        let (first, second) = (try made(rig), try made(rig, .last))
        #expect(first != second)
        let list = rig.call(.list)
        #expect(list.status == 200 && text(list).contains(first) && text(list).contains(second))
        #expect(text(rig.call(.read(first))).contains("\"storage\":\"none\""))
        #expect(text(rig.call(.read(second))).contains("\"storage\":\"last\""))
        let sent = rig.call(broadcast(second, expiration: 2_000_000_000, priority: 5))
        #expect(sent.status == 200 && text(sent).contains("uniqueId"))
        let record = try #require(rig.records.last)
        for part in [
            "\"path\":\"/4/broadcasts/apps/com.example.app\"", "\"channelId\":\"\(second)\"",
            "\"pushType\":\"liveactivity\"", "\"priority\":\"5\"", "\"expiration\":\"2000000000\"",
            "\"event\":\"update\"", "\"taken\":true",
        ] {
            #expect(record.contains(part), "\(record)")
        }
        #expect(rig.call(.delete(first)).status == 200)
        #expect(
            text(rig.call(.list))
                == "{\"requestId\":\"00000000-0000-4000-8000-000000000008\",\"channels\":[\"\(second)\"]}")
        #expect(rig.production.connectionsTaken == 2)
        // The other environment has separate channels.
        #expect(text(rig.call(.read(second), environment: .sandbox)).contains("ChannelNotRegistered"))
    }

    @Test("Apple's refusals are returned with their reason and advice")
    func refusals() throws {
        let rig = try Rig()
        let channel = try made(rig)
        let stranger = rig.call(.read("AAAA"))
        #expect(stranger.status == 400 && text(stranger).contains("ChannelNotRegistered"))
        #expect(text(stranger).contains("it was deleted"))
        // A channel without storage allows no expiration.
        #expect(text(rig.call(broadcast(channel, expiration: 5))).contains("BadExpirationDate"))
        let other = try Rig(topics: ["com.example.other"])
        let refused = other.call(.list)
        #expect(refused.status == 502 && text(refused).contains("TopicDisallowed"))
    }

    @Test("a request that violates Apple's rules is not sent")
    func rules() throws {
        let rig = try Rig()
        for (call, reason) in [
            (.read(""), "MissingChannelId"), (.delete("a b"), "BadChannelId"), (.read("AAA"), "BadChannelId"),
            (broadcast("AAAA", priority: 7), "BadPriority"), (broadcast("AAAA", expiration: -1), "BadExpirationDate"),
        ] as [(ChannelRequest.Call, String)] {
            let report = rig.call(call)
            #expect(report.status == 400 && text(report).contains(reason), "\(text(report))")
        }
        #expect(text(rig.call(broadcast("AAAA"), event: "start")).contains("BadRequestPayload"))
        for topic in ["", "a/b", "com.example.app.push-type.liveactivity"] {
            #expect(text(rig.call(.list, topic: topic)).contains("TopicDisallowed"))
        }
        #expect(rig.production.requestCount == 0)
    }

    @Test("without an answer the caller learns whether Apple may have received the request")
    func unanswered() throws {
        var script = FakeScript()
        script.silentConnections = 1
        let rig = try Rig(scripts: [.production: script])
        let report = rig.call(.list)
        #expect(report.status == 503 && text(report).contains("not reached in time"))
        let none = try Rig(environments: [.sandbox])
        #expect(none.call(.list).status == 503)
    }

    @Test("the number of waiting requests is bounded")
    func bounded() throws {
        var script = FakeScript()
        script.silentConnections = 1
        let rig = try Rig(scripts: [.production: script])
        var outcomes: [ChannelOutcome] = []
        for _ in 0..<30 {
            rig.channels.perform(ChannelRequest(topic: "a", call: .list), appID: "app", .production) {
                outcomes.append($0)
            }
        }
        #expect(outcomes.count == 10 && rig.channels.callCount == 20)
        rig.run { outcomes.count == 30 }
        #expect(rig.channels.callCount == 0 && rig.channels.metrics.results["list"]?[.unsent] == 30)
    }

    @Test("requests are counted by call and result, refusals by reason; a stopping sender accepts none")
    func counted() throws {
        let rig = try Rig()
        let channel = try made(rig)
        _ = rig.call(.read("AAAA"))
        #expect(rig.channels.metrics.results == ["create": [.done: 1], "read": [.refused: 1]])
        #expect(rig.channels.metrics.refusals == ["ChannelNotRegistered": 1])
        let link = try GatewayLink(
            GatewayLink.Settings(url: "http://127.0.0.1:1"), token: { "token" }, log: { _, _ in })
        let senders = SenderProgram.Senders(
            apple: rig.sender, channels: rig.channels, vendors: [], transports: [],
            intake: JobIntake([(sender: rig.sender, link: link)]), links: [(channel: .apns, link: link)])
        let page = String(
            decoding: SenderPages.metrics(senders, CertificateEnds(warning: 1), now: rig.loop.now), as: UTF8.self)
        #expect(page.contains("longwire_sender_channel_requests_total{call=\"create\",result=\"done\"} 1\n"))
        #expect(page.contains("longwire_sender_channel_refusals_total{reason=\"ChannelNotRegistered\"} 1\n"))
        rig.sender.beginStop()
        #expect(rig.call(.read(channel)).status == 503)
        #expect(rig.channels.metrics.results["read"]?[.unsent] == 1)
    }

    @Test("an expired provider token is also detected by a channel request, and signed anew")
    func expiredProviderToken() throws {
        // Apple's clock is ahead: a token that is 25 minutes old here is more than an hour old there.
        var script = FakeScript()
        script.clockSeconds = 40 * 60
        let rig = try Rig(scripts: [.production: script])
        rig.clockError = -25 * 60_000
        #expect(rig.call(.list).status == 502)
        rig.clockError = 0
        #expect(rig.call(.list).status == 200)
    }

    @Test("a channel request is parsed strictly")
    func wishes() throws {
        let wish = try ChannelOrder(
            broadcast: Array(
                #"{"topic":"a.b","environment":"sandbox","appId":"x","channelId":"AAAA","priority":5,"body":{"aps":{}}}"#
                    .utf8))
        #expect(wish.environment == .sandbox && wish.appID == "x" && wish.facts.hasAps)
        let query = try ChannelOrder(query: "topic=a.b&channelId=%2B%2fA%3D", deletes: true)
        #expect(query.request == ChannelRequest(topic: "a.b", call: .delete("+/A=")))
        for text in ["", "[]", #"{"body":{},"x":1}"#, #"{"topic":1,"body":{}}"#, #"{"topic":"a"}"#] {
            #expect(throws: ChannelOrder.Fault.self) { try ChannelOrder(broadcast: Array(text.utf8)) }
        }
        for text in ["topic", "topic=%2", "topic=%+1", "a=b", "environment=x"] {
            #expect(throws: ChannelOrder.Fault.self) { try ChannelOrder(query: text, deletes: false) }
        }
    }
}
