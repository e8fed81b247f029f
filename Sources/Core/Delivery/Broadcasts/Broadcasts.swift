// Broadcasts: what a task's row has besides its content, what a shard keeps of each in memory, and the requests to a
// shard.
// See docs/build/Tasks.md, "Broadcasts".

internal import Structures
package import Wire

/// Which devices a broadcast is for, and how far it is.
package struct BroadcastPlan: Sendable, Equatable {
    /// Without any tag: every device of the app.
    package var audience: TagExpression
    /// Messages a second on each channel; 0: no limit.
    package var speed: Int64
    /// Its place in the app's log; 0: not out yet.
    package var number: UInt64 = 0
    /// When it went out: its messages' time of acceptance.
    package var launchedAt: GatewayTime = 0
    /// Nothing of it goes out after this.
    package var expiresAt: GatewayTime = 0
    /// The scan that is under way has finished the buckets below this.
    package var position: Int = 0

    package init(audience: TagExpression, speed: Int64) { (self.audience, self.speed) = (audience, speed) }

    static let fixedByteCount = 48

    func write(_ writer: inout RowWriter) {
        writer.put(number)
        writer.put(launchedAt)
        writer.put(expiresAt)
        writer.put(speed)
        writer.put(UInt32(truncatingIfNeeded: position))
        writer.put(UInt32(0))
        writer.put(UInt64(0))
        audience.write(&writer)
    }

    init?(_ reader: inout RowReader) {
        guard let number = reader.next(UInt64.self), let launchedAt = reader.next(Int64.self),
            let expiresAt = reader.next(Int64.self), let speed = reader.next(Int64.self),
            let position = reader.next(UInt32.self), reader.next(byteCount: 12) != nil,
            let audience = TagExpression(&reader)
        else { return nil }
        self.init(audience: audience, speed: speed)
        (self.number, self.launchedAt, self.expiresAt) = (number, launchedAt, expiresAt)
        self.position = Int(position)
    }
}

extension AppKey {
    /// The bucket of the app's log and of every task of a broadcast: the first twelve bits of its key.
    package var home: Bucket { Bucket(digest: word) }
}

extension TaskRecord {
    /// True for a broadcast that travels in stream 1; a scan fans the others out as ordinary messages.
    ///
    /// Strategies 2 and 4 begin with the vendor, whose jobs are each device's own. A revoke concerns only devices that
    /// had the old message.
    package var isStreamed: Bool {
        broadcast != nil && content.revokes.isNone && content.strategy.isStreamed
    }

    /// Some of its devices may need a handoff job, or a scan fans it out.
    var needsScan: Bool {
        guard isStreamed else { return broadcast != nil }
        let reason = content.strategy.fallbackReason(
            timeToLive: content.timeToLive, hasContent: !content.vendors.isEmpty, hasToken: true)
        return reason == .applies
    }
}

/// A step of a broadcast's scan, for the shard that has these buckets.
package struct BroadcastScan: Sendable, Codable {
    package enum Purpose: Sendable, Equatable, Codable {
        /// Makes jobs for devices that are behind.
        case enumerate
        /// Names the devices for which the broadcast becomes an ordinary message.
        case deal
        /// Ends the broadcast with this state for devices that never had it.
        case close(FinalState)
    }

    package var record: TaskRecord
    package var purpose: Purpose
    package var buckets: Range<Int>
    package var share: LoopShare

    package init(record: TaskRecord, purpose: Purpose, buckets: Range<Int>, share: LoopShare) {
        (self.record, self.purpose, self.buckets, self.share) = (record, purpose, buckets, share)
    }
}

