// Leases: senders get due jobs, complete; the shard writes each lease before a sender gets it.

internal import Structures
public import Wire

/// The state of a lease while readers read devices or messages.
private final class LeaseOperation {
    let command: LeaseCommand
    var items: [MessageID] = []
    var outstanding = 1
    var unreadable: Set<MessageID> = []
    var orphaned: Set<MessageID> = []
    var cold: [MessageID: UnsafeRawBufferPointer] = [:]
    var reply: StoreReply?

    init(_ command: LeaseCommand) { self.command = command }
}

extension Shard {
    /// True when a lease of the channel for these apps (`nil`: all) would find jobs.
    public func hasDueJobs(for keys: Set<AppKey>?, _ channel: VendorChannel) -> Bool {
        apps.enumerated().contains { index, app in
            keys?.contains(app.key) != false && jobs.dueCount(of: index, channel) > 0
        }
    }

    /// Leases due jobs; the answer comes as `.leased`, once it is durable, and may be empty.
    public mutating func lease(_ command: LeaseCommand, now: GatewayTime) {
        begin(now)
        let operation = LeaseOperation(command)
        pick(operation)
        guard !operation.items.isEmpty else {
            outbox.send(.leased(command.origin, []))
            return
        }
        var keys: [StoreRead] = []
        var coldItems: [MessageID] = []
        for id in operation.items {
            guard let slot = jobs.find(id) else { continue }
            let key = jobs.pointer(slot).pointee.row.facts.key
            if jobs.pointer(slot).pointee.row.facts.table != .broadcast, store.young(key) == .unknown {
                keys.append(.get(key))
                coldItems.append(id)
            }
            operation.outstanding += 1
            whenReady(jobs.pointer(slot).pointee.device) { shard, _, readiness in
                if readiness.mayBeRepeated { operation.unreadable.insert(id) }
                if readiness == .unknown { operation.orphaned.insert(id) }
                shard.leasePartDone(operation)
            }
        }
        if !keys.isEmpty {
            let ids = coldItems
            operation.outstanding += 1
            read(keys) { shard, reply in
                operation.reply = reply
                for (index, id) in ids.enumerated() {
                    if index < reply.results.count, case .row(let stored?) = reply.results[index] {
                        operation.cold[id] = stored.value
                    } else {
                        operation.unreadable.insert(id)
                    }
                }
                shard.leasePartDone(operation)
            }
        }
        leasePartDone(operation)
    }

    /// Takes jobs from the due lists of the channel: single pushes before bulk, the apps in turn.
    private mutating func pick(_ operation: LeaseOperation) {
        let limit = max(0, operation.command.limit)
        for isBulk in [false, true] {
            var tookAny = true
            while tookAny, operation.items.count < limit {
                tookAny = false
                for index in apps.indices where operation.items.count < limit {
                    if let allowed = operation.command.apps, !allowed.contains(apps[index].key) { continue }
                    let slot = jobs.firstDue(of: index, operation.command.channel, isBulk: isBulk)
                    guard slot != .none else { continue }
                    jobs.unplace(slot)
                    jobs.pointer(slot).pointee.place = .leasing
                    operation.items.append(jobs.pointer(slot).pointee.row.facts.message)
                    tookAny = true
                }
            }
        }
    }

    private mutating func leasePartDone(_ operation: LeaseOperation) {
        operation.outstanding -= 1
        guard operation.outstanding == 0 else { return }
        var leased: [Job] = []
        for id in operation.items {
            guard let slot = jobs.find(id), jobs.pointer(slot).pointee.place == .leasing else { continue }
            jobs.pointer(slot).pointee.place = .none
            if operation.orphaned.contains(id) {
                retryJobLater(id, .unknown)
            } else if operation.unreadable.contains(id) {
                jobs.pointer(slot).pointee.row.dueAt = now + limits.retryDelay.lowerBound
                placeJob(slot)
            } else if let job = leaseOne(slot, operation) {
                leased.append(job)
            }
        }
        whenDurable(.leased(operation.command.origin, leased))
    }

