// Loading of broadcast messages from their ledger rows: when their device reconnects, when their alarm is due, or when a stop or
// revoke ends them.

internal import Structures
internal import Wire

private final class Resolution {
    var found: [(facts: MessageFacts, wasLive: Bool)] = []
    var highest: UInt64 = 0
    var outstanding = 1
    var isWhole = true
    var withJob: Set<MessageID> = []
    /// The device's `endings` at the start of the reads.
    let endings: UInt32
    let completion: (inout Shard, Reading) -> Void

    init(endings: UInt32, _ completion: @escaping (inout Shard, Reading) -> Void) {
        (self.endings, self.completion) = (endings, completion)
    }
}

extension Shard {
    /// Loads every pending message of a live broadcast that is not in memory.
    ///
    /// The device must be ready. It is busy until the completion, so messages in memory stay there. The result is `unreadable`
    /// while the app's log is unknown.
    mutating func resolveBroadcasts(_ slot: DeviceSlot, completion: @escaping (inout Shard, Reading) -> Void) {
        guard !devices.at(slot).value.flags.contains(.resolved) else {
            completion(&self, .whole)
            return
        }
        guard knowsBroadcasts(of: apps[Int(devices.at(slot).value.appIndex)].key) else {
            completion(&self, .unreadable)
            return
        }
        whileBusy(slot, { shard, done in shard.askLedger(slot, completion: done) }, then: completion)
    }

    private mutating func askLedger(_ slot: DeviceSlot, completion: @escaping (inout Shard, Reading) -> Void) {
        let device = devices.at(slot)
        var asked: [(broadcast: LiveBroadcast, key: StoreKey)] = []
        let resolution = Resolution(endings: device.value.endings, completion)
        for broadcast in broadcastLog(device)?.live ?? []
        where broadcast.number > device.value.broadcastSettled {
            let facts = facts(slot, broadcast)
            if listedMessage(table: .broadcast, item: broadcast.number, of: slot) != nil {
                resolution.highest = max(resolution.highest, broadcast.number)
                continue
            }
            if isPlanted(.broadcastLedgerIgnored) { continue }
            let key = Self.ledgerKey(facts)
            switch store.young(key) {
            case .found(let location, let wakeAt):
                if let row = LedgerRow(store.bytes(at: location)) { take(row, wakeAt, facts, broadcast, resolution) }
            case .deleted: break
            case .unknown:
                let isNew = acceptances.excludes(facts.task, facts.message.low, createdAt: facts.acceptedAt)
                if !isNew, !store.isCertainlyAbsent(key) { asked.append((broadcast, key)) }
            }
        }
        guard !asked.isEmpty else { return resolved(resolution, slot) }
        read(asked.map { .get($0.key) }) { shard, reply in
            if reply.failure == nil, reply.results.count == asked.count {
                for (wanted, result) in zip(asked, reply.results) {
                    let facts = shard.facts(slot, wanted.broadcast)
                    // A row written since the read began is newer than the read result.
                    if case .found(let location, let wakeAt) = shard.store.young(wanted.key) {
                        if let row = LedgerRow(shard.store.bytes(at: location)) {
                            shard.take(row, wakeAt, facts, wanted.broadcast, resolution)
                        }
                    } else if case .row(let stored?) = result, let row = LedgerRow(stored.bytes) {
                        shard.take(row, stored.wakeAt, facts, wanted.broadcast, resolution)
                    }
                }
            } else {
                resolution.isWhole = false
            }
            shard.resolved(resolution, slot)
        }
    }

    private func take(
        _ row: LedgerRow, _ wakeAt: GatewayTime, _ facts: MessageFacts, _ broadcast: LiveBroadcast,
        _ resolution: Resolution
    ) {
        resolution.highest = max(resolution.highest, facts.item)
        guard row.state == nil, row.cid == facts.cid else { return }
        let pending = Self.pending(row, wakeAt, facts, broadcast.record.content)
        resolution.found.append((pending, row.flags.contains(.live)))
    }

    /// Returns the facts with those of the row; `content` is that of the broadcast, `nil` if it is no longer live here.
    private static func pending(
        _ row: LedgerRow, _ wakeAt: GatewayTime, _ facts: MessageFacts, _ content: MessageContent?
    ) -> MessageFacts {
        var facts = facts
        if !row.flags.contains(.live) { facts.flags.insert(.offline) }
        if row.flags.contains(.sendCounted) { facts.flags.insert(.sendCounted) }
        facts.hasCallback = row.flags.contains(.callback)
        if row.fallback != .none { facts.flags.insert(.isArmed) }
        if let vendor = row.vendor {
            // The row stores the vendor chosen at acceptance. The device's tokens may have changed since then.
            facts.channels = ChannelSet(vendor)
            facts.strategy = facts.strategy.ofBroadcast(withReason: row.fallbackReason)
            if let content { facts.vendorCarriesAll = content.carriesAll(on: vendor) }
        }
        facts.wakeAt = wakeAt
        if row.fallback == .armed { facts.fallbackAt = wakeAt }
        return facts
    }

