import TestKit
import Testing
import Wire

@testable import Delivery

/// The first device of a task that acks ends the pending messages of the others, in one shard.
///
/// `endSiblings` plays the gateway's part.
@Suite("First ack wins")
struct FirstAckTests {
    private let harness = DeliveryHarness()
    private static let task = TaskID(kind: .list, month: 11, day: 18, home: Bucket(2), random: (9, 79))
    private static let timeout: Int64 = 60_000

    @Test("the gateway is notified once the ack is durable, and the siblings end as revoked, with their jobs")
    func wins() throws {
        let first = harness.register(), second = harness.register(), away = harness.register(token: "t")
        harness.disconnect(away)
        for phone in [first, second, away] { send(phone) }
        #expect(harness.hasDueJobs)
        harness.shard.acknowledge(
            first.session, cumulative: 1, ranges: UnsafeBufferPointer(start: nil, count: 0), now: harness.now)
        harness.drain()
        #expect(harness.firstAcks.isEmpty, "the ack is not on disk yet")
        harness.flush()
        let ack = try #require(harness.firstAcks.first)
        #expect(ack.task == Self.task && ack.message == harness.delivered[0].message)
        #expect(harness.firstAcks.count == 1)
        endSiblings(of: ack, [first, second, away])
        #expect(harness.rowCount(.message) == 0 && harness.rowCount(.job) == 0 && !harness.hasDueJobs)
        #expect(totals()[.delivered] == 1 && totals()[.revoked] == 2 && totals().pending == 0)
        harness.shard.trace(of: harness.delivered[1].message, origin: Origin(route: 3, request: 1), now: harness.now)
        harness.flush()
        #expect(harness.traces.last??.finalReason == "firstAckWins")
    }

    @Test("a sibling that acked before its turn stays delivered, and ends siblings of its own")
    func both() {
        let first = harness.register(), second = harness.register()
        for phone in [first, second] { send(phone) }
        harness.acknowledge(first, 1)
        harness.acknowledge(second, 1)
        harness.flush()
        #expect(harness.firstAcks.count == 2)
        for ack in harness.firstAcks { endSiblings(of: ack, [first, second]) }
        #expect(totals()[.delivered] == 2 && totals()[.revoked] == 0)
    }

    @Test("a device that opened the notification counts as the first, too")
    func opened() {
        var away = harness.register(token: "t")
        let other = harness.register(state: .background)
        harness.disconnect(away)
        for phone in [away, other] { send(phone) }
        let job = harness.lease().first { $0.cid == away.cid }
        harness.settle(job!, .accepted)
        harness.connect(&away) { $0.opened = [job!.message] }
        harness.flush()
        #expect(harness.firstAcks.map(\.message) == [job!.message])
    }

    @Test("without an ack no sibling ends: an expiry, a stop and a vendor's acceptance do not count")
    func withoutAck() {
        let away = harness.register(token: "t")
        harness.disconnect(away)
        send(away)
        harness.settle(harness.lease()[0], .accepted)
        harness.advance(7_300_000)
        #expect(totals()[.handedOff] == 1)
        #expect(harness.firstAcks.isEmpty)
    }

    @Test("a crash between the ack and the siblings' end only delays it: the alarm repeats until it is settled")
    func crash() throws {
        let first = harness.register(), away = harness.register()
        harness.disconnect(away)
        for phone in [first, away] { send(phone) }
        harness.acknowledge(first, 1)
        harness.flush()
        harness.firstAcks = []
        harness.crash()
        #expect(totals().pending == 1)
        harness.advance(Self.timeout + 1)
        let again = try #require(harness.firstAcks.last)
        endSiblings(of: again, [first, away], settles: false)
        #expect(totals()[.revoked] == 1 && totals()[.delivered] == 1)
        // Not settled yet, so the ack is reported again, also in the process that reported it.
        harness.firstAcks = []
        harness.advance(Self.timeout + 1)
        #expect(harness.firstAcks == [again])
        endSiblings(of: again, [first, away])
        harness.firstAcks = []
        harness.advance(3 * Self.timeout)
        #expect(harness.firstAcks.isEmpty)
        harness.crash()
        harness.advance(3 * Self.timeout)
        #expect(harness.firstAcks.isEmpty)
        #expect(totals().accepted == 2, "the row stays for the reports")
    }

