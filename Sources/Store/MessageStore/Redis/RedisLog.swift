// The log of a partition: a Redis stream. An entry is a group commit with the id `epoch-number`. The server refuses an id that is
// not above the last one, so a successor's first entry fences this owner.
//
// Several groups of a log may be in flight, each in a separate call on a separate connection: a `WAIT` blocks its connection at
// the server. Calls may therefore run in any order, one may be refused and the next one accepted, and any reply may be lost.
// These rules keep the order:
//
// 1. A number always has the same bytes: a group that is sent again keeps its number. A late copy of a call changes nothing: its
//    id exists already, or it appends what is wanted.
// 2. A group is appended only behind the previous one. The oldest group that is not reported durable is sent unconditionally,
//    because all earlier entries are durable. Each later group is sent by a script that checks the previous entry and appends in
//    the same step (`RedisScripts.appendBehind`). A group may be refused for lack of memory, because its slot moved or because
//    its server is starting. All later groups are then refused, too, on every server and connection. The groups in a stream are
//    therefore a run from the oldest one without a gap. The entry before a group in flight may be trimmed if it was reported and
//    is stored as rows. In that case the later group is refused, the log drains, and the group is sent again as the oldest.
// 3. A call ends with `WAIT`, which covers earlier writes of the same connection. If the append of group n succeeds, the server
//    had all groups up to n at that time (2). If this wait succeeds, too, enough replicas have received them. Group n and all
//    earlier ones are thus durable, whatever happened to their own calls, and are reported in order. A wait does not cover a
//    group that was sent later.
// 4. If a reply is lost, the stream's last id decides: groups up to it are in the stream, later ones are not (2).
// 5. A group in the stream that no wait covers gets a `cover`: a read that checks its entry, then a write to a key of its slot,
//    then a wait. The entry existed before the write, so the wait covers it (3).
// 6. Another program may write an entry with a group's number, or remove one. A number alone therefore proves nothing, and each
//    rule compares bytes. The script compares size and first bytes of the previous entry (2). These bytes are its first record's
//    header, which no other program can know. All entries up to the last id are compared completely with the groups' bytes (4),
//    as is the entry that a cover reads (5). Any difference ends this ownership (`giveUp`), and nothing is reported.
//
// The states of a group (`GroupFlights.State`):
//
//     unsent    not in the stream; sent next                                             → sent
//     sent      a call with the group is in flight        → durable; stored (the wait did not reach enough replicas); unsent
//               (refused temporarily); unknown (a lost reply, or an unexpected id of this or the previous entry)
//     stored    in the stream; covered by a later group's wait or by a cover             → durable, unknown
//     unknown   after all calls have ended, the stream's last id and entries are read    → unsent, stored, fenced
//
// After a refusal or a lost reply, nothing more of the log is sent until all its calls have ended. The state of every group is
// known then, and the groups that are not in the stream are sent again. The lane of the slot's server (`CommitLanes`) does this.
// Only one lane at a time serves a log.

internal import Delivery
internal import Journal
internal import Platform
internal import Redis
internal import Synchronization

/// A range of log entries that are not yet stored as rows.
struct LogSpan: Sendable {
    var lastNumber: UInt64
    var lastTicket: Ticket
    var byteCount: Int
    /// The time of the first group's commit, in the network's milliseconds.
    var openedAt: UInt64
}

final class RedisLog: DurableLog, @unchecked Sendable {
    // Sound because shared state is behind `queue`, `ledger` and atomics. All other state belongs to the lane in the queue's
    // `owner`; lanes pass a log through locked lists.

    private struct Queue: ~Copyable {
        var pieces: [BatchPiece] = []
        var byteCount = 0
        var isAwaited = false
        /// Whether a lane has the log or will take it.
        var isScheduled = false
        var owner: CommitLane?
        /// Whether the partition is lost or closed, so that nothing more is accepted.
        var isOver = false
        var isEncoding = false
        var completion: (@Sendable (UInt64) -> Void)?

        var isPressing: Bool { isAwaited || byteCount >= Journal.Limits.unawaitedByteCount }

        /// Takes the first batches that fit into one entry, at least one.
        mutating func take(_ work: inout [BatchPiece], upTo byteLimit: Int) {
            var taken = 0
            var end = pieces.count
            for (place, piece) in pieces.enumerated() where piece.recordByteCount > 0 {
                if taken > 0, taken + piece.recordByteCount > byteLimit {
                    end = place
                    break
                }
                taken += piece.recordByteCount
            }
            if end == pieces.count {
                swap(&work, &pieces)
                (isAwaited, byteCount) = (false, 0)
            } else {
                work.append(contentsOf: pieces[..<end])
                pieces.removeSubrange(..<end)
                byteCount -= taken
            }
        }

