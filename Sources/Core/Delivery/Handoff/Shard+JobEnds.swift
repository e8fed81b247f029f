// The end of a job's vendor part: lapsed leases, expiry, vendor timeouts, final refusals and acceptances.
//
// The strategy then determines whether the message ends, stays pending, moves to the live stream, or gets its follow-up.

internal import Structures
internal import Wire

extension Shard {
    // MARK: Timers

    mutating func jobTimerFired(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard entry.value.place != .leasing else { return }
        if entry.value.row.state == .leased {
            if entry.value.row.leasedUntil <= now { lapse(slot) } else { placeJob(slot) }
            return
        }
        if isOver(entry.value.row.facts.expiresAt) {
            expireJob(slot)
            return
        }
        if entry.value.row.hasVendorTimeout, entry.value.row.mayWait(limits.vendorFirstPatience) <= now {
            giveUpVendor(slot, state: .cancelled, reason: "notLeased")
            return
        }
        placeJob(slot)
    }

    private mutating func lapse(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        count(entry.value.row) { $0.leasesLapsed &+= 1 }
        entry.value.row.note(.leaseLapsed, now)
        if entry.value.row.isCollapsed {
            entry.value.row.state = .cancelled
            placeJob(slot)
        } else if Int(entry.value.row.attempts) >= apps[Int(entry.value.appIndex)].maxAttempts {
            count(entry.value.row) { $0.jobsExhausted &+= 1 }
            giveUpVendor(slot, state: .exhausted, reason: "exhausted")
        } else {
            if isPlanted(.lapsedLeaseLost) { return }
            // This change is in memory only. After a crash the stored lease lapses again.
            entry.value.row.state = .due
            entry.value.row.dueAt = now
            placeJob(slot)
        }
    }

    private mutating func expireJob(_ slot: JobSlot) {
        let id = jobs.at(slot).value.row.facts.message
        let device = jobs.at(slot).value.device
        whenReady(device) { shard, device, readiness in
            guard readiness == .ready else {
                shard.retryJobLater(id, readiness)
                return
            }
            guard let job = shard.jobs.find(id) else { return }
            let entry = shard.jobs.at(job)
            guard entry.value.place != .leasing, entry.value.row.state != .leased,
                entry.value.row.facts.expiresAt <= shard.now
            else { return }
            shard.inBatch(of: device) { shard in
                shard.end(
                    entry.value.row.facts, .atExpiry(wasAlerted: entry.value.row.alertedAt > 0),
                    message: entry.value.message, job: job)
            }
        }
    }

    /// Schedules a retry of a job after the device's record could not be read.
    mutating func retryJobLater(_ id: MessageID, _ readiness: Readiness) {
        guard let job = jobs.find(id) else { return }
        if readiness == .unknown {
            // Without a device the job cannot be leased and its message cannot be delivered.
            log(.error, "orphanedJob", "message \(id) has a job but no device")
            forgetJob(job)
        } else {
            jobs.watch(job, until: now + 1_000)
        }
    }

    /// Ends a message's vendor part; the strategy determines the message's next step.
    mutating func giveUpVendor(_ slot: JobSlot, state: JobRow.State, reason: String) {
        let id = jobs.at(slot).value.row.facts.message
        jobs.unplace(slot)
        whenReady(jobs.at(slot).value.device) { shard, device, readiness in
            guard readiness == .ready else {
                shard.retryJobLater(id, readiness)
                return
            }
            shard.withJob(id, device: device) { shard, found in
                switch found {
                case .absent: break
                // The job's state is unchanged, so its timer retries this.
                case .unreadable: shard.retryJobLater(id, .failed)
                case .found(let job): shard.endVendorPart(job, state: state, reason: reason)
                }
            }
        }
    }

    /// Ends the vendor part of a job whose device is loaded; see `giveUpVendor`.
    mutating func endVendorPart(_ job: LoadedJob, state: JobRow.State, reason: String) {
        let (slot, device) = (job.slot, job.device)
        let entry = jobs.at(slot)
        let facts = entry.value.row.facts
        switch state {
        case .exhausted: entry.value.row.note(.exhausted, now)
        case .cancelled: entry.value.row.note(.cancelled, now, reason)
        default: break
        }
        if entry.value.row.facts.followUpAt > 0, !entry.value.row.isFollowUp, !entry.value.row.isCollapsed,
            entry.value.row.alertedAt == 0, !isOver(facts.expiresAt)
        {
            moveBadge(slot, isTakenBack: true)
            entry.value.row.state = .due
            followUp(slot)
            inBatch(of: device) { $0.writeJob(slot) }
            return placeJob(slot)
        }
        entry.value.row.state = state
        if entry.value.row.alertedAt == 0 { moveBadge(slot, isTakenBack: true) }
        var verdict = facts.strategy.vendorFailed(VendorPart(entry.value.row, now: now))
        if verdict == .goesLive, isPlanted(.vendorFirstNeverLive) { verdict = .ends(.failed) }
        switch verdict {
        case .goesLive: return moveToLive(job)
        case .ends(let final):
            inBatch(of: device) { shard in
                let reason = final == .failed ? reason : ""
                shard.end(facts, final, reason: reason, message: entry.value.message, job: slot)
            }
        case .stays:
            inBatch(of: device) { shard in
                shard.writeJob(slot)
                shard.placeJob(slot)
            }
        }
        if jobs.isOccupied(slot) { dropJobIfDone(slot) }
    }

    // MARK: Moves to the live stream

