// Handoff jobs in memory: created, placed in a due list or held, written, dropped.
//
// A job is *held* while its device could get the message live, or wants none. Only memory has that state, so that after
// a crash the alert comes rather than not. `placeJob` alone decides a job's place; the shard calls it after any change.
//
// A job that is only due has no row: its message's row implies it, from the message's deadline on or from acceptance.
// That row's alarm brings the job back after a restart, or when the message has left memory. The first lease, or
// whatever else changes the job alone, writes its row, which has an alarm of its own from then on.

internal import Structures
internal import Wire

/// A job in memory whose device is ready.
struct LoadedJob {
    var slot: JobSlot
    var device: DeviceSlot
    /// The message's row, if a reader read it from the disk; valid during the call.
    var coldRow: LentBytes?
}

extension Shard {
    /// Makes the job of a message in memory due; without a fallback the message has none.
    ///
    /// The job has no row while its message's row implies it. The row of a message that missed its deadline early, since
    /// its device left, does not; nor has a broadcast's message a row that could. Their jobs are written.
    mutating func makeDue(_ message: MessageSlot, timedOut: Bool) {
        let entry = messages.at(message)
        guard entry.value.facts.tellsMissed(at: now) else {
            inBatch(of: entry.value.device) { $0.createStoredJob(message, timedOut: timedOut) }
            return
        }
        guard entry.value.facts.flags.contains(.isArmed) else {
            // Its timer has nothing more to do than to end it.
            entry.value.fallbackAt = 0
            return
        }
        let facts = entry.value.facts
        let dueAt = facts.jobDueAt <= now ? facts.jobDueAt : now
        var row = JobRow(facts: facts, state: .due, dueAt: dueAt)
        if entry.value.sentAt > 0 { row.note(.sent, entry.value.sentAt) }
        if timedOut { row.note(.timedOut, now) }
        noteDue(&row, dueAt)
        let slot = adoptImplied(row)
        jobs.at(slot).value.wasReported = entry.value.flags.contains(.reported)
        placeJob(slot)
    }

    /// As `makeDue` with a row for the job, in the open batch: the message's own row does not tell that it is flagged.
    ///
    /// The row of a message without a fallback tells just that.
    mutating func createStoredJob(_ message: MessageSlot, timedOut: Bool) {
        let entry = messages.at(message)
        let isArmed = entry.value.facts.flags.contains(.isArmed)
        var row = JobRow(facts: entry.value.facts, state: isArmed ? .due : .cancelled, dueAt: now)
        if entry.value.sentAt > 0 { row.note(.sent, entry.value.sentAt) }
        if timedOut { row.note(.timedOut, now) }
        if isArmed { noteDue(&row, now) }
        let slot = adopt(row, storedWakeAt: 0, isStored: false)
        writeJob(slot)
        placeJob(slot)
    }

    /// Brings into memory a job that the row of its message implies, or finds it there.
    mutating func adoptImplied(_ row: JobRow) -> JobSlot {
        let slot = adopt(row, storedWakeAt: row.facts.wakeAt, isStored: false)
        let entry = jobs.at(slot)
        guard !entry.value.isStored else { return slot }
        // A message that is not in memory is on disk.
        entry.value.isCold =
            entry.value.message == .none || messages.at(entry.value.message).value.flags.contains(.cold)
        return slot
    }

    /// The alarm of a cold message came, and no job row exists: its row implies a due job.
    mutating func impliedJobFired(_ facts: MessageFacts) {
        let known = jobs.find(facts.message)
        if known == nil {
            if let device = knownDevice(facts.cid),
                let listed = listedMessage(table: facts.table, item: facts.item, of: device)
            {
                // Its timer makes the job, at the ack deadline if it is in flight.
                messages.at(listed).value.markReported()
                return
            }
            if isPlanted(.impliedJobLost) { return }
            // The job of a message that was offline at acceptance was counted then.
            if facts.fallbackAt > 0, jobs.startedAt < facts.jobDueAt {
                count(JobRow(impliedBy: facts)) { $0.jobsCreated &+= 1 }
            }
        }
        let slot = known ?? adoptImplied(JobRow(impliedBy: facts))
        let entry = jobs.at(slot)
        // The job's own row has an alarm of its own.
        guard !entry.value.isStored else { return }
        entry.value.wasReported = true
        if entry.value.place == .none { placeJob(slot) }
        // A device that left before the deadline had made it due. From now on its message's row says the same.
        if entry.value.place == .due || entry.value.place == .held, entry.value.row.dueAt <= now {
            entry.value.row.dueAt = facts.jobDueAt
        }
        leaveIfOverfull(slot)
    }

