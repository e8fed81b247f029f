internal import Structures
internal import Wire

/// The state of a device when a waiting command runs.
enum Readiness {
    case ready
    /// The device does not exist.
    case unknown
    /// The store could not be read; the caller retries.
    case failed
    /// Too many commands wait; the caller retries.
    case crowded

    var mayBeRepeated: Bool { self == .failed || self == .crowded }
}

extension Shard {
    typealias Waiter = (inout Shard, DeviceSlot, Readiness) -> Void

    func isFree(_ slot: DeviceSlot) -> Bool {
        let device = devices.at(slot)
        return device.value.isLoaded && !device.value.isBusy && device.value.waiting == .none
    }

    /// Runs a command when the device's record is in memory and no other step runs, immediately or in queue order.
    ///
    /// An alarm does not count against the limit and is never `crowded`.
    mutating func whenReady(_ slot: DeviceSlot, isAlarm: Bool = false, _ command: @escaping Waiter) {
        let device = devices.at(slot)
        if isFree(slot) {
            command(&self, slot, .ready)
            return
        }
        if isAlarm {
            devices.wait(slot, alarm: command)
        } else if !devices.wait(
            slot, command, limitOfOne: limits.waitingPerDevice, limitOfAll: limits.waitingInAll,
            waitingCount: &core.waitingCount)
        {
            command(&self, slot, .crowded)
            if devices.isOccupied(slot) { freeIfEmpty(slot) }
            return
        }
        if !device.value.isLoaded, !device.value.flags.contains(.loading) { load(slot) }
    }

    /// Runs the commands that wait for a device, until the device is busy again.
    mutating func drainWaiting(_ slot: DeviceSlot, _ readiness: Readiness = .ready) {
        while devices.isOccupied(slot) {
            let device = devices.at(slot)
            if readiness == .ready, device.value.isBusy, device.value.waiting != .none { return }
            guard let command = devices.popWaiting(slot, waitingCount: &core.waitingCount) else { break }
            // An earlier command may have removed the device.
            command(&self, slot, readiness == .ready && !device.value.isLoaded ? .unknown : readiness)
        }
        guard devices.isOccupied(slot) else { return }
        leaveBroadcasts(slot)
        devices.releaseQueue(slot)
        freeIfEmpty(slot)
    }

    // MARK: Reading

    package mutating func replied(_ reply: StoreReply, now: GatewayTime) {
        begin(now)
        guard let continuation = core.continuations.removeValue(forKey: reply.token) else { return }
        // Effects may point into the reply until the next call.
        core.heldReplies.append(reply)
        if let failure = reply.failure {
            numbers.storeReadFailures &+= 1
            log(.error, "storeReadFailed", failure)
        }
        continuation(&self, reply)
    }

    /// Records that a young row is now only on disk.
    ///
    /// Its location is no longer valid.
    ///
    /// - Returns: whether the shard has effects, which is rare.
    @discardableResult
    package mutating func cooled(_ key: StoreKey) -> Bool {
        switch key.table {
        case .message, .vendorMessage: messageCooled(key)
        case .job: jobCooled(key)
        default: break
        }
        return outbox.hasEffects
    }

    private mutating func load(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        device.value.flags.insert(.loading)
        let (cid, bucket) = (device.value.cid, device.value.bucket)
        let rowLimit = limits.measuredRowCount
        read([
            .get(device.value.key),
            .measure(partition: StoreKey(bucket, .message, cid), rowLimit: rowLimit),
            .measure(partition: StoreKey(bucket, .vendorMessage, cid), rowLimit: rowLimit),
        ]) { shard, reply in
            let device = shard.devices.at(slot)
            device.value.flags.remove(.loading)
            guard reply.failure == nil, reply.results.count == 3 else {
                shard.drainWaiting(slot, .failed)
                return
            }
            guard case .row(let stored?) = reply.results[0] else {
                shard.drainWaiting(slot, .unknown)
                return
            }
            guard let (row, profile) = DeviceRow.read(stored.bytes) else {
                shard.damaged(stored.key)
                device.value.flags.insert(.damaged)
                shard.drainWaiting(slot, .failed)
                return
            }
            device.value.flags.remove(.damaged)
            shard.fill(slot, row, profile: profile, wakeAt: stored.wakeAt)
            if case .measure(let count, let bytes, _, _) = reply.results[1] {
                device.value.setMeasured(
                    .message, count: count, byteCount: bytes + count * MessageRow.chargeBesideRow)
            }
            if case .measure(let count, let bytes, _, _) = reply.results[2] {
                device.value.setMeasured(
                    .vendorMessage, count: count, byteCount: bytes + count * MessageRow.chargeBesideRow)
            }
            if device.value.messageCount > 0 { device.value.flags.insert(.coldAhead) }
            device.value.mayHaveJobRows = device.value.messageCount + device.value.vendorCount > 0
            device.value.coldKeys = device.value.messageCount + device.value.vendorCount > 0 ? .max : 0
            let held = AlarmGroup(app: row.app, kind: .held)
            if shard.store.alarmGroups.contains(held) { device.value.noteHeldInStore() }
            shard.placeJobs(of: slot)
            shard.evictIdle()
            shard.drainWaiting(slot)
        }
    }

