import Testing
import Wire

@testable import Delivery

@Suite("When alarms are asked for")
struct AlarmReadingTests {
    private static let piles = [AlarmPile(app: AppKey(1), kind: .held), AlarmPile(app: AppKey(2), kind: .due)]

    @Test("a pile that cannot be read waits a second, and nothing else does")
    func failedPile() {
        var reading = AlarmReading()
        reading.asked()
        #expect(!reading.mayAsk(1_000))
        reading.answered(Self.piles[0], hasFailed: true, now: 1_000)
        #expect(reading.mayAsk(1_000))
        #expect(reading.pause(of: Self.piles[0]) == 2_000 && reading.pause(of: Self.piles[1]) == 0)
        reading.answered(Self.piles[0], hasFailed: false, now: 2_000)
        #expect(reading.pause(of: Self.piles[0]) == 0)
    }

    @Test("after a failed read of no pile everything waits a second")
    func failed() {
        var reading = AlarmReading()
        reading.answered(nil, hasFailed: true, now: 1_000)
        #expect(!reading.mayAsk(1_999) && reading.mayAsk(2_000))
        #expect(reading.pause(of: Self.piles[0]) == 0)
    }
}
