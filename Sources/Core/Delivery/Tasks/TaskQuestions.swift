internal import Structures
package import Wire

/// Writes a new task, once per request key (`.none`: always).
package struct CreateTask: ShardQuestion {
    package enum Answer: Sendable, Codable {
        case created(TaskID, isRepeat: Bool)
        /// The request id was used with another body.
        case conflict
        /// The app has reached its limit of live broadcasts.
        case full
        /// The row would exceed the store's limit.
        case tooLarge
        case busy
    }

    package var record: TaskRecord
    package var key: CallKey
    package var digest: UInt64

    package init(_ record: TaskRecord, key: CallKey, digest: UInt64) {
        (self.record, self.key, self.digest) = (record, key, digest)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Answer>) {
        guard shard.store.acceptsWrites, shard.apps.isServed(record.app) else { return shard.answerBusy(reply) }
        guard TaskRow.byteCount(record) <= StoreBounds.valueByteCount else { return shard.answer(reply, .tooLarge) }
        guard key != .none else {
            guard shard.mayBroadcast(record) else { return shard.answer(reply, .full) }
            let written = shard.inBatch(in: record.id.home) { $0.putNew(record) }
            shard.announce(written)
            return shard.answer(reply, .created(record.id, isRepeat: false))
        }
        // Both rows are in the same bucket, so one batch writes both or none.
        precondition(key.bucket == record.id.home, "a requested task's home is its request's bucket")
        let requestKey = StoreKey(key.bucket, .request, ownerHigh: key.high, ownerLow: key.low)
        shard.lookUp(requestKey) { shard, found in
            switch found {
            case .unreadable: return shard.answerBusy(reply)
            case .absent: break
            case .found(let stored):
                guard let row = CallRow.read(stored.bytes), row.digest == digest else {
                    return shard.answer(reply, .conflict)
                }
                shard.numbers.repeatedRequests &+= 1
                return shard.answer(reply, .created(row.task, isRepeat: true))
            }
            // The limit is checked after the request's row, so that a repetition of an accepted request gets its answer.
            guard shard.mayBroadcast(record) else { return shard.answer(reply, .full) }
            let written = shard.inBatch(in: key.bucket) { shard in
                shard.store.putRow(requestKey, wakeAt: 0, prior: .none, byteCount: CallRow.byteCount(targets: [])) {
                    CallRow.write(digest: digest, task: record.id, targets: [], into: $0)
                }
                return shard.putNew(record)
            }
            shard.announce(written)
            shard.answer(reply, .created(record.id, isRepeat: false))
        }
    }
}

package struct LoadTask: ShardQuestion {
    package var task: TaskID
    package var app: AppKey
    package init(_ task: TaskID, _ app: AppKey) { (self.task, self.app) = (task, app) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Found<TaskRecord>>) {
        shard.withTask(task, app, reply, absent: .absent) { shard, record, _ in shard.answer(reply, .found(record)) }
    }
}

/// The answer to a change of a task's row.
package enum TaskTransition: Sendable, Codable {
    /// The task after the change; also if it was already in the requested state.
    case changed(TaskRecord)
    /// The task's state does not allow the change.
    case refused(TaskState)
    case unknown
    case busy

    package var isChanged: Bool { if case .changed = self { true } else { false } }
}

/// Moves a task to its next state.
package struct ChangeTask: ShardQuestion {
    package var task: TaskID
    package var app: AppKey
    package var change: TaskChange
    package init(_ task: TaskID, _ app: AppKey, _ change: TaskChange) {
        (self.task, self.app, self.change) = (task, app, change)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<TaskTransition>) {
        shard.withTask(task, app, reply, absent: .unknown) { shard, record, wakeAt in
            var record = record
            switch (change, record.state) {
            case (.stop, .open), (.stop, .scheduled), (.stop, .running), (.stop, .stopping), (.stop, .ending):
                // The caller sweeps the messages. The home completes an unfinished sweep at `resumeAt`, which a repeated stop
                // does not delay.
                let resumeAt = shard.now + shard.limits.taskPatience
                record.resumeAt = record.state == .stopping ? min(record.resumeAt, resumeAt) : resumeAt
                if record.state != .stopping { record.broadcast?.position = 0 }
                record.state = .stopping
            case (.swept, .stopping): record.resumeAt = shard.now
            case (.stopped, .stopping): record.state = .stopped
            case (.ended, .ending): record.state = .ended
            case (.cancel, .scheduled) where record.scheduleAt - shard.now >= 60_000: record.state = .cancelled
            case (.sent, .running):
                record.state = .open
                record.firedAt = shard.now
            case (.stop, .stopped), (.stopped, .stopped), (.cancel, .cancelled), (.ended, .ended):
                return shard.answer(reply, .changed(record))
            default: return shard.answer(reply, .refused(record.state))
            }
            shard.writeTask(record, prior: .maybe(wakeAt: wakeAt))
            shard.answer(reply, .changed(record))
        }
    }
}