    /// Notes in a new job's row that it is due, and counts it.
    mutating func noteDue(_ row: inout JobRow, _ dueAt: GatewayTime) {
        row.note(.jobDue, dueAt)
        count(row) { $0.jobsCreated &+= 1 }
    }

    /// Counts something of a job among the figures of its channel.
    @inline(__always)
    mutating func count(_ row: JobRow, _ change: (inout VendorStatistics) -> Void) {
        if let channel = row.channel { change(&numbers[channel]) }
    }

    /// Brings a job into memory, or finds it there.
    mutating func adopt(_ row: JobRow, storedWakeAt: GatewayTime, isStored: Bool) -> JobSlot {
        let id = row.facts.message
        if let known = jobs.find(id) { return known }
        let deviceSlot = deviceSlot(row.facts.cid, bucket: row.facts.bucket)
        var job = JobEntry(row: row, device: deviceSlot, appIndex: appIndex(row.facts.app))
        (job.storedWakeAt, job.isStored, job.isCold, job.wasReported) = (storedWakeAt, isStored, isStored, isStored)
        let slot = jobs.insert(job, of: devices.at(deviceSlot))
        if let message = listedMessage(table: row.facts.table, item: row.facts.item, of: deviceSlot) {
            jobs.at(slot).value.message = message
            messages.at(message).value.job = slot
        }
        return slot
    }

    /// Writes a job's row in the open batch.
    mutating func writeJob(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        let wakeAt = entry.value.row.wakeAt
        if entry.value.row.facts.table != .broadcast {
            devices.at(entry.value.device).value.mayHaveJobRows = true
        }
        store.putRow(
            entry.value.row.facts.jobKey, wakeAt: wakeAt,
            // A job's first row is new: a job without a row has never had one.
            prior: entry.value.isStored ? .maybe(wakeAt: entry.value.storedWakeAt) : .none,
            byteCount: entry.value.row.byteCount
        ) { entry.value.row.write(into: $0) }
        (entry.value.storedWakeAt, entry.value.isStored, entry.value.isCold) = (wakeAt, true, false)
        batch.rowCount += 1
    }

    /// Puts a job into the place of its state: due, held, or only watched by its timer.
    mutating func placeJob(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard entry.value.place != .leasing else { return }
        if entry.value.place == .due, entry.value.row.state == .due, entry.value.row.dueAt <= now, !isHeld(slot) {
            return  // it keeps its place in the list
        }
        jobs.unplace(slot)
        switch entry.value.row.state {
        case .due:
            // No sender asks for a channel that this version does not know: the job ends with its message.
            guard let channel = entry.value.row.channel else {
                jobs.watch(slot, until: entry.value.row.mayWait(limits.vendorFirstPatience))
                return
            }
            if entry.value.row.dueAt > now {
                jobs.watch(slot, until: min(entry.value.row.dueAt, entry.value.row.facts.expiresAt))
                return
            }
            if isHeld(slot) {
                jobs.placeHeld(slot, of: channel)
            } else {
                if jobs.placeDue(slot, of: channel) { outbox.send(.jobsAvailable(channel)) }
            }
            jobs.watch(slot, until: entry.value.row.mayWait(limits.vendorFirstPatience))
        case .leased:
            jobs.countLeased(slot)
            jobs.watch(slot, until: entry.value.row.leasedUntil)
        case .accepted, .rejected, .exhausted, .cancelled:
            jobs.watch(slot, until: entry.value.row.facts.expiresAt)
        }
    }

    /// Held while the device is silenced, or reachable and the ack is not overdue.
    ///
    /// See docs/Semantics.md, "Reachability and fallback".
    func isHeld(_ slot: JobSlot) -> Bool {
        let entry = jobs.at(slot)
        let device = devices.at(entry.value.device)
        guard device.value.isLoaded, !isPlanted(.jobsNotHeld) else { return false }
        if device.value.isSilenced { return true }
        guard device.value.isReachable,
            entry.value.row.facts.strategy.holdsJob(in: entry.value.row.facts.table)
        else { return false }
        // A one-shot message whose attempt is over does not go out live again: to hold its job would lose it.
        guard entry.value.message != .none else { return !entry.value.row.facts.isOneShot }
        let message = messages.at(entry.value.message)
        if message.value.flags.contains(.inFlight) { return !message.value.flags.contains(.overdue) }
        return !isAttemptOver(message)
    }

