internal import Structures
internal import Wire

enum PublishStage {
    /// Check that the device belongs to the command's app.
    case known
    /// Answer a repeated request with its first answer (`Shard+Once` for tasks).
    case repeated
    /// Leave out an ignored device. End the message that a revoke names (`Shard+Once`); continue only if the device may have
    /// seen that message.
    case withdrawn
    /// Shrink a queue that exceeds its bounds, for example after a reload lowered them (`Shard+QueueRoom`).
    case bounds
    /// Load the messages under the same collapse key.
    case collapsible
    /// Find room in the queue, or the oldest messages to drop; then accept the message.
    case room
}

extension Shard {
    /// Accepts one message for one device, or refuses it with a reason; the answer is `.publishAnswered`.
    ///
    /// The shard reads the command's bytes during the call, and copies them if it must load the device's record first.
    package mutating func publish(_ command: borrowing PublishCommand, now: GatewayTime) {
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
        // The remaining room of a nearly full store is reserved for apps below their share.
        guard mayAccept(command.app) else {
            numbers.refusedOverShare &+= 1
            apps.figures[Int(appIndex(command.app))].refusedOverShare &+= 1
            refuse(command, .busy)
            return
        }
        // The sending gateway serves the app, so one of the two gateways does not have the app's latest settings yet.
        guard apps.isServed(command.app) else {
            refuse(command, .busy)
            return
        }
        if let slot = knownDevice(command.cid), isFree(slot) { return proceed(command, slot, from: .known) }
        let kept = KeptPublish(command)
        whenReady(deviceSlot(command.cid, bucket: command.bucket)) { shard, slot, readiness in
            switch readiness {
            case .ready: shard.proceed(kept.command, slot, from: .known)
            case .unknown: shard.refuse(kept.command, .unknownDevice)
            case .crowded: shard.refuse(kept.command, .busy)
            case .failed: shard.refuse(kept.command, .storeFailed)
            }
        }
    }

    /// Runs a publish through its stages, in order.
    ///
    /// A stage returns whether the publish continues immediately. Otherwise the stage has answered the publish, or it waits for
    /// the disk or a later turn. A waiting stage then calls this function with the next stage.
    mutating func proceed(_ command: PublishCommand, _ slot: DeviceSlot, from stage: PublishStage) {
        let hash = command.collapseHash
        switch stage {
        case .known:
            guard isKnown(command, slot) else { return }
            fallthrough
        case .repeated:
            guard isFirst(command, slot) else { return }
            fallthrough
        case .withdrawn:
            guard isHeard(command, slot) else { return }
            guard isWithdrawn(command, slot) else { return }
            fallthrough
        case .bounds:
            guard isWithinBounds(command, slot) else { return }
            fallthrough
        case .collapsible:
            guard hasCollapsible(command, slot, hash: hash) else { return }
            fallthrough
        case .room:
            guard let dropping = makeRoom(command, slot, hash: hash) else { return }
            accept(command, slot, hash: hash, dropping: dropping)
        }
    }

    func isOwn(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        apps[Int(devices.at(slot).value.appIndex)].key == command.app
    }

    mutating func refuse(
        _ command: PublishCommand, _ code: PublishOutcome.Code, reason: PublishOutcome.FallbackReason = .applies
    ) {
        if let kept = code.kept(reason) { noteRefusal(command, kept) }
        outbox.send(
            .publishAnswered(
                command.origin,
                PublishOutcome(code: code, cid: command.cid, task: command.task, fallbackReason: reason)))
    }

    /// Records, for a limited time, why a publish made no message.
    mutating func noteRefusal(_ command: PublishCommand, _ reason: RefusedPublish.Reason) {
        refusals.note(
            RefusedPublish(
                time: now, reason: reason, app: command.app, cid: command.cid, task: command.task,
                request: CallKey(high: command.requestKey.0, low: command.requestKey.1)))
    }

    // MARK: Stages

    private mutating func isKnown(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        devices.at(slot).value.touch()
        guard isOwn(command, slot) else {
            refuse(command, .unknownDevice)
            return false
        }
        return true
    }

    /// Answers a new message for an ignored device; a repeated request has its first answer already.
    private mutating func isHeard(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        // A revoke continues because a message pending for an ignored device must not reach it later.
        guard isIgnored(slot), command.revokes.isNone else { return true }
        noteRefusal(command, devices.at(slot).value.isBlacklisted ? .blacklisted : .inactive)
        answer(command, PublishOutcome(code: .ignored, cid: command.cid, task: command.task), slot: .none)
        return false
    }

