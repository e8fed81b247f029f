internal import Delivery
internal import LongwireClient
internal import Wire

// What leaves the gateway, and what reaches the devices, held against what may.
extension Oracle {
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
        // Messages are for alerts here: tokens of other kinds must make no difference.
        let tokens = tokens.filter { $0.kind == .alert }
        guard !tokens.isEmpty else { return }
        identity.tokens = tokens.map(\.token).filter { !$0.isEmpty }
    }

    func willUpdate(_ link: Link, _ update: DeviceUpdate, _ loop: Loop) {
        guard let identity = link.identity else { return }
        (ticketBeforeUpdate, writtenTickets, streamTickets) = (loop.store.lastTicket, [], [])
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
        link.updates[link.updates.count - 1].ticket = max(
            ticketBeforeUpdate, writtenTickets.subtracting(streamTickets).max() ?? 0)
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
        switch code {
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

    /// It was in flight beyond its ack deadline: its next Deliver says so.
    private func missIfOverdue(_ record: Record) {
        if now > record.sentAt + world.plan.limits.liveDeadline { record.mustBeOffline = true }
    }

    // MARK: Deliver

    func willDeliver(_ link: Link, _ deliver: DeliverEffect, _ row: MessageRow) {
        willDeliver(link, deliver, row.messageID)
    }

    /// A broadcast's frame, as it was put into the outbox.
    func willBroadcast(_ link: Link, _ body: [UInt8]) {
        guard let deliver = body.withUnsafeBytes({ try? Deliver(decoding: $0.bytes) }), deliver.stream == 1 else {
            return fail(.content, "a broadcast's frame that cannot be read")
        }
        guard let broadcast = record(deliver.messageID)?.broadcast else {
            return fail(.content, "a broadcast that nobody made was sent")
        }
        if broadcast.isSwept { fail(.sentAfterEnd, "broadcast \(broadcast.index) was sent after it was stopped") }
        let effect = DeliverEffect(
            row: UnsafeRawBufferPointer(start: nil, count: 0), sequence: deliver.sequence,
            isOffline: deliver.offline, alertedAt: GatewayTime(deliver.alertedAt), attempt: deliver.attempt)
        willDeliver(link, effect, deliver.messageID)
    }

    /// An ack above every number that was given closes the session.
    func didAcknowledgeBroadcasts(_ link: Link, _ ack: AckView) {
        guard link.phase == .open, let identity = link.identity, identity.liveLink === link else { return }
        let given = world.broadcasts.filter { $0.app == identity.app }.compactMap { $0.launched?.broadcast?.number }
        let highest = ack.broadcastRanges.reduce(ack.broadcastSequence) { max($0, $1.last) }
        if highest > given.max() ?? 0 { fail(.sequence, "an ack of broadcast \(highest) was taken") }
    }

    private func willDeliver(_ link: Link, _ deliver: DeliverEffect, _ id: MessageID) {
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
        if record.acceptWasRecorded, deliver.alertedAt == 0 { fail(.offlineFlag, "\(name) does not tell of its alert") }
        if deliver.alertedAt != 0, !record.wasReportedAccepted { fail(.offlineFlag, "\(name) tells of an alert") }
        record.flightLink = link.number
        record.sentAt = now
        record.wasSent = true
    }

    /// Nothing comes that the Hello named as processed, and nothing before what is to be sent again.
    private func checkPlace(_ record: Record, _ sequence: UInt64, _ link: Link, _ name: String) {
        if record.timeToLive > 0, link.hello.queueEpoch == record.identity.queueEpoch,
            let position = link.hello.positions.first(where: { $0.stream == (record.broadcast == nil ? 0 : 1) }),
            sequence <= position.sequence || position.ranges.contains(where: { $0.first...$0.last ~= sequence })
        {
            fail(.order, "\(name) was sent although the Hello had named it")
        }
        link.recalled.removeAll { left in
            // A stopped broadcast's end may be under way while its rows still say pending.
            left === record || !left.isPending || left.expiresAt <= now || left.timeToLive <= 0
                || left.broadcast?.isStopped == true
        }
        if let waiting = link.recalled.first(where: {
            $0.sequence < sequence && ($0.broadcast == nil) == (record.broadcast == nil)
        }) {
            fail(.order, "\(name) was sent before message \(waiting.index), which is to be sent again")
        }
    }

    /// An ack above everything that can have been given closes the session.
    func didAcknowledge(_ link: Link, _ ack: AckView) {
        guard link.phase == .open, let identity = link.identity, identity.liveLink === link else { return }
        let highest = ack.withRanges { $0.reduce(ack.sequence) { max($0, $1.last) } }
        if highest > max(identity.highestSequence, identity.reserved) {
            fail(.sequence, "an ack of \(highest) was taken, \(identity.highestSequence) is the highest given")
        }
    }

    private func checkFlag(_ record: Record, _ deliver: DeliverEffect, _ link: Link, _ name: String) {
        if record.wasAcceptedOffline || record.mustBeOffline {
            // Without a fallback only memory knows of a device that left before the deadline in the row.
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

    /// An app's handler is called.
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

    func clientStopped(_ device: SimulatedDevice, _ error: LongwireClientError?) {}

    // MARK: Publishers

    func answered(_ record: Record, _ outcome: PublishOutcome) {
        if let old = record.revokes, outcome.code == .accepted || outcome.code == .ignored { revoked(record, old) }
        if outcome.code == .stopped, record.task?.wonAt ?? 0 > 0 { world.faults.note(.siblingRefused) }
        if outcome.code == .stopped, record.task?.isStopped != true, record.task?.wonAt ?? 0 == 0,
            record.dealt?.isStopped != true
        {
            fail(.refusal, "publish \(record.index) was refused, but nobody stopped its task")
        }
        guard outcome.code == .accepted else {
            if outcome.code == .unknownDevice, record.identity.isDurable, record.identity.durableGeneration > 1 {
                fail(.refusal, "publish \(record.index) found no device")
            }
            if outcome.code == .ignored, record.revokes == nil, !record.identity.wasBlacklisted {
                fail(.refusal, "publish \(record.index) was ignored, but its device was never blacklisted")
            }
            if outcome.code == .requestConflict, record.request == 0 {
                fail(.request, "a conflict without a request id")
            }
            return
        }
        guard let original = self.record(outcome.message) else {
            return fail(.content, "publish \(record.index) was answered with an unknown id")
        }
        if !original.everDurable { fail(.beforeSync, "publish \(record.index) was answered before it was durable") }
        if original !== record {
            // The first attempt of a list's call may have been refused: then this one is no repetition.
            if original.request != record.request || record.request == 0 || !outcome.isRepeat && !record.isOnce {
                fail(.request, "publish \(record.index) was answered with message \(original.index)")
            }
        } else {
            // Of calls that travel through mailboxes a later attempt may come first.
            if outcome.isRepeat, record.dealt == nil, record.task?.firstAckWins != true {
                fail(.request, "publish \(record.index) is called a repeat")
            }
            if outcome.isLive == record.wasAcceptedOffline, record.table == .message, !record.wasVendorFirst {
                fail(.offlineFlag, "publish \(record.index) was answered as live \(outcome.isLive)")
            }
        }
        // What is known of a list's devices is never forgotten.
        guard record.request > 0, !requestsForgotten || record.isOnce else { return }
        if let known = answersOfRequest[record.request], known != outcome.message {
            fail(.request, "request \(record.request) was accepted twice")
        }
        answersOfRequest[record.request] = outcome.message
    }

    // MARK: Senders

    func leased(_ job: Job, _ sender: SimulatedSender, _ loop: Loop) {
        guard let record = record(job.message) else { return fail(.content, "a job nobody published was leased") }
        world.log.note(world.now, "leased", Int64(record.index), Int64(job.attempt), job.leasedUntil)
        let name = "message \(record.index)"
        if record.final != nil { fail(.leasedAfterEnd, "\(name) was leased after it had ended as \(record.final!)") }
        if record.strategy == .liveOnly { fail(.strategy, "strategy 3 was leased") }
        if !record.durableLeases.contains(job.leaseID.1) {
            fail(.beforeSync, "\(name) was leased before it was durable")
        }
        let decidedAt = job.leasedUntil - sender.leaseMilliseconds
        if decidedAt >= record.expiresAt || now >= record.expiresAt {
            fail(
                .leasedAfterExpiry,
                "\(name) was leased at \(decidedAt) and shown at \(now), it expired at \(record.expiresAt)")
        }
        if record.openLease != 0, decidedAt < record.openLeaseUntil {
            fail(.lease, "\(name) was leased at \(decidedAt) while it was leased until \(record.openLeaseUntil)")
        }
        if record.acceptWasRecorded { fail(.lease, "\(name) was leased after the vendor took it") }
        (record.openLease, record.openLeaseUntil) = (job.leaseID.1, job.leasedUntil)
        record.leaseTokens[job.leaseID.1] = job.token
        if job.cid != record.identity.cid { fail(.content, "\(name) was leased for another device") }
        let identity = record.identity
        if record.badgeAtLease.lease == job.leaseID.1, !record.tokensAtLease.contains(job.token) {
            fail(.lease, "\(name) was leased with a token its device does not have: \(job.token)")
        }
        if job.attempt > world.plan.apps[identity.app].maxAttempts {
            fail(.bounds, "\(name) had \(job.attempt) attempts")
        }
        checkBadge(job, record)
    }

    private func checkBadge(_ job: Job, _ record: Record) {
        guard record.badge != .none, job.body.count > 30 else { return }
        var text = ""
        for byte in job.body[28...] {
            guard byte != UInt8(ascii: "}") else { break }
            text.unicodeScalars.append(UnicodeScalar(byte))
        }
        guard record.badgeAtLease.lease == job.leaseID.1 else { return }
        if Int32(text) != record.badgeAtLease.badge {
            fail(.badge, "message \(record.index) carries badge \(text), not \(record.badgeAtLease.badge)")
        }
    }

    func willExtend(_ record: Record, _ job: Job, by milliseconds: Int64) {
        if record.openLease == job.leaseID.1 { record.openLease = 0 }
    }

    /// Remembers what is reported; the verdicts come under this number.
    func willSettle(_ results: [JobResult]) -> Int {
        settleCount += 1
        settling[settleCount] = results
        for result in results {
            guard let record = record(result.job) else { continue }
            if result.outcome == .accepted { record.wasReportedAccepted = true }
            if result.outcome == .badToken, let token = record.leaseTokens[result.leaseID.1] {
                record.identity.badTokens.insert(token)
            }
            if record.openLease == result.leaseID.1 { record.openLease = 0 }
        }
        return settleCount
    }

    func settled(_ number: Int, _ verdicts: [ResultVerdict]) {
        guard let results = settling.removeValue(forKey: number) else { return }
        if results.count != verdicts.count { fail(.lease, "\(verdicts.count) verdicts for \(results.count) results") }
        for (result, verdict) in zip(results, verdicts) where verdict.verdict == .recorded {
            guard let record = record(result.job) else {
                fail(.lease, "a result of an unknown job was recorded")
                continue
            }
            let isDurable = record.durableResults.contains {
                $0.lease == result.leaseID.1 && $0.outcome == result.outcome.rawValue
            }
            if !isDurable, !(result.outcome == .accepted && record.hasLateAccept) {
                fail(
                    .beforeSync,
                    "result \(result.outcome) of message \(record.index) was confirmed before it was durable, strategy \(record.strategy), final \(String(describing: record.final)), job \(String(describing: record.job))"
                )
            }
            if result.outcome == .accepted, record.final == nil, record.strategy == .liveElseVendor {
                record.acceptWasRecorded = true
            }
        }
    }

    func traced(_ number: Int, _ trace: MessageTrace?) { traces[number] = .some(trace) }

    func logged(_ event: LogEvent) {
        if event.level == .error, "\(event.name)" != "storeReadFailed" {
            fail(.books, "the gateway logged \(event.name): \(event.text)")
        }
        if "\(event.name)" == "positionBeyondQueue" { fail(.sequence, "a position was beyond what was given") }
    }

    // MARK: The end

    /// Long after its end nothing is pending, whether its device is there or not.
    func checkOverdue() {
        guard world.plan.limits.alarmBatch > 100 else { return }
        // With little read ahead, an app's jobs that nobody leases may hold up the ends of its own jobs: documented.
        let isRoomy = world.plan.limits.dueJobReadAhead > 1_000
        for record in world.records
        where record.durableTable != nil && record.expiresAt + 100_000 < now && (isRoomy || !record.hasVendor) {
            return fail(.progress, "message \(record.index) is pending \(now - record.expiresAt) ms after its end")
        }
    }

    /// Everything accepted has come to one end, nothing is left, all books agree.
    func checkEnd() {
        for loop in world.loops {
            for table in [StoreKey.Table.message, .vendorMessage, .job] {
                let count = loop.store.rowCount(table)
                if count > 0 { return fail(.progress, "\(count) rows are left in \(table)") }
            }
            let numbers = loop.shard.statistics
            let gauges = [
                ("messages", numbers.messagesInMemory), ("jobs", numbers.jobsInMemory), ("due", numbers[.apns].dueJobs),
                ("held", numbers[.apns].heldJobs), ("leased", numbers[.apns].leasedJobs),
                ("waiting", numbers.waitingCommands),
                ("effects", numbers.pendingEffects), ("pending", Int(numbers.pending)),
            ]
            for (name, value) in gauges where value != 0 {
                let open = world.records.first { $0.everDurable && $0.durableFinal == nil }
                let text = open.map {
                    ", message \($0.index), strategy \($0.strategy), broadcast \($0.broadcast?.index ?? -1)"
                }
                return fail(.progress, "\(value) \(name) are left in memory\(text ?? "")")
            }
        }
        for record in world.records {
            if record.durableTable != nil || record.everDurable && record.durableFinal == nil {
                return fail(.progress, "message \(record.index) is still pending")
            }
            if let outcome = record.outcome, outcome.code == .accepted,
                self.record(outcome.message)?.durableFinal == nil
            {
                return fail(.progress, "publish \(record.index) was accepted, but its message never ended")
            }
        }
        for (index, app) in world.plan.apps.enumerated() { checkTotals(index, app.key) }
        for device in world.devices where !device.isLiar {
            guard let identity = device.identity, identity.liveLink != nil else {
                return fail(.progress, "device \(device.index) did not come back: \(device.core.isStopped)")
            }
        }
        checkSettled()
        checkTaskTotals()
        if world.violation == nil { checkBroadcasts() }
        checkTraces()
    }

    private func checkTotals(_ index: Int, _ app: AppKey) {
        var accepted: UInt64 = 0
        var finals = [UInt64](repeating: 0, count: 10)
        for (_, days) in counters {
            for (_, row) in days where row.app == app {
                accepted += row.accepted
                for state in FinalState.allCases { finals[Int(state.rawValue)] += row[state] }
            }
        }
        if accepted != UInt64(durableAccepted[index]) {
            fail(.books, "\(accepted) were counted as accepted, \(durableAccepted[index]) were stored")
        }
        for state in FinalState.allCases
        where finals[Int(state.rawValue)] != UInt64(durableFinals[index][Int(state.rawValue)]) {
            fail(.books, "\(finals[Int(state.rawValue)]) were counted as \(state)")
        }
    }

    /// What the gateway tells of messages that ended is what was seen when they did.
    private func checkTraces() {
        let ended = world.records.filter { $0.durableFinal != nil }
        guard !requestsForgotten, !ended.isEmpty else { return }
        for record in ended.suffix(200) {
            let loop = world.loop(of: record.identity.bucket)
            loop.shard.trace(of: record.id, origin: .init(route: 5, request: UInt64(record.index)), now: now)
            loop.perform()
        }
        world.pass(milliseconds: 20_000)
        for record in ended.suffix(200) {
            guard let trace = traces[record.index] ?? nil else {
                return fail(.progress, "the trace of message \(record.index) was not told")
            }
            if trace.finalState != record.durableFinal {
                return fail(
                    .finalState, "the trace of message \(record.index) says \(String(describing: trace.finalState))")
            }
        }
    }
}
