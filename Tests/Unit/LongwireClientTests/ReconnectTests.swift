import Foundation
import Testing
import Wire

@testable import LongwireClient

@Suite("Reconnecting")
struct ReconnectTests {
    @Test("failures wait longer each time, at random, up to the cap")
    func backoff() {
        var ceilings = Set<Int64>()
        for seed: UInt64 in 0..<200 {
            var backoff = Backoff(seed: seed)
            for attempt in 0..<20 {
                let ceiling = min(Limits.backoffCapMilliseconds, Limits.backoffBaseMilliseconds << Int64(attempt))
                let wait = backoff.next()
                #expect((0...ceiling).contains(wait))
                if wait > ceiling * 9 / 10 { ceilings.insert(ceiling) }
            }
        }
        // 1, 2, 4 … 64 s, then the cap.
        #expect(ceilings.count == 8, "full jitter reaches up to each ceiling")
    }

    @Test(
        "the protocol's pages have the client's times", arguments: ["docs/use/Protocol.md", "Proto/README.md"])
    func pages(name: String) throws {
        let repository = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let page = try String(contentsOf: repository.appendingPathComponent(name), encoding: .utf8)
            .split(whereSeparator: \.isWhitespace).joined(separator: " ")
        #expect(Limits.backoffBaseMilliseconds == 1_000 && Limits.steadyMilliseconds == 60_000)
        #expect(page.contains("min(1 s × 2ⁿ, \(Limits.backoffCapMilliseconds / 1_000) s)"))
        #expect(page.contains("lasted for a minute") || page.contains("lasted a minute"))
        #expect(page.contains("\(Limits.replacedMilliseconds / 1_000) s"))
    }

    @Test("every code has its rule", arguments: CloseCode.allCases)
    func rules(code: CloseCode) throws {
        var driver = try CoreDriver.ready()
        try driver.close(code)
        #expect(driver.log.contains("disconnect"))
        #expect(driver.events.contains(.closed(code: code.rawValue, reason: "")))
        switch (code, code.rawValue / 100) {
        case (.replaced, _): #expect(try #require(driver.wait) >= 30_000)
        case (_, 4):
            #expect(driver.core.isStopped)
            let end = try #require(driver.events.last)
            if case .stopped(let error) = end {
                #expect(error?.closeCode == code.rawValue)
            } else {
                Issue.record("\(end)")
            }
        default: #expect(try #require(driver.wait) <= 1_000)
        }
    }

    @Test("codes of a newer gateway follow the rule of their hundred")
    func newCodes() throws {
        for (code, stops) in [(199, false), (299, false), (499, true), (599, false), (999, false), (3, false)] {
            var driver = try CoreDriver.ready()
            var close = Close()
            close.code = UInt32(code)
            try driver.receive(close)
            #expect(driver.core.isStopped == stops, "code \(code)")
        }
    }

    @Test("a retry window is honored, and a gateway cannot keep a client offline longer than an hour")
    func window() throws {
        for (least, most, allowed) in [
            (5_000, 9_000, 5_000...9_000), (7_000, 0, 7_000...7_000), (.max, .max, 3_600_000...3_600_000),
        ] as [(UInt32, UInt32, ClosedRange<Int64>)] {
            var driver = try CoreDriver.ready()
            try driver.close(.shuttingDown) {
                ($0.retryAfterMinimum, $0.retryAfterMaximum) = (least, most)
            }
            #expect(allowed.contains(try #require(driver.wait)))
            let attempts = driver.connectedTo.count
            driver.pass(milliseconds: allowed.lowerBound - 1)
            #expect(driver.connectedTo.count == attempts)
            driver.pass(milliseconds: allowed.upperBound)
            #expect(driver.connectedTo.count == attempts + 1)
        }
    }

    @Test("addresses are parsed strictly")
    func endpoints() {
        #expect(ClientCore.endpoint("[::1]:7000") == Endpoint(host: "::1", port: 7_000))
        for text in [
            "", "host", "host:", "host:0", "host:70000", ":7000", "::1:7000", "[]:7", "host:+7000", "a b:7", "a\0b:7",
            "http://a:7", "a@b:7", "[::1:7", "a,b:7",
        ] {
            #expect(ClientCore.endpoint(text) == nil, "\(text)")
        }
    }

