internal import Structures
package import Wire

private final class LeaseOperation {
    let command: LeaseCommand
    var items: [MessageID] = []
    var outstanding = 1
    var unreadable: Set<MessageID> = []
    var orphaned: Set<MessageID> = []
    var cold: [MessageID: LentBytes] = [:]
    var reply: StoreReply?

    init(_ command: LeaseCommand) { self.command = command }
}

extension Shard {
    /// Returns whether a lease of the channel for these apps (`nil`: all) would return jobs.
    package func hasDueJobs(for keys: Set<AppKey>?, _ channel: VendorChannel) -> Bool {
        guard jobs.dueCount(of: channel) > 0 else { return false }
        return apps.entries.enumerated().contains { index, app in
            mayLease(app) && keys?.contains(app.key) != false && jobs.dueCount(of: index, channel) > 0
        }
    }

    /// The channels for which a lease without a choice of apps would return jobs.
    package var dueChannels: ChannelSet {
        mutating get {
            var channels: ChannelSet = []
            for channel in VendorChannel.allCases where hasDueJobs(for: nil, channel) {
                channels.insert(ChannelSet(channel))
            }
            return channels
        }
    }

    private func mayLease(_ app: AppEntry) -> Bool { app.mayLease || isPlanted(.unknownAppLeased) }

