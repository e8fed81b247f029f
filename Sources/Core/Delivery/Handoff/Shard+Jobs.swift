// Handoff jobs in memory.
//
// A job is *held* while its device could get the message live, or is silenced. This state is in memory only, so after a crash an
// extra alert is possible, but no alert is lost. `placeJob` alone decides a job's place and is called after every change.
//
// A job that is only due has no row. The message's row implies it, from the message's deadline or acceptance on. That row's alarm
// restores the job after a restart, or after the message left memory. The first lease, or another change of the job alone, writes
// the job's row with its own alarm.

internal import Structures
internal import Wire

struct LoadedJob {
    var slot: JobSlot
    var device: DeviceSlot
    /// The message's row, if it was read from disk; valid during the call.
    var coldRow: LentBytes?
}

extension Shard {
    /// Makes the job of a message in memory due.
    ///
    /// A message without a fallback gets no job.
    ///
    /// The job needs a row if no message row implies it. This is so if the device left before the deadline, and for a broadcast's
    /// message, which has no message row.
    mutating func makeDue(_ message: MessageSlot, timedOut: Bool) {
        let entry = messages.at(message)
        guard entry.value.facts.tellsMissed(at: now) else {
            inBatch(of: entry.value.device) { $0.createStoredJob(message, timedOut: timedOut) }
            return
        }
        guard entry.value.facts.flags.contains(.isArmed) else {
            // The timer now only has to end the message.
            entry.value.fallbackAt = 0
            return
        }
        let facts = entry.value.facts
        // A device that left makes a vendor's job due before its deadline, but not a follow-up.
        let dueAt = facts.jobDueAt <= now || facts.channels.first?.isFollowUp == true ? facts.jobDueAt : now
        var row = JobRow(facts: facts, state: .due, dueAt: dueAt)
        if entry.value.sentAt > 0 { row.note(.sent, entry.value.sentAt) }
        if timedOut { row.note(.timedOut, now) }
        noteDue(&row, dueAt)
        let slot = adoptImplied(row)
        jobs.at(slot).value.wasReported = entry.value.flags.contains(.reported)
        placeJob(slot)
    }

    /// Creates a due job with a row, in the open batch.
    ///
    /// The row is needed because the message's row does not show that the message is flagged. Without a fallback the new row is
    /// cancelled and only records the flag.
    mutating func createStoredJob(_ message: MessageSlot, timedOut: Bool) {
        let entry = messages.at(message)
        let isArmed = entry.value.facts.flags.contains(.isArmed)
        let dueAt = entry.value.facts.channels.first?.isFollowUp == true ? max(now, entry.value.facts.followUpAt) : now
        var row = JobRow(facts: entry.value.facts, state: isArmed ? .due : .cancelled, dueAt: dueAt)
        if entry.value.sentAt > 0 { row.note(.sent, entry.value.sentAt) }
        if timedOut { row.note(.timedOut, now) }
        if isArmed { noteDue(&row, dueAt) }
        let slot = adopt(row, storedWakeAt: 0, isStored: false)
        writeJob(slot)
        placeJob(slot)
    }

    /// Adds a job that its message's row implies, or returns the job if it is already in memory.
    mutating func adoptImplied(_ row: JobRow) -> JobSlot {
        let slot = adopt(row, storedWakeAt: row.facts.wakeAt, isStored: false)
        let entry = jobs.at(slot)
        guard !entry.value.isStored else { return slot }
        // A message that is not in memory is on disk.
        entry.value.isCold =
            entry.value.message == .none || messages.at(entry.value.message).value.flags.contains(.cold)
        return slot
    }