    @Test("the settled row is kept as long as reports are, and no longer")
    func retention() throws {
        let first = harness.register(), away = harness.register()
        send(first)
        harness.acknowledge(first, 1)
        harness.flush()
        endSiblings(of: try #require(harness.firstAcks.first), [first, away])
        harness.crash()
        harness.advance(harness.limits.reportRetention - 3_600_000)
        #expect(totals().accepted == 1)
        harness.advance(3_700_000)
        harness.advance(1_000)
        #expect(totals().accepted == 0)
    }

    @Test("a message in flight to a sibling's shard is refused, and a repeated call ends new ones again")
    func late() throws {
        var first = harness.register()
        let late = harness.register()
        send(first)
        harness.acknowledge(first, 1)
        harness.flush()
        endSiblings(of: try #require(harness.firstAcks.first), [first, late])
        let request = send(late)
        #expect(harness.outcomes[request]?.code == .stopped)
        // A restart loses that state. The repeated call finds the acked message and reports it again.
        harness.crash()
        harness.firstAcks = []
        harness.connect(&first)
        let repeated = send(first)
        #expect(harness.outcomes[repeated]?.isRepeat == true)
        send(late)
        endSiblings(of: try #require(harness.firstAcks.first), [first, late])
        #expect(totals()[.revoked] == 1 && totals().pending == 0)
    }

    @Test(
        "a repeated call gets the answer of each device with the message after the first ack", arguments: [true, false])
    func repeatedAfterwards(isCold: Bool) throws {
        let first = harness.register(), second = harness.register(), third = harness.register()
        for phone in [first, second] { send(phone) }
        harness.acknowledge(first, 1)
        harness.flush()
        endSiblings(of: try #require(harness.firstAcks.first), [first, second, third])
        if isCold { harness.store.cool() }
        for phone in [first, second] {
            let outcome = harness.outcomes[send(phone)]
            #expect(outcome?.code == .accepted && outcome?.isRepeat == true)
        }
        #expect(harness.outcomes[send(third)]?.code == .stopped)
        #expect(totals()[.delivered] == 1 && totals()[.revoked] == 1 && totals().accepted == 2)
    }

    @Test("the siblings are stored once, whatever a repeated call contains")
    func kept() {
        let cids = [DeviceID(high: 1, low: 2), DeviceID(high: 3, low: 4)]
        guard case true? = harness.ask(KeepSiblings(Self.task, cids)),
            case true? = harness.ask(KeepSiblings(Self.task, [DeviceID(high: 5, low: 6)]))
        else {
            Issue.record("not kept")
            return
        }
        harness.crash()
        guard let page = harness.ask(ReadTargets(Self.task, from: 0)), page.devices == cids, page.next == nil else {
            Issue.record("not told again")
            return
        }
    }

    // MARK: Helpers

    private func digest(_ phone: Phone) -> UInt64 { phone.cid.low &* 0x1_0001_0001 &+ Self.task.low }

    /// Ends the siblings as the gateway does after a first ack.
    private func endSiblings(of first: FirstAck, _ phones: [Phone], settles: Bool = true) {
        for phone in phones where digest(phone) != first.message.low {
            let device = DeviceAddress(app: first.app, bucket: phone.bucket, cid: phone.cid)
            guard harness.ask(EndSibling(first.task, device, digest: digest(phone))) != nil else {
                Issue.record("not ended")
                continue
            }
        }
        guard settles else { return }
        guard case true? = harness.ask(SettleFirstAck(first)) else {
            Issue.record("not settled")
            return
        }
    }

    @discardableResult
    private func send(_ phone: Phone) -> UInt64 {
        let request = UInt64.random(in: 1 << 40...1 << 50)
        let body = Array(#"{"aps":{}}"#.utf8), payload = Array("news".utf8)
        payload.withUnsafeBytes { payload in
            body.withUnsafeBytes { body in
                var command = PublishCommand(
                    origin: Origin(route: 1, request: request), app: DeliveryHarness.app, bucket: phone.bucket,
                    cid: phone.cid, task: Self.task, messageDigest: digest(phone), strategy: .liveElseVendor,
                    timeToLive: 7_200_000, payload: payload,
                    vendor: VendorContent(
                        channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none, body: body,
                        messageIDOffset: -1, badgeOffset: -1,
                        collapseID: UnsafeRawBufferPointer(start: nil, count: 0)))
                command.taskCreatedAt = harness.now
                (command.firstAckWins, command.vendorCarriesAll) = (true, true)
                harness.shard.publish(command, now: harness.now)
            }
        }
        harness.flush()
        return request
    }

    private func totals() -> TaskTotals {
        let share = LoopShare(index: 0, count: 1, bucketCount: 4)
        guard case .found(let totals)? = harness.ask(TaskTotalsQuery(Self.task, DeliveryHarness.app, share)) else {
            Issue.record("no totals")
            return TaskTotals()
        }
        return totals
    }
}
