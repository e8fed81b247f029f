import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Feedback")
struct FeedbackTests {
    private let harness = DeliveryHarness()
    private static let task = TaskID(kind: .list, month: 11, day: 18, home: Bucket(2), random: (9, 77))
    private static let digest: UInt64 = 0x0102_0304_0506_0000

    private func counted(_ extra: CountersRow.Extra) -> UInt32 {
        var sum: UInt32 = 0
        harness.store.loadAll(table: .counters) { sum += CountersRow($0.value)?.extra[extra] ?? 0 }
        return sum
    }

    private func events(_ message: MessageID) -> [TraceEvent] { harness.trace(message)?.steps.map(\.event) ?? [] }

    private func act(_ phone: Phone, _ number: UInt32, _ message: MessageID) {
        var feedback = Feedback()
        (feedback.kind, feedback.messageID, feedback.action) = (.action, message, number)
        harness.shard.feedback(phone.session, feedback, now: harness.now)
        harness.flush()
    }

    private func actions(_ message: MessageID) -> [String] {
        harness.trace(message)?.steps.filter { $0.event == .action }.map(\.detail) ?? []
    }

    /// Publishes a message of a task with reports to one device.
    private func sendOfTask(_ phone: Phone) {
        var payload = "p"
        payload.withUTF8 {
            let command = PublishCommand(
                origin: .none, app: DeliveryHarness.app, bucket: phone.bucket, cid: phone.cid, task: Self.task,
                messageDigest: Self.digest, strategy: .liveElseVendor, timeToLive: 7_200_000, isBulk: true,
                payload: UnsafeRawBufferPointer($0))
            harness.shard.publish(command, now: harness.now)
        }
        harness.flush()
    }

    enum Tap: CaseIterable { case feedback, hello, receipt }

    @Test(
        "a tap ends a message only if its alert has the whole content; otherwise it is recorded",
        arguments: Tap.allCases, [false, true])
    func tapOfPart(tap: Tap, cold: Bool) throws {
        var phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone, "the rest", carriesAll: false)
        harness.settle(try #require(harness.lease().first), .accepted)
        if cold {
            harness.crash()
            if tap != .hello { harness.connect(&phone) { $0.applicationState = .background } }
        }
        switch tap {
        case .feedback: harness.feedback(phone, .opened, outcome.message)
        case .hello: break
        case .receipt: _ = harness.receipt(phone, [ReceiptEvent(kind: .opened, message: outcome.message)])
        }
        harness.delivered = []
        harness.connect(&phone) { $0.opened = tap == .hello ? [outcome.message] : [] }
        #expect(harness.delivered.map(\.payload) == ["the rest"])
        #expect(harness.delivered.first?.isOffline == true && harness.delivered.first?.alertedAt ?? 0 > 0)
        #expect(counted(.clickedVendor) == 1 && counted(.shownVendor) == 1)
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
        #expect(events(outcome.message).contains(.opened))
        #expect(counted(.clickedVendor) == 1 && harness.imbalance() == nil)
    }

    enum Stand: CaseIterable { case sent, waiting, ended }

    @Test(
        "shown and opened count once each, whatever happens between repeated reports",
        arguments: Stand.allCases, [Feedback.Kind.shown, .opened])
    func once(stand: Stand, kind: Feedback.Kind) {
        var phone = harness.register(token: "aa")
        // With `replayOpened` an opened message stays, and its event is recorded like any other.
        if stand != .ended { harness.connect(&phone) { $0.replayOpened = true } }
        if stand == .waiting { harness.become(.background, phone) }
        let outcome = harness.publish(phone)
        if stand == .ended { harness.acknowledge(phone, 1) }
        for round in 0..<3 {
            harness.feedback(phone, kind, outcome.message)
            if round == 0 { harness.store.cool() }
            if round == 1 {
                harness.crash()
                harness.connect(&phone) { $0.replayOpened = stand != .ended }
                harness.letTimePass(120_000)
            }
        }
        #expect(counted(kind == .shown ? .shownLive : .clickedLive) == 1)
        #expect(events(outcome.message).filter { $0 == (kind == .shown ? .shown : .opened) }.count == 1)
        #expect(harness.imbalance() == nil)
    }

    @Test("a message shown before its ack is recorded, and reported with the message's end")
    func shownBeforeAck() {
        let phone = harness.register()
        let outcome = harness.publish(phone, vendor: false)
        harness.letTimePass(1)
        harness.feedback(phone, .shown, outcome.message)
        #expect(harness.rowCount(.job) == 0, "there is no job that could have kept it")
        #expect(events(outcome.message) == [.accepted, .sent, .shown])
        harness.letTimePass(1)
        harness.acknowledge(phone, 1)
        harness.feedback(phone, .shown, outcome.message)
        #expect(events(outcome.message) == [.accepted, .sent, .shown, .acked])
        #expect(counted(.shownLive) == 1)
    }

