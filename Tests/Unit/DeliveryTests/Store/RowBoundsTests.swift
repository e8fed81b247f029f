import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Row bounds") struct RowBoundsTests {
    private static func bound(_ table: StoreKey.Table, _ limits: ShardLimits = ShardLimits()) -> Int {
        RowBounds.byteCount(of: table, limits) ?? 0
    }

    private static func text(_ characters: Int) -> String { String(repeating: "\u{1F4A1}", count: characters) }

    private static let limits: ShardLimits = {
        var limits = ShardLimits()
        (limits.tagCharacters, limits.aliasCharacters) = (60, 60)
        (limits.tagsPerDevice, limits.tagCharactersPerDevice, limits.devicesPerAlias) = (200, 2_000, 200)
        return limits
    }()

    private static func largestContent() -> MessageContent {
        var lengths = MessageContent.Lengths()
        lengths.payload = MessageBounds.payloadByteCount
        lengths.collapseKey = MessageBounds.collapseKeyByteCount
        lengths.alertBody = MessageBounds.alertByteCount
        lengths.vendorBody = MessageBounds.vendorVoIPBodyByteCount
        lengths.vendorCollapseID = MessageBounds.vendorCollapseIDByteCount
        let vendor = MessageContent.Vendor(
            channel: .apns, tokenKind: .voip, activity: 1, pushType: .voip, priority: 10, badge: .none,
            messageIDOffset: -1,
            badgeOffset: -1)
        var content = MessageContent(
            strategy: .liveElseVendor, timeToLive: 1, vendor: vendor, lengths: lengths,
            arena: [UInt8](repeating: 0, count: lengths.sum))
        for channel in [.fcm, .harmony] as [VendorChannel] {
            var further = vendor
            (further.channel, further.tokenKind, further.pushType) = (channel, .alert, .alert)
            (further.badge, further.messageIDOffset, further.badgeOffset) = (.add(.min), .max, .max)
            content.add(
                further, body: [UInt8](repeating: 0, count: MessageBounds.vendorBodyByteCount), collapseID: [])
        }
        var followUp = vendor
        (followUp.channel, followUp.tokenKind, followUp.pushType) = (.sms, .alert, .alert)
        followUp.activity = .max
        content.add(followUp, body: [UInt8](repeating: 0, count: MessageBounds.followUpByteCount), collapseID: [])
        content.vendorStrategies[.fcm] = .vendorOnly
        content.customCallback = [UInt8](repeating: 0, count: MessageBounds.customCallbackByteCount)
        return content
    }

    @Test("the largest row of a task fits its bound")
    func task() {
        var record = TaskRecord(
            id: TaskID(high: 1 << 56, low: 1), app: AppKey(1), state: .open, createdAt: 1, validUntil: 1,
            group: String(repeating: "g", count: TaskBounds.groupByteCount), content: Self.largestContent())
        var audience = TagExpression()
        let tags = (0..<TagExpression.tagLimit).map { TagName(digest: UInt64($0) + 1, text: Self.text(60)) }
        var isTaken = audience.add(.none, tags)
        for index in 0..<TagExpression.groupLimit - 1 where isTaken {
            isTaken = audience.add(.any, [tags[index / 12], tags[12 + index % 12]])
        }
        #expect(isTaken)
        record.broadcast = BroadcastPlan(audience: audience, speed: 1)
        #expect(TaskRow.byteCount(record) == Self.bound(.task, Self.limits))
        #expect(Self.bound(.task, Self.limits) <= StoreBounds.valueByteCount)
    }

    @Test("the largest row of a message fits its bound")
    func message() {
        let target = MessageContent.Target(
            origin: .none, app: AppKey(1), bucket: Bucket(0), cid: .none, task: .none, messageDigest: 0)
        var facts = MessageFacts(
            message: .none, task: TaskID(high: .max, low: .max), app: AppKey(1), cid: .none, strategy: .vendorElseLive,
            flags: [], table: .message, item: 1, acceptedAt: .min, expiresAt: 0, fallbackAt: -1, wakeAt: 2,
            timeToLive: .max, byteCount: 0)
        // An accepted message has the content of one platform, and of a follow-up (`Shard.choose`).
        func withAccepted<Result>(_ body: (PublishCommand) -> Result) -> Result {
            Self.largestContent().withCommand(for: target) { command in
                var command = command
                command.contents = command.contents.only(.apns)
                return body(command)
            }
        }
        let (byteCount, limit) = withAccepted {
            (MessageRow.byteCount(MessageRow.Texts($0), facts: facts), MessageRow.byteCountLimit($0))
        }
        #expect(byteCount <= Self.bound(.message) && byteCount > Self.bound(.message) - 96, "\(byteCount)")
        // A message as the shard accepts it, with the largest TTL and with deadlines decades ahead.
        (facts.acceptedAt, facts.timeToLive, facts.fallbackAt) = (0, 1 << 40, 1 << 40)
        (facts.expiresAt, facts.wakeAt) = (1 << 41 - 1, 1 << 40)
        let accepted = withAccepted {
            MessageRow.byteCount(MessageRow.Texts($0), facts: facts)
        }
        #expect(accepted <= limit && accepted > limit - 16, "\(accepted), the limit is \(limit)")
        #expect(limit <= Self.bound(.message))
    }

    @Test("the largest row of a device fits its bound")
    func device() {
        let token = DeviceToken(
            channel: .apns, kind: .liveActivity, environment: .production, topic: String(repeating: "t", count: 255),
            token: String(repeating: "f", count: Delivery.Limits.tokenByteCount),
            activity: String(repeating: "a", count: Wire.Limits.activityByteCount), registeredAt: 1,
            isQuarantined: true)
        var profile = DeviceProfile(
            secret: [UInt8](repeating: 1, count: 255),
            tokens: [DeviceToken](repeating: token, count: Delivery.Limits.tokensPerDevice))
        for number in 0..<40 {
            let name = AliasName(high: 1, low: UInt64(number), type: 1, text: Self.text(60))
            profile.names.take(name, stamp: 1_000 + Int64(number))
            if number < 39 { profile.names.giveUpAlias(ofType: 1, forgettingBefore: 0) }
        }
        for type in 2...UInt64(Delivery.Limits.aliasesPerDevice) {
            profile.names.take(AliasName(high: 1, low: type << 32, type: type, text: Self.text(60)), stamp: 1)
        }
        profile.names.tags = (0..<200).map { TagName(digest: UInt64($0), text: Self.text(10)) }
        profile.names.replacementDay = 1
        profile.vendorFailure = VendorFailure(
            message: MessageID(high: 1, low: 2), at: 1, outcome: .retry, attempts: 1,
            reason: String(repeating: "r", count: JobResult.reasonByteCount))
        profile.attributes = AttributesMark(DeviceAttributes())
        let byteCount = DeviceRow.headerByteCount + profile.byteCount
        #expect(byteCount <= Self.bound(.device, Self.limits))
        #expect(byteCount > Self.bound(.device, Self.limits) - 64, "\(byteCount), the bound is far above")
    }

    @Test("the largest job, trace, ledger and alias rows fit their bounds")
    func others() {
        let facts = MessageFacts(
            message: .none, task: .none, app: AppKey(1), cid: .none, strategy: .liveOnly, flags: [], table: .message,
            item: 1, acceptedAt: 1, expiresAt: 1, fallbackAt: 1, wakeAt: 1, timeToLive: 1, byteCount: 1)
        var job = JobRow(facts: facts, state: .due, dueAt: 1)
        for _ in 0..<100 { job.note(.vendorRejected, 1, String(repeating: "r", count: RowBounds.stepDetailByteCount)) }
        job.leases = [GivenLease](repeating: GivenLease(id: (1, 1)), count: JobRow.leaseLimit)
        let reason = "rejectedByClient: " + String(repeating: "r", count: Delivery.Limits.reasonByteCount)
        // A trace's length grows with its numbers, so the times of the steps are increasingly far apart.
        (job.settledLease, job.settledOutcome, job.attempts) = ((2, 2), 2, .max)
        for index in job.steps.indices { job.steps[index].time = index % 2 == 0 ? 0 : .min }
        var traced = facts
        (traced.task, traced.table, traced.item) = (TaskID(high: .max, low: .max), .broadcast, .max)
        (traced.timeToLive, traced.acceptedAt, traced.expiresAt) = (.max, .min, 0)
        let trace = TraceRow.byteCount(traced, sentAt: .max, endedAt: 0, job: job, reason: reason)
        #expect(trace <= Self.bound(.trace) && trace > Self.bound(.trace) - 64, "\(trace)")
        job.facts = traced
        (job.facts.fallbackAt, job.facts.wakeAt, job.facts.byteCount, job.dueAt) = (1, 2, .max, .max)
        (job.lease, job.leasedUntil, job.sentToken, job.alertedAt, job.badgeChange) = ((3, 3), .max, 1, .max, .min)
        #expect(job.byteCount <= Self.bound(.job) && job.byteCount > Self.bound(.job) - 64, "\(job.byteCount)")
        var alias = AliasRow(app: AppKey(1), text: Self.text(60))
        alias.entries = (0..<200).map { AliasEntry(cid: .none, bucket: Bucket(0), stamp: Int64($0)) }
        #expect(alias.byteCount == Self.bound(.alias, Self.limits))
        #expect(Self.bound(.taskTargets) <= StoreBounds.valueByteCount)
        #expect(Self.bound(.request) <= StoreBounds.valueByteCount)
    }

    @Test("a publish or task that would not fit a row is refused before anything changes")
    func refused() {
        let harness = DeliveryHarness { $0.queuedByteLimit = 1 << 30 }
        let phone = harness.register()
        let large = String(repeating: "z", count: StoreBounds.valueByteCount - 4 - 16 - 16 - 8 - 4 * 6 + 1)
        #expect(harness.publish(phone, large, vendor: false).code == .tooLarge)
        #expect(harness.publish(phone, String(large.dropFirst()), vendor: false).code == .accepted)
        var lengths = MessageContent.Lengths()
        lengths.payload = StoreBounds.valueByteCount
        let content = MessageContent(
            strategy: .liveOnly, timeToLive: 1, vendor: nil, lengths: lengths,
            arena: [UInt8](repeating: 0, count: lengths.sum))
        let record = TaskRecord(
            id: TaskID(high: 1 << 56, low: 1), app: DeliveryHarness.app, state: .open, createdAt: 1, validUntil: .max,
            content: content)
        harness.shard.ask(
            CreateTask(record, key: .none, digest: 0), origin: Origin(route: 3, request: 77),
            now: harness.now)
        harness.flush()
        guard case .tooLarge? = harness.answer(77, as: CreateTask.Answer.self) else {
            Issue.record("\(String(describing: harness.answers[77]))")
            return
        }
        let cids = [DeviceID](repeating: DeviceID(high: 1, low: 1), count: TaskBounds.targetsOfARow + 1)
        guard case .tooLarge? = harness.ask(ParkTargets(record.id, DeliveryHarness.app, cids)),
            case .tooLarge? = harness.ask(BeginCall(CallKey(high: 1, low: 1), digest: 1, record.id, cids)),
            case false? = harness.ask(KeepSiblings(record.id, cids))
        else {
            Issue.record("accepted")
            return
        }
        #expect(harness.store.violations == [])
    }
}
