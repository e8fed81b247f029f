import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Apps that are not served")
struct AppKnowledgeTests {
    private let harness = DeliveryHarness { $0.events = FeedLimits() }

    private func reload(isServed: Bool) {
        harness.apps[0].isServed = isServed
        harness.shard.reload(apps: harness.apps)
        harness.drain()
    }

    private func restart(_ apps: [AppSettings], knowsAllApps: Bool = true) {
        let all = harness.apps
        harness.apps = apps
        harness.crash()
        harness.shard.reload(apps: apps, knowsAllApps: knowsAllApps)
        harness.apps = all
        harness.drain()
        harness.advance(1)
    }

    private func due() -> (phone: Phone, message: MessageID) {
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        return (phone, harness.publish(phone, strategy: .vendorOnly).message)
    }

    @Test("jobs of a disabled app are leased with its topic, also after a restart")
    func disabledTopic() {
        let (_, message) = due()
        reload(isServed: false)
        restart(harness.apps)
        let jobs = harness.lease()
        #expect(jobs.map(\.message) == [message] && jobs.map(\.topic) == ["com.example.app"])
    }

    @Test(
        "jobs of an unknown app stay until its settings arrive or their messages end",
        arguments: [true, false])
    func unlistedJobs(knowsAllApps: Bool) {
        let (_, message) = due()
        restart([harness.apps[1]], knowsAllApps: knowsAllApps)
        #expect(harness.lease().isEmpty && !harness.hasDueJobs)
        #expect(harness.finalState(message) == nil)
        let told = harness.jobsAvailable
        harness.shard.reload(apps: harness.apps)
        harness.drain()
        #expect(harness.jobsAvailable == told + 1 && harness.hasDueJobs)
        #expect(harness.lease().map(\.topic) == ["com.example.app"])
    }

    @Test("no number of leases ends a job of an unknown app")
    func attemptsOfUnknownApp() {
        harness.apps[0].maxAttempts = 9
        harness.shard.reload(apps: harness.apps)
        let (_, message) = due()
        for _ in 0..<6 {
            #expect(harness.lease(milliseconds: 1_000).map(\.message) == [message])
            harness.advance(1_500)
        }
        #expect(harness.lease(milliseconds: 1_000).map(\.message) == [message])
        restart([harness.apps[1]], knowsAllApps: false)
        harness.advance(2_000)
        #expect(harness.finalState(message) == nil)
        harness.shard.reload(apps: harness.apps)
        #expect(harness.lease().map(\.attempt) == [8])
    }

    @Test("a job whose last lease expired while its app was unknown is not leased again")
    func lastAttemptOfUnknownApp() {
        harness.apps[0].maxAttempts = 2
        harness.shard.reload(apps: harness.apps)
        let (_, message) = due()
        #expect(harness.lease(milliseconds: 1_000).map(\.message) == [message])
        harness.advance(1_500)
        #expect(harness.lease(milliseconds: 1_000).map(\.attempt) == [2])
        restart([harness.apps[1]], knowsAllApps: false)
        harness.advance(2_000)
        #expect(harness.finalState(message) == nil)
        harness.shard.reload(apps: harness.apps)
        #expect(harness.lease().isEmpty)
        #expect(harness.finalState(message) == .failed)
    }

    @Test("a publish of an unknown or just deleted app is refused as retryable")
    func publish() {
        let phone = harness.register()
        reload(isServed: false)
        #expect(harness.publish(phone).code == .busy)
        harness.shard.reload(apps: [harness.apps[1]], knowsAllApps: false)
        #expect(harness.publish(phone).code == .busy)
        harness.shard.reload(apps: [harness.apps[1]])
        #expect(harness.publish(phone).code == .busy)
        reload(isServed: true)
        #expect(harness.publish(phone).code == .accepted)
    }

    @Test("a device of an unknown app retries in a moment, one of a disabled app in minutes")
    func hello() {
        var phone = harness.register()
        harness.disconnect(phone)
        reload(isServed: false)
        harness.connect(&phone)
        #expect(harness.closes.last?.code == .appDisabled)
        for knowsAll in [false, true] {
            harness.shard.reload(apps: [harness.apps[1]], knowsAllApps: knowsAll)
            harness.connect(&phone)
            #expect(harness.closes.last?.code == .moved)
        }
        let welcomes = harness.welcomes.count
        reload(isServed: true)
        harness.connect(&phone)
        #expect(harness.welcomes.count == welcomes + 1)
    }

    @Test("a receipt of an unknown app is refused as retryable")
    func receipt() {
        let (phone, message) = due()
        harness.shard.reload(apps: [harness.apps[1]], knowsAllApps: false)
        let shown = ReceiptEvent(kind: .shown, message: message, at: 0)
        #expect(harness.receipt(phone, [shown]) == .busy)
    }

    /// Forwards all events to their feed, as the gateway does; `lost` is the gap that the feed reports.
    private func takeEvents() -> (kinds: [FeedItem.Kind], lost: UInt64) {
        var taken: (kinds: [FeedItem.Kind], lost: UInt64) = ([], 0)
        // Enough calls for the sweep to pass all buckets.
        for _ in 0..<300 {
            let batches = harness.shard.takeEvents(LoopShare(index: 0, count: 1), now: harness.now)
            harness.flush()
            for batch in batches { harness.shard.eventsTold(batch, isTold: true, now: harness.now) }
            harness.flush()
            taken.kinds += batches.flatMap(\.items).map(\.kind)
            taken.lost += batches.reduce(0) { $0 + $1.lost }
        }
        return taken
    }

    @Test("events of a disabled app are stored and reported")
    func disabledEvents() {
        let (_, message) = due()
        reload(isServed: false)
        restart(harness.apps)
        harness.advance(7_200_000)
        #expect(harness.finalState(message) == .expired)
        let (kinds, lost) = takeEvents()
        #expect(kinds == [.online, .offline, .expired] && lost == 0)
    }

    @Test("events written while the app was unknown are counted, and its feed reports the gap")
    func unknownEvents() {
        let (_, message) = due()
        _ = takeEvents()
        restart([harness.apps[1]], knowsAllApps: false)
        harness.advance(7_200_000)
        #expect(harness.finalState(message) == .expired && harness.statistics.eventsLost == 0)
        harness.shard.reload(apps: harness.apps)
        let (kinds, lost) = takeEvents()
        #expect(kinds.isEmpty && lost == 1 && harness.statistics.eventsLost == 1)
    }
}
