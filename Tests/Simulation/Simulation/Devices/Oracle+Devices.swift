internal import Delivery
internal import LongwireClient
internal import Wire

// Checks of devices: their rows, sessions and reported state.
extension Oracle {
    // MARK: Rows

    func deviceWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ ticket: Ticket) {
        guard let row = RowInspection.device(bytes),
            let identity = world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow))
        else { return fail(.content, "the row of a device that was never minted") }
        if row.generation < identity.generation { fail(.fencing, "a generation went back") }
        if row.generation > identity.generation {
            identity.generation = row.generation
            admit(identity, row.lastTimestamp)
        }
        if row.reservedSequence < identity.reserved { fail(.sequence, "a reservation went back") }
        identity.reserved = row.reservedSequence
        identity.queueEpoch = row.queueEpoch
        identity.isRegistered = true
        if identity.registeredAt == 0 { identity.registeredAt = max(1, world.now) }
        if identity.tags != row.tags { (identity.tags, identity.tagsChangedAt) = (row.tags, world.now) }
        if let token = row.quarantined.first(where: { !identity.badTokens.contains($0) }) {
            fail(.lease, "\(token) of device \(identity.index) is in quarantine, but nobody called it bad")
        }
        serverChanged(identity, row, ticket: ticket)
        identity.badgeRound = row.badgeRound
        if row.badge != identity.badge {
            fail(.badge, "the badge of device \(identity.index) is \(row.badge), it should be \(identity.badge)")
        }
    }

    /// Makes one of the callers the device's session; the row identifies the Hello.
    func admit(_ identity: Identity, _ timestamp: UInt64) {
        // The shard ignores a registration's clock that deviates too far.
        guard
            let index = identity.callers.firstIndex(where: {
                $0.hello.timestamp == timestamp || $0.hello.registration
            })
        else {
            return fail(.fencing, "a session of device \(identity.index) began without a Hello")
        }
        let link = identity.callers.remove(at: index)
        let hello = link.hello
        if let badge = hello.badge { identity.badge = max(0, badge) }
        (identity.formerLink, identity.formerUntil) = (identity.liveLink, world.eventCount)
        identity.liveLink = link
        identity.isSuspect = false
        (identity.state, identity.keepsRunning) = (hello.applicationState, hello.keepsRunning)
        (link.lastSequence, link.inFlight, link.inFlightBytes) = (0, [], 0)
        take(hello.tokens, identity)
    }

    func deviceBecameDurable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        guard let row = RowInspection.device(bytes),
            let identity = world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow))
        else { return }
        identity.isDurable = true
        identity.durableGeneration = row.generation
        (identity.durableBadge, identity.durableBadgeRound) = (row.badge, row.badgeRound)
        identity.durableReserved = row.reservedSequence
        identity.durablePushModeOff = row.pushModeOff
        identity.durableBlacklisted = row.isBlacklisted
        (identity.durableAlias, identity.durableTags) = (row.alias, row.tags)
        identity.durableTokens = row.tokens
    }

    /// Resets each device to its durable state after a crash.
    func identitiesFellBack() {
        for identity in world.identities {
            identity.generation = identity.durableGeneration
            (identity.badge, identity.badgeRound) = (identity.durableBadge, identity.durableBadgeRound)
            identity.reserved = identity.durableReserved
            identity.tokens = identity.durableTokens
            identity.pushModeOff = identity.durablePushModeOff
            identity.isBlacklisted = identity.durableBlacklisted
            identity.openSteps = []
            identity.highestSequence = identity.durableHighest
            (identity.tags, identity.tagsChangedAt) = (identity.durableTags, world.now)
            if !identity.isDurable, identity.registeredAt > 0 { (identity.registeredAt, identity.wasLost) = (0, true) }
            identity.isRegistered = identity.isDurable
            identity.pendingCount = 0
            identity.liveLink = nil
            identity.callers = []
            identity.isSuspect = false
        }
    }

    // MARK: Sessions

    func willWelcome(_ link: Link, _ effect: WelcomeEffect, _ loop: Loop) {
        guard let identity = link.identity, identity.cid == effect.cid else {
            return fail(.fencing, "a Welcome for a device that said no Hello")
        }
        link.wasWelcomed = true
        if link.isReplay { fail(.fencing, "a Hello that was overheard was welcomed") }
        if link.helloWasDamaged { fail(.damage, "a damaged Hello was welcomed") }
        if effect.welcome.generation != identity.durableGeneration {
            fail(.beforeSync, "Welcome before generation \(effect.welcome.generation) was durable")
        }
        if identity.liveLink !== link { fail(.fencing, "an older session of device \(identity.index) was welcomed") }
        for other in world.links where other.identity === identity && other !== link && other.phase == .open {
            fail(.fencing, "device \(identity.index) has two live sessions")
        }
        link.window = Int(effect.welcome.window)
        if link.window > world.plan.limits.window { fail(.bounds, "a window of \(link.window)") }
    }

    func take(_ tokens: [VendorToken], _ identity: Identity) {
        // The messages here are alerts, so tokens of other kinds must make no difference.
        let tokens = tokens.filter { $0.kind == .alert }
        guard !tokens.isEmpty else { return }
        for token in tokens {
            identity.tokens.removeAll { channel(ofToken: $0) == token.channel }
            if !token.token.isEmpty { identity.tokens.append(token.token) }
        }
    }

    func channel(ofToken text: String) -> VendorChannel {
        VendorChannel.allCases.first { $0 != .apns && text.hasPrefix(SimulatedDevice.prefix(of: $0)) } ?? .apns
    }

    func willUpdate(_ link: Link, _ update: DeviceUpdate, _ loop: Loop) {
        guard let identity = link.identity else { return }
        updates.begin(after: loop.store.lastTicket)
        let wasReachable = identity.isReachable
        identity.isSuspect = false
        let before = identity.isReachable
        if let state = update.applicationState { identity.state = state }
        if let keepsRunning = update.keepsRunning { identity.keepsRunning = keepsRunning }
        if let off = update.pushModeOff { identity.pushModeOff = off }
        if let badge = update.badge { identity.badge = max(0, badge) }
        take(update.tokens, identity)
        let isReachable = identity.isReachable
        if before, !isReachable { identity.leftAt = now }
        let recalls = update.applicationState != nil || isReachable != wasReachable || isReachable != before
        link.updates.append((update.request, recalls, before && !isReachable, 0))
        if recalls {
            link.recalled += link.inFlight
            for record in link.inFlight {
                missIfOverdue(record)
                record.flightLink = -1
                if before, !isReachable { record.mustBeOffline = true }
            }
            link.inFlight = []
            link.inFlightBytes = 0
            (link.lastSequence, link.lastBroadcast) = (0, 0)
        }
    }

    func didUpdate(_ link: Link, _ loop: Loop) {
        guard !link.updates.isEmpty else { return }
        link.updates[link.updates.count - 1].ticket = updates.awaited
    }

    func willConfirm(_ link: Link, _ result: UpdateResult, _ loop: Loop) {
        guard !link.updates.isEmpty else { return fail(.content, "an UpdateResult that nobody waits for") }
        let update = link.updates.removeFirst()
        if update.request != result.request { fail(.order, "results of updates came in another order") }
        if update.ticket > loop.store.durableTicket {
            fail(.beforeSync, "an update was confirmed before it was durable")
        }
    }

    func closedByShard(_ link: Link, _ code: CloseCode) {
        guard let identity = link.identity, !link.helloWasDamaged else { return }
        let isUnknown = world.loops[link.loop].unknownApps.contains(world.plan.apps[identity.app].key)
        switch code {
        case .unknownApp, .appDisabled: fail(.refusal, "device \(identity.index) was refused for its app")
        case .moved: if !isUnknown { fail(.refusal, "device \(identity.index) was sent away from its loop") }
        case .badProof: fail(.refusal, "the proof of device \(identity.index) was refused")
        case .badAck: if identity.isHonest { fail(.refusal, "an honest client's ack was refused") }
        case .unknownDevice:
            if identity.isDurable, identity.generation > 1 {
                fail(.refusal, "device \(identity.index) is not known any more")
            }
        default: break
        }
    }

    func sessionEnded(_ link: Link) {
        guard let identity = link.identity else { return }
        for record in link.inFlight {
            missIfOverdue(record)
            record.flightLink = -1
        }
        (link.inFlight, link.inFlightBytes) = ([], 0)
        identity.callers.removeAll { $0 === link }
        if identity.liveLink === link {
            identity.liveLink = nil
            identity.isSuspect = false
        }
    }

    func clientStopped(_ device: SimulatedDevice, _ error: LongwireClientError?) {}
}
