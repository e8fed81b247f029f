// The spiller moves remaining rows from the journal to the ordered store, one segment at a time, oldest first. It requests each
// shard's live rows, sorts and ingests them, notifies the shards, and recycles the segment. Most segments have few live rows
// left.
//
// It is the only thread that writes to RocksDB while the server runs. It therefore also drops old periods, removes stale alarms
// and requests compactions.

internal import Delivery
internal import Journal
internal import Platform
internal import Synchronization

final class Spiller: @unchecked Sendable {
    // Sound because `state` is a monitor, the counters are atomics, and all other state is accessed by the spiller thread only.

    private struct State: ~Copyable {
        var mailboxes: [(number: Int, mailbox: ShardMailbox)] = []
        /// The shards that have not answered the current request for rows.
        var missing: Set<ObjectIdentifier> = []
        var collected: [(mailbox: ShardMailbox, rows: [SpilledRow])] = []
        var stale: [StaleAlarm] = []
        var isOpen = true
        /// Whether a shard was closed and took its memory along; only the journal has its rows then, so nothing is spilled any
        /// more.
        var hasLostShard = false
        /// The number of requests to spill everything, and how many of them were completed.
        var spillRequests = 0
        var spillsDone = 0
        var lastFailure: String?
        var failureCount = 0
        /// The task to run between two segments, and the number of the last completed one.
        var task: (number: UInt64, body: @Sendable () -> Void)?
        var lastTask: UInt64 = 0
        var lastTaskDone: UInt64 = 0
    }

    private let run: SortedRun
    private let ledger: SegmentLedger
    private let committer: Committer
    private let configuration: EmbeddedStore.Configuration
    private let state = Monitor(State())
    private let spilledRows = Atomic<Int>(0)
    private let spilledDeletions = Atomic<Int>(0)
    private let oldestPeriodNumber: Atomic<Int64>
    private let newestUnknownPeriod: Atomic<Int64>
    private let droppedEarly = Lock(EarlyDrops())
    private var deletionsSinceCompaction = 0
    private var isCompacting = false
    private let openedAt = SystemClock.monotonicNanoseconds
    private var calm = QuietPeriod()
    /// The segment whose rows the shards collect while the previous segment is written.
    private var asked: UInt64?

    init(
        run: SortedRun, ledger: SegmentLedger, committer: Committer, configuration: EmbeddedStore.Configuration,
        hasUnknownPeriods: Bool
    ) {
        (self.run, self.ledger, self.committer) = (run, ledger, committer)
        self.configuration = configuration
        let periods = run.database.families(of: .request).map(\.period.number)
        oldestPeriodNumber = Atomic(periods.first ?? .max)
        newestUnknownPeriod = Atomic(hasUnknownPeriods ? periods.last ?? .min : .min)
    }

    // MARK: For other threads

    var spilledRowCount: Int { spilledRows.load(ordering: .relaxed) }
    var spilledDeletionCount: Int { spilledDeletions.load(ordering: .relaxed) }
    var failures: (last: String?, count: Int) { state.withLock { ($0.lastFailure, $0.failureCount) } }
    var oldestPeriod: Int64 { oldestPeriodNumber.load(ordering: .relaxed) }
    var earlyDrops: EarlyDrops { droppedEarly.withLock { $0 } }
    var hasOnlyKnownPeriods: Bool {
        let newest = newestUnknownPeriod.load(ordering: .relaxed)
        return newest == .min || newest < oldestPeriod
    }

    func add(_ mailbox: ShardMailbox, number: Int) {
        state.withLock { $0.mailboxes.append((number, mailbox)) }
    }

    func remove(_ mailbox: ShardMailbox) {
        state.broadcast { state in
            state.hasLostShard = true
            state.missing.remove(ObjectIdentifier(mailbox))
        }
    }

    func collected(_ rows: [SpilledRow], from mailbox: ShardMailbox) {
        state.broadcast { state in
            guard state.missing.remove(ObjectIdentifier(mailbox)) != nil else { return }
            state.collected.append((mailbox, rows))
        }
    }

    func dropStale(_ alarms: [StaleAlarm]) { state.withLock { $0.stale.append(contentsOf: alarms) } }

