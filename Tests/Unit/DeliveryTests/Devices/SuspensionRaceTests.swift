import Delivery
import TestKit
import Testing
import Wire

@Suite("Suspension races") struct SuspensionRaceTests {
    @Test("an ack after the report of suspension still counts and cancels the alert", arguments: [false, true])
    func ackAfterLeaving(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        if cold { harness.store.cool() }
        harness.become(.background, phone)
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
        #expect(harness.lease().isEmpty)
        #expect(harness.rowCount(.message) == 0)
        #expect(harness.rowCount(.job) == 0)
        harness.delivered.removeAll()
        harness.connect(&phone)
        #expect(harness.delivered.isEmpty)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    enum Pressure: CaseIterable { case purge, collapse, overflow, loweredBound }

    @Test(
        "a message whose ack may be in transit is not purged, collapsed or dropped", arguments: Pressure.allCases,
        [false, true])
    func ackInTransit(pressure: Pressure, cold: Bool) throws {
        let harness = DeliveryHarness {
            $0.queuedMessageLimit = 2
            $0.overflowPolicy = .dropOldest
        }
        let phone = harness.register(token: "aa")
        let message = harness.publish(phone, collapseKey: "k").message
        if cold { harness.store.cool() }
        harness.become(.background, phone)
        switch pressure {
        case .purge:
            let address = DeviceAddress(app: DeliveryHarness.app, bucket: phone.bucket, cid: phone.cid)
            guard case .found(let result)? = harness.ask(ChangeDevice(address, .purge)) else {
                Issue.record("not purged")
                return
            }
            #expect(result == DeviceChangeResult(count: 0, leftCount: 1))
        case .collapse:
            let newer = harness.publish(phone, collapseKey: "k")
            #expect(newer.code == .accepted && harness.lease().map(\.message) == [newer.message])
        case .overflow:
            let unsent = harness.publish(phone)
            #expect(harness.publish(phone).code == .accepted)
            #expect(harness.finalState(unsent.message) == .overflowed)
        case .loweredBound:
            let unsent = harness.publish(phone)
            harness.apps[0].queuedMessageLimit = 1
            harness.shard.reload(apps: harness.apps)
            #expect(harness.publish(phone).code == .queueFull)
            #expect(harness.finalState(unsent.message) == .overflowed)
        }
        #expect(harness.finalState(message) == nil)
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(message) == .deliveredOffline)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test(
        "a replaced message is not sent again after an update, and its ack counts until the session ends",
        arguments: [false, true], [false, true])
    func replacedAcrossUpdates(isAcked: Bool, cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let old = harness.publish(phone, "old", collapseKey: "k").message
        _ = harness.publish(phone, "other")
        _ = harness.publish(phone, "new", collapseKey: "k")
        if cold { harness.store.cool() }
        harness.delivered.removeAll()
        for state in [ApplicationState.background, .foreground] { harness.become(state, phone) }
        #expect(harness.delivered.map(\.payload) == ["other", "new"])
        #expect(harness.finalState(old) == nil)
        // The client's position leaves out a message that the app has not processed.
        harness.acknowledge(phone, 0, ranges: [SequenceRange(first: 2, last: 2)])
        if isAcked { harness.acknowledge(phone, 1) } else { harness.disconnect(phone) }
        #expect(harness.finalState(old) == (isAcked ? .deliveredOffline : .collapsed))
        harness.delivered.removeAll()
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["new"])
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("messages sent before an update are sent again after it, and are on disk at the session's end")
    func coldInFlightSurvivesUpdates() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        for index in 0..<3 { _ = harness.publish(phone, "\(index)") }
        harness.store.cool()
        harness.become(.background, phone)
        _ = harness.publish(phone, "3")
        harness.delivered.removeAll()
        harness.become(.foreground, phone)
        #expect(harness.delivered.map(\.payload) == ["0", "1", "2", "3"])
        #expect(harness.delivered.map(\.sequence) == [1, 2, 3, 4])
        harness.become(.background, phone)
        harness.acknowledge(phone, 0, ranges: [SequenceRange(first: 2, last: 2)])
        harness.disconnect(phone)
        harness.store.cool()
        #expect(harness.statistics.messagesInMemory == 0)
        #expect(harness.lease().count == 3)
        harness.delivered.removeAll()
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["0", "2", "3"])
        harness.acknowledge(phone, 4)
        #expect(harness.rowCount(.message) == 0)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("an ack for a message of an earlier session, not sent in this one, is ignored")
    func notSentHere() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        harness.connect(&phone, state: .background)
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(outcome.message) == nil)
    }

    @Test("a position does not settle an earlier message that the stream skipped", arguments: [false, true])
    func passedOver(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let expired = harness.publish(phone, "expired", timeToLive: 5_000)
        #expect(harness.lease(milliseconds: 60_000).count == 1)
        harness.advance(6_000)
        if cold { harness.store.cool() }
        _ = harness.publish(phone, "later", vendor: false)
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["later"])
        harness.acknowledge(phone, 2)
        harness.connect(&phone) { $0.positions = [StreamPosition(sequence: 2)] }
        #expect(harness.finalState(expired.message) == nil)
        harness.advance(60_000)
        #expect(harness.finalState(expired.message) == .expired)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test(
        "a one-shot message that was not read before the disconnect is not settled by later positions",
        arguments: [false, true])
    func oneShotPassedOver(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let lost = harness.publish(phone, "lost", timeToLive: -1)
        harness.disconnect(phone)
        _ = harness.publish(phone, "later", vendor: false)
        harness.delivered.removeAll()
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["later"])
        harness.acknowledge(phone, 2)
        harness.disconnect(phone)
        if cold { harness.store.cool() }
        harness.connect(&phone) { $0.positions = [StreamPosition(sequence: 2)] }
        #expect(harness.finalState(lost.message) == nil)
        #expect(harness.lease().count == 1)
    }

    @Test(
        "a one-shot message is sent again after an update within its deadline, and its ack counts",
        arguments: [0, -1], [[ApplicationState.foreground], [.background, .foreground]])
    func oneShotAcrossUpdates(timeToLive: Int64, states: [ApplicationState]) {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let message = harness.publish(phone, "once", timeToLive: timeToLive).message
        harness.letTimePass(500)
        for state in states { harness.become(state, phone) }
        #expect(harness.delivered.map(\.payload) == ["once", "once"])
        #expect(harness.lease().isEmpty, "its device has it in hand")
        harness.letTimePass(500)
        harness.acknowledge(phone, 1)
        let state = harness.finalState(message)
        #expect(state == .delivered || state == .deliveredOffline)
        harness.advance(20_000)
        #expect(harness.lease().isEmpty && harness.imbalance() == nil)
    }

    @Test("an update does not extend the single attempt of a one-shot message", arguments: [0, -1])
    func oneShotDeadline(timeToLive: Int64) {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let message = harness.publish(phone, timeToLive: timeToLive).message
        harness.letTimePass(9_000)
        harness.become(.foreground, phone)
        harness.advance(1_000)
        if timeToLive == 0 {
            #expect(harness.finalState(message) == .expired)
        } else {
            #expect(harness.lease().map(\.message) == [message])
            harness.delivered = []
            harness.become(.foreground, phone)
            #expect(harness.delivered.isEmpty)
        }
    }

    @Test("no message is delivered between the results of two concurrent updates")
    func twoUpdates() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background)
        _ = harness.publish(phone, "waits")
        harness.order.removeAll()
        var update = DeviceUpdate()
        update.request = 1
        update.applicationState = .background
        update.badge = 1
        harness.shard.update(phone.session, update, now: harness.now)
        update.request = 2
        update.applicationState = .foreground
        update.badge = 2
        harness.shard.update(phone.session, update, now: harness.now)
        harness.flush()
        #expect(harness.order == ["updated", "updated", "deliver"])
    }
}