        /// Removes unsent batches; returns their size.
        mutating func drop() -> Int {
            defer { byteCount = 0 }
            pieces.removeAll()
            return byteCount
        }
    }

    let part: Int
    let key: [UInt8]
    let slot: Int
    let epoch: UInt64
    private let engine: LogContext
    private let onLost: @Sendable (RedisEngine.Loss) -> Void
    private let queue = Monitor(Queue())
    private let ledger = Lock<[LogSpan]>([])
    private let uncommitted = Atomic<Int>(0)
    private let logBytes = Atomic<Int>(0)
    /// The begin of the oldest commit in flight, in the network's milliseconds; 0 if there is none.
    private let commitBegan = Atomic<UInt64>(0)
    private let isFenced = Atomic<Bool>(false)
    /// The number of losses of durable entries that the store's history does not record yet.
    private let openLosses = Atomic<Int>(0)

    // Accessed only by the lane.
    private var flights: GroupFlights
    /// The last entry that was reported durable.
    private var durableNumber: UInt64 = 0
    private var work: [BatchPiece] = []
    /// The part of `uncommitted` that the engine does not count while this log is stuck.
    private var asideByteCount = 0
    /// The list of the lane that contains the log.
    enum Place { case none, wanting, blocked }
    var place = Place.none
    /// Whether delayed batches must be sent now.
    var isDue = false
    /// Whether the log must pause after a failure.
    var needsPause = false
    /// The server that a migrating slot's stream has already moved to.
    var asking: RedisAddress?

    /// Creates a log.
    ///
    /// - Parameters:
    ///   - part: The partition. Its stream has the fence of `epoch`.
    ///   - epoch: The owner's epoch.
    ///   - nextNumber: The first entry's number, above all of the stream's numbers with this epoch.
    ///   - engine: The state shared by all logs.
    ///   - onLost: Called once, when another owner has the partition.
    init(
        part: Int, epoch: UInt64, nextNumber: UInt64, engine: LogContext,
        onLost: @escaping @Sendable (RedisEngine.Loss) -> Void
    ) {
        (self.part, self.epoch, self.engine, self.onLost) = (part, epoch, engine, onLost)
        key = GroupKeys.log(engine.configuration.name, part: part)
        slot = RedisSlot.of(key)
        flights = GroupFlights(key: key, slot: slot, epoch: epoch, nextNumber: nextNumber)
    }

    // MARK: For the loop

    var batchByteCount: Int { Limits.logBatchByteCount }
    var uncommittedByteCount: Int { uncommitted.load(ordering: .relaxed) }

    func register(_ completion: @escaping @Sendable (UInt64) -> Void) -> Int {
        queue.withLock { $0.completion = completion }
        return 0
    }

    func announce(byteCount: Int) { count(byteCount) }

    private func count(_ byteCount: Int) {
        uncommitted.add(byteCount, ordering: .relaxed)
        engine.uncommitted.add(byteCount, ordering: .relaxed)
    }

    func submit(_ pieces: [BatchPiece], shard: Int, byteCount: Int, announcedByteCount: Int, isAwaited: Bool) {
        enum Step { case none, over, schedule, hurry(CommitLane) }
        let step: Step = queue.withLock { queue in
            guard !queue.isOver else { return .over }
            queue.pieces.append(contentsOf: pieces)
            queue.byteCount += byteCount
            let wasPressing = queue.isPressing
            queue.isAwaited = queue.isAwaited || isAwaited
            if queue.isScheduled {
                guard queue.isPressing, !wasPressing, let owner = queue.owner else { return .none }
                return .hurry(owner)
            }
            queue.isScheduled = true
            return .schedule
        }
        // After this owner lost the partition, its successor decides about the submitted batches.
        if case .over = step { return count(-announcedByteCount) }
        count(byteCount - announcedByteCount)
        switch step {
        case .schedule: engine.lanes.schedule(self)
        case .hurry(let lane): lane.schedule(self, isPressing: true)
        case .none, .over: break
        }
    }

    // MARK: For other threads

    var isStuck: Bool {
        let began = commitBegan.load(ordering: .relaxed)
        return began != 0 && engine.now > began + Limits.stuckMilliseconds
    }

