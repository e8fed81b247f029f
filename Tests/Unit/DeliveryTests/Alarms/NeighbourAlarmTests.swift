import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Alarms of neighbours")
struct NeighbourAlarmTests {
    private static let flooder: Set<AppKey> = [DeliveryHarness.app]
    private static let neighbour = DeliveryHarness.otherApp

    private static func harness(readAhead: Int = 8, batch: Int = 4) -> DeliveryHarness {
        var limits = ShardLimits()
        (limits.dueJobReadAhead, limits.alarmBatch) = (readAhead, batch)
        return DeliveryHarness(limits: limits)
    }

    private func absent(_ harness: DeliveryHarness, app: AppKey = DeliveryHarness.app) -> Phone {
        harness.register(state: .background, token: "aa", app: app)
    }

    /// Registers devices of the flooding app with push mode off.
    private func silenced(_ harness: DeliveryHarness, _ count: Int) -> [Phone] {
        (0..<count).map { _ in
            let phone = harness.register(token: "aa")
            harness.update(phone) { $0.pushModeOff = true }
            harness.disconnect(phone)
            return phone
        }
    }

    /// One message of the other app for each kind of deadline, all of them rows on disk.
    private struct Deadlines {
        let expiring: MessageID
        let retried: MessageID
        let lapsing: MessageID
        let live: MessageID
        let scheduled: TaskID
    }

