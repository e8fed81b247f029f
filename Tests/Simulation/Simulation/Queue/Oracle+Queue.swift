internal import Delivery
internal import LongwireClient
internal import Wire

// Checks of a device's messages: their rows, delivery and final states.
extension Oracle {
    // MARK: Rows

    func messageWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ ticket: Ticket) {
        guard let row = RowInspection.message(bytes), let record = record(row.message),
            let identity = world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow))
        else { return fail(.content, "a message that nobody published was stored") }
        if record.identity !== identity { fail(.content, "message \(record.index) is stored for another device") }
        if record.final != nil { fail(.finalState, "message \(record.index) came back after its end") }
        if record.table != nil, row.message != record.id {
            fail(.request, "a task reached device \(identity.index) twice, as message \(record.index)")
        }
        if record.table == nil {
            (record.id, record.acceptedAt, record.expiresAt) = (row.message, row.acceptedAt, row.expiresAt)
            record.wasAcceptedOffline = row.isOffline
            record.acceptedLink = identity.liveLink?.number ?? -1
            record.fallbackAt = row.fallbackAt
            record.jobDueAt = !row.isArmed ? 0 : row.fallbackAt > 0 ? row.fallbackAt : row.acceptedAt
            if record.timeToLive > 0, row.expiresAt != row.acceptedAt + record.timeToLive {
                fail(.content, "message \(record.index) expires at another time than asked")
            }
            checkAcceptance(record, identity, row)
            checkLetIn(record, identity)
            identity.pendingCount += 1
            let limit = world.plan.apps[identity.app].queuedMessageLimit
            if identity.pendingCount > limit {
                fail(.bounds, "\(identity.pendingCount) messages are queued, \(limit) allowed")
            }
            if record.collapse > 0 { identity.newestOfKey[Int(record.collapse)] = record.index }
        }
        if key.table == .message {
            if record.strategy == .vendorOnly { fail(.strategy, "strategy 2 reached the live channel") }
            if record.strategy == .vendorElseLive {
                if !record.wasVendorFirst { fail(.strategy, "strategy 4 went live before the vendor") }
                switch record.job?.state {
                case .due?, .leased?, .accepted?, nil:
                    if record.timeToLive > 0, record.job?.state == .accepted, record.carriesAll {
                        fail(.strategy, "strategy 4 went live though the vendor took it")
                    }
                default: break
                }
                record.wasAcceptedOffline = true
                if record.dealt != nil { world.faults.note(.dealtWentLive) }
            }
            if key.item <= identity.highestSequence {
                fail(.sequence, "sequence \(key.item) was given after \(identity.highestSequence)")
            }
            identity.highestSequence = max(identity.highestSequence, key.item)
            identity.bySequence[key.item] = record
            record.sequence = key.item
        } else {
            if record.strategy == .liveOnly { fail(.strategy, "strategy 3 waits for the vendor") }
            record.wasVendorFirst = true
        }
        record.table = key.table
        (record.byteCount, record.charge) = (bytes.count, row.byteCount)
        (record.rowTicket, record.rowLife) = (ticket, world.life)
    }

    func traceWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ ticket: Ticket) {
        if let event = RowInspection.lateEvent(key) {
            guard let record = record(RowInspection.tracedMessage(key)) else {
                return fail(.content, "a late event of an unknown message")
            }
            // User actions are also recorded for a pending message.
            let isVendors = event == .vendorAccepted || event == .alertedTwice
            if record.final == nil, isVendors { fail(.books, "\(event) came as a late event of a pending message") }
            return
        }
        guard let trace = RowInspection.trace(key, bytes), let record = record(trace.message) else {
            return fail(.content, "a trace of an unknown message")
        }
        if let before = record.final {
            fail(.finalState, "message \(record.index) ended as \(before), then as \(trace.finalState)")
        }
        moveBadge(record, isTakenBack: trace.isBadgeTakenBack)
        let wasStored = record.table != nil
        checkOvertaken(record, trace.finalState)
        if trace.finalState == .overflowed { checkFull(record) }
        if trace.finalState == .overflowed, record.flightLink >= 0 {
            overflows.note(message: record.index, link: record.flightLink)
        }
        // The result of an update opens the stream, which ends messages that are already finished.
        if [.expired, .handedOff, .collapsed].contains(trace.finalState) { updates.streamWrote(ticket) }
        record.final = trace.finalState
        record.finalReason = trace.reason
        if wasStored {
            if record.broadcast == nil { record.identity.pendingCount -= 1 }
        } else {
            (record.id, record.acceptedAt, record.expiresAt) = (trace.message, now, now)
        }
        land(record)
        checkReason(record, trace, wasStored)
    }

    /// Checks that only a full queue drops its oldest message; a full queue has no room for another message of any size.
    func checkFull(_ record: Record) {
        let (identity, app) = (record.identity, world.plan.apps[record.identity.app])
        guard record.table != nil, identity.pendingCount < app.queuedMessageLimit else { return }
        let pending = world.records.filter { $0.identity === identity && $0.isPending && $0.broadcast == nil }
        let bytes = pending.reduce(0) { $0 + $1.charge }
        if bytes + Self.largestCharge <= app.queuedByteLimit {
            fail(
                .finalState,
                "message \(record.index) overflowed with \(identity.pendingCount) messages and \(bytes) bytes queued")
        }
    }

    /// An upper bound of the charge of any message in this world.
    private static let largestCharge = 1_500

    /// Checks that the session of an overflowed message has ended; its end is reported after the overflow of the same turn.
    func checkOverflowed() {
        for (message, link) in overflows.takeAll() where world.links[link].phase != .closed {
            fail(.bounds, "message \(message) overflowed while it was in flight")
        }
    }

    /// Removes a message from its session's window.
    func land(_ record: Record) {
        guard record.flightLink >= 0 else { return }
        let link = world.links[record.flightLink]
        record.flightLink = -1
        link.inFlight.removeAll { $0 === record }
        link.inFlightBytes -= record.byteCount
    }

    func checkReason(_ record: Record, _ trace: RowInspection.Trace, _ wasStored: Bool) {
        let name = "message \(record.index) ended as \(trace.finalState)"
        switch trace.finalState {
        case .delivered, .deliveredOffline:
            if record.strategy == .vendorOnly { fail(.strategy, "\(name) with strategy 2") }
            // The SDK withholds messages that the user has opened, and cannot always report that.
            let isKept = record.carriesAll && (record.wasSuppressedAsOpened || record.openedByUser)
            let isKnown = record.wasHandled || isKept
            if record.identity.isHonest, !isKnown {
                fail(.finalState, "\(name), but its app has never seen it")
            }
        case .opened:
            if !record.openedByUser { fail(.finalState, "\(name), but nobody opened it") }
            if !record.carriesAll { fail(.finalState, "\(name), but its alert did not carry all of it") }
        case .handedOff:
            if !record.wasReportedAccepted, !record.mayBeAlerted {
                fail(.finalState, "\(name), but no sender and no device said so")
            }
            if record.strategy == .liveElseVendor, now < record.expiresAt {
                fail(.finalState, "\(name) before its time")
            }
            let mayStay = record.strategy == .vendorElseLive && record.timeToLive > 0 && record.collapse == 0
            if mayStay, !record.carriesAll, now < record.expiresAt {
                fail(.strategy, "\(name), but its alert did not carry all of it")
            }
        case .expired:
            if wasStored, now < record.expiresAt { fail(.finalState, "\(name) at \(now), before \(record.expiresAt)") }
        case .collapsed: if record.collapse == 0 { fail(.finalState, "\(name) without a key") }
        case .overflowed:
            if world.plan.apps[record.identity.app].overflowPolicy != .dropOldest {
                fail(.finalState, "\(name), but the app refuses instead")
            }
        case .failed:
            let isVendors = record.strategy == .vendorOnly || record.strategy == .vendorElseLive
            if !isVendors, !record.rejectedByClient {
                fail(.finalState, "\(name) for no reason: \(trace.reason), strategy \(record.strategy)")
            }
            if record.strategy == .vendorElseLive, record.table == .vendorMessage, record.timeToLive > 0 {
                fail(.strategy, "\(name), but the live channel was left to try")
            }
        case .revoked:
            let isSibling = trace.reason == "firstAckWins" && record.task?.wonAt ?? 0 > 0
            if isSibling { world.faults.note(.siblingRevoked) }
            if !record.mayBeRevoked, !isSibling, (record.broadcast ?? record.dealt)?.isStopped != true {
                fail(.finalState, "\(name), but nothing was revoked")
            }
        }
    }

    // MARK: Durable rows

    func messageBecameDurable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ batch: inout DurableBatch) {
        guard let row = RowInspection.message(bytes), let record = record(row.message) else {
            return
        }
        if record.durableTable == nil {
            notePending(record, 1)
            if !record.everDurable { counting.accept(app: record.identity.app) }
            record.durableSince = world.now
        }
        noteQueued(record, charge: row.byteCount)
        record.everDurable = true
        record.durableTable = key.table
        if key.table == .vendorMessage { vendorRows[key] = record }
        if key.table == .message {
            record.durableSequence = key.item
            if key.item <= record.identity.durableHighest {
                fail(.sequence, "sequence \(key.item) became durable twice")
            }
            record.identity.durableHighest = max(record.identity.durableHighest, key.item)
            batch.sequences.append((record.identity, key.item))
        }
    }

    func messageDeletionBecameDurable(_ key: StoreKey, _ batch: inout DurableBatch) {
        switch key.table {
        case .message:
            guard let identity = world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow)),
                let record = identity.bySequence[key.item], record.durableTable == .message
            else { return }
            record.durableTable = nil
            batch.removed.append(record)
        case .vendorMessage:
            // The item in the key of a repeated request is not part of the message id, so the record is found by its key.
            guard let record = vendorRows.removeValue(forKey: key), record.durableTable == .vendorMessage else {
                return
            }
            record.durableTable = nil
            batch.removed.append(record)
        default: break
        }
    }

    func traceBecameDurable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ batch: inout DurableBatch) {
        if let event = RowInspection.lateEvent(key) {
            let isAccept = event == .vendorAccepted || event == .alertedTwice
            if isAccept { record(RowInspection.tracedMessage(key))?.hasLateAccept = true }
            eventBecameDurable(event, RowInspection.tracedMessage(key))
            return
        }
        guard let trace = RowInspection.trace(key, bytes), let record = record(trace.message) else {
            return
        }
        if record.durableFinal != nil { fail(.finalState, "message \(record.index) ended twice on disk") }
        if !record.everDurable {
            record.everDurable = true
            counting.accept(app: record.identity.app)
        }
        record.durableFinal = trace.finalState
        noteFirstAck(record, trace.finalState)
        if record.durableTable == .broadcast {
            // Broadcast messages have no row to delete.
            record.durableTable = nil
            batch.removed.append(record)
        }
        counting.end(trace.finalState, app: record.identity.app)
        noteResult(record, trace.settledLease.1, trace.settledOutcome)
        batch.ended.append(record)
    }

    func checkQueue(_ batch: DurableBatch) {
        for record in batch.removed where record.durableTable == nil {
            notePending(record, -1)
            noteQueued(record, charge: 0)
            if record.durableFinal == nil { fail(.books, "message \(record.index) lost its row without a final state") }
        }
        for record in batch.ended {
            if record.durableTable != nil { fail(.books, "message \(record.index) ended, but its row stays") }
            if record.durableJob != nil { fail(.books, "message \(record.index) ended, but its job stays") }
            if record.durableFinal == .collapsed, record.broadcast == nil,
                record.identity.newestOfKey[Int(record.collapse)] == record.index
            {
                fail(.finalState, "message \(record.index) was collapsed by nobody")
            }
        }
        for (identity, sequence) in batch.sequences where sequence > identity.durableReserved {
            fail(.sequence, "sequence \(sequence) is beyond the reserved \(identity.durableReserved)")
        }
    }

    /// Resets each message to its durable state after a crash.
    func recordsFellBack() {
        for record in world.records where record.durableFinal == nil && (record.table != nil || record.final != nil) {
            record.final = nil
            record.flightLink = -1
            if record.durableTable == nil {
                (record.table, record.id, record.wasVendorFirst) = (nil, .none, false)
                record.job = nil
                record.sequence = 0
                record.everMet = record.durableFinal != nil
            } else {
                record.table = record.durableTable
                record.sequence = record.durableSequence
                record.job = record.durableJob
                if record.durableJob == nil { record.mustBeOffline = false }
            }
        }
    }

    // MARK: Deliver

    /// Marks the next Deliver as offline if the ack deadline has passed.
    func missIfOverdue(_ record: Record) {
        if now > record.sentAt + world.plan.limits.liveDeadline { record.mustBeOffline = true }
    }

    func willDeliver(_ link: Link, _ deliver: DeliverEffect, _ row: MessageRow) {
        willDeliver(link, deliver, row.messageID)
    }

    func willDeliver(_ link: Link, _ deliver: DeliverEffect, _ id: MessageID) {
        guard let record = record(id) else { return fail(.content, "a message nobody published was sent") }
        world.log.note(world.now, "deliver", Int64(link.number), Int64(record.index), Int64(deliver.sequence))
        let name = "message \(record.index), sequence \(deliver.sequence),"
        guard let identity = link.identity, identity === record.identity else {
            return fail(.content, "\(name) was sent to another device")
        }
        let isFormer = identity.formerLink === link && identity.formerUntil == world.eventCount
        if identity.liveLink !== link, !isFormer { fail(.fencing, "\(name) went to an old session") }
        if record.final != nil { fail(.sentAfterEnd, "\(name) was sent after it had ended as \(record.final!)") }
        if now >= record.expiresAt {
            fail(.sentAfterExpiry, "\(name) was sent at \(now), it expired at \(record.expiresAt)")
        }
        if deliver.sequence != record.sequence { fail(.sequence, "\(name) was stored as \(record.sequence)") }
        let last = record.broadcast == nil ? link.lastSequence : link.lastBroadcast
        if deliver.sequence <= last { fail(.order, "\(name) came after \(last)") }
        if record.broadcast == nil {
            link.lastSequence = deliver.sequence
        } else {
            link.lastBroadcast = deliver.sequence
        }
        checkPlace(record, deliver.sequence, link, name)
        let store = world.loops[link.loop].store
        if record.rowLife == world.life, record.rowTicket > store.durableTicket {
            fail(.beforeSync, "\(name) was sent before it was durable")
        }
        if !record.everDurable { fail(.beforeSync, "\(name) was sent before it was durable") }
        if record.strategy == .vendorOnly { fail(.strategy, "strategy 2 was sent live") }
        if !identity.isReachable || !link.updates.isEmpty {
            fail(.strategy, "\(name) was sent to a device that is not reachable, or waits for a result")
        }
        if record.flightLink >= 0 { fail(.order, "\(name) was sent while it was in flight") }
        link.inFlight.append(record)
        link.inFlightBytes += record.byteCount
        if link.inFlight.count > link.window { fail(.bounds, "\(link.inFlight.count) in a window of \(link.window)") }
        if link.inFlight.count > 1, link.inFlightBytes > world.plan.limits.windowByteCount {
            fail(.bounds, "\(link.inFlightBytes) bytes in flight")
        }
        checkFlag(record, deliver, link, name)
        if record.alertWasRecorded, deliver.alertedAt == 0 { fail(.offlineFlag, "\(name) hides its alert") }
        if deliver.alertedAt != 0, !record.mayBeAlerted { fail(.offlineFlag, "\(name) claims an alert") }
        record.flightLink = link.number
        record.sentAt = now
        record.wasSent = true
    }

    /// Checks that the Hello did not list the message as processed, and that no recalled message is skipped.
    func checkPlace(_ record: Record, _ sequence: UInt64, _ link: Link, _ name: String) {
        if record.timeToLive > 0, link.hello.queueEpoch == world.history.epoch(record.identity.queueEpoch),
            let position = link.hello.positions.first(where: { $0.stream == (record.broadcast == nil ? 0 : 1) }),
            sequence <= position.sequence || position.ranges.contains(where: { $0.first...$0.last ~= sequence })
        {
            fail(.order, "\(name) was sent although the Hello had named it")
        }
        link.recalled.removeAll { left in
            // The end of a stopped broadcast may be in progress while its rows are still pending. A replaced message stays
            // pending for an ack in transit and is not sent again.
            left === record || !left.isPending || left.expiresAt <= now || left.timeToLive <= 0
                || left.broadcast?.isStopped == true || left.job?.isCollapsed == true
        }
        if let waiting = link.recalled.first(where: {
            $0.sequence < sequence && ($0.broadcast == nil) == (record.broadcast == nil)
        }) {
            fail(.order, "\(name) was sent before message \(waiting.index), which is to be sent again")
        }
    }

    /// Checks that an ack above every assigned number closes the session.
    func didAcknowledge(_ link: Link, _ ack: AckView) {
        guard link.phase == .open, let identity = link.identity, identity.liveLink === link else { return }
        let highest = ack.withRanges { $0.reduce(ack.sequence) { max($0, $1.last) } }
        if highest > max(identity.highestSequence, identity.reserved) {
            fail(.sequence, "an ack of \(highest) was taken, \(identity.highestSequence) is the highest given")
        }
    }

    func checkFlag(_ record: Record, _ deliver: DeliverEffect, _ link: Link, _ name: String) {
        if record.wasAcceptedOffline || record.mustBeOffline {
            // Without a fallback job, only memory records that a device disconnected before the deadline in the row.
            let mayBeForgotten = !record.wasAcceptedOffline && record.jobDueAt == 0 && now < record.fallbackAt
            if !deliver.isOffline, !mayBeForgotten { fail(.offlineFlag, "\(name) came as fresh, but it is not") }
        } else if !record.wasSent, deliver.isOffline, record.rowLife == world.life,
            now < record.acceptedAt
                + min(world.plan.limits.backgroundLiveDeadline, world.plan.limits.unannouncedCloseDelay),
            record.job == nil, record.acceptedLink == link.number, record.acceptedAt > record.identity.leftAt
        {
            fail(.offlineFlag, "\(name) came as offline, but it is fresh")
        }
    }

    func handled(_ message: ReceivedMessage, by device: SimulatedDevice) -> Record? {
        guard let record = record(message.messageID) else {
            fail(.content, "a device handled a message that nobody published")
            return nil
        }
        if record.identity.device != device.index { fail(.content, "device \(device.index) handled another's message") }
        if message.payload != (record.broadcast ?? record.dealt)?.payload
            ?? World.payload(record.index, record.payloadCount)
        {
            fail(.content, "message \(record.index) came with another payload")
        }
        return record
    }
}
