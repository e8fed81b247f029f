// The groups of a log in flight: their state, and what may be sent next. The comment in `RedisLog.swift` explains the rules.

internal import Delivery
internal import Journal
internal import Redis

/// The groups of a log that are not reported durable, oldest first, as plain state without I/O.
struct GroupFlights {
    enum State: Equatable {
        /// The group is not in the stream, or was not at the last check.
        case unsent
        case sent
        /// The group is in the stream; its own call did not reach enough replicas.
        case stored
        /// Whether the group is in the stream is unknown until the stream's last id is read.
        case unknown
    }

    struct Group {
        var state = State.unsent
        /// The entry's number, which never changes.
        let number: UInt64
        /// The append command in the current `form`.
        fileprivate(set) var command: RedisCommand
        fileprivate(set) var form: Form
        /// The first bytes, by which the script for the next group recognizes this one.
        let start: [UInt8]
        let lastTicket: Ticket
        let byteCount: Int
        let batchCount: Int
        /// The begin of the commit, in the network's milliseconds.
        let began: UInt64
    }

    enum Form: Equatable {
        /// Appends without a check, because every earlier entry is reported durable.
        case first
        /// As `first`, but creates the stream, because it was lost.
        case makingStream
        /// Appends only behind the previous entry.
        case chained
    }

    /// The contribution of one group to a call.
    struct Step {
        enum Kind: Equatable {
            case append
            /// The group is in the stream: a read checks it, and a write makes the following wait cover it.
            case cover
        }
        let kind: Kind
        let number: UInt64
        let commands: [RedisCommand]
    }

    enum Outcome: Equatable {
        /// The group is in the stream of this server.
        case stored
        /// A later group was reported durable before, and therefore this one, too.
        case old
        /// The step must be repeated, because the server lacks the script, the previous entry or the entry to cover.
        case again
        /// The slot is on another server or is migrating.
        case elsewhere(RedisReply)
        /// The stream does not exist any more.
        case streamLost
        /// The step must be repeated later.
        case blocked(RedisFault)
    }

    private let key: [UInt8]
    private let slot: Int
    private let epoch: UInt64
    private(set) var groups: [Group] = []
    private(set) var nextNumber: UInt64
    private(set) var stepCount = 0
    /// Whether an error occurred; nothing more is sent until all steps in flight have ended.
    private(set) var isHalted = false
    /// Whether the stream was lost and must be created again.
    private(set) var makesStream = false
    private var byteCount = 0
    /// Whether the script's source must be sent, because a server did not have it.
    private var sendsSource = false

    init(key: [UInt8], slot: Int, epoch: UInt64, nextNumber: UInt64) {
        (self.key, self.slot, self.epoch, self.nextNumber) = (key, slot, epoch, nextNumber)
    }

    var isEmpty: Bool { groups.isEmpty }
    var isDrained: Bool { stepCount == 0 }
    var hasUnknown: Bool { groups.contains { $0.state == .unknown } }

    // MARK: Sending

    var hasRoom: Bool {
        guard let last = groups.last else { return !isHalted }
        return !isHalted && last.state != .unsent && groups.count < Limits.groupsOfLog
            && byteCount <= Limits.leadingGroupsByteCount
    }

    /// Adds a group of records that are sealed with `nextNumber`.
    mutating func add(
        _ pieces: [BatchPiece], byteCount: Int, batchCount: Int, lastTicket: Ticket, began: UInt64
    ) {
        let form: Form = groups.isEmpty ? makesStream ? .makingStream : .first : .chained
        var command = head(form, nextNumber, behind: groups.last)
        var start: [UInt8] = []
        for piece in pieces where start.count < Limits.groupStartByteCount {
            let part = UnsafeRawBufferPointer(start: piece.start, count: piece.byteCount)
            start.append(contentsOf: part.prefix(Limits.groupStartByteCount - start.count))
        }
        command.append(
            byteCount: byteCount,
            gathering: pieces.lazy.map { UnsafeRawBufferPointer(start: $0.start, count: $0.byteCount) })
        groups.append(
            Group(
                number: nextNumber, command: command, form: form, start: start, lastTicket: lastTicket,
                byteCount: byteCount, batchCount: batchCount, began: began))
        self.byteCount += byteCount
        nextNumber += 1
    }

    /// Returns an append command without its last argument, the group's bytes.
    private func head(_ form: Form, _ number: UInt64, behind previous: Group?) -> RedisCommand {
        var command: RedisCommand
        switch form {
        case .first, .makingStream:
            command = RedisCommand("XADD", key)
            if form == .first { command.append("NOMKSTREAM") }
        case .chained:
            command = RedisCommand(RedisScripts.appendBehind, keys: [key])
            command.append("\(epoch)-\(number - 1)", previous?.byteCount ?? 0, previous?.start ?? [])
        }
        command.append("\(epoch)-\(number)", "b")
        return command
    }

    /// The size of what `next` would send, in bytes; `nil` if there is nothing to send.
    var nextByteCount: Int? {
        guard !isHalted else { return nil }
        if let group = groups.first(where: { $0.state == .unsent }) { return group.byteCount }
        return needsCover ? 256 : nil
    }

    /// Whether all groups are in the stream and no call in flight will confirm their replicas.
    private var needsCover: Bool { stepCount == 0 && !groups.isEmpty && groups.allSatisfy { $0.state == .stored } }

