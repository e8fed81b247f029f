import TestKit
import Testing
import Wire

@testable import Delivery

/// Broadcasts during other faults: a damaged row, a failed read, a store that lags, a device that reconnects.
@Suite("Broadcasts during other faults")
struct BroadcastWeatherTests {
    private let world: BroadcastHarness
    private var harness: DeliveryHarness { world.harness }

    init() { world = BroadcastHarness() }

    /// Replaces the device's row on disk with invalid bytes.
    private func damageRow(of phone: Phone) throws {
        var found: (key: StoreKey, wakeAt: GatewayTime)?
        harness.store.loadAll(table: .device) { row in
            if row.key.ownerHigh == phone.cid.high, row.key.ownerLow == phone.cid.low {
                found = (row.key, row.wakeAt)
            }
        }
        let row = try #require(found)
        harness.store.beginBatch(phone.bucket)
        harness.store.put(row.key, wakeAt: row.wakeAt, prior: .maybe(wakeAt: row.wakeAt), byteCount: 3) {
            $0.copyBytes(from: [255, 255, 255])
        }
        _ = harness.store.endBatch()
        harness.store.sync()
    }

    @Test("a scan skips a device whose row is damaged, and reaches all others")
    func damagedRow() throws {
        let phones = (0..<4).map { _ in harness.register(token: "t") }
        for phone in phones { harness.disconnect(phone) }
        let record = world.send(timeToLive: 60_000)
        try damageRow(of: phones[1])
        harness.crash()
        harness.advance(10_100)
        let due = try #require(harness.dueTasks.first)
        guard world.ask(world.scan(due, .enumerate))?.count == 3 else {
            Issue.record("one damaged row holds up the scan")
            return
        }
        #expect(Set(harness.lease().map(\.cid)) == Set([phones[0], phones[2], phones[3]].map(\.cid)))
        #expect(harness.logs.contains { "\($0.name)" == "damagedRow" }, "\(harness.logs.map(\.name))")
        guard world.ask(world.scan(due, .close(.expired))) != nil else {
            Issue.record("one damaged row holds up the close")
            return
        }
        #expect(world.totals(record).accepted == 3)
    }

    @Test("a failed read delays a scan, which repeats the step")
    func unread() throws {
        let phone = harness.register(token: "t")
        harness.disconnect(phone)
        let record = world.send()
        harness.crash()
        harness.advance(10_100)
        let due = try #require(harness.dueTasks.first)
        // The alarm of the token's claim has brought the device into memory.
        harness.crash()
        harness.store.readsFailFrom = harness.store.readCount + 2
        guard world.harness.isBusy(world.scan(due, .enumerate)) else {
            Issue.record("a device that could not be read was passed over")
            return
        }
        harness.store.readsFailFrom = .max
        guard world.ask(world.scan(due, .enumerate))?.count == 1 else {
            Issue.record("not scanned")
            return
        }
        #expect(world.totals(record).accepted == 1)
    }

    /// The alarm is reported once; it reads the device, the ledger row and the job, and each of these reads may fail.
    @Test("a message of a removed broadcast ends, whichever read of its alarm fails", arguments: 1...3)
    func forgottenAlarm(failing: Int) {
        let phone = harness.register(token: "t")
        let record = world.send(timeToLive: 60_000, vendor: false)
        #expect(world.totals(record).pending == 1)
        harness.disconnect(phone)
        harness.crash()
        harness.shard.forgetBroadcast(record.id, record.app)
        harness.advance(59_000)
        harness.store.failingReads = [harness.store.readCount + failing]
        for _ in 0..<10 { harness.advance(1_000) }
        #expect(harness.store.readCount >= harness.store.failingReads.first ?? .max, "that read was never made")
        let totals = world.totals(record)
        #expect(totals[.expired] == 1 && totals.pending == 0)
        #expect(world.imbalance([record]) == nil)
    }

    @Test("scans pause while the store refuses writes, and continue afterwards")
    func storeBehind() throws {
        let phones = (0..<5).map { _ in harness.register() }
        let away = harness.register(token: "t")
        harness.disconnect(away)
        let record = world.record()
        harness.shard.ask(
            CreateTask(record, key: .none, digest: 0), origin: Origin(route: 3, request: 1),
            now: harness.now)
        harness.store.acceptsWrites = false
        harness.flush()
        #expect(harness.launched.count == 1 && harness.delivered.isEmpty)
        let isAtHand = harness.shard.hasBroadcastsAtHand
        #expect(!isAtHand, "the loop has other things to do meanwhile")
        for _ in 0..<10 { harness.advance(20) }
        #expect(harness.delivered.isEmpty && world.totals(record).accepted == 0)
        var launched = try #require(harness.launched.first)
        guard world.harness.isBusy(world.scan(launched, .enumerate)) else {
            Issue.record("rows were written that the store does not want")
            return
        }
        harness.store.acceptsWrites = true
        harness.advance(20)
        #expect(Set(harness.takeDelivered().map(\.session)) == Set(phones.map(\.session)))
        world.enumerate()
        #expect(harness.lease().contains { $0.cid == away.cid })
        launched.broadcast?.position = 0
        #expect(world.totals(record).accepted == 6)
    }

    @Test("a device that becomes reachable while the enumerator creates its job gets the message once both are durable")
    func reachedMeanwhile() throws {
        let phone = harness.register(state: .background, token: "t")
        let record = world.send()
        harness.advance(10_100)
        let due = try #require(harness.dueTasks.first)
        #expect(harness.delivered.isEmpty)
        // The update is not durable yet, so no message is sent. The scan's batch follows it.
        var update = DeviceUpdate()
        update.applicationState = .foreground
        update.badge = 3
        harness.shard.update(phone.session, update, now: harness.now)
        harness.shard.ask(
            world.scan(due, .enumerate), origin: Origin(route: 3, request: 2), now: harness.now)
        while harness.store.waitingReadCount > 0 { harness.store.deliverReplies() }
        let first = harness.store.committedTicket + 1
        #expect(harness.store.waitingBatchCount == 2, "the update's and the message's")
        harness.store.sync(upTo: first)
        #expect(harness.updates.count == 1 && harness.delivered.isEmpty)
        harness.store.sync()
        #expect(harness.takeDelivered().map(\.session) == [phone.session])
        world.acknowledge(phone, 1)
        #expect(world.totals(record).accepted == 1 && world.totals(record).ended == 1)
    }
}
