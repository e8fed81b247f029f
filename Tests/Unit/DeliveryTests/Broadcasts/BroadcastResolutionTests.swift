import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Broadcasts while a device's ledger is read")
struct BroadcastResolutionTests {
    private let world = BroadcastHarness()
    private var harness: DeliveryHarness { world.harness }

    /// Sends three broadcasts, three seconds apart, that are not acked when the process crashes.
    ///
    /// After the restart the first one's deadline passes, which creates its job and leaves the job on disk.
    private func firstIsAlerted() -> (phone: Phone, records: [TaskRecord]) {
        let phone = harness.register(token: "t")
        var records: [TaskRecord] = []
        for number in 1...3 {
            records.append(world.send("b\(number)"))
            harness.advance(3_000)
        }
        #expect(harness.takeDelivered().count == 3)
        harness.crash()
        harness.advance(1_050)
        #expect(harness.statistics.messagesInMemory == 2, "the two that wait for their deadlines")
        return (phone, records)
    }

    @Test("a deadline that passes during the read removes no message, and the device receives all of them")
    func deadlineDuringRead() {
        var (phone, records) = firstIsAlerted()
        harness.connect(&phone, flushing: false)
        #expect(harness.store.waitingReadCount > 0, "the first one's ledger row is being read")
        harness.letTimePass(7_000)
        harness.shard.advance(to: harness.now)
        harness.drain()
        harness.flush()
        #expect(harness.takeDelivered().map(\.payload) == ["b1", "b2", "b3"])
        world.acknowledge(phone, 3)
        #expect(records.allSatisfy { world.totals($0)[.deliveredOffline] == 1 })
        #expect(world.imbalance(records) == nil)
    }