    mutating func next() -> Step? {
        guard !isHalted else { return nil }
        if let place = groups.firstIndex(where: { $0.state == .unsent }) {
            let form: Form = place > 0 ? .chained : makesStream ? .makingStream : .first
            if groups[place].form != form { reform(place, form) }
            groups[place].state = .sent
            stepCount += 1
            let command = groups[place].command
            return Step(
                kind: .append, number: groups[place].number,
                commands: [sendsSource ? command.withSource : command])
        }
        guard needsCover, let number = groups.last?.number else { return nil }
        stepCount += 1
        return Step(
            kind: .cover, number: number, commands: [look(number, number), RedisClient.touchCommand(slot: slot)])
    }

    private func look(_ first: UInt64, _ last: UInt64) -> RedisCommand {
        var look = RedisCommand("XRANGE")
        look.append(key)
        for number in [first, last] { look.append("\(epoch)-\(number)") }
        return look
    }

    var lookAtAll: RedisCommand { look(groups.first?.number ?? nextNumber, groups.last?.number ?? nextNumber) }

    private mutating func reform(_ place: Int, _ form: Form) {
        guard let bytes = groups[place].command.arguments.last else { return }
        var command = head(form, groups[place].number, behind: place > 0 ? groups[place - 1] : nil)
        command.append(bytes)
        (groups[place].command, groups[place].form) = (command, form)
    }

    // MARK: Replies

    /// Applies the replies to a step, without the reply to the wait.
    mutating func take(_ step: Step, _ replies: ArraySlice<RedisReply>) -> Outcome {
        stepCount -= 1
        guard let place = groups.firstIndex(where: { $0.number == step.number }) else { return .old }
        for reply in replies {
            guard let fault = reply.fault else { continue }
            isHalted = true
            // An error of a `cover` does not change its group, which is still in the stream.
            let isAppend = step.kind == .append
            switch fault.kind {
            case .moved, .ask:
                if isAppend { groups[place].state = .unsent }
                return .elsewhere(reply)
            case .noScript:
                groups[place].state = .unsent
                sendsSource = true
                return .again
            case _ where fault.isPassing:
                if isAppend { groups[place].state = .unsent }
                return .blocked(fault)
            default:
                // The id is usually in use by another entry, or the previous entry is missing. The stream's last id shows which.
                groups[place].state = .unknown
                return fault.code == RedisScripts.apart ? .again : .blocked(fault)
            }
        }
        if step.kind == .cover {
            guard let entries = replies.first?.array, isThere(groups[place], in: entries) else {
                (groups[place].state, isHalted) = (.unknown, true)
                return .again
            }
            return .stored
        }
        if replies.first?.isNone ?? true {
            (groups[place].state, isHalted) = (.unknown, true)
            return .streamLost
        }
        if groups[place].form == .chained { sendsSource = false } else { makesStream = false }
        groups[place].state = .stored
        return .stored
    }

    /// Handles a step whose replies were lost or are inconclusive.
    mutating func lose(_ step: Step) {
        stepCount -= 1
        doubt(step.number)
    }

    /// Marks a group as unknown: its presence in the surviving stream must be checked.
    mutating func doubt(_ number: UInt64) {
        guard let place = groups.firstIndex(where: { $0.number == number }) else { return }
        (groups[place].state, isHalted) = (.unknown, true)
    }

    /// Resumes sending; all steps must have ended, and no group may be unknown.
    mutating func resume() {
        precondition(isDrained && !hasUnknown, "a log resumes while the result of a write is unknown")
        isHalted = false
    }

    /// Returns whether the stream's entry with the group's number has the group's bytes.
    private func isThere(_ group: Group, in entries: [RedisReply]) -> Bool {
        let id = "\(epoch)-\(group.number)"
        guard let entry = entries.first(where: { $0.array?.first?.text == id })?.array, entry.count == 2,
            let fields = entry[1].array, fields.count == 2, fields[0].text == "b", let bytes = fields[1].bytes
        else { return false }
        return bytes.count == group.byteCount && group.command.ends(in: bytes)
    }

    /// Returns the first group, up to the stream's last number, whose entry differs or is missing.
    func firstForeign(upTo reached: UInt64, in entries: [RedisReply]) -> UInt64? {
        groups.first { $0.number <= reached && !isThere($0, in: entries) }?.number
    }

    /// Sets the states by the stream's last number, which must be a number of this log; no step may be in flight.
    mutating func settle(reached: UInt64) {
        precondition(reached < nextNumber, "no group has that number")
        for place in groups.indices { groups[place].state = groups[place].number <= reached ? .stored : .unsent }
        (makesStream, isHalted) = (false, false)
    }

    /// Sets the states for a lost stream; no step may be in flight.
    mutating func settleWithoutStream() {
        for place in groups.indices { groups[place].state = .unsent }
        (makesStream, isHalted) = (true, false)
    }

    /// Removes and returns the groups up to a durable one, oldest first.
    mutating func complete(upTo number: UInt64) -> ArraySlice<Group> {
        let count = groups.firstIndex { $0.number > number } ?? groups.count
        let done = groups[..<count]
        groups.removeFirst(count)
        byteCount -= done.reduce(0) { $0 + $1.byteCount }
        return done
    }

    /// Removes all groups; returns their size.
    mutating func drop() -> Int {
        defer { (groups, byteCount, stepCount, isHalted) = ([], 0, 0, false) }
        return byteCount
    }
}
