internal import Structures
package import Wire

extension Shard {
    // MARK: Presence

    /// Records a read from this session; called once per read event.
    ///
    /// - Returns: true if the shard has effects, which is rare.
    @discardableResult
    package mutating func heard(_ session: SessionRef, now: GatewayTime) -> Bool {
        begin(now)
        guard let slot = device(of: session) else { return outbox.hasEffects }
        let device = devices.at(slot)
        device.value.lastHeardAt = self.now
        if device.value.flags.contains(.suspect) {
            device.value.flags.remove(.suspect)
            presenceChanged(slot)
            pump(slot)
        }
        return outbox.hasEffects
    }

    /// Marks a session with an overdue ack as suspect; the shard sends a Ping and treats the device as unreachable.
    mutating func becomeSuspect(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard device.value.isConnected, !device.value.flags.contains(.suspect) else { return }
        if !isPlanted(.suspectCountsAsReachable) { device.value.flags.insert(.suspect) }
        device.value.suspectSince = now
        outbox.send(.ping(device.value.session))
        devices.timers.schedule(slot, at: now + limits.suspectSilence)
        presenceChanged(slot)
    }

    /// Updates the count of reachable devices and places the device's jobs again.
    mutating func presenceChanged(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        let isReachable = device.value.isReachable
        if isReachable != device.value.flags.contains(.countedReachable) {
            if isReachable {
                device.value.flags.insert(.countedReachable)
                numbers.reachable += 1
            } else {
                device.value.flags.remove(.countedReachable)
                numbers.reachable -= 1
            }
        }
        placeJobs(of: slot)
    }

    /// Ends a session whose connection has ended.
    ///
    /// With `announced` the client sent Close or terminates. Otherwise its jobs wait two more seconds for a reconnect.
    package mutating func sessionEnded(_ session: SessionRef, announced: Bool, now: GatewayTime) {
        begin(now)
        guard let slot = device(of: session) else {
            sessions.forget(session)
            return
        }
        endSession(slot, announced: announced)
    }

    /// Ends a session whose connection was closed before its Welcome was sent.
    ///
    /// A device that registered in this Hello is deleted if its queue is empty, because its secret was never delivered.
    package mutating func sessionRefused(_ session: SessionRef, now: GatewayTime) {
        begin(now)
        guard let slot = device(of: session) else {
            sessions.forget(session)
            return
        }
        endSession(slot, announced: false, isRefused: true)
    }

    mutating func endSession(_ slot: DeviceSlot, announced: Bool, isRefused: Bool = false) {
        let device = devices.at(slot)
        guard device.value.isConnected else { return }
        sessions.detach(
            device.value.session, ofApp: Int(device.value.appIndex), keepsPlace: isPlanted(.generationIgnored))
        reports.forget(device.value.session)
        device.value.session = .none
        device.value.flags.subtract([.connected, .gated, .suspect])
        device.value.state = .terminated
        devices.timers.cancel(slot)
        recallInFlight(slot, isSessionOver: true)
        // Computed before the messages of broadcasts leave memory, because `isWithoutQueue` checks them.
        let isForgotten =
            isRefused && !device.value.isEstablished && isWithoutQueue(slot)
            && !device.value.isBusy && device.value.waiting == .none
        if announced { makeAllDue(slot) } else { makeAllDueSoon(slot) }
        leaveBroadcasts(slot)
        if !isForgotten { notePresence(.offline, of: slot) }
        presenceChanged(slot)
        if isForgotten { collect(slot) { $0.noteEvent(.offline) } }
    }

    /// Makes the jobs of all un-acked messages due because the device left.
    ///
    /// One call handles one slice (`sliceCount`). The timers of the other messages fire at once and make their jobs in later
    /// turns.
    mutating func makeAllDue(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        var count = 0
        inBatches(of: slot) { shard in
            for first in [device.value.firstMessage, device.value.firstBroadcast] {
                var next = first
                while next != .none {
                    let message = next
                    let entry = shard.messages.at(message)
                    next = entry.value.next
                    entry.value.miss()
                    guard entry.value.job == .none, entry.value.facts.expiresAt > shard.now else { continue }
                    let isTold = entry.value.facts.tellsMissed(at: shard.now)
                    guard !isTold || entry.value.facts.flags.contains(.isArmed) else { continue }
                    count += 1
                    guard count <= shard.limits.sliceCount else {
                        entry.value.fallbackAt = shard.now
                        shard.armTimer(message)
                        continue
                    }
                    if isTold {
                        shard.makeDue(message, timedOut: true)
                    } else {
                        shard.nextChange()
                        shard.createStoredJob(message, timedOut: true)
                    }
                    shard.armTimer(message)
                }
            }
        }
    }

