import Delivery
import TestKit
import Testing
import Wire

@Suite("Queue bounds") struct QueueBoundsTests {
    @Test("dropOldest makes room among vendor messages on disk, and for a message larger than many")
    func dropsColdVendorMessages() {
        let harness = DeliveryHarness {
            $0.overflowPolicy = .dropOldest
            $0.queuedMessageLimit = 3
        }
        var phone = harness.register(state: .background, token: "aa")
        harness.disconnect(phone)
        let first = harness.publish(phone, "1", strategy: .vendorOnly)
        harness.advance(1)
        _ = harness.publish(phone, "2", strategy: .vendorOnly)
        _ = harness.publish(phone, "3", strategy: .vendorOnly)
        harness.store.cool()
        harness.crash()
        #expect(harness.publish(phone, "4").code == .accepted)
        #expect(harness.finalState(first.message) == .overflowed)
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["4"])
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("a message that replaces one on disk and needs more room there ends the one under its key")
    func collapsesAndDrops() {
        let harness = DeliveryHarness {
            $0.overflowPolicy = .dropOldest
            $0.queuedByteLimit = 12_000
        }
        var phone = harness.register()
        harness.disconnect(phone)
        func publish(_ text: String, _ byteCount: Int, key: String = "") -> PublishOutcome {
            let payload = text + String(repeating: ".", count: byteCount - text.utf8.count)
            return harness.publish(phone, payload, vendor: false, collapseKey: key)
        }
        let replaced = publish("replaced", 1_000, key: "k")
        for number in 1...3 { _ = publish("\(number)", 3_000) }
        harness.store.cool()
        harness.crash()
        #expect(publish("new", 5_000, key: "k").code == .accepted)
        #expect(harness.finalState(replaced.message) == .collapsed)
        harness.connect(&phone)
        #expect(harness.delivered.map { $0.payload.prefix { $0 != "." } } == ["2", "3", "new"])
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("dropOldest looks past the first page of cold rows")
    func dropsMoreThanAPage() {
        let harness = DeliveryHarness {
            $0.overflowPolicy = .dropOldest
            $0.queuedByteLimit = 120_000
        }
        var phone = harness.register()
        harness.disconnect(phone)
        for index in 0..<400 { _ = harness.publish(phone, "\(index)", vendor: false) }
        harness.store.cool()
        harness.crash()
        let large = String(repeating: "z", count: 100_000)
        #expect(harness.publish(phone, large, vendor: false).code == .accepted)
        #expect(harness.imbalance() == nil)
        harness.connect(&phone)
        #expect(harness.status(phone)?.queuedByteCount ?? .max <= 120_000)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("dropOldest ends no message in place of one that has ended while the queue was read")
    func roomDuringTheRead() {
        let harness = DeliveryHarness {
            $0.overflowPolicy = .dropOldest
            $0.queuedMessageLimit = 3
        }
        let phone = harness.register()
        harness.disconnect(phone)
        let first = harness.publish(phone, "1", vendor: false)
        _ = harness.publish(phone, "2", vendor: false)
        harness.store.cool()
        let third = harness.publish(phone, "3", timeToLive: 5_000, vendor: false)
        harness.submit(phone, "4", vendor: false)
        harness.shard.advance(to: harness.now + 6_000)
        harness.flush()
        #expect(harness.outcomes.values.filter { $0.code == .accepted }.count == 4)
        #expect(harness.finalState(third.message) == .expired)
        #expect(harness.finalState(first.message) == nil)
        #expect(harness.imbalance() == nil)
    }

    @Test("a message of the backlog has an ack deadline, too", arguments: [false, true])
    func backlogDeadline(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        _ = harness.publish(phone)
        if cold { harness.store.cool() }
        harness.connect(&phone)
        #expect(harness.delivered.count == 1)
        #expect(harness.lease().isEmpty)
        harness.advance(9_999)
        #expect(harness.pings.isEmpty)
        harness.advance(1)
        #expect(harness.pings.count == 1)
        #expect(harness.lease().count == 1)
        harness.advance(10_100)
        #expect(harness.closes.map(\.code) == [.suspectTimeout])
    }

    @Test("a message that becomes cold while the last page is read is not lost")
    func coolsDuringAPage() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        _ = harness.publish(phone, "a")
        harness.crash()
        harness.connect(&phone, flushing: false)
        harness.store.deliverReplies()
        harness.store.sync()
        // The page's rows are loaded and their jobs are requested.
        harness.store.deliverReplies(limit: 1)
        #expect(harness.delivered.isEmpty)
        harness.submit(phone, "b")
        harness.store.sync()
        harness.store.cool()
        harness.flush()
        #expect(harness.delivered.map(\.payload) == ["a", "b"])
    }

    @Test("an expired message with an active lease waits for it without a timer that fires at once")
    func noSpinning() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let outcome = harness.publish(phone, "p", timeToLive: 5_000)
        #expect(harness.lease(milliseconds: 200_000).count == 1)
        harness.connect(&phone)
        harness.advance(12_000)
        #expect(harness.shard.nextTimer > harness.now)
        harness.advance(190_000)
        #expect(harness.finalState(outcome.message) == .expired)
    }

    @Test("a page of expired messages with active leases does not keep the disk busy")
    func pagesGoOn() {
        var limits = ShardLimits()
        limits.window = 2
        let harness = DeliveryHarness(limits: limits)
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        for index in 0..<4 { _ = harness.publish(phone, "\(index)", timeToLive: 5_000) }
        _ = harness.publish(phone, "alive", vendor: false)
        #expect(harness.lease(milliseconds: 200_000).count == 4)
        harness.store.cool()
        harness.advance(6_000)
        harness.connect(&phone, flushing: false)
        var rounds = 0
        while harness.store.waitingBatchCount > 0 || harness.store.waitingReadCount > 0, rounds < 100 {
            harness.store.sync()
            harness.store.deliverReplies()
            rounds += 1
        }
        #expect(rounds < 100)
        #expect(harness.delivered.map(\.payload) == ["alive"])
    }

    @Test("a newer message with the same key prevents the retry of a leased job", arguments: [false, true])
    func collapsedJobsStayOut(retried: Bool) {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        _ = harness.publish(phone, "old", collapseKey: "k")
        harness.advance(10_000)
        let jobs = harness.lease(milliseconds: 5_000)
        #expect(jobs.count == 1)
        // A frame arrives, so the device is reachable and the old message stays in flight.
        harness.shard.heard(phone.session, now: harness.now)
        _ = harness.publish(phone, "new", collapseKey: "k")
        if retried { harness.settle(jobs[0], .retry) }
        harness.advance(5_000)
        harness.shard.heard(phone.session, now: harness.now)
        #expect(harness.lease().isEmpty)
        harness.acknowledge(phone, 2)
        #expect(harness.imbalance() == nil)
    }
}
