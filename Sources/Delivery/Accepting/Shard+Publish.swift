// Acceptance of a message: the one batch that makes it durable. `Strategy` decides which channels may carry it, and
// `Shard+QueueRoom` which messages it displaces.

internal import Structures
internal import Wire

extension Shard {
    /// Accepts one message for one device, or refuses it with a reason.
    ///
    /// The answer comes as `.publishAnswered`.
    ///
    /// The shard reads the command's bytes during the call. When it must load the device's record first, it copies
    /// them.
    public mutating func publish(_ command: borrowing PublishCommand, now: GatewayTime) {
        begin(now)
        let command = copy command
        guard store.acceptsWrites else {
            refuse(command, .busy)
            return
        }
        guard MessageRow.byteCountLimit(command) <= StoreBounds.valueByteCount else {
            refuse(command, .tooLarge)
            return
        }
        // The room that is left is for apps below their share.
        guard mayAccept(command.app) else {
            numbers.refusedOverShare &+= 1
            appNumbers[Int(appIndex(command.app))].refusedOverShare &+= 1
            refuse(command, .busy)
            return
        }
        guard !retiredApps.contains(command.app) else {
            refuse(command, .unknownDevice)
            return
        }
        if let slot = knownDevice(command.cid), isFree(slot) {
            admit(command, slot)
            return
        }
        let kept = KeptPublish(command)
        whenReady(deviceSlot(command.cid, bucket: command.bucket)) { shard, slot, readiness in
            switch readiness {
            case .ready: shard.admit(kept.command, slot)
            case .unknown: shard.refuse(kept.command, .unknownDevice)
            case .crowded: shard.refuse(kept.command, .busy)
            case .failed: shard.refuse(kept.command, .storeFailed)
            }
        }
    }

    func isOwn(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        apps[Int(devices.pointer(slot).pointee.appIndex)].key == command.app
    }

    mutating func refuse(
        _ command: PublishCommand, _ code: PublishOutcome.Code, reason: PublishOutcome.FallbackReason = .applies
    ) {
        outbox.send(
            .publishAnswered(
                command.origin,
                PublishOutcome(code: code, cid: command.cid, task: command.task, fallbackReason: reason)))
    }

    // MARK: Request ids

    /// Answers a repeated request as it did before.
    private mutating func admit(_ command: PublishCommand, _ slot: DeviceSlot) {
        devices.pointer(slot).pointee.flags.insert(.touched)
        guard isOwn(command, slot) else {
            refuse(command, .unknownDevice)
            return
        }
        // A revoke goes on: a message that waits for an ignored device must not reach it later.
        guard !isIgnored(slot) || !command.revokes.isNone else {
            answer(command, PublishOutcome(code: .ignored, cid: command.cid, task: command.task), slot: .none)
            return
        }
        if command.task.hasLedger {
            admitOnce(command, slot)
            return
        }
        guard command.requestKey != (0, 0) else {
            proceed(command, slot)
            return
        }
        let key = requestKey(command)
        if case .found(let location, _) = store.young(key) {
            repeatAnswer(command, key, store.value(at: location))
            return
        }
        // Up to store format 6 the row of every push stood under the whole digest of its request.
        let former = fullRequestKey(command)
        guard !store.isCertainlyAbsent(key) || former != key && !store.isCertainlyAbsent(former) else {
            proceed(command, slot)
            return
        }
        let asked = former == key ? [key] : [key, former]
        let kept = KeptPublish(command)
        whileBusy(slot, { shard, done in shard.read(asked.map { .get($0) }, then: done) }) { shard, reply in
            let rows = reply.results.compactMap { result -> StoredRow? in
                if case .row(let stored) = result { stored } else { nil }
            }
            if let stored = rows.first {
                shard.repeatAnswer(kept.command, stored.key, stored.value)
            } else if reply.failure == nil {
                shard.proceed(kept.command, slot)
            } else {
                shard.refuse(kept.command, .storeFailed)
            }
        }
    }

