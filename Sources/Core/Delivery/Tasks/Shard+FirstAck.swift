// `first_ack_wins`: the first device of a task that acks, or whose user opens the notification, ends the pending messages of the
// others (siblings).
//
// The devices of a task belong to several loops, so one write cannot end all messages. The batch that ends the first message also
// marks its ledger row and sets the row's alarm to a retry time. When the batch is durable, the gateway ends the siblings one by
// one, in separate batches, and settles the row. Ending a sibling is idempotent. After a crash in between, the alarm repeats the
// procedure.

internal import Structures
package import Wire

extension Shard {
    static func isFirstAck(_ state: FinalState) -> Bool {
        state == .delivered || state == .deliveredOffline || state == .opened
    }

    /// Queues the first acks of the closed batch for the gateway until the batch is durable.
    mutating func tellFirstAcks() {
        for first in tasks.takeFreshFirstAcks() { tell(first) }
    }

    private mutating func tell(_ first: FirstAck) {
        outbox.hold(.firstAck(first))
        guard let bucket = first.message.bucket else { return }
        let key = StoreKey(bucket, .taskMessage, first.task, item: first.message.low)
        tasks.watch(key, until: now + limits.taskPatience)
    }

    /// Handles the alarm of a ledger row: the end of report retention, or the retry of a first ack.
    mutating func ledgerAlarmFired(_ stored: StoredRow) {
        guard let row = LedgerRow(stored.bytes), isUnsettled(row, wakeAt: stored.wakeAt) else {
            forget(stored)
            return
        }
        firstAckAlarmFired(stored.key)
    }

    fileprivate func isUnsettled(_ row: LedgerRow, wakeAt: GatewayTime) -> Bool {
        row.flags.contains(.firstAck) && wakeAt < row.acceptedAt + limits.reportRetention
    }

    mutating func fireFirstAcks() {
        while let key = tasks.popUnsettled(now) { firstAckAlarmFired(key) }
    }

    /// Reads the current row because the gateway may have settled the first ack.
    private mutating func firstAckAlarmFired(_ key: StoreKey) {
        lookUp(key) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.tasks.watch(key, until: shard.now + shard.limits.taskPatience)
            case .absent: return
            case .found(let row): stored = row
            }
            guard let row = LedgerRow(stored.bytes), shard.isUnsettled(row, wakeAt: stored.wakeAt) else { return }
            let message = MessageID(bucket: key.bucket, acceptedAt: row.acceptedAt, digest: key.item)
            shard.tell(
                FirstAck(
                    task: TaskID(high: key.ownerHigh, low: key.ownerLow), app: row.app, message: message))
            shard.releaseDue()
        }
    }

    /// Ends the siblings of an acked task again, because a repeated call may have reached new devices.
    mutating func repeatFirstAck(_ row: LedgerRow, _ command: PublishCommand) {
        guard row.flags.contains(.firstAck) else { return }
        let message = MessageID(
            bucket: command.bucket, acceptedAt: row.acceptedAt, digest: command.messageDigest)
        whenDurable(.firstAck(FirstAck(task: command.task, app: row.app, message: message)))
    }
}

/// Stores the devices of a task before any of them gets its message; `ReadTargets` returns them.
///
/// The answer is `false` if the devices are not stored.
package struct KeepSiblings: ShardQuestion {
    package var task: TaskID
    package var devices: [DeviceID]
    package init(_ task: TaskID, _ devices: [DeviceID]) { (self.task, self.devices) = (task, devices) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Bool>) {
        guard shard.store.acceptsWrites else { return shard.answerBusy(reply) }
        guard devices.count <= TaskBounds.targetsOfARow else { return shard.answer(reply, false) }
        let key = StoreKey(task.home, .taskTargets, task)
        // A call that is repeated after a crash keeps the devices of the first call.
        shard.lookUp(key) { shard, found in
            switch found {
            case .unreadable: return shard.answerBusy(reply)
            case .found: return shard.answer(reply, true)
            case .absent: break
            }
            shard.inBatch(in: task.home) { shard in
                shard.store.putRow(
                    key, wakeAt: shard.now + shard.limits.reportRetention, prior: .none,
                    byteCount: TargetsRow.byteCount(devices)
                ) { TargetsRow.write(devices, into: $0) }
            }
            shard.answer(reply, true)
        }
    }
}

/// Ends one device's pending message of a task because another device acked first, and refuses a message that arrives later.
///
/// The answer is the number of ended messages; `nil`: not known.
package struct EndSibling: ShardQuestion {
    package var task: TaskID
    package var device: DeviceAddress
    package var digest: UInt64
    package init(_ task: TaskID, _ device: DeviceAddress, digest: UInt64) {
        (self.task, self.device, self.digest) = (task, device, digest)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Int?>) {
        // The shard refuses the task's messages for longer than one can wait in a mailbox or for a device's record.
        if !shard.isPlanted(.siblingLetIn) { shard.tasks.stop(task, until: shard.now + shard.limits.taskPatience) }
        let key = StoreKey(device.bucket, .taskMessage, task, item: digest)
        shard.lookUp(key) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.answerBusy(reply)
            case .absent: return shard.answer(reply, 0)
            case .found(let row): stored = row
            }
            guard let row = LedgerRow(stored.bytes), row.app == device.app, row.cid == device.cid, row.state == nil,
                !shard.isPlanted(.siblingStays)
            else { return shard.answer(reply, 0) }
            let id = MessageID(bucket: device.bucket, acceptedAt: row.acceptedAt, digest: digest)
            shard.endPendingOfDevice(id, row.cid, row.table, row.item, reason: "firstAckWins") { shard, ended in
                guard let count = ended.endedCount else { return shard.answerBusy(reply) }
                shard.answer(reply, count)
            }
        }
    }
}

/// Settles a first ack whose siblings have ended; the row's alarm is again the end of report retention.
///
/// The answer is `false` if the row is unknown, or the question must be repeated.
package struct SettleFirstAck: ShardQuestion {
    package var first: FirstAck
    package init(_ first: FirstAck) { self.first = first }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Bool>) {
        guard let bucket = first.message.bucket else { return shard.answer(reply, false) }
        let key = StoreKey(bucket, .taskMessage, first.task, item: first.message.low)
        shard.lookUp(key) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.answerBusy(reply)
            case .absent: return shard.answer(reply, false)
            case .found(let row): stored = row
            }
            guard let row = LedgerRow(stored.bytes) else { return shard.answer(reply, false) }
            let wakeAt = stored.wakeAt
            guard shard.isUnsettled(row, wakeAt: wakeAt) else { return shard.answer(reply, true) }
            shard.inBatch(in: bucket) { shard in
                shard.store.putRow(
                    key, wakeAt: row.acceptedAt + shard.limits.reportRetention, prior: .maybe(wakeAt: wakeAt),
                    byteCount: row.byteCount
                ) { row.write(into: $0) }
            }
            shard.answer(reply, true)
        }
    }
}
