// The scans of a broadcast. The launch scans this loop's sessions. Later scans read the rows of the app's devices: to make jobs,
// to fan the broadcast out, or to end it. Each scan runs in slices, so that the loop can do other work in between.

internal import Structures
package import Wire

private final class ScanStep {
    let scan: ScanBroadcast
    let reply: ShardReply<ScanBroadcast.Step?>
    var count = 0
    var found: [DeviceID] = []
    var outstanding = 1
    var isWhole = true
    init(_ scan: ScanBroadcast, _ reply: ShardReply<ScanBroadcast.Step?>) { (self.scan, self.reply) = (scan, reply) }
}

extension Shard {
    mutating func restore(_ start: BroadcastStart) {
        numbers.damagedRows &+= UInt64(start.damagedRows)
        if start.hasOwnOnly { broadcasts.knowsOnly(start.share) }
        for (app, head) in start.heads {
            broadcasts.raiseHead(of: app, to: head.number)
            if head.history != history.id { broadcasts.skip(history.broadcastStep, of: app) }
        }
        broadcasts.setApps(apps.entries)
        let records = start.records.sorted {
            ($0.app.word, $0.broadcast?.number ?? 0) < ($1.app.word, $1.broadcast?.number ?? 0)
        }
        for record in records where record.isStreamed { broadcasts.keep(record) }
        for record in records where record.id.home.loop(of: start.share.count) == start.share.index {
            continueScan(record)
        }
    }

    /// Resumes an interrupted scan immediately, without the retry delay.
    private mutating func continueScan(_ record: TaskRecord) {
        guard let plan = record.broadcast else { return }
        if record.state == .open {
            let isDue = plan.position > 0 || !record.isStreamed || now >= plan.launchedAt + limits.liveDeadline
            guard record.needsScan, plan.position < Bucket.count, isDue else { return }
        }
        tasks.resume(record.id, now: now)
    }

    // MARK: Sessions

    /// Launches a broadcast: the shard evaluates it for connected devices, one slice per turn.
    ///
    /// The gateway calls `continueWork` every turn while `hasWorkAtHand`. `loopCount` loops share the speed.
    ///
    /// - Returns: false if an earlier broadcast is unknown. The shard then ignores this one, and the gateway calls `learn` with
    ///   the whole log. With a gap in the log, devices would miss broadcasts.
    @discardableResult
    package mutating func launch(_ record: TaskRecord, loopCount: Int, now: GatewayTime) -> Bool {
        begin(now)
        guard let number = record.broadcast?.number, number > 0 else { return true }
        let head = broadcasts.log(of: record.app)?.head ?? 0
        // The broadcast is already known, or even closed and removed.
        guard number > head else { return true }
        guard broadcasts.isNext(number, of: record.app), !broadcasts.isUnknown(record.app) else { return false }
        if record.isStreamed {
            broadcasts.keep(record)
            if tasks.isStopped(record.id) { closeBroadcast(record.id, record.app, .revoked) }
        }
        broadcasts.raiseHead(of: record.app, to: number)
        broadcasts.setApps(apps.entries)
        guard record.isStreamed else { return true }
        broadcasts.scan(record.app, slotCount: sessions.slotCount, loopCount: loopCount)
        scanSessions()
        return true
    }

