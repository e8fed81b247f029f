import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Broadcast tasks")
struct BroadcastTaskTests {
    private let world: BroadcastHarness
    private var harness: DeliveryHarness { world.harness }

    init() { world = BroadcastHarness() }

    private static func key(_ number: UInt64) -> CallKey {
        CallKey(high: UInt64(DeliveryHarness.app.home.index) << 52 | number, low: 5)
    }

    @Test("a request creates its broadcast once; another body under its id is a conflict", arguments: [false, true])
    func request(crashes: Bool) {
        _ = harness.register()
        let record = world.record()
        guard
            case .created(let id, false)? = world.ask(
                CreateTask(record, key: Self.key(1), digest: 1))
        else {
            Issue.record("not created")
            return
        }
        if crashes { harness.crash() }
        let again = world.record()
        guard case .created(let same, true)? = world.ask(CreateTask(again, key: Self.key(1), digest: 1))
        else {
            Issue.record("not repeated")
            return
        }
        #expect(id == same && harness.launched.count == 1)
        guard case .conflict? = world.ask(CreateTask(again, key: Self.key(1), digest: 2)) else {
            Issue.record("no conflict")
            return
        }
    }

    @Test("numbers continue after a restart and after the end of all broadcasts")
    func numbers() {
        world.send(timeToLive: 20_000)
        harness.crash()
        world.advance(21_000)
        #expect(harness.rowCount(.broadcast) == 1)
        harness.crash()
        world.send()
        #expect(harness.launched.map { $0.broadcast?.number } == [1, 2])
    }

    @Test("a scheduled broadcast starts at its time, also after a restart, for the devices registered by then")
    func scheduled() {
        var phone = harness.register()
        let record = world.record(scheduleAt: harness.now + 120_000)
        world.ask(CreateTask(record, key: .none, digest: 0))
        #expect(harness.launched.isEmpty)
        harness.crash()
        harness.connect(&phone)
        let later = harness.register()
        world.advance(120_000)
        #expect(Set(harness.takeDelivered().map(\.session)) == [phone.session, later.session])
        guard case .found(let row)? = world.ask(LoadTask(record.id, record.app)) else { return }
        #expect(row.state == .open && row.firedAt > 0 && row.broadcast?.expiresAt == row.firedAt + 7_200_000)
    }

    @Test("a deleted schedule never starts")
    func cancelled() {
        _ = harness.register()
        let record = world.record(scheduleAt: harness.now + 120_000)
        world.ask(CreateTask(record, key: .none, digest: 0))
        world.ask(ChangeTask(record.id, record.app, .cancel))
        world.advance(200_000)
        #expect(harness.launched.isEmpty && harness.delivered.isEmpty)
    }

    @Test("a stop ends pending messages and prevents new ones, and each message has one final state")
    func stopped() {
        let here = harness.register(), unacked = harness.register(token: "t")
        var away = harness.register(token: "t"), never = harness.register()
        harness.disconnect(away)
        harness.disconnect(never)
        let record = world.send()
        world.acknowledge(here, 1)
        world.enumerate()
        #expect(harness.hasDueJobs)
        world.ask(ChangeTask(record.id, record.app, .stop))
        world.advance(1_000)
        #expect(harness.hasDueJobs, "the home leaves what is pending to the caller that counts it")
        guard let count = world.ask(SweepTask(record.id, record.app, BroadcastHarness.whole)) else {
            Issue.record("not swept")
            return
        }
        #expect(count == 2 && !harness.hasDueJobs)
        world.ask(ChangeTask(record.id, record.app, .swept))
        _ = harness.takeDelivered()
        harness.connect(&away)
        harness.connect(&never)
        #expect(harness.takeDelivered().isEmpty)
        world.advance(1_000)
        let totals = world.totals(record)
        #expect(totals[.delivered] == 1 && totals[.revoked] == 3 && totals.pending == 0)
        #expect(world.imbalance([record]) == nil && harness.statistics.liveBroadcasts == 0)
        world.acknowledge(unacked, 1)
        #expect(world.totals(record)[.revoked] == 3)
    }

