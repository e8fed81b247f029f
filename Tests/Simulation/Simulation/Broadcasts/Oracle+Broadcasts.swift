internal import Delivery
internal import Wire

extension Oracle {
    /// Records the acceptance or change of a broadcast's message for one device from its ledger row.
    func ledgerWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ ticket: Ticket) {
        guard let row = RowInspection.ledger(key, bytes), row.isBroadcast else { return }
        guard let record = record(row.message), let broadcast = record.broadcast else {
            return fail(.content, "a ledger row of a broadcast that nobody made")
        }
        let identity = record.identity
        if identity.app != broadcast.app {
            fail(.content, "message \(record.index) of broadcast \(broadcast.index) is for another app's device")
        }
        if row.cid != identity.cid { fail(.content, "message \(record.index) is in the ledger for another device") }
        guard !record.everMet else {
            // A pending row is written again only when the vendor accepts its message.
            if row.finalState == nil, !row.isAlerted { fail(.request, "message \(record.index) was accepted twice") }
            return
        }
        (record.everMet, record.rowTicket, record.rowLife) = (true, ticket, world.life)
        updates.streamWrote(ticket)
        (record.id, record.acceptedAt, record.sequence) = (row.message, row.acceptedAt, row.number)
        record.byteCount = broadcast.byteCount
        guard let launched = broadcast.launched, let plan = launched.broadcast else {
            return fail(.beforeSync, "message \(record.index) was accepted before its broadcast was out")
        }
        if plan.number != row.number { fail(.sequence, "message \(record.index) has a number of its own") }
        record.expiresAt = plan.expiresAt
        if identity.registeredAt > broadcast.launchedAt + 50 {
            fail(.content, "message \(record.index): its device registered after broadcast \(broadcast.index)")
        }
        if identity.isBlacklisted {
            fail(.strategy, "message \(record.index) was accepted for a blacklisted device")
        }
        if let tag = broadcast.tag, identity.tags.contains(world.tag(tag.number)) != tag.isWanted {
            fail(.content, "message \(record.index) was accepted for a device that its broadcast does not mean")
        }
        guard row.finalState == nil else { return }
        if broadcast.isSwept {
            fail(.finalState, "message \(record.index) was accepted after broadcast \(broadcast.index) was stopped")
        }
        record.wasAcceptedOffline = !row.isLive
        record.table = .broadcast
        if identity.callers.isEmpty, row.isLive, !identity.isReachable {
            fail(.offlineFlag, "message \(record.index) was accepted as live")
        }
    }

    func ledgerBecameDurable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        guard let row = RowInspection.ledger(key, bytes), row.isBroadcast, row.finalState == nil,
            let record = record(row.message)
        else { return }
        if !record.everDurable { counting.accept(app: record.identity.app) }
        if record.durableTable == nil { notePending(record, 1) }
        // A message without other rows counts this row and the 85 bytes of memory that every message uses.
        noteQueued(record, charge: bytes.count + 85)
        record.everDurable = true
        (record.durableTable, record.durableSequence) = (.broadcast, row.number)
    }

    /// Checks that no message is pending after all shards have swept a stopped broadcast.
    func swept(_ broadcast: SimulatedBroadcast) {
        for record in broadcast.records.values where record.durableTable != nil && record.durableFinal == nil {
            fail(.finalState, "message \(record.index) is pending though broadcast \(broadcast.index) was stopped")
        }
    }

    /// Checks that every broadcast's report is the sum of its messages' final states, and that no intended device is missing.
    func checkBroadcasts() {
        // With a small read-ahead, unleased jobs may delay the tasks' alarms queued after them, as documented.
        if world.broadcasting.all.contains(where: { $0.launched != nil && !$0.isOver }) {
            world.pass(milliseconds: 400_000)
        }
        world.askBroadcastStates()
        world.askBroadcastTotals()
        for broadcast in world.broadcasting.all where broadcast.launched != nil {
            let name = "broadcast \(broadcast.index)"
            if !broadcast.isOver { return fail(.progress, "\(name) has not ended") }
            let accepted = broadcast.records.values.filter { $0.durableFinal != nil }
            if broadcast.totals.accepted != accepted.count || broadcast.totals.pending != 0 {
                return fail(
                    .books,
                    "\(name): \(broadcast.totals.accepted) reported, \(broadcast.totals.pending) of them pending, \(accepted.count) were accepted"
                )
            }
            for state in FinalState.allCases {
                let count = accepted.count { $0.durableFinal == state }
                if broadcast.totals[state] != count {
                    return fail(.books, "\(name): \(broadcast.totals[state]) as \(state), there were \(count)")
                }
            }
            // A dealt-out broadcast reaches only the devices that the scan visited before it ended.
            guard broadcast.tag == nil, !broadcast.isDealt || broadcast.isDealtOut && !broadcast.isStopped,
                !broadcast.isDealt || !broadcast.wasFound
            else { continue }
            for identity in world.identities
            where identity.app == broadcast.app && identity.registeredAt > 0 && !identity.wasBlacklisted
                && identity.registeredAt < broadcast.launchedAt - 50 && identity.isDurable && !identity.wasLost
                && broadcast.records[identity.cid]?.durableFinal == nil
                && !broadcast.refusedBy.contains(identity.cid)
                // A scan uses the time at which the broadcast was numbered, which is before the number was durable.
                && (!broadcast.isDealt || identity.registeredAt < broadcast.madeAt - 50)
            {
                return fail(.progress, "\(name) has left out device \(identity.index)")
            }
        }
    }

    /// Checks a broadcast's frame when it enters the outbox.
    func willBroadcast(_ link: Link, _ body: [UInt8]) {
        guard let deliver = body.withUnsafeBytes({ try? Deliver(decoding: $0.bytes) }), deliver.stream == 1 else {
            return fail(.content, "a broadcast's frame that cannot be read")
        }
        guard let broadcast = record(deliver.messageID)?.broadcast else {
            return fail(.content, "a broadcast that nobody made was sent")
        }
        if broadcast.isSwept { fail(.sentAfterEnd, "broadcast \(broadcast.index) was sent after it was stopped") }
        if let identity = link.identity, let newer = replacement(of: broadcast, for: identity) {
            fail(.sentAfterEnd, "broadcast \(broadcast.index) was sent after \(newer.index) had replaced it")
        }
        let effect = DeliverEffect(
            row: UnsafeRawBufferPointer(start: nil, count: 0), sequence: deliver.sequence,
            isOffline: deliver.offline, alertedAt: GatewayTime(deliver.alertedAt), attempt: deliver.attempt)
        willDeliver(link, effect, deliver.messageID)
    }

    /// Returns a newer broadcast with the same collapse key that also targets the device and has ended in every shard.
    private func replacement(of broadcast: SimulatedBroadcast, for identity: Identity) -> SimulatedBroadcast? {
        guard broadcast.collapse > 0, let number = broadcast.launched?.broadcast?.number,
            !identity.wasBlacklisted, identity.isDurable, !identity.wasLost
        else { return nil }
        return world.broadcasting.all.first {
            $0.app == broadcast.app && $0.collapse == broadcast.collapse && $0.tag == nil && !$0.isDealt && $0.isOver
                && $0.launched?.broadcast?.number ?? 0 > number && identity.registeredAt < $0.launchedAt - 50
        }
    }

    /// Checks that an ack above every assigned number closes the session.
    func didAcknowledgeBroadcasts(_ link: Link, _ ack: AckView) {
        guard link.phase == .open, let identity = link.identity, identity.liveLink === link else { return }
        let given = world.broadcasting.all.filter { $0.app == identity.app }.compactMap {
            $0.launched?.broadcast?.number
        }
        let highest = ack.broadcastRanges.reduce(ack.broadcastSequence) { max($0, $1.last) }
        if highest > given.max() ?? 0 { fail(.sequence, "an ack of broadcast \(highest) was taken") }
    }

    /// Checks that a scan finds only devices that the broadcast targets, unless their tags changed after the step was requested.
    func found(_ broadcast: SimulatedBroadcast, _ identity: Identity, askedAt: Int64) {
        if identity.app != broadcast.app { fail(.content, "broadcast \(broadcast.index) found another app's device") }
        guard let tag = broadcast.tag, identity.tagsChangedAt < askedAt else { return }
        if identity.tags.contains(world.tag(tag.number)) != tag.isWanted {
            fail(.content, "broadcast \(broadcast.index) found device \(identity.index), which it does not mean")
        }
    }
}
