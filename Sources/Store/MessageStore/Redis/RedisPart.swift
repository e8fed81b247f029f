// An open partition of the store: its log, its rows, and the spilling of its overlay.

internal import Delivery
internal import Journal
internal import Platform
internal import Redis
internal import Synchronization
internal import Wire

final class RedisPart: OverlayOwner, OrderedRows, @unchecked Sendable {
    // Sound because `state`, `known` and `start` are locks, the numbers are atomics, `batches`, `held`, `trimDue` and `lastTime`
    // belong to the worker that serves the partition (`State.isBusy`), and all other properties are constants.

    struct State: ~Copyable {
        var isBusy = false
        var isQueued = false
        /// The collection requested from the overlay and not returned yet.
        var asked: (number: UInt64, ticket: Ticket)?
        var collected: (rows: [SpilledRow], number: UInt64)?
        var lastAsked: UInt64 = 0
        var stale: [StaleAlarm] = []
        /// Whether rows wait for a server (`held`) or the log has entries to trim; and the time of the next attempt.
        var isHolding = false
        var holdUntil: UInt64 = 0
        /// Whether all rows must be spilled, regardless of their age.
        var isSpillingAll = false
        /// Whether the overlay was closed and took its memory along.
        var isRetired = false
        var isClosing = false
        var retryAt: UInt64 = 0
        var nextHousekeeping: UInt64 = 0
    }

    let part: Int
    let partCount: Int
    let log: RedisLog
    let context: LogContext
    let mailbox: ShardMailbox
    let batches: RedisRowBatches
    /// Rows that the overlay returned and some groups do not have yet.
    private var held = HeldRows()
    /// The log entry up to which every group has its rows, so that the log can be trimmed.
    private var trimDue: UInt64?
    private let readers: RedisReaders
    private let spiller: RedisSpiller
    private let groupKeys: [Int: GroupKeys]
    let state = Monitor(State())
    private let known: Lock<[Int: Set<RedisPeriod>]>
    private let start: Lock<[StoreKey.Table: [(key: StoreKey, stored: [UInt8])]]>
    private let newestUnknown: Int64
    private let oldestPeriodNumber = Atomic<Int64>(0)
    private let retired = Lock<[EmbeddedShardStore]>([])

    init(
        _ opening: PartOpening, _ findings: PartOpening.Findings, part: Int, of partCount: Int, log: RedisLog,
        context: LogContext, mailbox: ShardMailbox, readers: RedisReaders, spiller: RedisSpiller
    ) {
        (self.part, self.partCount, self.log, self.context) = (part, partCount, log, context)
        (self.mailbox, self.readers, self.spiller) = (mailbox, readers, spiller)
        batches = opening.batches
        // An unresponsive server must not delay the other groups.
        batches.isImpatient = true
        groupKeys = Dictionary(uniqueKeysWithValues: opening.batches.groups.map { ($0.group, $0) })
        var periods: [Int: Set<RedisPeriod>] = [:]
        for group in groupKeys.keys { periods[group] = Set(opening.batches.periods(of: group)) }
        newestUnknown = periods.values.joined().filter { $0.kind == .requests }.map(\.number).max() ?? .min
        hasEphemeral = periods.values.contains { !$0.isEmpty }
        hasRows = findings.hasRows
        known = Lock(periods)
        retained.withLock { $0 = opening.batches.ephemeralByteCounts }
        start = Lock(findings.start)
    }

    private let retained = Lock<[RedisPeriod: Int]>([:])
    private let hasEphemeral: Bool
    private let hasRows: Bool

    func mayHaveRows(_ table: StoreKey.Table) -> Bool { table.isEphemeral ? hasEphemeral : hasRows }

    func keys(of bucket: Bucket) -> GroupKeys? { groupKeys[RedisGroups.group(of: bucket)] }

    // MARK: Room