    /// Returns whether the request is new; answers a repeated request with its first answer.
    private mutating func isFirst(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        guard !command.task.hasLedger else { return isFirstOfTask(command, slot) }
        guard command.requestKey != (0, 0) else { return true }
        let key = requestKey(command)
        if case .found(let location, _) = store.young(key) {
            repeatAnswer(command, key, store.bytes(at: location))
            return false
        }
        guard !store.isCertainlyAbsent(key) else { return true }
        let kept = KeptPublish(command)
        whileBusy(slot, reading: key) { shard, reply in
            if case .row(let stored?)? = reply.results.first {
                shard.repeatAnswer(kept.command, stored.key, stored.bytes)
            } else if reply.failure == nil {
                shard.proceed(kept.command, slot, from: .withdrawn)
            } else {
                shard.refuse(kept.command, .storeFailed)
            }
        }
        return false
    }

    private func requestKey(_ command: PublishCommand) -> StoreKey {
        command.task.follows(from: command.requestKey, in: command.bucket)
            ? PushRow.key(command.task, in: command.bucket)
            : StoreKey(command.bucket, .request, ownerHigh: command.requestKey.0, ownerLow: command.requestKey.1)
    }

    private mutating func repeatAnswer(_ command: PublishCommand, _ key: StoreKey, _ bytes: LentBytes) {
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
        // The first answer may still wait for its commit, and this answer must not overtake it.
        answer(command, outcome, slot: .none)
    }

    mutating func answer(_ command: PublishCommand, _ outcome: PublishOutcome, slot: DeviceSlot) {
        whenDurable(.publish(command.origin, outcome, device: slot, cid: command.cid))
    }

    // MARK: Acceptance

    /// Returns the plan for accepting the message, or `nil` to refuse it.
    private func plan(_ command: PublishCommand, _ device: Place<Device>) -> Acceptance? {
        let strategy = isPlanted(.liveOnlyReachesVendor) ? command.strategy.reachingVendor : command.strategy
        let appHasTopic = apps[Int(device.value.appIndex)].hasTopic
        return strategy.accept(
            Submission(
                now: now, timeToLive: command.timeToLive, hasContent: !command.contents.isEmpty,
                hasToken: command.contents.contains {
                    $0.platform == .followUp || device.value.hasToken(for: $0, appHasTopic: appHasTopic)
                },
                isReachable: device.value.isReachable,
                isPushModeOff: device.value.isPushModeOff, isBulk: command.isBulk,
                liveDeadline: liveDeadline(device), leasable: limits.noStorageLeasable))
    }

