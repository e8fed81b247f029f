// Messages in memory: three lists a device (the live stream in sequence order, messages that only the vendor carries,
// and broadcasts by number).

internal import Structures
internal import Wire

extension Shard {
    /// Puts a message into memory and into its device's list.
    mutating func list(_ value: Message) -> MessageSlot {
        let slot = messages.insert(value, of: devices.pointer(value.device))
        if let job = jobs.find(value.facts.message) {
            messages.pointer(slot).pointee.job = job
            jobs.pointer(job).pointee.message = slot
        }
        return slot
    }

    /// Takes a message out of memory; its rows stay.
    mutating func forgetMessage(_ slot: MessageSlot) {
        let job = messages.remove(slot, of: devices.pointer(messages.pointer(slot).pointee.device))
        guard job != .none else { return }
        jobs.pointer(job).pointee.message = .none
        dropJobIfDone(job)
    }

    /// The device's message under an id, if it is in memory.
    func listedMessage(_ message: MessageID, of device: DeviceSlot) -> MessageSlot? {
        messages.find(message, of: devices.pointer(device))
    }

    /// The device's message under a row's key, if it is in memory.
    func listedMessage(table: StoreKey.Table, item: UInt64, of device: DeviceSlot) -> MessageSlot? {
        messages.find(table: table, item: item, of: devices.pointer(device))
    }

    /// Sets the message's timer to its next event.
    mutating func armTimer(_ slot: MessageSlot) {
        let entry = messages.pointer(slot)
        var time = entry.pointee.facts.expiresAt
        // After its end a message only waits for its lease.
        let isOver = time <= now
        if entry.pointee.job != .none {
            let row = jobs.pointer(entry.pointee.job)
            if row.pointee.row.state == .leased { time = max(time, row.pointee.row.leasedUntil) }
        }
        if isOver {
            messages.timers.schedule(slot, at: time)
            return
        }
        if entry.pointee.flags.contains(.inFlight) {
            if !entry.pointee.flags.contains(.overdue) { time = min(time, entry.pointee.ackDeadline) }
        } else if entry.pointee.fallbackAt > 0, entry.pointee.job == .none {
            time = min(time, entry.pointee.fallbackAt)
        }
        messages.timers.schedule(slot, at: time)
    }

    /// The live deadline for a message sent to this device now.
    func liveDeadline(_ device: UnsafeMutablePointer<Device>) -> Int64 {
        device.pointee.state == .foreground ? limits.liveDeadline : limits.backgroundLiveDeadline
    }

    /// The ack deadline of a message sent now: at least a second before its end if possible, in time for the vendor.
    func ackDeadline(_ entry: UnsafeMutablePointer<Message>, _ device: UnsafeMutablePointer<Device>) -> GatewayTime {
        let (deadline, last) = (now + liveDeadline(device), entry.pointee.facts.expiresAt - Self.lastFallback)
        guard entry.pointee.fallbackAt > 0, entry.pointee.job == .none, last > now else { return deadline }
        return min(deadline, last)
    }

    /// A job is made at least this long before its message's end.
    static let lastFallback: Int64 = 1_000

    // MARK: Sending

    /// Sends committed messages in order, as the window admits.
    mutating func pump(_ slot: DeviceSlot) {
        let device = devices.pointer(slot)
        guard device.pointee.isReachable, !device.pointee.flags.contains(.gated) || isPlanted(.gateIgnored) else {
            return
        }
        let window = device.pointee.window + (isPlanted(.windowMiscounted) ? 1 : 0)
        while device.pointee.inFlightCount < window {
            guard device.pointee.inFlightBytes < limits.windowByteCount || device.pointee.inFlightCount == 0 else {
                return
            }
            if device.pointee.flags.contains(.coldAhead) {
                askForPage(slot)
                return
            }
            let next = device.pointee.firstUnsent
            guard next != .none else {
                // Single pushes go before broadcasts.
                pumpBroadcasts(slot)
                return
            }
            if messages.pointer(next).pointee.flags.contains(.cold) {
                // A recalled message whose bytes are on disk only.
                device.pointee.flags.insert(.coldAhead)
                askForPage(slot)
                return
            }
            guard offer(next, device: slot, bytes: nil) else { return }
        }
    }

