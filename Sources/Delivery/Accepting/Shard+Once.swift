// A task reaches a device at most once. So a repeated list call is safe, and a revoke is a message like others.

internal import Structures
internal import Wire

extension Shard {
    /// Continues with a message of a task of several, unless its task has reached the device or was stopped.
    ///
    /// Where the first ack wins, that ack may come before a caller repeats a call whose answer was lost. The repeated
    /// call gets the answer of each device that has the message; only new devices are refused.
    mutating func admitOnce(_ command: PublishCommand, _ slot: UInt32) {
        guard !tasks.isStopped(command.task) || command.firstAckWins else {
            refuse(command, .stopped)
            return
        }
        let key = StoreKey(command.bucket, .taskMessage, command.task, item: command.messageDigest)
        if case .found(let location, _) = store.young(key), !isPlanted(.taskReachesTwice) {
            repeatOnce(command, key, store.value(at: location))
        } else if acceptances.excludes(command.task, command.messageDigest, createdAt: command.taskCreatedAt)
            || store.isCertainlyAbsent(key) || isPlanted(.taskReachesTwice)
        {
            admitNew(command, slot)
        } else {
            let kept = KeptPublish(command)
            devices.pointer(slot).pointee.flags.insert(.busy)
            read([.get(key)]) { shard, reply in
                shard.devices.pointer(slot).pointee.flags.remove(.busy)
                switch reply.results.first {
                case .row(let stored?)?: shard.repeatOnce(kept.command, key, stored.value)
                case .row(nil)?: shard.admitNew(kept.command, slot)
                default: shard.refuse(kept.command, .storeFailed)
                }
                shard.drainWaiting(slot)
            }
        }
    }

    private mutating func admitNew(_ command: PublishCommand, _ slot: UInt32) {
        guard !tasks.isStopped(command.task) else { return refuse(command, .stopped) }
        proceed(command, slot)
    }

    private mutating func repeatOnce(_ command: PublishCommand, _ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        guard let row = LedgerRow(bytes) else {
            damaged(key)
            refuse(command, .storeFailed)
            return
        }
        numbers.repeatedRequests &+= 1
        repeatFirstAck(row, command)
        answer(command, repeated(row, command), slot: .max)
    }

    /// Continues with a message that is new to its device.
    mutating func proceed(_ command: PublishCommand, _ slot: UInt32) {
        if command.revokes.isNone { makeRoom(command, slot) } else { withdraw(command, slot) }
    }

    // MARK: Revoke

    /// Ends the old task's message if it is pending.
    ///
    /// The revoke itself goes on only where the device may have seen it.
    private mutating func withdraw(_ command: PublishCommand, _ slot: UInt32) {
        let old = command.revokes
        let key =
            old.hasLedger
            ? StoreKey(command.bucket, .taskMessage, old, item: command.revokedDigest)
            : StoreKey(command.bucket, .singleTask, old)
        let kept = KeptPublish(command)
        devices.pointer(slot).pointee.flags.insert(.busy)
        lookUp(key) { shard, bytes, _, ok in
            guard ok, let bytes else {
                if ok { shard.withdrawUnevaluated(kept, slot) } else { shard.endWithdrawal(kept, slot, nil) }
                return
            }
            let command = kept.command
            if old.hasLedger {
                guard let row = LedgerRow(bytes), row.cid == command.cid, row.app == command.app else {
                    shard.endWithdrawal(kept, slot, false)
                    return
                }
                guard row.state == nil else {
                    shard.endWithdrawal(kept, slot, row.wasSeen)
                    return
                }
                let id = MessageID(bucket: command.bucket, acceptedAt: row.acceptedAt, digest: command.revokedDigest)
                shard.endPending(id, row.table, row.item, slot, reason: "") { shard, wasSeen, ok in
                    shard.endWithdrawal(kept, slot, ok ? wasSeen ?? row.flags.contains(.live) : nil)
                }
            } else {
                guard let row = SingleTaskRow(bytes), row.cid == command.cid, row.app == command.app else {
                    shard.endWithdrawal(kept, slot, false)
                    return
                }
                shard.endPending(row.message, row.table, row.item, slot, reason: "") { shard, wasSeen, ok in
                    if !ok || wasSeen != nil {
                        shard.endWithdrawal(kept, slot, ok ? wasSeen : nil)
                        return
                    }
                    shard.readTrace(row.message, bucket: command.bucket) { shard, trace, ok in
                        shard.endWithdrawal(kept, slot, ok ? trace?.wasSeen ?? false : nil)
                    }
                }
            }
        }
    }