    /// Leases due jobs; the answer is `.leased`, possibly empty, when the lease is durable.
    package mutating func lease(_ command: LeaseCommand, now: GatewayTime) {
        begin(now)
        let operation = LeaseOperation(command)
        pick(operation)
        guard !operation.items.isEmpty else {
            outbox.send(.leased(command.origin, []))
            return
        }
        jobs.leasesUnderWay.insert(LeaseKey(command.leaseID))
        var keys: [StoreRead] = []
        var coldItems: [MessageID] = []
        for id in operation.items {
            guard let slot = jobs.find(id) else { continue }
            let key = jobs.at(slot).value.row.facts.key
            if jobs.at(slot).value.row.facts.table != .broadcast, store.young(key) == .unknown {
                keys.append(.get(key))
                coldItems.append(id)
            }
            operation.outstanding += 1
            whenReady(jobs.at(slot).value.device) { shard, _, readiness in
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
                        operation.cold[id] = stored.bytes
                    } else {
                        operation.unreadable.insert(id)
                    }
                }
                shard.leasePartDone(operation)
            }
        }
        leasePartDone(operation)
    }

    /// Removes jobs from the due lists of the channel: single pushes before bulk, round-robin over the apps.
    private mutating func pick(_ operation: LeaseOperation) {
        let limit = max(0, operation.command.limit)
        for isBulk in [false, true] {
            var tookAny = true
            while tookAny, operation.items.count < limit {
                tookAny = false
                for index in apps.indices where operation.items.count < limit {
                    // Without the app's settings the job's topic is unknown. The job waits for them or ends with its message.
                    guard mayLease(apps[index]) else { continue }
                    if let allowed = operation.command.apps, !allowed.contains(apps[index].key) { continue }
                    let slot = jobs.firstDue(of: index, operation.command.channel, isBulk: isBulk)
                    guard slot != .none else { continue }
                    jobs.unplace(slot)
                    jobs.at(slot).value.place = .leasing
                    operation.items.append(jobs.at(slot).value.row.facts.message)
                    tookAny = true
                }
            }
        }
    }

    private mutating func leasePartDone(_ operation: LeaseOperation) {
        operation.outstanding -= 1
        guard operation.outstanding == 0 else { return }
        jobs.leasesUnderWay.remove(LeaseKey(operation.command.leaseID))
        var leased: [Job] = []
        for id in operation.items {
            guard let slot = jobs.find(id), jobs.at(slot).value.place == .leasing else { continue }
            jobs.at(slot).value.place = .none
            if operation.orphaned.contains(id) {
                retryJobLater(id, .unknown)
            } else if operation.unreadable.contains(id) {
                jobs.at(slot).value.row.dueAt = now + limits.retryDelay.lowerBound
                placeJob(slot)
            } else if let job = leaseOne(slot, operation) {
                leased.append(job)
            }
        }
        whenDurable(.leased(operation.command.origin, leased))
    }

    /// Writes one lease and renders its job; `nil` if the job must not be leased.
    private mutating func leaseOne(_ slot: JobSlot, _ operation: LeaseOperation) -> Job? {
        let entry = jobs.at(slot)
        let facts = entry.value.row.facts
        guard entry.value.row.state == .due, !isOver(facts.expiresAt), !isHeld(slot) else {
            placeJob(slot)
            leaveIfHeld(slot)
            return nil
        }
        let bytes: LentBytes
        let broadcast = facts.table == .broadcast ? self.broadcast(facts.item, of: facts.app) : nil
        if facts.table == .broadcast {
            guard let broadcast, !broadcast.isOver, !isSuperseded(entry.value.device, broadcast) else {
                // The job's broadcast has ended, or a newer broadcast under its collapse key has replaced it.
                withdrawLease(slot, isSuperseded: broadcast?.isOver == false)
                return nil
            }
            bytes = broadcast.row.bytes
        } else if case .found(let location, _) = store.young(facts.key) {
            bytes = store.bytes(at: location)
        } else if let cold = operation.cold[facts.message] {
            bytes = cold
        } else {
            // The row left memory during the other reads, so the job is due again in a millisecond.
            entry.value.row.dueAt = now + 1
            placeJob(slot)
            return nil
        }
        let deviceSlot = entry.value.device
        let channel = operation.command.channel
        guard let row = MessageRow(bytes), let content = row.content(for: channel) else {
            damaged(facts.key)
            endVendorPart(LoadedJob(slot: slot, device: deviceSlot), state: .rejected, reason: "damagedRow")
            return nil
        }
        let app = apps[Int(entry.value.appIndex)]
        let token =
            channel.isFollowUp
            ? DeviceToken.none(channel)
            : profile(deviceSlot).token(for: content.need, appHasTopic: app.hasTopic, order: app.vendorOrder)
        guard let token else {
            let reason = hasLostToken(deviceSlot) ? "tokenMoved" : "noToken"
            entry.value.row.note(.vendorRejected, now, reason)
            let job = LoadedJob(slot: slot, device: deviceSlot, coldRow: bytes)
            endVendorPart(job, state: .rejected, reason: reason)
            return nil
        }
        guard token.channel == channel else {
            // The device's tokens changed since the job became due; another sender may lease it.
            placeJob(slot)
            return nil
        }
        guard let appTopic = app.topic(of: channel) ?? (isPlanted(.unknownAppLeased) ? "" : nil) else {
            // The app was removed while the device was read.
            placeJob(slot)
            return nil
        }
        guard Int(entry.value.row.attempts) < app.maxAttempts else {
            // The last allowed lease lapsed while the app's settings, and so `maxAttempts`, were unknown.
            count(entry.value.row) { $0.jobsExhausted &+= 1 }
            let job = LoadedJob(slot: slot, device: deviceSlot, coldRow: bytes)
            endVendorPart(job, state: .exhausted, reason: "exhausted")
            return nil
        }
        let device = devices.at(deviceSlot)
        let job = inBatch(of: deviceSlot) { shard in
            // A follow-up shows nothing on the device, so it does not change the badge.
            if !channel.isFollowUp, !entry.value.row.badgeApplied || shard.isPlanted(.badgePerLease) {
                entry.value.row.badgeApplied = true
                let before = device.value.badge
                let badge: Int32 =
                    switch content.badge {
                    case .none: before
                    case .set(let value): max(0, value)
                    case .add(let value): max(0, Int32(clamping: Int64(before) + Int64(value)))
                    }
                if badge != before { device.change { $0.badge = badge } }
                entry.value.row.badgeChange = Int32(clamping: Int64(device.value.badge) - Int64(before))
                entry.value.row.badgeRound = device.value.badgeRound
            }
            if channel.isFollowUp, !entry.value.row.leases.contains(where: \.isOfFollowUp) {
                // The job has left the vendor, so the badge change of the vendor's alert is reverted.
                shard.moveBadge(slot, isTakenBack: true)
                if entry.value.row.steps.contains(where: { $0.event == .followedUp }) {
                    shard.count(entry.value.row) { $0.jobsCreated &+= 1 }
                }
            }
            let until = shard.now + max(1, operation.command.leaseMilliseconds)
            entry.value.row.state = .leased
            entry.value.row.attempts &+= 1
            entry.value.row.give(operation.command.leaseID)
            entry.value.row.leasedUntil = until
            entry.value.row.sentToken = token.digest
            entry.value.row.sentKind = token.kind
            entry.value.row.note(.leased, shard.now)
            shard.writeJob(slot)
            // Rendered before the batch closes, while the row's bytes are still valid.
            let ownID = content.collapseText
            let collapseID = ownID.isEmpty ? facts.message.description : ownID
            return Job(
                channel: channel, message: facts.message, leaseID: operation.command.leaseID, leasedUntil: until,
                task: facts.task,
                app: facts.app, cid: facts.cid, token: token.token, tokenKind: token.kind,
                environment: token.environment,
                topic: token.topic.isEmpty ? appTopic : token.topic, pushType: content.pushType,
                priority: content.priority, expiration: facts.isOneShot ? 0 : facts.expiresAt, collapseID: collapseID,
                body: Self.rendered(content, message: facts.message, badge: device.value.badge),
                attempt: Int(entry.value.row.attempts), acceptedAt: facts.acceptedAt,
                dueAt: channel.isFollowUp ? max(entry.value.row.dueAt, facts.followUpAt) : entry.value.row.dueAt)
        }
        placeJob(slot)
        if entry.value.message != .none { armTimer(entry.value.message) }
        return job
    }

    /// Fills the holes of a rendered body: the msgId's digits overwrite their place, and the badge's digits are inserted.
    package static func rendered(_ content: VendorContent, message: MessageID, badge: Int32) -> [UInt8] {
        var body = content.bodyBytes
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

/// The id of one lease.
package struct LeaseKey: Codable, Hashable, Sendable {
    package var high: UInt64
    package var low: UInt64
    package init(_ id: (UInt64, UInt64)) { (high, low) = id }
    package var words: (UInt64, UInt64) { (high, low) }
}

package struct LeasedJob: Codable, Equatable, Sendable {
    package var message: MessageID
    package var lease: LeaseKey
    package init(_ message: MessageID, _ lease: LeaseKey) { (self.message, self.lease) = (message, lease) }
}

/// Asks for the jobs under leases whose answers were lost.
///
/// The answer has the jobs in memory: a job leaves memory a minute after its lease, or with a restart.
package struct LeasedJobsQuery: ShardQuestion {
    package static let leaseLimit = 16

    package var leases: [LeaseKey]
    package init(leases: [LeaseKey]) { self.leases = leases }

    package func perform(on shard: inout Shard, _ reply: ShardReply<[LeasedJob]?>) {
        // A lease under way is answered later, so its jobs are not known yet.
        guard !leases.contains(where: { shard.jobs.leasesUnderWay.contains($0) }) else {
            return shard.answerBusy(reply)
        }
        var found: [LeasedJob] = []
        // No index exists, because a lease's answer is rarely lost.
        for slot in shard.jobs.slots where shard.jobs.isOccupied(slot) {
            let row = shard.jobs.at(slot).value.row
            guard row.state == .leased, leases.contains(LeaseKey(row.lease)) else { continue }
            found.append(LeasedJob(row.facts.message, LeaseKey(row.lease)))
        }
        shard.answer(reply, found)
    }
}