    func requestSpill() {
        state.withLock { $0.spillRequests += 1 }
        ledger.wake()
    }

    /// Runs `body` on the spiller's thread between two segments.
    ///
    /// Nothing is spilled, dropped or recycled during the call.
    ///
    /// - Returns: False if the thread did not start `body` before the timeout, or if the store closes. `body` does not run in
    ///   that case.
    func runBetweenSegments(_ body: @escaping @Sendable () -> Void) -> Bool {
        let number: UInt64? = state.withLock { state in
            guard state.task == nil, state.isOpen else { return nil }
            state.lastTask += 1
            state.task = (state.lastTask, body)
            return state.lastTask
        }
        guard let number else { return false }
        ledger.wake()
        let isTaken: Bool = state.wait(
            atMostMilliseconds: Limits.taskMilliseconds,
            while: { $0.isOpen && $0.lastTaskDone < number && $0.task?.number == number }
        ) { state in
            guard state.task?.number == number else { return true }
            state.task = nil
            return false
        }
        guard isTaken else { return false }
        state.wait(while: { $0.lastTaskDone < number }) { _ in }
        return true
    }

    private func runTask() {
        let task = state.withLock { state in
            defer { state.task = nil }
            return state.task
        }
        guard let task else { return }
        task.body()
        state.broadcast { $0.lastTaskDone = task.number }
    }

    func close() {
        state.broadcast { $0.isOpen = false }
        ledger.close()
    }

    // MARK: The thread

    func run(fatal: @Sendable (StoreError) -> Void) {
        do throws(StoreError) {
            while ledger.wait(atMostMilliseconds: configuration.spillerTickMilliseconds) {
                runTask()
                // A missing spare only delays the committer. On a full disk the committer reports the error.
                do throws(JournalError) { try ledger.keepSpare() } catch { note(StoreError(error)) }
                let (requests, isSpillingAll) = state.withLock { ($0.spillRequests, $0.spillRequests > $0.spillsDone) }
                let now = SystemClock.monotonicNanoseconds
                let age = configuration.youngMilliseconds * 1_000_000
                committer.sealSegment(openedBefore: isSpillingAll ? now : now > age ? now - age : 0)
                while let segment = ledger.oldestSealed, isDue(segment, isSpillingAll, now) {
                    guard try spill(segment, isSpillingAll, now) else { break }
                    calm.isDisturbed(at: SystemClock.monotonicNanoseconds)
                    runTask()
                    // Under continuous load this loop does not end, so the housekeeping also runs here.
                    try keepHouse(now)
                }
                // Complete only the requests that this round read at its beginning. Bytes that the committer still has to write
                // are not in a segment yet.
                if committer.uncommittedByteCount == 0, ledger.segmentCount == 0 {
                    state.withLock { $0.spillsDone = requests }
                }
                try keepHouse(now)
                calm.look(at: run.database, now: now, isWriting: committer.uncommittedByteCount > 0)
            }
        } catch {
            fatal(error)
        }
    }

    /// Returns whether the segment must be spilled, assuming that `earlier` segments were already recycled.
    private func isDue(_ segment: SealedSegment, _ isSpillingAll: Bool, _ now: UInt64, earlier: Int = 0) -> Bool {
        let byteCount = ledger.byteCount - earlier * ledger.folder.segmentByteCount
        return isSpillingAll || segment.openedAt + configuration.youngMilliseconds * 1_000_000 <= now
            || Double(byteCount) > Double(configuration.journalByteLimit) * Limits.spillShare
    }

