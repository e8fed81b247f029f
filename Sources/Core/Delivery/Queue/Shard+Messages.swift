internal import Structures
internal import Wire

extension Shard {
    mutating func list(_ value: Message) -> MessageSlot {
        let slot = messages.insert(value, of: devices.at(value.device))
        if let job = jobs.find(value.facts.message) {
            messages.at(slot).value.job = job
            jobs.at(job).value.message = slot
        }
        return slot
    }

    /// Adds a message that the open batch writes; it is not sent before the batch is durable.
    mutating func listNew(_ value: Message) -> MessageSlot {
        precondition(batch.isOpen && batch.message == .none, "a batch writes at most one new message")
        let slot = list(value)
        messages.at(slot).value.ticket = .max
        batch.message = slot
        return slot
    }

    /// Removes a message from memory; its rows remain.
    mutating func forgetMessage(_ slot: MessageSlot) {
        let job = messages.remove(slot, of: devices.at(messages.at(slot).value.device))
        guard job != .none else { return }
        jobs.at(job).value.message = .none
        dropJobIfDone(job)
    }

    func listedMessage(_ message: MessageID, of device: DeviceSlot) -> MessageSlot? {
        messages.find(message, of: devices.at(device))
    }

    func listedMessage(table: StoreKey.Table, item: UInt64, of device: DeviceSlot) -> MessageSlot? {
        messages.find(table: table, item: item, of: devices.at(device))
    }

    mutating func armTimer(_ slot: MessageSlot) {
        let entry = messages.at(slot)
        var time = entry.value.facts.expiresAt
        // An expired message only waits for the end of its lease.
        let isOver = time <= now
        if entry.value.job != .none {
            let row = jobs.at(entry.value.job)
            if row.value.row.state == .leased { time = max(time, row.value.row.leasedUntil) }
        }
        if isOver {
            messages.timers.schedule(slot, at: time)
            return
        }
        if entry.value.flags.contains(.inFlight) {
            if !entry.value.flags.contains(.overdue) { time = min(time, entry.value.ackDeadline) }
        } else if entry.value.fallbackAt > 0, entry.value.job == .none {
            time = min(time, entry.value.fallbackAt)
        }
        messages.timers.schedule(slot, at: time)
    }

    /// Returns the live deadline, in ms from now, of a message sent to this device.
    func liveDeadline(_ device: Place<Device>) -> Int64 {
        device.value.state == .foreground ? limits.liveDeadline : limits.backgroundLiveDeadline
    }

    /// Returns the ack deadline of a message sent now, if possible a second before the expiry to leave time for the vendor.
    func ackDeadline(_ entry: Place<Message>, _ device: Place<Device>) -> GatewayTime {
        var (deadline, last) = (now + liveDeadline(device), entry.value.facts.expiresAt - Self.lastFallback)
        // A one-shot message that is sent again keeps the deadline of its attempt.
        let began = entry.value.ackDeadline
        if entry.value.facts.isOneShot, began > 0 { deadline = min(deadline, began) }
        guard entry.value.fallbackAt > 0, entry.value.job == .none, last > now else { return deadline }
        return min(deadline, last)
    }

    /// The minimum time in ms between a job's due time and its message's expiry.
    static let lastFallback: Int64 = 1_000

    // MARK: Sending

    /// Sends committed messages in order, up to the window.
    mutating func pump(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard device.value.isReachable, !device.value.flags.contains(.gated) || isPlanted(.gateIgnored) else {
            return
        }
        let window = device.value.window + (isPlanted(.windowMiscounted) ? 1 : 0)
        while device.value.inFlightCount < window {
            guard device.value.inFlightBytes < limits.windowByteCount || device.value.inFlightCount == 0 else {
                return
            }
            if device.value.flags.contains(.coldAhead) {
                askForPage(slot)
                return
            }
            let next = device.value.firstUnsent
            guard next != .none else {
                // Single pushes go before broadcasts.
                pumpBroadcasts(slot)
                return
            }
            if messages.at(next).value.flags.contains(.cold) {
                device.value.flags.insert(.coldAhead)
                askForPage(slot)
                return
            }
            guard offer(next, device: slot, bytes: nil) else { return }
        }
    }