    private mutating func fill(
        _ slot: DeviceSlot, _ row: DeviceRow, profile: LentBytes, wakeAt: GatewayTime
    ) {
        let device = devices.at(slot)
        let isReused = isPlanted(.sequenceReused) && row.reservedSequence >= limits.sequenceBlock
        device.value.fill(
            from: row, appIndex: appIndex(row.app), wakeAt: wakeAt, repeating: isReused ? limits.sequenceBlock : 0)
        devices.loadProfile(slot, profile)
        devices.noteLoaded(slot)
    }

    // MARK: Leaving memory

    mutating func freeIfEmpty(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard device.value.isIdle, !device.value.isLoaded else { return }
        removeDevice(slot)
    }

    mutating func removeDevice(_ slot: DeviceSlot) {
        barriers[slot] = nil
        devices.remove(slot)
    }

    mutating func evictIdle() {
        var steps = 0
        while let slot = devices.nextIdle(beyond: limits.cachedDeviceCount, steps: &steps) { removeDevice(slot) }
    }

    // MARK: Scans

    enum Page {
        /// The rows in order; `isLast`: the partition has no further rows.
        case rows([Scanned], isLast: Bool)
        case unreadable
    }

    struct Scanned {
        var facts: MessageFacts
        /// Valid until the next call into the shard.
        var row: MessageRow
        var job: JobRow?
        var jobWakeAt: GatewayTime = 0
        /// The job was in memory; if it has left memory since, this copy may be stale.
        var jobWasListed = false
        var isJobStored = false
        /// The job's row exists but is invalid, so the message's row does not imply the job's state.
        var hasUnreadableJob = false

        mutating func takeJob(_ bytes: LentBytes, _ wakeAt: GatewayTime) {
            job = JobRow(bytes)
            (jobWakeAt, isJobStored, hasUnreadableJob) = (wakeAt, job != nil, job == nil)
        }
    }

    /// Reads messages of a device from an item on, with their job rows.
    ///
    /// At the completion the device's slot is still valid, but its session may have changed.
    mutating func scan(
        _ slot: DeviceSlot, table: StoreKey.Table, from item: UInt64, rowLimit: Int, byteLimit: Int,
        completion: @escaping (inout Shard, Page) -> Void
    ) {
        let device = devices.at(slot)
        let cid = device.value.cid
        let start = StoreKey(device.value.bucket, table, cid, item: item)
        read([.scan(partition: start, rowLimit: rowLimit, byteLimit: byteLimit)]) { shard, reply in
            guard case .rows(let rows, let isComplete)? = reply.results.first else {
                completion(&shard, .unreadable)
                return
            }
            let mayHaveJobRows = shard.devices.at(slot).value.mayHaveJobRows
            var scanned: [Scanned] = []
            var missing: [Int] = []
            for stored in rows {
                guard let row = MessageRow(stored.bytes) else {
                    shard.damaged(stored.key)
                    continue
                }
                let facts = row.facts(cid: cid, table: table, item: stored.key.item)
                var found = Scanned(facts: facts, row: row)
                if let job = shard.jobs.find(facts.message) {
                    found.job = shard.jobs.at(job).value.row
                    found.jobWakeAt = shard.jobs.at(job).value.storedWakeAt
                    found.isJobStored = shard.jobs.at(job).value.isStored
                    found.jobWasListed = true
                } else if mayHaveJobRows {
                    switch shard.store.young(facts.jobKey) {
                    case .found(let location, let wakeAt):
                        found.takeJob(shard.store.bytes(at: location), wakeAt)
                    case .deleted: break
                    case .unknown: if !shard.store.isCertainlyAbsent(facts.jobKey) { missing.append(scanned.count) }
                    }
                }
                scanned.append(found)
            }
            guard !missing.isEmpty else {
                completion(&shard, .rows(scanned, isLast: isComplete))
                return
            }
            let (partial, absent) = (scanned, missing)
            let endings = shard.devices.at(slot).value.endings
            shard.read(missing.map { .get(scanned[$0].facts.jobKey) }) { shard, jobsReply in
                guard jobsReply.failure == nil, jobsReply.results.count == absent.count else {
                    completion(&shard, .unreadable)
                    return
                }
                let isStale = partial.contains { found in
                    found.jobWasListed && shard.jobs.find(found.facts.message) == nil
                        && shard.store.young(found.facts.jobKey) == .unknown
                }
                guard shard.devices.at(slot).value.endings == endings, !isStale else {
                    // A message ended or a job left memory during the read of the jobs. The scan restarts because a stale row
                    // must not return to memory.
                    shard.scan(
                        slot, table: table, from: item, rowLimit: rowLimit, byteLimit: byteLimit,
                        completion: completion)
                    return
                }
                // Keeps the first reply's bytes valid, because the completion uses them, too.
                shard.core.heldReplies.append(reply)
                var scanned = partial
                for (index, result) in zip(absent, jobsReply.results) {
                    guard case .row(let stored?) = result else { continue }
                    scanned[index].takeJob(stored.bytes, stored.wakeAt)
                }
                completion(&shard, .rows(scanned, isLast: isComplete))
            }
        }
    }

