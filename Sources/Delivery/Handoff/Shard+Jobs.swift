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
struct JobAtHand {
    var slot: JobSlot
    var device: DeviceSlot
    /// The message's row, if a reader read it from the disk; valid during the call.
    var coldRow: UnsafeRawBufferPointer?
}

extension Shard {
    /// Makes the job of a message in memory due; without a fallback the message has none.
    ///
    /// The job has no row while its message's row implies it. The row of a message that missed its deadline early, since
    /// its device left, does not; nor has a broadcast's message a row that could. Their jobs are written.
    mutating func makeDue(_ message: MessageSlot, timedOut: Bool) {
        let entry = messages.pointer(message)
        guard entry.pointee.facts.tellsMissed(at: now) else {
            inBatch(of: entry.pointee.device) { $0.createStoredJob(message, timedOut: timedOut) }
            return
        }
        guard entry.pointee.facts.flags.contains(.isArmed) else {
            // Its timer has nothing more to do than to end it.
            entry.pointee.fallbackAt = 0
            return
        }
        let facts = entry.pointee.facts
        let dueAt = facts.jobDueAt <= now ? facts.jobDueAt : now
        var row = JobRow(facts: facts, state: .due, dueAt: dueAt)
        if entry.pointee.sentAt > 0 { row.note(.sent, entry.pointee.sentAt) }
        if timedOut { row.note(.timedOut, now) }
        noteDue(&row, dueAt)
        let slot = adoptImplied(row)
        jobs.pointer(slot).pointee.wasReported = entry.pointee.flags.contains(.reported)
        placeJob(slot)
    }

    /// As `makeDue` with a row for the job, in the open batch: the message's own row does not tell that it is flagged.
    ///
    /// The row of a message without a fallback tells just that.
    mutating func createStoredJob(_ message: MessageSlot, timedOut: Bool) {
        let entry = messages.pointer(message)
        let isArmed = entry.pointee.facts.flags.contains(.isArmed)
        var row = JobRow(facts: entry.pointee.facts, state: isArmed ? .due : .cancelled, dueAt: now)
        if entry.pointee.sentAt > 0 { row.note(.sent, entry.pointee.sentAt) }
        if timedOut { row.note(.timedOut, now) }
        if isArmed { noteDue(&row, now) }
        let slot = adopt(row, storedWakeAt: 0, isStored: false)
        writeJob(slot)
        placeJob(slot)
    }

