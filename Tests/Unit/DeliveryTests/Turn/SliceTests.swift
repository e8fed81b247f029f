import Delivery
import TestKit
import Testing
import Wire

@Suite("Slices") struct SliceTests {
    private static let slice = 16

    private func harness(_ policy: AppSettings.OverflowPolicy = .reject, limit: Int = 10_000) -> DeliveryHarness {
        var limits = ShardLimits()
        limits.sliceCount = Self.slice
        return DeliveryHarness(limits: limits) {
            $0.queuedMessageLimit = limit
            $0.overflowPolicy = policy
        }
    }

    private func lower(_ harness: DeliveryHarness, to count: Int, bytes: Int = 4 << 20) {
        harness.apps[0].queuedMessageLimit = count
        harness.apps[0].queuedByteLimit = bytes
        harness.shard.reload(apps: harness.apps)
    }

    private func ended(_ harness: DeliveryHarness, _ state: FinalState) -> UInt64 {
        harness.statistics.finals[Int(state.rawValue) - 1]
    }

    @Test(
        "a queue whose bound was lowered is trimmed in short batches, a slice a turn",
        arguments: [false, true], [Strategy.liveOnly, .vendorOnly])
    func loweredBound(cold: Bool, strategy: Strategy) throws {
        let harness = harness(.dropOldest)
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        var outcomes: [PublishOutcome] = []
        for index in 0..<500 {
            harness.letTimePass(1)
            outcomes.append(harness.publish(phone, "\(index)", strategy: strategy))
        }
        if cold {
            harness.store.cool()
            harness.crash()
        }
        lower(harness, to: 20)
        let request = harness.submit(phone, "new", strategy: strategy)
        #expect(cold || harness.shard.hasSlicesAtHand, "the rest waits for its turn")
        #expect(cold || ended(harness, .overflowed) == UInt64(Self.slice))
        // Later commands are queued after the first.
        let second = harness.submit(phone, "newer", strategy: strategy)
        harness.flush()
        #expect(harness.outcomes[request]?.code == .accepted && harness.outcomes[second]?.code == .accepted)
        #expect(harness.status(phone)?.queuedMessageCount == 20)
        #expect(harness.finalState(outcomes[481].message) == .overflowed, "the oldest go")
        #expect(harness.finalState(outcomes[482].message) == nil)
        #expect(ended(harness, .overflowed) == 482)
        #expect(harness.store.largestBatch.operations < 4 * 96 + 8, "\(harness.store.largestBatch)")
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations == [])
    }

    @Test("a queue whose byte bound was lowered is trimmed in slices, and protected messages stay")
    func loweredBytes() {
        let harness = harness(.dropOldest)
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        for index in 0..<100 { _ = harness.publish(phone, "\(index)", vendor: false) }
        harness.connect(&phone)
        #expect(harness.takeDelivered().count == 32)
        lower(harness, to: 10_000, bytes: 1_000)
        #expect(harness.publish(phone, "new", vendor: false).code == .queueFull)
        #expect(harness.status(phone)?.queuedMessageCount == 32, "those in flight")
        harness.acknowledge(phone, 32)
        #expect(harness.publish(phone, "new", vendor: false).code == .accepted)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations == [])
    }

    @Test("a slice is bounded by the messages it inspects: leased ones stay, and the trim continues after them")
    func leasedInFront() {
        let harness = harness(.dropOldest)
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let leasedCount = Self.slice * 16 + 40
        for index in 0..<leasedCount + 100 { harness.submit(phone, "\(index)", strategy: .vendorOnly) }
        harness.flush()
        var leased = 0
        while leased < leasedCount { leased += harness.lease(min(500, leasedCount - leased)).count }
        lower(harness, to: 20)
        let request = harness.submit(phone, "new", strategy: .vendorOnly)
        #expect(ended(harness, .overflowed) == 0 && harness.shard.hasSlicesAtHand, "leased ones fill the first look")
        harness.flush()
        #expect(ended(harness, .overflowed) == 100, "each that may end")
        #expect(harness.outcomes[request]?.code == .queueFull)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations == [])
    }

    @Test("a trim that stops exactly after the last leased message ends", arguments: [-1, 0, 1])
    func leasedFillTheLook(beyond extra: Int) {
        let harness = harness(.dropOldest)
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let count = Self.slice * 16 + extra
        for index in 0..<count { harness.submit(phone, "\(index)", strategy: .liveElseVendor) }
        harness.advance(5_000)
        #expect(harness.lease(count).count == count)
        lower(harness, to: 20)
        let request = harness.submit(phone, "new", strategy: .liveElseVendor)
        var turns = 0
        while harness.shard.hasSlicesAtHand, turns < 100 {
            harness.shard.continueWork(now: harness.now)
            turns += 1
        }
        #expect(turns < 100, "the look begins again and again")
        guard turns < 100 else { return }
        harness.flush()
        #expect(harness.outcomes[request]?.code == .queueFull)
    }

    @Test(
        "a queue that becomes cold during a trim ends in short batches, too",
        arguments: [Strategy.liveOnly, .vendorOnly])
    func cooledMeanwhile(strategy: Strategy) {
        let harness = harness(.dropOldest)
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        for index in 0..<500 { _ = harness.publish(phone, "\(index)", strategy: strategy) }
        lower(harness, to: 20)
        let request = harness.submit(phone, "new", strategy: strategy)
        let isUnderWay = harness.shard.hasSlicesAtHand
        #expect(isUnderWay)
        harness.store.cool()
        harness.flush()
        #expect(harness.outcomes[request]?.code == .accepted)
        #expect(harness.status(phone)?.queuedMessageCount == 20)
        #expect(harness.store.largestBatch.operations < 4 * 96 + 8, "\(harness.store.largestBatch)")
        #expect(harness.store.violations == [])
    }

    @Test("messages that expire together end a slice a turn, each at its own time")
    func expiries() {
        let harness = harness()
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        for index in 0..<200 { _ = harness.publish(phone, "\(index)", timeToLive: 60_000, vendor: false) }
        harness.letTimePass(60_000)
        harness.shard.advance(to: harness.now)
        #expect(harness.shard.hasSlicesAtHand && ended(harness, .expired) <= UInt64(2 * Self.slice))
        #expect(harness.shard.nextTimer <= harness.now, "the rest is due now")
        harness.flush()
        #expect(ended(harness, .expired) == 200)
        #expect(!harness.shard.hasSlicesAtHand && harness.shard.nextTimer > harness.now)
        #expect(harness.imbalance() == nil)
    }

    @Test("after a disconnect all messages get their jobs, a slice a turn")
    func jobs() {
        let harness = harness()
        let phone = harness.register(token: "aa")
        for index in 0..<200 { harness.submit(phone, "\(index)") }
        harness.flush()
        harness.shard.sessionEnded(phone.session, announced: true, now: harness.now)
        #expect(harness.statistics[.apns].dueJobs == Self.slice)
        harness.flush()
        harness.advance(1)
        #expect(harness.statistics[.apns].dueJobs == 200)
        #expect(harness.lease(500).count == 200)
        #expect(harness.store.largestBatch.operations < 4 * 96 + 8)
        #expect(harness.imbalance() == nil)
    }

    @Test("a Hello's position ends the covered messages, a slice a turn, before the Welcome")
    func positions() {
        let harness = harness()
        var phone = harness.register()
        for index in 0..<200 { harness.submit(phone, "\(index)", vendor: false) }
        harness.flush()
        #expect(harness.takeDelivered().count == 32)
        let welcomes = harness.welcomes.count
        harness.connect(&phone, flushing: false) { $0.positions = [StreamPosition(stream: 0, sequence: 190)] }
        #expect(harness.shard.hasSlicesAtHand && ended(harness, .delivered) == UInt64(Self.slice))
        #expect(harness.welcomes.count == welcomes)
        harness.flush()
        #expect(ended(harness, .delivered) == 190)
        #expect(harness.welcomes.count == welcomes + 1)
        #expect(harness.takeDelivered().map(\.payload) == (190..<200).map { "\($0)" })
        #expect(harness.imbalance() == nil)
    }

    @Test("messages collapsed in flight are written once, however many follow")
    func collapsedOnce() {
        let harness = harness()
        let phone = harness.register(token: "aa")
        for index in 0..<30 { _ = harness.publish(phone, "\(index)", collapseKey: "k") }
        // A newer message marks the last of thirty in flight, besides its own rows.
        #expect(harness.store.largestBatch.operations <= 8, "\(harness.store.largestBatch)")
        harness.disconnect(phone)
        #expect(ended(harness, .collapsed) == 29)
        #expect(harness.imbalance() == nil)
    }
}
