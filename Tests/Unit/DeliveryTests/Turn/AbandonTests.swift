import TestKit
import Testing
import Wire

@testable import Delivery

/// A shard whose partition leaves before it could answer: every caller learns at once that it must retry.
@Suite("A shard that is abandoned")
struct AbandonTests {
    private let harness = DeliveryHarness()

    private func abandon() {
        harness.shard.abandon(now: harness.now)
        harness.drain()
    }

    private var outcomeCodes: [PublishOutcome.Code] { harness.outcomeOrder.compactMap { harness.outcomes[$0]?.code } }

    @Test("a caller that waits for a commit gets one answer, which is not an acceptance")
    func uncommitted() {
        let phone = harness.register(token: "t")
        harness.disconnect(phone)
        let due = harness.publish(phone, "due")
        _ = harness.register()
        harness.order.removeAll()
        harness.outcomeOrder.removeAll()
        let published = harness.submit(phone, "new")
        let step = harness.send(.setBlacklisted(phone.cid, true), to: phone.bucket)
        harness.sendReceipt(phone, [ReceiptEvent(kind: .shown, message: due.message)])
        let task = BroadcastHarness(harness).record()
        harness.shard.ask(
            CreateTask(task, key: .none, digest: 0), origin: Origin(route: 3, request: 900),
            now: harness.now)
        harness.shard.lease(
            LeaseCommand(
                origin: Origin(route: 2, request: 901), channel: .apns, apps: nil, limit: 10,
                leaseMilliseconds: 60_000, leaseID: (1, 2)), now: harness.now)
        harness.drain()
        harness.shard.status(
            of: phone.cid, bucket: phone.bucket, app: DeliveryHarness.app, origin: Origin(route: 2, request: 902),
            now: harness.now)
        harness.drain()
        #expect(harness.outcomeOrder.isEmpty && harness.answers.isEmpty && harness.statistics.pendingEffects > 4)
        abandon()
        #expect(harness.outcomeOrder == [published] && outcomeCodes == [.busy])
        #expect(harness.directoryReplies[step] == .failed && harness.order.filter { $0 == "directory" }.count == 1)
        #expect(harness.receipts == [.busy])
        #expect(harness.isBusy(900), "the task's caller waits")
        #expect(harness.leases.last?.isEmpty == true)
        #expect(harness.deviceAnswers.count == 1)
        if case .unreadable? = harness.deviceAnswers.last {} else { Issue.record("\(harness.deviceAnswers)") }
        #expect(harness.launched.isEmpty, "a broadcast whose row may be lost was told of")
        #expect(harness.statistics.pendingEffects == 0)
        // A late commit causes no second answer.
        harness.store.sync()
        harness.drain()
        #expect(harness.outcomeOrder == [published] && harness.receipts.count == 1 && harness.launched.isEmpty)
    }

    @Test("while the log stalls callers are answered, and their accepted work takes effect when it continues")
    func excused() {
        let phone = harness.register()
        harness.outcomeOrder.removeAll()
        let published = harness.submit(phone, "new")
        let step = harness.send(.setBlacklisted(phone.cid, false), to: phone.bucket)
        harness.drain()
        #expect(harness.outcomeOrder.isEmpty)
        for _ in 0..<2 {
            harness.shard.excuseWaiting(now: harness.now)
            harness.drain()
            #expect(harness.outcomeOrder == [published] && outcomeCodes == [.busy])
            #expect(harness.directoryReplies[step] == .failed)
        }
        harness.store.sync()
        harness.drain()
        // The second report has no receiver.
        #expect(harness.outcomeOrder == [published, Origin.none.request] && harness.outcomes[published]?.code == .busy)
        #expect(harness.delivered.map(\.payload) == ["new"])
    }

    @Test("a step that waits for a read, or after such a step, is answered once and not executed")
    func unread() {
        let phones = (0..<3).map { _ in harness.register(token: "t") }
        for phone in phones { harness.disconnect(phone) }
        let old = harness.publish(phones[0], "old")
        harness.crash()
        harness.store.cool()
        harness.outcomeOrder.removeAll()
        let requests = [
            harness.submit(phones[0], "a"), harness.submit(phones[0], "b"), harness.submit(phones[1], "c"),
        ]
        let alias = AliasName(high: 5, low: 6, text: "name")
        let steps = [
            harness.send(.members(alias), to: alias.bucket), harness.send(.members(alias), to: alias.bucket),
            harness.send(.describe(phones[2].cid), to: phones[2].bucket),
            harness.send(
                .count(BroadcastHarness.tags(["red"]), first: 0, stride: 1), to: Bucket(0)),
        ]
        harness.shard.trace(of: old.message, origin: Origin(route: 2, request: 1), now: harness.now)
        harness.shard.settle(
            [JobResult(job: old.message, leaseID: (1, 1), outcome: .accepted, reason: "")], apps: nil,
            origin: Origin(route: 2, request: 2), now: harness.now)
        harness.drain()
        #expect(harness.outcomeOrder.isEmpty && harness.store.waitingReadCount > 0)
        let rows = harness.store.visibleRows.count
        abandon()
        #expect(harness.outcomeOrder.sorted() == requests.sorted())
        #expect(outcomeCodes.allSatisfy { $0 == .busy || $0 == .storeFailed })
        for step in steps { #expect(harness.directoryReplies[step] == .failed) }
        #expect(harness.traceAnswers.count == 1 && harness.verdicts.map(\.count) == [1])
        if case .unreadable? = harness.traceAnswers.last {} else { Issue.record("\(harness.traceAnswers)") }
        #expect(harness.verdicts.last?.first?.verdict == .storeFailed)
        #expect(harness.statistics.waitingCommands == 0 && harness.statistics.pendingEffects == 0)
        #expect(harness.store.visibleRows.count == rows, "a command was carried out though its answer says busy")
        // The late answers of reads have no receiver.
        harness.store.deliverReplies()
        harness.drain()
        #expect(harness.outcomeOrder.count == 3 && harness.verdicts.count == 1)
    }
}
