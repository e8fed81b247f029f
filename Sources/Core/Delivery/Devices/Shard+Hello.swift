internal import Structures
internal import Wire

private struct Arrival {
    var command: HelloCommand
    var slot: DeviceSlot
    /// The position in the device's own stream, if it counts for this history.
    var position: StreamPosition?
    /// The position in the stream of broadcasts, if it counts.
    var broadcastPosition: StreamPosition?
}

private struct Refusal {
    var code: CloseCode
    var reason: StaticString
    init(_ code: CloseCode, _ reason: StaticString) { (self.code, self.reason) = (code, reason) }
}

extension Shard {
    /// Accepts a connection as its device's session, or closes it with a reason.
    ///
    /// The gateway has checked the frame and a registration's proof (`DeviceHandshake`). This function runs all later stages in
    /// order. A stage with a closure may wait for the disk or for later turns.
    package mutating func hello(_ command: HelloCommand, now: GatewayTime) {
        begin(now)
        sessions.expect(command.session)
        if command.newSecret != nil {
            guard let slot = registerDevice(command) else { return }
            welcome(command, slot, isRegistration: true)
            evictIdle()
            return
        }
        whenReady(deviceSlot(command.cid, bucket: command.bucket)) { shard, slot, readiness in
            // The device may have disconnected during the load.
            guard shard.sessions.isAwaited(command.session) else { return }
            if let refusal = shard.refusal(readiness) ?? shard.refusal(command, slot) {
                return shard.turnAway(command, refusal)
            }
            shard.replaceSession(command, slot)
            let arrival = shard.arrival(command, slot)
            shard.whileBusy(slot) { shard, done in
                // May read pages of the queue.
                shard.settleOwn(arrival) { shard, reading in
                    guard reading == .whole else {
                        return done(&shard, Refusal(.storeUnavailable, "the queue cannot be read now"))
                    }
                    // May read rows of opened messages, which must end before the shard pages the backlog.
                    shard.settleOpened(arrival) { shard, reading in
                        guard reading == .whole else {
                            return done(&shard, Refusal(.storeUnavailable, "opened messages cannot be recorded now"))
                        }
                        // Broadcasts wait until the app's log is known. An unavailable log does not keep the device from
                        // connecting.
                        guard shard.knowsBroadcasts(of: command.app) else { return done(&shard, nil) }
                        // May read ledger rows of live broadcasts.
                        shard.resolveBroadcasts(slot) { shard, reading in
                            let reason: StaticString = "the device's broadcasts cannot be read now"
                            done(&shard, reading == .whole ? nil : Refusal(.storeUnavailable, reason))
                        }
                    }
                }
            } then: { (shard: inout Shard, refusal: Refusal?) in
                if let refusal { return shard.turnAway(command, refusal) }
                if let position = arrival.broadcastPosition { shard.settleBroadcastPosition(position, slot) }
                shard.welcome(command, slot, isRegistration: false)
            }
        }
    }

    private mutating func turnAway(_ command: HelloCommand, _ refusal: Refusal) {
        numbers.helloRefused &+= 1
        outbox.send(.close(command.session, refusal.code, reason: refusal.reason))
    }

    // MARK: Registration

    private mutating func registerDevice(_ command: HelloCommand) -> DeviceSlot? {
        guard knownDevice(command.cid) == nil, store.acceptsWrites,
            apps.isServed(command.app)
        else {
            turnAway(command, Refusal(.storeUnavailable, "registration is not possible now"))
            return nil
        }
        // Without the log, earlier broadcasts cannot be excluded. The retry uses a new cid, perhaps in another partition.
        guard knowsBroadcasts(of: command.app) else {
            turnAway(command, Refusal(.storeUnavailable, "the app's broadcasts are not known yet; try again"))
            return nil
        }
        let slot = deviceSlot(command.cid, bucket: command.bucket)
        let device = devices.at(slot)
        device.value.appIndex = appIndex(command.app)
        // Earlier broadcasts are not for a new device.
        device.value.register(
            queueEpoch: queueEpoch, broadcastSettled: broadcastLog(device)?.head ?? 0, now: now)
        devices.changeProfile(slot, to: DeviceProfile(secret: command.newSecret ?? [], tokens: []))
        devices.noteLoaded(slot)
        numbers.registrations &+= 1
        return slot
    }