    @Test("after the next restart a position does not settle an earlier message that was not sent")
    func skippedIsNotClaimed() {
        var (phone, records) = firstIsAlerted()
        harness.connect(&phone, flushing: false)
        harness.letTimePass(7_000)
        harness.shard.advance(to: harness.now)
        harness.flush()
        let later = world.send("later")
        var seen = Set(harness.takeDelivered().map(\.payload))
        // The acks are lost with the process. The position has the processed messages.
        harness.crash()
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 4)] }
        seen.formUnion(harness.takeDelivered().map(\.payload))
        for record in records + [later] {
            let isDelivered = world.totals(record)[.delivered] + world.totals(record)[.deliveredOffline] == 1
            #expect(isDelivered)
        }
        #expect(seen == ["b1", "b2", "b3", "later"], "delivered is what was sent")
    }

    @Test("a client that disconnects during the read leaves nothing in memory")
    func hangsUpDuringRead() {
        var (phone, records) = firstIsAlerted()
        harness.advance(7_000)
        harness.connect(&phone, flushing: false)
        harness.shard.sessionEnded(phone.session, announced: false, now: harness.now)
        harness.flush()
        #expect(harness.statistics.messagesInMemory == 0)
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.payload) == ["b1", "b2", "b3"])
        world.acknowledge(phone, 3)
        #expect(records.allSatisfy { world.totals($0).ended == 1 })
    }

    @Test("a failed read leaves nothing in memory, and the next Hello finds everything")
    func readFails() {
        var (phone, records) = firstIsAlerted()
        harness.store.failingReads = [harness.store.readCount + 1]
        harness.connect(&phone, flushing: false)
        harness.letTimePass(7_000)
        harness.shard.advance(to: harness.now)
        harness.flush()
        #expect(harness.closes.map(\.code) == [.storeUnavailable] && harness.statistics.messagesInMemory == 0)
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.payload) == ["b1", "b2", "b3"])
        world.acknowledge(phone, 3)
        #expect(records.allSatisfy { world.totals($0).ended == 1 } && world.imbalance(records) == nil)
    }

    @Test("a message that ends while jobs are read stays ended, because the ledger is read again")
    func endsDuringRead() {
        var phone = harness.register(token: "t")
        var other = harness.register(token: "t")
        harness.disconnect(other)
        let old = world.send("old", collapseKey: "k"), second = world.send("second")
        harness.disconnect(phone)
        world.enumerate()
        harness.store.cool()
        harness.crash()
        // Both jobs become due again and are loaded into memory.
        harness.advance(10)
        // A lease selects the older job and waits for another device's record.
        harness.shard.lease(
            LeaseCommand(
                origin: Origin(route: 2, request: 900), channel: .apns, apps: nil, limit: 1, leaseMilliseconds: 60_000,
                leaseID: (9, 900)),
            now: harness.now)
        harness.connect(&phone, flushing: false)
        let new = world.record("new", collapseKey: "k")
        harness.shard.ask(
            CreateTask(new, key: .none, digest: 0), origin: Origin(route: 3, request: 901), now: harness.now
        )
        harness.flush()
        harness.store.cool()
        harness.flush()
        let payloads = harness.takeDelivered().filter { $0.session == phone.session }.map(\.payload)
        #expect(payloads == ["second", "new"] || payloads == ["old", "second", "new"])
        world.acknowledge(phone, 3)
        harness.connect(&other)
        world.acknowledge(other, 3)
        #expect([old, second, new].allSatisfy { world.totals($0).pending == 0 && world.totals($0).accepted == 2 })
        #expect(world.imbalance([old, second, new]) == nil)
        #expect(harness.store.violations.isEmpty)
    }

    // MARK: Positions as proofs

    /// Sends two broadcasts to a device.
    ///
    /// The first is stopped, and the device receives the second before the first one's message has ended.
    private func passedOver(sentBefore: Bool, crashes: Bool) -> (first: TaskRecord, phone: Phone, totals: TaskTotals) {
        var phone = harness.register(state: sentBefore ? .foreground : .background)
        let first = world.send("first")
        #expect(harness.takeDelivered().count == (sentBefore ? 1 : 0))
        // The device is unreachable. It has the first broadcast's message and has not processed it.
        harness.disconnect(phone, announced: false)
        harness.connect(&phone, state: .background)
        if !sentBefore {
            harness.become(.foreground, phone)
            _ = harness.takeDelivered()
            harness.disconnect(phone, announced: false)
            harness.connect(&phone, state: .background)
        }
        world.ask(ChangeTask(first.id, first.app, .stop))
        // The sweep has begun and its rows are being read.
        harness.shard.ask(
            SweepTask(first.id, first.app, BroadcastHarness.whole), origin: Origin(route: 3, request: 900),
            now: harness.now)
        var update = DeviceUpdate()
        update.applicationState = .foreground
        harness.shard.update(phone.session, update, now: harness.now)
        let second = world.record("second")
        harness.shard.ask(
            CreateTask(second, key: .none, digest: 0), origin: Origin(route: 3, request: 901),
            now: harness.now)
        for _ in 0..<4 {
            harness.store.sync()
            harness.drain()
        }
        #expect(harness.takeDelivered().map(\.payload) == ["second"], "the first one is passed over")
        if crashes { harness.crash() }
        harness.connect(&phone, flushing: false) { $0.positions = [StreamPosition(stream: 1, sequence: 2)] }
        harness.flush()
        world.ask(SweepTask(first.id, first.app, BroadcastHarness.whole))
        return (first, phone, world.totals(first))
    }

    @Test(
        "a position does not settle an earlier stopped broadcast that the session skipped",
        arguments: [true, false], [true, false])
    func stoppedIsNotClaimed(sentBefore: Bool, crashes: Bool) {
        let (_, _, totals) = passedOver(sentBefore: sentBefore, crashes: crashes)
        #expect(totals[.revoked] == 1 && totals[.delivered] == 0 && totals[.deliveredOffline] == 0)
    }

    @Test("a position does not advance a device beyond a broadcast that the shard has not evaluated for it")
    func unevaluatedStays() {
        var phone = harness.register(state: .background)
        let record = world.send()
        harness.connect(&phone, state: .background) { $0.positions = [StreamPosition(stream: 1, sequence: 1)] }
        #expect(world.totals(record).accepted == 0)
        harness.become(.foreground, phone)
        #expect(harness.takeDelivered().map(\.sequence) == [1])
        world.acknowledge(phone, 1)
        #expect(world.totals(record)[.deliveredOffline] + world.totals(record)[.delivered] == 1)
    }

    // MARK: Flags

    @Test("a broadcast evaluated after its live attempt is sent with the offline flag", arguments: [true, false])
    func evaluatedLate(vendor: Bool) {
        var phone = harness.register()
        harness.disconnect(phone)
        let record = world.send(vendor: vendor)
        harness.advance(10_001)
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.isOffline) == [true])
        world.acknowledge(phone, 1)
        #expect(world.totals(record)[.deliveredOffline] == 1)
        // Within that time the broadcast has no offline flag.
        harness.disconnect(phone)
        world.send(vendor: vendor)
        harness.advance(9_000)
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.isOffline) == [false])
    }

    @Test(
        "a message sent and not acked has the flag when it is sent later, also without a fallback",
        arguments: [true, false])
    func resentLate(crashes: Bool) {
        var phone = harness.register()
        world.send("live", strategy: .liveOnly)
        world.send("silent", vendor: false)
        world.send("no token")
        #expect(harness.takeDelivered().map(\.isOffline) == [false, false, false])
        harness.disconnect(phone, announced: false)
        if crashes { harness.crash() }
        harness.advance(10_001)
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.isOffline) == [true, true, true])
    }

    @Test("a paced broadcast has no flag for a device that was connected at its launch, however late it arrives")
    func pacedIsFresh() {
        let phone = harness.register()
        for _ in 0..<20 { _ = harness.register() }
        world.send(speed: 1)
        for _ in 0..<40 { harness.advance(1_000) }
        let flags = harness.takeDelivered().filter { $0.session == phone.session }.map(\.isOffline)
        #expect(flags == [false])
    }
}
