import Testing
import Wire

@testable import LongwireClient

@Suite("Messages and acks")
struct MessageTests {
    @Test("messages read together are handled in order, stored once, then acked once")
    func coalescing() throws {
        var driver = try CoreDriver.ready()
        driver.log = []
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2), CoreDriver.deliver(5))
        #expect(driver.log == ["handle 1", "handle 2", "handle 5", "persist", "ack"])
        #expect(driver.acks.map(\.positions) == [[StreamPosition(stream: 0, sequence: 5)]])
        #expect(driver.stored?.streams == [0: ProcessedSet(sequence: 5)])
    }

    @Test("a message split at any byte arrives whole, once")
    func splits() throws {
        var frame: [UInt8] = []
        CoreDriver.deliver(1).appendFrame(to: &frame)
        for cut in 1..<frame.count {
            var driver = try CoreDriver.ready()
            driver.core.receive(Array(frame[..<cut]), at: driver.now)
            driver.turn()
            #expect(driver.shown.isEmpty)
            driver.core.receive(Array(frame[cut...]), at: driver.now)
            driver.turn()
            #expect(driver.shown == [1])
        }
    }

    @Test("a message that was processed before is acked and not shown, also after a restart")
    func duplicate() throws {
        var driver = try CoreDriver.ready()
        try driver.receive(CoreDriver.deliver(1))
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.shown == [1])
        #expect(driver.acks.count == 2)

        var later = try CoreDriver.ready(try #require(driver.stored))
        try later.receive(CoreDriver.deliver(1))
        #expect(later.shown.isEmpty)
        #expect(later.acks.map(\.positions) == [[StreamPosition(stream: 0, sequence: 1)]])
    }

    @Test("two copies of a message in one read are shown once and acked once")
    func copiesInOneRead() throws {
        var driver = try CoreDriver.ready()
        driver.log = []
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(1))
        #expect(driver.log == ["handle 1", "persist", "ack"])
        #expect(driver.acks.map(\.positions) == [[StreamPosition(stream: 0, sequence: 1)]])
    }

    @Test("when the state cannot be stored no message is acked, and it is retried before the next Hello")
    func storeFails() throws {
        var driver = try CoreDriver.ready()
        driver.storeFails = true
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.acks.isEmpty)
        #expect(driver.log.last == "disconnect")
        driver.storeFails = false
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.stored?.streams == [0: ProcessedSet(sequence: 1)])
        try driver.welcome()
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.shown == [1], "this process knows that it handled it")
    }

    @Test("a deferred message keeps the position below it and ranges above it")
    func deferred() throws {
        var driver = try CoreDriver.ready()
        driver.verdicts[2] = .deferred
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2), CoreDriver.deliver(3))
        let position = StreamPosition(stream: 0, sequence: 1, ranges: [SequenceRange(first: 3, last: 3)])
        #expect(driver.acks.map(\.positions) == [[position]])
        // The next session sends the same position and receives the message again.
        driver.core.disconnected(reason: "test", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.positions == [position])
        try driver.welcome()
        driver.verdicts = [:]
        try driver.receive(CoreDriver.deliver(2))
        #expect(driver.shown == [1, 2, 3, 2])
        #expect(driver.stored?.streams == [0: ProcessedSet(sequence: 3)])
    }

    @Test("a Close read together with messages does not make the client claim a deferred one")
    func closeBehindMessages() throws {
        var driver = try CoreDriver.ready()
        driver.verdicts[1] = .deferred
        var close = Close()
        close.code = CloseCode.shuttingDown.rawValue
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2), close)
        #expect(driver.shown == [1, 2])
        let expected = ProcessedSet(sequence: 0, ranges: [SequenceRange(first: 2, last: 2)])
        #expect(driver.stored?.streams == [0: expected])
    }

    @Test("a rejected message has a separate frame, and is in no position before the gateway surely knows")
    func rejected() throws {
        var driver = try CoreDriver.ready()
        driver.verdicts[2] = .rejected(reason: "not for us")
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2))
        #expect(driver.acks.count == 2)
        #expect(driver.acks[0].positions.isEmpty)
        #expect(driver.acks[0].rejected == [Rejected(stream: 0, sequence: 2, reason: "not for us")])
        #expect(driver.acks[1].positions == [StreamPosition(stream: 0, sequence: 1)])
        #expect(driver.stored?.rejections.map(\.sequence) == [2])
        try driver.receive(Pong(nonce: try #require(driver.pings.last).nonce))
        #expect(driver.acks.last?.positions == [StreamPosition(stream: 0, sequence: 2)])
        #expect(driver.stored?.rejections == [])
    }

    @Test("a lost rejection is sent again when the message arrives again, without a call of the app")
    func rejectionLost() throws {
        var first = try CoreDriver.ready()
        first.verdicts[2] = .rejected(reason: "not for us")
        try first.receive(CoreDriver.deliver(1), CoreDriver.deliver(2), CoreDriver.deliver(3))
        // The process dies, and the frame is lost.
        let stored = try ClientState(serialized: try #require(first.stored).serialized)
        var driver = CoreDriver(state: stored)
        driver.start()
        let open = StreamPosition(stream: 0, sequence: 1, ranges: [SequenceRange(first: 3, last: 3)])
        #expect(driver.hellos.last?.positions == [open])
        try driver.welcome()
        #expect(driver.acks.isEmpty, "a gateway ignores the rejection of what this session was not sent")
        try driver.receive(CoreDriver.deliver(2), CoreDriver.deliver(4))
        #expect(driver.shown == [4])
        #expect(driver.acks[0].rejected == [Rejected(stream: 0, sequence: 2, reason: "not for us")])
        let beside = StreamPosition(stream: 0, sequence: 1, ranges: [SequenceRange(first: 3, last: 4)])
        #expect(driver.acks[1].positions == [beside])
        try driver.receive(Pong(nonce: try #require(driver.pings.last).nonce))
        #expect(driver.acks.last?.positions == [StreamPosition(stream: 0, sequence: 4)])
    }

    @Test("a rejected message that is not sent again has ended, and its rejection is dropped")
    func rejectionArrived() throws {
        var driver = try CoreDriver.ready()
        driver.verdicts[2] = .rejected(reason: "")
        try driver.receive(CoreDriver.deliver(2))
        driver.core.disconnected(reason: "test", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 10_000)
        driver.connect()
        try driver.welcome()
        try driver.receive(CoreDriver.deliver(3))
        #expect(driver.acks.last?.positions == [StreamPosition(stream: 0, sequence: 3)])
        #expect(driver.stored?.rejections == [])
    }

    @Test("streams have separate positions")
    func streams() throws {
        var driver = try CoreDriver.ready()
        try driver.receive(CoreDriver.deliver(7), CoreDriver.deliver(2, stream: 1))
        #expect(
            driver.acks.last?.positions == [
                StreamPosition(stream: 0, sequence: 7), StreamPosition(stream: 1, sequence: 2),
            ])
    }

    @Test("a revocation is acked like a message and reported")
    func revoke() throws {
        var driver = try CoreDriver.ready()
        var revoke = Revoke()
        revoke.sequence = 4
        revoke.revokedTaskID = TaskID(high: 1, low: 2)
        try driver.receive(revoke)
        try driver.receive(revoke)
        #expect(driver.events.filter { $0 == .revoked(revoke.revokedTaskID) }.count == 1)
        #expect(driver.acks.map(\.positions) == Array(repeating: [StreamPosition(stream: 0, sequence: 4)], count: 2))
    }

    @Test("a revocation read after an unstored message is not claimed, and is reported when it arrives again")
    func revokeUnstored() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        driver.storeFails = true
        var (welcome, revoke) = (Welcome(), Revoke())
        (welcome.generation, welcome.queueEpoch, welcome.heartbeatSeconds, welcome.window) = (1, 6, 60, 32)
        (revoke.sequence, revoke.revokedTaskID) = (1, TaskID(high: 1, low: 2))
        try driver.receive(welcome, revoke)
        #expect(driver.events.filter { $0 == .revoked(revoke.revokedTaskID) }.isEmpty)
        driver.storeFails = false
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.positions.contains { $0.sequence > 0 } != true)
        try driver.welcome { $0.queueEpoch = 6 }
        try driver.receive(revoke)
        #expect(driver.events.filter { $0 == .revoked(revoke.revokedTaskID) }.count == 1)
    }

    @Test(
        "an invalid frame ends the connection with its code and never traps",
        arguments: [
            ([99, 0, 0, 0], 410), ([6, 255, 255, 255], 411), ([6, 0, 0, 1, 0xFF], 412), ([1, 0, 0, 0], 410),
            ([6, 0, 0, 0], 412),
        ] as [([UInt8], UInt32)])
    func violations(bytes: [UInt8], code: UInt32) throws {
        var driver = try CoreDriver.ready()
        driver.core.receive(bytes, at: driver.now)
        driver.turn()
        #expect(driver.sent.contains { if case .close(let close) = $0 { close.code == code } else { false } })
        #expect(driver.log.last == "disconnect")
        #expect(driver.wait != nil)
    }

    @Test("an implausible sequence is refused instead of overflowing")
    func hugeSequence() throws {
        for sequence: UInt64 in [.max, 1 << 63, Limits.greatestSequence + 1] {
            var driver = try CoreDriver.ready()
            try driver.receive(CoreDriver.deliver(sequence))
            #expect(driver.shown.isEmpty)
            #expect(driver.log.last == "disconnect")
        }
    }

    @Test("a message opened from its notification is acked and not shown, except with replay or more content")
    func opened() throws {
        for (replays, isCarried) in [(false, true), (true, true), (false, false)] {
            var driver = try CoreDriver.ready { $0.replaysOpened = replays }
            driver.perform(.opened(MessageID(high: 9, low: 1)))
            try driver.receive(CoreDriver.deliver(1) { $0.carriedByVendor = isCarried }, CoreDriver.deliver(2))
            #expect(driver.shown == (replays || !isCarried ? [1, 2] : [2]))
            #expect(driver.acks.last?.positions == [StreamPosition(stream: 0, sequence: 2)])
        }
    }

    @Test("the next Hello has at most 32 opened messages; the others follow and are kept until answered")
    func openedReport() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        let ids = (1...40).map { MessageID(high: 9, low: UInt64($0)) }
        for id in ids { driver.perform(.opened(id)) }
        driver.start()
        #expect(driver.hellos[0].opened == Array(ids[..<32]))
        try driver.welcome()
        let told = driver.sent.compactMap { if case .feedback(let feedback) = $0 { feedback.messageID } else { nil } }
        #expect(told == Array(ids[32...]))
        #expect(driver.stored?.unreportedOpened == Array(ids[32...]), "a lost connection must not lose them")
        try driver.receive(Pong(nonce: try #require(driver.pings.last).nonce))
        #expect(driver.stored?.unreportedOpened == [])
        #expect(driver.stored?.opened == ids)
    }

    @Test("only the last 256 opened messages are remembered")
    func openedBound() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        for number in 1...300 { driver.perform(.opened(MessageID(high: 9, low: UInt64(number)))) }
        #expect(driver.stored?.opened.count == 256)
        #expect(driver.stored?.opened.first == MessageID(high: 9, low: 45))
    }

    @Test("a rejection's reason and the number of rejections fit one Ack")
    func rejectionBounds() throws {
        var driver = try CoreDriver.ready()
        // One character of 25 bytes, many times over.
        let reason = String(repeating: "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}\u{200D}\u{1F466}", count: 200)
        for sequence in UInt64(1)...40 { driver.verdicts[sequence] = .rejected(reason: reason) }
        var bytes: [UInt8] = []
        for sequence in UInt64(1)...40 { CoreDriver.deliver(sequence).appendFrame(to: &bytes) }
        driver.core.receive(bytes, at: driver.now)
        // The driver decodes frames as strictly as a gateway and records those it cannot read.
        driver.turn()
        #expect(driver.acks.map(\.rejected.count) == [32, 8])
        #expect(driver.acks.flatMap(\.rejected).map(\.sequence) == Array(1...40))
        try driver.receive(Pong(nonce: try #require(driver.pings.last).nonce))
        #expect(driver.acks.last?.positions == [StreamPosition(stream: 0, sequence: 40)])
    }

    @Test("a gateway that invents streams is disconnected before they fill a Hello")
    func streamBound() throws {
        var driver = try CoreDriver.ready()
        for stream in UInt32(0)..<8 { try driver.receive(CoreDriver.deliver(1, stream: stream)) }
        #expect(driver.acks.last?.positions.count == 8)
        try driver.receive(CoreDriver.deliver(1, stream: 8))
        #expect(
            driver.sent.contains {
                if case .close(let close) = $0 { close.code == CloseCode.floods.rawValue } else { false }
            })
        #expect(driver.stored?.streams.count == 8)
    }

    @Test("the eight newest activities have tokens of their own, and none replaces the app's")
    func activityTokens() throws {
        var driver = try CoreDriver.ready()
        func token(_ name: String, _ text: String) -> VendorToken {
            VendorToken(kind: .liveActivity, token: text, activity: name)
        }
        driver.perform(.token(VendorToken(token: "alert")))
        for number in 0..<20 { driver.perform(.token(token("a\(number)", "t\(number)"))) }
        #expect(driver.core.configuration.tokens.map(\.token) == ["alert"] + (12..<20).map { "t\($0)" })
        driver.perform(.token(token("a19", "new")))
        driver.perform(.token(token("a15", "")))
        let left = ["alert", "t12", "t13", "t14", "t16", "t17", "t18", "new"]
        #expect(driver.core.configuration.tokens.map(\.token) == left)
        driver.perform(.token(token("", "")))
        #expect(driver.core.configuration.tokens.map(\.token) == ["alert"])
    }

    @Test("of tokens for many topics the newest that fit a Hello are kept")
    func tokenBound() throws {
        var driver = try CoreDriver.ready()
        for number in 0..<20 { driver.perform(.token(VendorToken(topic: "t\(number)", token: "a"))) }
        #expect(driver.core.configuration.tokens.map(\.topic) == (4..<20).map { "t\($0)" })
        driver.core.disconnected(reason: "gone", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 600_000)
        driver.connect()
        #expect(driver.hellos.last?.tokens.count == 16)
    }
}
