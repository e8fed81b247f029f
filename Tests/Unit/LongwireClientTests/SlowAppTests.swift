import Testing
import Wire

@testable import LongwireClient

/// A slow app: its verdicts arrive later, also in another session, while the client continues.
@Suite("A slow app")
struct SlowAppTests {
    private static func position(_ sequence: UInt64, _ ranges: (UInt64, UInt64)...) -> StreamPosition {
        StreamPosition(stream: 0, sequence: sequence, ranges: ranges.map { SequenceRange(first: $0, last: $1) })
    }

    private static func reconnect(_ driver: inout CoreDriver) throws {
        driver.core.disconnected(reason: "gone", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: try #require(driver.wait))
        driver.connect()
    }

    @Test("while a message waits for its verdict the client answers, reports its state and does not ack it")
    func goesOn() throws {
        var driver = try CoreDriver.ready()
        driver.isSlow = true
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2), Ping(nonce: 5))
        #expect(driver.sent.last == .pong(Pong(nonce: 5)))
        #expect(driver.acks.isEmpty)
        let first = driver.open.removeFirst()
        driver.perform(.finish(first, .processed))
        #expect(driver.acks.map(\.positions) == [[Self.position(1)]])
        driver.perform(.applicationState(.background, keepsRunning: false))
        #expect(driver.updates.last?.applicationState == .background)
    }

    @Test("at a suspension messages without a loop are taken back, and given again when they are sent again")
    func withdrawn() throws {
        var driver = try CoreDriver.ready()
        driver.isSlow = true
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2))
        let taken = driver.open.removeFirst()
        driver.perform(.applicationState(.background, keepsRunning: false))
        #expect(driver.open.isEmpty)
        driver.perform(.finish(taken, .processed))
        driver.perform(.applicationState(.foreground, keepsRunning: false))
        var result = UpdateResult()
        result.request = try #require(driver.updates.last).request
        try driver.receive(result, CoreDriver.deliver(2) { $0.offline = true })
        #expect(driver.shown == [1, 2, 2])
        #expect(driver.open.map(\.isOffline) == [true])
    }

    @Test("a verdict in a later session claims its own message and no other")
    func laterSession() throws {
        var driver = try CoreDriver.ready()
        driver.verdicts[4] = .deferred
        try driver.receive(CoreDriver.deliver(4))
        driver.isSlow = true
        try driver.receive(CoreDriver.deliver(5))
        let taken = driver.open.removeFirst()
        try Self.reconnect(&driver)
        driver.perform(.finish(taken, .processed))
        try driver.welcome()
        #expect(driver.stored?.streams[0] == ProcessedSet(sequence: 0, ranges: [SequenceRange(first: 5, last: 5)]))
        driver.isSlow = false
        driver.verdicts = [:]
        try driver.receive(CoreDriver.deliver(4), CoreDriver.deliver(5), CoreDriver.deliver(6))
        #expect(driver.shown == [4, 5, 4, 6])
        #expect(driver.acks.last?.positions == [Self.position(6)])
    }

    @Test("a copy that arrives while the app has the first one is not given to it, and is acked with it")
    func copyInLaterSession() throws {
        var driver = try CoreDriver.ready()
        driver.isSlow = true
        try driver.receive(CoreDriver.deliver(1))
        let taken = driver.open.removeFirst()
        try Self.reconnect(&driver)
        try driver.welcome()
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.shown == [1])
        driver.perform(.finish(taken, .rejected(reason: "bad")))
        #expect(driver.acks.first?.rejected.map(\.sequence) == [1])
        try driver.receive(Pong(nonce: try #require(driver.pings.last).nonce))
        #expect(driver.acks.last?.positions == [Self.position(1)])
    }

    @Test("a rejection before the gateway sent the message again waits for that")
    func earlyRejection() throws {
        var driver = try CoreDriver.ready()
        driver.isSlow = true
        try driver.receive(CoreDriver.deliver(1))
        let taken = driver.open.removeFirst()
        try Self.reconnect(&driver)
        try driver.welcome()
        driver.perform(.finish(taken, .rejected(reason: "bad")))
        #expect(driver.acks.isEmpty)
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.shown == [1])
        #expect(driver.acks.first?.rejected.map(\.sequence) == [1])
    }

    @Test("a verdict on a message of another queue or registration settles none of the new one")
    func otherQueue() throws {
        for isLost in [false, true] {
            var driver = try CoreDriver.ready()
            driver.isSlow = true
            try driver.receive(CoreDriver.deliver(3))
            let taken = driver.open.removeFirst()
            if isLost {
                try driver.close(.unknownDevice)
                try Self.reconnect(&driver)
                try driver.welcome { ($0.cid, $0.deviceSecret) = (DeviceID(high: 8, low: 8), CoreDriver.secret) }
            } else {
                try Self.reconnect(&driver)
                try driver.welcome { $0.queueEpoch = 6 }
            }
            try driver.receive(CoreDriver.deliver(3))
            #expect(driver.shown == [3, 3])
            driver.perform(.finish(taken, .processed))
            #expect(driver.acks.isEmpty)
            #expect(driver.stored?.streams.isEmpty == true)
        }
    }

    @Test("a fetch is not complete while a verdict is missing, and ends in time anyway")
    func fetch() throws {
        var driver = try CoreDriver.ready()
        driver.isSlow = true
        driver.perform(.fetch(milliseconds: 20_000))
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2))
        driver.pass(milliseconds: 2 * Limits.fetchQuietMilliseconds)
        #expect(!driver.events.contains { if case .fetched = $0 { true } else { false } })
        driver.perform(.finish(driver.open[0], .processed))
        driver.pass(milliseconds: 20_000)
        #expect(driver.events.contains(.fetched(messages: 1, isComplete: false)))
    }

    @Test("more bytes than any window end the connection before they fill the memory")
    func bytes() throws {
        var driver = try CoreDriver.ready()
        driver.isSlow = true
        var sequence: UInt64 = 0
        while driver.log.last != "disconnect", sequence < 1_000 {
            sequence += 1
            try driver.receive(CoreDriver.deliver(sequence) { $0.payload = [UInt8](repeating: 1, count: 60_000) })
        }
        #expect(sequence == UInt64(Limits.handlingByteCount / 60_000) + 1)
    }

    @Test("when the state cannot be stored, undelivered messages are given to the app later")
    func storeFails() throws {
        var driver = try CoreDriver.ready()
        driver.isSlow = true
        driver.storeFails = true
        // The report makes the state dirty in the middle of the turn.
        try driver.receive(CoreDriver.deliver(1))
        driver.perform(.opened(MessageID(high: 1, low: 1)))
        driver.storeFails = false
        driver.pass(milliseconds: try #require(driver.wait))
        driver.connect()
        try driver.welcome()
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.shown.last == 1 && driver.open.count == 1)
    }

    @Test("an app that returns to the foreground tests its connection, or ends a wait of the client's own")
    func resume() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.applicationState(.background, keepsRunning: false))
        #expect(driver.pings.isEmpty)
        driver.perform(.applicationState(.foreground, keepsRunning: false))
        #expect(driver.pings.count == 1)
        driver.perform(.applicationState(.background, keepsRunning: false))
        driver.pass(milliseconds: Limits.pongMilliseconds)
        for _ in 0..<12 {
            driver.pass(milliseconds: Limits.backoffCapMilliseconds)
            driver.core.disconnected(reason: "no network", at: driver.now)
            driver.turn()
        }
        let attempts = driver.connectedTo.count
        driver.perform(.applicationState(.foreground, keepsRunning: false))
        driver.pass(milliseconds: Limits.backoffBaseMilliseconds)
        #expect(driver.connectedTo.count == attempts + 1)
    }
}