    @Test("a shard that learns of stopped broadcasts before their home has closed them sends none of them")
    func stoppedIsToldAsStopped() throws {
        let record = world.send()
        world.ask(ChangeTask(record.id, record.app, .stop))
        world.ask(SweepTask(record.id, record.app, BroadcastHarness.whole))
        guard let logs = world.ask(LiveBroadcasts(BroadcastHarness.whole))?.logs else {
            Issue.record("no logs")
            return
        }
        #expect(try #require(logs.first?.records.first).state == .stopping)
        // A device connects to the shard that has learned of the broadcasts.
        let other = BroadcastHarness()
        var phone = other.harness.register()
        other.harness.disconnect(phone)
        let home = DeliveryHarness.app.home.loop(of: 2)
        other.harness.shard.learn(logs, of: home, loopCount: 2, now: other.harness.now)
        other.harness.connect(&phone)
        other.harness.flush()
        #expect(other.harness.takeDelivered().isEmpty, "a stopped broadcast was sent")
    }

    @Test("an announcement that is older than the stop or repeated after it sends nothing")
    func stopOvertakesWord() throws {
        let record = world.send()
        guard let before = world.ask(LiveBroadcasts(BroadcastHarness.whole))?.logs else {
            Issue.record("no logs")
            return
        }
        var stopped = before
        for index in stopped[0].records.indices { stopped[0].records[index].state = .stopping }
        let home = DeliveryHarness.app.home.loop(of: 2)
        for isSweptFirst in [true, false] {
            let other = BroadcastHarness()
            var phone = other.harness.register()
            other.harness.disconnect(phone)
            if isSweptFirst { other.ask(SweepTask(record.id, record.app, BroadcastHarness.whole)) }
            other.harness.shard.learn(before, of: home, loopCount: 2, now: other.harness.now)
            if !isSweptFirst { other.harness.shard.learn(stopped, of: home, loopCount: 2, now: other.harness.now) }
            other.harness.connect(&phone)
            other.harness.flush()
            #expect(other.harness.takeDelivered().isEmpty, "a stopped broadcast was sent")
        }
    }

