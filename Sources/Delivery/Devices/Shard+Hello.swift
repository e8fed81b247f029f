// A device's Hello: who it is, what it processed, what the user opened; then the Welcome and the backlog.

internal import Structures
internal import Wire

extension Shard {
    /// Admits a connection as its device's session, or closes it with the reason.
    public mutating func hello(_ command: HelloCommand, now: GatewayTime) {
        begin(now)
        sessions.expect(command.session)
        if command.newSecret != nil {
            registerDevice(command)
            return
        }
        whenReady(deviceSlot(command.cid, bucket: command.bucket)) { shard, slot, readiness in
            // The device may have disconnected during the read.
            guard shard.sessions.isAwaited(command.session) else { return }
            switch readiness {
            case .ready: shard.authenticate(command, slot)
            case .unknown: shard.turnAway(command, .unknownDevice, "this cid is not known here: register anew")
            case .failed: shard.turnAway(command, .storeUnavailable, "the device's record cannot be read now")
            case .crowded: shard.turnAway(command, .storeUnavailable, "too many commands wait for device records")
            }
        }
    }

    private mutating func turnAway(_ command: HelloCommand, _ code: CloseCode, _ reason: StaticString) {
        numbers.helloRefused &+= 1
        outbox.send(.close(command.session, code, reason: reason))
    }

    private mutating func registerDevice(_ command: HelloCommand) {
        guard knownDevice(command.cid) == nil, store.acceptsWrites,
            !retiredApps.contains(command.app)
        else {
            turnAway(command, .storeUnavailable, "registration is not possible now")
            return
        }
        let slot = deviceSlot(command.cid, bucket: command.bucket)
        let device = devices.pointer(slot)
        device.pointee.appIndex = appIndex(command.app)
        device.pointee.flags.insert(.touched)
        device.pointee.queueEpoch = queueEpoch
        device.pointee.registeredAt = now
        device.pointee.coldKeys = 0
        // Earlier broadcasts are not for a new device.
        device.pointee.broadcastSettled = broadcastLog(device)?.head ?? 0
        device.pointee.flags.insert(.resolved)
        devices.keepProfile(slot, DeviceProfile(secret: command.newSecret ?? [], tokens: []))
        devices.noteLoaded(slot)
        numbers.registrations &+= 1
        welcome(command, slot, isRegistration: true)
        evictIdle()
    }

    /// Checks the proof first, so that a peer learns nothing about a device of another; then the clock.
    private mutating func authenticate(_ command: HelloCommand, _ slot: UInt32) {
        let device = devices.pointer(slot)
        guard apps[Int(device.pointee.appIndex)].key == command.app else {
            turnAway(command, .unknownDevice, "this cid is not known here: register anew")
            return
        }
        guard !retiredApps.contains(command.app) else {
            turnAway(command, .unknownApp, "this app is not served here")
            return
        }
        guard verifier.isProof(command.proof, of: command.transcript, secret: profile(slot).secret) else {
            turnAway(command, .badProof, "the proof does not match")
            return
        }
        let timestamp = command.hello.timestamp
        let skew = Int64(clamping: timestamp).subtractingReportingOverflow(now)
        guard timestamp > device.pointee.lastTimestamp || isPlanted(.timestampIgnored), !skew.overflow,
            abs(skew.partialValue) <= limits.clockTolerance
        else {
            turnAway(command, .clockSkew, "the timestamp must increase and lie within 120 s of server_time")
            return
        }
        // The Hello is accepted: an older session of the device ends.
        device.pointee.lastTimestamp = timestamp
        device.pointee.flags.insert(.established)
        if device.pointee.isConnected {
            outbox.send(
                .close(device.pointee.session, .replaced, reason: "another session of this device took over"))
            endSession(slot, announced: false)
        }
        settlePositions(command, slot)
    }

    // MARK: Positions

    private mutating func settlePositions(_ command: HelloCommand, _ slot: UInt32) {
        let device = devices.pointer(slot)
        if let broadcast = command.hello.positions.first(where: { $0.stream == 1 }),
            command.hello.queueEpoch == device.pointee.queueEpoch,
            broadcast.ranges.reduce(broadcast.sequence, { max($0, $1.last) }) > broadcastLog(device)?.head ?? 0
        {
            device.pointee.queueEpoch = max(device.pointee.queueEpoch &+ 1, queueEpoch)
            log(.warning, "positionBeyondQueue", "a device's position exceeds the app's log; its queue epoch changes")
            settleOpened(command, slot)
            return
        }
        guard let position = command.hello.positions.first(where: { $0.stream == 0 }),
            command.hello.queueEpoch == device.pointee.queueEpoch, !isPlanted(.positionsIgnored)
        else {
            settleOpened(command, slot)
            return
        }
        let highest = position.ranges.reduce(position.sequence) { max($0, $1.last) }
        guard highest < device.pointee.nextSequence else {
            // The device knows sequences that this store never gave: the store is older than what the device has seen.
            device.pointee.queueEpoch = max(device.pointee.queueEpoch &+ 1, queueEpoch)
            log(.warning, "positionBeyondQueue", "a device's position exceeds what was given; its queue epoch changes")
            settleOpened(command, slot)
            return
        }
        settleListed(command, slot, position, highest: highest)
    }