    private func requestKey(_ command: PublishCommand) -> StoreKey {
        command.task.follows(from: command.requestKey, in: command.bucket)
            ? PushRow.key(command.task, in: command.bucket) : fullRequestKey(command)
    }

    private func fullRequestKey(_ command: PublishCommand) -> StoreKey {
        StoreKey(
            command.bucket, .request, ownerHigh: command.requestKey.0, ownerLow: command.requestKey.1)
    }

    private mutating func repeatAnswer(_ command: PublishCommand, _ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        let found = PushRow(bytes, under: key).map { ($0.outcome, $0.digest) } ?? RequestRow.read(bytes)
        guard let (outcome, digest) = found else {
            damaged(key)
            refuse(command, .storeFailed)
            return
        }
        guard digest == command.requestDigest else {
            refuse(command, .requestConflict)
            return
        }
        numbers.repeatedRequests &+= 1
        // The first answer may still wait for its commit; this one must not overtake it.
        answer(command, outcome, slot: .none)
    }

    mutating func answer(_ command: PublishCommand, _ outcome: PublishOutcome, slot: DeviceSlot) {
        whenDurable(.publish(command.origin, outcome, device: slot, cid: command.cid))
    }

    // MARK: Acceptance

    /// How the shard accepts the message, from its device's state now.
    ///
    /// It is mutating though it changes nothing: the compiler passes a borrowed shard as a copy of all its fields.
    private mutating func plan(_ command: PublishCommand, _ device: UnsafeMutablePointer<Device>) -> Acceptance? {
        let strategy = isPlanted(.liveOnlyReachesVendor) ? command.strategy.reachingVendor : command.strategy
        return strategy.accept(
            Submission(
                now: now, timeToLive: command.timeToLive, hasContent: !command.contents.isEmpty,
                hasToken: command.contents.contains { device.pointee.hasToken(for: $0) },
                isReachable: device.pointee.isReachable,
                isPushModeOff: device.pointee.flags.contains(.pushModeOff), isBulk: command.isBulk,
                liveDeadline: liveDeadline(device), leasable: limits.noStorageLeasable))
    }

