import Testing
import Wire

@testable import Gateway

@Suite struct FlapDampingTests {
    private static let device = DeviceID(high: 7, low: 9)

    /// Connects every `interval` during `duration`; returns the number of admissions and refusals, and the longest delay.
    private func come(
        _ book: inout FlapDamping, every interval: Int64, for duration: Int64, _ device: DeviceID = Self.device
    ) -> (welcomes: Int, refusals: Int, longest: Int64) {
        var (welcomes, refusals, longest) = (0, 0, Int64(0))
        var now: Int64 = 1_000
        while now < duration {
            let delay = book.delay(of: device, now: now)
            if delay > 0 {
                refusals += 1
                longest = max(longest, delay)
                now += delay
            } else {
                welcomes += 1
                _ = book.welcomed(device, now: now)
                now += interval
            }
        }
        return (welcomes, refusals, longest)
    }

    @Test func aDeviceOnABadNetworkIsNeverSlowed() {
        // Four connections a minute for a day, and ten within a minute a few times an hour.
        var book = FlapDamping()
        #expect(come(&book, every: 15_000, for: 86_400_000).refusals == 0)
        var other = FlapDamping()
        for hour in 0..<24 as Range<Int64> {
            for burst in 0..<4 as Range<Int64> {
                for step in 0..<10 as Range<Int64> {
                    let now = hour * 3_600_000 + burst * 900_000 + step * 6_000
                    #expect(other.delay(of: Self.device, now: now) == 0)
                    #expect(other.welcomed(Self.device, now: now) == 0)
                }
            }
        }
    }

    @Test func oneThatGoesOnIsSlowedTwiceAsLongEachTimeAndNeverForLongerThanAMinute() {
        var book = FlapDamping()
        for _ in 0..<20 { #expect(book.welcomed(Self.device, now: 1_000) == 0) }
        var (now, delays) = (Int64(1_000), [Int64]())
        for _ in 0..<12 {
            let delay = book.welcomed(Self.device, now: now)
            guard delay > 0 else { break }
            delays.append(delay)
            #expect(book.delay(of: Self.device, now: now) == delay)
            now += delay
            #expect(book.delay(of: Self.device, now: now) == 0)
        }
        #expect(Array(delays.prefix(6)) == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000])
        #expect(delays.allSatisfy { $0 <= FlapDamping.longestDelay })
        // Any device is admitted about four times a minute.
        var again = FlapDamping()
        let found = come(&again, every: 100, for: 3_600_000)
        #expect(found.longest <= 60_000)
        #expect(150...400 ~= found.welcomes, "\(found)")
    }

    @Test func calmForgets() {
        var book = FlapDamping()
        for _ in 0..<25 { _ = book.welcomed(Self.device, now: 1_000) }
        #expect(book.delay(of: Self.device, now: 2_000) > 0)
        let later: Int64 = 1_000 + 24 * FlapDamping.calmMilliseconds
        for _ in 0..<20 { #expect(book.welcomed(Self.device, now: later) == 0) }
        #expect(book.welcomed(Self.device, now: later) == FlapDamping.firstDelay)
    }

    @Test func refusedHellosChangeNothing() {
        var book = FlapDamping()
        for _ in 0..<21 { _ = book.welcomed(Self.device, now: 1_000) }
        for now in 1_000..<3_000 as Range<Int64> { #expect(book.delay(of: Self.device, now: now) == 3_000 - now) }
        #expect(book.delay(of: Self.device, now: 3_000) == 0)
    }

    @Test func aCrowdOfDevicesDoesNotHideTheOneAndFillsNoMemory() {
        var book = FlapDamping(deviceCount: 64)
        for _ in 0..<25 { _ = book.welcomed(Self.device, now: 1_000) }
        for number in 0..<100_000 as Range<UInt64> {
            #expect(book.welcomed(DeviceID(high: number, low: number &* 0x9E37_79B9_7F4A_7C15), now: 1_500) == 0)
        }
        #expect(book.delay(of: Self.device, now: 1_600) > 0)
    }

    @Test func whatFlapsIsToldInOneSum() {
        var book = FlapDamping()
        for _ in 0..<20 { _ = book.welcomed(Self.device, now: 1_000) }
        let calm = book.takeReport()
        #expect(calm == nil)
        for _ in 0..<3 { _ = book.welcomed(Self.device, now: 1_000) }
        let (report, again) = (book.takeReport(), book.takeReport())
        #expect(report == FlapDamping.Report(count: 3, device: Self.device, delay: 8_000))
        #expect(again == nil)
    }

    @Test func noRuleSlowsNobody() {
        var book = FlapDamping()
        book.rules.connects = 0
        for _ in 0..<1_000 { #expect(book.welcomed(Self.device, now: 1) == 0) }
        #expect(book.delay(of: Self.device, now: 1) == 0)
    }
}