    // MARK: Proof

    private func refusal(_ readiness: Readiness) -> Refusal? {
        switch readiness {
        case .ready: nil
        case .unknown: Refusal(.unknownDevice, "this cid is not known here: register anew")
        case .failed: Refusal(.storeUnavailable, "the device's record cannot be read now")
        case .crowded: Refusal(.storeUnavailable, "too many commands wait for device records")
        }
    }

    /// Returns why a Hello is refused.
    ///
    /// The proof is checked before the timestamp, so that a caller without the secret learns nothing about the device.
    private mutating func refusal(_ command: HelloCommand, _ slot: DeviceSlot) -> Refusal? {
        let device = devices.at(slot)
        guard apps[Int(device.value.appIndex)].key == command.app else {
            return Refusal(.unknownDevice, "this cid is not known here: register anew")
        }
        guard apps[Int(device.value.appIndex)].isServed else { return refusal(ofApp: device.value.appIndex) }
        guard verifier.isProof(command.proof, of: command.transcript, secret: profile(slot).secret) else {
            return Refusal(.badProof, "the proof does not match")
        }
        let timestamp = command.hello.timestamp
        guard isUnused(timestamp, by: device) || isPlanted(.timestampIgnored), isWithinClock(timestamp) else {
            return Refusal(
                .clockSkew,
                "the device's clock is wrong: its timestamp must increase and lie within 120 s of server_time")
        }
        return nil
    }

    /// Returns the refusal of a Hello whose app is not served here.
    ///
    /// The gateway knew the app when it read the Hello, so this shard's apps are slightly out of date.
    private func refusal(ofApp place: UInt16) -> Refusal {
        switch apps[Int(place)].knowledge {
        case .known: Refusal(.appDisabled, "the app is disabled")
        case .absent, .unknown: Refusal(.moved, "this gateway does not know the app yet; retry")
        }
    }

    /// Returns whether no earlier Hello of the device can have had this timestamp.
    ///
    /// A restored store lacks the timestamps since its backup, but these are before the beginning of its history.
    private func isUnused(_ timestamp: UInt64, by device: Place<Device>) -> Bool {
        let began = history.began / 1_000
        return timestamp > device.value.lastTimestamp && (timestamp > began || began >= UInt64(clamping: now))
    }

    /// Returns whether a device's timestamp is within the tolerance of gateway time.
    func isWithinClock(_ timestamp: UInt64) -> Bool {
        let skew = Int64(clamping: timestamp).subtractingReportingOverflow(now)
        return !skew.overflow && skew.partialValue.magnitude <= limits.clockTolerance.magnitude
    }

    private mutating func replaceSession(_ command: HelloCommand, _ slot: DeviceSlot) {
        let device = devices.at(slot)
        device.value.admitHello(timestamp: command.hello.timestamp)
        if device.value.isConnected {
            outbox.send(
                .close(device.value.session, .replaced, reason: "another session of this device took over"))
            endSession(slot, announced: false)
        }
    }

    // MARK: Positions