    func acceptsWrites(beside untoldByteCount: Int) -> Bool {
        !log.isLost && !log.isStuck && context.acceptsWrites(beside: untoldByteCount)
    }
    var isStuck: Bool { log.isStuck }
    func isShortOfRoom(beside untoldByteCount: Int) -> Bool { context.isShortOfRoom(beside: untoldByteCount) }
    func hasRoomForLists(beside untoldByteCount: Int) -> Bool {
        !log.isLost && !log.isStuck && context.hasRoomForLists(beside: untoldByteCount)
    }

    var sliceRowCount: Int {
        let (filled, bound) = (context.logBytes.load(ordering: .relaxed), context.configuration.logByteLimit)
        // While rows wait for a server, larger slices would not empty the log.
        if state.withLock({ $0.isHolding }) { return Limits.sliceRowCount }
        if filled > bound { return Limits.sliceRowCount * 32 }
        return Double(filled) > Double(bound) * Limits.spillShare ? Limits.sliceRowCount * 8 : Limits.sliceRowCount
    }

    func collected(_ rows: [SpilledRow], from shard: EmbeddedShardStore) {
        state.withLock { state in
            guard let asked = state.asked else { return }
            state.asked = nil
            state.collected = (rows, asked.number)
        }
        spiller.enqueue(self)
    }

    func retire(_ shard: EmbeddedShardStore) {
        state.withLock { $0.isRetired = true }
        retired.withLock { $0.append(shard) }
    }

    // MARK: Rows

    func submit(_ operation: ReadOperation) { readers.submit(operation, self) }

    func loadAll(table: StoreKey.Table, buckets: [UInt16], _ body: (StoredRow) -> Void) throws(StoreError) {
        precondition(!table.isEphemeral, "ephemeral tables are not loaded")
        guard hasRows else { return }
        var rows: [(key: StoreKey, stored: [UInt8])] = []
        if let found = start.withLock({ $0.removeValue(forKey: table) }) {
            rows = found
        } else {
            // The rows that the opening has read are returned once. A second call reads them again.
            let client = RedisClient(context.cluster)
            defer { client.close() }
            let opening = PartOpening(part: part, of: partCount, epoch: log.epoch, context: context, client: client)
            rows = try opening.load(table)
        }
        for (key, stored) in rows {
            stored.withUnsafeBytes { if let row = KeyCoding.row(key, $0) { body(row) } }
        }
    }

    func dropStale(_ alarms: [StaleAlarm]) {
        state.withLock { $0.stale.append(contentsOf: alarms) }
        spiller.enqueue(self)
    }

    var hasOnlyKnownRequests: Bool { newestUnknown == .min || newestUnknown < oldestRequestPeriod }
    var oldestRequestPeriod: Int64 { oldestPeriodNumber.load(ordering: .relaxed) }

    /// Returns the periods that may have a row of an ephemeral table, newest first.
    func periods(of key: StoreKey) -> [RedisPeriod] {
        let kind = Period.Kind(of: key.table)
        let found = known.withLock { $0[RedisGroups.group(of: key.bucket)] ?? [] }
        return found.filter { $0.kind == kind }.sorted { $0.number > $1.number }
    }

    // MARK: Spilling

    func hasWork(_ now: UInt64) -> Bool {
        let spans = log.spans
        return state.withLock { state in
            guard !state.isBusy, !state.isQueued, !state.isClosing, now >= state.retryAt else { return false }
            if state.collected != nil || !state.stale.isEmpty || now >= state.nextHousekeeping { return true }
            if state.isHolding, now >= state.holdUntil { return true }
            return state.asked == nil && !state.isRetired && dueSpan(spans, now, state) != nil
        }
    }

    func requestSpill() {
        state.withLock { $0.isSpillingAll = true }
        spiller.enqueue(self)
    }

