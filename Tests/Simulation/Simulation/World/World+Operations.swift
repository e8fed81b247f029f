internal import Delivery
internal import LongwireClient
internal import Wire

// The next operation: an action of a device or a caller, or a fault.
extension World {
    func operate() {
        let sum = plan.crashWeight + plan.networkWeight + plan.clientWeight + plan.publishWeight + plan.coolWeight + 6
        var draw = chance.below(sum)
        func falls(_ weight: Int) -> Bool {
            defer { draw -= weight }
            return draw >= 0 && draw < weight
        }
        if falls(plan.crashWeight) {
            if chance.perMille(250) { crash() }
        } else if falls(plan.networkWeight) {
            breakSomeConnection()
        } else if falls(plan.clientWeight) {
            disturb(chance.one(of: devices))
        } else if falls(plan.publishWeight) {
            publishSomething()
        } else if falls(plan.coolWeight) {
            coolSomething()
        } else {
            disturbStore()
        }
        engine.disturb()
    }

    private func disturb(_ device: SimulatedDevice) {
        log.note(now, "disturb", Int64(device.index))
        switch chance.below(20) {
        case 0...4:
            guard !device.isFrozen else { return }
            faults.note(.stateChanged)
            eventCount += 1
            let state = chance.one(of: [ApplicationState.foreground, .foreground, .background, .terminated])
            device.perform(.applicationState(state, keepsRunning: device.core.configuration.keepsRunning))
        case 5, 6: device.freeze(announced: chance.perMille(800))
        case 7: device.crash()
        case 8: device.reconnectOverLive()
        case 9: if !device.isFrozen { device.changeToken() }
        case 10:
            guard !device.isFrozen else { return }
            device.perform(.badge(Int32(chance.between(-2, 30))))
        case 11:
            guard !device.isFrozen else { return }
            faults.note(.pushModeSwitched)
            device.perform(.pushModeOff(chance.perMille(400)))
        case 12, 13:
            guard let record = device.alerts.popLast(), record.identity.device == device.index else { return }
            if device.isFrozen || chance.perMille(300) { device.crash(tapping: record) } else { device.open(record) }
        case 14: device.skewClock()
        case 15:
            if device.isLiar { device.forgetPositions() } else { sendStaleFrame() }
            replayHello()
        case 16:
            guard !device.isFrozen else { return }
            device.perform(.heartbeat(seconds: UInt32(chance.one(of: [30, 60, 300]))))
        default:
            guard device.core.isStopped else { return }
            device.start()
        }
    }

    private func coolSomething() {
        guard isUp else { return }
        let loop = chance.one(of: loops)
        let share = chance.one(of: [0, 0, 300, 700])
        let count = loop.store.cool(limit: chance.one(of: [1, 10, 100, .max])) { [self] _ in chance.perMille(share) }
        loop.perform()
        if count > 0 {
            eventCount += 1
            faults.note(.rowsCooled)
            log.note(now, "cooled", Int64(loop.index), Int64(count))
        }
    }

    private func disturbStore() {
        guard isUp else { return }
        meetSomeEnd()
        switch chance.below(12) {
        case 0...4:
            let loop = chance.one(of: loops)
            if loop.store.acceptsWrites { faults.note(.storeFull) }
            loop.store.acceptsWrites.toggle()
        case 5...8:
            faults.note(.clockSlewed)
            slew(chance.time(-50_000, 50_000))
        case 9:
            // A call in flight that looks for its request's row would create its task a second time under the same id.
            guard !broadcasting.hasOpenCalls, loops.count(where: { $0.store.dropEphemeralRows() }) > 0 else { return }
            faults.note(.ephemeralRowsDropped)
            oracle.ephemeralRowsDropped()
        case 10:
            guard plan.readTrouble > 0 else { return }
            faults.note(.readsFailForAWhile)
            readsFailUntil = now + chance.time(100, 20_000)
        default: for loop in loops { loop.store.acceptsWrites = true }
        }
    }

    /// Schedules a sender's lease request for the millisecond in which a message expires.
    private func meetSomeEnd() {
        let open = records.suffix(200).filter {
            $0.isPending && $0.expiresAt > gatewayNow + 1 && $0.isDue(at: gatewayNow)
        }
        guard !open.isEmpty else { return }
        let record = chance.one(of: open)
        // The gateway's clock may be slewed until then, so the time is checked again shortly before.
        queue.add(.endMet(record: record.index), at: now + (record.expiresAt - gatewayNow) * 9 / 10)
    }

