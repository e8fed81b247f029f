// The ledger of tasks. Each message of a task has a row in its device's bucket. The row is written in the batch that accepts the
// message and again in the batch that ends it. A report is therefore a sum over rows and always consistent with them.

internal import Structures
internal import Wire

extension TaskID {
    /// Whether the task has several messages with ledger rows.
    var hasLedger: Bool { kind == .list || kind == .app }
}

extension Shard {
    static func ledgerKey(_ facts: MessageFacts) -> StoreKey {
        StoreKey(facts.bucket, .taskMessage, facts.task, item: facts.message.low)
    }

    /// Returns the end of report retention, the alarm of an ended row.
    private func ledgerEnd(_ facts: MessageFacts) -> GatewayTime { facts.acceptedAt + limits.reportRetention }

    /// Returns the alarm of a pending row; a broadcast's message has no other row with an alarm.
    private func ledgerAlarm(_ facts: MessageFacts) -> GatewayTime {
        facts.table == .broadcast ? facts.wakeAt : ledgerEnd(facts)
    }

    mutating func noteAccepted(_ facts: MessageFacts, _ outcome: PublishOutcome) {
        guard facts.task.hasLedger else { return }
        acceptances.insert(facts.task, facts.message.low, now: now)
        var flags: LedgerRow.Flags = outcome.isLive ? .live : []
        if facts.flags.contains(.sendCounted) { flags.insert(.sendCounted) }
        if facts.hasCallback { flags.insert(.callback) }
        let row = LedgerRow(
            cid: facts.cid, app: facts.app, flags: flags, state: nil,
            fallback: outcome.fallback, fallbackReason: outcome.fallbackReason, acceptedAt: facts.acceptedAt,
            timeToLive: facts.timeToLive, table: facts.table, item: facts.item, vendor: facts.channels.first)
        store.putRow(Self.ledgerKey(facts), wakeAt: ledgerAlarm(facts), prior: .none, byteCount: row.byteCount) {
            row.write(into: $0)
        }
        batch.rowCount += 1
    }

    /// Returns the alarm of a pending row after the vendor accepted the message, which then needs no fallback.
    private func alertedAlarm(_ facts: MessageFacts) -> GatewayTime {
        facts.table == .broadcast ? facts.expiresAt : ledgerEnd(facts)
    }

    func ledgerAlarm(_ facts: MessageFacts, isAlertCounted: Bool) -> GatewayTime {
        isAlertCounted ? alertedAlarm(facts) : ledgerAlarm(facts)
    }

    private func ledgerFlags(_ facts: MessageFacts, wasSent: Bool, wasAlerted: Bool) -> LedgerRow.Flags {
        var flags: LedgerRow.Flags = facts.flags.contains(.offline) ? [] : .live
        if facts.flags.contains(.sendCounted) { flags.insert(.sendCounted) }
        if facts.hasCallback { flags.insert(.callback) }
        if wasSent { flags.insert(.sent) }
        if wasAlerted { flags.insert(.alerted) }
        return flags
    }

    /// Records, in the open batch, that the vendor accepted a task's message that stays pending.
    mutating func noteAlerted(_ facts: MessageFacts, _ vendor: VendorChannel?, wasSent: Bool) {
        guard facts.task.hasLedger else { return }
        let (fallback, fallbackReason) = facts.fallback
        let row = LedgerRow(
            cid: facts.cid, app: facts.app, flags: ledgerFlags(facts, wasSent: wasSent, wasAlerted: true), state: nil,
            fallback: fallback, fallbackReason: fallbackReason, acceptedAt: facts.acceptedAt,
            timeToLive: facts.timeToLive, table: facts.table, item: facts.item, vendor: vendor)
        store.putRow(
            Self.ledgerKey(facts), wakeAt: alertedAlarm(facts), prior: .maybe(wakeAt: ledgerAlarm(facts)),
            byteCount: row.byteCount
        ) { row.write(into: $0) }
        batch.rowCount += 1
    }

    /// Records, in the open batch, the end of a task's message; `alarm` is the previous alarm of its ledger row.
    mutating func noteEnded(
        _ facts: MessageFacts, _ state: FinalState, reason: String, vendor: VendorChannel?, wasSent: Bool,
        wasAlerted: Bool, isNew: Bool, alarm: GatewayTime
    ) {
        guard facts.task.hasLedger else { return }
        if isNew { acceptances.insert(facts.task, facts.message.low, now: now) }
        var flags = ledgerFlags(facts, wasSent: wasSent, wasAlerted: wasAlerted)
        if isNew { flags.insert(.endedAtOnce) }
        let isFirstAck = facts.flags.contains(.firstAckWins) && Self.isFirstAck(state)
        if isFirstAck { flags.insert(.firstAck) }
        let (fallback, fallbackReason) = facts.fallback
        let row = LedgerRow(
            cid: facts.cid, app: facts.app, flags: flags, state: state, fallback: fallback,
            fallbackReason: fallbackReason, acceptedAt: facts.acceptedAt, endedAt: now, timeToLive: facts.timeToLive,
            table: facts.table, item: facts.item, reason: reason, vendor: vendor)
        let end = ledgerEnd(facts)
        // The alarm repeats the first ack until its siblings have ended.
        store.putRow(
            Self.ledgerKey(facts), wakeAt: isFirstAck ? min(end, now + limits.taskPatience) : end,
            prior: isNew ? .none : .maybe(wakeAt: alarm), byteCount: row.byteCount
        ) { row.write(into: $0) }
        batch.rowCount += 1
        if isFirstAck { tasks.noteFirstAck(facts) }
    }