    /// Returns the last span to spill now, limited by the size of one collection.
    private func dueSpan(_ spans: [LogSpan], _ now: UInt64, _ state: borrowing State) -> LogSpan? {
        let filled = context.logBytes.load(ordering: .relaxed)
        // While rows wait for a server, spilling early cannot shrink the log, so younger rows wait for their age.
        let isPressed =
            !state.isHolding && Double(filled) > Double(context.configuration.logByteLimit) * Limits.spillShare
        var byteCount = 0
        var last: LogSpan?
        for span in spans where span.lastNumber > state.lastAsked {
            guard
                state.isSpillingAll || isPressed || span.openedAt + context.configuration.youngMilliseconds <= now
            else { break }
            last = span
            byteCount += span.byteCount
            if byteCount >= Limits.spillByteCount { break }
        }
        return last
    }

    /// Performs a worker's turn: writes collected rows, trims the log, does housekeeping, and requests more rows.
    func work(by client: RedisClient) {
        let now = context.now
        do throws(StoreError) {
            if let (rows, number) = state.withLock({ $0.collected }) {
                held.add(rows, upTo: number)
                state.withLock { $0.collected = nil }
            }
            try write(by: client)
            try trim(by: client)
            noteHolding()
            let stale = state.withLock { state in
                defer { state.stale.removeAll() }
                return state.stale
            }
            if !stale.isEmpty { try clean(stale, by: client) }
            if state.withLock({ $0.nextHousekeeping }) <= now {
                try endPeriods(by: client)
                state.withLock { $0.nextHousekeeping = now + Limits.housekeepingMilliseconds }
            }
            ask()
        } catch {
            if case .epochTaken(_, let successor) = error {
                yield(to: successor, by: client)
            }
            state.withLock { $0.retryAt = context.now + Limits.spillRetryMilliseconds }
            context.noteSpillFailure(error.description)
        }
    }

    /// Handles a higher epoch that a script reported: a successor's, or one that another program wrote.
    private func yield(to successor: UInt64, by client: RedisClient) {
        do throws(RedisError) {
            if let last = try LogReading.lastID(of: log.key, slot: log.slot, by: client), last.epoch > log.epoch,
                try log.isForeign(last, by: client)
            {
                log.giveUp(last)
                return
            }
        } catch {
            // The ownership ends even if the log cannot be read. The next owner detects a foreign entry.
        }
        log.fence(.fenced(part: part, epoch: log.epoch, successor: successor))
    }

    /// Logs a temporary failure of one server, so that work for other servers continues.
    private func passing(_ error: StoreError) throws(StoreError) {
        if case .epochTaken = error { throw error }
        context.noteSpillFailure(error.description)
    }

    private func noteHolding() {
        let isHolding = !held.isEmpty || trimDue != nil
        let now = context.now
        state.withLock { state in
            state.isHolding = isHolding
            state.holdUntil = now + Limits.spillRetryMilliseconds
        }
    }

    /// Returns the server of a group, and whether it is known to be silent.
    private func server(of group: Int) -> (address: RedisAddress?, isSilent: Bool) {
        server(ofSlot: groupKeys[group]?.slot ?? log.slot)
    }

    private func server(ofSlot slot: Int) -> (address: RedisAddress?, isSilent: Bool) {
        let address = context.cluster.primary(of: slot)
        return (address, address.map(context.cluster.isSilent) ?? false)
    }

    private func ask() {
        let spans = log.spans
        let now = context.now
        let ticket: Ticket? = state.withLock { state in
            if state.isSpillingAll, spans.allSatisfy({ $0.lastNumber <= state.lastAsked }),
                log.uncommittedByteCount == 0
            {
                state.isSpillingAll = false
            }
            guard state.asked == nil, state.collected == nil, !state.isRetired, let span = dueSpan(spans, now, state)
            else { return nil }
            state.asked = (span.lastNumber, span.lastTicket)
            state.lastAsked = span.lastNumber
            return span.lastTicket
        }
        if let ticket { mailbox.put { $0.collect = ticket } }
    }

