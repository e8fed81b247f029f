// The log of a part: a Redis stream. An entry is a group commit, its id `epoch-number`. The server refuses an id that is
// not above the last one, so a successor's first entry fences this owner.
//
// Several groups of a log may be on their way, each in a call of its own and over a connection of its own: a server that
// has come to a `WAIT` runs nothing more of that connection. So calls may run in any order, one may be refused and the next
// one not, and replies may be lost in the middle. What keeps the order:
//
// 1. A number has the same bytes for ever: a group that is sent again has the number that it had. So a copy that a server
//    comes to late changes nothing: its id is there already, or it brings what is wanted.
// 2. A group goes in only behind the one before it. The oldest that is not reported durable is sent as it is: all before
//    it was durable. Each later one is sent by a script which looks for the entry before it, and adds this one in the same
//    step (`RedisScripts.appendBehind`). A refusal of one group, for want of memory, in a moved slot, of a server that
//    starts, thus refuses all behind it, on whatever server and connection. So the groups that a stream has are a run
//    from the oldest on, without a gap. The entry before one that is on its way may be trimmed, when it was reported and has
//    become rows: then the later one is refused, its log drains, and it goes again as the oldest.
// 3. A call ends with `WAIT`, which speaks for the writes of its own connection before it. When the append of group n and
//    that wait succeed, the server's data had all groups up to n when the append ran (2), and enough replicas have taken
//    over as much. So n and all before it are durable, whatever became of their own calls, and are reported in order. A
//    wait says nothing of a group that was sent later.
// 4. What a lost reply was, the stream's last id tells: groups up to it are in the stream, the others are not (2).
// 5. A group that is in the stream, but for which no wait speaks, gets a `cover`: a look whether it is there, then a write
//    of a key of its slot, then a wait. It was there before the write, so the wait speaks for it (3).
// 6. Another program may write an entry with a number that a group has, or remove one. So a number alone proves nothing, and
//    each of the rules looks at bytes. The script compares size and first bytes of the entry before (2): they are the first
//    record's header, which nobody else can know. What stands up to the last id is compared whole with each group's
//    bytes (4), and so is what a cover finds (5). A difference ends this ownership (`giveUp`): nothing is reported.
//
// A group's states (`GroupFlights.State`):
//
//     unsent    it is not in the stream; it is sent next                                      → sent
//     sent      a call with it is under way        → done; stored (the wait did not reach enough replicas); unsent (refused
//               for a passing reason); unknown (the reply was lost, or its id or the one before it was not as expected)
//     stored    it is in the stream; a later group's wait speaks for it, or a cover           → done, unknown
//     unknown   when nothing is under way any more, the stream's last id and entries are asked for
//                                                                                             → unsent, stored, fenced
//
// After a refusal or a loss nothing more of the log is sent until all its calls have ended: then all is known, and what is
// not in the stream goes again. The lane of the slot's server (`CommitLanes`) does this; one lane at a time has a log.

internal import Delivery
internal import Journal
internal import Platform
internal import Redis
internal import Synchronization

/// What a log has that rows do not have yet, from one entry to another.
struct LogSpan: Sendable {
    var lastNumber: UInt64
    var lastTicket: Ticket
    var byteCount: Int
    /// In the network's milliseconds.
    var openedAt: UInt64
}

final class RedisLog: DurableLog, @unchecked Sendable {
    // Sound because what threads share is behind `queue`, `ledger` and atomics, and what is the lane's own belongs to the
    // queue's `owner`; lanes hand a log over through locked lists.

    private struct Queue: ~Copyable {
        var pieces: [BatchPiece] = []
        var byteCount = 0
        var isAwaited = false
        /// A lane has the log, or is to take it.
        var isScheduled = false
        /// The lane that has it.
        var owner: CommitLane?
        /// Nothing more is taken: the part is lost, or closed.
        var isOver = false
        var isEncoding = false
        var completion: (@Sendable (UInt64) -> Void)?

        /// What waits may not wait longer.
        var isPressing: Bool { isAwaited || byteCount >= Journal.Limits.unawaitedByteCount }

