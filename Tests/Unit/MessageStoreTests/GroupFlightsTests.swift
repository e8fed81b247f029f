import Delivery
import Journal
import Redis
import Testing

@testable import MessageStore

@Suite("Groups of a log in flight")
struct GroupFlightsTests {
    private static let key = Array("{lw:t:p0}:log".utf8)
    private static let epoch: UInt64 = 5

    private static func flights(from number: UInt64 = 1) -> GroupFlights {
        GroupFlights(key: key, slot: RedisSlot.of(key), epoch: epoch, nextNumber: number)
    }

    private static func send(_ flights: inout GroupFlights, byteCount: Int = 1) throws -> GroupFlights.Step {
        add(&flights, byteCount: byteCount)
        return try Self.next(&flights)
    }

    private static func next(_ flights: inout GroupFlights) throws -> GroupFlights.Step {
        let step = flights.next()
        return try #require(step)
    }

    private static func isQuiet(_ flights: inout GroupFlights) -> Bool { flights.next() == nil }
    private static func complete(_ flights: inout GroupFlights, _ number: UInt64) -> [GroupFlights.Group] {
        Array(flights.complete(upTo: number))
    }
    private static func drop(_ flights: inout GroupFlights) -> Int { flights.drop() }

    private static func add(_ flights: inout GroupFlights, byteCount: Int = 1) {
        let bytes = UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: 8)
        bytes.initializeMemory(
            as: UInt8.self, repeating: UInt8(truncatingIfNeeded: flights.nextNumber), count: byteCount)
        defer { bytes.deallocate() }
        flights.add(
            [BatchPiece(start: bytes, byteCount: byteCount, recordByteCount: byteCount, ticket: flights.nextNumber)],
            byteCount: byteCount, batchCount: 1, lastTicket: Ticket(flights.nextNumber), began: 1)
    }

    private static func added(_ step: GroupFlights.Step) -> [RedisReply] {
        [.bytes(Array("\(epoch)-\(step.number)".utf8))]
    }
    private static func refused(_ text: String) -> [RedisReply] { [.error(RedisFault(text))] }

    private static func entry(_ number: UInt64, _ bytes: [UInt8], field: String = "b") -> RedisReply {
        .array([
            .bytes(Array("\(epoch)-\(number)".utf8)), .array([.bytes(Array(field.utf8)), .bytes(bytes)]),
        ])
    }

    private static func take(_ flights: inout GroupFlights, _ step: GroupFlights.Step, _ replies: [RedisReply])
        -> GroupFlights.Outcome
    {
        flights.take(step, replies[...])
    }

    private static func words(_ command: RedisCommand) -> [String] {
        command.arguments.map { String(decoding: $0, as: UTF8.self) }
    }

    // MARK: Order

    @Test("the oldest group is sent unconditionally, each later one only after its predecessor")
    func forms() throws {
        var flights = Self.flights(from: 7)
        let first = try Self.send(&flights)
        let second = try Self.send(&flights)
        #expect(Self.words(first.commands[0]) == ["XADD", "{lw:t:p0}:log", "NOMKSTREAM", "5-7", "b", "\u{7}"])
        let chained = Self.words(second.commands[0])
        #expect(chained[0] == "EVALSHA" && chained[1] == RedisScripts.appendBehind.digest)
        #expect(Array(chained[4...]) == ["5-7", "1", "\u{7}", "5-8", "b", "\u{8}"])
        #expect(Self.isQuiet(&flights), "nothing is left to send")
    }

    @Test("a durable group confirms all earlier ones, whose own replies are then ignored")
    func outOfOrder() throws {
        var flights = Self.flights()
        let steps = try (0..<3).map { _ in try Self.send(&flights) }
        #expect(Self.take(&flights, steps[1], Self.added(steps[1])) == .stored)
        #expect(Self.complete(&flights, 2).map(\.number) == [1, 2])
        #expect(Self.take(&flights, steps[0], Self.added(steps[0])) == .old)
        #expect(Self.take(&flights, steps[0], Self.refused("OOM command not allowed")) == .old)
        #expect(!flights.isHalted && flights.groups.map(\.number) == [3])
        #expect(Self.take(&flights, steps[2], Self.added(steps[2])) == .stored)
        #expect(Self.complete(&flights, 3).map(\.lastTicket) == [3])
        #expect(flights.isEmpty)
    }

    @Test("completing the same group again yields nothing")
    func twice() throws {
        var flights = Self.flights()
        let step = try Self.send(&flights)
        #expect(Self.take(&flights, step, Self.added(step)) == .stored)
        #expect(Self.complete(&flights, 1).count == 1)
        #expect(Self.complete(&flights, 1).isEmpty)
        Self.add(&flights)
        #expect(Self.complete(&flights, 1).isEmpty && flights.groups.count == 1)
    }

    // MARK: Losses and refusals

    @Test(
        "after a loss no group is sent before all calls have ended; then missing groups are sent again unchanged"
    )
    func lossInTheMiddle() throws {
        var flights = Self.flights()
        let steps = try (0..<3).map { _ in try Self.send(&flights) }
        flights.lose(steps[1])
        #expect(flights.isHalted && !flights.hasRoom && flights.nextByteCount == nil)
        #expect(Self.isQuiet(&flights))
        #expect(Self.take(&flights, steps[2], Self.refused("APART 5-2 is not there")) == .again)
        #expect(Self.take(&flights, steps[0], Self.added(steps[0])) == .stored)
        #expect(flights.isDrained && flights.hasUnknown)
        #expect(flights.groups.map(\.state) == [.stored, .unknown, .unknown])

        flights.settle(reached: 1)
        #expect(flights.groups.map(\.state) == [.stored, .unsent, .unsent] && !flights.isHalted)
        let again = try Self.next(&flights)
        #expect(again.kind == .append && again.commands == steps[1].commands)
        #expect(try Self.next(&flights).commands == steps[2].commands)
    }

    @Test("a temporary refusal sends the same group again, the oldest as the oldest")
    func refusal() throws {
        var flights = Self.flights()
        let steps = try (0..<2).map { _ in try Self.send(&flights) }
        #expect(Self.take(&flights, steps[0], Self.added(steps[0])) == .stored)
        let outcome = Self.take(&flights, steps[1], Self.refused("OOM command not allowed"))
        guard case .blocked(let fault) = outcome else {
            Issue.record("\(outcome)")
            return
        }
        #expect(fault.kind == .outOfMemory)
        #expect(Self.complete(&flights, 1).count == 1)
        flights.resume()
        let again = try Self.next(&flights)
        #expect(Self.words(again.commands[0]) == ["XADD", "{lw:t:p0}:log", "NOMKSTREAM", "5-2", "b", "\u{2}"])
    }

    @Test("a moved slot leaves the group unsent; another id there makes it unknown")
    func movedAndTaken() throws {
        var flights = Self.flights()
        let first = try Self.send(&flights)
        let moved = Self.refused("MOVED 3999 127.0.0.1:6381")
        #expect(Self.take(&flights, first, moved) == .elsewhere(moved[0]))
        #expect(flights.groups.map(\.state) == [.unsent] && flights.isHalted)
        flights.resume()
        let again = try Self.next(&flights)
        let outcome = Self.take(
            &flights, again,
            Self.refused("ERR The ID specified in XADD is equal or smaller than the target stream top item"))
        if case .blocked = outcome {} else { Issue.record("\(outcome)") }
        #expect(flights.hasUnknown)
    }

    @Test("a server without the script gets its source, once")
    func script() throws {
        var flights = Self.flights()
        let steps = try (0..<2).map { _ in try Self.send(&flights) }
        #expect(Self.take(&flights, steps[0], Self.added(steps[0])) == .stored)
        #expect(Self.take(&flights, steps[1], Self.refused("NOSCRIPT No matching script")) == .again)
        flights.resume()
        let whole = try Self.next(&flights)
        #expect(whole.commands[0].name == "EVAL")
        #expect(Self.take(&flights, whole, Self.added(whole)) == .stored)
        let third = try Self.send(&flights)
        #expect(third.commands[0].name == "EVALSHA")
    }

    @Test("only the oldest group creates a missing stream again")
    func lostStream() throws {
        var flights = Self.flights()
        let first = try Self.send(&flights)
        #expect(Self.take(&flights, first, [.none]) == .streamLost)
        #expect(flights.hasUnknown && flights.isDrained)
        flights.settleWithoutStream()
        let again = try Self.next(&flights)
        #expect(Self.words(again.commands[0]) == ["XADD", "{lw:t:p0}:log", "5-1", "b", "\u{1}"])
        #expect(Self.take(&flights, again, Self.added(again)) == .stored)
        _ = flights.complete(upTo: 1)
        #expect(try Self.words(Self.send(&flights).commands[0]).contains("NOMKSTREAM"))
    }

    // MARK: Covers

    @Test("a group in the stream without a WAIT gets a read, a write and a WAIT; an empty read is a doubt")
    func cover() throws {
        var flights = Self.flights()
        let steps = try (0..<2).map { _ in try Self.send(&flights) }
        #expect(Self.take(&flights, steps[0], Self.added(steps[0])) == .stored)
        #expect(Self.isQuiet(&flights), "the second one's wait may speak for both")
        #expect(Self.take(&flights, steps[1], Self.added(steps[1])) == .stored)
        let cover = try Self.next(&flights)
        #expect(cover.kind == .cover && cover.number == 2)
        #expect(cover.commands.map(\.name) == ["XRANGE", "SET"])
        #expect(Self.words(cover.commands[0]).suffix(2) == ["5-2", "5-2"])
        #expect(Self.isQuiet(&flights), "one at a time")
        #expect(Self.take(&flights, cover, [.array([]), .status("OK")]) == .again)
        #expect(flights.groups.map(\.state) == [.stored, .unknown] && flights.isHalted)
        flights.settle(reached: 2)
        let foreign = try Self.next(&flights)
        #expect(Self.take(&flights, foreign, [.array([Self.entry(2, [3])]), .status("OK")]) == .again)
        flights.settle(reached: 2)
        let second = try Self.next(&flights)
        #expect(Self.take(&flights, second, [.array([Self.entry(2, [2])]), .status("OK")]) == .stored)
        #expect(Self.complete(&flights, 2).count == 2)
    }

    @Test("a cover that a moved slot refused leaves its group in the stream")
    func refusedCover() throws {
        var flights = Self.flights()
        let step = try Self.send(&flights)
        #expect(Self.take(&flights, step, Self.added(step)) == .stored)
        let cover = try Self.next(&flights)
        let moved = Self.refused("MOVED 3999 127.0.0.1:6381")
        #expect(Self.take(&flights, cover, moved + [.status("OK")]) == .elsewhere(moved[0]))
        #expect(flights.groups.map(\.state) == [.stored] && flights.isHalted)
    }

    // MARK: Entries of other programs

    @Test("the entries up to the last id are compared with each group's field, size and bytes")
    func foreignEntries() throws {
        var flights = Self.flights(from: 7)
        let steps = try (0..<2).map { _ in try Self.send(&flights, byteCount: 200) }
        for step in steps { flights.lose(step) }
        #expect(Self.words(flights.lookAtAll) == ["XRANGE", "{lw:t:p0}:log", "5-7", "5-8"])
        let own = [UInt8](repeating: 7, count: 200)
        let (first, second) = (Self.entry(7, own), Self.entry(8, [UInt8](repeating: 8, count: 200)))
        #expect(flights.firstForeign(upTo: 8, in: [first, second]) == nil)
        #expect(flights.firstForeign(upTo: 7, in: [first]) == nil)
        #expect(flights.firstForeign(upTo: 6, in: []) == nil)
        #expect(flights.firstForeign(upTo: 8, in: [first]) == 8)
        #expect(flights.firstForeign(upTo: 8, in: [second]) == 7)
        #expect(flights.firstForeign(upTo: 7, in: [Self.entry(7, own, field: "note")]) == 7)
        #expect(flights.firstForeign(upTo: 7, in: [Self.entry(7, own.dropLast())]) == 7)
        #expect(flights.firstForeign(upTo: 7, in: [Self.entry(7, own.dropLast() + [8])]) == 7)
        #expect(flights.firstForeign(upTo: 7, in: [Self.entry(7, [])]) == 7)
        #expect(flights.firstForeign(upTo: 7, in: [.none, .array([]), .integer(7)]) == 7)
        // The next group checks the size and the first bytes.
        let behind = steps[1].commands[0].arguments
        #expect(behind[5] == Array("200".utf8) && behind[6] == Array(own.prefix(Limits.groupStartByteCount)))
    }

    // MARK: Bounds

    @Test("at most `groupsOfLog` groups are in flight; an unsent one prevents new ones")
    func groupCount() throws {
        var flights = Self.flights()
        for _ in 0..<Limits.groupsOfLog {
            #expect(flights.hasRoom)
            _ = try Self.send(&flights)
        }
        #expect(!flights.hasRoom)
        _ = flights.complete(upTo: 1)
        #expect(flights.hasRoom)
        Self.add(&flights)
        #expect(!flights.hasRoom && flights.nextByteCount == 1)
    }

    @Test("no group follows groups that a server reads over several turns")
    func byteCount() throws {
        var flights = Self.flights()
        _ = try Self.send(&flights, byteCount: Limits.leadingGroupsByteCount)
        #expect(flights.hasRoom)
        _ = try Self.send(&flights, byteCount: 1)
        #expect(!flights.hasRoom)
        _ = flights.complete(upTo: 1)
        #expect(flights.hasRoom)
    }

    @Test("dropping all groups returns their bytes, and the log could continue with an unused number")
    func drop() throws {
        var flights = Self.flights()
        let steps = try (0..<3).map { _ in try Self.send(&flights, byteCount: 10) }
        flights.lose(steps[0])
        #expect(Self.drop(&flights) == 30)
        #expect(flights.isEmpty && flights.isDrained && !flights.isHalted && Self.drop(&flights) == 0)
        #expect(flights.nextNumber == 4)
    }

    // MARK: Any order of anything

    /// A stream with the rules at the top of `RedisLog.swift`.
    private struct Stream {
        var numbers: [UInt64] = []
        /// The entry of another program.
        var foreign: UInt64?
        var entries: [RedisReply] { numbers.map { entry($0) } }
        private func entry(_ number: UInt64) -> RedisReply {
            GroupFlightsTests.entry(number, [number == foreign ? 0xFF : UInt8(truncatingIfNeeded: number)])
        }
        /// Runs a command on the stream, which may add its entry.
        mutating func run(_ step: GroupFlights.Step) -> [RedisReply] {
            let added: [RedisReply] = GroupFlightsTests.added(step)
            guard step.kind == .append else {
                return [.array(numbers.contains(step.number) ? [entry(step.number)] : []), .status("OK")]
            }
            let isChained = step.commands[0].name != "XADD"
            if isChained, !numbers.contains(step.number - 1) || foreign == step.number - 1 {
                return GroupFlightsTests.refused("APART 5-\(step.number - 1) is not there")
            }
            guard step.number > numbers.last ?? 0 else {
                return GroupFlightsTests.refused("ERR The ID specified in XADD is equal or smaller")
            }
            numbers.append(step.number)
            return added
        }
    }

    @Test(
        "in any order of calls, failures and replies, reported groups are in the stream, in order, once",
        arguments: 1...12, [false, true])
    func anyOrder(seed: UInt64, hasStranger: Bool) throws {
        var state = seed &* 0x9E37_79B9_7F4A_7C15
        func below(_ count: Int) -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(state >> 33) % count
        }
        var flights = Self.flights()
        var stream = Stream()
        var sent: [GroupFlights.Step] = []
        /// Calls whose sender has timed out, which a server may still run at any time.
        var late: [GroupFlights.Step] = []
        var answered: [(step: GroupFlights.Step, replies: [RedisReply]?, isDurable: Bool)] = []
        var reported: [UInt64] = []
        var isHealing = false
        func complete(_ number: UInt64) {
            for group in flights.complete(upTo: number) { reported.append(group.number) }
        }
        let strangerTurn = hasStranger ? 5 + below(200) : -1
        for turn in 0..<3_000 {
            isHealing = turn > 1_500
            if turn == strangerTurn {
                stream.foreign = (stream.numbers.last ?? 0) + 1
                stream.numbers.append((stream.numbers.last ?? 0) + 1)
            }
            if !late.isEmpty, below(20) == 0 { _ = stream.run(late.remove(at: below(late.count))) }
            switch below(4) {
            case 0:
                if flights.hasRoom, flights.nextNumber <= 60 { Self.add(&flights) }
                if let step = flights.next() { sent.append(step) }
            case 1 where !sent.isEmpty:
                // A server runs one of the calls, or never does. Its reply may be lost.
                let step = sent.remove(at: below(sent.count))
                switch isHealing ? 9 : below(10) {
                case 0:
                    answered.append((step, nil, false))
                    late.append(step)
                case 1:
                    _ = stream.run(step)
                    answered.append((step, nil, false))
                case 2: answered.append((step, Self.refused("OOM command not allowed"), false))
                default: answered.append((step, stream.run(step), isHealing || below(4) > 0))
                }
            case 2 where !answered.isEmpty:
                let (step, replies, isDurable) = answered.remove(at: below(answered.count))
                guard let replies else {
                    flights.lose(step)
                    break
                }
                if Self.take(&flights, step, replies) == .stored, isDurable { complete(step.number) }
            default:
                guard flights.isHalted, flights.isDrained else { break }
                guard flights.hasUnknown else {
                    flights.resume()
                    break
                }
                let reached = stream.numbers.last ?? 0
                if reached >= flights.nextNumber || flights.firstForeign(upTo: reached, in: stream.entries) != nil {
                    let found = flights.firstForeign(upTo: reached, in: stream.entries) ?? reached
                    #expect(found == stream.foreign)
                    return
                }
                flights.settle(reached: reached)
            }
            if let foreign = stream.foreign, reported.contains(foreign) {
                Issue.record("turn \(turn): group \(foreign) was reported, whose number is another program's")
                return
            }
            // Both are sequences from 1, and the stream has all reported groups.
            guard reported.elementsEqual(1..<UInt64(reported.count + 1)),
                stream.numbers.elementsEqual(1..<UInt64(stream.numbers.count + 1)),
                reported.count <= stream.numbers.count
            else {
                Issue.record("turn \(turn): reported \(reported), in the stream \(stream.numbers)")
                return
            }
        }
        #expect(!hasStranger && reported.count == 60 && flights.isEmpty)
    }
}
