import Testing
import Wire

@testable import Delivery

@Suite("When alarms are asked for")
struct AlarmReadingTests {
    private static let groups = [AlarmGroup(app: AppKey(1), kind: .held), AlarmGroup(app: AppKey(2), kind: .due)]

    @Test("a group that cannot be read waits a second, and nothing else does")
    func failedGroup() {
        var reading = AlarmReading()
        reading.asked()
        #expect(!reading.mayAsk(1_000))
        reading.answered(Self.groups[0], hasFailed: true, now: 1_000)
        #expect(reading.mayAsk(1_000))
        #expect(reading.pause(of: Self.groups[0]) == 2_000 && reading.pause(of: Self.groups[1]) == 0)
        reading.answered(Self.groups[0], hasFailed: false, now: 2_000)
        #expect(reading.pause(of: Self.groups[0]) == 0)
    }

    @Test("after a failed read of no group everything waits a second")
    func failed() {
        var reading = AlarmReading()
        reading.answered(nil, hasFailed: true, now: 1_000)
        #expect(!reading.mayAsk(1_999) && reading.mayAsk(2_000))
        #expect(reading.pause(of: Self.groups[0]) == 0)
    }
}