    /// Handles the alarm of a message on disk whose row implies a due job.
    mutating func impliedJobFired(_ facts: MessageFacts) {
        let known = jobs.find(facts.message)
        if known == nil {
            if let device = knownDevice(facts.cid),
                let listed = listedMessage(table: facts.table, item: facts.item, of: device)
            {
                // The message's timer makes the job, at the ack deadline if the message is in flight.
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
        // A job with its own row has its own alarm.
        guard !entry.value.isStored else { return }
        entry.value.wasReported = true
        if entry.value.place == .none { placeJob(slot) }
        // A disconnect may have given the job another due time in memory (`makeAllDueSoon`). Once that time has passed, the
        // job gets the time of the message's row again, so that it can return to the store (`leaveIfOverfull`).
        if entry.value.place == .due || entry.value.place == .held, entry.value.row.dueAt <= now {
            entry.value.row.dueAt = facts.jobDueAt
        }
        leaveIfOverfull(slot)
    }

    /// Records in a new job's row that it is due, and counts it.
    mutating func noteDue(_ row: inout JobRow, _ dueAt: GatewayTime) {
        row.note(.jobDue, dueAt)
        count(row) { $0.jobsCreated &+= 1 }
    }

    @inline(__always)
    mutating func count(_ row: JobRow, _ change: (inout VendorStatistics) -> Void) {
        if let channel = row.channel { change(&numbers[channel]) }
    }

    /// Adds a job to memory, or returns the job if it is already there.
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

    mutating func writeJob(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        let wakeAt = entry.value.row.wakeAt
        if entry.value.row.facts.table != .broadcast {
            devices.at(entry.value.device).value.mayHaveJobRows = true
        }
        store.putRow(
            entry.value.row.facts.jobKey, wakeAt: wakeAt,
            // A job without a row has never had one.
            prior: entry.value.isStored ? .maybe(wakeAt: entry.value.storedWakeAt) : .none,
            byteCount: entry.value.row.byteCount
        ) { entry.value.row.write(into: $0) }
        (entry.value.storedWakeAt, entry.value.isStored, entry.value.isCold) = (wakeAt, true, false)
        batch.rowCount += 1
    }

    /// Places a job by its state: due, held, or only watched by its timer.
    mutating func placeJob(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard entry.value.place != .leasing else { return }
        guard !needsTokens(slot) else { return placeWithTokens(slot) }
        let channel = chosenChannel(of: slot)
        if entry.value.place == .due, entry.value.row.state == .due, entry.value.row.dueAt <= now, !isHeld(slot),
            channel == entry.value.row.channel, !isFollowUpDue(entry.value.row)
        {
            return  // the job keeps its place in the list
        }
        jobs.unplace(slot)
        switch entry.value.row.state {
        case .due:
            if let channel { entry.value.row.channel = channel }
            if isFollowUpDue(entry.value.row) { followUp(slot) }
            // No sender requests an unknown channel. The job ends with its message.
            guard let channel = entry.value.row.channel else {
                jobs.watch(slot, until: entry.value.row.mayWait(limits.vendorFirstPatience))
                return
            }
            if entry.value.row.dueAt > now {
                jobs.watch(slot, until: entry.value.row.wakeAt)
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

    /// Returns whether a due job's channel depends on tokens that are not in memory.
    private func needsTokens(_ slot: JobSlot) -> Bool {
        let entry = jobs.at(slot)
        guard entry.value.row.state == .due, entry.value.row.dueAt <= now,
            let channel = entry.value.row.channel, channel.platform != .apple, !channel.isFollowUp,
            !isFollowUpDue(entry.value.row)
        else { return false }
        return !devices.at(entry.value.device).value.isLoaded
    }

    /// Places a job after its device has been read, because the tokens may have changed since the channel was stored.
    private mutating func placeWithTokens(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        let id = entry.value.row.facts.message
        jobs.unplace(slot)
        // Retries in a second if the device cannot be read.
        jobs.watch(slot, until: now + 1_000)
        whenReady(entry.value.device) { shard, _, readiness in
            guard let job = shard.jobs.find(id) else { return }
            if readiness == .ready { shard.placeJob(job) } else { shard.retryJobLater(id, readiness) }
        }
    }

    /// Places the jobs of an app again after a change of its preferred vendors.
    mutating func placeJobs(ofApp app: Int) {
        var unread: Int64 = 0
        for slot in jobs.slots(ofApp: app) {
            guard needsTokens(slot), jobs.at(slot).value.place != .leasing else {
                placeJob(slot)
                continue
            }
            // Reads the devices at 10,000 per second.
            unread += 1
            jobs.unplace(slot)
            jobs.watch(slot, until: now + 1 + unread / 10)
        }
    }

    /// Returns the channel for a job's next lease, by the device's tokens; unchanged while the device is not in memory.
    private func chosenChannel(of slot: JobSlot) -> VendorChannel? {
        let entry = jobs.at(slot)
        guard let channel = entry.value.row.channel, channel.platform != .apple, !channel.isFollowUp else {
            return entry.value.row.channel
        }
        let device = devices.at(entry.value.device)
        let need = TokenNeed(platform: channel.platform, kind: .alert, activity: 0)
        // Only a token of another vendor of the platform can change the channel.
        guard device.value.isLoaded,
            !device.value.tokens.subtracting(TokenSet(channel, .alert)).isDisjoint(
                with: TokenSet(need.platform, .alert))
        else { return channel }
        let app = apps[Int(entry.value.appIndex)]
        return profile(entry.value.device).channel(for: [need], appHasTopic: app.hasTopic, order: app.vendorOrder)
            ?? channel
    }

    /// Returns whether the vendor's time is over, so the job moves to the follow-up channel.
    private func isFollowUpDue(_ row: JobRow) -> Bool { row.followUpAt > 0 && row.followUpAt <= now }

    /// Moves a due job to the follow-up channel.
    ///
    /// A move that only the time caused is not written. After a restart the time causes it again, until a lease writes the row.
    mutating func followUp(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        entry.value.row.followUp(now)
        entry.value.row.note(.followedUp, now)
    }

    /// Reduces a command's contents to that of the device's channel, with its vendor's strategy, and the follow-up's content.
    ///
    /// Without a usable token only the follow-up's content is kept, or else the first content, which no job will use.
    func choose(_ command: inout PublishCommand, for slot: DeviceSlot) {
        var needs: [TokenNeed] = []
        command.contents.forEach { needs.append($0.need) }
        guard let channel = channel(for: needs, slot) else {
            command.contents = VendorContents(command.contents.followUp ?? command.contents.first)
            return
        }
        command.contents = command.contents.only(channel)
        if channel.platform != .apple {
            command.vendorCarriesAll = command.carryingPlatforms.contains(PlatformSet(channel.platform))
        }
        command.strategy = command.vendorStrategies[channel] ?? command.strategy
    }

    /// Returns the channel of a message with these contents for a device; `nil` if the device has no usable token.
    func channel(for needs: [TokenNeed], _ slot: DeviceSlot) -> VendorChannel? {
        let app = apps[Int(devices.at(slot).value.appIndex)]
        return profile(slot).channel(for: needs, appHasTopic: app.hasTopic, order: app.vendorOrder)
    }

    /// Returns whether the job is held: the device is silenced, or reachable and the ack is not overdue.
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
        // A one-shot message after its attempt is not sent live again, so its job must not be held.
        guard entry.value.message != .none else { return !entry.value.row.facts.isOneShot }
        let message = messages.at(entry.value.message)
        if message.value.flags.contains(.inFlight) { return !message.value.flags.contains(.overdue) }
        return !isAttemptOver(message)
    }

    /// Places all jobs of a device again after a change of its reachability.
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

    /// Removes a job from memory; its row remains.
    mutating func forgetJob(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        if entry.value.message != .none { messages.at(entry.value.message).value.job = .none }
        let deviceSlot = entry.value.device
        jobs.remove(slot, of: devices.at(deviceSlot))
        guard !batch.isOpen || batch.device != deviceSlot else { return }
        devices.releaseQueue(deviceSlot)
        freeIfEmpty(deviceSlot)
    }

    /// Removes a job from memory if its row is on disk and the store will report its alarm.
    ///
    /// A due or held job is removed only while its app exceeds its share of memory.
    mutating func dropJobIfDone(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard entry.value.isCold, entry.value.message == .none, entry.value.place != .leasing else { return }
        switch entry.value.place {
        case .due, .held:
            // The store has reported the alarm, so the job must be returned to a group.
            guard !entry.value.wasReported else { return leaveIfOverfull(slot) }
            // The alarm is in the past. The store reports it when the app has room.
            let app = Int(entry.value.appIndex)
            if entry.value.place == .due ? isOverfull(app) : isHeldOverfull(app),
                entry.value.row.wakeAt == entry.value.storedWakeAt
            {
                forgetJob(slot)
            }
        case .none, .leasing:
            // The store reports a job's alarm only once, so a reported job stays in memory until it ends.
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
}