    /// Writes one lease and renders its job; `nil` when the job must not be leased after all.
    private mutating func leaseOne(_ slot: JobSlot, _ operation: LeaseOperation) -> Job? {
        let entry = jobs.pointer(slot)
        let facts = entry.pointee.row.facts
        guard entry.pointee.row.state == .due, !isOver(facts.expiresAt), !isHeld(slot) else {
            placeJob(slot)
            leaveIfHeld(slot)
            return nil
        }
        let bytes: UnsafeRawBufferPointer
        let broadcast = facts.table == .broadcast ? self.broadcast(facts.item, of: facts.app) : nil
        if facts.table == .broadcast {
            guard let broadcast, !broadcast.isOver, !isSuperseded(entry.pointee.device, broadcast) else {
                // The job ends with the end of its task, or gives way to a newer broadcast under its key.
                withdrawLease(slot, isSuperseded: broadcast?.isOver == false)
                return nil
            }
            bytes = UnsafeRawBufferPointer(broadcast.row)
        } else if case .found(let location, _) = store.young(facts.key) {
            bytes = store.value(at: location)
        } else if let cold = operation.cold[facts.message] {
            bytes = cold
        } else {
            // Its row turned cold during the other reads.
            entry.pointee.row.dueAt = now + 1
            placeJob(slot)
            return nil
        }
        let deviceSlot = entry.pointee.device
        let channel = operation.command.channel
        guard let row = MessageRow(bytes), let content = row.content(for: channel) else {
            damaged(facts.key)
            endVendorPart(JobAtHand(slot: slot, device: deviceSlot), state: .rejected, reason: "damagedRow")
            return nil
        }
        guard let token = profile(deviceSlot).token(for: content.need) else {
            entry.pointee.row.note(.vendorRejected, now, "noToken")
            let job = JobAtHand(slot: slot, device: deviceSlot, coldRow: bytes)
            endVendorPart(job, state: .rejected, reason: "noToken")
            return nil
        }
        let device = devices.pointer(deviceSlot)
        let job = inBatch(of: deviceSlot) { shard in
            if !entry.pointee.row.badgeApplied || shard.isPlanted(.badgePerLease) {
                entry.pointee.row.badgeApplied = true
                let before = device.pointee.badge
                switch content.badge {
                case .none: break
                case .set(let value): device.pointee.badge = max(0, value)
                case .add(let value): device.pointee.badge = max(0, Int32(clamping: Int64(before) + Int64(value)))
                }
                if device.pointee.badge != before { device.pointee.flags.insert(.dirty) }
                entry.pointee.row.badgeChange = Int32(clamping: Int64(device.pointee.badge) - Int64(before))
                entry.pointee.row.badgeRound = device.pointee.badgeRound
            }
            let until = shard.now + max(1, operation.command.leaseMilliseconds)
            entry.pointee.row.state = .leased
            entry.pointee.row.attempts &+= 1
            entry.pointee.row.give(operation.command.leaseID)
            entry.pointee.row.leasedUntil = until
            entry.pointee.row.sentToken = token.digest
            entry.pointee.row.sentKind = token.kind
            entry.pointee.row.note(.leased, shard.now)
            shard.writeJob(slot)
            // Rendered before the batch closes, while the row's bytes are certainly in place.
            let settings = shard.apps[Int(entry.pointee.appIndex)]
            let collapseID =
                content.collapseID.isEmpty
                ? facts.message.description : String(decoding: content.collapseID, as: UTF8.self)
            return Job(
                channel: channel, message: facts.message, leaseID: operation.command.leaseID, leasedUntil: until,
                task: facts.task,
                app: facts.app, cid: facts.cid, token: token.token, tokenKind: token.kind,
                environment: token.environment,
                topic: token.topic.isEmpty ? settings.topic(of: channel) : token.topic, pushType: content.pushType,
                priority: content.priority, expiration: facts.isOneShot ? 0 : facts.expiresAt, collapseID: collapseID,
                body: Self.rendered(content, message: facts.message, badge: device.pointee.badge),
                attempt: Int(entry.pointee.row.attempts), acceptedAt: facts.acceptedAt)
        }
        placeJob(slot)
        if entry.pointee.message != .none { armTimer(entry.pointee.message) }
        return job
    }

    /// Takes back how a job's lease changed its device's badge, or applies that again, with the device's next write.
    ///
    /// The client's own value wins: a value set since the lease stays.
    mutating func moveBadge(_ slot: JobSlot, isTakenBack: Bool) {
        let entry = jobs.pointer(slot)
        guard entry.pointee.row.badgeApplied, entry.pointee.row.isBadgeTakenBack != isTakenBack else { return }
        entry.pointee.row.isBadgeTakenBack = isTakenBack
        let device = devices.pointer(entry.pointee.device)
        guard entry.pointee.row.badgeChange != 0, entry.pointee.row.badgeRound == device.pointee.badgeRound else {
            return
        }
        let change = Int64(entry.pointee.row.badgeChange)
        device.pointee.badge = Int32(clamping: max(0, Int64(device.pointee.badge) + (isTakenBack ? -change : change)))
        device.pointee.flags.insert(.dirty)
    }

    /// Fills the holes of a rendered body: the msgId's digits over their place, the badge's digits at theirs.
    public static func rendered(_ content: VendorContent, message: MessageID, badge: Int32) -> [UInt8] {
        var body = [UInt8](content.body)
        let idOffset = Int(content.messageIDOffset)
        if idOffset >= 0, idOffset + 32 <= body.count {
            for (index, digit) in message.description.utf8.enumerated() { body[idOffset + index] = digit }
        }
        let badgeOffset = Int(content.badgeOffset)
        if badgeOffset >= 0, badgeOffset <= body.count {
            body.insert(contentsOf: Array(String(badge).utf8), at: badgeOffset)
        }
        return body
    }
}