        /// Hands out the first batches, as many as one entry takes, at least one; what is left is for the next entry.
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

        /// Forgets what was not sent, and returns its size.
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
    /// When the oldest group on its way began, in the network's milliseconds; 0 when there is none.
    private let commitBegan = Atomic<UInt64>(0)
    private let isFenced = Atomic<Bool>(false)
    /// Losses of durable entries that the store's history does not know yet.
    private let openLosses = Atomic<Int>(0)

    // The lane's own.
    private var flights: GroupFlights
    /// The last entry that was reported durable.
    private var durableNumber: UInt64 = 0
    private var work: [BatchPiece] = []
    /// What of `uncommitted` does not count for the other logs, because this one stands still.
    private var asideByteCount = 0
    /// Where the lane has it.
    enum Place { case none, wanting, blocked }
    var place = Place.none
    /// What waits for company has waited long enough.
    var isDue = false
    /// Why it is to wait before it goes on.
    var needsPause = false
    /// A server that has the stream already while its slot is on its way there.
    var asking: RedisAddress?

    /// - Parameters:
    ///   - part: whose log it is; its stream has the fence of `epoch`.
    ///   - epoch: the owner's.
    ///   - nextNumber: the first entry's number, above all that the stream has of this epoch.
    ///   - engine: what all logs share.
    ///   - onLost: called once, when another owner has the part.
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
        // What becomes of it after the part was lost, its successor knows.
        if case .over = step { return count(-announcedByteCount) }
        count(byteCount - announcedByteCount)
        switch step {
        case .schedule: engine.lanes.schedule(self)
        case .hurry(let lane): lane.schedule(self, isPressing: true)
        case .none, .over: break
        }
    }

    // MARK: For other threads

    /// True when a group has been on its way for too long.
    var isStuck: Bool {
        let began = commitBegan.load(ordering: .relaxed)
        return began != 0 && engine.now > began + Limits.stuckMilliseconds
    }

    var isLost: Bool { isFenced.load(ordering: .relaxed) }
    /// Entries that rows do not have yet.
    var byteCount: Int { logBytes.load(ordering: .relaxed) }

    var spans: [LogSpan] { ledger.withLock { $0 } }

    /// Forgets spans up to an entry, which the rows have now.
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

    /// Nothing is queued or on its way.
    var isIdle: Bool { queue.withLock { !$0.isScheduled && $0.pieces.isEmpty } }

    /// Waits until all that was handed over is durable, at most `milliseconds`; false when it is not.
    func flush(atMostMilliseconds milliseconds: UInt64) -> Bool {
        let owner = queue.withLock { queue in
            queue.isAwaited = true
            return queue.owner
        }
        // What is queued is scheduled already, perhaps to wait for company.
        owner?.schedule(self, isPressing: true)
        return queue.wait(atMostMilliseconds: milliseconds, while: { $0.isScheduled && !$0.isOver }) {
            !$0.isScheduled && !$0.isOver
        }
    }

    /// Takes nothing more, and forgets the memory of what was not sent.
    func end() {
        queue.broadcast { $0.isOver = true }
        let byteCount = queue.wait(while: { $0.isEncoding }) { queue in
            queue.completion = nil
            return queue.drop()
        }
        count(-byteCount)
    }

    /// Another owner has the part: nothing more commits, and the part's user is told, once.
    func fence(_ loss: RedisEngine.Loss) {
        guard !isFenced.exchange(true, ordering: .acquiringAndReleasing) else { return }
        queue.broadcast { $0.isOver = true }
        onLost(loss)
    }

    // MARK: For the lane

    var isDrained: Bool { flights.isDrained }
    var isHalted: Bool { flights.isHalted }
    var hasUnknown: Bool { flights.hasUnknown }

    /// A lane has it from now on, and answers whether what waits may wait longer.
    func pass(to lane: CommitLane) -> Bool {
        queue.withLock { queue in
            queue.owner = lane
            return queue.isPressing
        }
    }

    func belongs(to lane: CommitLane) -> Bool { queue.withLock { $0.owner === lane } }

    /// Bytes of what `next` would send, roughly; `nil` for nothing.
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