    /// Makes the jobs due two seconds after the connection broke, unless the device reconnects before.
    private mutating func makeAllDueSoon(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        let due = now + limits.unannouncedCloseDelay
        for first in [device.value.firstMessage, device.value.firstBroadcast] {
            var next = first
            while next != .none {
                let entry = messages.at(next)
                if entry.value.job == .none {
                    entry.value.fallbackAt = entry.value.fallbackAt > 0 ? min(entry.value.fallbackAt, due) : due
                    armTimer(next)
                }
                next = entry.value.next
            }
        }
        var job = device.value.firstJob
        while job != .none {
            let entry = jobs.at(job)
            if entry.value.place == .held { entry.value.row.dueAt = due }
            job = entry.value.nextOfDevice
        }
    }

    // MARK: Updates

    /// Handles a DeviceUpdate: application state, tokens, badge, push mode or heartbeat.
    package mutating func update(_ session: SessionRef, _ update: DeviceUpdate, now: GatewayTime) {
        begin(now)
        guard let slot = device(of: session) else { return }
        let device = devices.at(slot)
        device.value.lastHeardAt = self.now
        device.value.flags.remove(.suspect)
        let wasReachable = device.value.isReachable
        if let state = update.applicationState { device.value.state = state }
        if let keepsRunning = update.keepsRunning {
            if keepsRunning {
                device.value.flags.insert(.keepsRunning)
            } else {
                device.value.flags.remove(.keepsRunning)
            }
        }
        var isStored = false
        if let badge = update.badge {
            device.change { $0.chooseBadge(badge) }
            isStored = true
        }
        if let off = update.pushModeOff, off != device.value.isPushModeOff {
            device.change { $0.setPushModeOff(off) }
            isStored = true
        }
        var news: TokenNews?
        if !update.tokens.isEmpty {
            news = register(update.tokens, slot, isAgain: true)
            isStored = true
        }
        if update.heartbeatSeconds > 0 {
            device.value.heartbeatSeconds = heartbeat(wish: update.heartbeatSeconds)
            armHeartbeat(slot)
        }
        if isStored { save(slot) }
        tell(news)
        let isReachable = device.value.isReachable
        if wasReachable, !isReachable { makeAllDue(slot) }
        if update.applicationState != nil || isReachable != wasReachable {
            // A suspended app may have dropped messages unseen. The shard resends un-acked messages after the result, with
            // recomputed flags.
            recallInFlight(slot, isSessionOver: false)
            if !device.value.queue.isNone {
                device.value.round = min(device.value.round + 1, 1_000)
                device.value.resentBelow = device.value.offeredBelow
            }
        }
        guard device.value.gates < .max else {
            close(slot, .overloaded, "too many updates wait for the disk")
            return
        }
        device.value.gates += 1
        device.value.flags.insert(.gated)
        presenceChanged(slot)
        var result = UpdateResult.done(update.request, heartbeatSeconds: UInt32(device.value.heartbeatSeconds))
        if let fault = update.refusedTokens.fault {
            note(update.refusedTokens, of: slot)
            result.reason = "\(update.refusedTokens.count) refused: \(fault.reason)"
        }
        whenDurable(.updated(session, result))
    }

    /// Registers tokens that a client named.
    ///
    /// An empty token text removes the device's tokens of the channel and kind, or only those of the named activity.
    ///
    /// - Returns: the changes for the tokens' rows, to be sent after the device's record is durable.
    mutating func register(_ tokens: [VendorToken], _ slot: DeviceSlot, isAgain: Bool) -> TokenNews? {
        var profile = profile(slot)
        let before = profile.tokens
        for token in tokens {
            let kind = TokenKind(rawValue: token.kind.rawValue) ?? .alert
            guard !token.token.isEmpty else {
                profile.removeTokens(token.channel, kind, activity: token.activity)
                continue
            }
            let environment = TokenEnvironment(rawValue: token.environment.rawValue) ?? .production
            profile.register(
                DeviceToken(
                    channel: token.channel, kind: kind, environment: environment, topic: token.topic,
                    token: token.token, activity: token.activity, registeredAt: now, isQuarantined: false),
                isAgain: isAgain)
            devices.at(slot).change { $0.setTokenMoved(false) }
        }
        devices.changeProfile(slot, to: profile)
        if !devices.at(slot).value.jobs.isEmpty { placeJobs(of: slot) }
        return news(of: slot, named: tokens, before: before, after: profile.tokens)
    }

    /// Logs refused tokens; the session continues without them.
    mutating func note(_ refused: RefusedTokens, of slot: DeviceSlot) {
        guard let fault = refused.fault else { return }
        log(
            .warning, "tokenRefused",
            "device \(devices.at(slot).value.cid): \(refused.count) of its tokens refused; \(fault.reason)")
    }