    /// Writes the held rows, server by server.
    ///
    /// Groups of a silent server wait; others do not.
    private func write(by client: RedisClient) throws(StoreError) {
        guard !held.isEmpty else { return }
        var servers: [(address: RedisAddress?, groups: [Int])] = []
        for group in held.groups {
            let (address, isSilent) = server(of: group)
            guard !isSilent else { continue }
            if let place = servers.firstIndex(where: { $0.address == address }) {
                servers[place].groups.append(group)
            } else {
                servers.append((address, [group]))
            }
        }
        for (address, groups) in servers {
            // Check again: the server may have been found silent during a previous write.
            guard !(address.map(context.cluster.isSilent) ?? false) else { continue }
            let now = context.configuration.now() ?? lastTime
            lastTime = now
            let rows = held.rows(of: groups)
            do throws(StoreError) {
                let outcome = try batches.write(rows, run: log.epoch, now: now, by: client)
                held.remove(groups)
                context.spilledRows.add(outcome.rowCount, ordering: .relaxed)
                context.spilledDeletions.add(outcome.deletionCount, ordering: .relaxed)
                notePeriods()
                mailbox.put {
                    $0.cooled.append(ShardMailbox.CooledRows(rows: rows.flatMap { $0 }, period: outcome.period))
                }
            } catch { try passing(error) }
        }
    }

    private func trim(by client: RedisClient) throws(StoreError) {
        if let number = held.takeFinished() { trimDue = number }
        guard let number = trimDue, !server(ofSlot: log.slot).isSilent else { return }
        let trim = RedisScripts.trim(log.key, epoch: log.epoch, before: number + 1)
        let reply: RedisReply
        do throws(RedisError) {
            reply = try client.run(
                [RedisRequest(trim, slot: log.slot)],
                deadline: context.now + UInt64(context.configuration.rowsMilliseconds), isImpatient: true)[0]
        } catch { return context.noteSpillFailure(error.description) }
        if let successor = RedisScripts.successor(reply) { throw .epochTaken(part: part, epoch: successor) }
        guard reply.integer != nil else {
            return context.noteSpillFailure(
                "the log of part \(part): \(reply.fault?.text ?? "an answer of another form")")
        }
        // If a failover loses the trim, a takeover repeats it. The rows are already stored.
        trimDue = nil
        log.trimmed(upTo: number)
    }

    /// The gateway time of the last spill, used while the gateway time is unknown.
    private var lastTime: Int64 = 0

    private func notePeriods() {
        let now = groupKeys.keys.map { ($0, batches.periods(of: $0)) }
        known.withLock { known in for (group, periods) in now { known[group] = Set(periods) } }
        noteRetention()
    }

    private func noteRetention() {
        let byteCounts = batches.ephemeralByteCounts
        retained.withLock { $0 = byteCounts }
    }

    var retainedByteCounts: [RedisPeriod: Int] { retained.withLock { $0 } }

    private func endPeriods(by client: RedisClient) throws(StoreError) {
        guard let now = context.configuration.now() else { return }
        oldestPeriodNumber.store(
            RedisPeriod(.requests, at: now - Limits.ephemeralMilliseconds).number, ordering: .relaxed)
        let early = periodsOverBudget(now)
        var count = 0
        for group in groupKeys.keys.sorted() {
            for period in batches.periods(of: group) where period.end <= now || early.contains(period) {
                // Limit the number per turn, so that other work is not delayed.
                guard count < Limits.periodsPerTurn else { return noteRetention() }
                guard !server(of: group).isSilent else { break }
                known.withLock { _ = $0[group]?.remove(period) }
                do throws(StoreError) { try batches.end(period, of: group, by: client) } catch { try passing(error) }
                count += 1
            }
        }
        noteRetention()
        let left = batches.ephemeralByteCounts
        for period in early where left[period] == nil {
            // Even the youngest row of the period was written before the period's end.
            let age = max(0, now - (period.number + 1) * Limits.redisPeriodMilliseconds)
            context.earlyDrops.withLock { $0.note(period.kind, keptMilliseconds: age) }
        }
    }

