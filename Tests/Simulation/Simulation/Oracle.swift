internal import Delivery
internal import LongwireClient
internal import Wire

/// Watches rows, effects and clients, and holds them against the promises.
///
/// What it knows comes from the simulator: what was published, what devices said, what reached them. It reads rows only
/// to learn when something became durable.
final class Oracle: StoreWitness {
    unowned(unsafe) var world: World!
    var counters: [UInt64: [UInt32: CountersRow]] = [:]
    var pending: [UInt64: Int] = [:]
    var durableFinals = [[Int]](repeating: [Int](repeating: 0, count: 10), count: 2)
    var durableAccepted = [0, 0]
    var answersOfRequest: [Int: MessageID] = [:]
    var requestsForgotten = false
    var settling: [Int: [JobResult]] = [:]
    var settleCount = 0
    var traces: [Int: MessageTrace?] = [:]
    var taskTotals: [Int: TaskTotals] = [:]
    /// Batches since an update began, and those of them that accept a broadcast's message: for these nobody waits.
    var writtenTickets: Set<Ticket> = []
    /// Batches that a device's stream wrote, of which the result of an update says nothing.
    var streamTickets: Set<Ticket> = []
    var ticketBeforeUpdate: Ticket = 0
    private var overflowedInFlight: [(message: Int, link: Int)] = []

    func record(_ id: MessageID) -> Record? {
        let index = Int(id.low & 0xFFFF_FFFF)
        guard index < world.records.count, world.records[index].digest == id.low else { return nil }
        return world.records[index]
    }

    var now: GatewayTime { world.gatewayNow }
    func fail(_ kind: ViolationKind, _ text: @autoclosure () -> String) { world.fail(kind, text()) }

    private func place(_ bucket: Bucket, _ app: AppKey) -> UInt64 { UInt64(bucket.index) << 32 | app.word }

    // MARK: Rows as they are written

