import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Reports on pending messages")
struct ReportTests {
    private let harness = DeliveryHarness()
    private static let list = TaskID(kind: .list, month: 11, day: 18, home: Bucket(2), random: (9, 77))
    private static let request: (UInt64, UInt64) = (0xFEED_FACE_CAFE_BEEF, 0x1234_5678_9ABC_DEF0)
    private static let whole = LoopShare(index: 0, count: 1, bucketCount: 4)

    private func send(_ phone: Phone, _ task: TaskID, timeToLive: Int64 = 7_200_000) {
        var (payload, body) = ("p", #"{"aps":{}}"#)
        payload.withUTF8 { payload in
            body.withUTF8 { body in
                var command = PublishCommand(
                    origin: .none, app: DeliveryHarness.app, bucket: phone.bucket, cid: phone.cid, task: task,
                    messageDigest: phone.cid.low &* 0x1_0001_0001 &+ task.low, strategy: .liveElseVendor,
                    timeToLive: timeToLive, requestKey: task.hasLedger ? (0, 0) : Self.request,
                    isBulk: task.hasLedger, payload: UnsafeRawBufferPointer(payload),
                    vendor: VendorContent(
                        channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none,
                        body: UnsafeRawBufferPointer(body), messageIDOffset: -1, badgeOffset: -1,
                        collapseID: UnsafeRawBufferPointer(start: nil, count: 0)))
                command.taskCreatedAt = harness.now
                harness.shard.publish(command, now: harness.now)
            }
        }
        harness.flush()
    }

    private func totals(_ task: TaskID) -> TaskTotals {
        guard case .found(let totals)? = harness.ask(TaskTotalsQuery(task, DeliveryHarness.app, Self.whole)) else {
            Issue.record("no totals")
            return TaskTotals()
        }
        return totals
    }

    private func day(_ day: GatewayTime) -> DayTotals {
        guard let totals = harness.ask(DayQuery(DeliveryHarness.app, day: UInt32(day / 86_400_000))) else {
            Issue.record("no totals")
            return DayTotals()
        }
        return totals
    }

    @Test("a loop whose day has not started has nothing to fold, because it may still count for earlier days")
    func foldableAtMidnight() {
        let today = UInt32(harness.now / 86_400_000)
        guard harness.ask(FoldableQuery(today: today)) != nil, harness.isBusy(FoldableQuery(today: today + 1)) else {
            Issue.record("a day was given that can change, or none")
            return
        }
    }

    @Test("a vendor's acceptance is counted once when it happens, and not at the end", arguments: [false, true])
    func accepted(crashes: Bool) {
        var phones = (0..<6).map { _ in harness.register(token: "t") }
        for phone in phones { harness.disconnect(phone) }
        for phone in phones { send(phone, Self.list) }
        for (index, job) in harness.lease().enumerated() {
            harness.settle(job, .accepted)
            if crashes { harness.crash() }
            harness.settle(job, .accepted)
            #expect(totals(Self.list).vendor.sent == index + 1)
            #expect(day(harness.now).messages.vendor.sent == index + 1)
        }
        #expect(totals(Self.list).pending == 6 && totals(Self.list).all.sent == 6)
        // Two devices reconnect, and one of them acks. The messages of the others expire.
        harness.connect(&phones[0])
        harness.connect(&phones[1])
        harness.acknowledge(phones[0], 1)
        harness.advance(7_300_000)
        let sum = totals(Self.list)
        #expect(sum[.deliveredOffline] == 1 && sum[.handedOff] == 5 && sum.vendor.sent == 6 && sum.all.sent == 6)
        let numbers = day(harness.now).messages
        #expect(numbers.accepted == 6 && numbers.vendor.sent == 6 && numbers.all.sent == 6 && numbers.ended == 6)
        #expect(numbers.live.sent == sum.live.sent && harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("a message in flight counts as sent, in a task and singly, until its end and after it")
    func sent() throws {
        let phone = harness.register(token: "t")
        let single = TaskID(kind: .single, month: 11, day: 18, home: phone.bucket, request: Self.request)
        send(phone, Self.list)
        send(phone, single)
        for _ in 0..<2 {
            for task in [Self.list, single] {
                let sum = totals(task)
                #expect(sum.pending == 1 && sum.live.sent == 1 && sum.all.sent == 1 && sum.vendor.sent == 0)
            }
            #expect(day(harness.now).messages.live.sent == 2 && day(harness.now).messages.all.sent == 2)
            harness.crash()
        }
        var again = phone
        harness.connect(&again)
        harness.acknowledge(again, 2)
        for task in [Self.list, single] {
            #expect(totals(task).live.sent == 1 && totals(task).live.received == 1 && totals(task).pending == 0)
        }
        let numbers = day(harness.now).messages
        #expect(numbers.live.sent == 2 && numbers.all.sent == 2 && numbers.live.received == 2)
    }

    @Test("a single push shows the vendor's acceptance while it is pending")
    func singleAccepted() throws {
        let phone = harness.register(state: .background, token: "t")
        let single = TaskID(kind: .single, month: 11, day: 18, home: phone.bucket, request: Self.request)
        send(phone, single)
        #expect(totals(single).all.sent == 0)
        harness.settle(try #require(harness.lease().first), .accepted)
        let sum = totals(single)
        #expect(sum.vendor.sent == 1 && sum.all.sent == 1 && sum.live.sent == 0 && sum.pending == 1)
    }

    @Test("a single push's report has its device's receipts, while it is pending and after its end")
    func singleReported() throws {
        var phone = harness.register(state: .background, token: "t")
        let single = TaskID(kind: .single, month: 11, day: 18, home: phone.bucket, request: Self.request)
        send(phone, single)
        let job = try #require(harness.lease().first)
        harness.disconnect(phone)
        // A receipt arrives before the sender's result.
        let shown = ReceiptEvent(kind: .shown, message: job.message)
        #expect(harness.receipt(phone, [shown]) == .taken([.recorded]))
        #expect(totals(single).vendor.shown == 1 && totals(single).live.shown == 0)
        harness.settle(job, .accepted)
        _ = harness.receipt(phone, [ReceiptEvent(kind: .action, message: job.message, action: 90_007)])
        for isEnded in [false, true] {
            if isEnded {
                harness.connect(&phone)
                harness.acknowledge(phone, 1)
                harness.store.cool()
            }
            let sum = totals(single)
            #expect(sum.vendor.shown == 1 && sum.vendor.received == 1 && sum.all.shown == 1 && sum.live.shown == 0)
            #expect(sum.actions == [90_007: 1] && sum.pending == (isEnded ? 0 : 1))
            #expect(sum.live.received == (isEnded ? 1 : 0) && sum.all.received == 1)
        }
        harness.store.readsFailFrom = 0
        guard harness.isBusy(TaskTotalsQuery(single, DeliveryHarness.app, Self.whole)) else {
            Issue.record("a report without its reads")
            return
        }
    }

    @Test("a message sent after midnight counts for the day of its acceptance, also after a restart")
    func acrossMidnight() throws {
        harness.advance(86_400_000 - harness.now % 86_400_000 - 60_000)
        let eve = harness.now
        var phone = harness.register(state: .background, token: "t")
        for _ in 0..<2 { _ = harness.publish(phone) }
        harness.advance(120_000)
        let jobs = harness.lease()
        harness.settle(jobs[0], .accepted)
        harness.crash()
        harness.settle(jobs[1], .accepted)
        harness.crash()
        harness.connect(&phone)
        harness.acknowledge(phone, 2)
        let (first, second) = (day(eve).messages, day(harness.now).messages)
        #expect(first.accepted == 2 && first.vendor.sent == 2 && first.all.sent == 2 && first.live.sent == 2)
        #expect(second.accepted == 0 && second.all.sent == 0 && second[.deliveredOffline] == 2)
        #expect(harness.imbalance() == nil)
    }

    @Test(
        "a broadcast's messages count for the day of its start, also those created after midnight",
        arguments: [false, true])
    func broadcastAcrossMidnight(crashes: Bool) {
        let world = BroadcastHarness(harness)
        var away = (0..<4).map { _ in harness.register() }
        for index in away.indices {
            // Each device has been here twice, so its record is not deleted after a day.
            harness.connect(&away[index])
            harness.disconnect(away[index])
        }
        // A day later, two of the three buckets have counted nothing.
        harness.advance(2 * 86_400_000 - harness.now % 86_400_000 - 60_000)
        let eve = harness.now
        let here = harness.register()
        let record = world.send(vendor: false)
        world.acknowledge(here, 1)
        harness.advance(120_000)
        if crashes { harness.crash() }
        for index in away.indices {
            harness.connect(&away[index])
            world.acknowledge(away[index], 1)
        }
        func retained() -> Int64 { harness.shard.statistics(of: [DeliveryHarness.app])[0].retainedBytes }
        let bytes = retained()
        if crashes { harness.crash() }
        let (first, second) = (day(eve).messages, day(harness.now).messages)
        #expect(first.accepted == 5 && first.live.sent == 5 && first.all.sent == 5 && first[.delivered] == 1)
        #expect(second.accepted == 0 && second.all.sent == 0 && second[.deliveredOffline] == 4)
        #expect(retained() == bytes && world.imbalance([record]) == nil)
    }

    @Test(
        "TTL 0 for an unreachable device is answered as expired, without a place in a stream")
    func endedAtOnce() {
        let phone = harness.register(state: .background, token: "t")
        let outcome = harness.publish(phone, timeToLive: 0, requestKey: (1, 1))
        #expect(outcome.code == .accepted && outcome.endedAs == .expired && !outcome.isLive)
        #expect(outcome.fallback == .none && outcome.fallbackReason == .timeToLive)
        let trace = harness.trace(outcome.message)
        #expect(trace?.finalState == .expired && trace?.sequence == 0)
        #expect(harness.publish(phone, timeToLive: 0, requestKey: (1, 1)).endedAs == .expired, "said again")
        let live = harness.publish(phone, requestKey: (1, 2))
        #expect(live.endedAs == nil && harness.publish(phone, requestKey: (1, 2)).endedAs == nil)
        #expect(harness.trace(live.message)?.sequence == 1, "no number was lost")
    }

    @Test("a repeated list call reports a device whose message failed at once, and not one that ended later")
    func endedAtOnceInList() {
        let phone = harness.register(state: .background), other = harness.register(state: .background)
        var told: [FinalState?] = []
        for (phone, timeToLive) in [(phone, 0), (other, 60_000), (phone, 0), (other, 60_000)] as [(Phone, Int64)] {
            send(phone, Self.list, timeToLive: timeToLive)
            told.append(harness.outcomes[0]?.endedAs)
            if told.count == 2 { harness.advance(60_000) }
        }
        #expect(told == [.expired, nil, .expired, nil])
    }

    @Test(
        "a trace shows whether a fallback exists and why not, pending and ended",
        arguments: [
            (Strategy.liveElseVendor, true, Int64(60_000), true, PublishOutcome.Fallback.armed, "applies"),
            (.liveElseVendor, false, 60_000, true, .none, "noToken"),
            (.liveElseVendor, true, 60_000, false, .none, "noContent"),
            (.liveOnly, true, 60_000, true, .none, "strategy"),
            (.liveElseVendor, true, 0, true, .none, "timeToLive"),
            (.vendorElseLive, true, 60_000, true, .due, "applies"),
        ])
    func fallback(
        strategy: Strategy, hasToken: Bool, timeToLive: Int64, hasContent: Bool, fallback: PublishOutcome.Fallback,
        reason: String
    ) throws {
        let phone = harness.register(token: hasToken ? "t" : nil)
        let outcome = harness.publish(phone, strategy: strategy, timeToLive: timeToLive, vendor: hasContent)
        let pending = try #require(harness.trace(outcome.message))
        harness.crash()
        harness.advance(200_000)
        let ended = try #require(harness.trace(outcome.message))
        #expect(pending.finalState == nil && ended.finalState != nil)
        for trace in [pending, ended] {
            #expect(trace.fallback == fallback && "\(trace.fallbackReason)" == reason)
            #expect(trace.fallback == outcome.fallback && trace.fallbackReason == outcome.fallbackReason)
        }
    }

    @Test("without a token a strategy that needs one ends at once, and its trace has the reason")
    func noToken() {
        let phone = harness.register()
        let outcome = harness.publish(phone, strategy: .vendorOnly, isBulk: true)
        let trace = harness.trace(outcome.message)
        #expect(outcome.endedAs == .failed && trace?.finalReason == "noToken")
        #expect(trace?.fallback == PublishOutcome.Fallback.none && trace?.fallbackReason == .noToken)
    }
}

@Suite("Badges of messages that were not shown")
struct BadgeTests {
    private let harness = DeliveryHarness { $0.maxAttempts = 2 }

    private func badge(_ phone: Phone) -> Int32? { harness.status(phone)?.badge }

    private func leased(_ phone: Phone, _ badge: VendorContent.Badge = .add(3), strategy: Strategy = .liveElseVendor)
        throws -> Job
    {
        _ = harness.publish(phone, strategy: strategy, badge: badge)
        return try #require(harness.lease(milliseconds: 5_000).first)
    }

    @Test(
        "the badge of a message that the vendor refuses is reverted, also after a restart",
        arguments: [JobResult.Outcome.rejected, .badToken, .retry], [false, true])
    func takenBack(outcome: JobResult.Outcome, crashes: Bool) throws {
        let phone = harness.register(state: .background, token: "aa", badge: 4)
        var job = try leased(phone)
        #expect(badge(phone) == 7)
        if crashes { harness.crash() }
        harness.settle(job, outcome, retryAfter: 1)
        if outcome == .retry {
            #expect(badge(phone) == 7, "there is another attempt")
            harness.advance(1_000)
            job = try #require(harness.lease().first)
            harness.settle(job, .retry)
        }
        #expect(badge(phone) == 4)
        harness.crash()
        #expect(badge(phone) == 4)
    }

    @Test("the client's own value wins, and the floor is 0")
    func ownValue() throws {
        let phone = harness.register(state: .background, token: "aa", badge: 4)
        let first = try leased(phone)
        harness.update(phone) { $0.badge = 1 }
        harness.crash()
        harness.settle(first, .rejected)
        #expect(badge(phone) == 1, "set since the lease")
        let lowered = try leased(phone, .add(-5)), set = try leased(phone, .set(9))
        #expect(badge(phone) == 9)
        harness.settle(lowered, .rejected)
        harness.settle(set, .rejected)
        #expect(badge(phone) == 1)
        let up = try leased(phone, .add(2)), down = try leased(phone, .set(0))
        harness.settle(up, .rejected)
        #expect(badge(phone) == 0)
        harness.settle(down, .accepted)
        #expect(badge(phone) == 0)
    }

    @Test("an accepted message stays counted, and an acceptance after exhaustion counts again")
    func accepted() throws {
        let phone = harness.register(state: .background, token: "aa", badge: 0)
        let shown = try leased(phone)
        harness.settle(shown, .accepted)
        #expect(badge(phone) == 3)
        let late = try leased(phone)
        harness.advance(5_000)
        _ = harness.lease(milliseconds: 5_000)
        harness.advance(5_000)
        #expect(harness.statistics[.apns].jobsExhausted == 1 && badge(phone) == 3)
        for _ in 0..<2 {
            harness.settle(late, .accepted)
            #expect(badge(phone) == 6)
        }
    }

    @Test("a message that the vendor failed and that goes live is not counted")
    func movedToLive() throws {
        let phone = harness.register(state: .background, token: "aa", badge: 1)
        let job = try leased(phone, strategy: .vendorElseLive)
        #expect(badge(phone) == 4)
        harness.settle(job, .rejected)
        #expect(badge(phone) == 1)
    }
}
