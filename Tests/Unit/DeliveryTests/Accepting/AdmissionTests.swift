import Delivery
import TestKit
import Testing
import Wire

@Suite("Admission") struct AdmissionTests {
    @Test("a connection that closed while its device was read becomes no session")
    func goneBeforeWelcome() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.store.cool()
        harness.crash()
        harness.connect(&phone, flushing: false)
        harness.shard.sessionEnded(phone.session, announced: false, now: harness.now)
        harness.flush()
        #expect(harness.statistics.sessions == 0)
        #expect(harness.publish(phone).isLive == false)
        #expect(harness.lease().count == 1)
    }

    @Test("a connection keeps its session if an earlier connection in its slot closed before its Welcome")
    func slotUsedAgain() {
        let harness = DeliveryHarness()
        var slow = harness.register()
        var quick = harness.register()
        harness.disconnect(slow)
        harness.disconnect(quick)
        harness.store.cool()
        harness.crash()
        harness.connect(&slow, flushing: false)
        harness.shard.sessionEnded(slow.session, announced: false, now: harness.now)
        // The device is loaded first by a publish. The new connection then takes the free slot.
        var hello = Hello()
        hello.timestamp = UInt64(harness.now + 1)
        hello.applicationState = .foreground
        quick.session = SessionRef(slot: slow.session.slot, stamp: slow.session.stamp + 1)
        harness.shard.hello(
            HelloCommand(
                session: quick.session, app: DeliveryHarness.app, bucket: quick.bucket, cid: quick.cid, newSecret: nil,
                transcript: [], proof: quick.secret, hello: hello), now: harness.now)
        harness.flush()
        let outcome = harness.publish(quick)
        #expect(outcome.isLive)
        harness.acknowledge(quick, harness.delivered.last?.sequence ?? 0)
        #expect(harness.finalState(outcome.message) == .delivered)
    }

    @Test("a device has a queue record only while a message is queued, in flight or being read")
    func queuesComeAndGo() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        #expect(harness.statistics.deviceQueues == 0)
        let live = harness.publish(phone)
        #expect(harness.statistics.deviceQueues == 1)
        harness.acknowledge(phone, harness.delivered.last?.sequence ?? 0)
        #expect(harness.finalState(live.message) == .delivered)
        #expect(harness.statistics.deviceQueues == 0)
        // Between sessions its rows are counted, in memory or only on disk.
        harness.disconnect(phone)
        _ = harness.publish(phone)
        #expect(harness.statistics.deviceQueues == 1)
        harness.store.cool()
        #expect(harness.statistics.deviceQueues == 1)
        harness.crash()
        harness.connect(&phone)
        #expect(harness.statistics.deviceQueues == 1)
        harness.acknowledge(phone, harness.delivered.last?.sequence ?? 0)
        #expect(harness.statistics.deviceQueues == 0)
        // A Hello that waited for its record leaves none in memory.
        harness.disconnect(phone)
        harness.store.cool()
        harness.crash()
        harness.connect(&phone)
        #expect(harness.statistics.sessions == 1)
        #expect(harness.statistics.deviceQueues == 0)
    }

    @Test("a command refused for lack of room leaves nothing in memory")
    func refusedLeavesNothing() {
        var limits = ShardLimits()
        limits.waitingInAll = 2
        let harness = DeliveryHarness(limits: limits)
        let phones = (0..<6).map { _ in harness.register() }
        for phone in phones { harness.disconnect(phone) }
        harness.store.cool()
        harness.crash()
        let requests = phones.map { harness.submit($0, "p") }
        harness.flush()
        #expect(requests.map { harness.outcomes[$0]?.code }.filter { $0 == .busy }.count == 4)
        #expect(harness.statistics.deviceSlots == 2)
    }

    @Test("devices that register and disconnect are evicted like others")
    func registrationsAreBounded() {
        var limits = ShardLimits()
        limits.cachedDeviceCount = 10
        let harness = DeliveryHarness(limits: limits)
        for _ in 0..<100 { harness.disconnect(harness.register()) }
        #expect(harness.statistics.loadedDevices <= 12)
    }

    @Test("a message is not sent before its own batch is durable, even if others write through the same store")
    func ownBatchFirst() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        _ = harness.publish(phone, "first")
        // The gateway writes its own rows in the same way.
        harness.store.beginBatch(Bucket(0))
        let foreign = harness.store.endBatch()
        harness.submit(phone, "second")
        harness.store.sync(upTo: foreign)
        harness.shard.acknowledge(phone.session, cumulative: 1, ranges: .init(start: nil, count: 0), now: harness.now)
        harness.drain()
        #expect(harness.delivered.map(\.payload) == ["first"])
        harness.flush()
        #expect(harness.delivered.map(\.payload) == ["first", "second"])
    }
}