    /// What is to be sent next, after what has gathered became a group.
    ///
    /// - Parameter isGathering: false where only what is a group already may go.
    /// - Returns: `nil` when nothing is to be sent now.
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

    /// Nothing of what has gathered became a group, for want of a connection or of an owner: it stands still from now on.
    func noteWait() {
        guard commitBegan.load(ordering: .relaxed) == 0, queue.withLock({ !$0.pieces.isEmpty }) else { return }
        commitBegan.store(max(engine.now, 1), ordering: .relaxed)
    }

    /// A log that stands still takes nothing of the room of the others.
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

    /// Takes the replies to a step.
    func take(_ step: GroupFlights.Step, _ replies: ArraySlice<RedisReply>) -> GroupFlights.Outcome {
        let outcome = flights.take(step, replies)
        // What it had is lost, and was not by this gateway's doing.
        if outcome == .streamLost { noteLostStream() }
        return outcome
    }

    /// Of what was durable before the last group that is.
    private var isLossNoted = false

    private func noteLostStream() {
        note(.streamLost(part: part, from: LogID(epoch: epoch, number: 0).description))
    }

    /// Reports that durable entries are gone, and has the store's history end; once.
    private func note(_ loss: RedisEngine.Event) {
        guard !isLossNoted else { return }
        isLossNoted = true
        engine.report(loss)
        openLosses.add(1, ordering: .relaxed)
        engine.configuration.renewHistory { [self] isRenewed in
            if isRenewed { openLosses.subtract(1, ordering: .releasing) }
        }
    }

    /// The next entries hide a loss from a successor: they wait until the store's history knows it.
    private var mayHideLosses: Bool { openLosses.load(ordering: .acquiring) == 0 }

    func lose(_ step: GroupFlights.Step) { flights.lose(step) }
    func doubt(_ number: UInt64) { flights.doubt(number) }
    func resume() { flights.resume() }
    var lookAtAll: RedisCommand { flights.lookAtAll }

    /// Takes the stream's last id, `nil` without a stream, and the entries that `lookAtAll` found after it.
    ///
    /// The log stays halted while the store's history does not know what is lost.
    ///
    /// - Parameters:
    ///   - lastID: the stream's.
    ///   - entries: those of the groups.
    ///   - isForeign: the last id is above this epoch's, and is not a gateway's.
    /// - Returns: false when the part is lost.
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
        // No group has that number, so no number that the groups have can follow it: a successor's can.
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

    /// Whether the stream's last id, above this epoch's, is another program's and not a successor's.
    func isForeign(_ last: LogID, by client: RedisClient) throws(RedisError) -> Bool {
        try LogReading.isForeign(
            last, of: key, slot: slot, claimed: { engine.configuration.claimedEpoch(part) }, by: client)
    }

    /// Another program's entry stands where a group or a successor's fence would; always false.
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

    /// A group is durable, and so is each before it: says so.
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
        // A part that is closed has given its share back.
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

    /// The lane gives the log back when nothing is on its way or queued; true when it has to keep it.
    func release() -> Bool {
        guard flights.isEmpty else { return true }
        return queue.broadcast { queue in
            queue.isScheduled = !queue.isOver && !queue.pieces.isEmpty
            if !queue.isScheduled { queue.owner = nil }
            return queue.isScheduled
        }
    }

    /// The lane gives up a log that is lost or closed.
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
    /// Whether what waits may not wait longer.
    var isPressing: Bool {
        queue.withLock { $0.isPressing }
    }
}

/// One entry's bytes: records one after the other, each with its header.
enum LogEntry {
    /// What a record's header says of its entry, in the place where the journal has the start of a group.
    static func mark(of number: UInt64) -> Int { Int(number & 0x7FFF_FFFF) }

    /// Whether the bytes begin as a group does that an owner wrote under this id, of whatever release.
    static func begins(_ bytes: UnsafeRawBufferPointer, _ id: LogID) -> Bool {
        RecordHeader(in: bytes, at: 0, generation: id.epoch)?.groupStart == mark(of: id.number)
    }

    /// Calls `visit` for each operation; returns what is wrong with the bytes, `nil` for nothing.
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