    /// Sends one message, or ends it or passes over it if the shard may not send it.
    ///
    /// - Returns: false when the stream must stop here for now.
    mutating func offer(_ slot: MessageSlot, device deviceSlot: DeviceSlot, bytes: UnsafeRawBufferPointer?) -> Bool {
        let device = devices.pointer(deviceSlot)
        let entry = messages.pointer(slot)
        guard entry.pointee.ticket <= outbox.committedTicket || isPlanted(.deliverBeforeSync), !isWalled(deviceSlot)
        else {
            return false
        }
        let sequence = entry.pointee.facts.item
        if isOver(entry.pointee.facts.expiresAt) {
            // A lease may keep it; the next page begins after it.
            device.pointee.cursor = sequence + 1
            entry.pointee.flags.insert(.passedOver)
            entry.pointee.flags.remove(.sentHere)
            expireListed(slot)
            return true
        }
        if entry.pointee.facts.isOneShot,
            entry.pointee.flags.contains(.attempted) || entry.pointee.flags.contains(.cold)
        {
            // Its one live attempt is over; it only waits for its end.
            entry.pointee.flags.insert(.passedOver)
            entry.pointee.flags.remove(.sentHere)
            device.pointee.firstUnsent = entry.pointee.next
            device.pointee.cursor = sequence + 1
            return true
        }
        let byteCount = entry.pointee.facts.byteCount
        guard
            device.pointee.inFlightCount == 0
                || Int(device.pointee.inFlightBytes) + Int(byteCount) <= limits.windowByteCount
        else { return false }
        let alertedAt = entry.pointee.job == .none ? 0 : jobs.pointer(entry.pointee.job).pointee.row.alertedAt
        let attempt = sequence < device.pointee.resentBelow ? UInt32(device.pointee.round) : 1
        outbox.send(
            .deliver(
                device.pointee.session,
                DeliverEffect(
                    row: bytes ?? store.value(at: entry.pointee.location), sequence: sequence,
                    isOffline: isPlanted(.offlineFlagOnce)
                        ? entry.pointee.facts.flags.contains(.offline) : entry.pointee.isOffline,
                    alertedAt: alertedAt, attempt: attempt)))
        entry.pointee.flags.insert([.inFlight, .attempted, .sentHere])
        if entry.pointee.sentAt == 0 { entry.pointee.sentAt = now }
        entry.pointee.ackDeadline = ackDeadline(entry, device)
        device.pointee.inFlightCount += 1
        device.pointee.inFlightBytes += byteCount
        device.pointee.firstUnsent = entry.pointee.next
        device.pointee.cursor = sequence + 1
        device.pointee.offeredBelow = max(device.pointee.offeredBelow, sequence + 1)
        numbers.deliversSent &+= 1
        if attempt > 1 { numbers.deliversResent &+= 1 }
        // A live message's timer fires no later than that, and looks again: to set it anew would cost every message.
        // The timer of a queued message is at its end.
        if (messages.timers.deadline(of: slot) ?? .max) > entry.pointee.ackDeadline { armTimer(slot) }
        return true
    }

    /// Ends a message in memory that has expired, unless its job is leased.
    mutating func expireListed(_ slot: MessageSlot) {
        let entry = messages.pointer(slot)
        let job = entry.pointee.job
        if job != .none, jobs.pointer(job).pointee.row.state == .leased, jobs.pointer(job).pointee.row.leasedUntil > now
        {
            let device = devices.pointer(entry.pointee.device)
            if device.pointee.firstUnsent == slot { device.pointee.firstUnsent = entry.pointee.next }
            armTimer(slot)
            return
        }
        let alerted = job != .none && jobs.pointer(job).pointee.row.alertedAt > 0
        let device = entry.pointee.device
        inBatch(of: device) { shard in
            shard.end(entry.pointee.facts, .atExpiry(wasAlerted: alerted), message: slot, job: job)
        }
    }

    /// The young row of a message turned cold: a message that is not in flight leaves memory.
    mutating func messageCooled(_ key: StoreKey) {
        let cid = DeviceID(high: key.ownerHigh, low: key.ownerLow)
        guard let deviceSlot = knownDevice(cid),
            let slot = listedMessage(table: key.table, item: key.item, of: deviceSlot)
        else { return }
        let entry = messages.pointer(slot)
        entry.pointee.flags.insert(.cold)
        let job = entry.pointee.job
        if job != .none, !jobs.pointer(job).pointee.isStored { jobs.pointer(job).pointee.isCold = true }
        guard entry.pointee.flags.isDisjoint(with: [.inFlight, .sentHere]) else { return }
        leaveToStore(slot)
        devices.releaseQueue(deviceSlot)
    }

