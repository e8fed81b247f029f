internal import Structures
internal import Wire

extension Shard {
    /// Returns whether a list task has not reached the device and was not stopped; otherwise answers the command.
    ///
    /// With `firstAckWins`, the first ack stops the task, perhaps before the caller repeats a call whose answer was lost. The
    /// repeated call gets the first answer of each device that has the message. Only new devices are refused.
    mutating func isFirstOfTask(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        guard !tasks.isStopped(command.task) || command.firstAckWins else {
            refuse(command, .stopped)
            return false
        }
        let key = StoreKey(command.bucket, .taskMessage, command.task, item: command.messageDigest)
        if case .found(let location, _) = store.young(key), !isPlanted(.taskReachesTwice) {
            repeatOnce(command, key, store.bytes(at: location))
            return false
        }
        if acceptances.excludes(command.task, command.messageDigest, createdAt: command.taskCreatedAt)
            || store.isCertainlyAbsent(key) || isPlanted(.taskReachesTwice)
        {
            return isRunning(command)
        }
        let kept = KeptPublish(command)
        whileBusy(slot, reading: key) { shard, reply in
            switch reply.results.first {
            case .row(let stored?)?: shard.repeatOnce(kept.command, key, stored.bytes)
            case .row(nil)?:
                if shard.isRunning(kept.command) { shard.proceed(kept.command, slot, from: .withdrawn) }
            default: shard.refuse(kept.command, .storeFailed)
            }
        }
        return false
    }

    private mutating func isRunning(_ command: PublishCommand) -> Bool {
        guard tasks.isStopped(command.task) else { return true }
        refuse(command, .stopped)
        return false
    }

    private mutating func repeatOnce(_ command: PublishCommand, _ key: StoreKey, _ bytes: LentBytes) {
        guard let row = LedgerRow(bytes) else {
            damaged(key)
            refuse(command, .storeFailed)
            return
        }
        numbers.repeatedRequests &+= 1
        repeatFirstAck(row, command)
        answer(command, repeated(row, command), slot: .none)
    }

    // MARK: Revoke

    private enum Withdrawal {
        /// The device may have seen the message.
        case seen
        /// The message does not exist, or the device cannot have seen it.
        case unseen
        case unreadable
    }

    /// Ends the old task's pending message for a revoke.
    ///
    /// The revoke itself continues only if the device may have seen that message.
    ///
    /// - Returns: true for a command that is no revoke.
    mutating func isWithdrawn(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        guard !command.revokes.isNone else { return true }
        let kept = KeptPublish(command)
        whileBusy(slot) { shard, done in
            shard.endWithdrawn(kept, slot, completion: done)
        } then: { shard, withdrawal in
            let command = kept.command
            switch withdrawal {
            case .unreadable: shard.refuse(command, .storeFailed)
            case .seen where !shard.isIgnored(slot): shard.proceed(command, slot, from: .bounds)
            case .seen, .unseen:
                // The device has not seen the message, or is ignored. The answer waits until the message's end is durable.
                let outcome = PublishOutcome(code: .ignored, cid: command.cid, task: command.task)
                shard.answer(command, outcome, slot: .none)
            }
        }
        return false
    }