    /// Ends the messages in memory that a position names, a slice a turn, then those on disk.
    private mutating func settleListed(
        _ command: HelloCommand, _ slot: UInt32, _ position: StreamPosition, highest: UInt64
    ) {
        let device = devices.pointer(slot)
        var named: [UInt32] = []
        var next = device.pointee.firstMessage
        while next != .max, named.count < limits.sliceCount {
            let item = messages.pointer(next).pointee.facts.item
            guard item <= highest else { break }
            if position.names(item), mayHaveArrived(next) { named.append(next) }
            next = messages.pointer(next).pointee.next
        }
        endAcked(named, slot)
        guard named.count < limits.sliceCount else {
            device.pointee.flags.insert(.busy)
            later { shard in
                shard.devices.pointer(slot).pointee.flags.remove(.busy)
                shard.settleListed(command, slot, position, highest: highest)
                shard.drainWaiting(slot)
            }
            return
        }
        guard device.pointee.coldMessageCount > 0, highest > 0 else {
            settleOpened(command, slot)
            return
        }
        device.pointee.flags.insert(.busy)
        settleCold(command, slot, position, highest: highest, from: 0)
    }

    /// Ends the cold rows that a position names, page by page; they are at the head of the queue.
    private mutating func settleCold(
        _ command: HelloCommand, _ slot: UInt32, _ position: StreamPosition, highest: UInt64, from item: UInt64
    ) {
        scan(slot, table: .message, from: item, rowLimit: 128, byteLimit: 1 << 20) { shard, rows, isComplete, ok in
            let device = shard.devices.pointer(slot)
            guard ok else {
                device.pointee.flags.remove(.busy)
                shard.turnAway(command, .storeUnavailable, "the queue cannot be read now")
                shard.drainWaiting(slot)
                return
            }
            var named: [UInt32] = []
            for row in rows where position.names(row.facts.item) {
                let isKnown = shard.listedMessage(table: .message, item: row.facts.item, of: slot) != nil
                let message = shard.adoptMessage(row, device: slot)
                if shard.mayHaveArrived(message) {
                    named.append(message)
                } else if !isKnown {
                    shard.leaveToStore(message)
                }
            }
            shard.endAcked(named, slot)
            if !isComplete, let last = rows.last, last.facts.item < highest {
                shard.settleCold(command, slot, position, highest: highest, from: last.facts.item + 1)
                return
            }
            device.pointee.flags.remove(.busy)
            shard.settleOpened(command, slot)
            shard.drainWaiting(slot)
        }
    }

    /// Whether a position that names a message is evidence that the device processed it.
    ///
    /// Positions are cumulative. The stream passes over messages that expired while a lease is out, and over one-shot
    /// messages after their attempt. The client cannot see those gaps.
    private func mayHaveArrived(_ message: UInt32) -> Bool {
        let entry = messages.pointer(message)
        if entry.pointee.flags.contains(.passedOver) { return false }
        if entry.pointee.flags.contains(.attempted) { return true }
        if entry.pointee.facts.expiresAt <= now { return false }
        // An earlier session, or the process before the restart, may have passed over a one-shot message in the store.
        // That it was sent does not say that the device read it. So it keeps its own end: an alert too many is better
        // than a delivery that never was.
        return !entry.pointee.facts.isOneShot
    }

    /// Gives acked messages their final state.
    mutating func endAcked(_ acked: [UInt32], _ slot: UInt32) {
        guard !acked.isEmpty else { return }
        inBatches(of: slot) { shard in
            for message in acked {
                shard.nextChange()
                let entry = shard.messages.pointer(message)
                shard.end(
                    entry.pointee.facts, entry.pointee.isOffline ? .deliveredOffline : .delivered, message: message,
                    job: entry.pointee.job)
            }
        }
    }

    // MARK: Opened

    /// Ends messages that the user opened from a notification before the shard pages the backlog.
    private mutating func settleOpened(_ command: HelloCommand, _ slot: UInt32) {
        let opened = command.hello.opened.prefix(Limits.openedPerHello)
        guard let first = opened.first else {
            settleBroadcasts(command, slot)
            return
        }
        devices.pointer(slot).pointee.flags.insert(.busy)
        if command.hello.replayOpened { devices.pointer(slot).pointee.flags.insert(.replayOpened) }
        settleOpened(command, slot, first, rest: opened.dropFirst())
    }

