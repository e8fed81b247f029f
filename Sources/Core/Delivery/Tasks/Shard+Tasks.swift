// Task rows in their home bucket, and their alarms. The questions about tasks are in `TaskQuestions`.
//
// A change reads and writes the row in one step on its loop, so changes are serialized. An answer waits until its write is
// durable.

internal import Structures
internal import Wire

extension Shard {
    // MARK: The row

    mutating func writeTask(_ record: TaskRecord, prior: PriorRow) {
        inBatch(in: record.id.home) { shard in
            shard.put(record, prior: prior)
            shard.putLog(record)
        }
    }

    mutating func put(_ record: TaskRecord, prior: PriorRow) {
        let wakeAt = TaskRow.wakeAt(record, retention: limits.reportRetention)
        store.putRow(TaskRow.key(record.id), wakeAt: wakeAt, prior: prior, byteCount: TaskRow.byteCount(record)) {
            TaskRow.write(record, into: $0)
        }
        guard
            record.state == .scheduled || record.state == .running || record.state == .stopping
                || record.state == .ending || record.state == .open && record.broadcast != nil
        else { return }
        tasks.schedule(record.id, at: wakeAt)
    }

    /// Continues with a task's row and its alarm, or answers `absent` or busy.
    mutating func withTask<Answer>(
        _ task: TaskID, _ app: AppKey, _ reply: ShardReply<Answer>, absent: Answer,
        completion: @escaping (inout Shard, TaskRecord, GatewayTime) -> Void
    ) {
        lookUp(TaskRow.key(task)) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.answerBusy(reply)
            case .absent: return shard.answer(reply, absent)
            case .found(let row): stored = row
            }
            guard let record = TaskRow.read(stored.bytes) else {
                shard.damaged(TaskRow.key(task))
                return shard.answerBusy(reply)
            }
            guard record.app == app else { return shard.answer(reply, absent) }
            completion(&shard, record, stored.wakeAt)
        }
    }

    // MARK: Time

    mutating func fireTasks() {
        takeOverCalls()
        while let task = tasks.popDue(now) { taskAlarmFired(task) }
        tasks.forgetStops(now)
    }

    /// Handles a task's alarm, which may be old or repeated: only the current row counts.
    mutating func taskAlarmFired(_ task: TaskID) {
        lookUp(TaskRow.key(task)) { shard, found in
            if case .unreadable = found { return shard.tasks.schedule(task, at: shard.now + 1_000) }
            let isResumed = shard.tasks.takeResumed(task)
            guard case .found(let stored) = found, var record = TaskRow.read(stored.bytes) else { return }
            let wakeAt = stored.wakeAt
            guard wakeAt <= shard.now || isResumed else { return }
            if record.broadcast != nil, shard.broadcastAlarmFired(&record, wakeAt) { return }
            switch record.state {
            case .scheduled: record.state = .running
            case .running, .stopping, .ending: break
            case .open, .stopped, .cancelled, .ended:
                shard.inBatch(in: task.home) { shard in
                    shard.store.delete(TaskRow.key(task), prior: .maybe(wakeAt: wakeAt))
                }
                return
            }
            record.resumeAt = shard.now + shard.limits.taskPatience
            shard.writeTask(record, prior: .maybe(wakeAt: wakeAt))
            shard.whenDurable(.taskDue(record))
        }
    }

    /// Deletes a row whose report retention has ended.
    mutating func forget(_ stored: StoredRow) {
        guard stored.wakeAt <= now else { return }
        inBatch(in: stored.key.bucket) { shard in
            shard.store.delete(stored.key, prior: .maybe(wakeAt: stored.wakeAt))
        }
    }
}
