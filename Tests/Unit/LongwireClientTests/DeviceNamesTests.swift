import Testing
import Wire

@testable import LongwireClient

@Suite("The device's own names")
struct DeviceNamesTests {
    private static func bind(_ request: UInt32, _ alias: String = "one") -> DeviceNames {
        var names = DeviceNames()
        (names.request, names.operation, names.alias) = (request, .bindAlias, alias)
        return names
    }

    private static func result(_ request: UInt32, _ code: UInt32 = 0) -> DeviceNamesResult {
        var result = DeviceNamesResult()
        (result.request, result.code, result.reason) = (request, code, code == 0 ? "" : "no")
        return result
    }

    private func sent(_ driver: CoreDriver) -> [UInt32] {
        driver.sent.compactMap { if case .names(let names) = $0 { names.request } else { nil } }
    }

    private func answers(_ driver: CoreDriver) -> [NamesAnswer] {
        driver.events.compactMap { if case .namesAnswered(let answer) = $0 { answer } else { nil } }
    }

    @Test("requests are sent one after another, and each result answers its request")
    func order() throws {
        var driver = try CoreDriver.ready()
        for request in 1...3 as ClosedRange<UInt32> { driver.perform(.names(Self.bind(request))) }
        #expect(sent(driver) == [1])
        // The result of another request is ignored.
        try driver.receive(Self.result(2))
        #expect(answers(driver).isEmpty)
        try driver.receive(Self.result(1), Self.result(1))
        try driver.receive(Self.result(2, 3))
        #expect(sent(driver) == [1, 2, 3])
        #expect(answers(driver).map(\.request) == [1, 2] && answers(driver).map(\.code) == [0, 3])
    }

