// The log of a part: a Redis stream. An entry is a group commit, its id `epoch-number`. The server refuses an id that is
// not above the last one, so a successor's first entry fences this owner.
//
// A group is durable when its entry is in the stream and enough replicas have it. Between the two stands one question
// that has to be answered before anything else: did a command run whose reply was lost? The stream's last id answers it,
// since no entry is sent before the one before it is durable. The group's states:
//
//     unsent    the entry is not in the stream; it is sent, with the id that it keeps              → written, unknown
//     written   it is in the stream, over a connection whose writes replicas are waited for        → done, unknown
//     unknown   the reply was lost, or the server had a higher id: the last id is asked for        → unsent, unmarked, fenced
//     unmarked  it is in the stream, written over another connection. `WAIT` covers the writes     → written, unknown
//               of its own connection only, so an empty entry goes first
//
// The lane of the slot's server (`CommitLanes`) moves groups on; one lane at a time has a log.

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
    // Sound because what threads share is behind `queue`, `ledger` and atomics, and `flight`, `nextNumber` and
    // `durableNumber` belong to the lane that has the log; lanes hand it over through locked lists.

    private struct Queue: ~Copyable {
        var pieces: [BatchPiece] = []
        var byteCount = 0
        var isAwaited = false
        /// A lane has the log, or is to take it.
        var isScheduled = false
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

    /// A group on its way.
    struct Flight {
        enum State: Equatable {
            case unsent
            case written(connection: UInt64)
            case unknown
            case unmarked
        }

        var state = State.unsent
        /// The entry's.
        var number: UInt64 = 0
        var command = RedisCommand()
        var lastTicket: Ticket = 0
        var byteCount = 0
        var batchCount = 0
        var began: UInt64 = 0
        /// The stream is gone, and is to be made anew.
        var makesStream = false
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
    /// When the group on its way began, in the network's milliseconds; 0 when there is none.
    private let commitBegan = Atomic<UInt64>(0)
    private let isFenced = Atomic<Bool>(false)

    // The lane's own.
    var flight: Flight?
    private var nextNumber: UInt64
    /// The last entry that was reported durable.
    private var durableNumber: UInt64 = 0
    private var work: [BatchPiece] = []
    /// What of `uncommitted` does not count for the other logs, because this one stands still.
    private var asideByteCount = 0

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
        self.nextNumber = nextNumber
        key = GroupKeys.log(engine.configuration.name, part: part)
        slot = RedisSlot.of(key)
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
        enum Step { case none, over, schedule(isPressing: Bool), hurry }
        let step: Step = queue.withLock { queue in
            guard !queue.isOver else { return .over }
            queue.pieces.append(contentsOf: pieces)
            queue.byteCount += byteCount
            let wasPressing = queue.isPressing
            queue.isAwaited = queue.isAwaited || isAwaited
            if queue.isScheduled { return queue.isPressing && !wasPressing ? .hurry : .none }
            queue.isScheduled = true
            return .schedule(isPressing: queue.isPressing)
        }
        // What becomes of it after the part was lost, its successor knows.
        if case .over = step { return count(-announcedByteCount) }
        count(byteCount - announcedByteCount)
        switch step {
        case .schedule(let isPressing): engine.lanes.schedule(self, isPressing: isPressing)
        case .hurry: engine.lanes.hurry(self)
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
        let isScheduled = queue.withLock { queue in
            queue.isAwaited = true
            return queue.isScheduled
        }
        // What is queued is scheduled already, perhaps to wait for company.
        if isScheduled { engine.lanes.hurry(self) }
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

    /// Takes what has gathered as the group on its way, unless an earlier one is; false when the log is lost or closed.
    func prepare() -> Bool {
        if flight != nil { return !isOver }
        let hasWork: Bool = queue.withLock { queue in
            guard !queue.isOver, !queue.pieces.isEmpty else { return false }
            queue.take(&work, upTo: engine.configuration.entryByteLimit)
            queue.isEncoding = true
            return true
        }
        guard hasWork else { return false }
        let now = engine.now
        commitBegan.store(max(now, 1), ordering: .relaxed)
        flight = encode(now)
        work.removeAll(keepingCapacity: true)
        queue.broadcast { $0.isEncoding = false }
        return true
    }

    private func encode(_ now: UInt64) -> Flight {
        var flight = Flight()
        flight.began = now
        flight.number = nextNumber
        for piece in work where piece.recordByteCount > 0 {
            RecordHeader.seal(piece.start, generation: epoch, groupStart: LogEntry.mark(of: nextNumber))
            flight.byteCount += piece.recordByteCount
            flight.batchCount += 1
            flight.lastTicket = piece.ticket
        }
        flight.command.append("XADD")
        flight.command.append(key)
        flight.command.append("NOMKSTREAM")
        flight.command.append("\(epoch)-\(nextNumber)")
        flight.command.append("b")
        flight.command.append(
            byteCount: flight.byteCount,
            gathering: work.lazy.map { UnsafeRawBufferPointer(start: $0.start, count: $0.byteCount) })
        nextNumber += 1
        return flight
    }

    /// What is to be sent now; the group is not `unknown`.
    func commands() -> [RedisCommand] {
        guard let flight else { return [] }
        switch flight.state {
        case .unsent: return [flight.makesStream ? remade(flight.command) : flight.command]
        case .unmarked:
            nextNumber = max(nextNumber, flight.number + 1)
            var command = RedisCommand("XADD")
            command.append(key)
            command.append("NOMKSTREAM")
            command.append("\(epoch)-\(nextNumber)")
            command.append("w")
            command.append("")
            return [command]
        case .written, .unknown: return []
        }
    }

    /// The same entry for a stream that is not there any more.
    private func remade(_ command: RedisCommand) -> RedisCommand {
        var words = command.arguments
        words.removeAll { $0 == Array("NOMKSTREAM".utf8) }
        var made = RedisCommand()
        for word in words { made.append(word) }
        return made
    }

    /// What became of `commands()`.
    enum Advance {
        /// All is in the stream.
        case written
        /// The slot is elsewhere, or its keys are on their way: at once, at another server.
        case elsewhere
        /// Later.
        case blocked(RedisFault)
    }

    /// A log that stands still takes nothing of the room of the others.
    func setAside() {
        let byteCount = isStuck ? max(0, uncommitted.load(ordering: .relaxed)) : 0
        engine.stalled.add(byteCount - asideByteCount, ordering: .relaxed)
        asideByteCount = byteCount
    }

    private func takeBack() {
        guard asideByteCount != 0 else { return }
        engine.stalled.subtract(asideByteCount, ordering: .relaxed)
        asideByteCount = 0
    }

    /// Takes the replies to `commands()`.
    func take(_ replies: ArraySlice<RedisReply>, connection: UInt64) -> Advance {
        guard flight != nil else { return .written }
        for reply in replies {
            switch reply {
            case .none:
                // The stream is gone: what it had is lost, and was not by this gateway's doing.
                engine.report(.streamLost(part: part, from: LogID(epoch: epoch, number: 0).description))
                flight?.makesStream = true
                flight?.state = .unknown
                return .blocked(RedisFault("ERR no such key"))
            case .error(let fault):
                switch fault.kind {
                case .moved, .ask: return .elsewhere
                case _ where fault.isPassing: return .blocked(fault)
                default:
                    // The id was refused, most of the time: the stream's last one tells why.
                    flight?.state = .unknown
                    return .blocked(fault)
                }
            default:
                if flight?.state == .unmarked { nextNumber += 1 }
            }
        }
        if flight?.state == .unsent || flight?.state == .unmarked { flight?.state = .written(connection: connection) }
        return .written
    }

    /// Replies were lost.
    func loseReplies() {
        if flight != nil { flight?.state = .unknown }
    }

    /// Another connection has to be waited for.
    func loseConnection() {
        if case .written = flight?.state { flight?.state = .unknown }
    }

    /// Takes the stream's last id, `nil` without a stream; false when the part is lost.
    func take(lastID: LogID?) -> Bool {
        guard let group = flight else { return !isLost }
        guard let lastID else {
            if !group.makesStream {
                engine.report(.streamLost(part: part, from: LogID(epoch: epoch, number: 0).description))
            }
            flight?.makesStream = true
            flight?.state = .unsent
            return true
        }
        if lastID.epoch > epoch {
            fence(.fenced(part: part, epoch: epoch, successor: lastID.epoch))
            return false
        }
        let reached = lastID.epoch == epoch ? lastID.number : 0
        if lastID.epoch < epoch || reached < durableNumber {
            engine.report(
                .entriesLost(
                    part: part, from: lastID.description,
                    through: LogID(epoch: epoch, number: durableNumber).description))
            // Reported once.
            durableNumber = reached
        }
        flight?.makesStream = false
        nextNumber = max(nextNumber, reached + 1)
        flight?.state = reached >= group.number ? .unmarked : .unsent
        return true
    }

    /// The group is durable: says so, and answers whether there is more.
    func complete() -> Bool {
        if let group = flight {
            flight = nil
            durableNumber = nextNumber - 1
            note(group)
            takeBack()
            count(-group.byteCount)
            commitBegan.store(0, ordering: .relaxed)
            engine.statistics.withLock {
                $0.add(
                    batches: group.batchCount, bytes: group.byteCount, microseconds: (engine.now - group.began) * 1_000)
            }
            let completion = queue.withLock { $0.isOver ? nil : $0.completion }
            completion?(group.lastTicket)
        }
        return release()
    }

    private func note(_ group: Flight) {
        // A part that is closed has given its share back.
        guard !isOver else { return }
        logBytes.add(group.byteCount, ordering: .relaxed)
        engine.logBytes.add(group.byteCount, ordering: .relaxed)
        let last = nextNumber - 1
        ledger.withLock { spans in
            if let span = spans.last, group.began < span.openedAt + engine.configuration.spanMilliseconds,
                span.byteCount < Limits.spanByteCount
            {
                spans[spans.count - 1].lastNumber = last
                spans[spans.count - 1].lastTicket = group.lastTicket
                spans[spans.count - 1].byteCount += group.byteCount
            } else {
                spans.append(
                    LogSpan(
                        lastNumber: last, lastTicket: group.lastTicket, byteCount: group.byteCount,
                        openedAt: group.began))
            }
        }
    }

    /// The lane gives the log back; true when it has to keep it.
    private func release() -> Bool {
        queue.broadcast { queue in
            queue.isScheduled = !queue.isOver && !queue.pieces.isEmpty
            return queue.isScheduled
        }
    }

    /// The lane gives up a log that is lost or closed.
    func abandon() {
        takeBack()
        if let group = flight {
            flight = nil
            count(-group.byteCount)
            commitBegan.store(0, ordering: .relaxed)
        }
        let byteCount = queue.broadcast { queue in
            queue.isScheduled = false
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

    /// Calls `visit` for each operation; returns what is wrong with the bytes, `nil` for nothing.
    static func visit(_ bytes: UnsafeRawBufferPointer, _ id: LogID, _ visit: (Operation) -> Void) -> String? {
        var offset = 0
        while offset < bytes.count {
            guard let header = RecordHeader(in: bytes, at: offset, generation: id.epoch, form: .packed) else {
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