    /// Returns the oldest periods that exceed the partition's share of the budget, never the current one.
    private func periodsOverBudget(_ now: Int64) -> Set<RedisPeriod> {
        var early: Set<RedisPeriod> = []
        let byteCounts = batches.ephemeralByteCounts
        for kind in [Period.Kind.requests, .traces] {
            let share = context.retentionLimit(kind) / max(1, partCount)
            let ofKind = byteCounts.filter { $0.key.kind == kind }.sorted { $0.key.number < $1.key.number }
            var byteCount = ofKind.reduce(0) { $0 + $1.value }
            let current = RedisPeriod(kind, at: now).number
            for (period, size) in ofKind where byteCount > share && period.number < current {
                early.insert(period)
                byteCount -= size
            }
        }
        return early
    }

    private func clean(_ stale: [StaleAlarm], by client: RedisClient) throws(StoreError) {
        let byServer = Dictionary(grouping: stale) { server(of: RedisGroups.group(of: $0.alarm.key.bucket)).address }
        for (address, entries) in byServer.sorted(by: { $0.value[0].alarm < $1.value[0].alarm }) {
            guard !(address.map(context.cluster.isSilent) ?? false) else {
                state.withLock { $0.stale.append(contentsOf: entries) }
                continue
            }
            do throws(StoreError) { try cleanOne(entries, by: client) } catch {
                state.withLock { $0.stale.append(contentsOf: entries) }
                try passing(error)
            }
        }
    }

    /// Checks the reported alarms again and removes the stale ones; nothing changes the rows during this worker's turn.
    private func cleanOne(_ stale: [StaleAlarm], by client: RedisClient) throws(StoreError) {
        var wanted: [StoreKey] = []
        for entry in stale {
            wanted.append(entry.alarm.key)
            if let successor = entry.successor { wanted.append(successor) }
        }
        var requests: [RedisRequest] = []
        var asked: [StoreKey] = []
        for key in Set(wanted).sorted() {
            guard let keys = keys(of: key.bucket) else { continue }
            asked.append(key)
            requests.append(RedisRequest(RowReading.value(keys.rows, key), slot: keys.slot))
        }
        var rows: [StoreKey: [UInt8]] = [:]
        var failure: String?
        do throws(RedisError) {
            let replies = try client.run(
                requests, deadline: context.now + UInt64(context.configuration.rowsMilliseconds), isImpatient: true)
            for (key, reply) in zip(asked, replies) {
                // If a row can be neither read nor ruled out, its alarm stays scheduled.
                guard reply.bytes != nil || reply.isNone else {
                    failure = "a row's read: \(reply.fault?.text ?? "an answer of another form")"
                    continue
                }
                rows[key] = reply.bytes
            }
        } catch { throw .redis(what: error.description) }
        if let failure { throw .redis(what: failure) }
        let useless = stale.filter { entry in
            guard let stored = rows[entry.alarm.key], stored.count >= KeyCoding.rowPrefixByteCount,
                stored.withUnsafeBytes({ $0.loadUnaligned(as: Int64.self) }) == entry.alarm.wakeAt
            else { return true }
            guard let successor = entry.successor, let other = rows[successor],
                other.count >= KeyCoding.rowPrefixByteCount
            else { return false }
            return other.withUnsafeBytes {
                AlarmRequest.isReadable(
                    successor: UnsafeRawBufferPointer(rebasing: $0[KeyCoding.rowPrefixByteCount...]))
            }
        }
        try batches.drop(useless.map(\.alarm), by: client)
    }

    // MARK: Closing

    /// Closes the partition after its overlay; returns whether all submitted batches are durable.
    func close(flushMilliseconds: UInt64) -> Bool {
        precondition(state.withLock { $0.isRetired }, "close a part's store on its loop before the part")
        let isFlushed = log.flush(atMostMilliseconds: flushMilliseconds)
        log.end()
        state.broadcast { $0.isClosing = true }
        // Wait for a worker, because the rows that it writes are in the overlay's memory.
        state.wait(while: { $0.isBusy }) { state in
            state.collected = nil
            state.asked = nil
        }
        held = HeldRows()
        context.logBytes.subtract(log.byteCount, ordering: .relaxed)
        mailbox.discard()
        retired.withLock { $0.removeAll() }
        return isFlushed
    }
}
