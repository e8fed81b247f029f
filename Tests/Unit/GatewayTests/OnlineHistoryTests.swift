import Quotas
import Delivery
import PushAPI
import Testing
import Wire

@testable import Gateway

@Suite("The history of the number of connected devices")
struct OnlineHistoryTests {
    private static let app = AppKey(7)

    @Test("old entries expire, also of removed apps, and report the rows to delete")
    func old() {
        let (history, day) = (OnlineHistory(), Int64(86_400_000))
        let gone = AppKey(8)
        for app in [Self.app, gone] {
            _ = history.notePoint(1, app: app, at: 100 * day)
            _ = history.notePeak(1, app: app, day: 100)
        }
        _ = history.notePoint(2, app: Self.app, at: 102 * day)
        #expect(history.takeOld(now: 101 * day - 1).points.isEmpty)
        let old = history.takeOld(now: 102 * day)
        #expect(old.points.map(\.app) == [gone] && old.points.map(\.time) == [100 * day] && old.peaks.isEmpty)
        #expect(history.points(of: Self.app).map(\.count) == [2] && history.points(of: gone).isEmpty)
        #expect(history.peak(of: gone, day: 100) == 1)
        let later = history.takeOld(now: (101 + PushAPI.Limits.reportDays) * day)
        #expect(Set(later.peaks.map(\.app)) == [Self.app, gone] && later.peaks.allSatisfy { $0.day == 100 })
        #expect(history.takeOld(now: (101 + PushAPI.Limits.reportDays) * day).peaks.isEmpty)
    }

    @Test("an app's daily usage expires two days later, with its row")
    func oldRates() {
        let (rates, day) = (SharedRates(), Int64(86_400_000))
        rates.restore([(Self.app, UInt64(RateKind.list.rawValue), 100, 7)], now: 100 * day)
        #expect(rates.takeOld(now: 101 * day).isEmpty)
        #expect(rates.takeOld(now: 102 * day).map(\.app) == [Self.app])
        #expect(rates.dayCounts().isEmpty)
    }

    @Test("a day's peak includes every sample, not only the ten-minute points")
    func peaks() {
        let history = OnlineHistory()
        #expect(history.notePoint(2, app: Self.app, at: 0).isEmpty)
        for (count, rises) in [(3, true), (5_000, true), (4, false), (5_000, false)] {
            #expect((history.notePeak(count, app: Self.app, day: 100) != nil) == rises)
        }
        #expect(history.peak(of: Self.app, day: 100) == 5_000)
        #expect(history.points(of: Self.app).map(\.count) == [2])
        #expect(history.notePeak(0, app: Self.app, day: 101)?.peak == 0, "an empty day has a peak, too")
        #expect(history.notePeak(1, app: Self.app, day: 300)?.leftPeaks.sorted() == [100, 101])
    }
}