    @Test("a message that is only on disk is found among its device's, once a second")
    func shownOfColdMessage() {
        var phone = harness.register()
        let outcomes = (0..<40).map { _ in harness.publish(phone, strategy: .liveOnly, vendor: false) }
        harness.crash()
        // The first 32 fill the window.
        harness.connect(&phone)
        let isListed = harness.statistics.messagesInMemory
        #expect(isListed == 32)
        harness.feedback(phone, .shown, outcomes[39].message)
        #expect(counted(.shownLive) == 1)
        harness.feedback(phone, .shown, outcomes[38].message)
        #expect(counted(.shownLive) == 1 && harness.statistics.feedbackIgnored == 0)
        harness.advance(1_000)
        #expect(counted(.shownLive) == 2)
        harness.feedback(phone, .shown, outcomes[0].message)
        #expect(counted(.shownLive) == 3)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("opened includes shown, so a later shown does not count again")
    func openedAfterShown() {
        let phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone)
        harness.settle(harness.lease()[0], .accepted)
        harness.feedback(phone, .shown, outcome.message)
        harness.crash()
        var again = phone
        harness.connect(&again) { $0.opened = [outcome.message] }
        #expect(harness.finalState(outcome.message) == .opened)
        #expect(counted(.shownVendor) == 1 && counted(.clickedVendor) == 1)
    }

    @Test("sixteen actions of a message count, each once, and only with Getui's numbers", arguments: [false, true])
    func actionsAreBounded(isOfTask: Bool) {
        var phone = harness.register()
        if isOfTask { sendOfTask(phone) } else { _ = harness.publish(phone) }
        let message = harness.delivered[0].message
        for number: UInt32 in [0, 1, 90_000, 91_000, .max] { act(phone, number, message) }
        #expect(actions(message).isEmpty && harness.statistics.feedbackIgnored == 5)
        for number: UInt32 in 90_001...90_016 {
            act(phone, number, message)
            act(phone, number, message)
            if number == 90_008 {
                harness.crash()
                harness.connect(&phone)
            }
        }
        let taken = (90_001...90_016).map { String($0) }
        #expect(actions(message) == taken && harness.statistics.feedbackIgnored == 0)
        for number: UInt32 in 90_017...90_999 { act(phone, number, message) }
        act(phone, 90_001, message)
        #expect(actions(message) == taken && harness.statistics.feedbackIgnored == 983)
        #expect(harness.rowCount(.taskEvent) == (isOfTask ? 16 : 0))
        // Traces are dropped long before reports.
        harness.store.cool()
        harness.store.dropEphemeralRows()
        for number: UInt32 in 90_010...90_030 { act(phone, number, message) }
        #expect(harness.rowCount(.taskEvent) == (isOfTask ? 16 : 0))
    }

    @Test("an action does not change shown")
    func actionBesideShown() {
        let phone = harness.register()
        let outcome = harness.publish(phone)
        harness.acknowledge(phone, 1)
        harness.feedback(phone, .shown, outcome.message)
        act(phone, 90_001, outcome.message)
        harness.feedback(phone, .shown, outcome.message)
        #expect(counted(.shownLive) == 1)
        #expect(Set(events(outcome.message)) == [.accepted, .sent, .acked, .shown, .action])
    }

    @Test(
        "while the store refuses writes, shown and actions wait, and an open still ends its message")
    func backPressure() {
        let phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        harness.store.acceptsWrites = false
        harness.feedback(phone, .shown, outcome.message)
        act(phone, 90_001, outcome.message)
        #expect(events(outcome.message) == [.accepted, .sent])
        harness.feedback(phone, .opened, outcome.message)
        #expect(harness.finalState(outcome.message) == .opened)
        harness.store.acceptsWrites = true
        harness.advance(1_000)
        #expect(events(outcome.message).contains(.shown) && actions(outcome.message) == ["90001"])
        #expect(harness.statistics.feedbackIgnored == 0)
    }

    @Test("feedback about an unknown message or another device's is ignored and counted")
    func foreign() {
        let phone = harness.register(), other = harness.register()
        let outcome = harness.publish(phone)
        let none = MessageID(bucket: phone.bucket, acceptedAt: harness.now, digest: 1)
        harness.feedback(other, .shown, outcome.message)
        harness.feedback(phone, .shown, none)
        act(phone, 90_001, none)
        #expect(harness.statistics.feedbackIgnored == 3)
        #expect(events(outcome.message) == [.accepted, .sent])
    }
}
