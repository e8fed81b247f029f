import Testing
import Wire

@testable import LongwireClient

@Suite("Suspension")
struct SuspensionTests {
    private func result(of update: DeviceUpdate) -> UpdateResult {
        var result = UpdateResult()
        result.request = update.request
        return result
    }

    @Test("messages between suspension and the next update's result are dropped unacked, then sent again")
    func dropped() throws {
        var driver = try CoreDriver.ready()
        try driver.receive(CoreDriver.deliver(1))
        driver.perform(.applicationState(.background, keepsRunning: false))
        try driver.receive(CoreDriver.deliver(2), result(of: driver.updates[0]), CoreDriver.deliver(3))
        driver.perform(.applicationState(.foreground, keepsRunning: false))
        try driver.receive(CoreDriver.deliver(4))
        #expect(driver.shown == [1])
        #expect(driver.acks.map(\.positions) == [[StreamPosition(stream: 0, sequence: 1)]])

        try driver.receive(
            result(of: driver.updates[1]), CoreDriver.deliver(2) { $0.offline = true }, CoreDriver.deliver(3),
            CoreDriver.deliver(4))
        #expect(driver.shown == [1, 2, 3, 4])
        #expect(driver.acks.last?.positions == [StreamPosition(stream: 0, sequence: 4)])
    }

    @Test("a message dropped and never sent again does not hold back the acks of later ones")
    func expiredMeanwhile() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.applicationState(.background, keepsRunning: false))
        try driver.receive(CoreDriver.deliver(2))
        driver.perform(.applicationState(.foreground, keepsRunning: false))
        try driver.receive(result(of: driver.updates[1]), CoreDriver.deliver(5))
        #expect(
            driver.acks.last?.positions == [
                StreamPosition(stream: 0, sequence: 1, ranges: [SequenceRange(first: 3, last: 5)])
            ])
    }

    @Test("an update while still suspended does not end the dropping")
    func tokenWhileSuspended() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.applicationState(.background, keepsRunning: false))
        driver.perform(.token(VendorToken(token: "ab")))
        try driver.receive(result(of: driver.updates[0]), result(of: driver.updates[1]), CoreDriver.deliver(1))
        #expect(driver.shown.isEmpty)
    }

    @Test("a background app that keeps running is not suspended")
    func keepsRunning() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.applicationState(.background, keepsRunning: true))
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.shown == [1])
    }

    @Test("a new session starts with the state in its Hello")
    func newSession() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.applicationState(.background, keepsRunning: false))
        driver.core.disconnected(reason: "test", at: driver.now)
        driver.turn()
        driver.perform(.applicationState(.foreground, keepsRunning: false))
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.applicationState == .foreground)
        try driver.welcome()
        try driver.receive(CoreDriver.deliver(1))
        #expect(driver.shown == [1])
    }
}
