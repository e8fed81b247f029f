import Testing
import Wire

@testable import LongwireClient

@Suite("Messages to the app's server")
struct OutgoingTests {
    private func upstream(_ driver: CoreDriver) -> [Upstream] {
        driver.sent.compactMap { if case .upstream(let upstream) = $0 { upstream } else { nil } }
    }

    private static func result(_ request: UInt32, _ code: UInt32 = 0) -> UpstreamResult {
        var result = UpstreamResult()
        (result.request, result.code, result.reason) = (request, code, code == 0 ? "" : "no")
        return result
    }

    @Test("messages are sent one after another, each stored before it is sent and until its result")
    func order() throws {
        var driver = try CoreDriver.ready()
        driver.log = []
        for byte in [1, 2, 3] as [UInt8] { driver.perform(.send([byte], answering: .none)) }
        #expect(driver.log.first == "persist" && driver.stored?.outgoing.map(\.number) == [1, 2, 3])
        #expect(upstream(driver).map(\.request) == [1])
        try driver.receive(Self.result(1))
        #expect(upstream(driver).map(\.request) == [1, 2] && driver.stored?.outgoing.map(\.number) == [2, 3])
        // A result of another message settles nothing.
        try driver.receive(Self.result(3))
        #expect(driver.stored?.outgoing.count == 2)
        try driver.receive(Self.result(2))
        try driver.receive(Self.result(3))
        #expect(upstream(driver).map(\.payload) == [[1], [2], [3]] && driver.stored?.outgoing == [])
        let taken = driver.events.compactMap { if case .messageTaken(let message) = $0 { message.number } else { nil } }
        #expect(taken == [1, 2, 3])
    }

    @Test("a message without its result is sent again under the same number, in the next session and the next process")
    func repeated() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.send([9], answering: TaskID(high: 3, low: 4)))
        driver.core.disconnected(reason: "gone", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 10_000)
        driver.connect()
        try driver.welcome()
        #expect(upstream(driver).map(\.request) == [1, 1])
        var later = try CoreDriver.ready(try #require(driver.stored))
        #expect(upstream(later).map(\.request) == [1] && upstream(later).map(\.taskID.low) == [4])
        try later.receive(Self.result(1))
        later.perform(.send([8], answering: .none))
        #expect(upstream(later).map(\.request) == [1, 2])
    }

    @Test("a retryable refusal repeats the message after a while; any other ends it")
    func refusals() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.send([1], answering: .none))
        driver.perform(.send([2], answering: .none))
        try driver.receive(Self.result(1, Limits.busyCode))
        #expect(upstream(driver).count == 1 && driver.stored?.outgoing.count == 2)
        driver.pass(milliseconds: Limits.busyRetryMilliseconds)
        #expect(upstream(driver).map(\.request) == [1, 1])
        try driver.receive(Self.result(1, 100))
        driver.pass(milliseconds: Limits.busyRetryMilliseconds)
        #expect(upstream(driver).count == 2)
        driver.pass(milliseconds: Limits.fullRetryMilliseconds)
        #expect(upstream(driver).map(\.request) == [1, 1, 1])
        try driver.receive(Self.result(1, 1))
        #expect(upstream(driver).map(\.request) == [1, 1, 1, 2])
        let refused = driver.events.contains {
            if case .messageRefused(let message, 1, "no") = $0 { message.number == 1 } else { false }
        }
        #expect(refused)
    }

    @Test("messages before the start are kept by number, within a bound, and survive a lost registration")
    func bounds() throws {
        var state = CoreDriver.registered
        for _ in 0..<200 { state.keep(.send([1], answering: .none)) }
        #expect(state.outgoing.count == Limits.outgoingCount && state.lastOutgoing == UInt32(Limits.outgoingCount))
        #expect(try ClientState(serialized: state.serialized) == state)
        state.forgetRegistration()
        #expect(state.outgoing.count == Limits.outgoingCount)
        var driver = CoreDriver(state: state)
        driver.perform(.send([1], answering: .none))
        let refused = driver.events.contains { if case .messageRefused(_, 0, _) = $0 { true } else { false } }
        #expect(refused)
        var large = CoreDriver.registered
        for _ in 0..<64 { large.keep(.send([UInt8](repeating: 0, count: 16 << 10), answering: .none)) }
        #expect(large.outgoing.count == 32)
    }
}