    var isLost: Bool { isFenced.load(ordering: .relaxed) }
    /// The size of the entries that are not yet stored as rows.
    var byteCount: Int { logBytes.load(ordering: .relaxed) }

    var spans: [LogSpan] { ledger.withLock { $0 } }

    /// Removes the spans up to an entry whose rows are stored.
    func trimmed(upTo number: UInt64) {
        let byteCount = ledger.withLock { spans in
            let count = spans.firstIndex { $0.lastNumber > number } ?? spans.count
            let byteCount = spans[..<count].reduce(0) { $0 + $1.byteCount }
            spans.removeFirst(count)
            return byteCount
        }
        logBytes.subtract(byteCount, ordering: .relaxed)
        engine.logBytes.subtract(byteCount, ordering: .relaxed)
    }

    var isIdle: Bool { queue.withLock { !$0.isScheduled && $0.pieces.isEmpty } }

    /// Waits until all submitted batches are durable, at most `milliseconds`; returns whether they are.
    func flush(atMostMilliseconds milliseconds: UInt64) -> Bool {
        let owner = queue.withLock { queue in
            queue.isAwaited = true
            return queue.owner
        }
        // Queued batches are scheduled already, but may be delayed.
        owner?.schedule(self, isPressing: true)
        return queue.wait(atMostMilliseconds: milliseconds, while: { $0.isScheduled && !$0.isOver }) {
            !$0.isScheduled && !$0.isOver
        }
    }

    /// Stops accepting batches, and releases the memory of unsent ones.
    func end() {
        queue.broadcast { $0.isOver = true }
        let byteCount = queue.wait(while: { $0.isEncoding }) { queue in
            queue.completion = nil
            return queue.drop()
        }
        count(-byteCount)
    }

    /// Ends this ownership after another owner took over; nothing more commits, and `onLost` is called once.
    func fence(_ loss: RedisEngine.Loss) {
        guard !isFenced.exchange(true, ordering: .acquiringAndReleasing) else { return }
        queue.broadcast { $0.isOver = true }
        onLost(loss)
    }

    // MARK: For the lane

    var isDrained: Bool { flights.isDrained }
    var isHalted: Bool { flights.isHalted }
    var hasUnknown: Bool { flights.hasUnknown }

    /// Assigns the log to a lane; returns whether its queued batches are urgent.
    func pass(to lane: CommitLane) -> Bool {
        queue.withLock { queue in
            queue.owner = lane
            return queue.isPressing
        }
    }

    func belongs(to lane: CommitLane) -> Bool { queue.withLock { $0.owner === lane } }

    /// The approximate size of what `next` would send, in bytes; `nil` if there is nothing to send.
    var nextByteCount: Int? {
        if flights.hasRoom {
            let gathered: Int? = queue.withLock { queue in
                guard !queue.isOver, !queue.pieces.isEmpty, queue.isPressing || isDue else { return nil }
                return queue.byteCount
            }
            if let gathered { return min(gathered, engine.configuration.entryByteLimit) }
        }
        return flights.nextByteCount
    }

    /// Forms a group of the queued batches, and returns the next step to send.
    ///
    /// - Parameter isGathering: False if only existing groups may be sent.
    /// - Returns: `nil` if nothing can be sent now.
    func next(isGathering: Bool = true) -> GroupFlights.Step? {
        if isGathering, flights.hasRoom { gather() }
        return flights.next()
    }

    private func gather() {
        let hasWork: Bool = queue.withLock { queue in
            guard !queue.isOver, !queue.pieces.isEmpty, queue.isPressing || isDue else { return false }
            queue.take(&work, upTo: engine.configuration.entryByteLimit)
            queue.isEncoding = true
            return true
        }
        guard hasWork else { return }
        encode(engine.now)
        work.removeAll(keepingCapacity: true)
        queue.broadcast { $0.isEncoding = false }
    }

    private func encode(_ now: UInt64) {
        if flights.isEmpty, commitBegan.load(ordering: .relaxed) == 0 {
            commitBegan.store(max(now, 1), ordering: .relaxed)
        }
        let number = flights.nextNumber
        var (byteCount, batchCount, lastTicket) = (0, 0, Ticket(0))
        for piece in work where piece.recordByteCount > 0 {
            RecordHeader.seal(piece.start, generation: epoch, groupStart: LogEntry.mark(of: number))
            byteCount += piece.recordByteCount
            batchCount += 1
            lastTicket = piece.ticket
        }
        flights.add(work, byteCount: byteCount, batchCount: batchCount, lastTicket: lastTicket, began: now)
    }