    @Test("the enumerator continues after a restart at its position, and alerts no device twice")
    func resumed() {
        let phones = (0..<6).map { _ in harness.register(token: "t") }
        for phone in phones { harness.disconnect(phone) }
        let record = world.send()
        harness.advance(10_100)
        let due = harness.dueTasks[0]
        // Two of the three buckets with devices are scanned, and the position is stored.
        for buckets in [0..<1, 1..<2] {
            world.ask(
                ScanBroadcast(record: due, purpose: .enumerate, buckets: buckets, share: BroadcastHarness.whole))
            world.ask(AdvanceBroadcast(record.id, record.app, position: buckets.upperBound, during: .open))
        }
        let first = harness.lease()
        #expect(first.count == 4)
        for job in first { harness.settle(job, .accepted) }
        // A vendor's acceptance is reported while the message is pending.
        #expect(world.totals(record).vendor.sent == 4 && world.totals(record).pending == 4)
        harness.crash()
        #expect(world.totals(record).vendor.sent == 4)
        harness.dueTasks = []
        harness.advance(10)
        #expect(harness.dueTasks.map { $0.broadcast?.position } == [2], "at once, not when a minute is over")
        world.runScans()
        let rest = harness.lease()
        #expect(rest.count == 2 && Set((first + rest).map(\.cid)) == Set(phones.map(\.cid)))
        #expect(world.totals(record).accepted == 6)
        for job in rest { harness.settle(job, .accepted) }
        harness.store.cool()
        harness.advance(7_300_000)
        world.runScans()
        let totals = world.totals(record)
        #expect(totals[.handedOff] == 6 && totals.vendor.sent == 6 && totals.all.sent == 6 && totals.pending == 0)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("a repeated scan finds all devices in their existing state")
    func repeatedScan() {
        let phone = harness.register(token: "t")
        harness.disconnect(phone)
        let record = world.send()
        harness.advance(10_100)
        for _ in 0..<3 { world.ask(world.scan(harness.dueTasks[0], .enumerate)) }
        #expect(harness.lease().count == 1 && world.totals(record).accepted == 1)
    }

    @Test("speed paces the sessions of a loop")
    func paced() {
        for _ in 0..<10 { _ = harness.register() }
        world.send(speed: 2)
        var counts: [Int] = []
        for _ in 0..<4 {
            for _ in 0..<50 { harness.advance(20) }
            counts.append(harness.takeDelivered().count)
        }
        #expect(counts.reduce(0, +) <= 9 && counts.reduce(0, +) >= 7, "\(counts)")
        for _ in 0..<200 { harness.advance(20) }
        #expect(harness.takeDelivered().count + counts.reduce(0, +) == 10)
    }

    @Test("an app has at most `liveBroadcasts` live broadcasts")
    func bounded() {
        var limits = ShardLimits()
        limits.liveBroadcasts = 2
        let world = BroadcastHarness(DeliveryHarness(limits: limits))
        world.send()
        world.send()
        guard case .full? = world.ask(CreateTask(world.record(), key: .none, digest: 0)) else {
            Issue.record("a third one was taken")
            return
        }
    }

    @Test("a repeated request gets its broadcast's result even if the app may not create more")
    func repeatedAtTheBound() {
        var limits = ShardLimits()
        limits.liveBroadcasts = 1
        let world = BroadcastHarness(DeliveryHarness(limits: limits))
        let record = world.record()
        let home = UInt64(DeliveryHarness.app.home.index) << 52
        let create = CreateTask(record, key: CallKey(high: home | 1, low: 1), digest: 5)
        guard case .created(let first, isRepeat: false)? = world.ask(create),
            case .created(let second, isRepeat: true)? = world.ask(create)
        else {
            Issue.record("the repeated request was refused")
            return
        }
        #expect(first == second)
        guard case .full? = world.ask(CreateTask(world.record(), key: CallKey(high: home | 2, low: 1), digest: 5))
        else {
            Issue.record("a second one was taken")
            return
        }
    }

    @Test("one app's speed does not delay another app's broadcasts")
    func pacedApart() {
        for _ in 0..<20 { _ = harness.register() }
        let other = harness.register(app: DeliveryHarness.otherApp)
        world.send(speed: 1)
        _ = harness.takeDelivered()
        world.ask(
            CreateTask(
                world.record("theirs", app: DeliveryHarness.otherApp), key: .none, digest: 0))
        for _ in 0..<5 { harness.advance(20) }
        #expect(harness.takeDelivered().contains { $0.session == other.session && $0.payload == "theirs" })
    }

    @Test("devices that return by the thousand in one commit receive a broadcast one after another")
    func storm() {
        var phones = (0..<3_000).map { _ in harness.register() }
        for phone in phones { harness.disconnect(phone) }
        let record = world.send()
        harness.flush()
        for index in phones.indices { harness.connect(&phones[index], flushing: false) }
        harness.flush()
        #expect(world.totals(record).accepted == 3_000)
        #expect(Set(harness.takeDelivered().map(\.session)).count == 3_000)
    }

    @Test("a removed device has no pending message of a broadcast")
    func forgotten() {
        let phone = harness.register()
        let record = world.send(timeToLive: 3 * 86_400_000, vendor: false)
        #expect(world.totals(record).pending == 1)
        harness.disconnect(phone)
        for _ in 0..<30 { world.advance(3_600_000) }
        world.advance(2 * 86_400_000)
        world.advance(100_000)
        let totals = world.totals(record)
        #expect(totals.accepted == 1 && totals.pending == 0 && totals[.expired] == 1)
        #expect(world.imbalance([record]) == nil)
    }

    @Test("the cursor is in the device's row within a second, even without other writes")
    func cursor() {
        let phone = harness.register()
        world.send(to: BroadcastHarness.tags(["nobody has it"]))
        world.send()
        world.acknowledge(phone, 2)
        harness.advance(1_100)
        var found: DeviceRow?
        harness.store.loadAll(table: .device) { found = DeviceRow.read($0.value)?.row }
        #expect(found?.broadcastSettled == 2 && found?.broadcastEvaluatedBeyond == 0)
    }

    @Test("a task's row keeps a broadcast's plan, and a list's row is unchanged")
    func taskRow() throws {
        var record = world.record(to: BroadcastHarness.tags(["a", "b"], .any), speed: 7)
        record.broadcast?.number = 4
        record.broadcast?.position = 99
        func bytes(_ record: TaskRecord) -> [UInt8] {
            var bytes = [UInt8](repeating: 0, count: TaskRow.byteCount(record))
            bytes.withUnsafeMutableBytes { TaskRow.write(record, into: $0) }
            return bytes
        }
        let row = bytes(record)
        #expect(row.withUnsafeBytes { TaskRow.read($0) } == record)
        for count in 0..<row.count { #expect(row[..<count].withUnsafeBytes { TaskRow.read($0) } == nil) }
        record.broadcast = nil
        #expect(bytes(record)[0] == 1)
    }

    private func revoke(_ record: TaskRecord, of phone: Phone) {
        let digest = SecretAsProof().messageDigest(of: record.id, for: phone.cid)
        record.id.bytes.withUnsafeBytes { payload in
            var command = PublishCommand(
                origin: Origin(route: 1, request: 900), app: DeliveryHarness.app, bucket: phone.bucket, cid: phone.cid,
                task: TaskID(high: 1 << 56, low: 77), messageDigest: 0xFEED, strategy: .liveOnly,
                timeToLive: 7_200_000, payload: payload)
            (command.revokes, command.revokedDigest) = (record.id, digest)
            harness.shard.publish(command, now: harness.now)
        }
        harness.flush()
    }

    @Test("a revoke withdraws a broadcast that was not yet evaluated for the device", arguments: [false, true])
    func revokedUnevaluated(crashes: Bool) {
        var phone = harness.register(token: "t")
        harness.disconnect(phone)
        let (first, record) = (world.send("first"), world.send("second"))
        revoke(record, of: phone)
        #expect(harness.outcomes[900]?.code == .ignored, "it has not seen it: there is nothing to tell it")
        #expect(world.totals(record)[.revoked] == 1 && world.totals(record).pending == 0)
        if crashes { harness.crash() }
        harness.connect(&phone)
        harness.flush()
        #expect(harness.takeDelivered().map(\.payload) == ["first"])
        #expect(world.totals(first).pending == 1 && world.totals(record)[.revoked] == 1)
        #expect(world.imbalance([first, record]) == nil)
    }

    @Test("a revoke of a broadcast not yet evaluated for a connected device does not affect earlier ones")
    func revokedBehindFullWindow() {
        var phone = harness.register(token: "t")
        harness.disconnect(phone)
        harness.connect(&phone) { $0.window = 1 }
        let first = world.send("first")
        #expect(harness.takeDelivered().map(\.payload) == ["first"])
        let (second, third) = (world.send("second", timeToLive: 0, vendor: false), world.send("third"))
        revoke(third, of: phone)
        #expect(harness.outcomes[900]?.code == .ignored && world.totals(third)[.revoked] == 1)
        harness.shard.acknowledgeBroadcasts(phone.session, cumulative: 1, ranges: [], now: harness.now)
        harness.flush()
        #expect(harness.takeDelivered().map(\.payload) == ["second"], "not expired, though it may wait for nobody")
        #expect(world.totals(first)[.delivered] == 1 && world.imbalance([first, second, third]) == nil)
    }

    @Test("a revoke withdraws a broadcast's message that the device already has")
    func revoked() {
        let phone = harness.register(token: "t")
        let record = world.send()
        _ = harness.takeDelivered()
        revoke(record, of: phone)
        #expect(harness.outcomes[900]?.code == .accepted && world.totals(record)[.revoked] == 1)
        #expect(harness.takeDelivered().map(\.stream) == [0], "the revoke itself, in the device's own stream")
    }

    @Test("a broadcast's message has a trace under its task and its device")
    func trace() {
        let phone = harness.register(token: "t")
        let record = world.send()
        #expect(world.message(record, phone)?.finalState == nil && world.message(record, phone) != nil)
        world.acknowledge(phone, 1)
        let trace = world.message(record, phone)
        #expect(trace?.finalState == .delivered && trace?.sequence == 1 && trace?.task == record.id)
        #expect(harness.finalState(trace?.message ?? .none) == .delivered)
    }

    @Test("jobs of single pushes are leased before those of a broadcast")
    func bulk() {
        let phones = (0..<3).map { _ in harness.register(token: "t") }
        for phone in phones { harness.disconnect(phone) }
        let record = world.send()
        world.enumerate()
        let single = harness.publish(phones[2])
        let jobs = harness.lease()
        #expect(jobs.first?.message == single.message && jobs.dropFirst().allSatisfy { $0.task == record.id })
    }
}
