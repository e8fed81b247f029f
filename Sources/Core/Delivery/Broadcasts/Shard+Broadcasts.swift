// Broadcasts from the view of one device: evaluation, sending and acks.
//
// The shard *evaluates* the live broadcasts of an app once for each device, in number order. Depending on the device's tags, it
// skips the device or makes a message for it. That message has only a ledger row; otherwise it is like any other message.
// A change of the blacklist flag first evaluates all broadcasts under the old flag (`evaluateAll`).
//
// Invariants:
//
// 1. The shard has evaluated every broadcast up to the device's `broadcastEvaluated`. The device has messages only for those
//    numbers. `evaluate` and `pass` raise `broadcastEvaluated`. `resolveBroadcasts` raises it to the highest number with a ledger
//    row: rows are written in number order, so all lower numbers are evaluated. A client's position does not raise it past an
//    unevaluated broadcast that is for the device.
// 2. `broadcastSettled` is below every pending message. The shard reads the ledger on reconnect only for live broadcasts above
//    it. `broadcastSettled` moves only while the device is resolved, because only then all pending messages are in memory.
// 3. `resolved` means that every pending message of a live broadcast is in memory. A connected device is resolved.
//    `leaveBroadcasts` clears the flag, but only while the device is disconnected and no step runs. A message that a step saw in
//    memory therefore stays there until the step ends. `resolveBroadcasts` starts again if a message ends during its reads.
// 4. A session sends pending messages in number order. It *passes over* a message that expired, whose broadcast ended, or whose
//    one attempt is over. These reasons are still known after a restart. A client's position therefore proves the delivery of
//    every number that it names, except passed-over messages (`isEvidence`).

internal import Structures
package import Wire

extension Shard {
    // MARK: Lists

    package func knowsBroadcasts(of app: AppKey) -> Bool { !broadcasts.isUnknown(app) }

    func broadcastLog(_ device: Place<Device>) -> BroadcastLog? {
        broadcasts.log(of: apps[Int(device.value.appIndex)].key)
    }

    func broadcast(_ number: UInt64, of app: AppKey) -> LiveBroadcast? { broadcasts.broadcast(number, of: app) }

    // MARK: The cursor

    /// Records that the device's broadcast cursor moved; the cursor is written with the next device row, or within a second.
    mutating func cursorMoved(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        device.value.settleBroadcasts(upTo: settledCursor(device))
        guard device.value.moveCursor() else { return }
        broadcasts.cursorMoved(slot, dueAt: now + limits.cursorDelay)
    }

    mutating func writeCursors() {
        for slot in broadcasts.popMovedCursors(limits.broadcastSlice, now: now) {
            guard devices.isOccupied(slot), devices.at(slot).value.isCursorMoved else { continue }
            save(slot)
        }
    }

    // MARK: Evaluation

    /// Sends the device's broadcasts up to the window and evaluates new ones.
    mutating func pumpBroadcasts(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        // Fast path: this runs with every message of every device, and usually nothing is pending or unevaluated.
        guard
            device.value.firstBroadcast != .none
                || device.value.broadcastEvaluated < broadcasts.head(ofAppAt: Int(device.value.appIndex)),
            let log = broadcastLog(device), device.value.flags.contains(.resolved)
        else { return }
        guard offerBroadcasts(slot), device.value.broadcastEvaluated < log.head else { return }
        for broadcast in log.live where broadcast.number > device.value.broadcastEvaluated {
            // The window must have room for this message and for those that wait for their commit. The next pump continues here.
            guard waitingBroadcasts(device) < Int(device.value.window) - Int(device.value.inFlightCount),
                Int(device.value.inFlightBytes) < limits.windowByteCount || device.value.inFlightCount == 0
            else { return }
            evaluate(slot, broadcast, isLive: true)
            guard devices.isOccupied(slot), device.value.isReachable else { return }
        }
        pass(slot, to: log.head)
    }

    /// Returns the number of broadcast messages that wait for their commit.
    private func waitingBroadcasts(_ device: Place<Device>) -> Int {
        var count = 0
        var next = device.value.lastBroadcast
        while next != .none, !messages.at(next).value.flags.contains(.sentHere) {
            if !messages.at(next).value.flags.contains(.passedOver) { count += 1 }
            next = messages.at(next).value.previous
        }
        return count
    }