    /// Starts the stuck timer if queued batches cannot be sent for lack of a connection or a server.
    func noteWait() {
        guard commitBegan.load(ordering: .relaxed) == 0, queue.withLock({ !$0.pieces.isEmpty }) else { return }
        commitBegan.store(max(engine.now, 1), ordering: .relaxed)
    }

    /// Excludes a stuck log's bytes from the bound that all logs share.
    func setAside() {
        noteWait()
        let byteCount = isStuck ? max(0, uncommitted.load(ordering: .relaxed)) : 0
        engine.stalled.add(byteCount - asideByteCount, ordering: .relaxed)
        asideByteCount = byteCount
    }

    private func takeBack() {
        guard asideByteCount != 0 else { return }
        engine.stalled.subtract(asideByteCount, ordering: .relaxed)
        asideByteCount = 0
    }

    func take(_ step: GroupFlights.Step, _ replies: ArraySlice<RedisReply>) -> GroupFlights.Outcome {
        let outcome = flights.take(step, replies)
        if outcome == .streamLost { noteLostStream() }
        return outcome
    }

    /// Whether the loss of entries was already reported since the last durable group.
    private var isLossNoted = false

    private func noteLostStream() {
        note(.streamLost(part: part, from: LogID(epoch: epoch, number: 0).description))
    }

    /// Reports a loss of durable entries once, and requests a new history.
    private func note(_ loss: RedisEngine.Event) {
        guard !isLossNoted else { return }
        isLossNoted = true
        engine.report(loss)
        openLosses.add(1, ordering: .relaxed)
        engine.configuration.renewHistory { [self] isRenewed in
            if isRenewed { openLosses.subtract(1, ordering: .releasing) }
        }
    }

    /// Whether the store's history records all losses, so that new entries cannot hide one from a successor.
    private var mayHideLosses: Bool { openLosses.load(ordering: .acquiring) == 0 }

    func lose(_ step: GroupFlights.Step) { flights.lose(step) }
    func doubt(_ number: UInt64) { flights.doubt(number) }
    func resume() { flights.resume() }
    var lookAtAll: RedisCommand { flights.lookAtAll }

    /// Applies the stream's last id (`nil` without a stream) and the entries that `lookAtAll` read.
    ///
    /// The log stays halted until the store's history records any loss.
    ///
    /// - Parameters:
    ///   - lastID: The stream's last id.
    ///   - entries: The entries with the groups' numbers.
    ///   - isForeign: Whether the last id is above this epoch and was not written by a gateway.
    /// - Returns: False when the partition is lost.
    func take(lastID: LogID?, entries: [RedisReply], isForeign: Bool) -> Bool {
        guard let lastID else {
            noteLostStream()
            if mayHideLosses { flights.settleWithoutStream() }
            return true
        }
        guard !isForeign else { return giveUp(lastID) }
        if lastID.epoch > epoch {
            fence(.fenced(part: part, epoch: epoch, successor: lastID.epoch))
            return false
        }
        let reached = lastID.epoch == epoch ? lastID.number : 0
        // Another program wrote this number, so this owner can append nothing after it. A successor's entry still can follow.
        guard reached < flights.nextNumber else { return giveUp(lastID) }
        if let number = flights.firstForeign(upTo: reached, in: entries) {
            return giveUp(LogID(epoch: epoch, number: number))
        }
        if lastID.epoch < epoch || reached < durableNumber {
            note(
                .entriesLost(
                    part: part, from: lastID.description,
                    through: LogID(epoch: epoch, number: durableNumber).description))
        }
        if mayHideLosses { flights.settle(reached: reached) }
        return true
    }

    /// Returns whether another program, rather than a successor, wrote the last id above this epoch.
    func isForeign(_ last: LogID, by client: RedisClient) throws(RedisError) -> Bool {
        try LogReading.isForeign(
            last, of: key, slot: slot, claimed: { engine.configuration.claimedEpoch(part) }, by: client)
    }

    /// Ends this ownership because of another program's entry; always returns false.
    @discardableResult
    func giveUp(_ entry: LogID) -> Bool {
        guard !isLost else { return false }
        let mending = LogMending.advice(key, entry, after: epoch)
        engine.report(
            .foreignEntry(
                part: part, stream: String(decoding: key, as: UTF8.self), entry: entry.description, mending: mending))
        fence(.foreignEntry(part: part, epoch: epoch, entry: entry.description))
        return false
    }