    /// Loads a job's device, and the message's row if the message may move to the live stream, then calls a closure.
    ///
    /// The row is read first, because an unreadable row must not leave the move half done. A result is answered, and a lease
    /// ends, only after the move is written.
    mutating func withJob(
        _ id: MessageID, device: DeviceSlot, completion: @escaping (inout Shard, Found<LoadedJob>) -> Void
    ) {
        guard let job = jobs.find(id) else { return completion(&self, .absent) }
        let facts = jobs.at(job).value.row.facts
        let part = VendorPart(jobs.at(job).value.row, now: now)
        let mayMove =
            facts.strategy.vendorFailed(part) == .goesLive || facts.strategy.vendorAccepted(part) == .goesLive
        guard mayMove, store.young(facts.key) == .unknown
        else { return completion(&self, .found(LoadedJob(slot: job, device: device))) }
        whileBusy(device, reading: facts.key) { shard, reply in
            guard let job = shard.jobs.find(id) else { return completion(&shard, .absent) }
            guard case .row(let stored)? = reply.results.first else { return completion(&shard, .unreadable) }
            completion(&shard, .found(LoadedJob(slot: job, device: device, coldRow: stored?.bytes)))
        }
    }

    /// Writes the event of a vendor's acceptance in the open batch; the job's last step has the vendor's message id.
    mutating func noteAlertEvent(_ slot: JobSlot) {
        let row = jobs.at(slot).value.row
        let vendorID = row.steps.last { $0.event == .vendorAccepted }?.detail ?? ""
        noteEvent(
            .alerted, message: row.facts.message, task: row.facts.task, reason: vendorID, detail: .channel(row.channel),
            hasCallback: row.facts.hasCallback)
    }

    /// Counts, in the open batch, the vendor's acceptance of a message that stays pending, once per message.
    ///
    /// If the follow-up was counted and the vendor accepts the message later, the ledger row names the vendor from then on.
    mutating func countAlert(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        let facts = entry.value.row.facts
        guard !entry.value.row.isAlertCounted || facts.followUpAt > 0 else { return }
        if !entry.value.row.isAlertCounted {
            entry.value.row.isAlertCounted = true
            noteAlertEvent(slot)
            countReached(
                facts.flags.contains(.sendCounted) ? [.alerted] : [.alerted, .reached], of: facts,
                vendor: entry.value.row.channel)
        }
        noteAlerted(facts, entry.value.row.channel, wasSent: entry.value.row.hasSent)
    }

    /// Reverts or reapplies the badge change of a job's lease with the device's next write.
    ///
    /// A badge that the client has set since the lease takes precedence.
    mutating func moveBadge(_ slot: JobSlot, isTakenBack: Bool) {
        let entry = jobs.at(slot)
        guard entry.value.row.badgeApplied, entry.value.row.isBadgeTakenBack != isTakenBack else { return }
        entry.value.row.isBadgeTakenBack = isTakenBack
        let device = devices.at(entry.value.device)
        guard entry.value.row.badgeChange != 0, entry.value.row.badgeRound == device.value.badgeRound else {
            return
        }
        let change = Int64(entry.value.row.badgeChange)
        device.change { $0.badge = Int32(clamping: Int64($0.badge) + (isTakenBack ? -change : change)) }
    }

    /// Moves a message to the live stream, with the offline flag.
    ///
    /// Used when the vendor failed, or when it accepted an alert with only part of the message (`isAlerted`).
    mutating func moveToLive(_ job: LoadedJob, isAlerted: Bool = false) {
        let facts = jobs.at(job.slot).value.row.facts
        if case .found(let location, _) = store.young(facts.key) {
            moveToLive(job.slot, device: job.device, bytes: store.bytes(at: location), isAlerted: isAlerted)
        } else if let coldRow = job.coldRow {
            moveToLive(job.slot, device: job.device, bytes: coldRow, isAlerted: isAlerted)
        } else {
            log(.error, "orphanedJob", "message \(facts.message) has a job but no row")
            forgetJob(job.slot)
        }
    }

    private mutating func moveToLive(
        _ slot: JobSlot, device: DeviceSlot, bytes: LentBytes, isAlerted: Bool
    ) {
        let entry = jobs.at(slot)
        let old = entry.value.row.facts
        guard let row = MessageRow(bytes) else {
            damaged(old.key)
            return
        }
        let vendorEntry = entry.value.message
        let listed = inBatch(of: device) { shard in
            if isAlerted { shard.countAlert(slot) }
            var facts = old
            facts.table = .message
            facts.item = shard.giveSequence(device)
            facts.flags.insert(.offline)
            facts.flags.remove(.isArmed)
            (facts.wakeAt, facts.fallbackAt) = (facts.expiresAt, 0)
            let texts = MessageRow.Texts(row)
            let byteCount = MessageRow.byteCount(texts, facts: facts)
            facts.byteCount = MessageRow.charge(byteCount)
            shard.countResized(old, as: facts)
            let stored = facts
            let location = shard.store.putRow(facts.key, wakeAt: facts.wakeAt, prior: .none, byteCount: byteCount) {
                MessageRow.write(texts, facts: stored, into: $0)
            }
            shard.store.delete(old.key, prior: .maybe(wakeAt: old.wakeAt))
            entry.value.row.facts = facts
            shard.writeJob(slot)
            let record = shard.devices.at(device)
            record.value.endings &+= 1  // the message's old row is deleted
            record.value.add(facts)
            record.value.remove(old)
            var message = Message(facts: facts, device: device)
            message.collapseHash = row.collapseHash
            message.location = location
            if vendorEntry != .none {
                entry.value.message = .none
                shard.messages.at(vendorEntry).value.job = .none
                shard.forgetMessage(vendorEntry)
            }
            return shard.listNew(message)
        }
        armTimer(listed)
        placeJob(slot)
        outbox.hold(.resume(device: device, cid: old.cid))
    }
}