    func heartbeat(wish: UInt32) -> UInt16 {
        let seconds = wish == 0 ? limits.defaultHeartbeatSeconds : Int64(wish)
        return UInt16(
            clamping: min(max(seconds, limits.heartbeatSeconds.lowerBound), limits.heartbeatSeconds.upperBound))
    }

    // MARK: The session's timers

    mutating func armHeartbeat(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        devices.timers.schedule(slot, at: min(silenceEnd(device), suspicionEnd(device)))
    }

    /// Returns the time at which a session has been silent for 1.5 heartbeats.
    ///
    /// A standstill of the loop does not count as silence because frames may still be in a buffer.
    private func silenceEnd(_ device: Place<Device>) -> GatewayTime {
        max(device.value.lastHeardAt, standstillEndedAt) + Int64(device.value.heartbeatSeconds) * 1_500
    }

    /// Returns the timeout of a suspect session; `.max` for any other session.
    private func suspicionEnd(_ device: Place<Device>) -> GatewayTime {
        guard device.value.flags.contains(.suspect) else { return .max }
        return max(device.value.suspectSince, standstillEndedAt) + limits.suspectSilence
    }

    /// Restarts the silence timeout of each session after a long standstill of the loop.
    package mutating func stoodStill(now: GatewayTime) {
        begin(now)
        standstillEndedAt = self.now
    }

    mutating func deviceTimerFired(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard device.value.isConnected else { return }
        if suspicionEnd(device) <= now {
            numbers.suspectTimeouts &+= 1
            close(slot, .suspectTimeout, "no sign of life after a missed ack")
        } else if silenceEnd(device) <= now {
            numbers.heartbeatTimeouts &+= 1
            close(slot, .heartbeatTimeout, "no frame for 1.5 heartbeats")
        } else {
            devices.releaseQueue(slot)
            armHeartbeat(slot)
            // Requests a page again if its read failed.
            pump(slot)
        }
    }

    mutating func close(_ slot: DeviceSlot, _ code: CloseCode, _ reason: StaticString) {
        outbox.send(.close(devices.at(slot).value.session, code, reason: reason))
        endSession(slot, announced: false)
    }

    package mutating func endSessions(of app: AppKey, _ code: CloseCode, reason: StaticString, now: GatewayTime) {
        begin(now)
        guard let index = apps.index(of: app), sessions.count(ofApp: index) > 0 else { return }
        for place in 0..<UInt32(sessions.slotCount) {
            guard let slot = sessions.device(at: place), Int(devices.at(slot).value.appIndex) == index else { continue }
            close(slot, code, reason)
        }
    }

    // MARK: Backlog

    /// Requests the next page when half of the window is free.
    mutating func askForPage(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard !device.value.flags.contains(.paging),
            device.value.inFlightCount == 0 || device.value.inFlightCount <= device.value.window / 2,
            device.value.inFlightCount == 0 || Int(device.value.inFlightBytes) <= limits.windowByteCount / 2
        else { return }
        device.value.flags.insert(.paging)
        let generation = device.value.generation
        let from = device.value.cursor
        let departures = device.value.departures
        scan(
            slot, table: .message, from: from, rowLimit: Int(device.value.window - device.value.inFlightCount),
            byteLimit: limits.windowByteCount - Int(device.value.inFlightBytes)
        ) { shard, page in
            let device = shard.devices.at(slot)
            device.value.flags.remove(.paging)
            guard device.value.isConnected else { return }
            switch page {
            case .unreadable: shard.devices.timers.schedule(slot, at: shard.now + 1_000)
            case .rows where device.value.generation != generation || device.value.cursor != from:
                shard.pump(slot)
            case .rows(let rows, let isLast):
                shard.sendPage(rows, isComplete: isLast && device.value.departures == departures, slot)
            }
        }
    }

    private mutating func sendPage(_ rows: [Scanned], isComplete: Bool, _ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard device.value.isReachable, !device.value.flags.contains(.gated) else { return }
        for row in rows {
            guard device.value.inFlightCount < device.value.window else { return }
            let known = listedMessage(table: .message, item: row.facts.item, of: slot)
            let message = known ?? adoptMessage(row, device: slot)
            let entry = messages.at(message)
            let wasSent = offer(message, device: slot, bytes: entry.value.flags.contains(.cold) ? row.row.lent : nil)
            if known == nil, messages.isOccupied(message),
                messages.at(message).value.facts.item == row.facts.item,
                !messages.at(message).value.flags.contains(.inFlight)
            {
                // The message was not sent, so it stays only on disk.
                leaveToStore(message)
            }
            guard wasSent else { return }
        }
        if isComplete { device.value.flags.remove(.coldAhead) }
        pump(slot)
    }
}

extension UpdateResult {
    static func done(_ request: UInt32, heartbeatSeconds: UInt32) -> UpdateResult {
        var result = UpdateResult()
        result.request = request
        result.heartbeatSeconds = heartbeatSeconds
        return result
    }
}