    private mutating func pass(_ slot: DeviceSlot, to number: UInt64) {
        let device = devices.at(slot)
        guard number > device.value.broadcastEvaluated else { return }
        device.value.broadcastEvaluated = number
        cursorMoved(slot)
    }

    /// Evaluates all known broadcasts for a device, as for an unreachable one; the device must be resolved.
    mutating func evaluateAll(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard let log = broadcastLog(device) else { return }
        for broadcast in log.live where broadcast.number > device.value.broadcastEvaluated {
            evaluate(slot, broadcast, isLive: false)
        }
        pass(slot, to: log.head)
    }

    /// Evaluates one broadcast for a device; all earlier ones must be evaluated.
    ///
    /// With `isLive` the device is reachable, and the message is sent when it is durable. Otherwise the shard accepts the message
    /// as for an unreachable device.
    mutating func evaluate(_ slot: DeviceSlot, _ broadcast: LiveBroadcast, isLive: Bool) {
        let device = devices.at(slot)
        guard isTarget(slot, broadcast) else {
            numbers.broadcastPassed &+= 1
            pass(slot, to: broadcast.number)
            return
        }
        if isLive { broadcast.take() }
        numbers.broadcastMessages &+= 1
        let content = broadcast.record.content
        let isAttempted = broadcast.isAttemptOver(now, deadline: limits.liveDeadline)
        let appHasTopic = apps[Int(device.value.appIndex)].hasTopic
        let hasToken = content.vendors.contains { device.value.hasToken(for: $0.need, appHasTopic: appHasTopic) }
        var facts = facts(slot, broadcast)
        let reason = facts.strategy.fallbackReason(
            timeToLive: content.timeToLive, hasContent: !content.vendors.isEmpty, hasToken: hasToken)
        let isArmed = reason == .applies
        let goesOut = isLive && !isAttempted && !broadcast.isOver
        let isFresh = goesOut && !isLate(slot, broadcast)
        if !isFresh { facts.flags.insert(.offline) }
        if isArmed { facts.flags.insert(.isArmed) }
        if goesOut { facts.fallbackAt = max(now, min(now + liveDeadline(device), facts.expiresAt - Self.lastFallback)) }
        facts.wakeAt = isArmed && goesOut ? facts.fallbackAt : facts.expiresAt
        let outcome = PublishOutcome(
            code: .accepted, cid: facts.cid, message: facts.message, task: facts.task, isLive: isFresh,
            fallback: !isArmed ? .none : goesOut ? .armed : .due, fallbackReason: reason,
            timeToLive: facts.timeToLive, vendor: isArmed ? facts.channels.first : nil)
        // An already ended message is not sent, but each device of the audience gets a final state.
        let isExpired = isOver(facts.expiresAt) || !goesOut && !isArmed && facts.isOneShot
        let endsAs = broadcast.endsAs ?? (isExpired ? .expired : isSuperseded(slot, broadcast) ? .collapsed : nil)
        if goesOut { facts.flags.insert(.sendCounted) }
        let accepted = facts
        guard endsAs == nil else {
            inBatch(of: slot) { shard in
                shard.collapseOlder(than: broadcast, slot)
                shard.noteCallback(content.customCallback, of: accepted, createdAt: accepted.acceptedAt)
                shard.countAccepted(accepted)
                if goesOut { shard.countReached([.sent, .reached], of: accepted) }
                if let endsAs {
                    let reason = endsAs == .revoked ? "stopped" : ""
                    shard.end(accepted, endsAs, reason: reason, message: .none, job: .none, isStored: false)
                }
            }
            pass(slot, to: broadcast.number)
            return
        }
        var message = Message(facts: facts, device: slot)
        message.fallbackAt = isArmed ? facts.fallbackAt : 0
        let listed = inBatch(of: slot) { shard in
            shard.collapseOlder(than: broadcast, slot)
            shard.noteCallback(content.customCallback, of: accepted, createdAt: accepted.acceptedAt)
            shard.countAccepted(accepted)
            if goesOut { shard.countReached([.sent, .reached], of: accepted) }
            shard.noteAccepted(accepted, outcome)
            let listed = shard.listNew(message)
            if isArmed, !goesOut { shard.createStoredJob(listed, timedOut: false) }
            return listed
        }
        armTimer(listed)
        // The cursor moves after the message is in the list, because the settled number is computed from the list.
        pass(slot, to: broadcast.number)
        guard goesOut else { return }
        whenDurable(.resume(device: slot, cid: device.value.cid))
    }

