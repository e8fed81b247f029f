import Testing
import Wire

@testable import LongwireClient

@Suite("Removed tokens")
struct RemovedTokenTests {
    private static let removal = VendorToken(channel: .fcm)
    private static let token = VendorToken(channel: .fcm, token: "old")

    private static func removals(_ driver: CoreDriver) -> [VendorToken] {
        driver.updates.flatMap(\.tokens).filter(\.token.isEmpty)
    }

    private static func result(of update: DeviceUpdate) -> UpdateResult {
        var result = UpdateResult()
        result.request = update.request
        return result
    }

    @Test("a removal without a session is sent in each next session until it is confirmed, also after a restart")
    func kept() throws {
        let store = MemoryStateStore(CoreDriver.registered)
        let client = LongwireClient(
            configuration: ClientConfiguration(host: "127.0.0.1", port: 9, appID: "demo", appSecret: "s"), store: store)
        client.setToken(VendorToken(channel: .fcm, topic: "app"))
        let state = try ClientState(serialized: try #require(store.load()).serialized)
        #expect(state.removedTokens == [Self.removal])

        var driver = try CoreDriver.ready(state)
        #expect(Self.removals(driver) == [Self.removal])
        driver.core.disconnected(reason: "cut", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 60_000)
        driver.connect()
        try driver.welcome()
        #expect(Self.removals(driver) == [Self.removal, Self.removal], "the first update was not confirmed")
        try driver.receive(Self.result(of: try #require(driver.updates.last)))
        #expect(driver.stored?.removedTokens == [])
    }

    @Test("a removal in a session that ends before the result is sent again")
    func unconfirmed() throws {
        var driver = try CoreDriver.ready { $0.tokens = [Self.token] }
        driver.perform(.token(VendorToken(channel: .fcm, environment: .sandbox, topic: "app")))
        #expect(driver.stored?.removedTokens == [Self.removal])
        driver.core.disconnected(reason: "cut", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 60_000)
        driver.connect()
        try driver.welcome()
        #expect(Self.removals(driver).last == Self.removal && Self.removals(driver).count == 2)
        try driver.receive(Self.result(of: try #require(driver.updates.last)))
        #expect(driver.stored?.removedTokens == [])
    }

    @Test("a token that is set again is not removed, and a later removal outlives the result of an earlier one")
    func setAgain() throws {
        var state = CoreDriver.registered
        _ = state.note(Self.removal)
        var driver = try CoreDriver.ready(state) { $0.tokens = [Self.token] }
        #expect(Self.removals(driver).isEmpty && driver.stored?.removedTokens == [])
        driver.perform(.token(Self.removal))
        driver.perform(.token(Self.token))
        #expect(driver.stored?.removedTokens == [])
        driver.perform(.token(Self.removal))
        try driver.receive(Self.result(of: driver.updates[0]))
        #expect(driver.stored?.removedTokens == [Self.removal])
        try driver.receive(Self.result(of: driver.updates[2]))
        #expect(driver.stored?.removedTokens == [])
    }

    @Test("the removal for one activity leaves the others, and the list is bounded")
    func activities() {
        var state = CoreDriver.registered
        for number in 0..<40 { _ = state.note(VendorToken(kind: .liveActivity, activity: "ride \(number)")) }
        #expect(state.removedTokens.count == 16)
        _ = state.note(VendorToken(kind: .liveActivity, token: "ab", activity: "ride 39"))
        #expect(state.removedTokens.last?.activity == "ride 38")
        _ = state.note(VendorToken(kind: .liveActivity))
        #expect(state.removedTokens == [VendorToken(kind: .liveActivity)])
        var fresh = ClientState(appID: "demo")
        let isNoted = fresh.note(Self.removal)
        #expect(!isNoted, "an unregistered device has no tokens at the gateway")
    }
}
