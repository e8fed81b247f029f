internal import Structures
package import Wire

private final class TaskScan {
    var left: [StoreKey]
    var visit: (inout Shard, [StoredRow]) -> Void
    var finish: (inout Shard, Reading) -> Void

    init(
        _ partitions: [StoreKey], visit: @escaping (inout Shard, [StoredRow]) -> Void,
        finish: @escaping (inout Shard, Reading) -> Void
    ) {
        left = partitions.reversed()
        (self.visit, self.finish) = (visit, finish)
    }

    static let partitionLimit = 64
    static let rowLimit = 128
}

private final class Sweep {
    var ended = 0
    var outstanding = 1
    var hasFailed = false
    let reply: ShardReply<Int?>
    init(_ reply: ShardReply<Int?>) { self.reply = reply }
}

extension Shard {
    fileprivate mutating func scan(_ scan: TaskScan) {
        guard !scan.left.isEmpty else {
            scan.finish(&self, .whole)
            return
        }
        let round = Array(scan.left.suffix(TaskScan.partitionLimit).reversed())
        scan.left.removeLast(round.count)
        read(round.map { .scan(partition: $0, rowLimit: TaskScan.rowLimit, byteLimit: 64 << 10) }) { shard, reply in
            guard reply.failure == nil, reply.results.count == round.count else {
                scan.finish(&shard, .unreadable)
                return
            }
            for (start, result) in zip(round, reply.results) {
                guard case .rows(let rows, let isComplete) = result else { continue }
                if !isComplete, let last = rows.last {
                    var next = start
                    next.item = last.key.item &+ 1
                    scan.left.append(next)
                }
                if !rows.isEmpty { scan.visit(&shard, rows) }
            }
            shard.scan(scan)
        }
    }

    fileprivate static func partitions(_ task: TaskID, _ share: LoopShare, _ tables: [StoreKey.Table]) -> [StoreKey] {
        share.buckets.flatMap { bucket in tables.map { StoreKey(bucket, $0, task) } }
    }

    // MARK: Totals of a single push

    /// Answers with the totals of a single push from its message's trace or, while it is pending, from its rows.
    fileprivate mutating func singleTotals(
        of task: TaskID, _ app: AppKey, _ reply: ShardReply<Found<TaskTotals>>
    ) {
        withSingleTask(task, app, reply) { shard, row in
            shard.readTrace(row.message, bucket: task.home) { shard, found in
                let trace: TraceRow
                switch found {
                case .found(let row): trace = row
                case .absent: return shard.pendingTotals(row, reply)
                case .unreadable: return shard.answerBusy(reply)
                }
                var totals = TaskTotals()
                totals.accepted = 1
                totals[trace.finalState] += 1
                if trace.finalState == .failed { totals.failures[trace.reason, default: 0] += 1 }
                let isAcked = trace.finalState == .delivered || trace.finalState == .deliveredOffline
                let isOpened = trace.finalState == .opened
                let wasAlerted =
                    isOpened || trace.finalState == .handedOff || trace.steps.contains { $0.event == .vendorAccepted }
                totals.takeOut(
                    wasSent: isAcked || trace.wasSentLive || trace.steps.contains { $0.event == .sent },
                    wasAlerted: wasAlerted)
                totals.live.received = isAcked ? 1 : 0
                (totals.vendor.received, totals.vendor.shown) = (isOpened ? 1 : 0, isOpened ? 1 : 0)
                totals.vendor.clicked = isOpened ? 1 : 0
                totals.all.received = isAcked || isOpened ? 1 : 0
                (totals.all.shown, totals.all.clicked) = (totals.vendor.shown, totals.vendor.clicked)
                shard.answerSingle(
                    totals, of: row.message, trace.channel, steps: trace.steps, isVendor: wasAlerted, reply)
            }
        }
    }

    private mutating func answerSingle(
        _ totals: TaskTotals, of message: MessageID, _ channel: VendorChannel?, steps: [MessageTrace.Step],
        isVendor: Bool,
        _ reply: ShardReply<Found<TaskTotals>>
    ) {
        lateEvents(of: message) { shard, late, reading in
            guard reading == .whole else { return shard.answerBusy(reply) }
            var totals = totals
            totals.takeReported(
                steps + late, isVendor: isVendor || late.contains { $0.event == .vendorAccepted })
            totals.name(channel)
            shard.answer(reply, .found(totals))
        }
    }

    /// Continues with the row of a single push, or answers `absent` or busy.
    mutating func withSingleTask<Value>(
        _ task: TaskID, _ app: AppKey, _ reply: ShardReply<Found<Value>>,
        completion: @escaping (inout Shard, PushRow) -> Void
    ) {
        findSingle(task, in: task.home) { shard, found in
            switch found {
            case .unreadable: shard.answerBusy(reply)
            case .found(let row) where row.app == app: completion(&shard, row)
            case .found, .absent: shard.answer(reply, .absent)
            }
        }
    }