    /// Returns whether the broadcast's live deadline has passed for the device, so that its message is flagged offline.
    ///
    /// With a rate limit, the scan may reach a connected device after the deadline. The device's last login then decides.
    private func isLate(_ slot: DeviceSlot, _ broadcast: LiveBroadcast) -> Bool {
        let since = broadcast.plan.speed > 0 ? devices.at(slot).value.lastLoginAt : now
        return since > broadcast.plan.launchedAt + limits.liveDeadline
    }

    /// Returns whether the broadcast is for the device, by its current tags and blacklist flag.
    ///
    /// Called once, at the evaluation; see docs/Semantics.md, "Broadcasts".
    func isTarget(_ slot: DeviceSlot, _ broadcast: LiveBroadcast) -> Bool {
        guard !isIgnored(slot) else { return false }
        let audience = broadcast.plan.audience
        if isPlanted(.broadcastIgnoresTags) { return true }
        if audience.tags.isEmpty { return audience.isTrue(0) }
        return audience.isTrue(ofTags: profile(slot).conditionTags)
    }

    /// Returns whether a newer broadcast with the same collapse key, not evaluated yet, is for the device.
    ///
    /// The older one is then no longer sent, even if the newer one was stopped or expired. An evaluated broadcast does not count:
    /// its evaluation has ended the older one, or has skipped the device, whatever tags the device has now.
    func isSuperseded(_ slot: DeviceSlot, _ broadcast: LiveBroadcast) -> Bool {
        guard broadcast.collapseHash != 0, let log = broadcasts.log(of: broadcast.record.app) else { return false }
        let evaluated = devices.at(slot).value.broadcastEvaluated
        return log.live.contains {
            $0.number > max(broadcast.number, evaluated) && $0.collapseHash == broadcast.collapseHash
                && $0.record.isStreamed && isTarget(slot, $0) && !($0.isOver && isPlanted(.replacedCastSent))
        }
    }

    /// Ends, in the open batch, the device's older broadcasts with the same collapse key.
    ///
    /// The end cannot wait: after the log has dropped the newer broadcast, `isSuperseded` no longer finds it.
    private mutating func collapseOlder(than broadcast: LiveBroadcast, _ slot: DeviceSlot) {
        guard broadcast.collapseHash != 0, !isPlanted(.replacedCastSent) else { return }
        var next = devices.at(slot).value.firstBroadcast
        while next != .none {
            let message = next
            let facts = messages.at(message).value.facts
            next = messages.at(message).value.next
            guard facts.item < broadcast.number,
                self.broadcast(facts.item, of: facts.app)?.collapseHash == broadcast.collapseHash
            else { continue }
            collapse(message)
        }
    }

    func facts(_ slot: DeviceSlot, _ broadcast: LiveBroadcast) -> MessageFacts {
        let device = devices.at(slot)
        let digest = verifier.messageDigest(of: broadcast.task, for: device.value.cid)
        var facts = MessageFacts(
            message: MessageID(bucket: device.value.bucket, acceptedAt: broadcast.plan.launchedAt, digest: digest),
            task: broadcast.task, app: broadcast.record.app, cid: device.value.cid,
            strategy: broadcast.record.content.strategy, flags: [.bulk], table: .broadcast, item: broadcast.number,
            acceptedAt: broadcast.plan.launchedAt, expiresAt: broadcast.plan.expiresAt, fallbackAt: 0,
            wakeAt: broadcast.plan.expiresAt, timeToLive: broadcast.record.content.timeToLive,
            byteCount: broadcast.byteCount)
        for vendor in broadcast.record.content.vendors {
            facts.flags.insert(.hasVendorContent)
            facts.channels.insert(ChannelSet(vendor.channel))
        }
        facts.vendorCarriesAll = broadcast.record.content.vendorCarriesAll
        facts.hasCallback = !broadcast.record.content.customCallback.isEmpty
        if facts.channels.subtracting(ChannelSet(.apns)) != [],
            let channel = channel(for: broadcast.record.content.vendors.map(\.need), slot)
        {
            let content = broadcast.record.content
            facts.channels = ChannelSet(channel)
            facts.strategy = content.vendorStrategies[channel] ?? facts.strategy
            facts.vendorCarriesAll = content.carriesAll(on: channel)
        }
        if broadcast.collapseHash != 0 { facts.flags.insert(.hasCollapseKey) }
        return facts
    }

