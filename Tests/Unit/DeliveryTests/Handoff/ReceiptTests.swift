import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Receipts")
struct ReceiptTests {
    private let harness = DeliveryHarness()

    private func counted(_ extra: CountersRow.Extra) -> UInt32 {
        var sum: UInt32 = 0
        harness.store.loadAll(table: .counters) { sum += CountersRow($0.value)?.extra[extra] ?? 0 }
        return sum
    }

    private func steps(_ message: MessageID, _ event: TraceEvent) -> [MessageTrace.Step] {
        harness.trace(message)?.steps.filter { $0.event == event } ?? []
    }

    private func shown(_ message: MessageID, at time: GatewayTime = 0) -> ReceiptEvent {
        ReceiptEvent(kind: .shown, message: message, at: time)
    }

    /// Returns a disconnected device whose message the vendor has accepted.
    private func alerted() -> (phone: Phone, message: MessageID) {
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        let outcome = harness.publish(phone)
        harness.settle(harness.lease()[0], .accepted)
        return (phone, outcome.message)
    }

    @Test("a report from a disconnected device counts once, also after its record was evicted and the store reopened")
    func withoutConnection() {
        let (phone, message) = alerted()
        #expect(harness.receipt(phone, [shown(message), shown(message)]) == .taken([.recorded, .repeated]))
        harness.store.cool()
        #expect(harness.receipt(phone, [shown(message)]) == .taken([.repeated]))
        harness.crash()
        // Its record is only on disk here.
        #expect(harness.statistics.loadedDevices == 0)
        #expect(harness.receipt(phone, [shown(message)]) == .taken([.repeated]))
        #expect(counted(.shownVendor) == 1 && counted(.shownLive) == 0)
        #expect(steps(message, .shown).count == 1)
        #expect(harness.status(phone)?.isConnected == false)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("an answer waits until its content is durable")
    func durable() {
        let (phone, message) = alerted()
        harness.sendReceipt(phone, [shown(message)])
        while harness.store.waitingReadCount > 0 { harness.store.deliverReplies() }
        #expect(harness.receipts.isEmpty && harness.store.waitingBatchCount == 1)
        harness.flush()
        #expect(harness.receipts == [.taken([.recorded])])
    }

    @Test("a notification belongs to the vendor even before its sender has reported the result")
    func beforeTheResult() {
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        let outcome = harness.publish(phone)
        let job = harness.lease()[0]
        #expect(harness.receipt(phone, [shown(outcome.message)]) == .taken([.recorded]))
        harness.settle(job, .accepted)
        #expect(counted(.shownVendor) == 1 && counted(.shownLive) == 0)
    }

    enum Reporter: CaseIterable { case device, vendor }

    /// Returns whether the report is recorded.
    private func report(
        _ harness: DeliveryHarness, _ phone: Phone, _ kind: VendorReceipt.Kind, _ message: MessageID,
        by reporter: Reporter
    ) -> Bool {
        switch reporter {
        case .device:
            let event = ReceiptEvent(kind: kind == .clicked ? .opened : .shown, message: message)
            return harness.receipt(phone, [event]) == .taken([.recorded])
        case .vendor:
            let receipt = VendorReceipt(message: message, kind: kind, token: "", at: 0)
            return harness.ask(TakeReceipts(receipts: [receipt], apps: nil))?.first?.verdict == .recorded
        }
    }

    @Test(
        "a report of the alert is the vendor's acceptance if the sender ended before its result",
        arguments: [Strategy.liveElseVendor, .vendorOnly, .vendorElseLive], [VendorReceipt.Kind.delivered, .clicked])
    func withoutResult(strategy: Strategy, kind: VendorReceipt.Kind) throws {
        for (reporter, maxAttempts) in Reporter.allCases.flatMap({ [($0, 1), ($0, 5)] }) {
            let harness = DeliveryHarness { $0.maxAttempts = maxAttempts }
            let phone = harness.register(token: "aa")
            harness.disconnect(phone)
            harness.letTimePass(5_000)
            let message = harness.publish(phone, strategy: strategy).message
            let job = try #require(harness.lease(milliseconds: 1_000).first)
            #expect(report(harness, phone, kind, message, by: reporter))
            harness.crash()
            harness.advance(5_000)
            #expect(harness.lease().isEmpty)
            let expected: FinalState? =
                strategy != .liveElseVendor ? .handedOff : kind == .clicked ? .opened : nil
            let trace = try #require(harness.trace(message))
            #expect(trace.finalState == expected)
            #expect(!trace.steps.contains { $0.event == .leaseLapsed || $0.event == .exhausted })
            // The late result of the sender counts as a result, and its alert was counted before.
            #expect(harness.settle(job, .accepted) == .recorded)
            #expect(harness.shard.statistics[.apns].resultsAccepted == 1)
            let day = UInt32(harness.now / 86_400_000)
            let figures = try #require(harness.ask(DayQuery(DeliveryHarness.app, day: day))).messages
            #expect(figures.vendor.sent == 1 && figures.vendor.shown == 1 && figures.live.clicked == 0)
            #expect(figures.vendor.clicked == (kind == .clicked ? 1 : 0))
            let imbalance = harness.imbalance()
            #expect(imbalance == nil && harness.store.violations.isEmpty)
        }
    }

    @Test(
        "a report of an alert moves what the alert omitted to the live stream, also from disk",
        arguments: [false, true])
    func partWithoutResult(isOnDisk: Bool) throws {
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let message = harness.publish(phone, "the rest", strategy: .vendorElseLive, carriesAll: false).message
        #expect(harness.lease(milliseconds: 1_000).count == 1)
        if isOnDisk {
            harness.store.cool()
            harness.crash()
        }
        #expect(harness.receipt(phone, [shown(message)]) == .taken([.recorded]))
        harness.advance(5_000)
        #expect(harness.lease().isEmpty)
        harness.connect(&phone)
        let delivered = harness.takeDelivered()
        #expect(delivered.map(\.payload) == ["the rest"])
        #expect(delivered.allSatisfy { $0.isOffline && $0.alertedAt > 0 })
    }

    @Test("a repeated report also accepts the message")
    func repeatedWithoutResult() throws {
        let phone = harness.register(token: "aa")
        let message = harness.publish(phone).message
        harness.feedback(phone, .shown, message)
        harness.disconnect(phone)
        #expect(harness.lease(milliseconds: 1_000).count == 1)
        #expect(harness.receipt(phone, [shown(message)]) == .taken([.repeated]))
        harness.advance(5_000)
        #expect(harness.lease().isEmpty)
        #expect(steps(message, .vendorAccepted).count == 1 && steps(message, .shown).count == 1)
    }

    @Test("opened ends the message and an action is recorded, each once")
    func everyKind() {
        let (phone, message) = alerted()
        let action = ReceiptEvent(kind: .action, message: message, action: 90_001)
        let opened = ReceiptEvent(kind: .opened, message: message)
        #expect(
            harness.receipt(phone, [shown(message), action, opened, action, opened])
                == .taken([.recorded, .recorded, .recorded, .repeated, .repeated]))
        #expect(harness.finalState(message) == .opened)
        #expect(counted(.clickedVendor) == 1 && counted(.shownVendor) == 1)
        #expect(harness.imbalance() == nil)
    }