    private mutating func settleOpened(
        _ command: HelloCommand, _ slot: UInt32, _ message: MessageID, rest: ArraySlice<MessageID>
    ) {
        markOpened(message, slot) { shard in
            if let next = rest.first {
                shard.settleOpened(command, slot, next, rest: rest.dropFirst())
                return
            }
            shard.devices.pointer(slot).pointee.flags.remove(.busy)
            shard.settleBroadcasts(command, slot)
            shard.drainWaiting(slot)
        }
    }

    // MARK: Broadcasts

    /// Brings pending messages of broadcasts into memory and ends those that the device's position names.
    private mutating func settleBroadcasts(_ command: HelloCommand, _ slot: UInt32) {
        resolveBroadcasts(slot) { shard, ok in
            guard ok else {
                shard.turnAway(command, .storeUnavailable, "the device's broadcasts cannot be read now")
                return
            }
            if let position = command.hello.positions.first(where: { $0.stream == 1 }),
                command.hello.queueEpoch == shard.devices.pointer(slot).pointee.queueEpoch,
                !shard.isPlanted(.positionsIgnored)
            {
                shard.settleBroadcastPosition(position, slot)
            }
            shard.welcome(command, slot, isRegistration: false)
        }
    }

    // MARK: Welcome

    private mutating func welcome(_ command: HelloCommand, _ slot: UInt32, isRegistration: Bool) {
        // A device that disconnected meanwhile has no session; what its Hello settled stays settled.
        guard sessions.isAwaited(command.session) else { return leaveBroadcasts(slot) }
        let hello = command.hello
        let device = devices.pointer(slot)
        device.pointee.generation &+= 1
        // The shard does not remember a registration's timestamp. A registration proves a new secret, and a clock far
        // ahead would lock the new device out until that time.
        if !isRegistration { device.pointee.lastTimestamp = max(device.pointee.lastTimestamp, hello.timestamp) }
        device.pointee.session = command.session
        device.pointee.flags.formUnion([.connected, .gated])
        device.pointee.gates = 1
        device.pointee.state = hello.applicationState
        if hello.keepsRunning {
            device.pointee.flags.insert(.keepsRunning)
        } else {
            device.pointee.flags.remove(.keepsRunning)
        }
        if hello.replayOpened {
            device.pointee.flags.insert(.replayOpened)
        } else {
            device.pointee.flags.remove(.replayOpened)
        }
        if let badge = hello.badge { device.pointee.setBadge(badge) }
        if !hello.tokens.isEmpty { register(hello.tokens, slot, isAgain: false) }
        device.pointee.heartbeatSeconds = heartbeat(wish: hello.heartbeatSeconds)
        let window = hello.window == 0 ? limits.window : min(limits.window, Int(hello.window))
        device.pointee.window = UInt16(clamping: max(1, window))
        (device.pointee.round, device.pointee.offeredBelow, device.pointee.resentBelow) = (1, 0, 0)
        let isFirstOfDay = isRegistration || CountersRow.day(of: device.pointee.lastHeardAt) != CountersRow.day(of: now)
        device.pointee.lastHeardAt = now
        device.pointee.firstUnsent = device.pointee.firstMessage
        device.pointee.cursor = 0
        if device.pointee.coldMessageCount > 0 { device.pointee.flags.insert(.coldAhead) }
        sessions.attach(command.session, to: slot, ofApp: Int(device.pointee.appIndex))
        armHeartbeat(slot)

        var welcome = Welcome()
        welcome.generation = device.pointee.generation
        welcome.queueEpoch = device.pointee.queueEpoch
        welcome.heartbeatSeconds = UInt32(device.pointee.heartbeatSeconds)
        welcome.window = UInt32(device.pointee.window)
        welcome.serverTime = UInt64(max(0, now))
        welcome.backlog = UInt64(max(0, device.pointee.messageCount))
        welcome.dropped = device.pointee.dropped.wire
        if isRegistration {
            welcome.cid = command.cid
            welcome.deviceSecret = command.newSecret ?? []
        }
        device.pointee.dropped = DroppedCounts()
        inBatch(of: slot) { shard in
            device.pointee.flags.insert(.dirty)
            if isRegistration { shard.count(.registered) }
            if isFirstOfDay { shard.count(.active) }
        }
        let ticket = outbox.lastTicket
        presenceChanged(slot)
        whenDurable(.welcome(command.session, WelcomeEffect(welcome: welcome, cid: command.cid)), ticket: ticket)
    }
}

extension StreamPosition {
    /// True when the position says that this sequence is processed.
    func names(_ sequence: UInt64) -> Bool {
        sequence <= self.sequence || ranges.contains { $0.first <= sequence && sequence <= $0.last }
    }
}