    // MARK: Sending

    /// Sends the pending messages that are not in flight, in number order.
    ///
    /// - Returns: false if the window is full, or a message or the end of another one is not durable yet.
    private mutating func offerBroadcasts(_ slot: DeviceSlot) -> Bool {
        let device = devices.at(slot)
        var next = device.value.firstBroadcast
        while next != .none {
            let message = next
            let entry = messages.at(message)
            next = entry.value.next
            if entry.value.flags.contains(.inFlight) || entry.value.flags.contains(.passedOver) { continue }
            // A replaced message that this session sent stays for an ack in transit; see `offer`.
            if entry.value.flags.isSuperset(of: [.collapsed, .sentHere]) { continue }
            guard device.value.inFlightCount < device.value.window else { return false }
            guard entry.value.ticket <= outbox.committedTicket || isPlanted(.broadcastBeforeSync), !isBarred(slot)
            else {
                return false
            }
            guard let broadcast = broadcast(entry.value.facts.item, of: entry.value.facts.app), !broadcast.isOver
            else {
                // The broadcast is ending. An earlier attempt may have been lost, so a later position does not prove the
                // delivery.
                entry.value.passOver()
                continue
            }
            if isOver(entry.value.facts.expiresAt) {
                entry.value.passOver()
                expireListed(message)
                continue
            }
            if entry.value.facts.isOneShot && entry.value.facts.flags.contains(.offline) || isAttemptOver(entry) {
                entry.value.passOver()
                // The job was held while the attempt could still succeed.
                if entry.value.job != .none { placeJob(entry.value.job) }
                continue
            }
            let isReplaced = !entry.value.flags.contains(.attempted) && isSuperseded(slot, broadcast)
            if isReplaced || entry.value.flags.contains(.collapsed) {
                inBatch(of: slot) { shard in
                    shard.end(entry.value.facts, .collapsed, message: message, job: entry.value.job)
                }
                continue
            }
            guard
                device.value.inFlightCount == 0
                    || Int(device.value.inFlightBytes) + Int(broadcast.byteCount) <= limits.windowByteCount
            else { return false }
            sendBroadcast(message, broadcast, device)
        }
        return true
    }

    private mutating func sendBroadcast(
        _ message: MessageSlot, _ broadcast: LiveBroadcast, _ device: Place<Device>
    ) {
        let entry = messages.at(message)
        let alertedAt = shownAt(entry.value.job, broadcast.row.bytes)
        let isAgain = entry.value.flags.contains(.sentHere)
        let attempt = isAgain ? UInt32(device.value.round) : 1
        let (isOffline, isCarried) = (entry.value.isOffline, entry.value.facts.vendorCarriesAll)
        let frame: LentFrame
        if alertedAt > 0 || attempt > 1 {
            frame = broadcast.frame(
                isOffline: isOffline, isCarriedByVendor: isCarried, alertedAt: alertedAt, attempt: attempt)
            core.heldFrames.append(frame)
        } else {
            frame = broadcast.frame(isOffline: isOffline, isCarriedByVendor: isCarried)
        }
        outbox.send(
            .broadcast(
                device.value.session,
                BroadcastEffect(frame: frame, message: entry.value.facts.message)))
        entry.send(to: device, at: now, ackDeadline: ackDeadline(entry, device))
        numbers.deliversSent &+= 1
        numbers.broadcastDelivers &+= 1
        if attempt > 1 { numbers.deliversResent &+= 1 }
        if (messages.timers.deadline(of: message) ?? .max) > entry.value.ackDeadline { armTimer(message) }
    }

    // MARK: Acks