    private mutating func resolved(_ resolution: Resolution, _ slot: DeviceSlot) {
        for (facts, _) in resolution.found {
            resolution.outstanding += 1
            findJob(facts.message) { shard, job in
                switch job {
                case .found: resolution.withJob.insert(facts.message)
                case .absent: break
                case .unreadable: resolution.isWhole = false
                }
                shard.listResolved(resolution, slot)
            }
        }
        listResolved(resolution, slot)
    }

    private mutating func listResolved(_ resolution: Resolution, _ slot: DeviceSlot) {
        resolution.outstanding -= 1
        guard resolution.outstanding == 0 else { return }
        let device = devices.at(slot)
        if resolution.isWhole, device.value.endings != resolution.endings {
            // A message ended during the reads. The scan restarts because the message's old row must not return to memory.
            return askLedger(slot, completion: resolution.completion)
        }
        let hasLost = resolution.found.contains { facts, _ in
            resolution.withJob.contains(facts.message) && jobs.find(facts.message) == nil
        }
        if hasLost, resolution.isWhole {
            // A job left memory during the reads. The look-up restarts to avoid a second row for the job.
            resolution.withJob = []
            resolution.outstanding = 1
            return resolved(resolution, slot)
        }
        if resolution.isWhole {
            for (facts, wasLive) in resolution.found
            where listedMessage(table: .broadcast, item: facts.item, of: slot) == nil {
                var message = Message(cold: facts, device: slot)
                message.fallbackAt = facts.flags.contains(.isArmed) ? max(1, facts.fallbackAt) : 0
                let listed = list(message)
                let entry = messages.at(listed)
                // The live attempt was before the restart or in an earlier session. It is over if its deadline has passed or its
                // job exists. A row without a fallback does not contain the deadline.
                let deadline = facts.fallbackAt > 0 ? facts.fallbackAt : facts.acceptedAt + limits.liveDeadline
                if entry.value.job != .none || wasLive && deadline <= now {
                    entry.value.miss()
                }
                if entry.value.job != .none, jobs.at(entry.value.job).value.row.isCollapsed {
                    entry.value.markCollapsed()
                }
                armTimer(listed)
            }
            device.value.broadcastEvaluated = max(device.value.broadcastEvaluated, resolution.highest)
            device.value.noteResolved()
            device.value.settleBroadcasts(upTo: settledCursor(device))
        }
        resolution.completion(&self, resolution.isWhole ? .whole : .unreadable)
    }

    /// Runs a closure when the device is ready and all its pending broadcast messages are in memory.
    mutating func withBroadcasts(
        of cid: DeviceID, _ bucket: Bucket, isAlarm: Bool = false,
        completion: @escaping (inout Shard, DeviceSlot, Readiness) -> Void
    ) {
        whenReady(deviceSlot(cid, bucket: bucket), isAlarm: isAlarm) { shard, slot, readiness in
            guard readiness == .ready else { return completion(&shard, slot, readiness) }
            shard.resolveBroadcasts(slot) { shard, reading in
                completion(&shard, slot, reading == .whole ? .ready : .failed)
            }
        }
    }

    /// Handles the alarm of a ledger row on disk: its message's fallback or expiry.
    mutating func broadcastAlarmFired(_ key: StoreKey, _ row: LedgerRow) {
        let task = TaskID(high: key.ownerHigh, low: key.ownerLow)
        let (number, app) = (row.item, row.app)
        alarms.begin()
        withBroadcasts(of: row.cid, key.bucket, isAlarm: true) { shard, slot, readiness in
            defer { shard.alarmDone() }
            guard readiness == .ready else {
                if shard.mayRepeatAlarm(of: slot, readiness) { shard.alarms.retry(key, now: shard.now) }
                return
            }
            if let listed = shard.listedMessage(table: .broadcast, item: number, of: slot) {
                // A message in memory has a timer, possibly for a later time.
                if !shard.devices.at(slot).value.isConnected { shard.messageTimerFired(listed) }
            } else if shard.broadcast(number, of: app)?.task != task {
                shard.endForgotten(key, slot)
            }
            if shard.devices.isOccupied(slot) { shard.leaveBroadcasts(slot) }
        }
    }

    /// Retries an alarm whose row could not be read; see `fireFailedAlarms`.
    mutating func retryBroadcastAlarm(_ key: StoreKey) {
        lookUp(key) { shard, found in
            switch found {
            case .unreadable: shard.alarms.retry(key, now: shard.now)
            case .absent: break
            case .found(let stored):
                if let row = LedgerRow(stored.bytes), row.state == nil { shard.broadcastAlarmFired(key, row) }
            }
        }
    }

