import Testing
import Wire

@testable import LongwireClient

@Suite("Alternates")
struct AlternateTests {
    private static let home = Endpoint(host: "gateway.example", port: 7_000)
    private static let owner = Endpoint(host: "owner.example", port: 7_100)

    private static func send(_ driver: inout CoreDriver, to alternate: String) throws {
        try driver.close(.moved) { $0.alternate = alternate }
    }

    /// Waits for the announced time, and connects.
    private static func comeBack(_ driver: inout CoreDriver) throws {
        driver.pass(milliseconds: try #require(driver.wait))
        driver.connect()
    }

    @Test("the client follows at once, before and after a Welcome")
    func atOnce() throws {
        for isWelcomed in [false, true] {
            var driver = CoreDriver(state: CoreDriver.registered)
            driver.start()
            if isWelcomed { try driver.welcome() }
            try Self.send(&driver, to: "owner.example:7100")
            #expect(driver.wait == 0)
            try Self.comeBack(&driver)
            #expect(driver.connectedTo == [Self.home, Self.owner])
            #expect(driver.hellos[1].cid == CoreDriver.cid)
            #expect(driver.hellos[1].timestamp > driver.hellos[0].timestamp)
        }
    }

    @Test("a retry window beside the alternate is kept")
    func window() throws {
        var driver = try CoreDriver.ready()
        try driver.close(.moved) {
            ($0.alternate, $0.retryAfterMinimum, $0.retryAfterMaximum) = ("owner.example:7100", 5_000, 9_000)
        }
        #expect((5_000...9_000).contains(try #require(driver.wait)))
        try Self.comeBack(&driver)
        #expect(driver.connectedTo.last == Self.owner)
    }

    @Test("an unreachable alternate is dropped, and the configured address is next")
    func unreachable() throws {
        var driver = try CoreDriver.ready()
        try Self.send(&driver, to: "owner.example:7100")
        driver.pass(milliseconds: 0)
        driver.core.disconnected(reason: "refused", at: driver.now)
        driver.turn()
        try Self.comeBack(&driver)
        #expect(driver.connectedTo == [Self.home, Self.owner, Self.home])
    }

    @Test("an alternate that never answers is dropped, too")
    func silent() throws {
        var driver = try CoreDriver.ready()
        try Self.send(&driver, to: "owner.example:7100")
        driver.pass(milliseconds: 0)
        driver.pass(milliseconds: Limits.connectMilliseconds)
        try Self.comeBack(&driver)
        #expect(driver.connectedTo.last == Self.home)
    }

    @Test("an alternate serves one session; however it ends, the configured address is next")
    func oneSession() throws {
        for code in [nil, .goodbye, .shuttingDown, .replaced, .internalError, .clockSkew] as [CloseCode?] {
            var driver = try CoreDriver.ready()
            try Self.send(&driver, to: "owner.example:7100")
            try Self.comeBack(&driver)
            try driver.welcome()
            for _ in 0..<3 { try driver.stayAlive() }
            if let code {
                try driver.close(code)
            } else {
                driver.core.disconnected(reason: "reset", at: driver.now)
                driver.turn()
            }
            try Self.comeBack(&driver)
            #expect(driver.connectedTo == [Self.home, Self.owner, Self.home], "\(String(describing: code))")
        }
    }

    @Test("an alternate's refusal before its Welcome neither stops the client nor costs its registration")
    func refusal() throws {
        for code in [CloseCode.badProof, .unknownApp, .unknownDevice, .wrongListener] {
            var driver = try CoreDriver.ready()
            try Self.send(&driver, to: "owner.example:7100")
            try Self.comeBack(&driver)
            try driver.close(code)
            #expect(!driver.core.isStopped)
            try Self.comeBack(&driver)
            #expect(driver.connectedTo.last == Self.home)
            #expect(driver.hellos.last?.cid == CoreDriver.cid)
        }
    }

    @Test("a wrong clock is corrected at the gateway that reported it")
    func clockSkew() throws {
        var driver = try CoreDriver.ready()
        try Self.send(&driver, to: "owner.example:7100")
        try Self.comeBack(&driver)
        try driver.close(.clockSkew) { $0.serverTime = 1_800_000_000_000 }
        #expect(driver.wait == 0)
        try Self.comeBack(&driver)
        #expect(driver.connectedTo == [Self.home, Self.owner, Self.owner])
    }

    @Test("gateways that redirect a client in a circle end in backoff", arguments: [false, true])
    func circle(isWelcomed: Bool) throws {
        for names in [
            ["owner.example:7100", "gateway.example:7000"], ["a:1", "b:2", "c:3"], ["gateway.example:7000"],
        ] {
            var driver = CoreDriver(state: CoreDriver.registered)
            driver.start()
            var waits: [Int64] = []
            for round in 0..<60 {
                if isWelcomed { try driver.welcome() }
                try Self.send(&driver, to: names[round % names.count])
                waits.append(try #require(driver.wait))
                try Self.comeBack(&driver)
            }
            #expect(waits.suffix(20).reduce(0, +) > 60_000, "\(names): \(waits)")
        }
    }

    @Test("a redirect after a lasting session at an alternate is followed at once")
    func movedAgain() throws {
        var driver = try CoreDriver.ready()
        try Self.send(&driver, to: "owner.example:7100")
        try Self.comeBack(&driver)
        try driver.welcome()
        for _ in 0..<3 { try driver.stayAlive() }
        try Self.send(&driver, to: "next.example:7200")
        #expect(driver.wait == 0)
        try Self.comeBack(&driver)
        #expect(driver.connectedTo.last == Endpoint(host: "next.example", port: 7_200))
    }

    @Test("a client without reconnects follows a redirect before its session, and not after it")
    func noReconnect() throws {
        var driver = CoreDriver(state: CoreDriver.registered) { $0.reconnects = false }
        driver.start()
        try Self.send(&driver, to: "owner.example:7100")
        try Self.comeBack(&driver)
        try driver.welcome()
        try Self.send(&driver, to: "next.example:7200")
        #expect(driver.core.isStopped)
    }
}