    /// Returns the positions of the Hello that count.
    ///
    /// Positions of another history settle nothing. A position above everything assigned in this history means that the store
    /// lost data: no position counts, and the queue epoch changes.
    private mutating func arrival(_ command: HelloCommand, _ slot: DeviceSlot) -> Arrival {
        let device = devices.at(slot)
        var arrival = Arrival(command: command, slot: slot)
        guard
            command.hello.queueEpoch == history.epoch(device.value.queueEpoch)
                || isPlanted(.otherHistoryCounts)
        else { return arrival }
        let own = command.hello.positions.first { $0.stream == 0 }
        // A position in broadcasts counts only if the app's log is known.
        let broadcast =
            knowsBroadcasts(of: command.app) ? command.hello.positions.first { $0.stream == 1 } : nil
        let isBeyondLog = broadcast.map { $0.highest > broadcastLog(device)?.head ?? 0 } ?? false
        let isBeyondQueue = own.map { $0.highest >= device.value.nextSequence } ?? false
        if isBeyondLog || isBeyondQueue && !isPlanted(.positionsIgnored) {
            device.value.renewQueueEpoch(atLeast: queueEpoch)
            let bound: StaticString = isBeyondLog ? "the app's log" : "the highest assigned sequence"
            log(.warning, "positionBeyondQueue", "a device's position exceeds \(bound); its queue epoch changes")
        } else if !isPlanted(.positionsIgnored) {
            (arrival.position, arrival.broadcastPosition) = (own, broadcast)
        }
        return arrival
    }

    /// Ends the messages in memory that a position names, one slice per turn, then those on disk.
    private mutating func settleOwn(_ arrival: Arrival, completion: @escaping (inout Shard, Reading) -> Void) {
        guard let position = arrival.position else { return completion(&self, .whole) }
        let (slot, highest) = (arrival.slot, position.highest)
        let device = devices.at(slot)
        var named: [MessageSlot] = []
        var next = device.value.firstMessage
        while next != .none, named.count < limits.sliceCount {
            let item = messages.at(next).value.facts.item
            guard item <= highest else { break }
            if position.names(item), mayHaveArrived(next) { named.append(next) }
            next = messages.at(next).value.next
        }
        endAcked(named, slot)
        if named.count == limits.sliceCount {
            later { shard in
                shard.settleOwn(arrival, completion: completion)
            }
        } else if device.value.coldMessageCount > 0, highest > 0 {
            settleCold(slot, position, from: 0, completion: completion)
        } else {
            completion(&self, .whole)
        }
    }

    /// Ends the rows on disk that a position names, page by page; they are at the head of the queue.
    private mutating func settleCold(
        _ slot: DeviceSlot, _ position: StreamPosition, from item: UInt64,
        completion: @escaping (inout Shard, Reading) -> Void
    ) {
        scan(slot, table: .message, from: item, rowLimit: 128, byteLimit: 1 << 20) { shard, page in
            guard case .rows(let rows, let isLast) = page else { return completion(&shard, .unreadable) }
            var named: [MessageSlot] = []
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
            if !isLast, let last = rows.last, last.facts.item < position.highest {
                shard.settleCold(slot, position, from: last.facts.item + 1, completion: completion)
            } else {
                completion(&shard, .whole)
            }
        }
    }

    /// Returns whether a position that names a message proves that the device processed it.
    ///
    /// Positions are cumulative, and the client cannot see gaps. The stream may have passed over the message: it expired during a
    /// lease, or it is one-shot and its attempt was over.
    private func mayHaveArrived(_ message: MessageSlot) -> Bool {
        let entry = messages.at(message)
        if entry.value.flags.contains(.passedOver) { return false }
        if entry.value.flags.contains(.attempted) { return true }
        if entry.value.facts.expiresAt <= now { return false }
        // An earlier session, or the process before a restart, may have passed over a one-shot message on disk. Such a message is
        // not settled, because a redundant alert is better than a false delivery.
        return !entry.value.facts.isOneShot
    }

    // MARK: Opened

    /// Ends messages that the user opened from a notification, before the shard pages the backlog.
    ///
    /// The Welcome confirms all of them to the device. If one cannot be recorded, the device therefore gets no Welcome.
    private mutating func settleOpened(_ arrival: Arrival, completion: @escaping (inout Shard, Reading) -> Void) {
        let hello = arrival.command.hello
        let opened = hello.opened.prefix(Limits.openedPerHello)
        if !opened.isEmpty, hello.replayOpened {
            devices.at(arrival.slot).value.noteReplay()
        }
        settleOpened(opened, arrival.slot, completion: completion)
    }