    /// Evaluates the old task's broadcast first, if the shard has not evaluated it for the device.
    ///
    /// No row tells of the old task's message then. Without this the device would get it later, as if there were no
    /// revoke.
    private mutating func withdrawUnevaluated(_ kept: KeptPublish, _ slot: UInt32) {
        let command = kept.command
        let live = broadcasts.log(of: command.app)?.live.first { $0.task == command.revokes && !$0.isOver }
        guard let broadcast = live else { return endWithdrawal(kept, slot, false) }
        resolveBroadcasts(slot) { shard, ok in
            guard ok else { return shard.endWithdrawal(kept, slot, nil) }
            // A connected device first gets the earlier broadcasts as usual.
            shard.pump(slot)
            if broadcast.number > shard.devices.pointer(slot).pointee.broadcastEvaluated {
                let isReachable = shard.devices.pointer(slot).pointee.isReachable
                shard.evaluateUpTo(broadcast, slot, earlierIsLive: isReachable)
            }
            guard let listed = shard.listedMessage(table: .broadcast, item: broadcast.number, of: slot) else {
                return shard.endWithdrawal(kept, slot, false)  // the broadcast was not for this device
            }
            shard.devices.pointer(slot).pointee.flags.insert(.busy)
            let id = shard.messages.pointer(listed).pointee.facts.message
            shard.endPending(id, .broadcast, broadcast.number, slot, reason: "") { shard, wasSeen, ok in
                shard.endWithdrawal(kept, slot, ok ? wasSeen ?? false : nil)
            }
        }
    }

    /// Ends a withdrawal; `wasSeen` is `nil` when a read failed.
    private mutating func endWithdrawal(_ kept: KeptPublish, _ slot: UInt32, _ wasSeen: Bool?) {
        devices.pointer(slot).pointee.flags.remove(.busy)
        let command = kept.command
        switch wasSeen {
        case nil: refuse(command, .storeFailed)
        case true? where !isIgnored(slot): makeRoom(command, slot)
        case _?:
            // Nothing to withdraw, or the device has not seen it, or it is ignored. The answer waits until that end is
            // durable.
            answer(command, PublishOutcome(code: .ignored, cid: command.cid, task: command.task), slot: .max)
        }
        drainWaiting(slot)
    }

    /// Ends a message as revoked if it is pending.
    ///
    /// The completion gets whether the device may have seen it, `nil` if it had ended before, and false when a read
    /// failed.
    mutating func endPending(
        _ id: MessageID, _ table: StoreKey.Table, _ item: UInt64, _ slot: UInt32, reason: String,
        completion: @escaping (inout Shard, Bool?, Bool) -> Void
    ) {
        findPending(id, table: table, item: item, slot) { shard, facts, message, job, ok in
            guard let facts else {
                completion(&shard, nil, ok)
                return
            }
            let wasSeen = shard.mayHaveBeenSeen(facts, message: message, job: job)
            if shard.isPlanted(.revokeLeavesPending) {
                completion(&shard, wasSeen, true)
                return
            }
            shard.inBatch(of: slot) { shard in
                shard.end(facts, .revoked, reason: reason, message: message, job: job)
            }
            completion(&shard, wasSeen, true)
        }
    }
}

extension TraceRow {
    /// True when it went out on the live channel, by the counters.
    var wasReached: Bool {
        finalState == .delivered || finalState == .deliveredOffline || wasSentLive
            || steps.contains { $0.event == .sent }
    }

    /// True when the device may have seen the message.
    var wasSeen: Bool {
        switch finalState {
        case .delivered, .deliveredOffline, .opened, .handedOff: true
        default: attempts > 0 || !isOffline || steps.contains { $0.event == .sent || $0.event == .vendorAccepted }
        }
    }
}