    /// Adds the logs of apps whose home is another shard, and removes broadcasts that the home has closed.
    ///
    /// The shard then evaluates broadcasts for devices that connected before their app's log was known. The logs may arrive in
    /// consecutive pieces; they count as known after the last one.
    ///
    /// - Returns: false for a piece after a gap. That log is ignored, and the gateway requests everything from the start.
    @discardableResult
    package mutating func learn(
        _ logs: [AppBroadcasts], of home: Int, isLast: Bool = true, loopCount: Int, now: GatewayTime
    ) -> Bool {
        begin(now)
        var isWhole = true
        for log in logs where log.app.home.loop(of: loopCount) == home {
            guard let bounds = log.bounds, bounds.after <= broadcasts.log(of: log.app)?.head ?? 0 else {
                isWhole = false
                continue
            }
            broadcasts.forgetClosed(log)
            broadcasts.raiseHead(of: log.app, to: bounds.through)
            for record in log.records where record.isStreamed {
                broadcasts.keep(record)
                // The record may be older than a stop that this shard has executed.
                if tasks.isStopped(record.id) { closeBroadcast(record.id, record.app, .revoked) }
            }
            broadcasts.scan(log.app, slotCount: sessions.slotCount, loopCount: loopCount)
        }
        broadcasts.setApps(apps.entries)
        // The log is complete. Pending messages are loaded before anything new is evaluated.
        if isLast, isWhole, broadcasts.told(by: home) { resolveSessions(of: home, of: loopCount) }
        scanSessions()
        return isWhole
    }

    /// Loads the pending messages of devices that got their Welcome before their app's log was known, one slice per turn.
    private mutating func resolveSessions(of home: Int, of loopCount: Int, from first: Int = 0) {
        let end = min(sessions.slotCount, first + limits.broadcastSlice)
        for place in first..<max(first, end) {
            guard let slot = sessions.device(at: UInt32(place)) else { continue }
            let device = devices.at(slot)
            guard !device.value.flags.contains(.resolved),
                apps[Int(device.value.appIndex)].key.home.loop(of: loopCount) == home
            else { continue }
            whenReady(slot) { shard, slot, readiness in
                guard readiness == .ready else { return shard.endUnresolved(slot) }
                shard.resolveBroadcasts(slot) { shard, reading in
                    if reading == .whole { shard.pump(slot) } else { shard.endUnresolved(slot) }
                }
            }
        }
        guard end < sessions.slotCount else { return }
        later { $0.resolveSessions(of: home, of: loopCount, from: end) }
    }

    /// Closes a session whose pending broadcasts cannot be loaded; the device reconnects and then gets them.
    private mutating func endUnresolved(_ slot: DeviceSlot) {
        guard devices.isOccupied(slot), devices.at(slot).value.isConnected else { return }
        close(slot, .storeUnavailable, "the device's broadcasts cannot be read now")
    }

    package func broadcastHead(of app: AppKey) -> UInt64 { broadcasts.log(of: app)?.head ?? 0 }

    package var hasBroadcastsAtHand: Bool { broadcasts.nextStep <= now }

    mutating func scanSessions() {
        for app in broadcasts.scannedApps { scanSessions(of: app) }
    }

    private mutating func scanSessions(of app: AppKey) {
        guard var hand = broadcasts.scan(of: app), hand.pausedUntil <= now else { return }
        var paced: [LiveBroadcast] = []
        if let log = broadcasts.log(of: app) { paced = log.live.filter { !$0.isOver && $0.plan.speed > 0 } }
        for _ in 0..<limits.broadcastSlice where hand.left > 0 && sessions.slotCount > 0 {
            // The scan pauses while the store is behind or a broadcast's rate limit is reached.
            guard store.acceptsWrites, paced.allSatisfy({ $0.mayScan(now, share: hand.loopCount) }) else {
                hand.pausedUntil = now + 20
                break
            }
            if hand.place >= sessions.slotCount { hand.place = 0 }
            let found = sessions.device(at: UInt32(hand.place))
            hand.place += 1
            hand.left -= 1
            guard let device = found else { continue }
            if apps[Int(devices.at(device).value.appIndex)].key == app { pump(device) }
        }
        broadcasts.setScan(of: app, hand.left == 0 || sessions.slotCount == 0 ? nil : hand)
    }

    /// Closes a broadcast on this shard: none of its messages is sent from now on.
    mutating func closeBroadcast(_ task: TaskID, _ app: AppKey, _ state: FinalState) {
        if isPlanted(.broadcastGoesOnAfterStop) { return }
        broadcasts.close(task, app, as: state)
    }