    @Test("a shown reported after opened is not counted again", arguments: [false, true])
    func shownAfterOpened(isByFrame: Bool) {
        var (phone, message) = alerted()
        if isByFrame {
            harness.connect(&phone) { $0.opened = [message] }
        } else {
            #expect(harness.receipt(phone, [ReceiptEvent(kind: .opened, message: message)]) == .taken([.recorded]))
        }
        #expect(harness.finalState(message) == .opened)
        harness.store.cool()
        harness.crash()
        #expect(harness.receipt(phone, [shown(message)]) == .taken([.repeated]))
        #expect(counted(.shownVendor) == 1 && counted(.shownLive) == 0 && counted(.clickedVendor) == 1)
        #expect(steps(message, .shown).count == 1)
    }

    @Test("a shown of a message that stays after opened is not counted again")
    func shownAfterOpenedAndKept() {
        var (phone, message) = alerted()
        harness.connect(&phone) { $0.replayOpened = true }
        let opened = ReceiptEvent(kind: .opened, message: message)
        #expect(harness.receipt(phone, [opened, shown(message), opened]) == .taken([.recorded, .repeated, .repeated]))
        #expect(counted(.shownVendor) == 1 && counted(.clickedVendor) == 1)
        #expect(harness.finalState(message) == nil)
    }

