// The passage of time, the release of what waited for the disk, and the alarms of rows on disk.

internal import Structures
internal import Wire

extension Shard {
    /// Does what has become due.
    ///
    /// Call when `nextTimer` has come, and at least once a second.
    public mutating func advance(to time: GatewayTime) {
        let before = CountersRow.day(of: now)
        begin(time)
        let today = CountersRow.day(of: now)
        if today != before { counters.dropOld(before: today, of: apps) }

        messages.timers.advance(to: now)
        jobs.advance(to: now)
        devices.timers.advance(to: now)
        goOn()
        usage.age(now)
        fireFailedAlarms()
        fireTasks()
        writeCursors()
        walkSessions()
        walkMessages()
        removeFoldedCounters()
        fireFirstAcks()
        askForAlarms()
        releaseDue()
    }

    private mutating func removeFoldedCounters() {
        var budget = store.acceptsWrites ? CounterTable.removedRowCount : 0
        while let removal = counters.nextRemoval(now, budget: &budget) {
            inBatch(in: removal.bucket) { shard in
                for day in removal.days {
                    let key = CountersRow.key(removal.bucket, app: day.app, day: day.day)
                    shard.store.delete(key, prior: .maybe(wakeAt: 0))
                }
            }
        }
    }

    // MARK: Effects that waited

    /// Lets go at once what waits for nothing any more.
    mutating func releaseDue() {
        // A Welcome that goes out may meet its device with a broadcast, whose end is let go in turn, and so on: thousands deep
        // after a reconnect storm.
        guard outbox.beginRelease() else { return }
        while let effect = outbox.popDue(beforeSync: isPlanted(.answerBeforeSync)) { release(effect) }
        outbox.endRelease()
    }

    /// Says it once everything written so far is durable.
    mutating func whenDurable(_ kind: PendingEffect.Kind, ticket: Ticket? = nil) {
        outbox.hold(kind, ticket: ticket)
        releaseDue()
    }

    mutating func release(_ effect: PendingEffect) {
        switch effect.kind {
        case .publish(let origin, let outcome, let slot, let cid):
            outbox.send(.publishAnswered(origin, outcome))
            if slot != .max, isDevice(slot, cid) { pump(slot) }
        case .welcome(let session, let welcome):
            guard let slot = device(of: session) else { return }
            outbox.send(.welcome(session, welcome))
            openGate(slot)
        case .updated(let session, let result):
            guard let slot = device(of: session) else { return }
            outbox.send(.updated(session, result))
            openGate(slot)
        case .leased(let origin, let leased):
            // An ack that came before the lease was durable cancels the job; and what expired meanwhile stays here, too.
            let still = leased.filter { job in
                if isPlanted(.overtakenLeaseShown) { return true }
                guard let slot = jobs.find(job.message) else { return false }
                let row = jobs.pointer(slot)
                return row.pointee.row.state == .leased && row.pointee.row.lease == job.leaseID
                    && !isOver(row.pointee.row.facts.expiresAt)
            }
            numbers.leasesGiven &+= UInt64(still.count)
            outbox.send(.leased(origin, still))
        case .settled(let origin, let verdicts): outbox.send(.settled(origin, verdicts))
        case .task(let origin, let answer): outbox.send(.task(origin, answer))
        case .told(let effect): outbox.send(effect)
        case .taskDue(let record): outbox.send(.taskDue(record))
        case .launched(let record): outbox.send(.launched(record))
        case .firstAck(let first): outbox.send(.firstAck(first))
        case .resume(let slot, let cid): if isDevice(slot, cid) { pump(slot) }
        case .directory(let origin, let reply): outbox.send(.directoryAnswered(origin, reply))
        }
    }

    /// A result is out.
    ///
    /// A client drops what it reads before the result of its latest update, so the last one counts.
    private mutating func openGate(_ slot: UInt32) {
        let device = devices.pointer(slot)
        device.pointee.gates -= 1
        guard device.pointee.gates == 0 else { return }
        device.pointee.flags.remove(.gated)
        pump(slot)
    }

    func isDevice(_ slot: UInt32, _ cid: DeviceID) -> Bool {
        devices.isOccupied(slot) && devices.pointer(slot).pointee.cid == cid
    }

    // MARK: Alarms of cold rows

    mutating func alarmDone() {
        alarms.end()
        askForAlarms()
    }