    /// Moves one segment's rows; returns false if the store closes.
    private func spill(_ segment: SealedSegment, _ isSpillingAll: Bool, _ now: UInt64) throws(StoreError) -> Bool {
        if asked != segment.generation, !ask(segment) { return false }
        asked = nil
        guard let parts = answers() else { return false }
        // The shards collect the next segment's rows while these rows are written. Collecting and writing take about the same
        // time.
        if let next = ledger.secondSealed, isDue(next, isSpillingAll, now, earlier: 1), ask(next) {
            asked = next.generation
        }
        configuration.spillFault?(.collected)
        // Rows that the shards did not return were replaced or deleted by later segments. Those segments must be durable before
        // this segment is recycled, and before the database gets rows newer than the durable end of the journal.
        if configuration.durability == .os {
            do throws(JournalError) { try ledger.synchronize() } catch { throw StoreError(error) }
        }
        configuration.spillFault?(.synchronized)
        let rows = parts.map(\.rows).filter { !$0.isEmpty }
        let sorted = SortedRowGroups(RowGroups(of: rows))
        while !rows.isEmpty {
            do throws(StoreError) {
                try closeFullPeriods()
                let outcome = try run.ingest(sorted, now: configuration.now() ?? Period.undated)
                spilledRows.add(outcome.rowCount, ordering: .relaxed)
                spilledDeletions.add(outcome.deletionCount, ordering: .relaxed)
                deletionsSinceCompaction += outcome.deletionCount
                break
            } catch {
                // Retry on a full disk, which may get free space again. Nothing is lost: the journal has the rows, and a full
                // journal refuses new publishes.
                guard case .diskFull = error else { throw error }
                note(error)
                guard ledger.wait(atMostMilliseconds: configuration.spillerTickMilliseconds) else { return false }
            }
        }
        updatePeriods()
        configuration.spillFault?(.ingested)
        let period = run.database.newestPeriod(.requests)?.period.number ?? 0
        for part in parts where !part.rows.isEmpty {
            part.mailbox.put { $0.cooled.append(ShardMailbox.CooledRows(rows: part.rows, period: period)) }
        }
        do throws(JournalError) {
            try ledger.recycleOldest(keepingSpares: Limits.spareSegmentCount)
        } catch { throw StoreError(error) }
        configuration.spillFault?(.recycled)
        return true
    }

    /// Requests the segment's live rows from every shard; returns false if a shard was closed.
    private func ask(_ segment: SealedSegment) -> Bool {
        let asked: [(number: Int, mailbox: ShardMailbox)]? = state.withLock { state in
            guard !state.hasLostShard else { return nil }
            let asked = state.mailboxes.filter { shard in
                shard.number < segment.lastTickets.count && segment.lastTickets[shard.number] > 0
            }
            state.collected.removeAll()
            state.missing = Set(asked.map { ObjectIdentifier($0.mailbox) })
            return asked
        }
        guard let asked else { return false }
        for (number, mailbox) in asked { mailbox.put { $0.collect = segment.lastTickets[number] } }
        return true
    }

    /// Returns the requested rows; `nil` if the store closes.
    private func answers() -> [(mailbox: ShardMailbox, rows: [SpilledRow])]? {
        var parts: [(mailbox: ShardMailbox, rows: [SpilledRow])] = []
        let isWhole: Bool = state.wait(while: { $0.isOpen && !$0.missing.isEmpty }) { state in
            swap(&parts, &state.collected)
            return state.isOpen && !state.hasLostShard
        }
        return isWhole ? parts : nil
    }

    private func note(_ error: StoreError) {
        state.withLock { state in
            state.lastFailure = error.description
            state.failureCount += 1
        }
    }

    // MARK: Housekeeping

    private func keepHouse(_ now: UInt64) throws(StoreError) {
        try startCompacting(now)
        try cleanAlarms()
        try keepPeriods()
        try compactIfNeeded()
    }

    private func updatePeriods() {
        oldestPeriodNumber.store(
            run.database.families(of: .request).first?.period.number ?? .max, ordering: .relaxed)
    }

    private func keepPeriods() throws(StoreError) {
        do throws(StoreError) {
            try closeFullPeriods()
            try dropPeriods()
        } catch {
            // Retry later, as for a spill.
            guard case .diskFull = error else { throw error }
            note(error)
        }
    }

    private func closeFullPeriods() throws(StoreError) {
        guard let now = configuration.now() else { return }
        for kind in [Period.Kind.requests, .traces] {
            let budget = kind == .requests ? configuration.requestByteLimit : configuration.traceByteLimit
            guard let newest = run.database.newestPeriod(kind) else { continue }
            let byteCount = run.database.fileByteCount(newest.family)
            // An empty period may be old, but must not begin in the future.
            guard byteCount > 0 || newest.period.begin > now,
                newest.period.isFull(now: now, byteCount: byteCount, budget: budget)
            else { continue }
            _ = try run.database.beginPeriod(kind, at: now)
        }
    }