    /// Ends a pending message whose broadcast is no longer live here.
    private mutating func endForgotten(_ key: StoreKey, _ slot: DeviceSlot) {
        whileBusy(slot) { shard, done in
            shard.findForgotten(key, completion: done)
        } then: { shard, found in
            switch found {
            case .found(let pending): shard.endUnlisted(pending.facts, .expired, reason: "", job: pending.job, slot)
            case .absent: break
            // The store reports an alarm only once.
            case .unreadable: shard.alarms.retry(key, now: shard.now)
            }
        }
    }

    private mutating func findForgotten(
        _ key: StoreKey, completion: @escaping (inout Shard, Found<PendingMessage>) -> Void
    ) {
        lookUp(key) { shard, found in
            switch found {
            case .unreadable: return completion(&shard, .unreadable)
            case .absent: return completion(&shard, .absent)
            case .found(let stored):
                guard let row = LedgerRow(stored.bytes), row.state == nil else { return completion(&shard, .absent) }
                var pending = PendingMessage(facts: Self.facts(of: row, key, stored.wakeAt))
                shard.findJob(pending.facts.message) { shard, job in
                    switch job {
                    case .unreadable: return completion(&shard, .unreadable)
                    case .found(let job): pending.job = job
                    case .absent: break
                    }
                    completion(&shard, .found(pending))
                }
            }
        }
    }

    private mutating func endUnlisted(
        _ facts: MessageFacts, _ state: FinalState, reason: String, job: JobSlot, _ slot: DeviceSlot
    ) {
        let wasAlerted = job != .none && jobs.at(job).value.row.alertedAt > 0
        inBatch(of: slot) { shard in
            shard.end(
                facts, state == .expired ? .atExpiry(wasAlerted: wasAlerted) : state, reason: reason, message: .none,
                job: job)
        }
    }

    static func facts(
        of row: LedgerRow, _ key: StoreKey, _ wakeAt: GatewayTime, _ content: MessageContent? = nil
    ) -> MessageFacts {
        let task = TaskID(high: key.ownerHigh, low: key.ownerLow)
        var facts = MessageFacts(
            message: MessageID(bucket: key.bucket, acceptedAt: row.acceptedAt, digest: key.item), task: task,
            app: row.app, cid: row.cid, strategy: .ofBroadcast(withReason: row.fallbackReason),
            flags: [.bulk], table: .broadcast, item: row.item, acceptedAt: row.acceptedAt,
            expiresAt: expiry(row, wakeAt), fallbackAt: 0, wakeAt: wakeAt,
            timeToLive: row.timeToLive, byteCount: 0)
        facts.vendorCarriesAll = content?.vendorCarriesAll ?? false
        return pending(row, wakeAt, facts, content)
    }

    /// Returns the message's expiry; for an alerted or one-shot message, the row's alarm.
    private static func expiry(_ row: LedgerRow, _ wakeAt: GatewayTime) -> GatewayTime {
        row.flags.contains(.alerted) ? wakeAt : max(wakeAt, row.acceptedAt + max(0, row.timeToLive))
    }

    /// Finds a pending broadcast message that has only its ledger row: not in memory, no job; see `findPending`.
    mutating func findPendingBroadcast(
        _ id: MessageID, number: UInt64, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, Found<PendingMessage>) -> Void
    ) {
        let app = apps[Int(devices.at(slot).value.appIndex)].key
        guard knowsBroadcasts(of: app) else { return completion(&self, .unreadable) }
        guard let broadcast = broadcast(number, of: app) else { return completion(&self, .absent) }
        let key = StoreKey(devices.at(slot).value.bucket, .taskMessage, broadcast.task, item: id.low)
        lookUp(key) { shard, found in
            switch found {
            case .unreadable: completion(&shard, .unreadable)
            case .absent: completion(&shard, .absent)
            case .found(let stored):
                guard let row = LedgerRow(stored.bytes), row.state == nil else { return completion(&shard, .absent) }
                let facts = Self.facts(of: row, key, stored.wakeAt, broadcast.record.content)
                completion(&shard, .found(PendingMessage(facts: facts)))
            }
        }
    }

    /// Withdraws a due job of a broadcast that must no longer be sent to the vendor.
    mutating func withdrawLease(_ slot: JobSlot, isSuperseded: Bool) {
        let entry = jobs.at(slot)
        let device = entry.value.device
        guard isSuperseded else {
            // The task is ending and will end the job. Until then a later due time keeps the job out of leases.
            entry.value.row.dueAt = now + limits.retryDelay.lowerBound
            placeJob(slot)
            return
        }
        inBatch(of: device) { shard in
            // The session may have sent a message in memory. Its ack is then valid, so `collapse` only cancels the job.
            guard entry.value.message == .none else {
                shard.collapse(entry.value.message)
                return
            }
            shard.end(entry.value.row.facts, .collapsed, message: .none, job: slot)
        }
    }
}
