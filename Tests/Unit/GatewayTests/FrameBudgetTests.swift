import Testing
import Wire

@testable import Gateway

@Suite("The frame budget of a connection")
struct FrameBudgetTests {
    @Test(
        "every type of frame is limited", arguments: [FrameType.ack, .ping, .pong, .deviceUpdate, .feedback, .upstream])
    func floods(type: FrameType) {
        var budget = FrameBudget()
        var count = 0
        while count < 20_000, budget.take(FrameBudget.cost(of: type), second: 5) { count += 1 }
        #expect(count == 10_000 / Int(FrameBudget.cost(of: type)))
    }

    @Test("bytes and tokens also use the budget")
    func bytes() {
        var budget = FrameBudget()
        var count = 0
        while count < 20_000, budget.take(1, byteCount: 64 << 10, second: 5) { count += 1 }
        #expect(count == 10_000 / 257)
        budget = FrameBudget()
        count = 0
        while count < 20_000, budget.take(10 + FrameBudget.tokensCost, second: 5) { count += 1 }
        #expect(count == 100)
    }

    @Test("a client that acks and reports every message never exceeds the budget, which is renewed each period")
    func honest() {
        var budget = FrameBudget()
        var isFine = true
        for _ in 0..<300_000 {
            budget.earn()
            for _ in 0..<3 { isFine = budget.take(1, byteCount: 40, second: 1_000) && isFine }
        }
        #expect(isFine)
        while budget.take(10, second: 1_000) {}
        let tooSoon = budget.take(1, second: 1_009)
        let later = budget.take(1, second: 1_010)
        // The clock's seconds wrap around.
        let muchLater = budget.take(10_000, second: 65_536 + 1_500)
        #expect(!tooSoon && later && muchLater)
    }
}
