import TestKit
import Wire

@testable import Delivery

/// A test's broadcast calls, and the gateway's part in their scans.
final class BroadcastHarness {
    let harness: DeliveryHarness
    private var nextTask: UInt64 = 0
    static let whole = LoopShare(index: 0, count: 1)

    init(_ harness: DeliveryHarness = DeliveryHarness()) { self.harness = harness }

    static let content = #"{"aps":{"alert":"x"}}"#

    static func tags(_ texts: [String], _ combination: TagExpression.Combination = .all) -> TagExpression {
        var expression = TagExpression()
        if !texts.isEmpty { _ = expression.add(combination, texts.map(tag)) }
        return expression
    }

    static func tag(_ text: String) -> TagName { TagName(digest: Fingerprint.of(text.utf8), text: text) }

    /// Returns a broadcast's record as the push API creates it.
    func record(
        _ payload: String = "all", to audience: TagExpression = TagExpression(), strategy: Strategy = .liveElseVendor,
        timeToLive: Int64 = 7_200_000, vendor: Bool = true, speed: Int64 = 0, collapseKey: String = "",
        scheduleAt: GatewayTime = 0, app: AppKey = DeliveryHarness.app, carriesAll: Bool = true
    ) -> TaskRecord {
        nextTask += 1
        let task = TaskID(kind: .app, month: 11, day: 21, home: app.home, random: (7, nextTask))
        var lengths = MessageContent.Lengths()
        let body = vendor ? Self.content : ""
        (lengths.payload, lengths.collapseKey) = (payload.utf8.count, collapseKey.utf8.count)
        lengths.vendorBody = body.utf8.count
        let shape = MessageContent.Vendor(
            channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none, messageIDOffset: -1,
            badgeOffset: -1)
        var content = MessageContent(
            strategy: strategy, timeToLive: timeToLive, vendor: vendor ? shape : nil, lengths: lengths,
            arena: Array((payload + collapseKey + body).utf8))
        content.vendorCarriesAll = vendor && carriesAll
        var record = TaskRecord(
            id: task, app: app, state: scheduleAt > 0 ? .scheduled : .open, createdAt: harness.now,
            validUntil: harness.now + timeToLive, scheduleAt: scheduleAt, content: content)
        record.broadcast = BroadcastPlan(audience: audience, speed: speed)
        return record
    }

    @discardableResult
    func ask<Question: ShardQuestion>(_ question: Question) -> Question.Answer? { harness.ask(question) }

    @discardableResult
    func ask<Question: ShardQuestion, Value>(_ question: Question) -> Value? where Question.Answer == Value? {
        harness.ask(question)
    }

    /// Creates a broadcast and lets it reach the devices that it reaches at once.
    @discardableResult
    func send(
        _ payload: String = "all", to audience: TagExpression = TagExpression(), strategy: Strategy = .liveElseVendor,
        timeToLive: Int64 = 7_200_000, vendor: Bool = true, speed: Int64 = 0, collapseKey: String = "",
        carriesAll: Bool = true
    ) -> TaskRecord {
        let record = record(
            payload, to: audience, strategy: strategy, timeToLive: timeToLive, vendor: vendor, speed: speed,
            collapseKey: collapseKey, carriesAll: carriesAll)
        ask(CreateTask(record, key: .none, digest: 0))
        return record
    }

    /// Runs the due tasks as the gateway's coordinator does, one whole scan at a time.
    func runScans() {
        let due = harness.dueTasks
        harness.dueTasks.removeAll()
        for record in due {
            switch record.state {
            case .open:
                ask(scan(record, .enumerate))
                ask(AdvanceBroadcast(record.id, record.app, position: Bucket.count, during: .open))
            case .ending:
                ask(scan(record, .close(.expired)))
                finish(record, .ended)
            case .stopping:
                ask(SweepTask(record.id, record.app, Self.whole))
                ask(scan(record, .close(.revoked)))
                finish(record, .stopped)
            default: break
            }
        }
    }

    func scan(_ record: TaskRecord, _ purpose: ScanBroadcast.Purpose) -> ScanBroadcast {
        ScanBroadcast(record: record, purpose: purpose, buckets: 0..<Bucket.count, share: Self.whole)
    }

    private func finish(_ record: TaskRecord, _ change: TaskChange) {
        ask(ChangeTask(record.id, record.app, change))
        harness.shard.forgetBroadcast(record.id, record.app)
    }

    func advance(_ milliseconds: Int64) {
        harness.advance(milliseconds)
        runScans()
    }

    /// Advances beyond the live deadline, when the enumerator starts.
    func enumerate() {
        advance(10_100)
        harness.flush()
    }

    func totals(_ record: TaskRecord) -> TaskTotals {
        guard case .found(let totals)? = ask(TaskTotalsQuery(record.id, record.app, Self.whole)) else {
            return TaskTotals()
        }
        return totals
    }

    func acknowledge(_ phone: Phone, _ cumulative: UInt64, ranges: [SequenceRange] = []) {
        harness.shard.acknowledgeBroadcasts(phone.session, cumulative: cumulative, ranges: ranges, now: harness.now)
        harness.flush()
    }

    func setTags(_ phone: Phone, _ texts: [String]) {
        _ = harness.ask(.replaceTags(phone.cid, texts.map(Self.tag)), phone.bucket)
    }

    func message(_ record: TaskRecord, _ phone: Phone) -> MessageTrace? {
        let digest = SecretAsProof().messageDigest(of: record.id, for: phone.cid)
        return harness.trace(record.id, record.app, phone.cid, phone.bucket, digest: digest)
    }

    /// Returns an error unless accepted = Σ final states + pending, over the counters and the ledger.
    func imbalance(_ records: [TaskRecord]) -> String? {
        var accepted = 0, ended = 0
        for record in records {
            let totals = totals(record)
            accepted += totals.accepted
            ended += totals.ended
        }
        var counted: (accepted: UInt64, ended: UInt64) = (0, 0)
        harness.store.loadAll(table: .counters) { row in
            guard let counters = CountersRow(row.value) else { return }
            counted.accepted += counters.accepted
            counted.ended += counters.ended
        }
        guard counted.accepted == UInt64(accepted), counted.ended == UInt64(ended) else {
            return "counted \(counted), the ledger has \(accepted) and \(ended)"
        }
        return nil
    }
}