    /// Writes, in the open batch, a user's action on a message; idempotent.
    mutating func noteTaskEvent(
        _ event: TaskEventRow.Event, isVendor: Bool, action: UInt32 = 0, task: TaskID, message: MessageID
    ) {
        guard task.hasLedger, let bucket = message.bucket else { return }
        let row = TaskEventRow(event: event, isVendor: isVendor, action: action, time: now)
        let key = StoreKey(
            bucket, .taskEvent, task, item: TaskEventRow.item(message, event, action: action))
        // The alarm is derived from the message's id, so that every write of the row has the same alarm.
        let end = message.acceptedAtMilliseconds + limits.reportRetention
        store.putRow(key, wakeAt: end, prior: .maybe(wakeAt: end), byteCount: TaskEventRow.byteCount) {
            row.write(into: $0)
        }
        batch.rowCount += 1
    }

    /// Returns the outcome of a repeated call for a device that the task has reached.
    func repeated(_ row: LedgerRow, _ command: PublishCommand) -> PublishOutcome {
        PublishOutcome(
            code: .accepted, cid: command.cid,
            message: MessageID(bucket: command.bucket, acceptedAt: row.acceptedAt, digest: command.messageDigest),
            task: command.task, isLive: row.flags.contains(.live), fallback: row.fallback,
            fallbackReason: row.fallbackReason, timeToLive: row.timeToLive, isRepeat: true,
            endedAs: row.flags.contains(.endedAtOnce) ? row.state : nil,
            vendor: row.fallback == .none ? nil : row.vendor)
    }

    // MARK: Looking a row up

    /// Finds the row of a single push by its task id, which contains the row's key (`PushRow.key`).
    mutating func findSingle(
        _ task: TaskID, in bucket: Bucket, completion: @escaping (inout Shard, Found<PushRow>) -> Void
    ) {
        let key = PushRow.key(task, in: bucket)
        lookUp(key) { shard, found in
            if case .unreadable = found { return completion(&shard, .unreadable) }
            // The key does not contain the task's day, so the row may belong to a task of another day.
            guard case .found(let stored) = found, let row = PushRow(stored.bytes, under: key), row.outcome.task == task
            else { return completion(&shard, .absent) }
            completion(&shard, .found(row))
        }
    }

    /// A pending message: its facts, and the slots of the message and its job, or `.none`.
    struct PendingMessage {
        var facts: MessageFacts
        var message = MessageSlot.none
        var job = JobSlot.none
    }

    /// Finds a message that may be pending; an ended one is absent.
    ///
    /// The device must be busy until the completion (`whileBusy`).
    mutating func findPending(
        _ id: MessageID, table: StoreKey.Table, item: UInt64, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, Found<PendingMessage>) -> Void
    ) {
        if let listed = listedMessage(id, of: slot) {
            let entry = messages.at(listed)
            let pending = PendingMessage(facts: entry.value.facts, message: listed, job: entry.value.job)
            completion(&self, .found(pending))
            return
        }
        findJob(id) { shard, found in
            switch found {
            case .unreadable: return completion(&shard, .unreadable)
            case .found(let job):
                let entry = shard.jobs.at(job)
                let pending = PendingMessage(
                    facts: entry.value.row.facts, message: entry.value.message, job: job)
                return completion(&shard, .found(pending))
            case .absent: break
            }
            switch table {
            case .broadcast: shard.findPendingBroadcast(id, number: item, slot, completion: completion)
            case .message, .vendorMessage:
                shard.scan(slot, table: table, from: item, rowLimit: 1, byteLimit: 1) { shard, page in
                    guard case .rows(let rows, _) = page else { return completion(&shard, .unreadable) }
                    guard let row = rows.first, row.facts.message == id else { return completion(&shard, .absent) }
                    let message = shard.adoptMessage(row, device: slot)
                    let entry = shard.messages.at(message)
                    let pending = PendingMessage(
                        facts: entry.value.facts, message: message, job: entry.value.job)
                    completion(&shard, .found(pending))
                }
            default: completion(&shard, .absent)
            }
        }
    }

    /// Returns whether the device may have seen a pending message: it was sent, or its job was leased.
    func mayHaveBeenSeen(_ facts: MessageFacts, message: MessageSlot, job: JobSlot) -> Bool {
        if message != .none {
            let entry = messages.at(message)
            if entry.value.sentAt > 0 || entry.value.flags.contains(.attempted) { return true }
            // A message loaded after a restart counts as sent if its device was reachable at acceptance.
            if entry.value.flags.contains(.cold), !facts.flags.contains(.offline) { return true }
        } else if !facts.flags.contains(.offline) {
            return true
        }
        guard job != .none else { return false }
        let row = jobs.at(job).value.row
        return row.isAlerted || row.wasLeased || row.hasSent
    }
}