    @Test("a wrong clock is corrected by one immediate retry; a second refusal waits")
    func clockSkew() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.now.wall += 86_400_000
        driver.start()
        let gatewayTime = UInt64(driver.now.wall - 86_400_000)
        try driver.close(.clockSkew) { $0.serverTime = gatewayTime }
        #expect(driver.wait == 0)
        driver.pass(milliseconds: 1)
        driver.connect()
        #expect(driver.hellos[1].timestamp == gatewayTime + 1)
        #expect(driver.stored?.clockOffset == -86_400_000)
        driver.events = []
        driver.core.persist()
        try driver.close(.clockSkew) { $0.serverTime = gatewayTime }
        #expect(driver.wait != nil)
        #expect(driver.core.skewRetryCount == 2)
    }

    @Test("a device that the gateway has removed registers again, once")
    func unknownDevice() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        try driver.close(.unknownDevice)
        #expect(driver.events.contains(.registrationLost(CoreDriver.cid)))
        driver.pass(milliseconds: 1)
        driver.connect()
        #expect(driver.hellos[1].registration)
        #expect(driver.hellos[1].positions.isEmpty)
        try driver.close(.unknownDevice)
        #expect(driver.core.isStopped)
    }

    @Test("a session is kept alive by pings, and ended when one is not answered")
    func heartbeat() throws {
        var driver = try CoreDriver.ready()
        driver.pass(milliseconds: 59_999)
        #expect(driver.pings.isEmpty)
        driver.pass(milliseconds: 1)
        #expect(driver.pings.count == 1)
        try driver.receive(Pong(nonce: driver.pings[0].nonce))
        driver.pass(milliseconds: 60_000)
        #expect(driver.pings.count == 2)
        driver.pass(milliseconds: Limits.pongMilliseconds - 1)
        #expect(driver.log.last != "disconnect")
        driver.pass(milliseconds: 1)
        #expect(driver.log.last == "disconnect")
        #expect(driver.wait != nil)
    }

    @Test("a connection that dies while the machine sleeps does not shorten the heartbeat", arguments: [false, true])
    func sleep(isLong: Bool) throws {
        var driver = try CoreDriver.ready()
        driver.pass(milliseconds: isLong ? 8 * 3_600_000 : 60_000)
        #expect(driver.pings.count == 1)
        driver.pass(milliseconds: Limits.pongMilliseconds)
        #expect(driver.wait != nil)
        #expect(driver.core.heartbeat.learnt == (isLong ? nil : 30))
    }

    @Test("the gateway's ping is answered with its nonce")
    func pong() throws {
        var driver = try CoreDriver.ready()
        try driver.receive(Ping(nonce: 77))
        #expect(driver.sent.last == .pong(Pong(nonce: 77)))
    }

    @Test("no connection and no Welcome in time are failures like any other")
    func deadlines() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.core.start(at: driver.now)
        driver.turn()
        driver.pass(milliseconds: Limits.connectMilliseconds)
        #expect(driver.wait != nil)
        driver.events = []
        driver.pass(milliseconds: 10_000)
        driver.connect()
        driver.pass(milliseconds: Limits.welcomeMilliseconds)
        #expect(driver.wait != nil)
    }

    @Test("stopping acks handled messages, sends a Close and stays stopped")
    func stop() throws {
        var driver = try CoreDriver.ready()
        try driver.receive(CoreDriver.deliver(1))
        driver.perform(.stop)
        #expect(driver.log.suffix(2) == ["close", "disconnect"])
        #expect(driver.events.last == .stopped(nil))
        let log = driver.log
        driver.pass(milliseconds: 10_000_000)
        #expect(driver.log == log)
        #expect(driver.core.deadline == nil)
    }

    @Test("a stop repeats a write that failed, and reports the stop once", arguments: [false, true])
    func stopAfterFailedWrite(failsAgain: Bool) throws {
        var driver = try CoreDriver.ready()
        let id = MessageID(high: 1, low: 1)
        driver.storeFails = true
        driver.perform(.opened(id))
        #expect(driver.stored?.unreportedOpened == [])
        driver.storeFails = failsAgain
        driver.perform(.stop)
        #expect(driver.stored?.unreportedOpened == (failsAgain ? [] : [id]))
        let ends = driver.events.filter { if case .stopped = $0 { true } else { false } }
        #expect(ends.count == 1)
    }

    @Test("without reconnects the first end is the last, but a wrong clock is still corrected")
    func noReconnect() throws {
        var driver = CoreDriver(state: CoreDriver.registered) { $0.reconnects = false }
        driver.start()
        try driver.close(.clockSkew) { $0.serverTime = 5 }
        driver.pass(milliseconds: 1)
        driver.connect()
        try driver.welcome()
        try driver.close(.shuttingDown)
        #expect(driver.core.isStopped)
    }

    @Test("a recovered network ends the client's own wait within a second, and tests an open connection")
    func networkChanged() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.networkChanged(name: nil))
        #expect(driver.pings.count == 1)
        driver.perform(.networkChanged(name: nil))
        #expect(driver.pings.count == 1, "one test at a time")
        driver.pass(milliseconds: Limits.pongMilliseconds)
        for _ in 0..<12 {
            driver.pass(milliseconds: Limits.backoffCapMilliseconds)
            driver.core.disconnected(reason: "no network", at: driver.now)
            driver.turn()
        }
        let attempts = driver.connectedTo.count
        driver.perform(.networkChanged(name: nil))
        driver.pass(milliseconds: Limits.backoffBaseMilliseconds)
        #expect(driver.connectedTo.count == attempts + 1)
    }

    @Test("a recovered network does not shorten a wait that the gateway requested")
    func networkChangedInWindow() throws {
        var driver = try CoreDriver.ready()
        try driver.close(.shuttingDown) { ($0.retryAfterMinimum, $0.retryAfterMaximum) = (60_000, 60_000) }
        let attempts = driver.connectedTo.count
        driver.perform(.networkChanged(name: nil))
        driver.pass(milliseconds: 59_000)
        #expect(driver.connectedTo.count == attempts)
        driver.pass(milliseconds: 1_000)
        #expect(driver.connectedTo.count == attempts + 1)
    }

    @Test("a gateway that forgets the clock or the device after each Welcome is retried with a delay")
    func correctedForEver() throws {
        for code in [CloseCode.clockSkew, .unknownDevice] {
            var driver = CoreDriver(state: CoreDriver.registered)
            driver.start()
            var waits: [Int64] = []
            for _ in 0..<24 {
                try driver.welcome { ($0.cid, $0.deviceSecret) = (CoreDriver.cid, CoreDriver.secret) }
                try driver.close(code) { $0.serverTime = 1_700_000_000_000 }
                waits.append(try #require(driver.wait))
                driver.pass(milliseconds: try #require(driver.wait))
                driver.connect()
            }
            #expect(waits.first == 0)
            #expect(waits.dropFirst(8).contains { $0 > 10_000 }, "\(code): \(waits)")
        }
    }

    @Test("consecutive short windows end in backoff, and a lasting session resets it")
    func tinyWindows() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        var waits: [Int64] = []
        for _ in 0..<24 {
            try driver.close(.overloaded) { $0.retryAfterMaximum = 1 }
            waits.append(try #require(driver.wait))
            driver.pass(milliseconds: try #require(driver.wait))
            driver.connect()
        }
        #expect(waits.dropFirst(8).contains { $0 > 10_000 }, "\(waits)")
        try driver.welcome()
        for _ in 0..<2 { try driver.stayAlive() }
        try driver.close(.overloaded) { $0.retryAfterMaximum = 1 }
        #expect(try #require(driver.wait) <= 1_000)
    }

    @Test("no gateway time overflows the offset, even with a clock before 1970")
    func absurdTimes() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.now.wall = -5
        driver.start()
        for time in [UInt64(Int64.max), .max, 1] {
            try driver.close(.clockSkew) { $0.serverTime = time }
            driver.pass(milliseconds: try #require(driver.wait))
            driver.connect()
        }
        #expect(!driver.core.isStopped)
    }
}
