internal import Delivery
internal import Wire

// Broadcasts of strategies 2 and 4, which a walk deals out as messages of each device's own.
extension World {
    /// Sends to whom one step of the walk has found.
    func deal(_ broadcast: SimulatedBroadcast, _ walk: SimulatedWalk) {
        let found = walk.found
        (walk.found, walk.isDealing) = ([], true)
        walk.missing = found.count
        if !isHealing, broadcasting.chance.perMille(80) {
            queue.add(.stopBroadcast(broadcast.index, life: life), at: now + broadcasting.chance.time(0, 100))
        }
        for cid in found {
            guard let identity = identity(cid) else { return fail(.content, "a walk has found a device of nobody's") }
            oracle.found(broadcast, identity, askedAt: walk.askedAt)
            let first = broadcast.records[cid]
            if first == nil { requestCount += 1 }
            let content = broadcast.task.content
            let record = Record(
                index: records.count, identity: identity, strategy: content.strategy, timeToLive: content.timeToLive,
                hasVendor: !content.vendors.isEmpty, badge: .none, collapse: broadcast.collapse, isBulk: true,
                request: first?.request ?? requestCount,
                digest: first?.digest ?? (broadcasting.chance.next() << 32) | UInt64(records.count), payloadCount: 60)
            (record.dealt, record.dealStamp) = (broadcast, broadcast.walkStamp)
            if content.timeToLive > 0 {
                record.timeToLive = max(1, (walk.record.broadcast?.expiresAt ?? 0) - gatewayNow)
                // An earlier attempt that came to nothing may have had longer.
                if let first, first.table == nil, !first.everDurable { first.timeToLive = record.timeToLive }
            }
            records.append(record)
            if first == nil { broadcast.records[cid] = record }
            queue.add(
                .submit(record: record.index, life: life),
                at: now + broadcasting.chance.time(0, broadcasting.chance.perMille(100) ? 4_000 : 6))
        }
    }

    /// One of the devices has answered; after the last the walk goes on, or does the step again.
    func dealAnswered(_ record: Record, _ outcome: PublishOutcome) {
        guard let broadcast = record.dealt else { return }
        switch outcome.code {
        case .accepted:
            faults.note(.broadcastDealt)
            if outcome.isRepeat { faults.note(.dealRepeated) }
        case .stopped: faults.note(.dealStopped)
        case .busy, .storeFailed, .requestPending: break
        default: broadcast.refusedBy.insert(record.identity.cid)
        }
        guard let walk = broadcast.walk, walk.life == life, walk.isDealing, record.dealStamp == broadcast.walkStamp
        else {
            return
        }
        if outcome.code == .stopped { walk.isStopped = true }
        if [.busy, .storeFailed, .requestPending].contains(outcome.code) { walk.hasFailed = true }
        walk.missing -= 1
        guard walk.missing == 0 else { return }
        walk.isDealing = false
        if walk.isStopped {
            broadcast.walk = nil
        } else if walk.hasFailed {
            walk.position = broadcasting.stepStart(broadcast.index)
            queue.add(.broadcastStep(broadcast.walkRequest, life: life), at: now + 1_000)
        } else {
            if let speed = broadcast.task.broadcast?.speed, speed > 0 {
                // As if now and then there were thousands in a bucket.
                walk.pause = broadcasting.chance.perMille(50) ? broadcasting.chance.time(0, 90_000) : 1_000 / speed
            }
            dealtTo(broadcast, walk)
            queue.add(.broadcastAdvance(broadcast.walkRequest, life: life), at: now + 1)
        }
    }

    /// A step is over, with or without devices in it.
    func dealtTo(_ broadcast: SimulatedBroadcast, _ walk: SimulatedWalk) {
        guard walk.position >= World.bucketCount, walk.record.state == .open else { return }
        broadcast.isDealtOut = true
    }
}
