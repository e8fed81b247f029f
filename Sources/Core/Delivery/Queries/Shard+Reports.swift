internal import Structures
internal import Wire

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
    let origin: Origin
    init(origin: Origin) { self.origin = origin }
}

extension Shard {
    private mutating func scan(_ scan: TaskScan) {
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

    private static func partitions(_ task: TaskID, _ share: LoopShare, _ tables: [StoreKey.Table]) -> [StoreKey] {
        share.buckets.flatMap { bucket in tables.map { StoreKey(bucket, $0, task) } }
    }

    // MARK: Totals of a task

    mutating func totals(of task: TaskID, _ app: AppKey, _ share: LoopShare, _ origin: Origin) {
        guard task.hasLedger else {
            singleTotals(of: task, app, origin)
            return
        }
        let gathering = TotalsGathering()
        scan(
            TaskScan(
                Self.partitions(task, share, [.taskMessage, .taskEvent]),
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
                    shard.answer(origin, reading == .whole ? .totals(gathering.sum()) : .busy)
                }))
    }

    /// Answers with the totals of a single push from its message's trace or, while it is pending, from its rows.
    private mutating func singleTotals(of task: TaskID, _ app: AppKey, _ origin: Origin) {
        withSingleTask(task, app, origin) { shard, row in
            shard.readTrace(row.message, bucket: task.home) { shard, found in
                let trace: TraceRow
                switch found {
                case .found(let row): trace = row
                case .absent: return shard.pendingTotals(row, origin)
                case .unreadable: return shard.answer(origin, .busy)
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
                    totals, of: row.message, steps: trace.steps, isVendor: wasAlerted, origin)
            }
        }
    }

    private mutating func answerSingle(
        _ totals: TaskTotals, of message: MessageID, steps: [MessageTrace.Step], isVendor: Bool, _ origin: Origin
    ) {
        lateEvents(of: message) { shard, late, reading in
            guard reading == .whole else { return shard.answer(origin, .busy) }
            var totals = totals
            totals.takeReported(
                steps + late, isVendor: isVendor || late.contains { $0.event == .vendorAccepted })
            shard.answer(origin, .totals(totals))
        }
    }

    /// Continues with the row of a single push, or answers `.unknown` or `.busy`.
    private mutating func withSingleTask(
        _ task: TaskID, _ app: AppKey, _ origin: Origin, completion: @escaping (inout Shard, PushRow) -> Void
    ) {
        findSingle(task, in: task.home) { shard, found in
            switch found {
            case .unreadable: shard.answer(origin, .busy)
            case .absent: shard.answer(origin, .unknown)
            case .found(let row):
                guard row.app == app else { return shard.answer(origin, .unknown) }
                completion(&shard, row)
            }
        }
    }

    /// Answers with the totals of a pending single push, from its job's row or its own.
    private mutating func pendingTotals(_ row: PushRow, _ origin: Origin) {
        findJob(row.message) { shard, found in
            var totals = TaskTotals()
            totals.accepted = 1
            switch found {
            case .unreadable: return shard.answer(origin, .busy)
            case .absent: break
            case .found(let job):
                let found = shard.jobs.at(job).value.row
                shard.dropJobIfDone(job)
                totals.takeOut(
                    wasSent: !found.facts.flags.contains(.offline) || found.steps.contains { $0.event == .sent },
                    wasAlerted: found.alertedAt > 0)
                // A receipt may arrive before the sender's result.
                return shard.answerSingle(
                    totals, of: row.message, steps: found.steps, isVendor: found.attempts > 0, origin)
            }
            guard let bucket = row.message.bucket else { return shard.answer(origin, .unknown) }
            shard.lookUp(StoreKey(bucket, row.table, row.cid, item: row.item)) { shard, found in
                var facts: MessageFacts?
                switch found {
                case .unreadable: return shard.answer(origin, .busy)
                case .absent: break
                case .found(let stored):
                    facts = MessageRow(stored.bytes)?.facts(cid: row.cid, table: row.table, item: row.item)
                }
                totals.takeOut(wasSent: facts.map { !$0.flags.contains(.offline) } ?? false, wasAlerted: false)
                shard.answerSingle(totals, of: row.message, steps: [], isVendor: false, origin)
            }
        }
    }

    // MARK: Stop

    mutating func sweep(_ task: TaskID, _ app: AppKey, _ share: LoopShare, _ origin: Origin) {
        // Longer than a message of the task can wait in a mailbox or for a device's record.
        tasks.stop(task, until: now + 24 * 3_600_000)
        closeBroadcast(task, app, .revoked)
        let sweep = Sweep(origin: origin)
        scan(
            TaskScan(
                Self.partitions(task, share, [.taskMessage]),
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

    private mutating func endSwept(_ row: LedgerRow, _ key: StoreKey, _ sweep: Sweep) {
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

    private mutating func swept(_ sweep: Sweep) {
        sweep.outstanding -= 1
        guard sweep.outstanding == 0 else { return }
        answer(sweep.origin, sweep.hasFailed ? .busy : .swept(sweep.ended))
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

    mutating func stopSingle(_ task: TaskID, _ app: AppKey, _ origin: Origin) {
        withSingleTask(task, app, origin) { shard, row in
            shard.endPendingOfDevice(row.message, row.cid, row.table, row.item, reason: "stopped") { shard, ended in
                shard.answer(origin, Self.swept(ended))
            }
        }
    }

    static func swept(_ ended: Found<Bool>) -> TaskAnswer {
        switch ended {
        case .found: .swept(1)
        case .absent: .swept(0)
        case .unreadable: .busy
        }
    }

    // MARK: Devices

    func onlineCounts() -> [AppKey: Int] {
        var counts: [AppKey: Int] = [:]
        for (index, app) in apps.entries.enumerated() where sessions.count(ofApp: index) > 0 {
            counts[app.key] = sessions.count(ofApp: index)
        }
        return counts
    }
}
