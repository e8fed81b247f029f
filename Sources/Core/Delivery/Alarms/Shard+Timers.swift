internal import Structures
internal import Wire

extension Shard {
    /// Handles all due timers and alarms; called at `nextTimer`, and at least once a second.
    package mutating func advance(to time: GatewayTime) {
        begin(time)
        counters.dropOld(before: CountersRow.day(of: now))

        messages.timers.advance(to: now)
        jobs.advance(to: now)
        devices.timers.advance(to: now)
        goOn()
        usage.age(now)
        fireFailedAlarms()
        fireTasks()
        advanceFeeds()
        writeCursors()
        scanSessions()
        searchMemory()
        removeFoldedCounters()
        fireFirstAcks()
        tendReports()
        askForAlarms()
        releaseDue()
    }

    private mutating func removeFoldedCounters() {
        var budget = store.acceptsWrites ? CounterTable.removedRowCount : 0
        while let removal = counters.nextRemoval(now, budget: &budget) {
            inBatch(in: removal.bucket) { shard in
                for day in removal.days {
                    let key = CountersRow.key(removal.bucket, day)
                    shard.store.delete(key, prior: .maybe(wakeAt: 0))
                }
            }
        }
    }

    // MARK: Alarms of cold rows

    mutating func alarmDone() {
        alarms.end()
        askForAlarms()
    }

    mutating func alarmFired(_ stored: StoredRow) {
        switch stored.key.table {
        case .job:
            guard let row = JobRow(stored.bytes) else {
                damaged(stored.key)
                return
            }
            let slot = adopt(row, storedWakeAt: stored.wakeAt, isStored: true)
            jobs.at(slot).value.wasReported = true
            if jobs.at(slot).value.place == .none { placeJob(slot) }
            leaveIfOverfull(slot)
        case .message, .vendorMessage:
            guard let row = MessageRow(stored.bytes) else {
                damaged(stored.key)
                return
            }
            let cid = DeviceID(high: stored.key.ownerHigh, low: stored.key.ownerLow)
            let facts = row.facts(cid: cid, table: stored.key.table, item: stored.key.item)
            if facts.hasDueJob(at: now), facts.expiresAt > now {
                impliedJobFired(facts)
            } else {
                messageAlarmFired(stored.key)
            }
        case .device: deviceAlarmFired(stored.key)
        case .task: taskAlarmFired(TaskID(high: stored.key.ownerHigh, low: stored.key.ownerLow))
        case .taskMessage:
            if let row = LedgerRow(stored.bytes), row.state == nil, row.table == .broadcast {
                broadcastAlarmFired(stored.key, row)
            } else {
                ledgerAlarmFired(stored)
            }
        case .taskEvent, .taskTargets, .taskGroup, .upstream, .taskCallback: forget(stored)
        default: break
        }
    }

    private mutating func deviceAlarmFired(_ key: StoreKey) {
        let cid = DeviceID(high: key.ownerHigh, low: key.ownerLow)
        alarms.begin()
        // The shard also needs the device's pending messages of broadcasts. Only the ledger has them.
        withBroadcasts(of: cid, key.bucket, isAlarm: true) { shard, slot, readiness in
            if readiness == .ready {
                shard.collectIfForgotten(slot)
                if shard.devices.isOccupied(slot), shard.devices.at(slot).value.isLoaded {
                    shard.claimAgain(slot)
                    shard.leaveBroadcasts(slot)
                }
            } else if shard.mayRepeatAlarm(of: slot, readiness) {
                shard.retryAlarm(key)
            }
            shard.alarmDone()
        }
    }