    @Test("receipts count for a message of strategy 2, which ended when the vendor accepted it")
    func vendorOnly() {
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let message = harness.publish(phone, strategy: .vendorOnly).message
        harness.settle(harness.lease()[0], .accepted)
        #expect(harness.finalState(message) == .handedOff)
        harness.crash()
        let events = [
            ReceiptEvent(kind: .opened, message: message), shown(message), shown(message),
            ReceiptEvent(kind: .action, message: message, action: 90_001),
        ]
        #expect(harness.receipt(phone, events) == .taken([.recorded, .repeated, .repeated, .recorded]))
        #expect(counted(.shownVendor) == 1 && counted(.clickedVendor) == 1)
        #expect(harness.finalState(message) == .handedOff)
    }

    @Test("each device reports its own message of a broadcast, before and after its end, and each counts once")
    func broadcast() {
        let world = BroadcastHarness()
        let harness = world.harness
        var phones = (0..<2).map { _ in harness.register(token: "t") }
        for phone in phones { harness.disconnect(phone) }
        let record = world.send()
        world.enumerate()
        let jobs = harness.lease()
        for job in jobs { harness.settle(job, .accepted) }
        func message(_ phone: Phone) -> MessageID { jobs.first { $0.cid == phone.cid }?.message ?? .none }
        let (first, second) = (message(phones[0]), message(phones[1]))
        #expect(harness.receipt(phones[0], [shown(first), shown(second)]) == .taken([.recorded, .ignored]))
        harness.crash()
        #expect(harness.receipt(phones[0], [shown(first)]) == .taken([.repeated]))
        harness.connect(&phones[1])
        world.acknowledge(phones[1], 1)
        #expect(harness.receipt(phones[1], [shown(second), shown(second)]) == .taken([.recorded, .repeated]))
        let opened = ReceiptEvent(kind: .opened, message: first)
        #expect(harness.receipt(phones[0], [opened, shown(first)]) == .taken([.recorded, .repeated]))
        #expect(harness.receipt(phones[0], [opened]) == .taken([.repeated]))
        let totals = world.totals(record)
        #expect(totals.vendor.shown == 2 && totals.all.shown == 2 && totals.vendor.clicked == 1)
        #expect(totals[.opened] == 1 && world.imbalance([record]) == nil)
    }

    @Test("a message that needs a search is answered as retryable while no search is due")
    func searched() {
        var phone = harness.register()
        let outcomes = (0..<40).map { _ in harness.publish(phone, strategy: .liveOnly, vendor: false) }
        harness.crash()
        harness.connect(&phone)
        let events = [38, 39].map { shown(outcomes[$0].message) }
        #expect(harness.receipt(phone, events) == .taken([.recorded, .retry]))
        harness.letTimePass(1_000)
        #expect(harness.receipt(phone, [events[1]]) == .taken([.recorded]))
        // One search also finds an open that does not end its message.
        harness.letTimePass(1_000)
        let opened = ReceiptEvent(kind: .opened, message: outcomes[37].message)
        #expect(harness.receipt(phone, [opened]) == .taken([.recorded]))
        harness.letTimePass(1_000)
        let unknown = MessageID(bucket: phone.bucket, acceptedAt: harness.now - 1, digest: 1)
        #expect(harness.receipt(phone, [shown(unknown)]) == .taken([.ignored]))
    }

    @Test("the step has the device's time, limited to between the message's acceptance and the present")
    func time() {
        let (phone, message) = alerted()
        let accepted = message.acceptedAtMilliseconds
        harness.letTimePass(60_000)
        #expect(harness.receipt(phone, [shown(message, at: accepted + 700)]) == .taken([.recorded]))
        #expect(steps(message, .shown).map(\.time) == [accepted + 700])
        for (number, time) in [(90_001, accepted - 9_000), (90_002, harness.now + 9_000)] as [(UInt32, GatewayTime)] {
            _ = harness.receipt(
                phone, [ReceiptEvent(kind: .action, message: message, action: number, at: time)])
        }
        #expect(steps(message, .action).map(\.time) == [accepted, harness.now])
    }

