// The bound of due and held jobs in memory, app by app, and the jobs beyond it.
//
// Each app has a share of `dueJobReadAhead`. It may take more while all apps together are below that. An app whose
// share is full leaves the rest in the store. The store passes over their alarms, and looks again when the app has room
// (`AlarmGroup`). Held jobs count apart: those of devices with push mode off, say, keep no due job from its sender.

internal import Structures
internal import Wire

extension Shard {
    /// The due jobs that each app may have in memory, whatever the others have.
    private var dueShare: Int {
        max(limits.dueJobReadAhead / max(1, apps.count), min(limits.dueJobReadAhead, ShardLimits.smallestDueShare))
    }

    /// True when the shard reads no more due jobs of the app.
    func isFull(_ app: Int) -> Bool { jobs.dueCount >= limits.dueJobReadAhead && jobs.dueCount(of: app) >= dueShare }

    func isOverfull(_ app: Int) -> Bool { jobs.dueCount > limits.dueJobReadAhead && jobs.dueCount(of: app) > dueShare }

    func isHeldOverfull(_ app: Int) -> Bool {
        jobs.heldCount > limits.dueJobReadAhead && jobs.heldCount(of: app) > dueShare
    }

    // MARK: Asking

    /// When one of the groups is due for a look.
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
        // Jobs left for want of room are due as soon as there is room.
        return max(hasRoom(group.app) ? 0 : next, pause)
    }

    private func hasRoom(_ key: AppKey) -> Bool {
        guard let app = apps.index(of: key) else { return true }
        return !isFull(app)
    }

    /// Takes due alarms from the store, a bounded number at a time; those of jobs only as far as their app has room.
    mutating func askForAlarms() {
        guard alarms.mayAsk(now), let request = nextAlarmRequest() else { return }
        alarms.asked()
        let token = store.requestAlarms(request)
        core.continuations[token] = { shard, reply in
            shard.alarms.answered(request.group, hasFailed: reply.failure != nil, now: shard.now)
            guard case .rows(let rows, _)? = reply.results.first else { return }
            // Held until the work on all rows has begun, so that a finished row does not ask for more in between.
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

    // MARK: What goes back

    /// Gives a job that the store has just reported back to it, when its app has too many.
    ///
    /// A job whose end or timeout is due stays: the store would report it again at once, and so on for ever.
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

    /// Gives a held job back to the store when too many are in memory.
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

    /// Makes the device's held jobs in the store due for a look, unless push mode or the blacklist still silences it.
    mutating func recallJobs(of slot: DeviceSlot) {
        guard devices.isOccupied(slot) else { return }
        let device = devices.at(slot)
        guard !device.value.isSilenced, device.value.takeHeldInStore() else { return }
        store.recallAlarms(
            of: AlarmGroup(app: apps[Int(device.value.appIndex)].key, kind: .held), in: device.value.bucket)
    }
}