    package mutating func forgetBroadcast(_ task: TaskID, _ app: AppKey) {
        broadcasts.forget(task, app)
    }

    // MARK: Devices by their rows

    fileprivate mutating func stepDone(_ step: ScanStep) {
        step.outstanding -= 1
        guard step.outstanding == 0 else { return }
        guard step.isWhole else { return answerBusy(step.reply) }
        answer(step.reply, ScanBroadcast.Step(count: step.count, devices: step.found))
    }

    fileprivate mutating func visit(_ cid: DeviceID, _ bucket: Bucket, _ step: ScanStep) {
        let act: (inout Shard, DeviceSlot, Readiness) -> Void = { shard, slot, readiness in
            guard readiness == .ready,
                shard.apps[Int(shard.devices.at(slot).value.appIndex)].key == step.scan.record.app
            else {
                // A damaged row stays damaged and is logged. It must not stop the scan for all other devices.
                let isPassedOver =
                    shard.devices.at(slot).value.flags.contains(.damaged)
                    || step.scan.purpose == .deal && shard.isPlanted(.dealtPastUnread)
                if readiness.mayBeRepeated, !isPassedOver { step.isWhole = false }
                return shard.stepDone(step)
            }
            switch step.scan.purpose {
            case .deal:
                let registeredAt = shard.devices.at(slot).value.registeredAt
                let isMeant =
                    registeredAt <= step.scan.record.broadcast?.launchedAt ?? 0 || shard.isPlanted(.dealtToNewcomers)
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
            if shard.devices.isOccupied(slot), !shard.devices.at(slot).value.isLoaded { shard.freeIfEmpty(slot) }
        }
        if step.scan.purpose == .deal {
            whenReady(deviceSlot(cid, bucket: bucket), act)
        } else {
            withBroadcasts(of: cid, bucket, completion: act)
        }
    }

    private mutating func enumerate(_ slot: DeviceSlot, _ step: ScanStep) {
        let app = step.scan.record.app
        guard let number = step.scan.record.broadcast?.number, let broadcast = broadcast(number, of: app),
            !broadcast.isOver, !isOver(broadcast.plan.expiresAt)
        else { return }
        pump(slot)
        let device = devices.at(slot)
        if number <= device.value.broadcastEvaluated, !isPlanted(.enumeratorAlertsAll) {
            // The broadcast was evaluated. The shard only makes the job that a crash may have lost.
            if let listed = listedMessage(table: .broadcast, item: number, of: slot), !device.value.isConnected {
                messageTimerFired(listed)
                if devices.isOccupied(slot) { leaveBroadcasts(slot) }
            }
            return
        }
        let appHasTopic = apps[Int(device.value.appIndex)].hasTopic
        let hasToken = broadcast.record.content.vendors.contains {
            device.value.hasToken(for: $0.need, appHasTopic: appHasTopic)
        }
        guard hasToken, isTarget(slot, broadcast) else { return }
        evaluateUpTo(broadcast, slot)
        step.count += 1
        numbers.broadcastEnumerated &+= 1
        if devices.at(slot).value.isConnected {
            // The device may have become reachable during the step. Nothing else would send it the message after the commit.
            let cid = devices.at(slot).value.cid
            whenDurable(.resume(device: slot, cid: cid))
        }
        leaveBroadcasts(slot)
    }

    private mutating func closeFor(_ slot: DeviceSlot, _ state: FinalState, _ step: ScanStep) {
        let app = step.scan.record.app
        guard let number = step.scan.record.broadcast?.number, let broadcast = broadcast(number, of: app) else {
            return
        }
        if let listed = listedMessage(table: .broadcast, item: number, of: slot) {
            endClosed(messages.at(listed).value.facts, state, listed, messages.at(listed).value.job, slot)
            step.count += 1
        } else if number > devices.at(slot).value.broadcastEvaluated {
            evaluateUpTo(broadcast, slot)
            step.count += 1
        }
        if devices.isOccupied(slot) { leaveBroadcasts(slot) }
    }

    /// Evaluates all earlier live broadcasts for a device, then this one as for an unreachable device.
    ///
    /// The order is necessary because a device has messages only for numbers up to `broadcastEvaluated`. With `earlierIsLive`,
    /// the earlier broadcasts are sent live.
    mutating func evaluateUpTo(_ broadcast: LiveBroadcast, _ slot: DeviceSlot, earlierIsLive: Bool = false) {
        for earlier in broadcasts.log(of: broadcast.record.app)?.live ?? []
        where earlier.number > devices.at(slot).value.broadcastEvaluated && earlier.number < broadcast.number {
            evaluate(slot, earlier, isLive: earlierIsLive)
        }
        evaluate(slot, broadcast, isLive: false)
    }

    private mutating func endClosed(
        _ facts: MessageFacts, _ state: FinalState, _ message: MessageSlot, _ job: JobSlot, _ slot: DeviceSlot
    ) {
        if state == .expired, job != .none, jobs.at(job).value.row.state == .leased,
            jobs.at(job).value.row.leasedUntil > now
        {
            return  // the job's timer handles the lease's end
        }
        let wasAlerted = job != .none && jobs.at(job).value.row.alertedAt > 0
        inBatch(of: slot) { shard in
            shard.end(
                facts, state == .expired ? .atExpiry(wasAlerted: wasAlerted) : state,
                reason: state == .revoked ? "stopped" : "", message: message, job: job)
        }
    }
}

/// Does one step of a broadcast's scan in these buckets; the answer follows when all writes are durable.
///
/// `nil`: the caller must repeat the step.
package struct ScanBroadcast: ShardQuestion {
    package enum Purpose: Sendable, Equatable, Codable {
        /// Make jobs for devices for which the broadcast is not evaluated.
        case enumerate
        /// Return the devices for which the broadcast becomes an ordinary message.
        case deal
        /// End the broadcast with this state for all other devices.
        case close(FinalState)
    }

    package struct Step: Sendable, Codable {
        /// The number of jobs made or messages ended.
        package var count: Int
        /// The devices for a fan-out.
        package var devices: [DeviceID]
        package init(count: Int = 0, devices: [DeviceID] = []) { (self.count, self.devices) = (count, devices) }
    }

    package var record: TaskRecord
    package var purpose: Purpose
    package var buckets: Range<Int>
    package var share: LoopShare

    package init(record: TaskRecord, purpose: Purpose, buckets: Range<Int>, share: LoopShare) {
        (self.record, self.purpose, self.buckets, self.share) = (record, purpose, buckets, share)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Step?>) {
        guard let plan = record.broadcast, shard.store.acceptsWrites else { return shard.answerBusy(reply) }
        if purpose == .enumerate, shard.isFull(Int(shard.appIndex(record.app))) {
            // The senders are behind. More jobs would only fill the memory.
            return shard.answerBusy(reply)
        }
        if purpose != .deal, shard.broadcast(plan.number, of: record.app) == nil {
            // The broadcast has ended everywhere, or this shard does not know it yet.
            return record.isStreamed ? shard.answerBusy(reply) : shard.answer(reply, Step())
        }
        if case .close(let state) = purpose { shard.closeBroadcast(record.id, record.app, state) }
        let step = ScanStep(self, reply)
        let first = buckets.lowerBound
        let rest = (share.index - first % share.count + share.count) % share.count
        shard.walkTags(
            of: record.app, where: plan.audience, first: first + rest, stride: share.count,
            end: min(buckets.upperBound, share.bucketCount)
        ) { shard, bucket, found in
            for cid in found {
                step.outstanding += 1
                shard.visit(cid, bucket, step)
            }
        } finish: { shard, end in
            if end != .whole { step.isWhole = false }
            shard.stepDone(step)
        }
    }
}
