internal import Delivery
internal import Wire

// Broadcasts of strategies 2 and 4: a scan creates a separate message for each device.
extension World {
    func deal(_ broadcast: SimulatedBroadcast, _ scan: SimulatedScan) {
        let found = scan.found
        (scan.found, scan.isDealing) = ([], true)
        scan.missing = found.count
        if !isHealing, broadcasting.chance.perMille(80) {
            queue.add(.stopBroadcast(broadcast.index, life: life), at: now + broadcasting.chance.time(0, 100))
        }
        for cid in found {
            guard let identity = identity(cid) else { return fail(.content, "a scan has found a device of nobody's") }
            oracle.found(broadcast, identity, askedAt: scan.askedAt)
            let first = broadcast.records[cid]
            if first == nil { requestCount += 1 }
            let content = broadcast.task.content
            let record = Record(
                index: records.count, identity: identity, strategy: content.strategy, timeToLive: content.timeToLive,
                hasVendor: !content.vendors.isEmpty, badge: .none, collapse: broadcast.collapse, isBulk: true,
                request: first?.request ?? requestCount,
                digest: first?.digest ?? (broadcasting.chance.next() << 32) | UInt64(records.count), payloadCount: 60)
            (record.dealt, record.dealStamp) = (broadcast, broadcast.scanStamp)
            if content.timeToLive > 0 {
                record.timeToLive = max(1, (scan.record.broadcast?.expiresAt ?? 0) - gatewayNow)
                // An earlier attempt that was not accepted may have had a longer TTL.
                if let first, first.table == nil, !first.everDurable { first.timeToLive = record.timeToLive }
            }
            records.append(record)
            if first == nil { broadcast.records[cid] = record }
            queue.add(
                .submit(record: record.index, life: life),
                at: now + broadcasting.chance.time(0, broadcasting.chance.perMille(100) ? 4_000 : 6))
        }
    }

    /// Handles one device's answer; after the last answer the scan continues or repeats the step.
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
        guard let scan = broadcast.scan, scan.life == life, scan.isDealing, record.dealStamp == broadcast.scanStamp
        else {
            return
        }
        if outcome.code == .stopped { scan.isStopped = true }
        if [.busy, .storeFailed, .requestPending].contains(outcome.code) { scan.hasFailed = true }
        scan.missing -= 1
        guard scan.missing == 0 else { return }
        scan.isDealing = false
        if scan.isStopped {
            broadcast.scan = nil
        } else if scan.hasFailed {
            scan.position = broadcasting.stepStart(broadcast.index)
            queue.add(.broadcastStep(broadcast.scanRequest, life: life), at: now + 1_000)
        } else {
            if let speed = broadcast.task.broadcast?.speed, speed > 0 {
                // A long pause stands for a bucket with thousands of devices.
                scan.pause = broadcasting.chance.perMille(50) ? broadcasting.chance.time(0, 90_000) : 1_000 / speed
            }
            dealtTo(broadcast, scan)
            queue.add(.broadcastAdvance(broadcast.scanRequest, life: life), at: now + 1)
        }
    }

    /// Ends a step, with or without devices in it.
    func dealtTo(_ broadcast: SimulatedBroadcast, _ scan: SimulatedScan) {
        guard scan.position >= World.bucketCount, scan.record.state == .open else { return }
        broadcast.isDealtOut = true
    }
}