    /// Brings into memory a job that the row of its message implies, or finds it there.
    mutating func adoptImplied(_ row: JobRow) -> JobSlot {
        let slot = adopt(row, storedWakeAt: row.facts.wakeAt, isStored: false)
        let entry = jobs.pointer(slot)
        guard !entry.pointee.isStored else { return slot }
        // A message that is not in memory is on disk.
        entry.pointee.isCold =
            entry.pointee.message == .none || messages.pointer(entry.pointee.message).pointee.flags.contains(.cold)
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
                messages.pointer(listed).pointee.flags.insert(.reported)
                return
            }
            if isPlanted(.impliedJobLost) { return }
            if jobs.startedAt < facts.jobDueAt { count(JobRow(impliedBy: facts)) { $0.jobsCreated &+= 1 } }
        }
        let slot = known ?? adoptImplied(JobRow(impliedBy: facts))
        let entry = jobs.pointer(slot)
        // The job's own row has an alarm of its own.
        guard !entry.pointee.isStored else { return }
        entry.pointee.wasReported = true
        if entry.pointee.place == .none { placeJob(slot) }
        // A device that left before the deadline had made it due. From now on its message's row says the same.
        if entry.pointee.place == .due || entry.pointee.place == .held, entry.pointee.row.dueAt <= now {
            entry.pointee.row.dueAt = facts.jobDueAt
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
        let slot = jobs.insert(job, of: devices.pointer(deviceSlot))
        if let message = listedMessage(table: row.facts.table, item: row.facts.item, of: deviceSlot) {
            jobs.pointer(slot).pointee.message = message
            messages.pointer(message).pointee.job = slot
        }
        return slot
    }

    /// Writes a job's row in the open batch.
    mutating func writeJob(_ slot: JobSlot) {
        let entry = jobs.pointer(slot)
        let wakeAt = entry.pointee.row.wakeAt
        if entry.pointee.row.facts.table != .broadcast {
            devices.pointer(entry.pointee.device).pointee.mayHaveJobRows = true
        }
        store.put(
            entry.pointee.row.facts.jobKey, wakeAt: wakeAt,
            // A job's first row is new: a job without a row has never had one.
            prior: entry.pointee.isStored ? .maybe(wakeAt: entry.pointee.storedWakeAt) : .none,
            byteCount: entry.pointee.row.byteCount
        ) { entry.pointee.row.write(into: $0) }
        (entry.pointee.storedWakeAt, entry.pointee.isStored, entry.pointee.isCold) = (wakeAt, true, false)
        batch.rowCount += 1
    }

    /// Puts a job into the place of its state: due, held, or only watched by its timer.
    mutating func placeJob(_ slot: JobSlot) {
        let entry = jobs.pointer(slot)
        guard entry.pointee.place != .leasing else { return }
        if entry.pointee.place == .due, entry.pointee.row.state == .due, entry.pointee.row.dueAt <= now, !isHeld(slot) {
            return  // it keeps its place in the list
        }
        jobs.unplace(slot)
        let row = UnsafePointer(entry)
        switch row.pointee.row.state {
        case .due:
            // No sender asks for a channel that this version does not know: the job ends with its message.
            guard let channel = row.pointee.row.channel else {
                jobs.watch(slot, until: row.pointee.row.mayWait(limits.vendorFirstPatience))
                return
            }
            if row.pointee.row.dueAt > now {
                jobs.watch(slot, until: min(row.pointee.row.dueAt, row.pointee.row.facts.expiresAt))
                return
            }
            if isHeld(slot) {
                jobs.placeHeld(slot, of: channel)
            } else {
                if jobs.placeDue(slot, of: channel) { outbox.send(.jobsAvailable(channel)) }
            }
            jobs.watch(slot, until: row.pointee.row.mayWait(limits.vendorFirstPatience))
        case .leased:
            jobs.countLeased(slot)
            jobs.watch(slot, until: row.pointee.row.leasedUntil)
        case .accepted, .rejected, .exhausted, .cancelled:
            jobs.watch(slot, until: row.pointee.row.facts.expiresAt)
        }
    }

    /// Held while the device is silenced, or reachable and the ack is not overdue.
    ///
    /// See docs/Semantics.md, "Reachability and fallback".
    func isHeld(_ slot: JobSlot) -> Bool {
        let entry = jobs.pointer(slot)
        let device = devices.pointer(entry.pointee.device)
        guard device.pointee.isLoaded, !isPlanted(.jobsNotHeld) else { return false }
        if !device.pointee.flags.isDisjoint(with: .silenced) { return true }
        guard device.pointee.isReachable,
            entry.pointee.row.facts.strategy.holdsJob(in: entry.pointee.row.facts.table)
        else { return false }
        // A one-shot message whose attempt is over does not go out live again: to hold its job would lose it.
        guard entry.pointee.message != .none else { return !entry.pointee.row.facts.isOneShot }
        let flags = messages.pointer(entry.pointee.message).pointee.flags
        if flags.contains(.inFlight) { return !flags.contains(.overdue) }
        return !entry.pointee.row.facts.isOneShot || flags.isDisjoint(with: [.attempted, .cold])
    }

    /// Places all jobs of a device again: its reachability changed.
    mutating func placeJobs(of device: DeviceSlot) {
        var slot = devices.pointer(device).pointee.firstJob
        while slot != .none {
            let next = jobs.pointer(slot).pointee.nextOfDevice
            placeJob(slot)
            leaveIfHeld(slot)
            slot = next
        }
        recallJobs(of: device)
    }

    /// Takes a job out of memory; its row stays.
    mutating func forgetJob(_ slot: JobSlot) {
        let entry = jobs.pointer(slot)
        if entry.pointee.message != .none { messages.pointer(entry.pointee.message).pointee.job = .none }
        let deviceSlot = entry.pointee.device
        jobs.remove(slot, of: devices.pointer(deviceSlot))
        guard !batch.isOpen || batch.device != deviceSlot else { return }
        devices.releaseQueue(deviceSlot)
        freeIfEmpty(deviceSlot)
    }

    /// Leaves a job to the store that only waits for its message's end, once the row that has it is cold.
    mutating func dropJobIfDone(_ slot: JobSlot) {
        let entry = jobs.pointer(slot)
        guard entry.pointee.isCold, entry.pointee.message == .none, entry.pointee.place != .leasing else { return }
        switch entry.pointee.place {
        case .due, .held:
            // The store reported its alarm, and takes it back into a pile.
            guard !entry.pointee.wasReported else { return leaveIfOverfull(slot) }
            // Its alarm is past, so the store reports it when its app has room.
            let app = Int(entry.pointee.appIndex)
            if entry.pointee.place == .due ? isOverfull(app) : isHeldOverfull(app),
                entry.pointee.row.wakeAt == entry.pointee.storedWakeAt
            {
                forgetJob(slot)
            }
        case .none, .leasing:
            // The store reports an alarm once: a job that it reported stays in memory until its end.
            if !entry.pointee.wasReported { forgetJob(slot) }
        }
    }

    mutating func jobCooled(_ key: StoreKey) {
        guard let slot = jobs.find(MessageID(high: key.ownerHigh, low: key.ownerLow)),
            jobs.pointer(slot).pointee.isStored
        else { return }
        jobs.pointer(slot).pointee.isCold = true
        jobs.pointer(slot).pointee.wasReported = false
        dropJobIfDone(slot)
    }

    // MARK: Timers

    mutating func jobTimerFired(_ slot: JobSlot) {
        let entry = jobs.pointer(slot)
        guard entry.pointee.place != .leasing else { return }
        if entry.pointee.row.state == .leased {
            if entry.pointee.row.leasedUntil <= now { lapse(slot) } else { placeJob(slot) }
            return
        }
        if isOver(entry.pointee.row.facts.expiresAt) {
            expireJob(slot)
            return
        }
        if entry.pointee.row.hasVendorTimeout, entry.pointee.row.mayWait(limits.vendorFirstPatience) <= now {
            giveUpVendor(slot, state: .cancelled, reason: "notLeased")
            return
        }
        placeJob(slot)
    }

    /// A lease ran out without a result.
    private mutating func lapse(_ slot: JobSlot) {
        let entry = jobs.pointer(slot)
        count(entry.pointee.row) { $0.leasesLapsed &+= 1 }
        entry.pointee.row.note(.leaseLapsed, now)
        if entry.pointee.row.isCollapsed {
            entry.pointee.row.state = .cancelled
            placeJob(slot)
        } else if Int(entry.pointee.row.attempts) >= apps[Int(entry.pointee.appIndex)].maxAttempts {
            count(entry.pointee.row) { $0.jobsExhausted &+= 1 }
            giveUpVendor(slot, state: .exhausted, reason: "exhausted")
        } else {
            if isPlanted(.lapsedLeaseLost) { return }
            // In memory only: after a crash the stored lease lapses again.
            entry.pointee.row.state = .due
            entry.pointee.row.dueAt = now
            placeJob(slot)
        }
    }

    /// The message of a job has expired.
    private mutating func expireJob(_ slot: JobSlot) {
        let id = jobs.pointer(slot).pointee.row.facts.message
        let device = jobs.pointer(slot).pointee.device
        whenReady(device) { shard, device, readiness in
            guard readiness == .ready else {
                shard.retryJobLater(id, readiness)
                return
            }
            guard let job = shard.jobs.find(id) else { return }
            let entry = shard.jobs.pointer(job)
            guard entry.pointee.place != .leasing, entry.pointee.row.state != .leased,
                entry.pointee.row.facts.expiresAt <= shard.now
            else { return }
            shard.inBatch(of: device) { shard in
                shard.end(
                    entry.pointee.row.facts, .atExpiry(wasAlerted: entry.pointee.row.alertedAt > 0),
                    message: entry.pointee.message, job: job)
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
        let id = jobs.pointer(slot).pointee.row.facts.message
        jobs.unplace(slot)
        whenReady(jobs.pointer(slot).pointee.device) { shard, device, readiness in
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
    mutating func endVendorPart(_ job: JobAtHand, state: JobRow.State, reason: String) {
        let (slot, device) = (job.slot, job.device)
        let entry = jobs.pointer(slot)
        let facts = entry.pointee.row.facts
        switch state {
        case .exhausted: entry.pointee.row.note(.exhausted, now)
        case .cancelled: entry.pointee.row.note(.cancelled, now, reason)
        default: break
        }
        entry.pointee.row.state = state
        if entry.pointee.row.alertedAt == 0 { moveBadge(slot, isTakenBack: true) }
        var verdict = facts.strategy.vendorFailed(VendorPart(entry.pointee.row, now: now))
        if verdict == .goesLive, isPlanted(.vendorFirstNeverLive) { verdict = .ends(.failed) }
        switch verdict {
        case .goesLive: return moveToLive(job)
        case .ends(let final):
            inBatch(of: device) { shard in
                let reason = final == .failed ? reason : ""
                shard.end(facts, final, reason: reason, message: entry.pointee.message, job: slot)
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
        _ id: MessageID, device: DeviceSlot, completion: @escaping (inout Shard, Found<JobAtHand>) -> Void
    ) {
        guard let job = jobs.find(id) else { return completion(&self, .absent) }
        let facts = jobs.pointer(job).pointee.row.facts
        let part = VendorPart(jobs.pointer(job).pointee.row, now: now)
        guard facts.strategy.vendorFailed(part) == .goesLive, store.young(facts.key) == .unknown
        else { return completion(&self, .found(JobAtHand(slot: job, device: device))) }
        whileBusy(device, reading: facts.key) { shard, reply in
            guard let job = shard.jobs.find(id) else { return completion(&shard, .absent) }
            guard case .row(let stored)? = reply.results.first else { return completion(&shard, .unreadable) }
            completion(&shard, .found(JobAtHand(slot: job, device: device, coldRow: stored?.value)))
        }
    }

    /// Gives a message that the vendor failed a place in the live stream, with the offline flag.
    private mutating func moveToLive(_ job: JobAtHand) {
        let facts = jobs.pointer(job.slot).pointee.row.facts
        if case .found(let location, _) = store.young(facts.key) {
            moveToLive(job.slot, device: job.device, bytes: store.value(at: location))
        } else if let coldRow = job.coldRow {
            moveToLive(job.slot, device: job.device, bytes: coldRow)
        } else {
            log(.error, "orphanedJob", "message \(facts.message) has a job but no row")
            forgetJob(job.slot)
        }
    }

    private mutating func moveToLive(_ slot: JobSlot, device: DeviceSlot, bytes: UnsafeRawBufferPointer) {
        let entry = jobs.pointer(slot)
        let old = entry.pointee.row.facts
        guard let row = MessageRow(bytes) else {
            damaged(old.key)
            return
        }
        let vendorEntry = entry.pointee.message
        var message = inBatch(of: device) { shard in
            var facts = old
            facts.table = .message
            facts.item = shard.giveSequence(device)
            facts.flags.insert(.offline)
            facts.flags.remove(.isArmed)
            (facts.wakeAt, facts.fallbackAt) = (facts.expiresAt, 0)
            let texts = MessageRow.Texts(row)
            let byteCount = MessageRow.byteCount(texts, facts: facts)
            facts.byteCount = MessageRow.charge(byteCount)
            let stored = facts
            let location = shard.store.put(facts.key, wakeAt: facts.wakeAt, prior: .none, byteCount: byteCount) {
                MessageRow.write(texts, facts: stored, into: $0)
            }
            shard.store.delete(old.key, prior: .maybe(wakeAt: old.wakeAt))
            entry.pointee.row.facts = facts
            shard.writeJob(slot)
            let record = shard.devices.pointer(device)
            record.pointee.endings &+= 1  // its old row is gone
            record.pointee.vendorCount -= 1
            record.pointee.vendorBytes -= Int64(old.byteCount)
            record.pointee.messageCount += 1
            record.pointee.messageBytes += Int64(facts.byteCount)
            var message = Message(facts: facts, device: device)
            message.collapseHash = row.collapseKey.isEmpty ? 0 : Fingerprint.of(row.collapseKey)
            message.location = location
            if vendorEntry != .none {
                entry.pointee.message = .none
                shard.messages.pointer(vendorEntry).pointee.job = .none
                shard.forgetMessage(vendorEntry)
            }
            return message
        }
        message.ticket = outbox.lastTicket
        let listed = list(message)
        armTimer(listed)
        placeJob(slot)
        outbox.hold(.resume(device: device, cid: old.cid))
    }
}
