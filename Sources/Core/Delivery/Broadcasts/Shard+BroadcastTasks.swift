// A broadcast in its app's home bucket: numbering, log row, launch, and the sequence of scans until it is evaluated for every
// device.

internal import Structures
package import Wire

extension Shard {
    func mayBroadcast(_ record: TaskRecord) -> Bool {
        guard record.broadcast != nil else { return true }
        return broadcasts.liveCount(of: record.app) < limits.liveBroadcasts
    }

    /// Writes a new task in the open batch; a broadcast without a schedule is launched immediately.
    mutating func putNew(_ record: TaskRecord) -> TaskRecord {
        var record = record
        if record.broadcast != nil, record.state == .open { number(&record) }
        put(record, prior: .none)
        putLog(record)
        return record
    }

    private mutating func number(_ record: inout TaskRecord) {
        precondition(record.id.home == record.app.home, "a broadcast's home is its app's")
        guard var plan = record.broadcast else { return }
        plan.number = broadcasts.giveNumber(record.app)
        plan.launchedAt = now
        let timeToLive = record.content.timeToLive
        switch timeToLive {
        case 1...: plan.expiresAt = now + timeToLive
        case 0: plan.expiresAt = now + limits.liveDeadline
        default: plan.expiresAt = now + limits.liveDeadline + limits.noStorageLeasable
        }
        plan.position = record.needsScan ? 0 : Bucket.count
        record.broadcast = plan
        record.state = .open
        record.firedAt = record.scheduleAt > 0 ? now : 0
        record.validUntil = plan.expiresAt
        // A streamed broadcast first has its live deadline. A fan-out starts at once.
        let scanAt = record.isStreamed ? now + limits.liveDeadline : now
        record.resumeAt = record.needsScan ? min(scanAt, plan.expiresAt) : plan.expiresAt
    }

    /// Writes a broadcast's log row in the open batch, or deletes the row of an ended broadcast.
    mutating func putLog(_ record: TaskRecord) {
        guard let plan = record.broadcast, plan.number > 0 else { return }
        let (home, app) = (record.id.home, record.app)
        let key = StoreKey(home, .broadcast, ownerHigh: app.word, ownerLow: 0, item: plan.number)
        guard record.state == .open || record.state == .ending || record.state == .stopping else {
            store.delete(key, prior: .maybe(wakeAt: 0))
            return
        }
        store.putRow(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: TaskRow.byteCount(record)) {
            TaskRow.write(record, into: $0)
        }
        let head = max(broadcasts.highest(of: app), plan.number)
        store.putRow(
            StoreKey(home, .broadcast, ownerHigh: app.word, ownerLow: 0), wakeAt: 0, prior: .maybe(wakeAt: 0),
            byteCount: BroadcastStart.Head.byteCount
        ) { [history] in
            var writer = RowWriter($0)
            writer.put(head)
            writer.put(history.id)
        }
    }

    /// Announces a broadcast to all loops when it is durable.
    mutating func announce(_ record: TaskRecord) {
        guard let plan = record.broadcast, plan.number > 0, record.state == .open else { return }
        whenDurable(.launched(record))
    }

    /// Handles a broadcast's alarm; returns true if nothing else remains to do.
    mutating func broadcastAlarmFired(_ record: inout TaskRecord, _ wakeAt: GatewayTime) -> Bool {
        switch record.state {
        case .scheduled:
            number(&record)
            writeTask(record, prior: .maybe(wakeAt: wakeAt))
            announce(record)
            return true
        case .open:
            guard let plan = record.broadcast else { return false }
            if plan.expiresAt <= now {
                record.state = .ending
                record.broadcast?.position = 0
                record.resumeAt = now + limits.taskPatience
            } else if plan.position < Bucket.count {
                record.resumeAt = min(now + limits.taskPatience, plan.expiresAt)
            } else {
                record.resumeAt = plan.expiresAt
                writeTask(record, prior: .maybe(wakeAt: wakeAt))
                return true
            }
            writeTask(record, prior: .maybe(wakeAt: wakeAt))
            whenDurable(.taskDue(record))
            return true
        default: return false
        }
    }
}

/// Records the position of a broadcast's scan; `Bucket.count` means completed.
package struct AdvanceBroadcast: ShardQuestion {
    package var task: TaskID
    package var app: AppKey
    package var position: Int
    /// The task's state during the scan.
    package var state: TaskState
    package init(_ task: TaskID, _ app: AppKey, position: Int, during state: TaskState) {
        (self.task, self.app, self.position, self.state) = (task, app, position, state)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<TaskTransition>) {
        shard.withTask(task, app, reply, absent: .unknown) { shard, record, wakeAt in
            var record = record
            guard var plan = record.broadcast, record.state == state, position >= plan.position else {
                return shard.answer(reply, .refused(record.state))
            }
            plan.position = position
            record.broadcast = plan
            switch record.state {
            case .open:
                let isOver = position >= Bucket.count
                record.resumeAt = isOver ? plan.expiresAt : min(shard.now + shard.limits.taskPatience, plan.expiresAt)
            case .ending, .stopping: record.resumeAt = shard.now + shard.limits.taskPatience
            default: return shard.answer(reply, .refused(record.state))
            }
            shard.writeTask(record, prior: .maybe(wakeAt: wakeAt))
            shard.answer(reply, .changed(record))
        }
    }
}

/// Asks for the live broadcasts of the share's logs, in pieces, for a shard that starts on another loop or gateway.
package struct LiveBroadcasts: ShardQuestion {
    package struct Logs: Sendable, Codable {
        package var logs: [AppBroadcasts]
        /// The start of the next piece; `nil` after the last.
        package var next: BroadcastPlace?
        package init(logs: [AppBroadcasts], next: BroadcastPlace? = nil) { (self.logs, self.next) = (logs, next) }
    }

    package var share: LoopShare
    package var piece: BroadcastPiece
    package init(_ share: LoopShare, _ piece: BroadcastPiece = BroadcastPiece()) {
        (self.share, self.piece) = (share, piece)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Logs?>) {
        let (logs, next) = shard.broadcasts.piece(piece, of: share)
        shard.answer(reply, Logs(logs: logs, next: next))
    }
}

/// Asks for the heads of the share's logs.
package struct BroadcastHeads: ShardQuestion {
    package var share: LoopShare
    package init(_ share: LoopShare) { self.share = share }

    package func perform(on shard: inout Shard, _ reply: ShardReply<[AppBroadcasts]?>) {
        shard.answer(reply, shard.broadcasts.heads(of: share))
    }
}
