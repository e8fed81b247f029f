// Tasks in their home bucket, and the scans of all buckets for stops and reports.
//
// A change reads and writes the row in one step on its loop, so changes are serialized. An answer waits until its write is
// durable.

internal import Structures
internal import Wire

extension Shard {
    /// Handles a command about tasks; the answer is `.task`.
    package mutating func task(_ command: TaskCommand, origin: Origin, now: GatewayTime) {
        begin(now)
        switch command {
        case .create(let record, let key, let digest): create(record, CallKey(high: key.0, low: key.1), digest, origin)
        case .load(let task, let app):
            withTask(task, app, origin) { shard, record, _ in shard.answer(origin, .record(record)) }
        case .change(let task, let app, let change): self.change(task, app, change, origin)
        case .park(let task, let app, let targets): park(task, app, targets, origin)
        case .targets(let task, let from): readTargets(task, from: from, origin)
        case .scan(let scan): self.scan(scan, origin)
        case .advance(let task, let app, let position, let state): advance(task, app, position, state, origin)
        case .sweep(let task, let app, let share): sweep(task, app, share, origin)
        case .totals(let task, let app, let share): totals(of: task, app, share, origin)
        case .day(let app, let day):
            answer(origin, counters.knowsFold ? .day(counters.totals(of: app, day: day)) : .busy)
        case .foldable(let today):
            counters.dropOld(before: CountersRow.day(of: now))
            let mayTell = counters.knowsFold && CountersRow.day(of: now) >= today
            answer(origin, mayTell ? .foldable(counters.foldable(today: today)) : .busy)
        case .removeCounters(let days, let share, let isCounted):
            // This may be the day's first command. Rows not yet moved to the past days would otherwise be counted again later.
            counters.dropOld(before: CountersRow.day(of: now))
            if isCounted, share.index != 0 { addHoldings(counters.drop(days)) }
            counters.remove(days, from: share.buckets, now: now)
            answer(origin, .done)
        case .online: answer(origin, .online(onlineCounts()))
        case .stopSingle(let task, let app): stopSingle(task, app, origin)
        case .keepSiblings(let task, let siblings): keepSiblings(task, siblings, origin)
        case .endSibling(let task, let app, let cid, let bucket, let digest):
            endSibling(task, app, cid, bucket, digest, origin)
        case .settleFirstAck(let first): settleFirstAck(first, origin)
        case .begin(let key, let digest, let task, let targets): beginCall(key, digest, task, targets, origin)
        case .end(let key, let outcomes): endCall(key, outcomes, origin)
        case .joinGroup(let task, let bucket, let owner): joinGroup(task, bucket, owner, origin)
        case .group(let bucket, let owner): readGroup(bucket, owner, from: 0, found: [], origin)
        case .inspect(let inspection): inspect(inspection, origin)
        case .feed(let command): inFeeds { feeds, core in feeds.handle(command, origin, &core) }
        case .liveBroadcasts(let share, let piece):
            let (logs, next) = broadcasts.piece(piece, of: share)
            answer(origin, .liveBroadcasts(logs, next: next))
        case .broadcastHeads(let share): answer(origin, .liveBroadcasts(broadcasts.heads(of: share)))
        }
    }

    /// Whether the shard knows the folded days; until then it answers no queries for day counters.
    package var knowsFold: Bool { counters.knowsFold }

    /// Sets the folded days, as reported by the owner of bucket 0 (`CounterFold`).
    package mutating func learnFold(_ folded: FoldedDays, now: GatewayTime) {
        begin(now)
        addHoldings(counters.learnFold(CounterFold(folded)))
    }

    /// Adds just folded days on the shard of bucket 0, after the fold is durable.
    package mutating func takeFold(_ days: [CountersRow], now: GatewayTime) {
        begin(now)
        addHoldings(counters.takeFold(days))
    }

    // MARK: The row

    private mutating func create(_ record: TaskRecord, _ key: CallKey, _ digest: UInt64, _ origin: Origin) {
        guard store.acceptsWrites, apps.isServed(record.app) else {
            answer(origin, .busy)
            return
        }
        guard TaskRow.byteCount(record) <= StoreBounds.valueByteCount else { return answer(origin, .tooLarge) }
        guard key != CallKey(high: 0, low: 0) else {
            guard mayBroadcast(record) else { return answer(origin, .full) }
            let written = inBatch(in: record.id.home) { $0.putNew(record) }
            announce(written)
            answer(origin, .created(record.id, isRepeat: false))
            return
        }
        // Both rows are in the same bucket, so one batch writes both or none.
        precondition(key.bucket == record.id.home, "a requested task's home is its request's bucket")
        let requestKey = StoreKey(key.bucket, .request, ownerHigh: key.high, ownerLow: key.low)
        lookUp(requestKey) { shard, found in
            switch found {
            case .unreadable: return shard.answer(origin, .busy)
            case .absent: break
            case .found(let stored):
                guard let row = CallRow.read(stored.bytes), row.digest == digest else {
                    return shard.answer(origin, .conflict)
                }
                shard.numbers.repeatedRequests &+= 1
                return shard.answer(origin, .created(row.task, isRepeat: true))
            }
            // Checked after the request, so that the repetition of an accepted request gets its answer.
            guard shard.mayBroadcast(record) else { return shard.answer(origin, .full) }
            let written = shard.inBatch(in: key.bucket) { shard in
                shard.store.putRow(requestKey, wakeAt: 0, prior: .none, byteCount: CallRow.byteCount(targets: [])) {
                    CallRow.write(digest: digest, task: record.id, targets: [], into: $0)
                }
                return shard.putNew(record)
            }
            shard.announce(written)
            shard.answer(origin, .created(record.id, isRepeat: false))
        }
    }

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