    mutating func accept(_ command: PublishCommand, _ slot: DeviceSlot, hash: UInt64, dropping: [MessageSlot]) {
        // A stop may have come while the shard made room.
        guard !command.task.hasLedger || !tasks.isStopped(command.task) else {
            refuse(command, .stopped)
            return
        }
        let device = devices.pointer(slot)
        guard let plan = plan(command, device) else {
            refuse(command, .noToken, reason: command.vendor == nil ? .noContent : .noToken)
            return
        }
        if hash != 0, plan.endsAs == nil { endCollapsed(slot, hash: hash) }
        let (listed, outcome) = inBatch(of: slot) { shard in
            if plan.endsAs == nil {
                for message in dropping where shard.messages.isOccupied(message) {
                    let entry = shard.messages.pointer(message)
                    shard.end(entry.pointee.facts, .overflowed, message: message, job: entry.pointee.job)
                }
                if hash != 0 { shard.collapse(slot, hash: hash) }
            }
            let id = MessageID(bucket: command.bucket, acceptedAt: shard.now, digest: command.messageDigest)
            var facts = MessageFacts(
                message: id, task: command.task, app: command.app, cid: command.cid, strategy: command.strategy,
                flags: [],
                table: plan.table, item: id.low, acceptedAt: shard.now, expiresAt: plan.expiresAt,
                fallbackAt: plan.fallbackAt, wakeAt: 0, timeToLive: command.timeToLive, byteCount: 0)
            if !plan.isLive { facts.flags.insert(.offline) }
            if command.isBulk { facts.flags.insert(.bulk) }
            if !command.contents.isEmpty { facts.flags.insert(.hasVendorContent) }
            facts.channels = command.contents.channels
            if hash != 0 { facts.flags.insert(.hasCollapseKey) }
            if plan.isArmed { facts.flags.insert(.isArmed) }
            facts.wakeAt = facts.firstAlarm
            if !command.revokes.isNone { facts.flags.insert(.revoke) }
            if command.firstAckWins { facts.flags.insert(.firstAckWins) }
            let byteCount = MessageRow.byteCount(MessageRow.Texts(command), facts: facts)
            facts.byteCount = MessageRow.charge(byteCount)
            // Such a message gets no place in the stream.
            if plan.endsAs != nil, facts.table == .message { facts.item = 0 }
            shard.countAccepted()
            shard.noteUse(of: Int(device.pointee.appIndex), byteCount: Int(facts.byteCount))
            if plan.isLive {
                facts.flags.insert(.sendCounted)
                shard.countReached([.sent, .reached], of: facts)
            }
            var listed: MessageSlot?
            if let state = plan.endsAs {
                shard.end(facts, state, reason: plan.endReason, message: .none, job: .none, isStored: false)
            } else {
                listed = shard.store(command, facts, byteCount: byteCount, plan, slot, hash: hash)
            }
            let outcome = PublishOutcome(
                code: .accepted, cid: command.cid, message: id, task: command.task, isLive: plan.isLive,
                fallback: plan.fallback, fallbackReason: plan.reason, timeToLive: command.timeToLive,
                endedAs: plan.endsAs)
            let accepted = listed.map { shard.messages.pointer($0).pointee.facts } ?? facts
            // For a task's message that ended at once, the end has written the ledger.
            if listed != nil || !command.task.hasLedger { shard.noteAccepted(accepted, outcome, command) }
            return (listed, outcome)
        }
        // Known only now: the gateway's own rows take tickets of the same store, too.
        if let listed { messages.pointer(listed).pointee.ticket = outbox.lastTicket }
        answer(command, outcome, slot: slot)
    }

    /// Writes, in the open batch, what finds an accepted message by its request or by its task.
    private mutating func noteAccepted(_ facts: MessageFacts, _ outcome: PublishOutcome, _ command: PublishCommand) {
        let key = requestKey(command)
        if command.requestKey != (0, 0), !isPlanted(.requestForgotten) {
            let row = PushRow(
                outcome, digest: command.requestDigest, app: facts.app, table: facts.table, item: facts.item)
            store.put(key, wakeAt: 0, prior: .none, byteCount: row.byteCount(under: key)) {
                row.write(under: key, into: $0)
            }
        }
        // With its row under its request, a push needs none under its task.
        let isFound = command.task.follows(from: command.requestKey, in: command.bucket)
        noteAccepted(facts, outcome, isTracked: command.isTracked && !isFound)
    }

    /// Writes the message's rows in the open batch and brings it into memory.
    private mutating func store(
        _ command: PublishCommand, _ given: MessageFacts, byteCount: Int, _ plan: Acceptance, _ slot: DeviceSlot,
        hash: UInt64
    ) -> MessageSlot {
        let device = devices.pointer(slot)
        var facts = given
        if facts.table == .message {
            facts.item = giveSequence(slot)
            device.pointee.messageCount += 1
            device.pointee.messageBytes += Int64(facts.byteCount)
        } else {
            device.pointee.vendorCount += 1
            device.pointee.vendorBytes += Int64(facts.byteCount)
        }
        let written = facts
        var message = Message(facts: facts, device: slot)
        message.location = store.put(
            facts.key, wakeAt: facts.wakeAt, prior: .none, byteCount: byteCount
        ) { MessageRow.write(MessageRow.Texts(command), facts: written, into: $0) }
        message.ticket = .max  // until the batch is closed
        message.fallbackAt = plan.isArmed ? plan.fallbackAt : 0
        message.collapseHash = hash
        let listed = list(message)
        armTimer(listed)
        if !plan.isLive { makeDue(listed, timedOut: false) }
        return listed
    }

