// The bound of due and held jobs in memory, per app.
//
// Each app has a share of `dueJobReadAhead` and may exceed it while all apps together are below the bound. The store keeps
// further jobs of a full app, skips their alarms, and reads them when the app has room (`AlarmGroup`). Held jobs are bounded
// separately, so that jobs of silenced devices do not displace due jobs.

internal import Structures
internal import Wire

extension Shard {
    private var dueShare: Int {
        max(limits.dueJobReadAhead / max(1, apps.count), min(limits.dueJobReadAhead, ShardLimits.smallestDueShare))
    }

    /// Returns whether the shard stops reading due jobs of the app.
    func isFull(_ app: Int) -> Bool { jobs.dueCount >= limits.dueJobReadAhead && jobs.dueCount(of: app) >= dueShare }

    func isOverfull(_ app: Int) -> Bool { jobs.dueCount > limits.dueJobReadAhead && jobs.dueCount(of: app) > dueShare }

    func isHeldOverfull(_ app: Int) -> Bool {
        jobs.heldCount > limits.dueJobReadAhead && jobs.heldCount(of: app) > dueShare
    }

    // MARK: Asking

    var nextGroupAlarm: GatewayTime {
        var next = GatewayTime.max
        for group in store.alarmGroups { next = min(next, nextAlarm(of: group)) }
        return next
    }

    private func nextAlarm(of group: AlarmGroup) -> GatewayTime {
        let next = store.nextAlarm(of: group)
        guard next < .max else { return next }
        let pause = alarms.pause(of: group)
        guard group.kind != .held else { return max(next, pause) }
        // Jobs skipped for lack of room are due as soon as there is room.
        return max(hasRoom(group.app) ? 0 : next, pause)
    }

    private func hasRoom(_ key: AppKey) -> Bool {
        guard let app = apps.index(of: key) else { return true }
        return !isFull(app)
    }

    /// Requests due alarms from the store, up to the batch size and the apps' room.
    mutating func askForAlarms() {
        guard alarms.mayAsk(now), let request = nextAlarmRequest() else { return }
        alarms.asked()
        let token = store.requestAlarms(request)
        core.continuations[token] = { shard, reply in
            shard.alarms.answered(request.group, hasFailed: reply.failure != nil, now: shard.now)
            guard case .rows(let rows, _)? = reply.results.first else { return }
            // Blocks further requests until the work on all rows has begun.
            shard.alarms.begin()
            for row in rows { shard.alarmFired(row) }
            shard.alarmDone()
        }
    }

    private mutating func nextAlarmRequest() -> AlarmRequest? {
        var due: Set<AlarmGroup> = []
        let groups = store.alarmGroups
        for group in groups where nextAlarm(of: group) <= now { due.insert(group) }
        switch alarms.nextTurn(groups, isMainDue: store.nextAlarm <= now, isDue: { due.contains($0) }) {
        case .main: return request(nil)
        case .group(let group): return request(group)
        case nil: return nil
        }
    }

    private func request(_ group: AlarmGroup?) -> AlarmRequest {
        var request = AlarmRequest(upTo: now, limit: limits.alarmBatch, group: group)
        request.vendorTimeout = limits.vendorFirstPatience
        request.ignoresSuccessors = isPlanted(.successorIgnored)
        for index in apps.indices where isFull(index) { request.fullApps.append(apps[index].key) }
        if let group, group.kind != .held, hasRoom(group.app) {
            request.isEager = true
            if let app = apps.index(of: group.app) {
                let room = max(dueShare - jobs.dueCount(of: app), limits.dueJobReadAhead - jobs.dueCount)
                request.limit = max(1, min(request.limit, room))
            }
        }
        return request
    }

    // MARK: Returning jobs to the store

    /// Returns a reported job to the store if its app has too many due jobs in memory.
    ///
    /// A job whose expiry or timeout is due stays in memory; otherwise the store would report it again immediately, in an endless
    /// loop.
    mutating func leaveIfOverfull(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard entry.value.place == .due else { return leaveIfHeld(slot) }
        guard isOverfull(Int(entry.value.appIndex)), entry.value.isCold, entry.value.message == .none,
            entry.value.row.wakeAt == entry.value.storedWakeAt
        else { return }
        let until = entry.value.row.mayWait(limits.vendorFirstPatience)
        guard until > now else { return }
        store.leaveAlarm(
            entry.value.alarmKey, wakeAt: entry.value.storedWakeAt, in: entry.value.row.group, until: until)
        forgetJob(slot)
    }

    mutating func leaveIfHeld(_ slot: JobSlot) {
        let entry = jobs.at(slot)
        guard entry.value.place == .held, entry.value.wasReported, entry.value.isCold,
            entry.value.message == .none, isHeldOverfull(Int(entry.value.appIndex)),
            entry.value.row.wakeAt == entry.value.storedWakeAt
        else { return }
        let facts = entry.value.row.facts
        let soon = now + limits.heldJobPause.lowerBound
        store.leaveAlarm(
            entry.value.alarmKey, wakeAt: entry.value.storedWakeAt, in: AlarmGroup(app: facts.app, kind: .held),
            until: max(soon, min(facts.expiresAt, now + limits.heldJobPause.upperBound)))
        devices.at(entry.value.device).value.noteHeldInStore()
        forgetJob(slot)
    }

    /// Makes the store report the device's held jobs again, unless push mode off or the blacklist still silences the device.
    mutating func recallJobs(of slot: DeviceSlot) {
        guard devices.isOccupied(slot) else { return }
        let device = devices.at(slot)
        guard !device.value.isSilenced, device.value.takeHeldInStore() else { return }
        store.recallAlarms(
            of: AlarmGroup(app: apps[Int(device.value.appIndex)].key, kind: .held), in: device.value.bucket)
    }
}