    /// Sends one message, or ends it or passes over it if it must not be sent.
    ///
    /// - Returns: false if the stream must stop for now.
    mutating func offer(_ slot: MessageSlot, device deviceSlot: DeviceSlot, bytes: LentBytes?) -> Bool {
        let device = devices.at(deviceSlot)
        let entry = messages.at(slot)
        guard entry.value.ticket <= outbox.committedTicket || isPlanted(.deliverBeforeSync), !isBarred(deviceSlot)
        else {
            return false
        }
        let sequence = entry.value.facts.item
        if entry.value.flags.contains(.collapsed) {
            device.value.firstUnsent = entry.value.next
            device.value.cursor = sequence + 1
            // A replaced message that this session sent stays for an ack in transit. The client's positions leave it out until
            // the app has processed it.
            guard !entry.value.flags.contains(.sentHere) else { return true }
            inBatch(of: deviceSlot) { shard in
                shard.end(entry.value.facts, .collapsed, message: slot, job: entry.value.job)
            }
            return true
        }
        if isOver(entry.value.facts.expiresAt) {
            // A lease may keep the message, so the next page begins after it.
            device.value.cursor = sequence + 1
            entry.value.passOver()
            expireListed(slot)
            return true
        }
        if isAttemptOver(entry) {
            // The message only waits for its expiry.
            entry.value.passOver()
            device.value.firstUnsent = entry.value.next
            device.value.cursor = sequence + 1
            // The job was held while the attempt could still succeed.
            if entry.value.job != .none { placeJob(entry.value.job) }
            return true
        }
        let byteCount = entry.value.facts.byteCount
        guard
            device.value.inFlightCount == 0
                || Int(device.value.inFlightBytes) + Int(byteCount) <= limits.windowByteCount
        else { return false }
        let alertedAt = shownAt(entry.value.job, bytes ?? store.bytes(at: entry.value.location))
        let attempt = sequence < device.value.resentBelow ? UInt32(device.value.round) : 1
        outbox.send(
            .deliver(
                device.value.session,
                DeliverEffect(
                    row: bytes ?? store.bytes(at: entry.value.location), sequence: sequence,
                    isOffline: isPlanted(.offlineFlagOnce)
                        ? entry.value.facts.flags.contains(.offline) : entry.value.isOffline,
                    alertedAt: alertedAt, attempt: attempt)))
        entry.send(to: device, at: now, ackDeadline: ackDeadline(entry, device))
        device.value.firstUnsent = entry.value.next
        device.value.cursor = sequence + 1
        device.value.offeredBelow = max(device.value.offeredBelow, sequence + 1)
        numbers.deliversSent &+= 1
        if attempt > 1 { numbers.deliversResent &+= 1 }
        // A queued message's timer may be set to its expiry, so it is set again here. A timer that fires before the ack deadline
        // is set again when it fires, which is cheaper than setting the timer of every message here.
        if (messages.timers.deadline(of: slot) ?? .max) > entry.value.ackDeadline { armTimer(slot) }
        return true
    }

    /// Returns whether the one live attempt of a one-shot message is over.
    ///
    /// The attempt lasts until its deadline, within its session. The session may send the message again because a suspended
    /// client may have dropped it.
    func isAttemptOver(_ entry: Place<Message>) -> Bool {
        let (facts, flags) = (entry.value.facts, entry.value.flags)
        guard facts.isOneShot else { return false }
        if flags.contains(.cold) { return true }
        guard flags.contains(.attempted) else { return false }
        return !flags.contains(.sentHere) || now >= entry.value.ackDeadline
    }

    /// Returns the time at which the vendor showed the alert; 0: never, or the push was silent.
    func shownAt(_ job: JobSlot, _ bytes: @autoclosure () -> LentBytes) -> GatewayTime {
        guard job != .none, jobs.at(job).value.row.isAlerted else { return 0 }
        let row = jobs.at(job).value.row
        guard let channel = row.channel, MessageRow(bytes())?.content(for: channel)?.pushType == .background else {
            return row.alertedAt
        }
        return 0
    }

    mutating func expireListed(_ slot: MessageSlot) {
        let entry = messages.at(slot)
        let job = entry.value.job
        if job != .none, jobs.at(job).value.row.state == .leased, jobs.at(job).value.row.leasedUntil > now {
            let device = devices.at(entry.value.device)
            if device.value.firstUnsent == slot { device.value.firstUnsent = entry.value.next }
            armTimer(slot)
            return
        }
        let alerted = job != .none && jobs.at(job).value.row.alertedAt > 0
        let device = entry.value.device
        inBatch(of: device) { shard in
            shard.end(entry.value.facts, .atExpiry(wasAlerted: alerted), message: slot, job: job)
        }
    }

