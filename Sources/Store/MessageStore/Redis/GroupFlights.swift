// The groups of a log that are on their way: what was sent, what is known of it, and what may be sent next. The rules and
// why they hold stand at the head of `RedisLog.swift`.

internal import Delivery
internal import Journal
internal import Redis

/// One log's groups from the oldest that is not reported durable on; plain values, no calls.
struct GroupFlights {
    enum State: Equatable {
        /// It is not in the stream, or was not when this was asked last.
        case unsent
        /// A call with it is under way.
        case sent
        /// It is in the stream; its own call did not reach enough replicas.
        case stored
        /// The stream's last id has to tell.
        case unknown
    }

    struct Group {
        var state = State.unsent
        /// The entry's; it never has another one.
        let number: UInt64
        /// An append of it, in the form that was right when it was made.
        fileprivate(set) var command: RedisCommand
        fileprivate(set) var form: Form
        /// Its first bytes, by which the group behind it knows it.
        let start: [UInt8]
        let lastTicket: Ticket
        let byteCount: Int
        let batchCount: Int
        /// In the network's milliseconds.
        let began: UInt64
    }

    /// How an entry is appended.
    enum Form: Equatable {
        /// All before it is reported durable.
        case first
        /// The same, into a stream that is not there any more.
        case makingStream
        /// Only behind the entry before it.
        case chained
    }

    /// Part of a call.
    struct Step {
        enum Kind: Equatable {
            case append
            /// The group is in the stream: a look at it and a write, for a wait to speak for it.
            case cover
        }
        let kind: Kind
        let number: UInt64
        let commands: [RedisCommand]
    }

    /// What a step's replies say.
    enum Outcome: Equatable {
        /// The group is in the stream of this server.
        case stored
        /// A later group was durable before: so was this one.
        case old
        /// To be sent again, and not by the group's own fault.
        case again
        /// The slot is elsewhere, or its keys are on their way.
        case elsewhere(RedisReply)
        /// The stream is not there any more.
        case streamLost
        /// Later.
        case blocked(RedisFault)
    }

    private let key: [UInt8]
    private let slot: Int
    private let epoch: UInt64
    private(set) var groups: [Group] = []
    private(set) var nextNumber: UInt64
    /// Steps of calls under way.
    private(set) var stepCount = 0
    /// Something went wrong: nothing more is sent before all steps under way have ended.
    private(set) var isHalted = false
    /// The stream is gone, and is to be made anew.
    private(set) var makesStream = false
    private var byteCount = 0
    /// A server did not have the script.
    private var sendsSource = false

    init(key: [UInt8], slot: Int, epoch: UInt64, nextNumber: UInt64) {
        (self.key, self.slot, self.epoch, self.nextNumber) = (key, slot, epoch, nextNumber)
    }

    var isEmpty: Bool { groups.isEmpty }
    var isDrained: Bool { stepCount == 0 }
    var hasUnknown: Bool { groups.contains { $0.state == .unknown } }

    // MARK: Sending

    /// Whether one more group may be made.
    var hasRoom: Bool {
        guard let last = groups.last else { return !isHalted }
        return !isHalted && last.state != .unsent && groups.count < Limits.groupsOfLog
            && byteCount <= Limits.leadingGroupsByteCount
    }

    /// Makes a group of records that are sealed with `nextNumber`.
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

    /// An append up to its last word, the bytes.
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

    /// What `next` would send, in bytes; `nil` for nothing.
    var nextByteCount: Int? {
        guard !isHalted else { return nil }
        if let group = groups.first(where: { $0.state == .unsent }) { return group.byteCount }
        return needsCover ? 256 : nil
    }

    /// All are in the stream, and nothing under way will say that replicas have them.
    private var needsCover: Bool { stepCount == 0 && !groups.isEmpty && groups.allSatisfy { $0.state == .stored } }

    /// What is to be sent next.
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

    /// Asks for the entries of all groups.
    var lookAtAll: RedisCommand { look(groups.first?.number ?? nextNumber, groups.last?.number ?? nextNumber) }

    private mutating func reform(_ place: Int, _ form: Form) {
        guard let bytes = groups[place].command.arguments.last else { return }
        var command = head(form, groups[place].number, behind: place > 0 ? groups[place - 1] : nil)
        command.append(bytes)
        (groups[place].command, groups[place].form) = (command, form)
    }

    // MARK: Replies

    /// Takes the replies to a step; a wait's is not among them.
    mutating func take(_ step: Step, _ replies: ArraySlice<RedisReply>) -> Outcome {
        stepCount -= 1
        guard let place = groups.firstIndex(where: { $0.number == step.number }) else { return .old }
        for reply in replies {
            guard let fault = reply.fault else { continue }
            isHalted = true
            // A group to be covered is in the stream as before.
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
                // Another id stands there, most of the time, or none does: the stream's last one tells.
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

    /// A step's replies were lost, or say nothing that counts.
    mutating func lose(_ step: Step) {
        stepCount -= 1
        doubt(step.number)
    }

    /// Whether a group is in a stream that will last has to be asked.
    mutating func doubt(_ number: UInt64) {
        guard let place = groups.firstIndex(where: { $0.number == number }) else { return }
        (groups[place].state, isHalted) = (.unknown, true)
    }

    /// Sending goes on; all steps have ended, and nothing is unknown.
    mutating func resume() {
        precondition(isDrained && !hasUnknown, "a log goes on while it is not known what was written")
        isHalted = false
    }

    /// Whether the stream's entry of a group's number is what the group sent.
    private func isThere(_ group: Group, in entries: [RedisReply]) -> Bool {
        let id = "\(epoch)-\(group.number)"
        guard let entry = entries.first(where: { $0.array?.first?.text == id })?.array, entry.count == 2,
            let fields = entry[1].array, fields.count == 2, fields[0].text == "b", let bytes = fields[1].bytes
        else { return false }
        return bytes.count == group.byteCount && group.command.ends(in: bytes)
    }

    /// The first group up to a number, the stream's last, whose entry is another one or is gone.
    func firstForeign(upTo reached: UInt64, in entries: [RedisReply]) -> UInt64? {
        groups.first { $0.number <= reached && !isThere($0, in: entries) }?.number
    }

    /// The stream has the groups' entries up to a number, which a group has or had; nothing is under way.
    mutating func settle(reached: UInt64) {
        precondition(reached < nextNumber, "no group has that number")
        for place in groups.indices { groups[place].state = groups[place].number <= reached ? .stored : .unsent }
        (makesStream, isHalted) = (false, false)
    }

    /// There is no stream; nothing is under way.
    mutating func settleWithoutStream() {
        for place in groups.indices { groups[place].state = .unsent }
        (makesStream, isHalted) = (true, false)
    }

    /// A group is durable, and so is each before it: hands them out, the oldest first.
    mutating func complete(upTo number: UInt64) -> ArraySlice<Group> {
        let count = groups.firstIndex { $0.number > number } ?? groups.count
        let done = groups[..<count]
        groups.removeFirst(count)
        byteCount -= done.reduce(0) { $0 + $1.byteCount }
        return done
    }

    /// Forgets all groups; returns their size.
    mutating func drop() -> Int {
        defer { (groups, byteCount, stepCount, isHalted) = ([], 0, 0, false) }
        return byteCount
    }
}