    /// The next sequence of a device's live stream; reserves a new block in the open batch if it must.
    mutating func giveSequence(_ slot: DeviceSlot) -> UInt64 {
        let device = devices.pointer(slot)
        if device.pointee.nextSequence > device.pointee.reservedSequence {
            device.pointee.reservedSequence = device.pointee.nextSequence + limits.sequenceBlock - 1
            device.pointee.flags.insert(.dirty)
        }
        return device.pointee.takeSequence()
    }

    /// The device's messages in memory under a collapse key, oldest first.
    func messages(under hash: UInt64, of slot: DeviceSlot) -> [MessageSlot] {
        var found: [MessageSlot] = []
        for first in [devices.pointer(slot).pointee.firstMessage, devices.pointer(slot).pointee.firstVendor] {
            var next = first
            while next != .none {
                let entry = messages.pointer(next)
                if entry.pointee.collapseHash == hash { found.append(next) }
                next = entry.pointee.next
            }
        }
        return found
    }

    /// Ends messages under a key that an earlier message has collapsed durably and that are not in flight any more.
    ///
    /// There may be any number: their ends need not be in the batch of the newer message.
    private mutating func endCollapsed(_ slot: DeviceSlot, hash: UInt64) {
        guard !isPlanted(.collapseKeepsOlder) else { return }
        inBatches(of: slot) { shard in
            for message in shard.messages(under: hash, of: slot) {
                let entry = shard.messages.pointer(message)
                guard entry.pointee.flags.contains(.collapsed), !entry.pointee.flags.contains(.inFlight) else {
                    continue
                }
                shard.nextChange()
                shard.end(entry.pointee.facts, .collapsed, message: message, job: entry.pointee.job)
            }
        }
    }

    /// Ends older messages under a key.
    ///
    /// One in flight is only marked, durably; it ends when it leaves flight without an ack. One that is marked already
    /// stays as it is, so that few rows are written, whatever the window.
    private mutating func collapse(_ slot: DeviceSlot, hash: UInt64) {
        guard !isPlanted(.collapseKeepsOlder) else { return }
        for message in messages(under: hash, of: slot) {
            let entry = messages.pointer(message)
            guard entry.pointee.flags.contains(.inFlight) else {
                end(entry.pointee.facts, .collapsed, message: message, job: entry.pointee.job)
                continue
            }
            guard !entry.pointee.flags.contains(.collapsed) else { continue }
            entry.pointee.flags.insert(.collapsed)
            if entry.pointee.job == .none {
                let row = JobRow(facts: entry.pointee.facts, state: .cancelled, dueAt: now)
                _ = adopt(row, storedWakeAt: 0, isStored: false)
            }
            let job = jobs.pointer(entry.pointee.job)
            job.pointee.row.isCollapsed = true
            if job.pointee.row.state == .due { job.pointee.row.state = .cancelled }
            writeJob(entry.pointee.job)
            placeJob(entry.pointee.job)
        }
    }
}

/// A publish that waits: its bytes in one allocation of its own.
final class KeptPublish {
    let command: PublishCommand
    private let bytes: UnsafeMutableRawBufferPointer

    init(_ original: PublishCommand) {
        var kept = original
        let size =
            original.payload.count + original.collapseKey.count + original.alertTitle.count + original.alertBody.count
            + original.contents.byteCount
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, size), alignment: 1)
        bytes = room
        var offset = 0
        func keep(_ part: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
            let place = UnsafeMutableRawBufferPointer(rebasing: room[offset..<offset + part.count])
            place.copyMemory(from: part)
            offset += part.count
            return UnsafeRawBufferPointer(place)
        }
        kept.payload = keep(original.payload)
        kept.collapseKey = keep(original.collapseKey)
        kept.alertTitle = keep(original.alertTitle)
        kept.alertBody = keep(original.alertBody)
        kept.contents.change { content in
            content.body = keep(content.body)
            content.collapseID = keep(content.collapseID)
        }
        command = kept
    }

    deinit { bytes.deallocate() }
}
