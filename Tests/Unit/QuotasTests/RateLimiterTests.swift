import Quotas
import Delivery
import Testing
import Wire

@Suite("Rates")
struct RateLimiterTests {
    private static let app = AppKey(1)
    private static let noon: GatewayTime = 1_795_262_400_000 / 86_400_000 * 86_400_000 + 43_200_000

    @Test("uses are bounded per minute and day, refused ones do not count, and both periods restart")
    func bounds() {
        var limits = RateLimits()
        (limits.listsPerMinute, limits.listsPerDay) = (2, 3)
        var book = RateLimiter()
        func take(_ now: GatewayTime) -> RateLimiter.Verdict {
            book.take(.list, app: Self.app, limits: limits, now: now)
        }
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

    @Test("a spent rate is reported without a use")
    func spent() {
        var limits = RateLimits()
        limits.receiptsPerMinute = 2
        var book = RateLimiter()
        for _ in 0..<2 {
            for _ in 0..<5 { #expect(!book.isSpent(.receipt, app: Self.app, limits: limits, now: Self.noon)) }
            #expect(book.take(.receipt, app: Self.app, limits: limits, now: Self.noon) == .granted)
        }
        #expect(book.isSpent(.receipt, app: Self.app, limits: limits, now: Self.noon + 59_999))
        #expect(!book.isSpent(.receipt, app: Self.app, limits: limits, now: Self.noon + 60_000))
        #expect(!book.isSpent(.receipt, app: AppKey(2), limits: limits, now: Self.noon))
    }

    @Test("each network address has a separate share of each app's minute, and the table is bounded")
    func networks() {
        var book = NetworkLimits()
        func take(_ network: UInt64, _ app: AppKey = Self.app, limit: Int = 2, at now: GatewayTime = Self.noon) -> Bool
        {
            book.take(network, app: app, limit: limit, now: now)
        }
        #expect(take(1) && take(1) && !take(1) && take(2) && take(1, AppKey(2)))
        #expect(take(1, limit: 0), "no bound")
        #expect(!take(1, at: Self.noon + 59_999) && take(1, at: Self.noon + 60_000))
        // Many unknown addresses use no more memory than this, and none of the others' shares.
        for network in 0..<UInt64(2 * NetworkLimits.networkLimit) { _ = take(network, at: Self.noon + 60_000) }
        #expect(take(1, at: Self.noon + 60_000) == false)
        #expect(take(UInt64(2 * NetworkLimits.networkLimit), at: Self.noon + 60_000))
    }

    @Test("broadcasts to all and to tags share one quota, and are distinguished")
    func broadcasts() {
        var limits = RateLimits()
        (limits.broadcastsPerMinute, limits.broadcastsPerDay) = (0, 2)
        var book = RateLimiter()
        #expect(book.take(.tagBroadcast, app: Self.app, limits: limits, now: Self.noon) == .granted)
        #expect(book.take(.broadcast, app: Self.app, limits: limits, now: Self.noon) == .granted)
        #expect(book.take(.tagBroadcast, app: Self.app, limits: limits, now: Self.noon) == .dayExceeded)
        #expect(book.usedToday(.broadcast, app: Self.app, now: Self.noon) == 2)
        #expect(book.usedToday(.tagBroadcast, app: Self.app, now: Self.noon) == 1)
    }

    @Test("a restart continues the day's count")
    func restart() {
        var limits = RateLimits()
        limits.listsPerDay = 5
        var ledger = RateLedger()
        ledger.restore(.list, app: Self.app, day: Self.noon / 86_400_000, count: 4)
        var book = RateLimiter()
        book.hear(ledger.totals, now: Self.noon)
        #expect(book.take(.list, app: Self.app, limits: limits, now: Self.noon) == .granted)
        #expect(book.take(.list, app: Self.app, limits: limits, now: Self.noon) == .dayExceeded)
        book.learn(ledger.take(book.nextExchange(now: Self.noon), now: Self.noon), now: Self.noon)
        #expect(ledger.dayCounts().map(\.count) == [5])
        #expect(book.usedToday(.list, app: Self.app, now: Self.noon) == 5)
    }

    @Test("calls of tags are counted by app, kind, minute and day; refused ones do not count, and 0 is unlimited")
    func tagCalls() {
        var book = RateLimiter()
        let bound = RateBound(perMinute: 2, perDay: 3)
        let day = Self.noon / 86_400_000 * 86_400_000
        func take(_ kind: RateKind, _ time: Int64, _ app: AppKey = Self.app) -> RateLimiter.Verdict {
            book.take(kind, app: app, bound: bound, now: day + time)
        }
        #expect(take(.tagChange, 0) == .granted)
        #expect(take(.tagChange, 59_999) == .granted)
        #expect(take(.tagChange, 59_999) == .minuteExceeded)
        #expect(take(.tagQuery, 59_999) == .granted)
        #expect(take(.tagChange, 59_999, AppKey(2)) == .granted)
        #expect(take(.tagChange, 60_000) == .granted)
        #expect(take(.tagChange, 120_000) == .dayExceeded)
        #expect(take(.tagChange, 86_400_000) == .granted)
        for _ in 0..<1_000 {
            let free = book.take(.tagQuery, app: AppKey(3), bound: RateBound(perMinute: 0, perDay: 0), now: day)
            #expect(free == .granted)
        }
    }
}

/// The limiters of several gateways and their counter, in one thread.
private final class RateCluster {
    static let app = AppKey(7)
    var books: [RateLimiter]
    var ledger = RateLedger()
    var now: GatewayTime
    let bound: RateBound
    let kind: RateKind

    init(_ count: Int, _ kind: RateKind = .list, perMinute: Int = 0, perDay: Int = 0) {
        var book = RateLimiter()
        book.gatewayCount = count
        books = Array(repeating: book, count: count)
        (bound, self.kind) = (RateBound(perMinute: perMinute, perDay: perDay), kind)
        now = 1_795_262_400_000 / 86_400_000 * 86_400_000 + 43_200_000
    }

    /// The upper bound of grants: the limit plus the shares of other gateways that the counter did not know of.
    static func most(_ bound: Int, _ count: Int) -> Int {
        bound + (count - 1) * max(RateLimiter.leastShare, (bound + count - 1) / count)
    }

    func take(at gateway: Int) -> Bool {
        books[gateway].take(kind, app: Self.app, bound: bound, now: now) == .granted
    }

    func exchange(_ gateway: Int) {
        let reports = books[gateway].nextExchange(now: now)
        guard !reports.isEmpty else { return }
        books[gateway].learn(ledger.take(reports, now: now), now: now)
    }

    /// Calls one gateway until it refuses; an exchange follows each call that makes one due.
    func takeAll(at gateway: Int, atMost limit: Int = .max) -> Int {
        var count = 0
        while count < limit, take(at: gateway) {
            count += 1
            if books[gateway].isExchangeDue { exchange(gateway) }
        }
        return count
    }

    /// Makes another gateway the counter, starting from rows with this daily count.
    func moveCounter(rows: Int) {
        ledger = RateLedger()
        ledger.restore(kind, app: Self.app, day: now / 86_400_000, count: rows)
    }
}

@Suite("Rates of several gateways")
struct ClusterRateTests {
    @Test("a limit applies to all gateways together, whichever is called", arguments: [1, 3, 16], [5, 100, 60_000])
    func total(count: Int, bound: Int) {
        let cluster = RateCluster(count, perMinute: bound)
        let first = cluster.takeAll(at: 0)
        #expect(first == bound, "one that is called alone has it all")
        for gateway in 1..<max(1, count) {
            // At its first use an idle gateway learns the others' usage.
            #expect(cluster.takeAll(at: gateway) <= 1)
            #expect(cluster.takeAll(at: gateway) == 0)
        }
        cluster.now += 60_000
        #expect(cluster.takeAll(at: count - 1) == bound, "the next minute begins anew everywhere")
    }

    @Test("alternating calls to all gateways within a second get the limit plus a sixteenth at most")
    func turns() {
        for count in [2, 3, 16] {
            for bound in [5, 100, 6_000] {
                let cluster = RateCluster(count, perDay: bound)
                var granted = 0
                for step in 0..<(bound * 4) { granted += cluster.takeAll(at: step % count, atMost: 1) }
                #expect(granted >= bound, "\(count) gateways, \(bound)")
                let most = bound + bound / 16 + (count - 1) * RateLimiter.leastShare
                #expect(granted <= most, "\(count) gateways, \(bound)")
            }
        }
    }

    @Test("in any order of calls and exchanges, grants never exceed the limit plus the outstanding shares")
    func worst() {
        for seed in UInt64(1)...200 {
            var random = SplitMix(seed)
            let count = Int(random.next() % 5) + 2, bound = Int(random.next() % 300) + 1
            let cluster = RateCluster(count, perMinute: bound, perDay: bound)
            var granted = 0
            for _ in 0..<2_000 {
                let gateway = Int(random.next() % UInt64(count))
                if random.next() % 8 == 0 {
                    cluster.exchange(gateway)
                } else {
                    granted += cluster.take(at: gateway) ? 1 : 0
                }
            }
            #expect(granted <= RateCluster.most(bound, count), "seed \(seed): \(granted) of \(bound) at \(count)")
            for gateway in 0..<count { cluster.exchange(gateway) }
            #expect(cluster.ledger.dayCounts().map(\.count) == [granted], "seed \(seed): each use is counted once")
        }
    }

    @Test("a gateway that cannot reach the counter grants its even share only, and recovers with it")
    func cutOff() {
        let cluster = RateCluster(3, perMinute: 60)
        for gateway in 0..<3 {
            var granted = 0
            while cluster.take(at: gateway) {
                granted += 1
                if cluster.books[gateway].isExchangeDue {
                    _ = cluster.books[gateway].nextExchange(now: cluster.now)
                    cluster.books[gateway].exchangeFailed()
                }
            }
            #expect(granted == 20)
            #expect(cluster.books[gateway].isCutOff && !cluster.books[gateway].isExchangeDue)
        }
        cluster.now += 60_000
        for gateway in 0..<3 { #expect(cluster.takeAll(at: gateway) == 20, "no gateway refuses everything") }
        cluster.now += 60_000
        // A limit below the number of gateways leaves each of them one.
        let small = RateCluster(16, perMinute: 5)
        small.books[3].exchangeFailed()
        #expect(small.takeAll(at: 3) == 1)
        for gateway in 0..<3 { cluster.exchange(gateway) }
        #expect(cluster.take(at: 0))
        cluster.exchange(0)
        #expect(cluster.takeAll(at: 0) == 59)
    }

    @Test("another counter continues from the rows and the gateways' own usage")
    func moved() {
        let cluster = RateCluster(3, perMinute: 90, perDay: 100)
        #expect(cluster.takeAll(at: 0, atMost: 30) == 30)
        #expect(cluster.takeAll(at: 1, atMost: 30) == 30)
        for gateway in 0..<2 { cluster.exchange(gateway) }
        // The rows are a second old, and only the gateways know the minute's uses.
        cluster.moveCounter(rows: 50)
        cluster.now += 1_000
        #expect(cluster.takeAll(at: 1) == 30)
        #expect(cluster.takeAll(at: 0) <= 1)
        #expect(cluster.takeAll(at: 2) <= 1)
        cluster.now += 60_000
        let rest = (0..<3).reduce(0) { $0 + cluster.takeAll(at: $1) }
        #expect(rest <= 10 + 2)
        for gateway in 0..<3 { #expect(!cluster.take(at: gateway)) }
    }

    @Test("a lost answer counts its report again; a refused one does not")
    func repeats() {
        let cluster = RateCluster(2, perDay: 100)
        for _ in 0..<3 { #expect(cluster.take(at: 0)) }
        _ = cluster.books[0].nextExchange(now: cluster.now)
        cluster.books[0].exchangeFailed()
        cluster.exchange(0)
        #expect(cluster.ledger.dayCounts().map(\.count) == [3])
        for _ in 0..<2 { #expect(cluster.take(at: 0)) }
        _ = cluster.ledger.take(cluster.books[0].nextExchange(now: cluster.now), now: cluster.now)
        cluster.books[0].exchangeFailed()
        cluster.exchange(0)
        #expect(cluster.ledger.dayCounts().map(\.count) == [7])
    }

    @Test("a clock that differs from the counter's costs a minute's uses at its edge, and no day's")
    func clocks() {
        let cluster = RateCluster(2, perMinute: 50, perDay: 100)
        #expect(cluster.takeAll(at: 0, atMost: 10) == 10)
        cluster.exchange(0)
        cluster.now += 60_000
        #expect(cluster.takeAll(at: 1, atMost: 10) == 10)
        let early = cluster.books[1].nextExchange(now: cluster.now)
        let totals = cluster.ledger.take(early, now: cluster.now - 60_000)
        #expect(totals.map(\.minute.used) == [10] && totals.map(\.day.used) == [20])
        cluster.books[1].learn(totals, now: cluster.now)
        cluster.exchange(1)
        // The day's uses were answered. The minute's are sent again when the counter is in the same minute.
        #expect(cluster.ledger.totals.map(\.minute.used) == [10])
        #expect(cluster.ledger.totals.map(\.day.used) == [20])
    }

    @Test("a query counts nothing and leaves no state")
    func question() {
        let cluster = RateCluster(2, .tagBroadcast, perDay: 10)
        let kinds: [RateKind] = [.broadcast, .tagBroadcast]
        #expect(cluster.takeAll(at: 0, atMost: 3) == 3)
        cluster.exchange(0)
        let question = cluster.books[1].question(kinds, app: RateCluster.app, now: cluster.now)
        cluster.books[1].hear(cluster.ledger.take(question, now: cluster.now), now: cluster.now)
        for kind in kinds {
            #expect(cluster.books[1].usedToday(kind, app: RateCluster.app, now: cluster.now) == 3)
        }
        let other = cluster.books[1].question(kinds, app: AppKey(8), now: cluster.now)
        let none = cluster.ledger.take(other, now: cluster.now)
        #expect(none.allSatisfy { $0.day.used == 0 })
        #expect(cluster.ledger.totals.count == 2)
    }

    @Test("numbers that cannot be added up are invalid")
    func soundness() {
        let key = RateKey(app: RateCluster.app, kind: .call)
        let none = RateCount(span: 0, used: 0)
        #expect(RateReport(key: key, minute: none, inMinute: 0, day: none, inDay: 0).isSound)
        #expect(!RateReport(key: key, minute: none, inMinute: -1, day: none, inDay: 0).isSound)
        #expect(!RateReport(key: key, minute: none, inMinute: 0, day: none, inDay: .max).isSound)
        #expect(!RateTotal(key: key, minute: none, day: RateCount(span: 0, used: .max)).isSound)
        var ledger = RateLedger()
        let most = Int(Int32.max)
        let large = RateReport(key: key, minute: none, inMinute: most, day: RateCount(span: 0, used: most), inDay: most)
        for _ in 0..<3 {
            let totals = ledger.take([large], now: 5)
            #expect(totals.map(\.day.used) == [most])
        }
    }
}

/// A seeded generator.
private struct SplitMix {
    private var state: UInt64
    init(_ seed: UInt64) { state = seed }
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}

@Suite("Connected devices over a day")
struct OnlineSeriesTests {
    @Test("the history has a point per ten minutes for a day, and drops the oldest")
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
    @Test("timed pushes are within seven days, and a past time sends at once")
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

@Suite("Reasons for undelivered messages")
struct FailureClassTests {
    @Test("every failure is in one of Getui's classes, and withdrawn messages are in none")
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