    /// Settles the messages that the device acked in stream 1, like `acknowledge` in stream 0.
    package mutating func acknowledgeBroadcasts(
        _ session: SessionRef, cumulative: UInt64, ranges: [SequenceRange], now: GatewayTime
    ) {
        begin(now)
        guard let slot = device(of: session) else { return }
        let device = devices.at(slot)
        device.value.lastHeardAt = self.now
        let position = StreamPosition(stream: 1, sequence: cumulative, ranges: ranges)
        let highest = ranges.reduce(cumulative) { max($0, $1.last) }
        // While the app's log is unknown, no broadcast is sent in this session.
        guard knowsBroadcasts(of: apps[Int(device.value.appIndex)].key) else { return }
        guard highest <= broadcastLog(device)?.head ?? 0 else {
            numbers.acksAboveHighest &+= 1
            close(slot, .badAck, "an ack of a broadcast above the highest ever given")
            return
        }
        var settled = 0
        var next = device.value.firstBroadcast
        inBatches(of: slot) { shard in
            while next != .none {
                let message = next
                let entry = shard.messages.at(message)
                next = entry.value.next
                guard entry.value.facts.item <= highest else { break }
                guard entry.value.flags.contains(.sentHere), position.names(entry.value.facts.item) else {
                    continue
                }
                shard.nextChange()
                shard.end(
                    entry.value.facts, entry.value.isOffline ? .deliveredOffline : .delivered, message: message,
                    job: entry.value.job)
                settled += 1
            }
        }
        if settled > 0 { cursorMoved(slot) }
        // A client names both streams in each ack, so an old position in stream 1 is normal and not counted as ignored.
        if highest > device.value.broadcastEvaluated { numbers.acksIgnored &+= 1 }
        pump(slot)
    }

    /// Ends the messages that a Hello's position in stream 1 names; the device must be resolved.
    mutating func settleBroadcastPosition(_ position: StreamPosition, _ slot: DeviceSlot) {
        let device = devices.at(slot)
        var named: [MessageSlot] = []
        var next = device.value.firstBroadcast
        while next != .none {
            let entry = messages.at(next)
            if position.names(entry.value.facts.item), isEvidence(next) { named.append(next) }
            next = entry.value.next
        }
        endAcked(named, slot)
        // Numbers up to the position count as evaluated, but only below the first unevaluated broadcast for this device. A
        // position cannot settle a message that was never made.
        let unevaluated = broadcastLog(device)?.live.first {
            $0.number > device.value.broadcastEvaluated && $0.number <= position.sequence && isTarget(slot, $0)
        }
        pass(slot, to: unevaluated.map { $0.number - 1 } ?? position.sequence)
        if !named.isEmpty { cursorMoved(slot) }
    }

    /// Returns whether a position that names a message proves that the device processed it.
    ///
    /// The position proves nothing if a session may have passed over the message, before or after a restart.
    private func isEvidence(_ message: MessageSlot) -> Bool {
        let entry = messages.at(message)
        let (facts, flags) = (entry.value.facts, entry.value.flags)
        guard !flags.contains(.passedOver) else { return false }
        // The message has been in memory since a session sent it, so that session did not pass over it.
        if flags.contains(.attempted) { return true }
        guard !facts.isOneShot, facts.expiresAt > now else { return false }
        return broadcast(facts.item, of: facts.app)?.isOver == false
    }

    // MARK: The session's end

    /// Recalls in-flight messages of broadcasts; see `recallInFlight`.
    mutating func recallBroadcasts(_ deviceSlot: DeviceSlot, isSessionOver: Bool) {
        let device = devices.at(deviceSlot)
        var next = device.value.firstBroadcast
        while next != .none {
            let slot = next
            let entry = messages.at(slot)
            next = entry.value.next
            entry.recall(from: device, isSessionOver: isSessionOver)
            if isSessionOver, entry.value.flags.contains(.collapsed) {
                inBatch(of: deviceSlot) { shard in
                    shard.end(entry.value.facts, .collapsed, message: slot, job: entry.value.job)
                }
            } else {
                armTimer(slot)
            }
        }
    }

    /// Removes messages that need no timer from memory, if the device is disconnected and no step runs.
    ///
    /// Every step ends in `drainWaiting`, which calls this function.
    mutating func leaveBroadcasts(_ deviceSlot: DeviceSlot) {
        let flags = devices.at(deviceSlot).value.flags
        guard !flags.contains(.connected), !devices.at(deviceSlot).value.isBusy else { return }
        var next = devices.at(deviceSlot).value.firstBroadcast
        while next != .none {
            let slot = next
            let entry = messages.at(slot)
            next = entry.value.next
            // The timer of an armed message without a job makes its job.
            guard entry.value.fallbackAt == 0 || entry.value.job != .none else { continue }
            cursorMoved(deviceSlot)
            leaveToStore(slot)
        }
    }
}