    mutating func accept(_ given: PublishCommand, _ slot: DeviceSlot, hash: UInt64, dropping: [MessageSlot]) {
        var command = given
        if command.contents.needsChoice { choose(&command, for: slot) }
        // The task may have been stopped while the shard made room.
        guard !command.task.hasLedger || !tasks.isStopped(command.task) else {
            refuse(command, .stopped)
            return
        }
        let device = devices.at(slot)
        guard let plan = plan(command, device) else {
            refuse(command, .noToken, reason: command.vendor == nil ? .noContent : .noToken)
            return
        }
        if hash != 0, plan.endsAs == nil { endCollapsed(slot, hash: hash) }
        let outcome = inBatch(of: slot) { shard in
            if plan.endsAs == nil {
                for message in dropping where shard.messages.isOccupied(message) {
                    let entry = shard.messages.at(message)
                    shard.end(entry.value.facts, .overflowed, message: message, job: entry.value.job)
                }
                if hash != 0 { shard.collapse(slot, hash: hash) }
            }
            let id = MessageID(bucket: command.bucket, acceptedAt: shard.now, digest: command.messageDigest)
            var facts = MessageFacts(
                message: id, task: command.task, app: command.app, cid: command.cid, strategy: command.strategy,
                flags: [], table: plan.table, item: shard.vendorItem(id, command), acceptedAt: shard.now,
                expiresAt: plan.expiresAt,
                fallbackAt: plan.fallbackAt, wakeAt: 0, timeToLive: command.timeToLive, byteCount: 0)
            if !plan.isLive { facts.flags.insert(.offline) }
            if command.isBulk { facts.flags.insert(.bulk) }
            if !command.contents.isEmpty { facts.flags.insert(.hasVendorContent) }
            facts.channels = command.contents.channels
            if let followUp = command.contents.followUp { facts.followUpAt = shard.now + followUp.followUpDelay }
            facts.vendorCarriesAll = command.vendorCarriesAll
            facts.hasCallback = command.hasCustomCallback
            if hash != 0 { facts.flags.insert(.hasCollapseKey) }
            if plan.isArmed { facts.flags.insert(.isArmed) }
            facts.wakeAt = facts.firstAlarm
            if !command.revokes.isNone { facts.flags.insert(.revoke) }
            if command.firstAckWins { facts.flags.insert(.firstAckWins) }
            let byteCount = MessageRow.byteCount(MessageRow.Texts(command), facts: facts)
            facts.byteCount = MessageRow.charge(byteCount)
            // A message that ends immediately gets no place in the stream.
            if plan.endsAs != nil, facts.table == .message { facts.item = 0 }
            shard.countAccepted(facts)
            var charge = Int(facts.byteCount)
            if facts.hasCallback {
                let text = command.customCallbackBytes
                shard.noteCallback(text, of: facts, createdAt: command.taskCreatedAt)
                charge += text.count
            }
            shard.noteUse(of: Int(device.value.appIndex), byteCount: charge)
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
                endedAs: plan.endsAs, vendor: plan.fallback == .none ? nil : facts.channels.first)
            let accepted = listed.map { shard.messages.at($0).value.facts } ?? facts
            // The end of a task's message has already written the ledger row.
            if listed != nil || !command.task.hasLedger { shard.noteAccepted(accepted, outcome, command) }
            return outcome
        }
        answer(command, outcome, slot: slot)
    }

    /// Returns the item of a message in the vendor table.
    ///
    /// A request that is repeated after its row was dropped gets the same task id and digest again. The time of acceptance keeps
    /// the second message from overwriting the first, which may be pending.
    private func vendorItem(_ id: MessageID, _ command: PublishCommand) -> UInt64 {
        guard command.task.follows(from: command.requestKey, in: command.bucket) else { return id.low }
        return id.low ^ UInt64(bitPattern: now) &* 0x9E37_79B9_7F4A_7C15
    }

    /// Writes, in the open batch, the rows by which an accepted message is found from its request or its task.
    private mutating func noteAccepted(_ facts: MessageFacts, _ outcome: PublishOutcome, _ command: PublishCommand) {
        if command.requestKey != (0, 0), !isPlanted(.requestForgotten) {
            let row = PushRow(
                outcome, digest: command.requestDigest, app: facts.app, table: facts.table, item: facts.item)
            store.putPush(row, under: requestKey(command))
        }
        noteAccepted(facts, outcome)
    }

    private mutating func store(
        _ command: PublishCommand, _ given: MessageFacts, byteCount: Int, _ plan: Acceptance, _ slot: DeviceSlot,
        hash: UInt64
    ) -> MessageSlot {
        var facts = given
        if facts.table == .message { facts.item = giveSequence(slot) }
        devices.at(slot).value.add(facts)
        var message = Message(facts: facts, device: slot)
        message.location = store.putMessage(command, facts, byteCount)
        message.fallbackAt = plan.isArmed ? plan.fallbackAt : 0
        message.collapseHash = hash
        let listed = listNew(message)
        armTimer(listed)
        if !plan.isLive { makeDue(listed, timedOut: false) }
        return listed
    }

    /// Returns the device's messages in memory under a collapse key, oldest first.
    func messages(under hash: UInt64, of slot: DeviceSlot) -> [MessageSlot] {
        var found: [MessageSlot] = []
        for first in [devices.at(slot).value.firstMessage, devices.at(slot).value.firstVendor] {
            var next = first
            while next != .none {
                let entry = messages.at(next)
                if entry.value.collapseHash == hash { found.append(next) }
                next = entry.value.next
            }
        }
        return found
    }

    /// Ends messages under a key that are durably marked as collapsed and were not sent in this session.
    ///
    /// Their number is unbounded, so they end in separate batches.
    private mutating func endCollapsed(_ slot: DeviceSlot, hash: UInt64) {
        guard !isPlanted(.collapseKeepsOlder) else { return }
        inBatches(of: slot) { shard in
            for message in shard.messages(under: hash, of: slot) {
                let entry = shard.messages.at(message)
                guard entry.value.flags.contains(.collapsed), !entry.value.flags.contains(.sentHere) else {
                    continue
                }
                shard.nextChange()
                shard.end(entry.value.facts, .collapsed, message: message, job: entry.value.job)
            }
        }
    }

    /// Ends older messages under a key, or only marks those sent in this session.
    private mutating func collapse(_ slot: DeviceSlot, hash: UInt64) {
        guard !isPlanted(.collapseKeepsOlder) else { return }
        for message in messages(under: hash, of: slot) { collapse(message) }
    }

    /// Ends a message that a newer one under its key replaces, in the open batch.
    ///
    /// A message sent in this session is only marked, durably, because an ack may be in transit. `recallInFlight` ends it with
    /// the session. A marked message is not written again.
    mutating func collapse(_ message: MessageSlot) {
        let entry = messages.at(message)
        guard entry.value.flags.contains(.sentHere) else {
            end(entry.value.facts, .collapsed, message: message, job: entry.value.job)
            return
        }
        guard !entry.value.flags.contains(.collapsed) else { return }
        entry.value.markCollapsed()
        if entry.value.job == .none {
            let row = JobRow(facts: entry.value.facts, state: .cancelled, dueAt: now)
            _ = adopt(row, storedWakeAt: 0, isStored: false)
        }
        let job = jobs.at(entry.value.job)
        job.value.row.isCollapsed = true
        if job.value.row.state == .due { job.value.row.state = .cancelled }
        writeJob(entry.value.job)
        placeJob(entry.value.job)
    }
}
