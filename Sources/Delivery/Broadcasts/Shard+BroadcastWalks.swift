// The walks of a broadcast: over the sessions of this loop when it goes out, over its devices' rows when their jobs are due
// and when its time is over. Each is done in slices; between two of them the loop does everything else.

internal import Structures
public import Wire

/// A step of a walk over rows: some devices must be read first.
private final class WalkStep {
    let walk: BroadcastWalk
    let origin: Origin
    var count = 0
    var found: [DeviceID] = []
    var outstanding = 1
    var isWhole = true
    init(_ walk: BroadcastWalk, _ origin: Origin) { (self.walk, self.origin) = (walk, origin) }
}

extension Shard {
    /// Takes over what a start found in the logs.
    mutating func restore(_ start: BroadcastStart) {
        numbers.damagedRows &+= UInt64(start.damagedRows)
        for (app, head) in start.heads { broadcasts.raiseHead(of: app, to: head, apps) }
        let records = start.records.sorted {
            ($0.app.word, $0.broadcast?.number ?? 0) < ($1.app.word, $1.broadcast?.number ?? 0)
        }
        for record in records where record.isStreamed { broadcasts.keep(record) }
        for record in records where record.id.home.loop(of: start.share.count) == start.share.index {
            resume(record)
        }
    }

    /// A walk that the last life left half done goes on at once, not when somebody's patience is over.
    private mutating func resume(_ record: TaskRecord) {
        guard let plan = record.broadcast else { return }
        if record.state == .open {
            let isDue = plan.position > 0 || !record.isStreamed || now >= plan.launchedAt + limits.liveDeadline
            guard record.needsWalk, plan.position < Bucket.count, isDue else { return }
        }
        tasks.resume(record.id, now: now)
    }

    // MARK: Sessions

    /// A broadcast is out: whoever is connected here meets it, a slice at a time.
    ///
    /// Call `continueBroadcasts` turn by turn while `hasBroadcastsAtHand`. `loopCount` loops share its speed.
    public mutating func launch(_ record: TaskRecord, loopCount: Int, now: GatewayTime) {
        begin(now)
        guard let number = record.broadcast?.number, number > 0 else { return }
        if record.isStreamed { broadcasts.keep(record) }
        broadcasts.raiseHead(of: record.app, to: number, apps)
        guard record.isStreamed else { return }
        broadcasts.walk(record.app, slotCount: sessions.slotCount, loopCount: loopCount)
        walkSessions()
    }

    public var hasBroadcastsAtHand: Bool { broadcasts.nextStep <= now }

    /// Meets the next slice of sessions with what is new to them.
    public mutating func continueBroadcasts(now: GatewayTime) {
        begin(now)
        walkSessions()
    }

    mutating func walkSessions() {
        for app in broadcasts.walkedApps { walkSessions(of: app) }
    }

    private mutating func walkSessions(of app: AppKey) {
        guard var hand = broadcasts.walk(of: app), hand.pausedUntil <= now else { return }
        var paced: [LiveBroadcast] = []
        if let log = broadcasts.log(of: app) { paced = log.live.filter { !$0.isOver && $0.plan.speed > 0 } }
        for _ in 0..<limits.broadcastSlice where hand.left > 0 && sessions.slotCount > 0 {
            // What is behind on its way to the disk goes first, as do those who walk slowly on purpose.
            guard store.acceptsWrites, paced.allSatisfy({ $0.mayWalk(now, share: hand.loopCount) }) else {
                hand.pausedUntil = now + 20
                break
            }
            if hand.place >= sessions.slotCount { hand.place = 0 }
            let found = sessions.device(at: UInt32(hand.place))
            hand.place += 1
            hand.left -= 1
            guard let device = found else { continue }
            if apps[Int(devices.pointer(device).pointee.appIndex)].key == app { pump(device) }
        }
        broadcasts.setWalk(of: app, hand.left == 0 || sessions.slotCount == 0 ? nil : hand)
    }

    /// Nothing of a task goes out any more here.
    mutating func closeBroadcast(_ task: TaskID, _ app: AppKey, _ state: FinalState) {
        if isPlanted(.broadcastGoesOnAfterStop) { return }
        broadcasts.close(task, app, as: state)
    }

    /// A broadcast that everybody has been counted for is forgotten.
    public mutating func forgetBroadcast(_ task: TaskID, _ app: AppKey) {
        broadcasts.forget(task, app)
    }

    // MARK: Devices by their rows

    /// Does one step of a walk; `.walked` when all that it wrote is durable, `.busy` when it must be done again.
    mutating func walk(_ walk: BroadcastWalk, _ origin: Origin) {
        guard let plan = walk.record.broadcast, store.acceptsWrites else { return answer(origin, .busy) }
        if walk.purpose == .enumerate, isFull(Int(appIndex(walk.record.app))) {
            // The senders are behind; more jobs would only fill the memory.
            return answer(origin, .busy)
        }
        if walk.purpose != .deal, broadcast(plan.number, of: walk.record.app) == nil {
            // Over everywhere, or not heard of yet.
            return answer(origin, walk.record.isStreamed ? .busy : .walked(0, []))
        }
        if case .close(let state) = walk.purpose { closeBroadcast(walk.record.id, walk.record.app, state) }
        let step = WalkStep(walk, origin)
        let first = walk.buckets.lowerBound
        let rest = (walk.share.index - first % walk.share.count + walk.share.count) % walk.share.count
        walkTags(
            of: walk.record.app, where: plan.audience, first: first + rest, stride: walk.share.count,
            end: min(walk.buckets.upperBound, walk.share.bucketCount)
        ) { shard, bucket, found in
            for cid in found {
                step.outstanding += 1
                shard.visit(cid, bucket, step)
            }
        } finish: { shard, isWhole in
            if !isWhole { step.isWhole = false }
            shard.stepDone(step)
        }
    }

