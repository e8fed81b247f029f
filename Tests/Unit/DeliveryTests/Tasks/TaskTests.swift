import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Tasks")
struct TaskTests {
    private let harness = DeliveryHarness()
    private static let task = TaskID(kind: .list, month: 11, day: 18, home: Bucket(2), random: (9, 77))
    private static let whole = LoopShare(index: 0, count: 1, bucketCount: 4)

    @Test("a task reaches a device once: a repeated call gets the first answer, before and after the end")
    func once() {
        let phone = harness.register()
        let first = send(phone)
        #expect(harness.outcomes[first]?.isLive == true && harness.outcomes[first]?.isRepeat == false)
        let second = send(phone)
        #expect(harness.outcomes[second]?.isRepeat == true && harness.outcomes[second]?.isLive == true)
        #expect(harness.outcomes[second]?.message == harness.outcomes[first]?.message)
        harness.acknowledge(phone, 1)
        harness.flush()
        let third = send(phone)
        #expect(harness.outcomes[third]?.message == harness.outcomes[first]?.message)
        #expect(harness.delivered.count == 1)
        #expect(totals().accepted == 1)
    }

    @Test("a task reaches a device once also after a restart with all rows cold")
    func onceAfterCrash() {
        var phone = harness.register()
        let first = send(phone)
        harness.crash()
        harness.connect(&phone)
        let again = send(phone)
        #expect(harness.outcomes[again]?.message == harness.outcomes[first]?.message)
        #expect(harness.outcomes[again]?.isRepeat == true)
    }