    @Test("another device's message, an unknown one and an invalid action are ignored, and other events count")
    func ignored() {
        let (phone, message) = alerted()
        let (other, others) = alerted()
        let unknown = MessageID(bucket: phone.bucket, acceptedAt: harness.now, digest: 1)
        let noAction = ReceiptEvent(kind: .action, message: message, action: 7)
        #expect(
            harness.receipt(phone, [shown(others), shown(unknown), noAction, shown(message)])
                == .taken([.ignored, .ignored, .ignored, .recorded]))
        #expect(steps(others, .shown).isEmpty)
        #expect(harness.receipt(other, [shown(message)]) == .taken([.ignored]))
        #expect(harness.statistics.feedbackIgnored == 4)
    }

    @Test("an unknown device, a wrong proof and another app's device get the same refusal")
    func refused() {
        let (phone, message) = alerted()
        var stranger = phone
        stranger.cid = DeviceID(high: 1, low: 2)
        #expect(harness.receipt(stranger, [shown(message)]) == .refused)
        #expect(harness.receipt(phone, [shown(message)], proof: [1, 2, 3]) == .refused)
        #expect(harness.receipt(phone, [shown(message)], app: DeliveryHarness.otherApp) == .refused)
        harness.crash()
        #expect(harness.receipt(phone, [shown(message)], proof: [1, 2, 3]) == .refused)
        #expect(steps(message, .shown).isEmpty)
    }

    @Test("a clock beyond the tolerance gets the gateway's time", arguments: [-1, 1])
    func clock(direction: Int64) {
        let (phone, message) = alerted()
        let tolerance = ShardLimits().clockTolerance
        #expect(
            harness.receipt(phone, [shown(message)], clockAhead: direction * (tolerance + 1))
                == .clockSkew(serverTime: harness.now))
        #expect(steps(message, .shown).isEmpty)
        #expect(harness.receipt(phone, [shown(message)], clockAhead: direction * tolerance) == .taken([.recorded]))
    }

    @Test("an event that cannot be read or written is answered as retryable, and then counts")
    func retry() {
        let (phone, message) = alerted()
        harness.store.acceptsWrites = false
        #expect(harness.receipt(phone, [shown(message)]) == .taken([.retry]))
        harness.store.acceptsWrites = true
        harness.crash()
        harness.store.readsFailFrom = 0
        #expect(harness.receipt(phone, [shown(message)]) == .busy)
        harness.store.readsFailFrom = .max
        #expect(harness.receipt(phone, [shown(message)]) == .taken([.recorded]))
    }

    @Test("every single failed read leaves each event recorded once or retryable")
    func eachReadFails() {
        for failing in 0..<12 {
            let harness = DeliveryHarness()
            let phone = harness.register(token: "aa")
            harness.disconnect(phone)
            harness.letTimePass(5_000)
            let message = harness.publish(phone).message
            harness.settle(harness.lease()[0], .accepted)
            harness.store.cool()
            harness.crash()
            harness.store.failingReads = [harness.store.readCount + failing]
            let first = harness.receipt(phone, [shown(message), shown(message)])
            let second = harness.receipt(phone, [shown(message)])
            switch first {
            case .busy, .taken([.retry, .retry]): #expect(second == .taken([.recorded]), "read \(failing)")
            case .taken([.retry, .recorded]), .taken([.recorded, .repeated]), .taken([.recorded, .retry]):
                #expect(second == .taken([.repeated]), "read \(failing)")
            default: Issue.record("read \(failing): \(String(describing: first))")
            }
            #expect(harness.store.violations.isEmpty)
        }
    }

    @Test("a receipt is no sign of presence")
    func presence() {
        let (phone, message) = alerted()
        let before = harness.status(phone)
        harness.letTimePass(86_400_000)
        _ = harness.receipt(phone, [shown(message)])
        #expect(harness.status(phone)?.lastSeenAt == before?.lastSeenAt)
        #expect(harness.status(phone)?.isReachable == false)
    }
}