    /// Answers with the totals of a pending single push, from the row of its job or of its message.
    private mutating func pendingTotals(_ row: PushRow, _ reply: ShardReply<Found<TaskTotals>>) {
        findJob(row.message) { shard, found in
            var totals = TaskTotals()
            totals.accepted = 1
            switch found {
            case .unreadable: return shard.answerBusy(reply)
            case .absent: break
            case .found(let job):
                let found = shard.jobs.at(job).value.row
                shard.dropJobIfDone(job)
                totals.takeOut(
                    wasSent: !found.facts.flags.contains(.offline) || found.hasSent,
                    wasAlerted: found.alertedAt > 0)
                // Reports after a lease count as the vendor's, because a receipt may arrive before the sender's result.
                return shard.answerSingle(
                    totals, of: row.message, found.channel, steps: found.steps, isVendor: found.wasLeased, reply)
            }
            guard let bucket = row.message.bucket else { return shard.answer(reply, .absent) }
            shard.lookUp(StoreKey(bucket, row.table, row.cid, item: row.item)) { shard, found in
                var facts: MessageFacts?
                switch found {
                case .unreadable: return shard.answerBusy(reply)
                case .absent: break
                case .found(let stored):
                    facts = MessageRow(stored.bytes)?.facts(cid: row.cid, table: row.table, item: row.item)
                }
                totals.takeOut(wasSent: facts.map { !$0.flags.contains(.offline) } ?? false, wasAlerted: false)
                shard.answerSingle(totals, of: row.message, nil, steps: [], isVendor: false, reply)
            }
        }
    }

    // MARK: Stop

    fileprivate mutating func endSwept(_ row: LedgerRow, _ key: StoreKey, _ sweep: Sweep) {
        sweep.outstanding += 1
        let id = MessageID(bucket: key.bucket, acceptedAt: row.acceptedAt, digest: key.item)
        endPendingOfDevice(id, row.cid, row.table, row.item, reason: "stopped") { shard, ended in
            switch ended {
            case .found: sweep.ended += 1
            case .absent: break
            case .unreadable: sweep.hasFailed = true
            }
            shard.swept(sweep)
        }
    }

    fileprivate mutating func swept(_ sweep: Sweep) {
        sweep.outstanding -= 1
        guard sweep.outstanding == 0 else { return }
        if sweep.hasFailed { answerBusy(sweep.reply) } else { answer(sweep.reply, sweep.ended) }
    }

    /// Ends a message of any device in that device's turn; see `endPending`.
    mutating func endPendingOfDevice(
        _ id: MessageID, _ cid: DeviceID, _ table: StoreKey.Table, _ item: UInt64, reason: String,
        completion: @escaping (inout Shard, Found<Bool>) -> Void
    ) {
        guard let bucket = id.bucket else { return completion(&self, .absent) }
        whenReady(deviceSlot(cid, bucket: bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                // A message without a device's record cannot be pending.
                completion(&shard, readiness == .unknown ? .absent : .unreadable)
                return
            }
            shard.whileBusy(slot) { shard, done in
                shard.endPending(id, table, item, slot, reason: reason, completion: done)
            } then: { shard, ended in
                shard.pump(slot)
                completion(&shard, ended)
            }
        }
    }
}

/// Asks for the totals of a task's messages in these buckets.
package struct TaskTotalsQuery: ShardQuestion {
    package var task: TaskID
    package var app: AppKey
    package var share: LoopShare
    package init(_ task: TaskID, _ app: AppKey, _ share: LoopShare) {
        (self.task, self.app, self.share) = (task, app, share)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Found<TaskTotals>>) {
        guard task.hasLedger else { return shard.singleTotals(of: task, app, reply) }
        let gathering = TotalsGathering()
        shard.scan(
            TaskScan(
                Shard.partitions(task, share, [.taskMessage, .taskEvent]),
                visit: { shard, rows in
                    for stored in rows {
                        if stored.key.table == .taskMessage, let row = LedgerRow(stored.bytes) {
                            if row.app == app { gathering.take(row, stored.key) }
                        } else if let row = TaskEventRow(stored.bytes) {
                            gathering.take(row, stored.key)
                        } else {
                            shard.damaged(stored.key)
                        }
                    }
                },
                finish: { shard, reading in
                    guard reading == .whole else { return shard.answerBusy(reply) }
                    shard.answer(reply, .found(gathering.sum()))
                }))
    }
}

/// Ends every pending message of a task in these buckets, and refuses later ones.
///
/// The answer is the number of ended messages; `nil` if the sweep must be repeated.
package struct SweepTask: ShardQuestion {
    package var task: TaskID
    package var app: AppKey
    package var share: LoopShare
    package init(_ task: TaskID, _ app: AppKey, _ share: LoopShare) {
        (self.task, self.app, self.share) = (task, app, share)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Int?>) {
        // The shard refuses the task's messages for longer than one can wait in a mailbox or for a device's record.
        shard.tasks.stop(task, until: shard.now + 24 * 3_600_000)
        shard.closeBroadcast(task, app, .revoked)
        let sweep = Sweep(reply)
        shard.scan(
            TaskScan(
                Shard.partitions(task, share, [.taskMessage]),
                visit: { shard, rows in
                    for stored in rows {
                        guard let row = LedgerRow(stored.bytes), row.state == nil, row.app == app else { continue }
                        shard.endSwept(row, stored.key, sweep)
                    }
                },
                finish: { shard, reading in
                    if reading == .unreadable { sweep.hasFailed = true }
                    shard.swept(sweep)
                }))
    }
}

/// Ends the pending message of a single push; the answer is the number of ended messages.
package struct StopSingle: ShardQuestion {
    package var task: TaskID
    package var app: AppKey
    package init(_ task: TaskID, _ app: AppKey) { (self.task, self.app) = (task, app) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Found<Int>>) {
        shard.withSingleTask(task, app, reply) { shard, row in
            shard.endPendingOfDevice(row.message, row.cid, row.table, row.item, reason: "stopped") { shard, ended in
                guard let count = ended.endedCount else { return shard.answerBusy(reply) }
                shard.answer(reply, .found(count))
            }
        }
    }
}