/// The broadcasts that a start finds in the logs: rows of the table `broadcast`, in any order.
package struct BroadcastStart: Sendable {
    /// The end of a log: the highest number, and the store's history in which it was given.
    struct Head: Sendable {
        static let byteCount = 16
        var number: UInt64
        var history: UInt64
    }

    fileprivate(set) var heads: [AppKey: Head] = [:]
    fileprivate(set) var records: [TaskRecord] = []
    /// The buckets whose scans the shard resumes: its own.
    var share = LoopShare(index: 0, count: 1)
    /// The logs of other shards' apps are not among them: they tell of them later (`Shard.learn`).
    var hasOwnOnly = false
    /// Rows whose bytes are not what they should be.
    package private(set) var damagedRows = 0

    package init() {}

    /// The same for the shard of one loop.
    package func of(_ share: LoopShare, hasOwnOnly: Bool = false) -> BroadcastStart {
        var copy = self
        (copy.share, copy.hasOwnOnly) = (share, hasOwnOnly && share.count > 1)
        return copy
    }

    package mutating func take(_ stored: StoredRow) {
        guard stored.key.table == .broadcast else { return }
        let app = AppKey(stored.key.ownerHigh)
        if stored.key.item == 0 {
            var reader = RowReader(stored.bytes)
            guard let number = reader.next(UInt64.self) else { return damagedRows += 1 }
            heads[app] = Head(number: max(heads[app]?.number ?? 0, number), history: reader.next(UInt64.self) ?? 0)
        } else if let record = TaskRow.read(stored.bytes), record.broadcast != nil {
            let head = heads[app] ?? Head(number: 0, history: 0)
            heads[app] = Head(number: max(head.number, stored.key.item), history: head.history)
            records.append(record)
        } else {
            damagedRows += 1
        }
    }
}

/// An app's log, or a piece of it, on its way to a shard that starts on another loop, or on another gateway.
package struct AppBroadcasts: Sendable, Codable {
    package var app: AppKey
    /// The highest number.
    package var head: UInt64
    /// Live broadcasts, in the order of their numbers.
    package var records: [TaskRecord]
    /// The numbers that a piece tells of: above the first and up to the second.
    ///
    /// The whole log has neither.
    package private(set) var after: UInt64?
    package private(set) var through: UInt64?

    package init(app: AppKey, head: UInt64, records: [TaskRecord]) {
        (self.app, self.head, self.records) = (app, head, records)
    }

    /// A piece that begins behind a number.
    package init(app: AppKey, head: UInt64, after: UInt64) {
        self.init(app: app, head: head, records: [])
        (self.after, through) = (after, head)
    }

    /// The piece ends with a number.
    package mutating func end(with number: UInt64) { through = number }

    /// The numbers that it tells of are above the lower bound and up to the upper one; `nil` if they are out of order.
    package var bounds: (after: UInt64, through: UInt64)? {
        let (first, last) = (after ?? 0, through ?? head)
        return first <= last && last <= head ? (first, last) : nil
    }
}

/// A place in the logs of a shard: behind a number of an app; apps are in the order of their keys.
package struct BroadcastPlace: Sendable, Equatable, Codable {
    package var app: AppKey
    package var number: UInt64
    package init(app: AppKey, number: UInt64) { (self.app, self.number) = (app, number) }
}

/// A piece of a shard's logs: what is asked for at once.
package struct BroadcastPiece: Sendable, Equatable, Codable {
    /// What a shard gives at most, and one broadcast more.
    package static let byteLimit = 128 << 10

    /// Where it begins; `nil`: with the first app's first number.
    package var start: BroadcastPlace?
    package var byteCount: Int

    package init(from start: BroadcastPlace? = nil, byteCount: Int = byteLimit) {
        (self.start, self.byteCount) = (start, byteCount)
    }
}

/// One app's broadcasts as a shard knows them.
struct BroadcastLog {
    /// The highest number that this shard knows of.
    var head: UInt64 = 0
    /// Numbers behind the head that an earlier history may have given to broadcasts that the store lost.
    var skipped: UInt64
    /// The highest number given here, durable or not; only the home bucket's shard gives numbers.
    var given: UInt64 = 0
    /// Live broadcasts by number.
    ///
    /// One that is over stays until its home has closed it.
    var live: [LiveBroadcast] = []

    func broadcast(_ number: UInt64) -> LiveBroadcast? { live.first { $0.number == number } }
}

/// A broadcast in memory: its content as a row, its frames, and the condition on a device.
final class LiveBroadcast {
    let record: TaskRecord
    let plan: BroadcastPlan
    /// A message row whose id has no meaning.
    let row: KeptBytes
    private let encoder: any BroadcastEncoder
    /// Frames: one for devices that it reaches at once, one for devices that it finds later.
    private let frames: [LentFrame]
    let collapseHash: UInt64
    /// Stopped, or its time is over: nothing of it goes out, and a shard that evaluates it now ends the message with
    /// this state.
    var endsAs: FinalState?
    /// What `speed` still allows, in thousandths of a message, as of a time.
    private var allowance: Int64 = 0
    private var allowedAt: GatewayTime

