import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Reachability and the fallback deadline") struct ReachabilityTests {
    @Test("a message for a reachable device is sent once it is committed, and its job is only armed")
    func liveAfterCommit() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let request = harness.submit(phone, "hello")
        #expect(harness.outcomes[request] == nil)
        #expect(harness.delivered.isEmpty)
        harness.flush()
        #expect(harness.outcomes[request]?.isLive == true)
        #expect(harness.outcomes[request]?.fallback == .armed)
        #expect(harness.delivered.map(\.payload) == ["hello"])
        #expect(harness.delivered.first?.isOffline == false)
        #expect(harness.lease().isEmpty)
    }

    @Test("an unacked message's job is due after 10 s, or 3 s for a background app that keeps running")
    func deadlines() {
        for (state, milliseconds) in [(.foreground, 10_000), (.background, 3_000)] as [(ApplicationState, Int64)] {
            let harness = DeliveryHarness()
            var phone = harness.register(token: "aa")
            harness.connect(&phone, state: state) {
                $0.keepsRunning = true
            }
            let outcome = harness.publish(phone)
            #expect(outcome.isLive)
            harness.advance(milliseconds - 1)
            #expect(!harness.hasDueJobs)
            harness.advance(1)
            #expect(harness.hasDueJobs)
            #expect(harness.jobsAvailable == 1)
            #expect(harness.lease().map(\.message) == [outcome.message])
        }
    }

    @Test("a short TTL moves the deadline to one second before expiry")
    func shortTimeToLive() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        _ = harness.publish(phone, timeToLive: 5_000)
        harness.acknowledge(phone, 0)
        harness.disconnect(phone, announced: false)
        #expect(harness.lease().isEmpty)
        // The device is connected and sends nothing: its message goes to the vendor a second before its expiry.
        let other = harness.register(token: "bb")
        let silent = harness.publish(other, timeToLive: 5_000).message
        harness.advance(3_999)
        #expect(!harness.lease().map(\.message).contains(silent))
        harness.advance(1)
        #expect(harness.lease().map(\.message) == [silent])
    }

    @Test("a background app without keepsRunning counts as offline: queued, flagged, job due at once")
    func backgroundIsOffline() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone)
        #expect(!outcome.isLive)
        #expect(outcome.fallback == .due)
        #expect(harness.delivered.isEmpty)
        #expect(harness.lease().count == 1)
        harness.become(.foreground, phone)
        #expect(harness.delivered.map(\.isOffline) == [true])
    }

    @Test("a disconnect makes unacked messages' jobs due", arguments: [ApplicationState.background, .terminated])
    func leaving(state: ApplicationState) {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let outcomes = (0..<3).map { harness.publish(phone, "\($0)") }
        harness.acknowledge(phone, 1)
        harness.become(state, phone)
        #expect(Set(harness.lease().map(\.message)) == Set(outcomes.dropFirst().map(\.message)))
    }

    @Test("an announced close makes jobs due at once, an unannounced one two seconds later")
    func closes() {
        for (announced, delay) in [(true, 0), (false, 2_000)] as [(Bool, Int64)] {
            let harness = DeliveryHarness()
            let phone = harness.register(token: "aa")
            _ = harness.publish(phone)
            harness.disconnect(phone, announced: announced)
            if delay > 0 {
                harness.advance(delay - 1)
                #expect(harness.lease().isEmpty)
                harness.advance(1)
            }
            #expect(harness.lease().count == 1)
        }
    }

    @Test("a device that reconnects within two seconds gets the message again, and no job is leased")
    func quickReturn() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        _ = harness.publish(phone)
        harness.disconnect(phone, announced: false)
        harness.advance(500)
        harness.connect(&phone)
        #expect(harness.delivered.map(\.isOffline) == [false, false])
        #expect(harness.delivered.map(\.attempt) == [1, 1])
        harness.advance(2_000)
        #expect(harness.lease().isEmpty)
        harness.acknowledge(phone, 1)
        #expect(harness.statistics.ended(.delivered) == 1)
    }

    @Test("while a device is reachable its unleased jobs are held, and they are due again when it disconnects")
    func holding() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        _ = harness.publish(phone)
        #expect(harness.hasDueJobs)
        harness.connect(&phone)
        #expect(!harness.hasDueJobs)
        #expect(harness.lease().isEmpty)
        harness.become(.background, phone)
        #expect(harness.lease().count == 1)
    }

    @Test("holding is memory only: after a crash the job is leased")
    func holdingIsForgotten() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        _ = harness.publish(phone)
        harness.connect(&phone)
        harness.crash()
        harness.advance(1)
        #expect(harness.lease().count == 1)
    }

    @Test("a missed ack makes the session suspect: Ping, unreachable, and closed after 10 s of silence")
    func suspect() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        _ = harness.publish(phone)
        harness.advance(10_000)
        #expect(harness.pings == [phone.session])
        #expect(harness.status(phone)?.isReachable == false)
        let second = harness.publish(phone, "second")
        #expect(!second.isLive)
        #expect(harness.delivered.count == 1)
        harness.advance(10_000)
        harness.advance(64)
        #expect(harness.closes.map(\.code) == [.suspectTimeout])
    }

    @Test("any frame ends the suspicion, and jobs are held again except the overdue message's")
    func suspicionCleared() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let overdue = harness.publish(phone)
        harness.advance(10_000)
        _ = harness.publish(phone, "second")
        harness.shard.heard(phone.session, now: harness.now)
        harness.flush()
        #expect(harness.delivered.map(\.payload) == ["p", "second"])
        #expect(harness.lease().map(\.message) == [overdue.message])
        harness.advance(11_000)
        #expect(!harness.closes.contains { $0.code == .suspectTimeout })
    }

    @Test("after the result of a DeviceUpdate unacked messages are sent again, with new flags")
    func resendAfterUpdate() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        _ = harness.publish(phone, "one")
        harness.become(.background, phone)
        #expect(harness.takeDelivered().map(\.isOffline) == [false])
        harness.order.removeAll()
        harness.become(.foreground, phone)
        #expect(harness.order == ["updated", "deliver"])
        #expect(harness.delivered.map(\.isOffline) == [true])
        #expect(harness.delivered.map(\.attempt) == [3])
    }

    @Test("without token or vendor content the message waits, and the result has the reason")
    func noFallback() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background)
        let withoutToken = harness.publish(phone)
        #expect(withoutToken.fallback == .none)
        #expect(withoutToken.fallbackReason == .noToken)
        let withoutContent = harness.publish(phone, vendor: false)
        #expect(withoutContent.fallbackReason == .noContent)
        #expect(harness.publish(phone, strategy: .liveOnly).fallbackReason == .strategy)
        #expect(harness.lease().isEmpty)
        harness.become(.foreground, phone)
        #expect(harness.delivered.count == 3)
    }

    @Test("silence for one and a half heartbeats closes the session, and any frame keeps it")
    func heartbeat() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.connect(&phone) { $0.heartbeatSeconds = 40 }
        #expect(harness.welcomes.last?.welcome.heartbeatSeconds == 40)
        harness.advance(50_000)
        harness.shard.heard(phone.session, now: harness.now)
        harness.advance(59_000)
        #expect(!harness.closes.contains { $0.code == .heartbeatTimeout })
        harness.advance(1_100)
        #expect(harness.closes.last?.code == .heartbeatTimeout)
    }

    @Test("after a stall of the gateway each session gets a new period, including suspect ones")
    func standstill() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.connect(&phone) { $0.heartbeatSeconds = 40 }
        var suspect = harness.register()
        harness.connect(&suspect) { $0.heartbeatSeconds = 40 }
        _ = harness.publish(suspect)
        while harness.pings.isEmpty { harness.advance(1_000) }
        let (closeCount, stopped) = (harness.closes.count, harness.now)
        // The loop processes input before any timer.
        harness.shard.stoodStill(now: stopped + 70_000)
        harness.advance(70_000)
        #expect(harness.closes.count == closeCount)
        harness.advance(60_100)
        #expect(harness.closes.suffix(2).map(\.code).contains(.heartbeatTimeout))
        #expect(harness.closes.map(\.code).contains(.suspectTimeout))
    }

    @Test(
        "a requested heartbeat is limited to its range",
        arguments: [(1, 30), (5_000, 1_800), (0, 300)] as [(UInt32, UInt32)])
    func heartbeatRange(wish: UInt32, effective: UInt32) {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.connect(&phone) { $0.heartbeatSeconds = wish }
        #expect(harness.welcomes.last?.welcome.heartbeatSeconds == effective)
    }

    @Test("push mode off queues messages and sends none until it is on")
    func pushModeOff() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        harness.update(phone) { $0.pushModeOff = true }
        let outcome = harness.publish(phone)
        #expect(outcome.code == .accepted && !outcome.isLive && outcome.fallbackReason == .pushModeOff)
        harness.disconnect(phone)
        #expect(harness.lease().isEmpty)
        var back = phone
        harness.connect(&back)
        #expect(harness.delivered.isEmpty)
        harness.update(back) { $0.pushModeOff = false }
        #expect(harness.delivered.count == 1)
    }

    @Test("the last login is the last Hello, whatever frames followed, also after a crash")
    func lastLogin() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        let registered = harness.now
        harness.advance(5_000)
        harness.connect(&phone)
        let login = harness.now
        harness.advance(60_000)
        _ = harness.shard.heard(phone.session, now: harness.now)
        #expect(harness.status(phone)?.lastLoginAt == login && login > registered)
        #expect(harness.status(phone)?.lastSeenAt == harness.now)
        harness.disconnect(phone)
        harness.crash()
        #expect(harness.status(phone)?.lastLoginAt == login)
    }

    @Test("connected devices are counted by app incrementally")
    func connectedCounts() {
        let harness = DeliveryHarness()
        var phones = (0..<3).map { _ in harness.register() }
        #expect(harness.ask(OnlineQuery()) == [DeliveryHarness.app: 3])
        // A second session takes the place of the first.
        harness.connect(&phones[0])
        #expect(harness.ask(OnlineQuery()) == [DeliveryHarness.app: 3])
        for phone in phones { harness.disconnect(phone) }
        harness.disconnect(phones[0])
        #expect(harness.ask(OnlineQuery()) == [:])
    }
}