    /// Places all jobs of a device again: its reachability changed.
    mutating func placeJobs(of device: DeviceSlot) {
        var slot = devices.at(device).value.firstJob
        while slot != .none {
            let next = jobs.at(slot).value.nextOfDevice
            placeJob(slot)
            leaveIfHeld(slot)
            slot = next
        }
        recallJobs(of: device)
    }

    /// Takes a job out of memory; its row stays.
    mutating func forgetJob(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        if entry.value.message != .none { messages.at(entry.value.message).value.job = .none }
        let deviceSlot = entry.value.device
        jobs.remove(slot, of: devices.at(deviceSlot))
        guard !batch.isOpen || batch.device != deviceSlot else { return }
        devices.releaseQueue(deviceSlot)
        freeIfEmpty(deviceSlot)
    }

    /// Leaves a job to the store that only waits for its message's end, once the row that has it is cold.
    mutating func dropJobIfDone(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard entry.value.isCold, entry.value.message == .none, entry.value.place != .leasing else { return }
        switch entry.value.place {
        case .due, .held:
            // The store reported its alarm, and takes it back into a group.
            guard !entry.value.wasReported else { return leaveIfOverfull(slot) }
            // Its alarm is past, so the store reports it when its app has room.
            let app = Int(entry.value.appIndex)
            if entry.value.place == .due ? isOverfull(app) : isHeldOverfull(app),
                entry.value.row.wakeAt == entry.value.storedWakeAt
            {
                forgetJob(slot)
            }
        case .none, .leasing:
            // The store reports an alarm once: a job that it reported stays in memory until its end.
            if !entry.value.wasReported { forgetJob(slot) }
        }
    }

    mutating func jobCooled(_ key: StoreKey) {
        guard let slot = jobs.find(MessageID(high: key.ownerHigh, low: key.ownerLow)),
            jobs.at(slot).value.isStored
        else { return }
        jobs.at(slot).value.isCold = true
        jobs.at(slot).value.wasReported = false
        dropJobIfDone(slot)
    }

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

    /// A lease ran out without a result.
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
            // In memory only: after a crash the stored lease lapses again.
            entry.value.row.state = .due
            entry.value.row.dueAt = now
            placeJob(slot)
        }
    }

    /// The message of a job has expired.
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

    /// Looks again later at a job whose device's record a reader could not read.
    mutating func retryJobLater(_ id: MessageID, _ readiness: Readiness) {
        guard let job = jobs.find(id) else { return }
        if readiness == .unknown {
            // A job without a device: no sender can get it, and its message cannot reach a device.
            log(.error, "orphanedJob", "message \(id) has a job but no device")
            forgetJob(job)
        } else {
            jobs.watch(job, until: now + 1_000)
        }
    }

    /// The vendor will not carry this message: its strategy decides what follows.
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
                // The job's state is as it was: its timer leads here again.
                case .unreadable: shard.retryJobLater(id, .failed)
                case .found(let job): shard.endVendorPart(job, state: state, reason: reason)
                }
            }
        }
    }

    /// As `giveUpVendor`, with the device loaded.
    mutating func endVendorPart(_ job: LoadedJob, state: JobRow.State, reason: String) {
        let (slot, device) = (job.slot, job.device)
        let entry = jobs.at(slot)
        let facts = entry.value.row.facts
        switch state {
        case .exhausted: entry.value.row.note(.exhausted, now)
        case .cancelled: entry.value.row.note(.cancelled, now, reason)
        default: break
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

    // MARK: Strategy 4, second half

    /// Continues with a job whose device is loaded, and with its message's row if that may move to the live stream.
    ///
    /// The shard reads the row first. It must not answer a result, or end a lease, before the move is written. Nor must
    /// the move be half done when a reader cannot read the row.
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

    /// Counts, in the open batch, that the vendor took a message which stays, once.
    mutating func countAlert(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard !entry.value.row.isAlertCounted else { return }
        entry.value.row.isAlertCounted = true
        let facts = entry.value.row.facts
        countReached(facts.flags.contains(.sendCounted) ? [.alerted] : [.alerted, .reached], of: facts)
        noteAlerted(facts, wasSent: entry.value.row.steps.contains { $0.event == .sent })
    }

    /// Takes back how a job's lease changed its device's badge, or applies that again, with the device's next write.
    ///
    /// The client's own value wins: a value set since the lease stays.
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

    /// Gives a message a place in the live stream, with the offline flag: the vendor failed it, or its alert did not carry
    /// all of it, which the vendor has just taken (`isAlerted`).
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
            record.value.endings &+= 1  // its old row is gone
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