    /// Handles the alarm of a message on disk: its fallback or its expiry.
    ///
    /// The alarm's row may be stale when the device is ready. The shard therefore reads the rows again while no other step of the
    /// device runs.
    private mutating func messageAlarmFired(_ key: StoreKey) {
        let cid = DeviceID(high: key.ownerHigh, low: key.ownerLow)
        alarms.begin()
        whenReady(deviceSlot(cid, bucket: key.bucket), isAlarm: true) { shard, slot, readiness in
            guard readiness == .ready else {
                if shard.mayRepeatAlarm(of: slot, readiness) { shard.retryAlarm(key) }
                if readiness == .unknown { shard.log(.error, "orphanedMessage", "a message's device is not known") }
                shard.alarmDone()
                return
            }
            if let listed = shard.listedMessage(table: key.table, item: key.item, of: slot) {
                shard.messages.at(listed).value.markReported()
                shard.alarmDone()
                return
            }
            shard.whileBusy(slot) { shard, done in
                shard.scan(slot, table: key.table, from: key.item, rowLimit: 1, byteLimit: 1, completion: done)
            } then: { shard, page in
                switch page {
                case .unreadable: shard.retryAlarm(key)
                case .rows(let rows, _):
                    if let listed = shard.listedMessage(table: key.table, item: key.item, of: slot) {
                        shard.messages.at(listed).value.markReported()
                    } else if let row = rows.first, row.facts.item == key.item {
                        shard.actOnAlarm(row, slot)
                    }
                }
                shard.alarmDone()
            }
        }
    }

    private mutating func actOnAlarm(_ scanned: Scanned, _ slot: DeviceSlot) {
        let facts = scanned.facts
        let job = adoptJob(of: scanned)
        if facts.expiresAt <= now {
            if job != .none, jobs.at(job).value.row.state == .leased { return }  // its timer handles it
            let alerted = job != .none && jobs.at(job).value.row.alertedAt > 0
            inBatch(of: slot) { shard in
                shard.end(facts, .atExpiry(wasAlerted: alerted), message: .none, job: job)
            }
        } else if job != .none {
            if jobs.at(job).value.isStored { dropJobIfDone(job) } else { impliedJobFired(facts) }
        }
    }

    /// Returns whether the alarm is retried; with a damaged device row it is not retried before a restart.
    func mayRepeatAlarm(of slot: DeviceSlot, _ readiness: Readiness) -> Bool {
        readiness.mayBeRepeated && !devices.at(slot).value.flags.contains(.damaged)
    }

    mutating func retryAlarm(_ key: StoreKey) {
        if !isPlanted(.alarmLost) { alarms.retry(key, now: now) }
    }

    /// Retries alarms whose row could not be read, because the store reports an alarm only once.
    mutating func fireFailedAlarms() {
        for key in alarms.takeFailed(now: now) {
            switch key.table {
            case .taskMessage: retryBroadcastAlarm(key)
            case .device: deviceAlarmFired(key)
            default: messageAlarmFired(key)
            }
        }
    }

    func isWithoutQueue(_ slot: DeviceSlot) -> Bool {
        let device = devices.at(slot)
        return device.value.messageCount == 0 && device.value.vendorCount == 0 && device.value.firstJob == .none
            && device.value.firstBroadcast == .none
    }

    /// Removes a device without a queue; `besides` writes further rows of the same batch.
    mutating func collect(_ slot: DeviceSlot, besides: (inout Shard) -> Void = { _ in }) {
        let device = devices.at(slot)
        let news = news(of: slot, before: profile(slot).tokens, after: [])
        inBatch(of: slot) { shard in
            besides(&shard)
            shard.store.delete(device.value.key, prior: .maybe(wakeAt: device.value.rowWakeAt))
            shard.strike(slot)
            shard.countDevice(-1)
            // Otherwise the end of the batch would write the deleted record again.
            device.value.dropChanges()
        }
        tell(news)
        devices.noteUnloaded(slot)
        freeIfEmpty(slot)
    }

    /// Removes a device that registered and did not reconnect within a day, once its queue is empty.
    private mutating func collectIfForgotten(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard !device.value.isEstablished else {
            // The alarm was for a claim. Or a Hello whose session got no Welcome established the device only in memory, and its
            // row still has the alarm that has just fired.
            if device.value.rowWakeAt != 0 {
                device.change { $0.establish() }
                save(slot)
            }
            return
        }
        let isDue = forgetsAt(device) <= now
        if !device.value.isConnected, isDue, isWithoutQueue(slot) {
            collect(slot)
        } else {
            // A device that is connected after a day is in use. For a device with a queue the day starts again, until the TTLs
            // empty the queue.
            if device.value.isConnected {
                if device.value.registeredAt + limits.sessionlessDeviceLifetime <= now {
                    device.change { $0.establish() }
                }
            } else if isDue {
                device.value.lastHeardAt = now
            }
            save(slot)
        }
    }
}