    private mutating func stepDone(_ step: WalkStep) {
        step.outstanding -= 1
        guard step.outstanding == 0 else { return }
        answer(step.origin, step.isWhole ? .walked(step.count, step.found) : .busy)
    }

    private mutating func visit(_ cid: DeviceID, _ bucket: Bucket, _ step: WalkStep) {
        let act: (inout Shard, UInt32, Readiness) -> Void = { shard, slot, readiness in
            guard readiness == .ready,
                shard.apps[Int(shard.devices.pointer(slot).pointee.appIndex)].key == step.walk.record.app
            else {
                // A row that is damaged stays so: its device is told of in the log, and must not hold up all others.
                let isPassedOver =
                    shard.devices.pointer(slot).pointee.flags.contains(.damaged)
                    || step.walk.purpose == .deal && shard.isPlanted(.dealtPastUnread)
                if readiness.mayBeRepeated, !isPassedOver { step.isWhole = false }
                return shard.stepDone(step)
            }
            switch step.walk.purpose {
            case .deal:
                let registeredAt = shard.devices.pointer(slot).pointee.registeredAt
                let isMeant =
                    registeredAt <= step.walk.record.broadcast?.launchedAt ?? 0 || shard.isPlanted(.dealtToNewcomers)
                if isMeant, !shard.isIgnored(slot) {
                    step.found.append(cid)
                }
                shard.stepDone(step)
            case .enumerate:
                shard.enumerate(slot, step)
                shard.stepDone(step)
            case .close(let state):
                shard.closeFor(slot, state, step)
                shard.stepDone(step)
            }
            if shard.devices.isOccupied(slot), !shard.devices.pointer(slot).pointee.isLoaded { shard.freeIfEmpty(slot) }
        }
        if step.walk.purpose == .deal {
            whenReady(deviceSlot(cid, bucket: bucket), act)
        } else {
            withBroadcasts(of: cid, bucket, completion: act)
        }
    }

    /// Makes the job of a device that is behind.
    private mutating func enumerate(_ slot: UInt32, _ step: WalkStep) {
        let app = step.walk.record.app
        guard let number = step.walk.record.broadcast?.number, let broadcast = broadcast(number, of: app),
            !broadcast.isOver, !isOver(broadcast.plan.expiresAt)
        else { return }
        pump(slot)
        let device = devices.pointer(slot)
        if number <= device.pointee.broadcastEvaluated, !isPlanted(.enumeratorAlertsAll) {
            // Met; only a job that a crash has lost is made up for.
            if let listed = listedMessage(table: .broadcast, item: number, of: slot), !device.pointee.isConnected {
                messageTimerFired(listed)
                if devices.isOccupied(slot) { leaveBroadcasts(slot) }
            }
            return
        }
        let hasToken = broadcast.record.content.vendor.map { device.pointee.flags.contains(.token($0.tokenKind)) }
        guard hasToken == true, isTarget(slot, broadcast) else { return }
        evaluateUpTo(broadcast, slot)
        step.count += 1
        numbers.broadcastEnumerated &+= 1
        if devices.pointer(slot).pointee.isConnected {
            // It may have come into reach meanwhile, and nothing else would send it what is durable then.
            let cid = devices.pointer(slot).pointee.cid
            whenDurable(.resume(device: slot, cid: cid))
        }
        leaveBroadcasts(slot)
    }

    /// Gives a device that never met a broadcast, or has not settled it, its end.
    private mutating func closeFor(_ slot: UInt32, _ state: FinalState, _ step: WalkStep) {
        let app = step.walk.record.app
        guard let number = step.walk.record.broadcast?.number, let broadcast = broadcast(number, of: app) else {
            return
        }
        if let listed = listedMessage(table: .broadcast, item: number, of: slot) {
            endClosed(messages.pointer(listed).pointee.facts, state, listed, messages.pointer(listed).pointee.job, slot)
            step.count += 1
        } else if number > devices.pointer(slot).pointee.broadcastEvaluated {
            evaluateUpTo(broadcast, slot)
            step.count += 1
        }
        if devices.isOccupied(slot) { leaveBroadcasts(slot) }
    }

    /// Meets a device that is out of reach with a broadcast, and before it with all that are live and older: a device's
    /// messages are for numbers up to `broadcastEvaluated` and for no others.
    ///
    /// Of a device that is in reach all the same, the earlier ones wait for their turn as live ones.
    mutating func evaluateUpTo(_ broadcast: LiveBroadcast, _ slot: UInt32, earlierIsLive: Bool = false) {
        for earlier in broadcasts.log(of: broadcast.record.app)?.live ?? []
        where earlier.number > devices.pointer(slot).pointee.broadcastEvaluated && earlier.number < broadcast.number {
            evaluate(slot, earlier, isLive: earlierIsLive)
        }
        evaluate(slot, broadcast, isLive: false)
    }

    private mutating func endClosed(
        _ facts: MessageFacts, _ state: FinalState, _ message: UInt32, _ job: UInt32, _ slot: UInt32
    ) {
        if state == .expired, job != .max, jobs.pointer(job).pointee.row.state == .leased,
            jobs.pointer(job).pointee.row.leasedUntil > now
        {
            return  // its timer sees to it when the lease is over
        }
        let wasAlerted = job != .max && jobs.pointer(job).pointee.row.alertedAt > 0
        inBatch(of: slot) { shard in
            shard.end(
                facts, state == .expired && wasAlerted ? .handedOff : state, reason: state == .revoked ? "stopped" : "",
                message: message, job: job)
        }
    }
}
