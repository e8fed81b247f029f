import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Acks, rejections and feedback") struct AckTests {
    @Test("cumulative and ranged acks end the covered messages")
    func acks() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let outcomes = (0..<6).map { harness.publish(phone, "\($0)") }
        harness.acknowledge(phone, 2, ranges: [SequenceRange(first: 4, last: 5)])
        #expect(
            outcomes.map { harness.finalState($0.message) == .delivered } == [true, true, false, true, true, false])
        #expect(harness.imbalance() == nil)
    }

    @Test("an ack settles only messages sent in this session; others are ignored and counted")
    func unsentIsIgnored() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        for _ in 0..<40 { _ = harness.publish(phone, "x") }
        harness.acknowledge(phone, 40)
        #expect(harness.statistics.ended(.delivered) == 32)
        #expect(harness.statistics.acksIgnored == 1)
        #expect(harness.delivered.count == 40)
    }

    @Test("an ack above the highest assigned sequence closes the session with badAck")
    func badAck() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        _ = harness.publish(phone)
        harness.acknowledge(phone, 0, ranges: [SequenceRange(first: 1, last: 2)])
        #expect(harness.closes.map(\.code) == [.badAck])
        #expect(harness.statistics.ended(.delivered) == 0)
        #expect(harness.statistics.sessions == 0)
    }

    @Test("an acked message is never sent again once the ack is synced", arguments: [false, true])
    func ackedIsGone(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        _ = harness.publish(phone)
        if cold { harness.store.cool() }
        harness.acknowledge(phone, 1)
        harness.crash()
        harness.delivered.removeAll()
        harness.connect(&phone)
        harness.advance(20_000)
        #expect(harness.delivered.isEmpty)
        harness.disconnect(phone)
        #expect(harness.lease().isEmpty)
    }

    @Test("a rejected message ends as failed and frees its place in the window")
    func rejected() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let poison = harness.publish(phone)
        harness.shard.reject(phone.session, sequence: 1, reason: "cannot parse", now: harness.now)
        harness.flush()
        let trace = harness.trace(poison.message)
        #expect(trace?.finalState == .failed)
        #expect(trace?.finalReason == "rejectedByClient: cannot parse")
        #expect(harness.status(phone)?.inFlightCount == 0)
    }

    @Test("a late ack after the timeout ends the message as deliveredOffline and cancels its job")
    func lateAck() {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        harness.advance(10_000)
        #expect(harness.hasDueJobs)
        harness.acknowledge(phone, 1)
        #expect(!harness.hasDueJobs)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
        #expect(harness.rowCount(.job) == 0)
    }

    @Test("the trace of a message that got its job after its send shows the first send once", arguments: 0..<5)
    func sentOnce(cause: Int) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        let sentAt = harness.now
        harness.letTimePass(100)
        switch cause {
        case 0: harness.advance(10_000)
        case 1: harness.become(.background, phone)
        case 2: _ = harness.ask(.setBlacklisted(phone.cid, true), phone.bucket)
        case 3: harness.update(phone) { $0.pushModeOff = true }
        default:
            harness.disconnect(phone)
            harness.store.cool()
            harness.crash()
            harness.connect(&phone)
            #expect(harness.takeDelivered().count == 2)
        }
        func sends() -> [GatewayTime]? {
            harness.trace(outcome.message)?.steps.filter { $0.event == .sent }.map(\.time)
        }
        #expect(sends() == [sentAt])
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
        #expect(sends() == [sentAt])
        #expect(harness.imbalance() == nil)
    }

    @Test("opened from the notification ends the message before the backlog is paged", arguments: [false, true])
    func openedInHello(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let opened = harness.publish(phone, "opened")
        _ = harness.publish(phone, "other")
        for job in harness.lease() { harness.settle(job, .accepted) }
        if cold { harness.crash() }
        harness.connect(&phone) { $0.opened = [opened.message] }
        #expect(harness.delivered.map(\.payload) == ["other"])
        #expect((harness.delivered.first?.alertedAt ?? 0) > 0)
        #expect(harness.finalState(opened.message) == .opened)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("with replayOpened an opened message is delivered again, and the step is kept")
    func replayOpened() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let opened = harness.publish(phone, "opened")
        for job in harness.lease() { harness.settle(job, .accepted) }
        harness.connect(&phone) {
            $0.opened = [opened.message]
            $0.replayOpened = true
        }
        #expect(harness.delivered.map(\.payload) == ["opened"])
        #expect(harness.trace(opened.message)?.steps.contains { $0.event == .opened } == true)
    }

    @Test("feedback counts only for the device's own messages")
    func ownMessagesOnly() {
        let harness = DeliveryHarness()
        let victim = harness.register(state: .background, token: "aa")
        let attacker = harness.register()
        let outcome = harness.publish(victim)
        harness.feedback(attacker, .opened, outcome.message)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        harness.feedback(victim, .opened, outcome.message)
        #expect(harness.finalState(outcome.message) == .opened)
    }

    @Test("an open after the end is a late event and changes nothing")
    func lateOpen() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let outcome = harness.publish(phone)
        harness.acknowledge(phone, 1)
        harness.feedback(phone, .opened, outcome.message)
        let trace = harness.trace(outcome.message)
        #expect(trace?.finalState == .delivered)
        #expect(trace?.steps.map(\.event) == [.accepted, .sent, .acked, .opened])
        #expect(harness.imbalance() == nil)
    }

    @Test("a reported state of a message and its device is durable, and no crash reverts it")
    func durableAnswers() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let outcome = harness.publish(phone)
        harness.shard.acknowledge(
            phone.session, cumulative: 1, ranges: UnsafeBufferPointer(start: nil, count: 0), now: harness.now)
        harness.shard.trace(of: outcome.message, origin: .none, now: harness.now)
        harness.shard.status(
            of: phone.cid, bucket: phone.bucket, app: DeliveryHarness.app, origin: .none, now: harness.now)
        harness.drain()
        #expect(harness.traces.isEmpty && harness.statuses.isEmpty, "the ack is not on disk yet")
        harness.flush()
        #expect(harness.traces.map { $0?.finalState } == [.delivered])
        #expect(harness.statuses.map { $0?.queuedMessageCount } == [0])
        harness.crash()
        #expect(harness.finalState(outcome.message) == .delivered)
    }

    @Test(
        "a message sent before a crash is known even if its device has not reconnected", arguments: [false, true])
    func traceAfterCrash(comesBack: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register()
        // Without vendor content no job leads to the message.
        let outcome = harness.publish(phone, strategy: .liveOnly, vendor: false)
        harness.crash()
        let trace = harness.trace(outcome.message)
        #expect(trace?.finalState == nil && trace?.cid == phone.cid && trace?.sequence == 1)
        #expect(trace?.isOffline == false, "its live attempt has time yet")
        harness.letTimePass(harness.limits.liveDeadline + 1)
        #expect(harness.trace(outcome.message)?.isOffline == true)
        #expect(harness.trace(MessageID(high: outcome.message.high, low: 1)) == nil)
        guard comesBack else { return }
        // The message ends during a search: the job and the trace were requested, and the search is running.
        harness.shard.trace(of: outcome.message, origin: .none, now: harness.now)
        harness.drain()
        while !harness.shard.searches.isSearching, harness.store.waitingReadCount > 0 { harness.store.deliverReplies() }
        var isSearching = harness.shard.searches.isSearching
        #expect(isSearching)
        harness.shard.trace(of: outcome.message, origin: .none, now: harness.now)
        harness.connect(&phone, flushing: false) {
            $0.positions = [StreamPosition(stream: 0, sequence: 1)]
        }
        harness.flush()
        isSearching = harness.shard.searches.isSearching
        #expect(!isSearching)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
    }

    @Test("a message's trace is found among its device's messages, or among all messages a slice at a time")
    func boundedTrace() throws {
        let harness = DeliveryHarness()
        let phones = (0..<6).map { _ in harness.register() }
        let outcomes = phones.map { harness.publish($0) }
        harness.shard.searches.sliceCount = 2
        // With the device the trace is found at once, however many messages exist.
        harness.shard.trace(of: outcomes[5].message, cid: phones[5].cid, origin: .none, now: harness.now)
        #expect(harness.shard.searches.inMemory.count == 0)
        harness.flush()
        #expect(harness.traces.last??.message == outcomes[5].message)
        // With only the id each turn searches some messages, and one ends in between.
        for index in [1, 5] {
            harness.shard.trace(of: outcomes[index].message, origin: .none, now: harness.now)
        }
        #expect(harness.shard.searches.inMemory.count == 1)
        harness.acknowledge(phones[5], 1)
        for _ in 0..<3 {
            let next = harness.shard.nextTimer
            #expect(next <= harness.now || harness.shard.searches.inMemory.count == 0)
            harness.shard.advance(to: harness.now)
        }
        harness.flush()
        #expect(harness.shard.searches.inMemory.count == 0)
        #expect(harness.traces.suffix(2).map { $0?.message } == [outcomes[1].message, outcomes[5].message])
        #expect(harness.traces.last??.finalState == .delivered)
        // Searches above the bound are refused as retryable.
        for _ in 0..<70 { harness.shard.trace(of: outcomes[4].message, origin: .none, now: harness.now) }
        #expect(harness.shard.searches.inMemory.count == 64)
        for _ in 0..<300 { harness.shard.advance(to: harness.now) }
        harness.flush()
        #expect(harness.traceAnswers.suffix(70).count { if case .unreadable = $0 { true } else { false } } == 6)
    }

    @Test("searches take turns, a few wait, and an incomplete search is not answered as unknown")
    func searches() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let outcomes = (0..<3).map { _ in harness.publish(phone, strategy: .liveOnly, vendor: false) }
        harness.crash()
        for outcome in outcomes { harness.shard.trace(of: outcome.message, origin: .none, now: harness.now) }
        harness.flush()
        #expect(harness.traces.map { $0?.message } == outcomes.map(\.message))
        // One search is running, 64 wait, and the others are refused as retryable.
        for _ in 0..<70 { harness.shard.trace(of: outcomes[0].message, origin: .none, now: harness.now) }
        harness.flush()
        let told = harness.traceAnswers.dropFirst(3)
        #expect(told.count == 70 && told.count { if case .unreadable = $0 { true } else { false } } == 5)
        harness.store.readsFailFrom = 0
        #expect(harness.trace(outcomes[0].message) == nil)
        guard case .unreadable? = harness.traceAnswers.last else {
            Issue.record("\(String(describing: harness.traceAnswers.last))")
            return
        }
        // No message waits longer than a month.
        harness.store.readsFailFrom = .max
        let old = MessageID(bucket: phone.bucket, acceptedAt: harness.now - 32 * 86_400_000, digest: 1)
        let young = MessageID(bucket: phone.bucket, acceptedAt: harness.now - 30 * 86_400_000, digest: 1)
        for (message, isSearched) in [(old, false), (young, true)] {
            harness.shard.trace(of: message, origin: .none, now: harness.now)
            harness.drain()
            while harness.store.waitingReadCount > 0, !harness.shard.searches.isSearching {
                harness.store.deliverReplies()
            }
            let isSearching = harness.shard.searches.isSearching
            #expect(isSearching == isSearched)
            harness.flush()
            guard case .unknown? = harness.traceAnswers.last else {
                Issue.record("\(String(describing: harness.traceAnswers.last))")
                return
            }
        }
    }
}