    /// Handles a message whose row is now only on disk; the message leaves memory unless the session has sent it.
    mutating func messageCooled(_ key: StoreKey) {
        let cid = DeviceID(high: key.ownerHigh, low: key.ownerLow)
        guard let deviceSlot = knownDevice(cid),
            let slot = listedMessage(table: key.table, item: key.item, of: deviceSlot)
        else { return }
        let entry = messages.at(slot)
        entry.value.flags.insert(.cold)
        let job = entry.value.job
        if job != .none, !jobs.at(job).value.isStored { jobs.at(job).value.isCold = true }
        guard entry.value.flags.isDisjoint(with: [.inFlight, .sentHere]) else { return }
        // The row contains only the deadline set at acceptance. An unreachable device's message with an earlier deadline gets its
        // job now.
        let facts = entry.value.facts
        if entry.value.job == .none, entry.value.fallbackAt > 0, !facts.tellsMissed(at: now),
            facts.fallbackAt == 0 || entry.value.fallbackAt < facts.fallbackAt,
            !devices.at(deviceSlot).value.isReachable
        {
            entry.value.miss()
            makeDue(slot, timedOut: true)
        }
        leaveToStore(slot)
        devices.releaseQueue(deviceSlot)
    }

    /// Removes a message on disk from memory; the store then reports its alarm.
    ///
    /// The store reports an alarm only once. If it has reported this message's alarm, the shard keeps the job in memory or, for
    /// an expired message, retries the alarm.
    mutating func leaveToStore(_ slot: MessageSlot) {
        let entry = messages.at(slot)
        let device = devices.at(entry.value.device)
        if entry.value.flags.contains(.reported) {
            if entry.value.facts.expiresAt <= now {
                retryAlarm(entry.value.facts.key)
            } else if entry.value.job == .none, entry.value.facts.flags.contains(.isArmed) {
                makeDue(slot, timedOut: true)
            }
        }
        if entry.value.facts.table == .message {
            device.value.flags.insert(.coldAhead)
            device.value.departures &+= 1
        } else if entry.value.facts.table == .broadcast {
            device.value.flags.remove(.resolved)
        }
        device.value.coldKeys |= Self.keyBit(entry.value.collapseHash)
        forgetMessage(slot)
    }

    /// Returns the bit of a collapse key's digest in `coldKeys`; 0 without a key.
    static func keyBit(_ hash: UInt64) -> UInt64 { hash == 0 ? 0 : 1 << (hash >> 40 & 63) }

    /// Makes all in-flight messages unsent because the session ended, or because the app may have dropped them.
    ///
    /// Sent messages stay in memory while the session continues, because an ack may be in transit. At the session's end a
    /// collapsed message ends here.
    mutating func recallInFlight(_ deviceSlot: DeviceSlot, isSessionOver: Bool) {
        let device = devices.at(deviceSlot)
        var slot = device.value.firstMessage
        while slot != .none {
            let entry = messages.at(slot)
            let next = entry.value.next
            if entry.value.flags.contains(.sentHere) {
                entry.recall(from: device, isSessionOver: isSessionOver)
                if isSessionOver, entry.value.flags.contains(.collapsed) {
                    inBatch(of: deviceSlot) { shard in
                        shard.end(entry.value.facts, .collapsed, message: slot, job: entry.value.job)
                    }
                } else if isSessionOver, entry.value.flags.contains(.cold) {
                    if entry.value.fallbackAt > 0, entry.value.job == .none { makeDue(slot, timedOut: false) }
                    leaveToStore(slot)
                } else {
                    armTimer(slot)
                }
            }
            slot = next
        }
        if !isPlanted(.recalledNotResent) || isSessionOver {
            recallBroadcasts(deviceSlot, isSessionOver: isSessionOver)
        }
        if isPlanted(.recalledNotResent), !isSessionOver { return }
        device.value.firstUnsent = device.value.firstMessage
        device.value.cursor = 0
        if device.value.coldMessageCount > 0 { device.value.flags.insert(.coldAhead) }
    }

    // MARK: Timers

    mutating func messageTimerFired(_ slot: MessageSlot) {
        let entry = messages.at(slot)
        if isOver(entry.value.facts.expiresAt) {
            expireListed(slot)
            return
        }
        let deviceSlot = entry.value.device
        if entry.value.flags.contains(.inFlight) {
            if entry.value.ackDeadline <= now, !entry.value.flags.contains(.overdue) {
                entry.value.flags.insert([.overdue, .missed])
                numbers.missedAckDeadlines &+= 1
                if entry.value.job == .none {
                    makeDue(slot, timedOut: true)
                } else {
                    jobs.at(entry.value.job).value.row.note(.timedOut, now)
                    placeJob(entry.value.job)
                }
                becomeSuspect(deviceSlot)
            }
        } else if entry.value.fallbackAt > 0, entry.value.fallbackAt <= now, entry.value.job == .none {
            if !devices.at(deviceSlot).value.isReachable { entry.value.miss() }
            makeDue(slot, timedOut: entry.value.flags.contains(.missed))
        }
        armTimer(slot)
        if entry.value.facts.table == .broadcast { leaveBroadcasts(deviceSlot) }
    }
}
