import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Jobs without a row") struct ImpliedJobTests {
    private func absent(_ harness: DeliveryHarness) -> Phone { harness.register(state: .background, token: "aa") }

    /// The way in which the job leaves memory.
    enum Way: CaseIterable { case crash, cool, none }

    private func go(_ way: Way, _ harness: DeliveryHarness) {
        switch way {
        case .crash: harness.crash()
        case .cool: harness.store.cool()
        case .none: break
        }
    }

    private func expectSound(_ harness: DeliveryHarness) {
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("the first lease writes the job's row, and the end of the message removes it", arguments: Way.allCases)
    func firstLease(way: Way) throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let message = harness.publish(phone).message
        #expect(harness.rowCount(.job) == 0 && harness.hasDueJobs)
        go(way, harness)
        harness.advance(1)
        let job = try #require(harness.lease().first)
        #expect(job.message == message && job.attempt == 1)
        #expect(harness.rowCount(.job) == 1)
        harness.become(.foreground, phone)
        if way == .crash {
            var back = phone
            harness.connect(&back)
            harness.acknowledge(back, 1)
        } else {
            harness.acknowledge(phone, 1)
        }
        #expect(harness.finalState(message) == .deliveredOffline)
        #expect(harness.rowCount(.job) == 0)
        expectSound(harness)
    }

    @Test("without a lease no job row is written, however the message ends", arguments: Way.allCases)
    func endsWithoutRow(way: Way) {
        let harness = DeliveryHarness()
        let expiring = harness.publish(absent(harness), timeToLive: 60_000).message
        var phone = harness.register(token: "aa")
        let missed = harness.publish(phone).message
        let unarmed = harness.publish(absent(harness), timeToLive: 60_000, vendor: false).message
        harness.advance(10_000)
        #expect(harness.statistics[.apns].dueJobs == 2)
        go(way, harness)
        harness.advance(49_999)
        #expect(harness.trace(expiring)?.finalState == nil)
        harness.advance(1)
        #expect(harness.finalState(expiring) == .expired && harness.finalState(unarmed) == .expired)
        harness.connect(&phone)
        #expect(harness.delivered.last?.isOffline == true)
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(missed) == .deliveredOffline)
        #expect(harness.rowCount(.job) == 0 && harness.rowCount(.message) == 0)
        #expect(harness.statistics.jobsInMemory == 0)
        expectSound(harness)
    }

    @Test("a lease lost in a crash leaves the job due")
    func lostLease() {
        let harness = DeliveryHarness()
        _ = harness.publish(absent(harness))
        harness.shard.lease(
            LeaseCommand(
                origin: .none, channel: .apns, apps: nil, limit: 5, leaseMilliseconds: 60_000, leaseID: (1, 1)),
            now: harness.now)
        harness.crash()
        harness.advance(1)
        #expect(harness.lease().map(\.attempt) == [1])
        expectSound(harness)
    }

    @Test("a leased job is not due, although its message's row implies it", arguments: Way.allCases)
    func leasedStaysLeased(way: Way) throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let message = harness.publish(phone).message
        let job = try #require(harness.lease(milliseconds: 30_000).first)
        go(way, harness)
        for _ in 0..<29 {
            harness.advance(1_000)
            #expect(harness.lease().isEmpty)
        }
        harness.advance(1_000)
        #expect(harness.lease().map(\.attempt) == [2])
        harness.settle(job, .accepted)
        go(way, harness)
        harness.advance(1_000)
        #expect(harness.lease().isEmpty)
        harness.advance(7_200_000)
        #expect(harness.finalState(message) == .handedOff)
        expectSound(harness)
    }

    @Test("strategies 2 and 4 keep their rules while their job has no row", arguments: Way.allCases)
    func vendorStrategies(way: Way) throws {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let second = harness.publish(phone, strategy: .vendorOnly).message
        harness.advance(1)
        let fourth = harness.publish(phone, strategy: .vendorElseLive).message
        go(way, harness)
        if way == .crash { harness.connect(&phone) }
        harness.advance(1)
        let job = try #require(harness.lease(1).first)
        #expect(job.message == second)
        harness.settle(job, .accepted)
        #expect(harness.finalState(second) == .handedOff)
        harness.advance(29_000)
        #expect(!harness.delivered.contains { $0.message == fourth })
        harness.advance(1_000)
        #expect(harness.delivered.contains { $0.message == fourth && $0.isOffline })
        #expect(harness.rowCount(.vendorMessage) == 0)
        expectSound(harness)
    }

    @Test(
        "a message sent with the offline flag before its deadline ends as such, also after a crash",
        arguments: [true, false])
    func flaggedEarly(hasContent: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let message = harness.publish(phone, vendor: hasContent).message
        harness.advance(1_000)
        harness.disconnect(phone)
        harness.advance(10)
        harness.connect(&phone)
        #expect(harness.takeDelivered().last.map { $0.message == message && $0.isOffline } == true)
        harness.store.sync()
        harness.crash()
        // The device has processed the message: its position covers it before the deadline of the first attempt.
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 0, sequence: 1)] }
        #expect(harness.finalState(message) == .deliveredOffline)
        #expect(harness.rowCount(.job) == 0)
        expectSound(harness)
    }

    @Test("a message that moves to disk while its device's connection is broken also gets the offline flag")
    func coolsEarly() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let message = harness.publish(phone).message
        harness.advance(100)
        harness.disconnect(phone, announced: false)
        // The deadline of a broken connection is only in memory.
        harness.store.cool()
        harness.advance(5_000)
        #expect(harness.hasDueJobs)
        harness.connect(&phone)
        #expect(harness.takeDelivered().last.map { $0.message == message && $0.isOffline } == true)
        expectSound(harness)
    }

    @Test("a disconnect before the deadline makes the job due at once, also after a crash")
    func leavesEarly() {
        for crashes in [false, true] {
            let harness = DeliveryHarness()
            let phone = harness.register(token: "aa")
            let message = harness.publish(phone).message
            harness.advance(2_000)
            harness.become(.background, phone)
            // The message's row has only its deadline.
            #expect(harness.hasDueJobs && harness.rowCount(.job) == 1)
            if crashes {
                harness.store.sync()
                harness.crash()
                harness.advance(1_000)
            } else {
                harness.store.cool()
                harness.advance(20_000)
            }
            #expect(harness.lease().map(\.message) == [message])
            expectSound(harness)
        }
    }

    @Test("a trace shows the job from the times in the message's row", arguments: Way.allCases)
    func trace(way: Way) throws {
        let harness = DeliveryHarness()
        let offline = harness.publish(absent(harness)).message
        let live = harness.publish(harness.register(token: "aa")).message
        let accepted = harness.now
        harness.advance(10_000)
        go(way, harness)
        let first = try #require(harness.trace(offline))
        #expect(first.isOffline && first.steps.map(\.event) == [.accepted, .jobDue])
        #expect(first.steps.last?.time == first.acceptedAt)
        let second = try #require(harness.trace(live))
        let events = second.steps.map(\.event).filter { $0 != .sent }
        #expect(second.isOffline && events == [.accepted, .timedOut, .jobDue])
        #expect(second.steps.last?.time == accepted + 10_000)
    }

    @Test("an alarm that could not be read in time restores the job a second later", arguments: 1...6)
    func failingReads(nth: Int) {
        let harness = DeliveryHarness()
        let message = harness.publish(absent(harness)).message
        harness.crash()
        harness.store.failingReads = [harness.store.readCount + nth]
        for _ in 0..<4 { harness.advance(1_000) }
        var leased = harness.lease().map(\.message)
        harness.advance(2_000)
        leased += harness.lease().map(\.message)
        #expect(leased == [message])
        expectSound(harness)
    }

    @Test("an opened message ends as opened even if only its row on disk exists", arguments: [false, true])
    func openedWhileCold(inHello: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let message = harness.publish(phone).message
        harness.disconnect(phone)
        harness.crash()
        if inHello {
            harness.connect(&phone) { $0.opened = [message] }
        } else {
            harness.connect(&phone, state: .background)
            harness.feedback(phone, .opened, message)
        }
        #expect(harness.finalState(message) == .opened)
        #expect(harness.rowCount(.message) == 0)
        expectSound(harness)
    }

    @Test("a message that collapses in flight gets a job row, which keeps its mark across a crash")
    func collapsed() {
        let harness = DeliveryHarness()
        var phone = absent(harness)
        let old = harness.publish(phone, collapseKey: "k").message
        harness.store.cool()
        harness.connect(&phone)
        #expect(harness.rowCount(.job) == 0)
        _ = harness.publish(phone, collapseKey: "k")
        #expect(harness.rowCount(.job) == 1)
        harness.crash()
        harness.connect(&phone)
        #expect(harness.finalState(old) == .collapsed)
        #expect(harness.rowCount(.job) == 0)
        expectSound(harness)
    }

    @Test("a job row that is only due is leased once and removed")
    func dueRow() throws {
        let harness = DeliveryHarness()
        let message = harness.publish(absent(harness)).message
        let stored = try #require(harness.store.visibleRows.first { $0.key.table == .message })
        let facts = try #require(
            stored.value.value.withUnsafeBytes {
                MessageRow($0)?.facts(
                    cid: DeviceID(high: stored.key.ownerHigh, low: stored.key.ownerLow), table: .message,
                    item: stored.key.item)
            })
        var row = JobRow(facts: facts, state: .due, dueAt: facts.acceptedAt)
        row.note(.jobDue, facts.acceptedAt)
        harness.store.beginBatch(facts.bucket)
        harness.store.put(facts.jobKey, wakeAt: row.wakeAt, prior: .none, byteCount: row.byteCount) {
            row.write(into: $0)
        }
        _ = harness.store.endBatch()
        harness.flush()
        harness.crash()
        harness.advance(1)
        #expect(harness.lease(milliseconds: 5_000).map(\.message) == [message])
        harness.crash()
        harness.advance(5_000)
        #expect(harness.lease().map(\.attempt) == [2])
        harness.advance(7_200_000)
        #expect(harness.finalState(message) == .expired)
        #expect(harness.rowCount(.job) == 0)
        expectSound(harness)
    }

    @Test("a message with a damaged job row expires in time without a reconnect or restart")
    func damagedRow() throws {
        let harness = DeliveryHarness()
        let message = harness.publish(absent(harness), timeToLive: 60_000).message
        #expect(harness.lease(milliseconds: 10_000).map(\.message) == [message])
        let stored = try #require(harness.store.visibleRows.first { $0.key.table == .job })
        harness.store.beginBatch(stored.key.bucket)
        harness.store.put(stored.key, wakeAt: stored.value.wakeAt, prior: .maybe(wakeAt: 0), byteCount: 1) {
            $0[0] = 255
        }
        _ = harness.store.endBatch()
        harness.store.sync()
        harness.crash()
        for _ in 0..<59 {
            harness.advance(1_000)
            #expect(harness.lease().isEmpty)
        }
        #expect(harness.statistics.damagedRows > 0)
        #expect(harness.rowCount(.message) == 1 && harness.trace(message)?.finalState == nil)
        harness.advance(1_000)
        #expect(harness.finalState(message) == .expired && harness.rowCount(.message) == 0)
        #expect(harness.imbalance() == nil)
    }

    @Test("a page of a queue reads no job rows until one of its jobs is leased", arguments: [false, true])
    func pageReads(isLeased: Bool) {
        let harness = DeliveryHarness()
        var phone = absent(harness)
        for _ in 0..<2 { _ = harness.publish(phone, vendor: false) }
        _ = harness.publish(phone)
        if isLeased { #expect(harness.lease().count == 1) }
        harness.store.cool()
        harness.advance(1)
        var before = harness.store.readCount
        harness.connect(&phone)
        #expect(harness.takeDelivered().count == 3)
        #expect(harness.store.readCount - before == (isLeased ? 2 : 1))
        // An empty queue has no job rows again.
        harness.acknowledge(phone, 3)
        harness.disconnect(phone)
        for _ in 0..<2 { _ = harness.publish(phone, vendor: false) }
        harness.store.cool()
        harness.advance(1)
        before = harness.store.readCount
        harness.connect(&phone)
        #expect(harness.takeDelivered().count == 2)
        #expect(harness.store.readCount - before == 1)
        expectSound(harness)
    }
}
