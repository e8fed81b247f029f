import Cryptography
import Testing
import Wire

@testable import LongwireClient

@Suite("Handshake")
struct HandshakeTests {
    @Test("a new device registers, and stores its secret before anything else")
    func registration() throws {
        var driver = CoreDriver()
        driver.start()
        let hello = try #require(driver.hellos.first)
        #expect(hello.registration && hello.cid.isNone)
        #expect(driver.log == ["persist", "hello"], "the timestamp is stored before it is sent")
        driver.log = []
        try driver.welcome {
            $0.cid = CoreDriver.cid
            $0.deviceSecret = CoreDriver.secret
        }
        #expect(driver.log.first == "persist")
        #expect(driver.stored?.cid == CoreDriver.cid)
        #expect(driver.stored?.deviceSecret == CoreDriver.secret)
        #expect(driver.stored?.queueEpoch == 5)
        #expect(driver.events.contains(.registered(CoreDriver.cid)))
    }

    @Test("a registration's Welcome without a cid or with a short secret is refused")
    func badRegistration() throws {
        for secret in [[], [UInt8](repeating: 1, count: 31)] {
            var driver = CoreDriver()
            driver.start()
            try driver.welcome {
                $0.cid = CoreDriver.cid
                $0.deviceSecret = secret
            }
            #expect(driver.stored?.isRegistered == false)
            #expect(driver.log.last == "disconnect")
        }
    }

    @Test("the proof covers the label and the Hello without its proof, as the gateway extracts it")
    func proof() throws {
        for state in [nil, CoreDriver.registered] {
            var driver = CoreDriver(state: state)
            driver.start()
            var hello = try #require(driver.hellos.first)
            var whole: [UInt8] = []
            hello.appendBody(to: &whole)
            let transcript = try HelloTranscript(body: whole.span.bytes)
            let key = state == nil ? Array("app".utf8) : CoreDriver.secret
            #expect(HMACSHA256.isCode(transcript.proof, of: transcript.bytes, key: key))
            hello.proof = []
            var expected = Array("longwire hello 1".utf8)
            hello.appendBody(to: &expected)
            #expect(transcript.bytes == expected)
        }
    }

    @Test("timestamps increase even if the clock stops or moves backwards")
    func timestamps() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        driver.now.wall -= 3_600_000
        driver.core.disconnected(reason: "test", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 400_000)
        driver.connect()
        #expect(driver.hellos.count == 2)
        #expect(driver.hellos[1].timestamp > driver.hellos[0].timestamp)
        #expect(driver.stored?.lastTimestamp == driver.hellos[1].timestamp)
    }

    @Test("another queue epoch drops the positions before a message is checked")
    func epoch() throws {
        var state = CoreDriver.registered
        state.streams = [0: ProcessedSet(sequence: 100)]
        var driver = CoreDriver(state: state)
        driver.start()
        #expect(driver.hellos[0].queueEpoch == 5)
        #expect(driver.hellos[0].positions == [StreamPosition(stream: 0, sequence: 100)])
        try driver.welcome { $0.queueEpoch = 6 }
        try driver.receive(CoreDriver.deliver(3))
        #expect(driver.shown == [3])
        #expect(driver.stored?.queueEpoch == 6)
        #expect(driver.stored?.streams == [0: ProcessedSet(sequence: 3)])
        #expect(driver.events.contains(.queueReset(from: 5, to: 6)))
    }

    @Test("app calls between Hello and Welcome are sent again as an update")
    func lateChanges() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        driver.perform(.applicationState(.background, keepsRunning: true))
        driver.perform(.token(VendorToken(token: "abcd")))
        driver.perform(.badge(4))
        driver.perform(.pushModeOff(true))
        try driver.welcome()
        #expect(driver.updates.contains { $0.applicationState == .background && $0.keepsRunning == true })
        #expect(driver.updates.contains { $0.tokens == [VendorToken(token: "abcd")] })
        #expect(driver.updates.contains { $0.badge == 4 })
        #expect(driver.updates.contains { $0.pushModeOff == true })
    }

    @Test("an activity that ended between Hello and Welcome is reported as ended, and the others stay")
    func endedActivity() throws {
        let tokens = ["one", "two"].map { VendorToken(kind: .liveActivity, token: "t-\($0)", activity: $0) }
        var driver = CoreDriver(state: CoreDriver.registered)
        for token in tokens { driver.perform(.token(token)) }
        driver.start()
        driver.perform(.token(VendorToken(kind: .liveActivity, activity: "one")))
        try driver.welcome()
        #expect(driver.hellos[0].tokens == tokens)
        #expect(driver.updates.map(\.tokens) == [[VendorToken(kind: .liveActivity, activity: "one"), tokens[1]]])
    }

    @Test("a token that the app set without a connection is registered again, though the Hello names it")
    func renewedToken() throws {
        let token = VendorToken(token: "abcd")
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.perform(.token(token))
        driver.start()
        try driver.welcome()
        #expect(driver.hellos[0].tokens == [token])
        #expect(driver.updates.map(\.tokens) == [[token]])
    }

    @Test("the newest unconfirmed badge is sent again until it is confirmed")
    func newestBadge() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        driver.perform(.badge(2))
        try driver.welcome()
        driver.perform(.badge(3))
        // The first is confirmed, the second is lost with the connection.
        let first = try #require(driver.updates.first { $0.badge == 2 })
        var result = UpdateResult()
        result.request = first.request
        try driver.receive(result)
        driver.core.disconnected(reason: "x", at: driver.now)
        #expect(driver.core.pendingBadge == 3)
        driver.pass(milliseconds: 600_000)
        driver.connect()
        try driver.welcome()
        let last = try #require(driver.updates.last { $0.badge != nil })
        #expect(last.badge == 3)
        result.request = last.request
        try driver.receive(result)
        #expect(driver.core.pendingBadge == nil)
    }

    @Test("a frame before Welcome, and a second Welcome, end the connection with a code")
    func order() throws {
        var early = CoreDriver(state: CoreDriver.registered)
        early.start()
        try early.receive(CoreDriver.deliver(1))
        #expect(early.shown.isEmpty)
        #expect(early.sent.contains { if case .close(let close) = $0 { close.code == 410 } else { false } })

        var twice = try CoreDriver.ready()
        try twice.welcome()
        #expect(twice.sent.contains { if case .close(let close) = $0 { close.code == 410 } else { false } })
    }
}