    /// Reports a group and all earlier ones as durable.
    func complete(upTo number: UInt64) {
        let done = flights.complete(upTo: number)
        guard let last = done.last else { return }
        durableNumber = last.number
        isLossNoted = false
        for group in done { note(group) }
        takeBack()
        count(-done.reduce(0) { $0 + $1.byteCount })
        commitBegan.store(flights.groups.first.map { max($0.began, 1) } ?? 0, ordering: .relaxed)
        let now = engine.now
        engine.statistics.withLock { statistics in
            for group in done {
                statistics.add(
                    batches: group.batchCount, bytes: group.byteCount, microseconds: (now - group.began) * 1_000)
            }
        }
        let completion = queue.withLock { $0.isOver ? nil : $0.completion }
        completion?(last.lastTicket)
    }

    private func note(_ group: GroupFlights.Group) {
        // A closed partition has already returned its share of the bytes.
        guard !isOver else { return }
        logBytes.add(group.byteCount, ordering: .relaxed)
        engine.logBytes.add(group.byteCount, ordering: .relaxed)
        ledger.withLock { spans in
            if let span = spans.last, group.began < span.openedAt + engine.configuration.spanMilliseconds,
                span.byteCount < Limits.spanByteCount
            {
                spans[spans.count - 1].lastNumber = group.number
                spans[spans.count - 1].lastTicket = group.lastTicket
                spans[spans.count - 1].byteCount += group.byteCount
            } else {
                spans.append(
                    LogSpan(
                        lastNumber: group.number, lastTicket: group.lastTicket, byteCount: group.byteCount,
                        openedAt: group.began))
            }
        }
    }

    /// Releases an idle log from the lane; returns true if the lane must keep the log.
    func release() -> Bool {
        guard flights.isEmpty else { return true }
        return queue.broadcast { queue in
            queue.isScheduled = !queue.isOver && !queue.pieces.isEmpty
            if !queue.isScheduled { queue.owner = nil }
            return queue.isScheduled
        }
    }

    /// Drops all groups and batches of a lost or closed log.
    func abandon() {
        takeBack()
        count(-flights.drop())
        commitBegan.store(0, ordering: .relaxed)
        (place, needsPause, asking) = (.none, false, nil)
        let byteCount = queue.broadcast { queue in
            (queue.isScheduled, queue.owner) = (false, nil)
            return queue.drop()
        }
        count(-byteCount)
    }

    var isOver: Bool { queue.withLock { $0.isOver } }
    var isPressing: Bool {
        queue.withLock { $0.isPressing }
    }
}

/// The bytes of one entry: records in sequence, each with its header.
enum LogEntry {
    /// Returns the entry's mark, which its record headers store in the field of the group start.
    static func mark(of number: UInt64) -> Int { Int(number & 0x7FFF_FFFF) }

    /// Returns whether the bytes begin with a record that an owner of any release wrote under this id.
    static func begins(_ bytes: UnsafeRawBufferPointer, _ id: LogID) -> Bool {
        RecordHeader(in: bytes, at: 0, generation: id.epoch)?.groupStart == mark(of: id.number)
    }

    /// Calls `visit` for each operation.
    ///
    /// Returns a description of damage; `nil` if there is none.
    static func visit(_ bytes: UnsafeRawBufferPointer, _ id: LogID, _ visit: (Operation) -> Void) -> String? {
        var offset = 0
        while offset < bytes.count {
            guard let header = RecordHeader(in: bytes, at: offset, generation: id.epoch) else {
                return "byte \(offset) does not begin a record of this epoch"
            }
            guard header.groupStart == mark(of: id.number) else {
                return "the record at byte \(offset) was written in another entry"
            }
            let start = offset + RecordHeader.byteCount
            guard bytes.count - offset >= header.recordByteCount else {
                return "the record at byte \(offset) is cut off"
            }
            let body = UnsafeRawBufferPointer(rebasing: bytes[start..<start + header.bodyByteCount])
            guard Checksum.crc32c(body) == header.bodyChecksum else {
                return "the record at byte \(offset) does not match its checksum"
            }
            guard Operation.readAll(in: body, of: header, visit) else {
                return "the record at byte \(offset) is whole, but this version cannot read it"
            }
            offset += header.recordByteCount
        }
        return nil
    }
}