    /// Continues with a task's row and its alarm, or answers `.unknown` or `.busy`.
    mutating func withTask(
        _ task: TaskID, _ app: AppKey, _ origin: Origin,
        completion: @escaping (inout Shard, TaskRecord, GatewayTime) -> Void
    ) {
        lookUp(TaskRow.key(task)) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.answer(origin, .busy)
            case .absent: return shard.answer(origin, .unknown)
            case .found(let row): stored = row
            }
            guard let record = TaskRow.read(stored.bytes) else {
                shard.damaged(TaskRow.key(task))
                return shard.answer(origin, .busy)
            }
            guard record.app == app else { return shard.answer(origin, .unknown) }
            completion(&shard, record, stored.wakeAt)
        }
    }

    private mutating func change(_ task: TaskID, _ app: AppKey, _ change: TaskChange, _ origin: Origin) {
        withTask(task, app, origin) { shard, record, wakeAt in
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
                return shard.answer(origin, .record(record))
            default: return shard.answer(origin, .refused(record.state))
            }
            shard.writeTask(record, prior: .maybe(wakeAt: wakeAt))
            shard.answer(origin, .record(record))
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

    // MARK: Devices of a scheduled task

    private mutating func park(_ task: TaskID, _ app: AppKey, _ targets: [DeviceID], _ origin: Origin) {
        guard targets.count <= TaskBounds.targetsOfARow else { return answer(origin, .tooLarge) }
        guard store.acceptsWrites else { return answer(origin, .busy) }
        withTask(task, app, origin) { shard, record, _ in
            guard record.state == .scheduled else { return shard.answer(origin, .refused(record.state)) }
            let key = StoreKey(task.home, .taskTargets, task, item: shard.tasks.nextPage(shard.now))
            shard.inBatch(in: task.home) { shard in
                shard.store.putRow(
                    key, wakeAt: record.scheduleAt + shard.limits.reportRetention, prior: .none,
                    byteCount: TargetsRow.byteCount(targets)
                ) { TargetsRow.write(targets, into: $0) }
            }
            shard.answer(origin, .parked)
        }
    }

    private mutating func readTargets(_ task: TaskID, from item: UInt64, _ origin: Origin) {
        let start = StoreKey(task.home, .taskTargets, task, item: item)
        read([.scan(partition: start, rowLimit: 1, byteLimit: 1)]) { shard, reply in
            guard case .rows(let rows, let isComplete)? = reply.results.first else {
                return shard.answer(origin, .busy)
            }
            let targets = rows.first.map { TargetsRow.read($0.bytes) } ?? []
            if targets == nil, let row = rows.first { shard.damaged(row.key) }
            let next = isComplete ? nil : rows.last.map { $0.key.item &+ 1 }
            shard.answer(origin, .targets(targets ?? [], next: next))
        }
    }

    // MARK: Groups

    private mutating func joinGroup(
        _ task: TaskID, _ bucket: Bucket, _ owner: (UInt64, UInt64), _ origin: Origin
    ) {
        guard store.acceptsWrites else { return answer(origin, .busy) }
        let key = StoreKey(bucket, .taskGroup, ownerHigh: owner.0, ownerLow: owner.1, item: task.low)
        // A repeated request joins again because the process may have stopped before the first row was durable.
        lookUp(key) { shard, found in
            switch found {
            case .unreadable: return shard.answer(origin, .busy)
            case .found: return shard.answer(origin, .done)
            case .absent: break
            }
            shard.inBatch(in: bucket) { shard in
                shard.store.putRow(key, wakeAt: shard.now + shard.limits.reportRetention, prior: .none, byteCount: 16) {
                    var writer = RowWriter($0)
                    writer.put(task.high)
                    writer.put(task.low)
                }
            }
            shard.answer(origin, .done)
        }
    }

    private mutating func readGroup(
        _ bucket: Bucket, _ owner: (UInt64, UInt64), from item: UInt64, found: [TaskID], _ origin: Origin
    ) {
        let start = StoreKey(bucket, .taskGroup, ownerHigh: owner.0, ownerLow: owner.1, item: item)
        read([.scan(partition: start, rowLimit: 512, byteLimit: 1 << 20)]) { shard, reply in
            guard case .rows(let rows, let isComplete)? = reply.results.first else {
                return shard.answer(origin, .busy)
            }
            var found = found
            for row in rows {
                var reader = RowReader(row.bytes)
                if let task = reader.nextIdentifier(TaskID.self) { found.append(task) }
            }
            guard !isComplete, let last = rows.last else { return shard.answer(origin, .group(found)) }
            shard.readGroup(bucket, owner, from: last.key.item &+ 1, found: found, origin)
        }
    }

    // MARK: Calls

    private mutating func beginCall(
        _ key: CallKey, _ digest: UInt64, _ task: TaskID, _ targets: [DeviceID], _ origin: Origin
    ) {
        guard targets.count <= TaskBounds.callTargets else { return answer(origin, .tooLarge) }
        if let running = tasks.calls[key] {
            guard running.digest == digest else { return answer(origin, .conflict) }
            tasks.wait(for: key, origin)
            return
        }
        guard store.acceptsWrites, tasks.calls.count < limits.callsUnderWay else { return answer(origin, .busy) }
        tasks.begin(key, RunningCall(digest: digest, task: task, since: now))
        run(key, digest, task, targets, origin)
    }

    /// Restarts calls whose runner is silent, with a waiting repetition as the new runner.
    ///
    /// A runner may be on another gateway and be lost with its link or process. Two runners do no harm because a device accepts a
    /// task's message once.
    mutating func takeOverCalls() {
        while let call = tasks.popOverdue(now) {
            guard let task = tasks.calls[call.key]?.task else { continue }
            run(call.key, call.digest, task, nil, call.runner)
        }
    }

    /// Lets the caller run the call; the answer contains the targets of the first attempt, if any.
    private mutating func run(
        _ key: CallKey, _ digest: UInt64, _ task: TaskID, _ targets: [DeviceID]?, _ origin: Origin
    ) {
        let begunKey = StoreKey(key.bucket, .request, ownerHigh: key.high, ownerLow: key.low)
        lookUp(begunKey) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.dropCall(key, origin, .busy)
            case .found(let row): stored = row
            case .absent:
                guard let targets else { return shard.dropCall(key, origin, .busy) }
                shard.inBatch(in: key.bucket) { shard in
                    shard.store.putRow(
                        begunKey, wakeAt: 0, prior: .none, byteCount: CallRow.byteCount(targets: targets)
                    ) {
                        CallRow.write(digest: digest, task: task, targets: targets, into: $0)
                    }
                }
                return shard.answer(origin, .begun(task, targets))
            }
            guard let begun = CallRow.read(stored.bytes), begun.digest == digest else {
                return shard.dropCall(key, origin, .conflict)
            }
            shard.tasks.rename(key, begun.task)
            shard.lookUp(CallRow.answerKey(key)) { shard, answered in
                if case .unreadable = answered { return shard.dropCall(key, origin, .busy) }
                if case .found(let stored) = answered, let outcomes = CallRow.readAnswer(stored.bytes) {
                    shard.numbers.repeatedRequests &+= 1
                    return shard.dropCall(key, origin, .ended(begun.task, outcomes))
                }
                // The call began before the restart, or its caller did not finish it. It runs again with the same ids.
                shard.answer(origin, .begun(begun.task, begun.targets))
            }
        }
    }

    /// Ends a call that could not begin, and gives all waiting repetitions the same answer.
    private mutating func dropCall(_ key: CallKey, _ origin: Origin, _ said: TaskAnswer) {
        let waiting = tasks.end(key)?.waiting ?? []
        answer(origin, said)
        for other in waiting { answer(other, said) }
    }

    private mutating func endCall(_ key: CallKey, _ outcomes: [PublishOutcome]?, _ origin: Origin) {
        guard let call = tasks.calls[key] else { return answer(origin, .unknown) }
        guard let outcomes, outcomes.count <= TaskBounds.callTargets else { return dropCall(key, origin, .busy) }
        inBatch(in: key.bucket) { shard in
            shard.store.putRow(
                CallRow.answerKey(key), wakeAt: 0, prior: .maybe(wakeAt: 0),
                byteCount: outcomes.count * RequestRow.byteCount
            ) { CallRow.writeAnswer(outcomes, digest: call.digest, into: $0) }
        }
        tasks.end(key)
        answer(origin, .done)
        let repeated = outcomes.map { outcome in
            var outcome = outcome
            outcome.isRepeat = true
            return outcome
        }
        for other in call.waiting { answer(other, .ended(call.task, repeated)) }
    }
}