    private func giveDeadlines(_ harness: DeliveryHarness) throws -> Deadlines {
        let app = Self.neighbour
        let broadcasts = BroadcastHarness(harness)
        let expiring = harness.publish(absent(harness, app: app), timeToLive: 60_000, vendor: false, app: app).message
        let retried = harness.publish(absent(harness, app: app), app: app).message
        harness.settle(try #require(harness.lease(1, apps: [app]).first), .retry, retryAfter: 40_000)
        let lapsing = harness.publish(absent(harness, app: app), app: app).message
        #expect(harness.lease(1, milliseconds: 50_000, apps: [app]).map(\.message) == [lapsing])
        // The device disconnects silently, so that the live message's deadline passes.
        let live = harness.publish(harness.register(token: "aa", app: app), app: app).message
        let record = broadcasts.record(scheduleAt: harness.now + 45_000, app: app)
        broadcasts.ask(CreateTask(record, key: .none, digest: 0))
        return Deadlines(
            expiring: expiring, retried: retried, lapsing: lapsing, live: live, scheduled: record.id)
    }

    /// Advances time and checks that each deadline is met within its second.
    private func expectDeadlines(_ deadlines: Deadlines, _ harness: DeliveryHarness) {
        var seen: [MessageID] = []
        for second in 1...62 {
            harness.advance(1_000)
            seen += harness.lease(100, apps: [Self.neighbour]).map(\.message)
            if second >= 11 { #expect(seen.contains(deadlines.live), "fallback, second \(second)") }
            if second >= 41 { #expect(seen.contains(deadlines.retried), "retry, second \(second)") }
            if second >= 46 {
                #expect(harness.launched.contains { $0.id == deadlines.scheduled }, "schedule, second \(second)")
            }
            if second >= 51 { #expect(seen.contains(deadlines.lapsing), "lapsed lease, second \(second)") }
        }
        #expect(harness.finalState(deadlines.expiring) == .expired)
    }

    @Test("an app without a sender service delays no expiry, retry, expired lease, schedule or fallback of others")
    func withoutSender() throws {
        let harness = Self.harness()
        for _ in 0..<60 { _ = harness.publish(absent(harness)) }
        let deadlines = try giveDeadlines(harness)
        harness.crash()
        expectDeadlines(deadlines, harness)
        #expect(harness.statistics[.apns].dueJobs <= 16)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("devices with push mode off delay no others, and their held jobs do not accumulate in memory")
    func pushModeOff() throws {
        let harness = Self.harness()
        var phones = silenced(harness, 60)
        for phone in phones { #expect(harness.publish(phone).code == .accepted) }
        let deadlines = try giveDeadlines(harness)
        harness.store.cool()
        expectDeadlines(deadlines, harness)
        #expect(harness.statistics[.apns].heldJobs <= 9)
        #expect(harness.lease(100, apps: Self.flooder).isEmpty)
        // Push mode is on again and the devices are offline, so each job is leased once.
        for index in phones.indices {
            harness.connect(&phones[index], state: .background)
            harness.update(phones[index]) { $0.pushModeOff = false }
        }
        var seen: [MessageID] = []
        for _ in 0..<60 {
            harness.advance(1_000)
            seen += harness.lease(5, apps: Self.flooder).map(\.message)
        }
        #expect(seen.count == 60 && Set(seen).count == 60)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("jobs above their app's share are each leased once by a new sender service, also across restarts")
    func leasedInTheEnd() {
        let harness = Self.harness()
        for _ in 0..<60 { _ = harness.publish(absent(harness)) }
        harness.crash()
        for _ in 0..<30 { harness.advance(1_000) }
        #expect(harness.statistics[.apns].dueJobs <= 8)
        expectAllLeased(harness) { round in
            if round == 5 { harness.crash() }
            if round == 10 { harness.store.cool() }
        }
        #expect(harness.imbalance() == nil)
    }

    /// The n-th read at the end fails, or none.
    ///
    /// The shard retries a message whose alarm was lost in this way after a second. Until then it must not poll the store in a
    /// busy loop.
    @Test("jobs above their app's share expire in time while those in memory go live", arguments: 0...24)
    func endsBeforeThoseInMemory(failingRead: Int) {
        let harness = Self.harness()
        for _ in 0..<20 { _ = harness.publish(absent(harness), timeToLive: 7_200_000) }
        let brief = (0..<20).map { _ in harness.publish(absent(harness), timeToLive: 120_000).message }
        harness.crash()
        for _ in 0..<115 { harness.advance(1_000) }
        // The test reads no trace of the short-lived messages, because a trace would load their jobs into memory.
        #expect(harness.statistics[.apns].dueJobs == 8)
        if failingRead > 0 { harness.store.failingReads = [harness.store.readCount + failingRead] }
        for _ in 0..<30 { harness.advance(1_000) }
        #expect(brief.allSatisfy { harness.finalState($0) == .expired })
        #expect(harness.statistics[.apns].dueJobs == 8 && harness.rowCount(.message) == 20)
        #expect(harness.rowCount(.job) == 0, "jobs that are only due have no row")
        #expect(harness.imbalance() == nil)
    }

    @Test("strategy 4 goes live in time even if its app has no room for more due jobs")
    func timeoutBeyondTheShare() {
        let harness = Self.harness()
        for _ in 0..<20 { _ = harness.publish(absent(harness), timeToLive: 7_200_000) }
        var phones = (0..<12).map { _ in harness.register(token: "aa") }
        let messages = phones.map { harness.publish($0, strategy: .vendorElseLive).message }
        harness.crash()
        for index in phones.indices { harness.connect(&phones[index]) }
        for _ in 0..<27 { harness.advance(1_000) }
        #expect(!harness.takeDelivered().contains { messages.contains($0.message) })
        for _ in 0..<10 { harness.advance(1_000) }
        #expect(Set(harness.takeDelivered().map(\.message)).isSuperset(of: messages))
        #expect(harness.imbalance() == nil)
    }

    @Test("strategy 4 goes live even if its lease expires and its app has no room for more due jobs")
    func lapseBeyondTheShare() {
        let harness = Self.harness()
        var phones = (0..<12).map { _ in absent(harness) }
        let messages = phones.map { harness.publish($0, strategy: .vendorElseLive).message }
        #expect(Set(harness.lease(12, milliseconds: 50_000).map(\.message)) == Set(messages))
        for _ in 0..<20 { _ = harness.publish(absent(harness), timeToLive: 7_200_000) }
        // Leased at once, so that the jobs in memory are due at the time in their rows.
        harness.advance(50_000)
        harness.store.cool()
        for index in phones.indices { harness.connect(&phones[index]) }
        // Half a minute in the store, then half a minute in memory from the lease's expiry.
        for _ in 0..<65 { harness.advance(1_000) }
        #expect(Set(harness.takeDelivered().map(\.message)).isSuperset(of: messages))
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("jobs above their app's share end with their messages in time")
    func endsInTime() {
        let harness = Self.harness()
        let messages = (0..<60).map { _ in harness.publish(absent(harness), timeToLive: 120_000).message }
        harness.crash()
        for _ in 0..<115 { harness.advance(1_000) }
        #expect(messages.allSatisfy { harness.finalState($0) == nil })
        for _ in 0..<30 { harness.advance(1_000) }
        #expect(messages.allSatisfy { harness.finalState($0) == .expired })
        #expect(harness.rowCount(.job) == 0)
        #expect(harness.imbalance() == nil)
    }

    @Test("while a share is full, its stored jobs are not read repeatedly")
    func noHotLoop() {
        let harness = Self.harness()
        for _ in 0..<60 { _ = harness.publish(absent(harness)) }
        for phone in silenced(harness, 60) { _ = harness.publish(phone) }
        harness.store.cool()
        for _ in 0..<40 { harness.advance(1_000) }
        let before = harness.store.readCount
        for _ in 0..<20 { harness.advance(1_000) }
        #expect(harness.store.readCount == before)
        #expect(harness.shard.nextTimer > harness.now)
    }

    @Test("a small app has its own share while another one fills all the room")
    func floor() {
        let harness = Self.harness(readAhead: 600, batch: 256)
        for _ in 0..<700 { _ = harness.publish(absent(harness)) }
        harness.crash()
        for _ in 0..<5 { harness.advance(1_000) }
        #expect(harness.statistics[.apns].dueJobs == 600)
        let own = (0..<50).map { _ in
            harness.publish(absent(harness, app: Self.neighbour), app: Self.neighbour).message
        }
        harness.store.cool()
        for _ in 0..<5 { harness.advance(1_000) }
        #expect(Set(harness.lease(100, apps: [Self.neighbour]).map(\.message)) == Set(own))
    }

    @Test("jobs of messages that were sent live and not acked are bounded, too", arguments: [false, true])
    func missedLive(afterRestart: Bool) {
        let harness = Self.harness()
        for _ in 0..<60 { _ = harness.publish(harness.register(token: "aa")) }
        for _ in 0..<30 { harness.advance(1_000) }
        if afterRestart { harness.crash() } else { harness.store.cool() }
        for _ in 0..<30 { harness.advance(1_000) }
        #expect(harness.statistics[.apns].dueJobs <= 16)
        expectAllLeased(harness)
    }

    /// A sender service leases each of sixty jobs once.
    private func expectAllLeased(_ harness: DeliveryHarness, _ disturb: (Int) -> Void = { _ in }) {
        var seen: [MessageID] = []
        for round in 0..<60 {
            harness.advance(1_000)
            seen += harness.lease(3, milliseconds: 3_600_000, apps: Self.flooder).map(\.message)
            disturb(round)
        }
        #expect(seen.count == 60 && Set(seen).count == 60)
        #expect(harness.store.violations.isEmpty)
    }
}