    private mutating func settleOpened(
        _ opened: ArraySlice<MessageID>, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, Reading) -> Void
    ) {
        guard let message = opened.first else { return completion(&self, .whole) }
        let report = DeviceReport(kind: .opened, action: 0, message: message, at: now)
        // Clears the limit of one search per second because each of these few messages may need a search.
        devices.at(slot).value.queuedSearchAt = 0
        markOpened(report, slot) { shard, verdict in
            guard verdict != .retry else { return completion(&shard, .unreadable) }
            shard.settleOpened(opened.dropFirst(), slot, completion: completion)
        }
    }

    // MARK: Welcome

    private mutating func welcome(_ command: HelloCommand, _ slot: DeviceSlot, isRegistration: Bool) {
        // The device disconnected during the look-ups. Messages settled by its Hello stay settled.
        guard sessions.isAwaited(command.session) else { return leaveBroadcasts(slot) }
        let hello = command.hello
        let device = devices.at(slot)
        device.change { device in
            // A registration's timestamp is not stored. The registration proves a new secret, and a clock far ahead would lock
            // the device out until that time.
            device.countSession(timestamp: isRegistration ? nil : hello.timestamp)
            device.setReplayOpened(hello.replayOpened)
            if let badge = hello.badge { device.chooseBadge(badge) }
        }
        device.value.session = command.session
        device.value.flags.formUnion([.connected, .gated])
        device.value.gates = 1
        device.value.state = hello.applicationState
        if hello.keepsRunning {
            device.value.flags.insert(.keepsRunning)
        } else {
            device.value.flags.remove(.keepsRunning)
        }
        note(hello.refusedTokens, of: slot)
        let news = hello.tokens.isEmpty ? nil : register(hello.tokens, slot, isAgain: false)
        let attributes = takeAttributes(hello, slot)
        device.value.heartbeatSeconds = heartbeat(wish: hello.heartbeatSeconds)
        let window = hello.window == 0 ? limits.window : min(limits.window, Int(hello.window))
        device.value.window = UInt16(clamping: max(1, window))
        (device.value.round, device.value.offeredBelow, device.value.resentBelow) = (1, 0, 0)
        let isFirstOfDay = isRegistration || CountersRow.day(of: device.value.lastHeardAt) != CountersRow.day(of: now)
        device.value.lastHeardAt = now
        device.value.firstUnsent = device.value.firstMessage
        device.value.cursor = 0
        if device.value.coldMessageCount > 0 { device.value.flags.insert(.coldAhead) }
        sessions.attach(command.session, to: slot, ofApp: Int(device.value.appIndex))
        armHeartbeat(slot)

        var welcome = Welcome()
        welcome.generation = device.value.generation
        welcome.queueEpoch = history.epoch(device.value.queueEpoch)
        welcome.heartbeatSeconds = UInt32(device.value.heartbeatSeconds)
        welcome.window = UInt32(device.value.window)
        welcome.serverTime = UInt64(max(0, now))
        welcome.backlog = UInt64(max(0, device.value.messageCount))
        welcome.dropped = device.value.dropped.wire
        if isRegistration {
            welcome.cid = command.cid
            welcome.deviceSecret = command.newSecret ?? []
        }
        device.value.clearDropped()
        inBatch(of: slot) { shard in
            if isRegistration { shard.countDevice(1) }
            if isFirstOfDay { shard.count(.active) }
            if let attributes { shard.writeAttributes(attributes, slot) }
            shard.noteEvent(.online)
        }
        let ticket = outbox.lastTicket
        tell(news)
        presenceChanged(slot)
        whenDurable(.welcome(command.session, WelcomeEffect(welcome: welcome, cid: command.cid)), ticket: ticket)
    }
}