    func rowWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, ticket: Ticket) {
        writtenTickets.insert(ticket)
        switch key.table {
        case .message, .vendorMessage: messageWritten(key, bytes, ticket)
        case .job: jobWritten(key, bytes)
        case .trace: traceWritten(key, bytes, ticket)
        case .device: deviceWritten(key, bytes, ticket)
        case .taskMessage: ledgerWritten(key, bytes, ticket)
        case .counters, .request, .meta, .alias, .tag, .task, .taskEvent, .taskTargets, .taskGroup,
            .singleTask, .broadcast:
            break
        }
    }

    private func messageWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ ticket: Ticket) {
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
                    if record.timeToLive > 0, record.job?.state == .accepted {
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
        record.byteCount = bytes.count
        (record.rowTicket, record.rowLife) = (ticket, world.life)
    }

    /// The flag that a message is accepted with follows from what the device said of itself.
    private func checkAcceptance(_ record: Record, _ identity: Identity, _ row: RowInspection.Message) {
        guard record.strategy == .liveElseVendor || record.strategy == .liveOnly else { return }
        // While another Hello is looked at, the older session may just have ended.
        if identity.isBlacklisted { fail(.strategy, "message \(record.index) was accepted for a blacklisted device") }
        guard identity.callers.isEmpty else { return }
        if identity.isReachable == row.isOffline {
            fail(.offlineFlag, "message \(record.index) was accepted with offline \(row.isOffline)")
        }
    }

    /// The shard made one of the callers the device's session: the row tells whose Hello it was.
    private func admit(_ identity: Identity, _ timestamp: UInt64) {
        // A registration's own clock is not taken over when it is far off.
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

    private func jobWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        guard let job = RowInspection.job(bytes), let record = record(job.message) else {
            return fail(.content, "a job that nobody published was stored")
        }
        if record.final != nil { fail(.books, "a job row of message \(record.index) was written after its end") }
        if job.state == .leased {
            if record.strategy == .liveOnly { fail(.strategy, "strategy 3 was leased") }
            let limit = world.plan.apps[record.identity.app].maxAttempts
            if job.attempts > limit { fail(.bounds, "message \(record.index) had \(job.attempts) attempts") }
        }
        if job.badgeApplied, record.job?.badgeApplied != true {
            let before = record.identity.badge
            defer { record.badgeChange = record.identity.badge - before }
            switch record.badge {
            case .none: break
            case .set(let value): record.identity.badge = max(0, value)
            case .add(let value): record.identity.badge = max(0, record.identity.badge + value)
            }
        }
        if job.state == .leased, job.attempts != record.job?.attempts ?? 0 {
            record.badgeAtLease = (job.lease.1, record.identity.badge)
            record.tokensAtLease = record.identity.tokens
            checkHeld(record)
        }
        if record.job?.badgeApplied == true, !job.badgeApplied { fail(.badge, "a badge was unapplied") }
        moveBadge(record, isTakenBack: job.isBadgeTakenBack)
        record.job = job
    }

    /// The vendor's refusal takes back what the first lease did, an acceptance after all does it again; not once a
    /// caller has set the badge.
    private func moveBadge(_ record: Record, isTakenBack: Bool) {
        guard let job = record.job, job.isBadgeTakenBack != isTakenBack, job.badgeRound == record.identity.badgeRound
        else { return }
        let change = isTakenBack ? -record.badgeChange : record.badgeChange
        record.identity.badge = max(0, record.identity.badge + change)
    }

    /// What the live channel may still bring is not leased.
    private func checkHeld(_ record: Record) {
        let identity = record.identity
        guard identity.callers.isEmpty else { return }
        if identity.isBlacklisted {
            fail(.strategy, "message \(record.index) was leased though its device is blacklisted")
        }
        if identity.pushModeOff { fail(.strategy, "message \(record.index) was leased though push mode is off") }
        guard record.strategy == .liveElseVendor, record.table != .vendorMessage, identity.isReachable,
            record.timeToLive > 0, !identity.isSuspect
        else { return }
        // A message that ends soon is missed a second before its end.
        var missedAt = record.sentAt + world.plan.limits.backgroundLiveDeadline
        if record.expiresAt - 1_000 > record.sentAt { missedAt = min(missedAt, record.expiresAt - 1_000) }
        if record.flightLink < 0 || now < missedAt {
            fail(.strategy, "message \(record.index) was leased though its device is reachable")
        }
    }

    private func traceWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ ticket: Ticket) {
        if let event = RowInspection.lateEvent(key) {
            guard let record = record(RowInspection.tracedMessage(key)) else {
                return fail(.content, "a late event of an unknown message")
            }
            // What users did is recorded beside a pending message, too.
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
        if trace.finalState == .overflowed, record.flightLink >= 0 {
            overflowedInFlight.append((record.index, record.flightLink))
        }
        // The stream, which the result of an update opens, ends what it finds to be over.
        if [.expired, .handedOff, .collapsed].contains(trace.finalState) { streamTickets.insert(ticket) }
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

    /// A session that ended before the overflow, in the same turn, is told after it.
    func checkOverflowed() {
        for (message, link) in overflowedInFlight where world.links[link].phase != .closed {
            fail(.bounds, "message \(message) overflowed while it was in flight")
        }
        overflowedInFlight.removeAll(keepingCapacity: true)
    }

    /// Takes a message out of its session's window.
    func land(_ record: Record) {
        guard record.flightLink >= 0 else { return }
        let link = world.links[record.flightLink]
        record.flightLink = -1
        link.inFlight.removeAll { $0 === record }
        link.inFlightBytes -= record.byteCount
    }

    private func checkReason(_ record: Record, _ trace: RowInspection.Trace, _ wasStored: Bool) {
        let name = "message \(record.index) ended as \(trace.finalState)"
        switch trace.finalState {
        case .delivered, .deliveredOffline:
            if record.strategy == .vendorOnly { fail(.strategy, "\(name) with strategy 2") }
            // Its SDK keeps from the app what the user has opened, and cannot always tell.
            let isKnown = record.wasHandled || record.wasSuppressedAsOpened || record.openedByUser
            if record.identity.isHonest, !isKnown {
                fail(.finalState, "\(name), but its app has never seen it")
            }
        case .opened:
            if !record.openedByUser { fail(.finalState, "\(name), but nobody opened it") }
        case .handedOff:
            if !record.wasReportedAccepted { fail(.finalState, "\(name), but no sender said so") }
            if record.strategy == .liveElseVendor, now < record.expiresAt {
                fail(.finalState, "\(name) before its time")
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

    private func deviceWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ ticket: Ticket) {
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

    // MARK: Rows as they become durable

    func batchBecameDurable(_ operations: [SimulatedStore.Operation], ticket: Ticket) {
        var removed: [Record] = []
        var ended: [Record] = []
        var sequences: [(Identity, UInt64)] = []
        var counted: UInt64?
        for operation in operations {
            switch operation {
            case .put(let key, let value):
                switch key.table {
                case .message, .vendorMessage:
                    guard let row = RowInspection.message(value.bytes), let record = record(row.message) else {
                        continue
                    }
                    if record.durableTable == nil {
                        pending[place(key.bucket, world.plan.apps[record.identity.app].key), default: 0] += 1
                        if !record.everDurable { durableAccepted[record.identity.app] += 1 }
                        record.durableSince = world.now
                    }
                    record.everDurable = true
                    record.durableTable = key.table
                    if key.table == .message {
                        record.durableSequence = key.item
                        if key.item <= record.identity.durableHighest {
                            fail(.sequence, "sequence \(key.item) became durable twice")
                        }
                        record.identity.durableHighest = max(record.identity.durableHighest, key.item)
                        sequences.append((record.identity, key.item))
                    }
                case .job:
                    guard let job = RowInspection.job(value.bytes), let record = record(job.message) else { continue }
                    record.durableJob = job
                    if job.lease != (0, 0), record.durableLeases.last != job.lease.1 {
                        record.durableLeases.append(job.lease.1)
                    }
                    note(record, job.settledLease.1, job.settledOutcome)
                case .trace:
                    if let event = RowInspection.lateEvent(key) {
                        let isAccept = event == .vendorAccepted || event == .alertedTwice
                        if isAccept { record(RowInspection.tracedMessage(key))?.hasLateAccept = true }
                        continue
                    }
                    guard let trace = RowInspection.trace(key, value.bytes), let record = record(trace.message) else {
                        continue
                    }
                    if record.durableFinal != nil { fail(.finalState, "message \(record.index) ended twice on disk") }
                    if !record.everDurable {
                        record.everDurable = true
                        durableAccepted[record.identity.app] += 1
                    }
                    record.durableFinal = trace.finalState
                    noteFirstAck(record, trace.finalState)
                    if record.durableTable == .broadcast {
                        // It has no row that could be deleted.
                        record.durableTable = nil
                        removed.append(record)
                    }
                    durableFinals[record.identity.app][Int(trace.finalState.rawValue)] += 1
                    note(record, trace.settledLease.1, trace.settledOutcome)
                    ended.append(record)
                case .device:
                    guard let row = RowInspection.device(value.bytes),
                        let identity = world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow))
                    else { continue }
                    identity.isDurable = true
                    identity.durableGeneration = row.generation
                    (identity.durableBadge, identity.durableBadgeRound) = (row.badge, row.badgeRound)
                    identity.durableReserved = row.reservedSequence
                    identity.durablePushModeOff = row.pushModeOff
                    identity.durableBlacklisted = row.isBlacklisted
                    (identity.durableAlias, identity.durableTags) = (row.alias, row.tags)
                    identity.durableTokens = row.tokens
                case .counters:
                    guard let row = CountersRow(value.bytes) else { continue }
                    let place = place(key.bucket, row.app)
                    counters[place, default: [:]][row.day] = row
                    counted = place
                case .taskMessage: ledgerBecameDurable(key, value.bytes)
                case .request, .meta, .alias, .tag, .task, .taskEvent, .taskTargets, .taskGroup, .broadcast,
                    .singleTask:
                    break
                }
            case .add: fail(.books, "a change came without its sum")
            case .delete(let key):
                switch key.table {
                case .message:
                    guard let identity = world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow)),
                        let record = identity.bySequence[key.item], record.durableTable == .message
                    else { continue }
                    record.durableTable = nil
                    removed.append(record)
                case .vendorMessage:
                    let record = world.records[Int(key.item & 0xFFFF_FFFF)]
                    guard record.durableTable == .vendorMessage else { continue }
                    record.durableTable = nil
                    removed.append(record)
                case .job:
                    record(MessageID(high: key.ownerHigh, low: key.ownerLow))?.durableJob = nil
                case .device:
                    // Never seen again within a day, and so forgotten.
                    world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow))?.wasLost = true
                default: break
                }
            }
        }
        for record in removed where record.durableTable == nil {
            pending[place(record.identity.bucket, world.plan.apps[record.identity.app].key), default: 0] -= 1
            if record.durableFinal == nil { fail(.books, "message \(record.index) lost its row without a final state") }
        }
        for record in ended {
            if record.durableTable != nil { fail(.books, "message \(record.index) ended, but its row stays") }
            if record.durableJob != nil { fail(.books, "message \(record.index) ended, but its job stays") }
            if record.durableFinal == .collapsed, record.broadcast == nil,
                record.identity.newestOfKey[Int(record.collapse)] == record.index
            {
                fail(.finalState, "message \(record.index) was collapsed by nobody")
            }
        }
        for (identity, sequence) in sequences where sequence > identity.durableReserved {
            fail(.sequence, "sequence \(sequence) is beyond the reserved \(identity.durableReserved)")
        }
        if let counted { checkCounters(counted) }
    }

    func notePending(_ record: Record, _ change: Int) {
        pending[place(record.identity.bucket, world.plan.apps[record.identity.app].key), default: 0] += change
    }

    private func note(_ record: Record, _ lease: UInt64, _ outcome: UInt8) {
        guard outcome != 0, record.durableResults.last.map({ $0.lease != lease || $0.outcome != outcome }) ?? true
        else { return }
        record.durableResults.append((lease, outcome))
    }

    /// accepted = Σ final states + pending, in each bucket of each app, at each commit that counts.
    private func checkCounters(_ place: UInt64) {
        var open: Int64 = 0
        for (_, row) in counters[place] ?? [:] { open += Int64(bitPattern: row.accepted &- row.ended) }
        if open != Int64(pending[place] ?? 0) {
            fail(
                .books, "counters say that \(open) messages of a bucket are pending, \(pending[place] ?? 0) are stored")
        }
    }

    // MARK: The process dies

    func processDied() {
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
        for link in world.links where link.phase != .closed {
            link.inFlight = []
            link.inFlightBytes = 0
        }
        for record in world.records where record.isPending && record.broadcast == nil {
            record.identity.pendingCount += 1
        }
        settling = [:]
    }

    func ephemeralRowsDropped() { requestsForgotten = true }
}
