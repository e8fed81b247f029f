internal import Structures
package import Wire

/// The audience and the progress of a broadcast (docs/build/Tasks.md, "Broadcasts").
package struct BroadcastPlan: Sendable, Equatable {
    /// The condition on a device's tags; without tags it matches every device of the app.
    package var audience: TagExpression
    /// The rate limit per channel in messages per second; 0: unlimited.
    package var speed: Int64
    /// The number in the app's log; 0 before the launch.
    package var number: UInt64 = 0
    /// The launch time: the time of acceptance of all its messages.
    package var launchedAt: GatewayTime = 0
    /// The expiry, after which nothing is sent.
    package var expiresAt: GatewayTime = 0
    /// The first bucket that the running scan has not finished.
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
    /// The bucket of the app's log and of its broadcast tasks: the first twelve bits of the key.
    package var home: Bucket { Bucket(digest: word) }
}

extension TaskRecord {
    /// Whether devices get the broadcast in stream 1; otherwise a scan fans it out as ordinary messages.
    ///
    /// Strategies 2 and 4 are fanned out because they begin with a vendor job for each device. Revokes are fanned out because
    /// they concern only devices that had the old message.
    package var isStreamed: Bool {
        broadcast != nil && content.revokes.isNone && content.strategy.isStreamed
            && content.vendorStrategies.areStreamed
    }

    /// Whether devices may need a handoff job, or a scan fans the broadcast out.
    var needsScan: Bool {
        guard isStreamed else { return broadcast != nil }
        return content.fallbackReason() == .applies
    }
}

/// The broadcasts that a start reads from the logs: rows of the table `broadcast`, in any order.
package struct BroadcastStart: Sendable {
    /// The end of a log: the highest number, and the store's history in which it was assigned.
    struct Head: Sendable {
        static let byteCount = 16
        var number: UInt64
        var history: UInt64
    }

    fileprivate(set) var heads: [AppKey: Head] = [:]
    fileprivate(set) var records: [TaskRecord] = []
    var share = LoopShare(index: 0, count: 1)
    /// Whether logs of other shards are missing; those shards send them later (`Shard.learn`).
    var hasOwnOnly = false
    package private(set) var damagedRows = 0

    package init() {}

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

/// An app's log, or a piece of it, for a shard that starts on another loop or gateway.
package struct AppBroadcasts: Sendable, Codable {
    package var app: AppKey
    package var head: UInt64
    package var records: [TaskRecord]
    /// The range of numbers in a piece, above `after` and up to `through`; both are `nil` for a whole log.
    package private(set) var after: UInt64?
    package private(set) var through: UInt64?

    package init(app: AppKey, head: UInt64, records: [TaskRecord]) {
        (self.app, self.head, self.records) = (app, head, records)
    }

    package init(app: AppKey, head: UInt64, after: UInt64) {
        self.init(app: app, head: head, records: [])
        (self.after, through) = (after, head)
    }

    package mutating func end(with number: UInt64) { through = number }

    /// The exclusive lower and inclusive upper bound of the numbers; `nil` if they are out of order.
    package var bounds: (after: UInt64, through: UInt64)? {
        let (first, last) = (after ?? 0, through ?? head)
        return first <= last && last <= head ? (first, last) : nil
    }
}

/// A position in the logs of a shard, ordered by app key: the next broadcast is above `number` in the log of `app`.
package struct BroadcastPlace: Sendable, Equatable, Codable {
    package var app: AppKey
    package var number: UInt64
    package init(app: AppKey, number: UInt64) { (self.app, self.number) = (app, number) }
}

package struct BroadcastPiece: Sendable, Equatable, Codable {
    /// The maximum bytes of a piece, exceeded by at most one broadcast.
    package static let byteLimit = 128 << 10

    /// The start of the piece; `nil`: the first app's first number.
    package var start: BroadcastPlace?
    package var byteCount: Int

    package init(from start: BroadcastPlace? = nil, byteCount: Int = byteLimit) {
        (self.start, self.byteCount) = (start, byteCount)
    }
}

struct BroadcastLog {
    var head: UInt64 = 0
    /// The number of broadcast numbers to skip after the head: an earlier history may have assigned them to lost broadcasts.
    var skipped: UInt64
    /// The highest number assigned here, durable or not; only the home bucket's shard assigns numbers.
    var given: UInt64 = 0
    /// The live broadcasts by number; a closed one remains until its home has removed it.
    var live: [LiveBroadcast] = []

    func broadcast(_ number: UInt64) -> LiveBroadcast? { live.first { $0.number == number } }
}

/// A broadcast in memory: its content as a row, its frames, and its audience.
final class LiveBroadcast {
    let record: TaskRecord
    let plan: BroadcastPlan
    /// The content as a message row; its msgId is ignored.
    let row: KeptBytes
    private let encoder: any BroadcastEncoder
    /// The shared frames of a first attempt, one for each value of the two flags, each made on first need.
    private var frames: [LentFrame?] = [nil, nil, nil, nil]
    let collapseHash: UInt64
    /// The final state of a stopped or expired broadcast's messages; `nil` while the broadcast is live.
    ///
    /// No further message of the broadcast is sent. A later evaluation ends the device's message with this state.
    var endsAs: FinalState?
    /// The remaining budget of `speed` in thousandths of a message, at `allowedAt`.
    private var allowance: Int64 = 0
    private var allowedAt: GatewayTime

    var isOver: Bool { endsAs != nil }
    /// The task in its current state, so that a shard that receives it sends no stopped or expired broadcast.
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
        guard MessageRow(row.bytes) != nil else { return nil }
    }

    /// Returns the frame for the first attempt at a device without an alert.
    func frame(isOffline: Bool, isCarriedByVendor: Bool) -> LentFrame {
        let index = (isOffline ? 1 : 0) + (isCarriedByVendor ? 2 : 0)
        if let shared = frames[index] { return shared }
        let made = frame(isOffline: isOffline, isCarriedByVendor: isCarriedByVendor, alertedAt: 0, attempt: 1)
        frames[index] = made
        return made
    }

    func frame(isOffline: Bool, isCarriedByVendor: Bool, alertedAt: GatewayTime, attempt: UInt32) -> LentFrame {
        guard let content = MessageRow(row.bytes) else { preconditionFailure("the initialiser has read this row") }
        return LentFrame(
            encoder.frame(
                of: content, number: plan.number, isOffline: isOffline, isCarriedByVendor: isCarriedByVendor,
                alertedAt: alertedAt, attempt: attempt))
    }

    func isAttemptOver(_ now: GatewayTime, deadline: Int64) -> Bool {
        record.content.timeToLive <= 0 && now >= plan.launchedAt + deadline
    }

    // MARK: Speed

    /// Increases the budget up to `now`, to at most one second's worth.
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

    /// Takes one message from the budget, which falls to at most one message below zero.
    ///
    /// Devices that connect during the scan also use the budget, but do not wait for it.
    func take() { if plan.speed > 0 { allowance = max(allowance - 1_000, -1_000) } }
}

/// A frame whose address is stable while this object exists.
final class LentFrame {
    private let kept: KeptBytes
    let messageIDOffset: Int
    var bytes: LentBytes { kept.bytes }

    init(_ frame: EncodedBroadcast) {
        kept = KeptBytes(frame.bytes)
        messageIDOffset = frame.messageIDOffset
    }
}

struct SessionScan {
    var place = 0
    var left = 0
    /// The time until which the scan pauses, because of a broadcast's speed limit or because the store is behind.
    var pausedUntil: GatewayTime = 0
    var loopCount = 1
}
