import Campaigns
import Delivery
import Testing
import Wire

@Suite("Rates")
struct RateBookTests {
    private static let app = AppKey(1)
    private static let noon: GatewayTime = 1_795_262_400_000 / 86_400_000 * 86_400_000 + 43_200_000

    @Test("a minute's and a day's uses are bounded, a refused use is not counted, and both begin anew")
    func bounds() {
        var limits = RateLimits()
        (limits.listsPerMinute, limits.listsPerDay) = (2, 3)
        var book = RateBook()
        func take(_ now: GatewayTime) -> RateBook.Verdict { book.take(.list, app: Self.app, limits: limits, now: now) }
        #expect(take(Self.noon) == .granted)
        #expect(take(Self.noon + 1) == .granted)
        #expect(take(Self.noon + 59_999) == .minuteExceeded)
        #expect(take(Self.noon + 60_000) == .granted)
        #expect(take(Self.noon + 60_001) == .dayExceeded)
        #expect(book.usedToday(.list, app: Self.app, now: Self.noon + 60_001) == 3)
        #expect(book.usedToday(.list, app: AppKey(2), now: Self.noon) == 0)
        #expect(take(Self.noon + 86_400_000) == .granted)
        #expect(book.usedToday(.list, app: Self.app, now: Self.noon + 86_400_000) == 1)
    }

    @Test("whether a rate is spent is told without a use of it")
    func spent() {
        var limits = RateLimits()
        limits.receiptsPerMinute = 2
        var book = RateBook()
        for _ in 0..<2 {
            for _ in 0..<5 { #expect(!book.isSpent(.receipt, app: Self.app, limits: limits, now: Self.noon)) }
            #expect(book.take(.receipt, app: Self.app, limits: limits, now: Self.noon) == .granted)
        }
        #expect(book.isSpent(.receipt, app: Self.app, limits: limits, now: Self.noon + 59_999))
        #expect(!book.isSpent(.receipt, app: Self.app, limits: limits, now: Self.noon + 60_000))
        #expect(!book.isSpent(.receipt, app: AppKey(2), limits: limits, now: Self.noon))
    }

    @Test("each network address has its own share of each app's minute, and the book of them is bounded")
    func networks() {
        var book = NetworkBook()
        func take(_ network: UInt64, _ app: AppKey = Self.app, limit: Int = 2, at now: GatewayTime = Self.noon) -> Bool
        {
            book.take(network, app: app, limit: limit, now: now)
        }
        #expect(take(1) && take(1) && !take(1) && take(2) && take(1, AppKey(2)))
        #expect(take(1, limit: 0), "no bound")
        #expect(!take(1, at: Self.noon + 59_999) && take(1, at: Self.noon + 60_000))
        // Strangers with many addresses take no more memory than this, and none of the others' shares.
        for network in 0..<UInt64(2 * NetworkBook.networkLimit) { _ = take(network, at: Self.noon + 60_000) }
        #expect(take(1, at: Self.noon + 60_000) == false)
        #expect(take(UInt64(2 * NetworkBook.networkLimit), at: Self.noon + 60_000))
    }

    @Test("broadcasts to all and to tags share one quota, and those to tags are told apart")
    func broadcasts() {
        var limits = RateLimits()
        (limits.broadcastsPerMinute, limits.broadcastsPerDay) = (0, 2)
        var book = RateBook()
        #expect(book.take(.tagBroadcast, app: Self.app, limits: limits, now: Self.noon) == .granted)
        #expect(book.take(.broadcast, app: Self.app, limits: limits, now: Self.noon) == .granted)
        #expect(book.take(.tagBroadcast, app: Self.app, limits: limits, now: Self.noon) == .dayExceeded)
        #expect(book.usedToday(.broadcast, app: Self.app, now: Self.noon) == 2)
        #expect(book.usedToday(.tagBroadcast, app: Self.app, now: Self.noon) == 1)
    }

    @Test("a restart goes on with the day's count")
    func restart() {
        var limits = RateLimits()
        limits.listsPerDay = 5
        var book = RateBook()
        book.restore(.list, app: Self.app, day: Self.noon / 86_400_000, count: 4)
        #expect(book.take(.list, app: Self.app, limits: limits, now: Self.noon) == .granted)
        #expect(book.take(.list, app: Self.app, limits: limits, now: Self.noon) == .dayExceeded)
        #expect(book.dayCounts().map(\.count) == [5])
    }
}

@Suite("Connected devices over a day")
struct OnlineSeriesTests {
    @Test("a point each ten minutes, a day of them, and the oldest leave")
    func day() {
        var series = OnlineSeries()
        let start = OnlineSeries.place(1_795_000_123_456)
        for step in 0..<Int64(OnlineSeries.pointCount) {
            let left = series.note(Int(step), at: start + step * OnlineSeries.step)
            #expect(left.isEmpty)
        }
        #expect(series.points.count == OnlineSeries.pointCount)
        let next = start + Int64(OnlineSeries.pointCount) * OnlineSeries.step
        let left = series.note(7, at: next)
        #expect(left == [start])
        let again = series.note(8, at: next)
        #expect(again.isEmpty)
        #expect(series.points.last?.count == 8)
        #expect(series.points.count == OnlineSeries.pointCount)
    }
}

@Suite("Timed pushes")
struct ScheduleRuleTests {
    @Test("within seven days from now; what is past goes out at once")
    func range() {
        let now: GatewayTime = 1_795_000_000_000
        let last = now + ScheduleRules.horizon
        #expect(ScheduleRules.judge(now + 1, now: now) == .later(now + 1))
        #expect(ScheduleRules.judge(last, now: now) == .later(last))
        #expect(ScheduleRules.judge(last + 1, now: now) == .outOfRange)
        #expect(ScheduleRules.judge(now - 5, now: now) == .atOnce)
        #expect(ScheduleRules.judge(-1, now: now) == .outOfRange)
    }
}

@Suite("Why messages did not arrive")
struct FailureClassTests {
    @Test("every failure is in one class of Getui's, and what was not wanted any more is in none")
    func classes() {
        var totals = TaskTotals()
        totals.accepted = 20
        (totals[.expired], totals[.overflowed], totals[.revoked], totals[.collapsed], totals[.failed]) = (2, 3, 4, 5, 6)
        totals.failures = ["noToken": 1, "badToken": 1, "exhausted": 1, "TopicDisallowed": 1, "rejectedByClient: x": 2]
        let sorted = FailureClass.sort(totals)
        let sum: Int = sorted.values.reduce(0, +)
        #expect(sum == 11)
        let expected: [(FailureClass, Int)] = [
            (FailureClass(stage: .sf, isVendor: false, code: 12), 2),
            (FailureClass(stage: .ts, isVendor: false, code: 6), 3),
            (FailureClass(stage: .rs, isVendor: true, code: 5), 1),
            (FailureClass(stage: .sf, isVendor: true, code: 3), 1),
            (FailureClass(stage: .sf, isVendor: false, code: 14), 2),
        ]
        for (failure, count) in expected { #expect(sorted[failure] == count, "\(failure)") }
    }
}