    private func dropPeriods() throws(StoreError) {
        guard let now = configuration.now() else { return }
        let families = run.database.ephemeralFamilies
        let periods = families.map(\.period)
        var byteCounts: [Period.Kind: Int] = [:]
        for family in families {
            byteCounts[family.period.kind, default: 0] += run.database.fileByteCount(family.family)
        }
        for (index, period) in periods.enumerated() {
            // The current period has no end and is kept.
            guard let end = periods.end(at: index) else { continue }
            let isOver = now - end >= Limits.ephemeralMilliseconds
            let isOverBudget: Bool =
                switch period.kind {
                case .requests: byteCounts[.requests, default: 0] > configuration.requestByteLimit
                case .traces: byteCounts[.traces, default: 0] > configuration.traceByteLimit
                }
            guard isOver || isOverBudget else { continue }
            let byteCount = run.database.fileByteCount(families[index].family)
            byteCounts[period.kind, default: 0] -= byteCount
            try run.database.dropEphemeral(period)
            updatePeriods()
            if !isOver, byteCount > 0 {
                droppedEarly.withLock { $0.note(period.kind, keptMilliseconds: max(0, now - end)) }
            }
        }
    }

    /// Checks the reported alarms again and removes the stale ones; no other thread writes to the database during the check.
    private func cleanAlarms() throws(StoreError) {
        let stale = state.withLock { state in
            var stale: [StaleAlarm] = []
            swap(&stale, &state.stale)
            return stale
        }
        guard !stale.isEmpty else { return }
        var keys: [[UInt8]] = []
        for entry in stale {
            let alarm = entry.alarm
            if try look(at: alarm.key, { $0.loadUnaligned(as: Int64.self) }) == alarm.wakeAt {
                guard let successor = entry.successor, try isReadable(successor) else { continue }
            }
            var alarmKey = [UInt8](repeating: 0, count: KeyCoding.alarmKeyByteCount)
            alarmKey.withUnsafeMutableBytes { if let start = $0.baseAddress { KeyCoding.write(alarm, to: start) } }
            keys.append(alarmKey)
        }
        try run.database.deleteLoosely(keys, in: run.database.alarms)
    }

    /// Returns whether the row that took over an alarm exists and is readable; such a row is kept as long as the alarm's row.
    private func isReadable(_ successor: StoreKey) throws(StoreError) -> Bool {
        let found = try look(at: successor) { stored in
            stored.count >= KeyCoding.rowPrefixByteCount
                && AlarmRequest.isReadable(
                    successor: UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...]))
        }
        return found == true
    }

    private func look<Result>(
        at key: StoreKey, _ body: (UnsafeRawBufferPointer) -> Result
    ) throws(StoreError) -> Result? {
        let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.rowKeyByteCount, alignment: 8)
        defer { bytes.deallocate() }
        guard let start = bytes.baseAddress else { return nil }
        KeyCoding.write(key, to: start)
        return try run.database.get(UnsafeRawBufferPointer(bytes), in: run.database.family(of: key.table), body)
    }

    /// Starts compaction after the first spill, or some time after the start.
    private func startCompacting(_ now: UInt64) throws(StoreError) {
        guard !isCompacting, spilledRowCount > 0 || now > openedAt + Limits.quietStartSeconds * 1_000_000_000 else {
            return
        }
        do throws(StoreError) {
            try run.database.startCompacting()
            isCompacting = true
        } catch {
            // Retry later, as for a spill.
            guard case .diskFull = error else { throw error }
            note(error)
        }
    }

    private func compactIfNeeded() throws(StoreError) {
        guard deletionsSinceCompaction >= configuration.deletionsBeforeCompaction else { return }
        deletionsSinceCompaction = 0
        try run.database.suggestCompaction(run.database.rows)
        try run.database.suggestCompaction(run.database.alarms)
        try run.database.suggestCompaction(run.database.start)
    }
}