    private mutating func endWithdrawn(
        _ kept: KeptPublish, _ slot: DeviceSlot, completion: @escaping (inout Shard, Withdrawal) -> Void
    ) {
        let command = kept.command
        let old = command.revokes
        guard old.hasLedger else { return endWithdrawnSingle(kept, slot, completion: completion) }
        lookUp(StoreKey(command.bucket, .taskMessage, old, item: command.revokedDigest)) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return completion(&shard, .unreadable)
            case .absent: return shard.withdrawUnevaluated(kept, slot, completion: completion)
            case .found(let row): stored = row
            }
            let command = kept.command
            guard let row = LedgerRow(stored.bytes), row.cid == command.cid, row.app == command.app else {
                return completion(&shard, .unseen)
            }
            guard row.state == nil else { return completion(&shard, row.wasSeen ? .seen : .unseen) }
            let id = MessageID(bucket: command.bucket, acceptedAt: row.acceptedAt, digest: command.revokedDigest)
            shard.endPending(id, row.table, row.item, slot, reason: "") { shard, ended in
                switch ended {
                case .found(let wasSeen): completion(&shard, wasSeen ? .seen : .unseen)
                case .absent: completion(&shard, row.flags.contains(.live) ? .seen : .unseen)
                case .unreadable: completion(&shard, .unreadable)
                }
            }
        }
    }

    private mutating func endWithdrawnSingle(
        _ kept: KeptPublish, _ slot: DeviceSlot, completion: @escaping (inout Shard, Withdrawal) -> Void
    ) {
        findSingle(kept.command.revokes, in: kept.command.bucket) { shard, found in
            let (command, row): (PublishCommand, PushRow)
            switch found {
            case .unreadable: return completion(&shard, .unreadable)
            case .absent: return completion(&shard, .unseen)
            case .found(let single): (command, row) = (kept.command, single)
            }
            guard row.cid == command.cid, row.app == command.app else { return completion(&shard, .unseen) }
            shard.endPending(row.message, row.table, row.item, slot, reason: "") { shard, ended in
                switch ended {
                case .found(let wasSeen): completion(&shard, wasSeen ? .seen : .unseen)
                case .unreadable: completion(&shard, .unreadable)
                case .absent:
                    shard.readTrace(row.message, bucket: command.bucket) { shard, trace in
                        switch trace {
                        case .found(let trace): completion(&shard, trace.wasSeen ? .seen : .unseen)
                        case .absent: completion(&shard, .unseen)
                        case .unreadable: completion(&shard, .unreadable)
                        }
                    }
                }
            }
        }
    }

    /// Evaluates the old task's broadcast for the device first, if it was not evaluated.
    ///
    /// Until the evaluation no row exists for the device's message. Without this step the device would get the message after its
    /// revoke.
    private mutating func withdrawUnevaluated(
        _ kept: KeptPublish, _ slot: DeviceSlot, completion: @escaping (inout Shard, Withdrawal) -> Void
    ) {
        let command = kept.command
        guard knowsBroadcasts(of: command.app) else { return completion(&self, .unreadable) }
        let live = broadcasts.log(of: command.app)?.live.first { $0.task == command.revokes && !$0.isOver }
        guard let broadcast = live else { return completion(&self, .unseen) }
        resolveBroadcasts(slot) { shard, reading in
            guard reading == .whole else { return completion(&shard, .unreadable) }
            // A connected device first gets the earlier broadcasts as usual.
            shard.pump(slot)
            if broadcast.number > shard.devices.at(slot).value.broadcastEvaluated {
                let isReachable = shard.devices.at(slot).value.isReachable
                shard.evaluateUpTo(broadcast, slot, earlierIsLive: isReachable)
            }
            guard let listed = shard.listedMessage(table: .broadcast, item: broadcast.number, of: slot) else {
                return completion(&shard, .unseen)  // the broadcast was not for this device
            }
            let id = shard.messages.at(listed).value.facts.message
            shard.endPending(id, .broadcast, broadcast.number, slot, reason: "") { shard, ended in
                switch ended {
                case .found(let wasSeen): completion(&shard, wasSeen ? .seen : .unseen)
                case .absent: completion(&shard, .unseen)
                case .unreadable: completion(&shard, .unreadable)
                }
            }
        }
    }

    /// Ends a pending message as revoked.
    ///
    /// Passes to the completion whether the device may have seen it; `absent` if it had already ended.
    mutating func endPending(
        _ id: MessageID, _ table: StoreKey.Table, _ item: UInt64, _ slot: DeviceSlot, reason: String,
        completion: @escaping (inout Shard, Found<Bool>) -> Void
    ) {
        findPending(id, table: table, item: item, slot) { shard, found in
            let pending: PendingMessage
            switch found {
            case .absent: return completion(&shard, .absent)
            case .unreadable: return completion(&shard, .unreadable)
            case .found(let message): pending = message
            }
            let wasSeen = shard.mayHaveBeenSeen(pending.facts, message: pending.message, job: pending.job)
            if !shard.isPlanted(.revokeLeavesPending) {
                shard.inBatch(of: slot) { shard in
                    shard.end(
                        pending.facts, .revoked, reason: reason, message: pending.message, job: pending.job)
                }
            }
            completion(&shard, .found(wasSeen))
        }
    }
}

extension TraceRow {
    /// Whether the message was counted as sent on the live channel.
    var wasReached: Bool {
        finalState == .delivered || finalState == .deliveredOffline || wasSentLive
            || steps.contains { $0.event == .sent }
    }

    var wasSeen: Bool {
        switch finalState {
        case .delivered, .deliveredOffline, .opened, .handedOff: true
        default: wasLeased || !isOffline || steps.contains { $0.event == .sent || $0.event == .vendorAccepted }
        }
    }
}