    @Test("a report is the sum of the final states and of user events, each counted once")
    func report() {
        var phones = (0..<5).map { _ in harness.register(token: "t") }
        harness.disconnect(phones[3])
        harness.disconnect(phones[4])
        for phone in phones { send(phone) }
        harness.acknowledge(phones[0], 1)
        harness.acknowledge(phones[1], 1)
        harness.flush()
        let message = harness.delivered[0].message
        var feedback = Feedback()
        (feedback.kind, feedback.messageID) = (.shown, message)
        for _ in 0..<3 { harness.shard.feedback(phones[0].session, feedback, now: harness.now) }
        (feedback.kind, feedback.action) = (.action, 90_001)
        for _ in 0..<2 { harness.shard.feedback(phones[0].session, feedback, now: harness.now) }
        harness.flush()
        let jobs = harness.lease()
        #expect(jobs.count == 2)
        harness.settle(jobs[0], .accepted)
        let opened = phones.firstIndex { $0.cid == jobs[0].cid } ?? 3
        harness.connect(&phones[opened]) { $0.opened = [jobs[0].message] }
        let sum = totals()
        #expect(sum.accepted == 5 && sum[.delivered] == 2 && sum[.opened] == 1 && sum.pending == 2)
        #expect(sum.live.shown == 1 && sum.live.received == 2 && sum.actions == [90_001: 1])
        #expect(sum.vendor.clicked == 1 && sum.vendor.shown == 1 && sum.vendor.sent == 1)
        #expect(sum.all.received == 3)
        harness.advance(7_300_000)
        let end = totals()
        #expect(end.pending == 0 && end.ended == 5)
        let day = dayTotals()
        #expect(day.messages.accepted == 5 && day.messages.ended == 5)
        for state in FinalState.allCases { #expect(day.messages[state] == end[state], "\(state)") }
        #expect(day.registered == 5 && day.active == 5 && day.accumulated == 5)
        #expect(day.messages.live.shown == 1 && day.messages.vendor.clicked == 1)
    }

    @Test("a device whose registration was refused counts as registered and removed")
    func refusedRegistration() {
        let phones = (0..<3).map { _ in harness.register() }
        harness.shard.sessionRefused(phones[1].session, now: harness.now)
        harness.flush()
        for isRestarted in [false, true] {
            if isRestarted { harness.crash() }
            #expect(dayTotals().registered == 3 && dayTotals().accumulated == 2)
        }
    }

    @Test("daily counters survive a restart and the change of the day")
    func days() {
        var phone = harness.register()
        send(phone)
        harness.acknowledge(phone, 1)
        harness.connect(&phone)  // a device that reconnected is kept
        let day = UInt32(harness.now / 86_400_000)
        let before = dayTotals(day)
        harness.crash()
        #expect(dayTotals(day) == before && before.messages[.delivered] == 1)
        harness.advance(86_400_000)
        #expect(dayTotals(day) == before)
        #expect(dayTotals(day + 1).accumulated == 1 && dayTotals(day + 1).registered == 0)
    }

    @Test("a stop ends pending messages, cancels their jobs, and closes the task", arguments: [false, true])
    func stop(isCold: Bool) {
        let seen = harness.register(), waiting = harness.register(token: "t")
        harness.disconnect(waiting)
        send(seen)
        send(waiting)
        harness.acknowledge(seen, 1)
        harness.flush()
        if isCold { harness.crash() }
        guard let count = harness.ask(SweepTask(Self.task, DeliveryHarness.app, Self.whole)) else {
            Issue.record("not swept")
            return
        }
        #expect(count == 1 && !harness.hasDueJobs)
        #expect(harness.rowCount(.message) == 0 && harness.rowCount(.job) == 0)
        #expect(totals()[.revoked] == 1 && totals()[.delivered] == 1)
        let late = send(waiting)
        #expect(harness.outcomes[late]?.code == .stopped)
    }

    @Test("a revoke ends the pending message and is sent only where the message may have been seen")
    func revoke() {
        let seen = harness.register(), unseen = harness.register()
        harness.disconnect(unseen)
        send(seen)
        send(unseen)
        let first = revoke(seen)
        #expect(harness.outcomes[first]?.code == .accepted, "it was sent, though not acked")
        #expect(totals()[.revoked] == 1)
        let second = revoke(unseen)
        #expect(harness.outcomes[second]?.code == .ignored)
        #expect(totals()[.revoked] == 2 && totals().pending == 0)
        let stranger = harness.register()
        #expect(harness.outcomes[revoke(stranger)]?.code == .ignored)
        #expect(harness.delivered.last?.payload == String(decoding: Self.task.bytes, as: UTF8.self))
    }

    @Test("a scheduled task is due at its time, again if its work is not reported, and after a restart")
    func schedule() {
        let record = record(.scheduled, at: harness.now + 120_000)
        guard case .created? = harness.ask(CreateTask(record, key: .none, digest: 0)) else {
            Issue.record("not created")
            return
        }
        let cids = (0..<3).map { DeviceID(high: 5, low: UInt64($0)) }
        for cid in cids { _ = harness.ask(ParkTargets(Self.task, DeliveryHarness.app, [cid])) }
        guard case .found(let kept)? = harness.ask(LoadTask(Self.task, DeliveryHarness.app)) else { return }
        #expect(kept == record)
        harness.advance(119_000)
        #expect(harness.dueTasks.isEmpty)
        harness.crash()
        harness.advance(1_500)
        #expect(harness.dueTasks.map(\.state) == [.running])
        var found: [DeviceID] = []
        var next: UInt64? = 0
        while let place = next {
            guard let page = harness.ask(ReadTargets(Self.task, from: place)) else { break }
            found += page.devices
            next = page.next
        }
        #expect(found == cids)
        harness.advance(61_000)
        #expect(harness.dueTasks.count == 2, "nobody said that it was sent")
        guard case .refused(.running)? = harness.ask(ChangeTask(Self.task, DeliveryHarness.app, .cancel)) else {
            Issue.record("cancelled while it runs")
            return
        }
        _ = harness.ask(ChangeTask(Self.task, DeliveryHarness.app, .sent))
        harness.advance(120_000)
        #expect(harness.dueTasks.count == 2)
        guard case .refused(.open)? = harness.ask(ParkTargets(Self.task, DeliveryHarness.app, cids)) else {
            Issue.record("parked after its time")
            return
        }
    }

    @Test("a schedule can be deleted until its last minute")
    func cancel() {
        _ = harness.ask(CreateTask(record(.scheduled, at: harness.now + 120_000), key: .none, digest: 0))
        harness.advance(61_000)
        guard case .refused(.scheduled)? = harness.ask(ChangeTask(Self.task, DeliveryHarness.app, .cancel)) else {
            Issue.record("deleted in its last minute")
            return
        }
        let other = TaskID(kind: .list, month: 1, day: 1, home: Bucket(1), random: (1, 1))
        var second = record(.scheduled, at: harness.now + 120_000)
        second.id = other
        _ = harness.ask(CreateTask(second, key: .none, digest: 0))
        guard case .changed(let cancelled)? = harness.ask(ChangeTask(other, DeliveryHarness.app, .cancel)) else {
            Issue.record("not deleted")
            return
        }
        #expect(cancelled.state == .cancelled)
        harness.advance(200_000)
        #expect(harness.dueTasks.map(\.id) == [Self.task])
        guard case .absent? = harness.ask(LoadTask(other, DeliveryHarness.otherApp)) else {
            Issue.record("another app sees it")
            return
        }
    }

    @Test("an interrupted stop is resumed")
    func resumedStop() {
        _ = harness.ask(CreateTask(record(.open, at: 0), key: .none, digest: 0))
        _ = harness.ask(ChangeTask(Self.task, DeliveryHarness.app, .stop))
        harness.crash()
        harness.advance(61_000)
        #expect(harness.dueTasks.map(\.state) == [.stopping])
        _ = harness.ask(ChangeTask(Self.task, DeliveryHarness.app, .stopped))
        harness.advance(200_000)
        #expect(harness.dueTasks.count == 1)
    }

    @Test("a requested task is created once; another body under its id is a conflict")
    func requestedTask() {
        var record = record(.open, at: 0)
        let key = CallKey(high: UInt64(Self.task.home.index) << 52, low: 5)
        _ = harness.ask(CreateTask(record, key: key, digest: 1))
        record.id = TaskID(kind: .list, month: 11, day: 18, home: Bucket(2), random: (9, 78))
        guard case .created(let id, true)? = harness.ask(CreateTask(record, key: key, digest: 1)) else {
            Issue.record("made twice")
            return
        }
        #expect(id == Self.task)
        guard case .conflict? = harness.ask(CreateTask(record, key: key, digest: 2)) else {
            Issue.record("no conflict")
            return
        }
    }

    @Test("a larger call starts once: copies wait for its end, and an interrupted one restarts with the same ids")
    func calls() {
        let key = CallKey(high: 1 << 52, low: 3)
        let cids = [DeviceID(high: 1, low: 1), DeviceID(high: 1, low: 2)]
        let other = TaskID(kind: .list, month: 1, day: 1, home: Bucket(0), random: (0, 5))
        guard case .begun(Self.task, cids)? = harness.ask(BeginCall(key, digest: 1, Self.task, cids)) else {
            Issue.record("not begun")
            return
        }
        let waiting = submit(BeginCall(key, digest: 1, other, []))
        #expect(harness.answers[waiting] == nil)
        guard case .conflict? = harness.ask(BeginCall(key, digest: 2, other, [])) else {
            Issue.record("no conflict")
            return
        }
        harness.crash()
        guard case .begun(Self.task, cids)? = harness.ask(BeginCall(key, digest: 1, other, [])) else {
            Issue.record("not begun again with the same ids")
            return
        }
        let second = submit(BeginCall(key, digest: 1, other, []))
        let outcomes = cids.map { PublishOutcome(code: .accepted, cid: $0, task: Self.task) }
        _ = harness.ask(EndCall(key, outcomes))
        guard case .ended(Self.task, let told)? = harness.answer(second, as: CallStart.self) else {
            Issue.record("who waited was not told")
            return
        }
        #expect(told.map(\.cid) == cids && told.allSatisfy(\.isRepeat))
        harness.crash()
        guard case .ended(Self.task, let kept)? = harness.ask(BeginCall(key, digest: 1, other, [])) else {
            Issue.record("the answer was not kept")
            return
        }
        #expect(kept.map(\.cid) == cids)
        guard case .conflict? = harness.ask(BeginCall(key, digest: 9, other, [])) else {
            Issue.record("no conflict after the end")
            return
        }
    }

    @Test("a call without a task repeats a known call and begins no other")
    func knownCalls() {
        let (key, unknown) = (CallKey(high: 1 << 52, low: 3), CallKey(high: 1 << 52, low: 4))
        let cids = [DeviceID(high: 1, low: 1)]
        guard harness.isBusy(BeginCall(unknown, digest: 1, .none, [])),
            case .begun(Self.task, cids)? = harness.ask(BeginCall(unknown, digest: 1, Self.task, cids)),
            case .begun? = harness.ask(BeginCall(key, digest: 1, Self.task, cids))
        else {
            Issue.record("an unknown call was begun")
            return
        }
        harness.crash()
        guard case .begun(Self.task, cids)? = harness.ask(BeginCall(key, digest: 1, .none, [])) else {
            Issue.record("not begun again with the same ids")
            return
        }
        _ = harness.ask(EndCall(key, cids.map { PublishOutcome(code: .accepted, cid: $0, task: Self.task) }))
        guard case .ended(Self.task, _)? = harness.ask(BeginCall(key, digest: 1, .none, [])) else {
            Issue.record("the answer was not kept")
            return
        }
    }

    @Test("a repeated call runs one whose runner was lost, and a partition that leaves answers all waiting ones")
    func lostRunner() {
        let key = CallKey(high: 1 << 52, low: 3)
        let cids = [DeviceID(high: 1, low: 1), DeviceID(high: 1, low: 2)]
        let other = TaskID(kind: .list, month: 1, day: 1, home: Bucket(0), random: (0, 5))
        // Its answer is lost with a link: the runner never says that the call ended.
        _ = harness.ask(BeginCall(key, digest: 1, Self.task, cids))
        let (second, third) = (
            submit(BeginCall(key, digest: 1, other, [])), submit(BeginCall(key, digest: 1, other, []))
        )
        harness.advance(9_000)
        #expect(harness.answers[second] == nil && harness.answers[third] == nil)
        harness.advance(1_500)
        harness.flush()
        guard case .begun(Self.task, cids)? = harness.answer(second, as: CallStart.self) else {
            Issue.record("the repetition waits")
            return
        }
        #expect(harness.answers[third] == nil)
        _ = harness.ask(EndCall(key, cids.map { PublishOutcome(code: .accepted, cid: $0, task: Self.task) }))
        guard case .ended(Self.task, _)? = harness.answer(third, as: CallStart.self) else {
            Issue.record("who waited was not told")
            return
        }
        let lost = CallKey(high: 1 << 52, low: 4)
        _ = harness.ask(BeginCall(lost, digest: 1, Self.task, cids))
        let waiting = submit(BeginCall(lost, digest: 1, other, []))
        harness.shard.abandon(now: harness.now)
        harness.drain()
        guard harness.isBusy(waiting) else {
            Issue.record("a part that left keeps a caller waiting")
            return
        }
    }

    @Test("a full filter excludes no accepted message")
    func filter() {
        var filter = AcceptanceFilter(now: 0, byteLimit: 64 << 10)
        let task = Self.task
        for digest in UInt64(1)...2_000 { filter.insert(task, digest &* 0x9E37_79B9_7F4A_7C15, now: 10) }
        for digest in UInt64(1)...2_000 {
            #expect(!filter.excludes(task, digest &* 0x9E37_79B9_7F4A_7C15, createdAt: 6_000))
        }
        let strangers = (UInt64(10_000)..<12_000).count {
            filter.excludes(task, $0 &* 0x9E37_79B9_7F4A_7C15, createdAt: 6_000)
        }
        #expect(strangers > 1_900)
        #expect(!filter.excludes(task, 1, createdAt: 4_000), "made before this process started")
        for digest in UInt64(1)...200_000 { filter.insert(task, digest &* 0xD1B5_4A32_D192_ED03, now: 50_000) }
        #expect(!filter.excludes(task, 3, createdAt: 6_000), "what was given up is not claimed to be known")
        #expect(filter.excludes(task, 3, createdAt: 900_000) || filter.excludes(task, 4, createdAt: 900_000))
    }

    // MARK: Helpers

    @discardableResult
    private func send(_ phone: Phone) -> UInt64 { publish(phone, Self.task, "news", revokes: .none) }

    private func revoke(_ phone: Phone) -> UInt64 {
        let task = TaskID(kind: .list, month: 11, day: 18, home: Bucket(1), random: (3, 78))
        return publish(
            phone, task, String(decoding: Self.task.bytes, as: UTF8.self), revokes: Self.task, bytes: Self.task.bytes)
    }

    private func publish(
        _ phone: Phone, _ task: TaskID, _ payload: String, revokes: TaskID, bytes: [UInt8]? = nil
    ) -> UInt64 {
        let request = UInt64.random(in: 1 << 40...1 << 50)
        let vendor = Array(#"{"aps":{}}"#.utf8)
        (bytes ?? Array(payload.utf8)).withUnsafeBytes { payload in
            vendor.withUnsafeBytes { body in
                var command = PublishCommand(
                    origin: Origin(route: 1, request: request), app: DeliveryHarness.app, bucket: phone.bucket,
                    cid: phone.cid, task: task, messageDigest: phone.cid.low &* 0x1_0001_0001 &+ task.low,
                    strategy: revokes.isNone ? .liveElseVendor : .liveOnly, timeToLive: 7_200_000, isBulk: true,
                    payload: payload,
                    vendor: revokes.isNone
                        ? VendorContent(
                            channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none, body: body,
                            messageIDOffset: -1, badgeOffset: -1,
                            collapseID: UnsafeRawBufferPointer(start: nil, count: 0)) : nil)
                command.taskCreatedAt = harness.now
                command.vendorCarriesAll = revokes.isNone
                command.revokes = revokes
                command.revokedDigest = phone.cid.low &* 0x1_0001_0001 &+ Self.task.low
                harness.shard.publish(command, now: harness.now)
            }
        }
        harness.flush()
        return request
    }

    private func submit(_ question: some ShardQuestion) -> UInt64 {
        let number = harness.begin(question)
        harness.flush()
        return number
    }

    private func totals() -> TaskTotals {
        guard case .found(let totals)? = harness.ask(TaskTotalsQuery(Self.task, DeliveryHarness.app, Self.whole)) else {
            Issue.record("no totals")
            return TaskTotals()
        }
        return totals
    }

    private func dayTotals(_ day: UInt32? = nil) -> DayTotals {
        let day = day ?? UInt32(harness.now / 86_400_000)
        guard let totals = harness.ask(DayQuery(DeliveryHarness.app, day: day)) else { return DayTotals() }
        return totals
    }

    private func record(_ state: TaskState, at time: GatewayTime) -> TaskRecord {
        var lengths = MessageContent.Lengths()
        lengths.payload = 4
        let content = MessageContent(
            strategy: .liveElseVendor, timeToLive: 60_000, vendor: nil, lengths: lengths, arena: Array("news".utf8))
        return TaskRecord(
            id: Self.task, app: DeliveryHarness.app, state: state, createdAt: harness.now,
            validUntil: harness.now + 60_000, scheduleAt: time, group: "g", content: content)
    }
}
