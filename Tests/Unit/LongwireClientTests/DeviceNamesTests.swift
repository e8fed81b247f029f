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
        // A result of another request answers nothing.
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

    @Test("requests beyond the bound are answered as busy, and names of the gateway's reach the answer")
    func bound() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.start()
        for request in 1...UInt32(Limits.namesCount + 1) { driver.perform(.names(Self.bind(request))) }
        #expect(answers(driver).map(\.request) == [UInt32(Limits.namesCount + 1)])
        #expect(answers(driver).first?.code == Limits.busyCode)
        try driver.welcome()
        var result = Self.result(1)
        (result.alias, result.tags) = ("one", ["a", "b"])
        try driver.receive(result)
        #expect(answers(driver).last?.names == OwnNames(alias: "one", tags: ["a", "b"]))
    }

    @Test("a token registers, proves its Hello, and binds its alias in each session before the app's requests")
    func token() throws {
        var driver = CoreDriver { ($0.registrationToken, $0.appSecret) = ("a.b.c", "") }
        driver.perform(.names(Self.bind(1)))
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
            try await client.addTags((0...100).map { "\($0)" })
        }
        #expect(many?.code == .namesRefused)
    }

    @Test("a stop ends the calls that wait")
    func stopped() async {
        let board = NamesBoard()
        let answer = await withCheckedContinuation { continuation in
            _ = board.add(continuation)
            board.note(.stopped(nil))
        }
        #expect(answer == nil)
    }
}