    func meetEnd(of record: Record) {
        guard isUp, !isHealing, record.isPending, record.expiresAt >= gatewayNow else { return }
        // A sync may happen between the lease and its answer, so the request is made in that millisecond or just before.
        let rest = record.expiresAt - gatewayNow
        guard rest <= Int64(chance.below(5)) else {
            return queue.add(.endMet(record: record.index), at: now + max(1, rest * 9 / 10))
        }
        faults.note(.leasedAtExpiry)
        lease(senders[0], limit: 1_000)
    }

    /// Passes a late frame of a closed session to the shard; nothing may change.
    private func sendStaleFrame() {
        guard isUp, let link = links.last(where: { $0.phase == .closed && $0.life == life && $0.session != .none })
        else { return }
        let loop = loops[link.loop]
        guard loop.sessions[link.session] == nil else { return }
        faults.note(.staleSessionFrame)
        eventCount += 1
        let ticket = loop.store.lastTicket
        // On Redis the effects of a refused Hello may be deferred to the next turn.
        let hadEffects = loop.shard.hasEffects
        switch chance.below(5) {
        case 0:
            let range = [SequenceRange(first: 1, last: max(1, link.lastSequence))]
            range.withUnsafeBufferPointer {
                loop.shard.acknowledge(link.session, cumulative: link.lastSequence, ranges: $0, now: gatewayNow)
            }
        case 1: loop.shard.reject(link.session, sequence: link.lastSequence, reason: "", now: gatewayNow)
        case 2:
            var update = DeviceUpdate()
            update.applicationState = .background
            update.badge = 99
            loop.shard.update(link.session, update, now: gatewayNow)
        case 3: loop.shard.sessionEnded(link.session, announced: true, now: gatewayNow)
        default: loop.shard.heard(link.session, now: gatewayNow)
        }
        if loop.store.lastTicket != ticket || loop.shard.hasEffects && !hadEffects {
            fail(.fencing, "a frame of a session that is over changed something")
        }
    }

    // MARK: Healing

    /// Stops the faults, reconnects all devices, advances time beyond every TTL, then runs the final checks.
    func heal() {
        isHealing = true
        engine.heal()
        if engine.hasLostParts { crash() }
        log.note(now, "healing begins")
        slew(0)
        if !isUp { while !isUp, violation == nil { step() } }
        for loop in loops { loop.store.acceptsWrites = true }
        for sender in senders { sender.character = .honest }
        if hasServer { clearBlacklists() }
        // Calls in flight complete first.
        if engine.lead > 0 { pass(milliseconds: engine.lead) }
        // Time alone must end expired messages while the devices keep their state.
        pass(milliseconds: 30_000)
        coolLedger()
        pass(milliseconds: 120_000)
        oracle.checkOverdue()
        oracle.checkWinners()
        for device in devices {
            if device.isFrozen { device.resume() }
            if device.core.isStopped { device.start() }
            device.perform(.pushModeOff(false))
            device.perform(.applicationState(.foreground, keepsRunning: false))
        }
        // Reconnect backoff may exceed five minutes.
        pass(milliseconds: 900_000)
        for device in devices where device.core.isStopped { device.start() }
        coolLedger()
        // The faults may have scheduled a late retry, so the wait covers the longest TTL.
        pass(milliseconds: plan.maximumTimeToLive + 200_000)
        if violation == nil { oracle.checkEnd() }
        if hasServer { checkDirectory() }
        if violation == nil, let text = engine.checkEnd() { fail(.storeContract, text) }
    }

    /// Makes all ledger rows cold.
    ///
    /// The alarm of a ledger row that its device has passed becomes due only when the row is cold, as every row is within minutes.
    private func coolLedger() {
        for loop in loops { _ = loop.store.cool(limit: .max) { $0.table != .taskMessage } }
    }

    func pass(milliseconds: Int64) {
        let end = now + milliseconds
        while violation == nil, let next = queue.nextTime, next <= end { step() }
        now = max(now, end)
    }
}