    @Test("a request without a result is sent again in the next session")
    func reconnect() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.names(Self.bind(1)))
        driver.core.disconnected(reason: "gone", at: driver.now)
        driver.turn()
        driver.perform(.names(Self.bind(2)))
        driver.pass(milliseconds: 10_000)
        driver.connect()
        try driver.welcome()
        #expect(sent(driver) == [1, 1])
        try driver.receive(Self.result(1))
        #expect(sent(driver) == [1, 1, 2])
    }

    @Test("requests beyond the bound are answered as busy, and a query's answer has the names")
    func bound() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        for request in 1...UInt32(Limits.namesCount + 1) {
            var names = Self.bind(request)
            if request == 1 { names.operation = .query }
            driver.perform(.names(names))
        }
        #expect(answers(driver).map(\.request) == [UInt32(Limits.namesCount + 1)])
        #expect(answers(driver).first?.code == Limits.busyCode)
        try driver.welcome()
        var result = Self.result(1)
        (result.alias, result.tags) = ("one", ["a", "b"])
        try driver.receive(result)
        #expect(answers(driver).last?.names == OwnNames(alias: "one", tags: ["a", "b"]))
        try driver.receive(Self.result(2))
        #expect(answers(driver).last.map { $0.request == 2 && $0.names == nil } == true)
    }

    @Test("a token registers, proves its Hello, and binds its alias in each session before the app's requests")
    func token() throws {
        var driver = CoreDriver { ($0.registrationToken, $0.appSecret) = ("a.b.c", "") }
        var tags = DeviceNames()
        (tags.request, tags.operation) = (1, .setTags)
        driver.perform(.names(tags))
        driver.start()
        let hello = try #require(driver.hellos.last)
        #expect(hello.registration && hello.registrationToken == "a.b.c")
        var unsigned = hello
        unsigned.proof = []
        var transcript = ClientCore.transcriptPrefix
        unsigned.appendBody(to: &transcript)
        let cryptography = SystemCryptography()
        #expect(hello.proof == cryptography.authenticationCode(of: transcript, key: Array("a.b.c".utf8)))
        try driver.welcome { ($0.cid, $0.deviceSecret) = (CoreDriver.cid, CoreDriver.secret) }
        #expect(sent(driver) == [0])
        driver.core.disconnected(reason: "gone", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.registrationToken == "")
        try driver.welcome()
        #expect(sent(driver) == [0, 0])
        try driver.receive(Self.result(0))
        #expect(sent(driver) == [0, 0, 1])
    }

    private static func withToken(_ state: ClientState = CoreDriver.registered) throws -> CoreDriver {
        try CoreDriver.ready(state) { $0.registrationToken = "a.b.c" }
    }

    private func reconnect(_ driver: inout CoreDriver) throws {
        driver.core.disconnected(reason: "gone", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 10_000)
        driver.connect()
        try driver.welcome()
    }

    @Test("the token's alias is bound once, and never after the app has bound another user's")
    func tokenOnce() throws {
        var driver = try Self.withToken()
        try driver.receive(Self.result(0))
        try reconnect(&driver)
        #expect(sent(driver) == [0])
        var other = try Self.withToken()
        other.perform(.names(Self.bind(1, "another user")))
        try other.receive(Self.result(0, Limits.busyCode))
        try other.receive(Self.result(1))
        try reconnect(&other)
        other.pass(milliseconds: Limits.fullRetryMilliseconds)
        #expect(sent(other) == [0, 1])
    }

    @Test("a token's alias that the gateway cannot bind now is requested again later")
    func tokenLater() throws {
        var driver = try Self.withToken()
        try driver.receive(Self.result(0, Limits.busyCode))
        #expect(sent(driver) == [0])
        driver.pass(milliseconds: Limits.fullRetryMilliseconds)
        #expect(sent(driver) == [0, 0])
        try driver.receive(Self.result(0, 6))
        try reconnect(&driver)
        #expect(sent(driver) == [0, 0])
    }

    @Test("a device with only a token registers again when the gateway has lost it")
    func registersAgain() throws {
        var driver = CoreDriver(state: CoreDriver.registered) { ($0.registrationToken, $0.appSecret) = ("a.b.c", "") }
        driver.start()
        try driver.close(.unknownDevice)
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.registration == true && driver.hellos.last?.registrationToken == "a.b.c")
    }

    @Test("a new device after a lost registration gets the token's alias again, unless the app has bound another")
    func aliasOfANewDevice() throws {
        for request in [nil, 1] as [UInt32?] {
            var driver = try Self.withToken()
            try driver.receive(Self.result(0))
            if let request {
                driver.perform(.names(Self.bind(request)))
                try driver.receive(Self.result(request))
            }
            let before = sent(driver)
            try driver.close(.unknownDevice)
            driver.pass(milliseconds: 10_000)
            driver.connect()
            try driver.welcome { ($0.cid, $0.deviceSecret) = (CoreDriver.cid, CoreDriver.secret) }
            #expect(sent(driver) == before + (request == nil ? [0] : []))
        }
    }

    @Test("a retry of the token's alias waits for the request in flight without a wake-up of its own")
    func retryBehindARequest() throws {
        var driver = try Self.withToken()
        try driver.receive(Self.result(0, Limits.busyCode))
        driver.pass(milliseconds: Limits.fullRetryMilliseconds - 1)
        var tags = DeviceNames()
        (tags.request, tags.operation) = (1, .setTags)
        driver.perform(.names(tags))
        driver.pass(milliseconds: 1)
        #expect(driver.core.names.deadline.map { $0 > driver.now.monotonic } == true)
    }

    @Test("calls of a client that does not run, and calls with too long names, fail at once")
    func failures() async {
        let client = LongwireClient(
            configuration: ClientConfiguration(host: "gateway.example", port: 7_000, appID: "demo", appSecret: "app"),
            store: FileStateStore(path: "/nonexistent/state"))
        let idle = await #expect(throws: LongwireClientError.self) { try await client.bindAlias("one") }
        #expect(idle?.code == .wrongState)
        let long = await #expect(throws: LongwireClientError.self) {
            try await client.setTags([String(repeating: "x", count: 257)])
        }
        #expect(long?.code == .namesRefused)
        let many = await #expect(throws: LongwireClientError.self) {
            try await client.addTags((0...200).map { "\($0)" })
        }
        let large = await #expect(throws: LongwireClientError.self) {
            try await client.addTags((0..<200).map { "\($0)" + String(repeating: "x", count: 200) })
        }
        #expect(large?.code == .namesRefused)
        #expect(many?.code == .namesRefused)
    }

    @Test("a stop and a cancellation end the calls that wait, each once")
    func ends() async {
        let board = NamesBoard()
        func outcome(_ end: @escaping (UInt32) -> Void) async -> LongwireClientError.Code? {
            let request = board.nextRequest()
            let outcome = await withCheckedContinuation { continuation in
                if board.add(request, continuation) { end(request) }
            }
            board.cancel(request)
            if case .failed(let code, _) = outcome { return code }
            return nil
        }
        #expect(await outcome { _ in board.note(.stopped(nil)) } == .wrongState)
        #expect(await outcome { board.cancel($0) } == .tryLater)
        let request = board.nextRequest()
        board.cancel(request)
        let early = await withCheckedContinuation { #expect(!board.add(request, $0)) }
        guard case .failed(.tryLater, _) = early else {
            Issue.record("a call that was cancelled before it waited has another outcome: \(early)")
            return
        }
    }

    @Test("an answer that arrives while the state cannot be stored still reaches its caller")
    func notStored() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.names(Self.bind(1)))
        driver.storeFails = true
        driver.core.perform(.opened(MessageID(high: 1, low: 1)), at: driver.now)
        try driver.receive(Self.result(1))
        #expect(answers(driver).map(\.request) == [1])
    }

    @Test("a session that brings no answer ends, and the request is sent in the next one")
    func silence() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.names(Self.bind(1)))
        driver.pass(milliseconds: Limits.namesMilliseconds - 1)
        #expect(driver.core.phase == .ready)
        driver.pass(milliseconds: 1)
        #expect(driver.core.phase != .ready)
        driver.pass(milliseconds: 10_000)
        driver.connect()
        try driver.welcome()
        #expect(sent(driver) == [1, 1])
    }
}