    mutating func alarmFired(_ stored: StoredRow) {
        switch stored.key.table {
        case .job:
            guard let row = JobRow(stored.value) else {
                damaged(stored.key)
                return
            }
            let slot = adopt(row, storedWakeAt: stored.wakeAt, isStored: true)
            jobs.pointer(slot).pointee.wasReported = true
            if jobs.pointer(slot).pointee.place == .none { placeJob(slot) }
            leaveIfOverfull(slot)
        case .message, .vendorMessage:
            messageAlarmFired(stored.key)
        case .device:
            let cid = DeviceID(high: stored.key.ownerHigh, low: stored.key.ownerLow)
            alarms.begin()
            // With its pending messages of broadcasts, which only the ledger knows.
            withBroadcasts(of: cid, stored.key.bucket) { shard, slot, readiness in
                if readiness == .ready {
                    shard.collectIfForgotten(slot)
                    if shard.devices.isOccupied(slot), shard.devices.pointer(slot).pointee.isLoaded {
                        shard.leaveBroadcasts(slot)
                    }
                }
                shard.alarmDone()
            }
        case .task: taskAlarmFired(TaskID(high: stored.key.ownerHigh, low: stored.key.ownerLow))
        case .taskMessage:
            if let row = LedgerRow(stored.value), row.state == nil, row.table == .broadcast {
                broadcastAlarmFired(stored.key, row)
            } else {
                ledgerAlarmFired(stored)
            }
        case .taskEvent, .taskTargets, .taskGroup: forget(stored)
        default: break
        }
    }

    /// A cold message's time has come: its fallback or its end.
    ///
    /// What the alarm's reply said may be over by the time the device is there, so the rows are read once more, when
    /// nothing can come in between.
    private mutating func messageAlarmFired(_ key: StoreKey) {
        let cid = DeviceID(high: key.ownerHigh, low: key.ownerLow)
        alarms.begin()
        whenReady(deviceSlot(cid, bucket: key.bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                if readiness.mayBeRepeated { shard.retryAlarm(key) }
                if readiness == .unknown { shard.log(.error, "orphanedMessage", "a message's device is not known") }
                shard.alarmDone()
                return
            }
            // In memory it has a timer of its own.
            if shard.listedMessage(table: key.table, item: key.item, of: slot) != nil {
                shard.alarmDone()
                return
            }
            shard.devices.pointer(slot).pointee.flags.insert(.busy)
            shard.scan(slot, table: key.table, from: key.item, rowLimit: 1, byteLimit: 1) { shard, rows, _, ok in
                shard.devices.pointer(slot).pointee.flags.remove(.busy)
                if !ok {
                    shard.retryAlarm(key)
                } else if let row = rows.first, row.facts.item == key.item,
                    shard.listedMessage(table: key.table, item: key.item, of: slot) == nil
                {
                    shard.actOnAlarm(row, slot)
                }
                shard.alarmDone()
                shard.drainWaiting(slot)
            }
        }
    }

    private mutating func actOnAlarm(_ scanned: Scanned, _ slot: UInt32) {
        let facts = scanned.facts
        let job = adoptJob(of: scanned)
        if facts.expiresAt <= now {
            if job != .max, jobs.pointer(job).pointee.row.state == .leased { return }  // its timer sees to it
            let alerted = job != .max && jobs.pointer(job).pointee.row.alertedAt > 0
            inBatch(of: slot) { shard in
                shard.end(facts, alerted ? .handedOff : .expired, message: .max, job: job)
            }
        } else if job != .max {
            dropJobIfDone(job)
        } else if facts.flags.contains(.isArmed) {
            var row = JobRow(facts: facts, state: .due, dueAt: now)
            row.note(.timedOut, now)
            row.note(.jobDue, now)
            numbers.jobsCreated &+= 1
            let created = adopt(row, storedWakeAt: 0, isStored: false)
            inBatch(of: slot) { shard in
                shard.writeJob(created)
            }
            placeJob(created)
        }
    }

    private mutating func retryAlarm(_ key: StoreKey) {
        if !isPlanted(.alarmLost) { alarms.retry(key, now: now) }
    }

    /// The store tells an alarm once; what could not be read then is tried again from here.
    mutating func fireFailedAlarms() {
        for key in alarms.takeFailed(now: now) {
            if key.table == .taskMessage { retryBroadcastAlarm(key) } else { messageAlarmFired(key) }
        }
    }

    /// A cid that was registered and never seen again within a day is removed, once nothing is queued for it.
    private mutating func collectIfForgotten(_ slot: UInt32) {
        let device = devices.pointer(slot)
        guard !device.pointee.flags.contains(.established) else { return }
        let isDue = device.pointee.lastHeardAt + limits.sessionlessDeviceLifetime <= now
        if !device.pointee.isConnected, isDue, device.pointee.messageCount == 0, device.pointee.vendorCount == 0,
            device.pointee.firstJob == .max, device.pointee.firstBroadcast == .max
        {
            inBatch(of: slot) { shard in
                shard.store.delete(device.pointee.key, prior: .maybe(wakeAt: device.pointee.rowWakeAt))
                shard.strike(slot)
                shard.count(.collected)
            }
            devices.noteUnloaded(slot)
            freeIfEmpty(slot)
        } else {
            // A session of a whole day is proof enough that somebody uses it; a queue runs dry by its messages' TTL.
            if device.pointee.isConnected {
                device.pointee.flags.insert(.established)
            } else {
                device.pointee.lastHeardAt = now
            }
            inBatch(of: slot) { shard in
                device.pointee.flags.insert(.dirty)
            }
        }
    }
}