    /// Adds a scanned message's job to memory, from its row or as implied by the message's row.
    mutating func adoptJob(of scanned: Scanned) -> JobSlot {
        let key = scanned.facts.jobKey
        var found = scanned.isJobStored ? scanned.job : nil
        var wakeAt = scanned.jobWakeAt
        // A young row is newer than the reply of an earlier turn.
        if case .found(let location, let current) = store.young(key) {
            (found, wakeAt) = (JobRow(store.bytes(at: location)), current)
        }
        guard let row = found else {
            if let known = jobs.find(scanned.facts.message) { return known }
            guard scanned.facts.hasDueJob(at: now), scanned.facts.expiresAt > now, !scanned.hasUnreadableJob else {
                return .none
            }
            let slot = adoptImplied(JobRow(impliedBy: scanned.facts))
            if jobs.at(slot).value.place == .none { placeJob(slot) }
            return slot
        }
        let slot = adopt(row, storedWakeAt: wakeAt, isStored: true)
        if jobs.at(slot).value.place == .none { placeJob(slot) }
        return slot
    }

    /// Adds a scanned message to memory, marked as cold, unless it is already in memory.
    mutating func adoptMessage(_ scanned: Scanned, device: DeviceSlot) -> MessageSlot {
        if let known = listedMessage(table: scanned.facts.table, item: scanned.facts.item, of: device) { return known }
        let job = adoptJob(of: scanned)
        var message = Message(cold: scanned.facts, device: device)
        let isArmed = scanned.facts.flags.contains(.isArmed) && !scanned.hasUnreadableJob
        message.fallbackAt = isArmed ? scanned.facts.fallbackAt : 0
        message.collapseHash = scanned.row.collapseHash
        // The live attempt was before the restart or in an earlier session. It is over if its deadline has passed or its job
        // exists.
        if job != .none || scanned.facts.fallbackAt > 0 && scanned.facts.fallbackAt <= now {
            message.miss()
        }
        if job != .none, jobs.at(job).value.row.isCollapsed { message.markCollapsed() }
        let slot = list(message)
        armTimer(slot)
        return slot
    }

    /// Finds a job by its id, in memory or in the store, and adds it to memory.
    mutating func findJob(
        _ message: MessageID, completion: @escaping (inout Shard, Found<JobSlot>) -> Void
    ) {
        guard let bucket = message.bucket else {
            completion(&self, .absent)
            return
        }
        if let slot = jobs.find(message) {
            completion(&self, .found(slot))
            return
        }
        let key = StoreKey(bucket, .job, message)
        switch store.young(key) {
        case .found(let location, let wakeAt):
            guard let row = JobRow(store.bytes(at: location)) else {
                damaged(key)
                completion(&self, .absent)
                return
            }
            let slot = adopt(row, storedWakeAt: wakeAt, isStored: true)
            jobs.at(slot).value.isCold = false
            placeJob(slot)
            completion(&self, .found(slot))
        case .deleted: completion(&self, .absent)
        case .unknown:
            if store.isCertainlyAbsent(key) {
                completion(&self, .absent)
                return
            }
            read([.get(key)]) { shard, reply in
                guard case .row(let found)? = reply.results.first else {
                    completion(&shard, .unreadable)
                    return
                }
                guard let stored = found, let row = JobRow(stored.bytes) else {
                    if let stored = found { shard.damaged(stored.key) }
                    completion(&shard, .absent)
                    return
                }
                let slot = shard.adopt(row, storedWakeAt: stored.wakeAt, isStored: true)
                if shard.jobs.at(slot).value.place == .none { shard.placeJob(slot) }
                completion(&shard, .found(slot))
            }
        }
    }

    // MARK: Reports

}
