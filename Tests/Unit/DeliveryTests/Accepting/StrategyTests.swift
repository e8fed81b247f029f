import Delivery
import TestKit
import Testing
import Wire

@Suite("Strategies, TTL, collapse and overflow") struct StrategyTests {
    @Test("1 ends at its TTL as handedOff if the vendor accepted, otherwise as expired", arguments: [true, false])
    func firstStrategyAtExpiry(accepted: Bool) {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone, timeToLive: 60_000)
        if accepted { harness.settle(harness.lease()[0], .accepted) }
        harness.advance(59_999)
        #expect(harness.finalState(outcome.message) == nil)
        harness.advance(1)
        #expect(harness.finalState(outcome.message) == (accepted ? .handedOff : .expired))
        #expect(harness.imbalance() == nil)
    }

    @Test("1 ends in the same way after a crash, by the store's alarms", arguments: [true, false])
    func expiryAfterCrash(accepted: Bool) {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone, timeToLive: 60_000)
        if accepted { harness.settle(harness.lease()[0], .accepted) }
        harness.crash()
        harness.advance(60_001)
        #expect(harness.finalState(outcome.message) == (accepted ? .handedOff : .expired))
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("a fallback deadline survives a crash")
    func armedJobSurvives() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        harness.crash()
        harness.advance(9_999)
        #expect(harness.lease().isEmpty)
        harness.advance(1)
        #expect(harness.lease().map(\.message) == [outcome.message])
    }

    @Test("2 ends as handedOff when accepted, failed when rejected, expired at its TTL, and is never live")
    func vendorOnly() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let first = harness.publish(phone, "a", strategy: .vendorOnly)
        let second = harness.publish(phone, "b", strategy: .vendorOnly)
        let third = harness.publish(phone, "c", strategy: .vendorOnly, timeToLive: 30_000)
        #expect(harness.delivered.isEmpty)
        let jobs = harness.lease(2)
        harness.settle(jobs[0], .accepted)
        harness.settle(jobs[1], .rejected, reason: "BadTopic")
        harness.advance(30_000)
        #expect(harness.finalState(first.message) == .handedOff)
        #expect(harness.trace(second.message)?.finalReason == "BadTopic")
        #expect(harness.finalState(second.message) == .failed)
        #expect(harness.finalState(third.message) == .expired)
        #expect(harness.imbalance() == nil)
    }

    @Test("2 and 4 without a usable token are refused singly and fail in a list")
    func noToken() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        for strategy in [Strategy.vendorOnly, .vendorElseLive] {
            #expect(harness.publish(phone, strategy: strategy).code == .noToken)
            let inList = harness.publish(phone, strategy: strategy, isBulk: true)
            #expect(inList.code == .accepted)
            #expect(harness.trace(inList.message)?.finalReason == "noToken")
        }
        #expect(harness.imbalance() == nil)
    }

    @Test("3 is live only and has no job")
    func liveOnly() {
        let harness = DeliveryHarness()
        var phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone, strategy: .liveOnly, timeToLive: 60_000)
        #expect(outcome.fallback == .none)
        #expect(harness.lease().isEmpty)
        harness.connect(&phone)
        #expect(harness.delivered.map(\.isOffline) == [true])
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
    }

    @Test(
        "4 is handedOff when accepted, and goes live with the flag if rejected, exhausted or unleased for 30 s",
        arguments: ["accepted", "rejected", "exhausted", "unleased"])
    func vendorElseLive(way: String) {
        let harness = DeliveryHarness { $0.maxAttempts = 1 }
        let phone = harness.register(token: "aa")
        let outcome = harness.publish(phone, strategy: .vendorElseLive)
        #expect(harness.delivered.isEmpty)
        switch way {
        case "accepted": harness.settle(harness.lease()[0], .accepted)
        case "rejected": harness.settle(harness.lease()[0], .rejected)
        case "exhausted": harness.settle(harness.lease()[0], .retry)
        default:
            harness.advance(29_999)
            #expect(harness.delivered.isEmpty)
            harness.advance(1)
        }
        if way == "accepted" {
            #expect(harness.finalState(outcome.message) == .handedOff)
        } else {
            #expect(harness.delivered.map(\.isOffline) == [true])
            harness.acknowledge(phone, harness.delivered[0].sequence)
            #expect(harness.finalState(outcome.message) == .deliveredOffline)
        }
        #expect(harness.imbalance() == nil)
        #expect(harness.rowCount(.vendorMessage) == 0 && harness.rowCount(.job) == 0)
    }

    @Test(
        "4 keeps a message for the live channel if its alert is incomplete",
        arguments: [false, true], ["now", "crash", "cold"])
    func vendorElseLivePart(isListed: Bool, then: String) throws {
        let harness = DeliveryHarness()
        var phone = harness.register(state: .background, token: "aa")
        let outcome =
            isListed
            ? harness.publish(phone, "the rest", strategy: .vendorElseLive, isBulk: true, carriesAll: false)
            : harness.publish(phone, "the rest", strategy: .vendorElseLive, carriesAll: false)
        if then == "cold" {
            harness.crash()
            harness.advance(1)
        }
        let job = try #require(harness.lease().first)
        harness.settle(job, .accepted)
        #expect(harness.finalState(outcome.message) == nil)
        if then == "crash" { harness.crash() }
        harness.settle(job, .accepted)
        #expect(harness.lease().isEmpty, "it is alerted once")
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["the rest"])
        #expect(harness.delivered.first?.isOffline == true && harness.delivered.first?.alertedAt ?? 0 > 0)
        harness.acknowledge(phone, harness.delivered[0].sequence)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
        #expect(harness.imbalance() == nil && harness.store.violations.isEmpty)
        #expect([StoreKey.Table.vendorMessage, .message, .job].allSatisfy { harness.rowCount($0) == 0 })
    }

    @Test("4 ends as handedOff if its message stays in the live stream until it expires")
    func vendorElseLivePartExpires() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone, strategy: .vendorElseLive, timeToLive: 60_000, carriesAll: false)
        harness.settle(harness.lease()[0], .accepted)
        harness.advance(60_000)
        #expect(harness.finalState(outcome.message) == .handedOff && harness.imbalance() == nil)
    }

    @Test("a replaced message is not kept when the vendor accepts it")
    func vendorElseLivePartCollapsed() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        let old = harness.publish(phone, strategy: .vendorElseLive, collapseKey: "k", carriesAll: false)
        let job = harness.lease()[0]
        _ = harness.publish(phone, "new", collapseKey: "k")
        harness.settle(job, .accepted)
        let state = harness.finalState(old.message)
        #expect(state == .handedOff || state == .collapsed)
    }

    @Test("4 goes live also after a crash")
    func vendorElseLiveAfterCrash() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        _ = harness.publish(phone, "late", strategy: .vendorElseLive)
        harness.crash()
        harness.connect(&phone)
        harness.advance(1)
        harness.advance(30_000)
        #expect(harness.delivered.map(\.payload) == ["late"])
        #expect(harness.store.violations.isEmpty)
    }

    @Test("TTL 0 makes one live attempt without a job; an unreachable device's message expires at once")
    func zeroTimeToLive() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let sent = harness.publish(phone, timeToLive: 0)
        #expect(sent.isLive && sent.fallback == .none && sent.fallbackReason == .timeToLive)
        harness.disconnect(phone, announced: false)
        harness.connect(&phone)
        #expect(harness.delivered.count == 1)
        harness.advance(10_000)
        #expect(harness.finalState(sent.message) == .expired)
        harness.disconnect(phone)
        let unsent = harness.publish(phone, timeToLive: 0)
        #expect(unsent.code == .accepted)
        #expect(harness.finalState(unsent.message) == .expired)
        #expect(harness.lease().isEmpty)
        #expect(harness.imbalance() == nil)
    }

    @Test("TTL −1 has no offline storage, but a job with expiration 0, leasable for 60 s")
    func noStorage() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let outcome = harness.publish(phone, timeToLive: -1)
        harness.connect(&phone)
        #expect(harness.delivered.isEmpty)
        let jobs = harness.lease()
        #expect(jobs.map(\.expiration) == [0])
        harness.settle(jobs[0], .accepted)
        harness.advance(60_000)
        #expect(harness.finalState(outcome.message) == .handedOff)
        let live = harness.publish(phone, timeToLive: -1)
        #expect(live.isLive)
        harness.advance(10_000)
        #expect(harness.lease().map(\.message) == [live.message])
        harness.disconnect(phone)
        let late = harness.publish(phone, timeToLive: -1)
        harness.advance(60_000)
        #expect(harness.lease().isEmpty)
        #expect(harness.finalState(late.message) == .expired)
    }

    @Test("no message is sent on either channel after its expiry")
    func nothingAfterExpiry() {
        let harness = DeliveryHarness()
        var phone = harness.register(state: .background, token: "aa")
        _ = harness.publish(phone, timeToLive: 5_000)
        harness.crash()
        harness.advance(5_000)
        #expect(harness.lease().isEmpty)
        harness.connect(&phone)
        #expect(harness.delivered.isEmpty)
    }

    @Test(
        "a collapse key ends older unsent messages, cancels their jobs and is queued last", arguments: [false, true])
    func collapse(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(state: .background, token: "aa")
        let old = harness.publish(phone, "old", collapseKey: "k")
        _ = harness.publish(phone, "other", collapseKey: "j")
        if cold { harness.crash() }
        harness.advance(1)
        _ = harness.publish(phone, "new", collapseKey: "k")
        #expect(harness.finalState(old.message) == .collapsed)
        #expect(harness.lease().count == 2)
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["other", "new"])
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("a message in flight is not collapsed during its session, and its ack makes it delivered")
    func inFlightAcked() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let old = harness.publish(phone, "old", collapseKey: "k")
        _ = harness.publish(phone, "new", collapseKey: "k")
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(old.message) == .delivered)
    }

    @Test("a message in flight is collapsed when its session ends first, also by a crash", arguments: [false, true])
    func inFlightLost(crashed: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let old = harness.publish(phone, "old", collapseKey: "k")
        _ = harness.publish(phone, "new", collapseKey: "k")
        if crashed { harness.crash() } else { harness.disconnect(phone) }
        harness.delivered.removeAll()
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["new"])
        #expect(harness.finalState(old.message) == .collapsed)
        #expect(harness.imbalance() == nil)
    }

    @Test("overflow refuses by default, by count and by bytes")
    func overflowRejects() {
        let harness = DeliveryHarness {
            $0.queuedMessageLimit = 3
            $0.queuedByteLimit = 10_000
        }
        let phone = harness.register(state: .background)
        for _ in 0..<3 { #expect(harness.publish(phone).code == .accepted) }
        #expect(harness.publish(phone).code == .queueFull)
        let other = harness.register(state: .background)
        #expect(harness.publish(other, String(repeating: "x", count: 9_000)).code == .accepted)
        #expect(harness.publish(other, String(repeating: "x", count: 9_000)).code == .queueFull)
    }

    @Test("dropOldest ends the oldest message that is neither in flight nor leased", arguments: [false, true])
    func dropOldest(cold: Bool) {
        let harness = DeliveryHarness {
            $0.queuedMessageLimit = 3
            $0.overflowPolicy = .dropOldest
        }
        let phone = harness.register(state: .background, token: "aa")
        let first = harness.publish(phone, "leased")
        #expect(harness.lease().count == 1)
        let second = harness.publish(phone, "oldest")
        _ = harness.publish(phone, "young")
        if cold { harness.store.cool() }
        #expect(harness.publish(phone, "new").code == .accepted)
        #expect(harness.finalState(first.message) == nil)
        #expect(harness.finalState(second.message) == .overflowed)
        harness.become(.foreground, phone)
        #expect(harness.delivered.map(\.payload) == ["leased", "young", "new"])
        #expect(harness.imbalance() == nil)
    }

    @Test("a repeated request id gets its first result, also after a crash, and another body is refused")
    func requestIds() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let first = harness.submit(phone, "a", requestKey: (1, 2), requestDigest: 5)
        let copy = harness.submit(phone, "a", requestKey: (1, 2), requestDigest: 5)
        #expect(harness.outcomes.isEmpty)
        harness.flush()
        #expect(harness.outcomes[copy]?.message == harness.outcomes[first]?.message)
        #expect(harness.outcomes[copy]?.isRepeat == true)
        harness.crash()
        harness.store.filteredTables = []
        #expect(
            harness.publish(phone, "a", requestKey: (1, 2), requestDigest: 5).message
                == harness.outcomes[first]?.message)
        #expect(harness.publish(phone, "b", requestKey: (1, 2), requestDigest: 6).code == .requestConflict)
        #expect(harness.publish(phone, "c", requestKey: (1, 3), requestDigest: 6).code == .accepted)
        #expect(harness.delivered.count == 1)
    }

    @Test("a batch is atomic: an unsynced publish leaves no trace after a crash")
    func allOrNothing() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        harness.submit(phone, "lost", requestKey: (1, 1))
        harness.crash()
        #expect(harness.rowCount(.message) == 0 && harness.rowCount(.job) == 0 && harness.rowCount(.request) == 0)
        #expect(harness.imbalance() == nil)
    }

    @Test("unknown devices, other apps, a full journal and failed reads have different results")
    func refusals() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        #expect(harness.publish(phone, app: DeliveryHarness.otherApp).code == .unknownDevice)
        let own = phone.cid
        phone.cid = DeviceID(high: 1, low: 99)
        #expect(harness.publish(phone).code == .unknownDevice)
        phone.cid = own
        harness.store.acceptsWrites = false
        #expect(harness.publish(phone).code == .busy)
        harness.store.acceptsWrites = true
        harness.crash()
        harness.store.failingReads = [harness.store.readCount + 1]
        #expect(harness.publish(phone).code == .storeFailed)
        #expect(harness.publish(phone).code == .accepted)
    }

    @Test("commands for a device that is being read wait in order, within a bound")
    func waiting() {
        var limits = ShardLimits()
        limits.waitingPerDevice = 3
        let harness = DeliveryHarness(limits: limits)
        var phone = harness.register()
        harness.crash()
        let requests = (0..<4).map { harness.submit(phone, "\($0)") }
        harness.flush()
        #expect(requests.dropLast().allSatisfy { harness.outcomes[$0]?.code == .accepted })
        #expect(harness.outcomes[requests[3]]?.code == .storeFailed || harness.outcomes[requests[3]]?.code == .busy)
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["0", "1", "2"])
    }
}