    /// Forgets a message that is on disk; the store reports its alarm from now on.
    mutating func leaveToStore(_ slot: MessageSlot) {
        let entry = messages.pointer(slot)
        let device = devices.pointer(entry.pointee.device)
        // The store has reported the alarm and will not do so again: the job stays in its place.
        if entry.pointee.flags.contains(.reported), entry.pointee.job == .none,
            entry.pointee.facts.flags.contains(.isArmed)
        {
            makeDue(slot, timedOut: true)
        }
        if entry.pointee.facts.table == .message {
            device.pointee.flags.insert(.coldAhead)
            device.pointee.departures &+= 1
        } else if entry.pointee.facts.table == .broadcast {
            device.pointee.flags.remove(.resolved)
        }
        device.pointee.coldKeys |= Self.keyBit(entry.pointee.collapseHash)
        forgetMessage(slot)
    }

    /// The bit of a digest in a word of 64; no bit for "no key".
    static func keyBit(_ hash: UInt64) -> UInt64 { hash == 0 ? 0 : 1 << (hash >> 40 & 63) }

    /// Makes everything in flight unsent again: the session ended, or the app may have dropped what it sent.
    ///
    /// A collapsed message has had its attempt and ends here. While the session continues, messages that it sent stay
    /// in memory: an ack may be on its way.
    mutating func recallInFlight(_ deviceSlot: DeviceSlot, isSessionOver: Bool) {
        let device = devices.pointer(deviceSlot)
        var slot = device.pointee.firstMessage
        while slot != .none {
            let entry = messages.pointer(slot)
            let next = entry.pointee.next
            if entry.pointee.flags.contains(.sentHere) {
                if isSessionOver { entry.pointee.flags.remove(.sentHere) }
                if entry.pointee.flags.contains(.inFlight) {
                    entry.pointee.flags.subtract([.inFlight, .overdue])
                    device.pointee.inFlightCount -= 1
                    device.pointee.inFlightBytes -= entry.pointee.facts.byteCount
                }
                if entry.pointee.flags.contains(.collapsed) {
                    inBatch(of: deviceSlot) { shard in
                        shard.end(entry.pointee.facts, .collapsed, message: slot, job: entry.pointee.job)
                    }
                } else if isSessionOver, entry.pointee.flags.contains(.cold) {
                    if entry.pointee.fallbackAt > 0, entry.pointee.job == .none { makeDue(slot, timedOut: false) }
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
        device.pointee.firstUnsent = device.pointee.firstMessage
        device.pointee.cursor = 0
        if device.pointee.coldMessageCount > 0 { device.pointee.flags.insert(.coldAhead) }
    }

    // MARK: Timers

    mutating func messageTimerFired(_ slot: MessageSlot) {
        let entry = messages.pointer(slot)
        if isOver(entry.pointee.facts.expiresAt) {
            expireListed(slot)
            return
        }
        let deviceSlot = entry.pointee.device
        if entry.pointee.flags.contains(.inFlight) {
            if entry.pointee.ackDeadline <= now, !entry.pointee.flags.contains(.overdue) {
                entry.pointee.flags.insert([.overdue, .missed])
                numbers.missedAckDeadlines &+= 1
                if entry.pointee.job == .none {
                    makeDue(slot, timedOut: true)
                } else {
                    jobs.pointer(entry.pointee.job).pointee.row.note(.timedOut, now)
                    placeJob(entry.pointee.job)
                }
                becomeSuspect(deviceSlot)
            }
        } else if entry.pointee.fallbackAt > 0, entry.pointee.fallbackAt <= now, entry.pointee.job == .none {
            if !devices.pointer(deviceSlot).pointee.isReachable { entry.pointee.flags.insert(.missed) }
            makeDue(slot, timedOut: entry.pointee.flags.contains(.missed))
        }
        armTimer(slot)
        if entry.pointee.facts.table == .broadcast { leaveBroadcasts(deviceSlot) }
    }
}
