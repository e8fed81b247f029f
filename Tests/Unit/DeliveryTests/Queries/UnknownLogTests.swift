import TestKit
import Testing
import Wire

@testable import Delivery

/// A shard that was taken over while the home of an app's broadcast log was unreachable.
@Suite("A broadcast log that is not known yet")
struct UnknownLogTests {
    private let world = BroadcastHarness()
    private var harness: DeliveryHarness { world.harness }
    private let home = DeliveryHarness.app.home.loop(of: 2)

    /// Restarts the process with a shard that does not know the log of the app's home.
    private func restart() {
        harness.crash()
        let start = BroadcastStart().of(LoopShare(index: 1 - home, count: 2), hasOwnOnly: true)
        harness.shard = Shard(
            limits: harness.limits, apps: harness.apps, store: harness.store, verifier: SecretAsProof(),
            encoder: TestFrames(), queueEpoch: 7, counters: [], broadcasts: start, now: harness.now)
    }

    private func learn(_ head: UInt64, _ records: [TaskRecord]) {
        harness.shard.learn(
            [AppBroadcasts(app: DeliveryHarness.app, head: head, records: records)], of: home, loopCount: 2,
            now: harness.now)
        harness.flush()
    }

    private func copy(_ record: TaskRecord, number: UInt64) -> TaskRecord {
        var copy = world.record("number \(number)")
        copy.broadcast = record.broadcast
        copy.broadcast?.number = number
        return copy
    }

    @Test("a device is welcomed, and gets its pending broadcasts once when the log is known")
    func welcomed() throws {
        var phone = harness.register()
        let record = world.send("pending")
        #expect(harness.takeDelivered().count == 1)
        harness.disconnect(phone)
        let launched = try #require(harness.launched.first)
        restart()
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 0)] }
        let welcome = try #require(harness.welcomes.last?.welcome)
        #expect(harness.welcomes.last?.session == phone.session && welcome.queueEpoch == 7)
        #expect(harness.takeDelivered().isEmpty)
        // Alarms end no broadcast that this shard does not know.
        harness.advance(30_000)
        learn(1, [launched])
        let delivered = harness.takeDelivered()
        #expect(delivered.count == 1 && delivered[0].payload == "pending" && delivered[0].stream == 1)
        world.acknowledge(phone, 1)
        let totals = world.totals(record)
        #expect(totals.ended == 1 && totals.accepted == 1 && totals.pending == 0, "it was accepted a second time")
        learn(1, [launched])
        #expect(harness.takeDelivered().isEmpty)
    }

    @Test("a position or an ack from before the takeover ends no session and no queue")
    func positions() throws {
        var phone = harness.register()
        world.send()
        world.acknowledge(phone, 1)
        harness.disconnect(phone)
        let launched = harness.launched
        restart()
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 1)] }
        #expect(harness.welcomes.last?.welcome.queueEpoch == 7)
        harness.closes.removeAll()
        world.acknowledge(phone, 1)
        #expect(harness.closes.isEmpty)
        _ = harness.takeDelivered()
        learn(1, launched)
        #expect(harness.takeDelivered().isEmpty, "an acked broadcast came again")
        #expect(harness.publish(phone, "still served").code == .accepted)
    }

    @Test("a device stays blacklisted until the log is known, and gets no broadcast of that time")
    func blacklist() {
        var phone = harness.register()
        #expect(harness.ask(.setBlacklisted(phone.cid, true), phone.bucket) == .done)
        world.send("during")
        let launched = harness.launched
        restart()
        harness.connect(&phone)
        #expect(harness.ask(.setBlacklisted(phone.cid, false), phone.bucket) == .failed)
        let address = DeviceAddress(app: DeliveryHarness.app, bucket: phone.bucket, cid: phone.cid)
        #expect(harness.isBusy(ChangeDevice(address, .unblacklist)))
        #expect(harness.status(phone)?.isBlacklisted == true)
        learn(1, launched)
        #expect(harness.ask(.setBlacklisted(phone.cid, false), phone.bucket) == .done)
        #expect(harness.status(phone)?.isBlacklisted == false && harness.takeDelivered().isEmpty)
    }

    @Test("a registration is refused as retryable, because its first broadcast is unknown")
    func registration() {
        world.send()
        let launched = harness.launched
        restart()
        let phone = harness.register()
        #expect(harness.closes.last?.session == phone.session && harness.closes.last?.code == .storeUnavailable)
        learn(1, launched)
        let next = harness.register()
        #expect(harness.welcomes.last?.session == next.session)
        #expect(harness.takeDelivered().isEmpty, "a broadcast from before the registration")
    }

    @Test("a broadcast is refused while an earlier one is unknown; the whole log brings both in order")
    func hole() {
        restart()
        learn(0, [])
        _ = harness.register()
        let first = copy(world.record(), number: 1)
        var plan = first.broadcast
        plan?.launchedAt = harness.now
        plan?.expiresAt = harness.now + 7_200_000
        var records = (1...3).map { copy(first, number: UInt64($0)) }
        for index in records.indices {
            let number = records[index].broadcast?.number ?? 0
            records[index].broadcast = plan
            records[index].broadcast?.number = number
        }
        let isFirstTaken = harness.shard.launch(records[0], loopCount: 2, now: harness.now)
        #expect(isFirstTaken)
        harness.flush()
        let isThirdTaken = harness.shard.launch(records[2], loopCount: 2, now: harness.now)
        #expect(!isThirdTaken)
        harness.flush()
        #expect(harness.takeDelivered().map(\.sequence) == [1])
        learn(3, records)
        #expect(harness.takeDelivered().map(\.sequence) == [2, 3])
        // The announcement is late, and the broadcast is already known.
        let isLateTaken = harness.shard.launch(records[1], loopCount: 2, now: harness.now)
        #expect(isLateTaken)
        harness.flush()
        #expect(harness.takeDelivered().isEmpty)
    }

    @Test("a broadcast that its home has closed is removed even if the notification was lost")
    func closed() {
        restart()
        var record = world.record()
        record.broadcast?.number = 1
        record.broadcast?.launchedAt = harness.now
        record.broadcast?.expiresAt = harness.now + 7_200_000
        learn(1, [record])
        #expect(harness.statistics.liveBroadcasts == 1)
        learn(1, [])
        #expect(harness.statistics.liveBroadcasts == 0)
        harness.shard.launch(record, loopCount: 2, now: harness.now)
        #expect(harness.statistics.liveBroadcasts == 0, "a late word brought it back")
    }
}