    var isOver: Bool { endsAs != nil }
    /// The task as it is now: a shard that learns of it must not send what was stopped or is over.
    var presentRecord: TaskRecord {
        var record = record
        if record.state == .open, let endsAs { record.state = endsAs == .revoked ? .stopping : .ending }
        return record
    }
    var number: UInt64 { plan.number }
    var task: TaskID { record.id }
    var byteCount: UInt32 { MessageRow.charge(row.bytes.count) }

    init?(_ record: TaskRecord, encoder: any BroadcastEncoder) {
        guard let plan = record.broadcast, plan.number > 0 else { return nil }
        (self.record, self.plan, self.encoder) = (record, plan, encoder)
        endsAs = record.state == .open ? nil : record.state == .stopping ? .revoked : .expired
        allowedAt = plan.launchedAt
        let target = MessageContent.Target(
            origin: .none, app: record.app, bucket: Bucket(0), cid: .none, task: record.id, messageDigest: 0)
        let made = record.content.withCommand(for: target) { command in
            var facts = MessageFacts(
                message: MessageID(bucket: Bucket(0), acceptedAt: plan.launchedAt, digest: 0), task: record.id,
                app: record.app, cid: .none, strategy: record.content.strategy, flags: [.bulk], table: .broadcast,
                item: plan.number, acceptedAt: plan.launchedAt, expiresAt: plan.expiresAt, fallbackAt: 0, wakeAt: 0,
                timeToLive: record.content.timeToLive, byteCount: 0)
            if !command.contents.isEmpty { facts.flags.insert(.hasVendorContent) }
            facts.channels = command.contents.channels
            facts.vendorCarriesAll = command.vendorCarriesAll
            if command.hasCollapseKey { facts.flags.insert(.hasCollapseKey) }
            let texts = MessageRow.Texts(command)
            let byteCount = MessageRow.byteCount(texts, facts: facts)
            return (KeptBytes(byteCount: byteCount, texts, facts), command.collapseHash)
        }
        (row, collapseHash) = made
        guard let content = MessageRow(row.bytes) else { return nil }
        frames = [false, true].map { isOffline in
            LentFrame(encoder.frame(of: content, number: plan.number, isOffline: isOffline, alertedAt: 0, attempt: 1))
        }
    }

    /// The frame for a first attempt at a device without an alert.
    func frame(isOffline: Bool) -> LentFrame { frames[isOffline ? 1 : 0] }

    /// The frame for one device.
    func frame(isOffline: Bool, alertedAt: GatewayTime, attempt: UInt32) -> LentFrame? {
        MessageRow(row.bytes).map { content in
            LentFrame(
                encoder.frame(
                    of: content, number: plan.number, isOffline: isOffline, alertedAt: alertedAt, attempt: attempt))
        }
    }

    /// A one-shot message has one live attempt, up to this deadline.
    func isAttemptOver(_ now: GatewayTime, deadline: Int64) -> Bool {
        record.content.timeToLive <= 0 && now >= plan.launchedAt + deadline
    }

    // MARK: Speed

    /// Lets the allowance grow to `now`, to at most one second's worth.
    ///
    /// `share`: the number of loops that share the speed.
    private func grow(_ now: GatewayTime, share: Int) {
        guard now > allowedAt else { return }
        allowance += (now - allowedAt) * plan.speed / Int64(max(1, share))
        allowance = min(allowance, max(1_000, plan.speed * 1_000 / Int64(max(1, share))))
        allowedAt = now
    }

    func mayScan(_ now: GatewayTime, share: Int) -> Bool {
        guard plan.speed > 0 else { return true }
        grow(now, share: share)
        return allowance >= 1_000
    }

    /// Counts one device on the live channel; devices that come by themselves leave a debt of one at most.
    func take() { if plan.speed > 0 { allowance = max(allowance - 1_000, -1_000) } }
}

/// A frame that keeps its address while this object exists.
final class LentFrame {
    private let kept: KeptBytes
    let messageIDOffset: Int
    var bytes: LentBytes { kept.bytes }

    init(_ frame: EncodedBroadcast) {
        kept = KeptBytes(frame.bytes)
        messageIDOffset = frame.messageIDOffset
    }
}

/// The scan of this loop's sessions that evaluates new broadcasts for one app's devices.
struct SessionScan {
    /// The next session slot to look at.
    var place = 0
    /// Slots that are left.
    var left = 0
    /// The scan pauses for the broadcast's speed, or for the store, until this time.
    var pausedUntil: GatewayTime = 0
    /// The number of loops; each has its share of a broadcast's speed.
    var loopCount = 1
}
