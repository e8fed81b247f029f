import Testing
import Wire

@testable import Campaigns

/// What apps with quotas may have and do, by a clock that the test moves.
@Suite struct QuotaBookTests {
    private static let app = AppKey(1)

    private func quotas(_ pairs: [(Quota, Int)]) -> AppQuotas {
        var quotas = AppQuotas()
        for (quota, limit) in pairs { quotas[quota] = limit }
        return quotas
    }

    @Test func aRateHasASecondsWorthAtOnceAndThenTheRate() {
        var book = QuotaBook()
        let quotas = quotas([(.publishesPerSecond, 10)])
        func take(_ now: Int64, _ count: Int = 1) -> QuotaRefusal? {
            book.take(app: Self.app, publishes: count, byteCount: 0, quotas: quotas, now: now)
        }
        for _ in 0..<10 { #expect(take(5_000) == nil) }
        #expect(take(5_000) == QuotaRefusal(quota: .publishesPerSecond, retryAfterSeconds: 1))
        // Less than a second's worth is unpaid.
        #expect(take(5_001) == nil)
        #expect(take(5_100) != nil)
        #expect(take(5_101) == nil)
        // A call for more than is left is taken, and paid for before the next one.
        #expect(take(60_000, 40) == nil)
        #expect(take(62_900)?.retryAfterSeconds == 1)
        #expect(take(60_500)?.retryAfterSeconds == 3)
        #expect(take(63_001) == nil)
    }

    @Test func aRefusedCallCountsNothing() {
        var book = QuotaBook()
        let quotas = quotas([(.publishesPerSecond, 1_000), (.requestBytesPerSecond, 100)])
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 100, quotas: quotas, now: 1_000) == nil)
        for _ in 0..<2_000 {
            let refusal = book.take(app: Self.app, publishes: 1, byteCount: 1, quotas: quotas, now: 1_000)
            #expect(refusal?.quota == .requestBytesPerSecond)
        }
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 1, quotas: quotas, now: 2_000) == nil)
    }

    @Test func whatThereIsCountsOverAllParts() {
        var book = QuotaBook()
        let quotas = quotas([(.devices, 10), (.queuedMessages, 5)])
        book.note(app: Self.app, part: 0, devices: 6, queued: 7)
        book.note(app: Self.app, part: 1, devices: 3, queued: -3)
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1) == nil)
        #expect(book.admitsDevice(app: Self.app, part: 1, connected: 3, quotas: quotas) == true)
        #expect(book.admitsDevice(app: Self.app, part: 1, connected: 4, quotas: quotas) == false)
        book.note(app: Self.app, part: 1, devices: 4, queued: -2)
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1)?.quota == .queuedMessages)
        let usage = book.usage(of: Self.app, quotas: quotas, now: 1)
        #expect(usage.map { $0.quota } == [Quota.devices, .queuedMessages])
        #expect(usage.map { $0.used } == [10, 5])
        #expect(usage.map { $0.refused } == [1, 1])
        let (report, again) = (book.takeReport(), book.takeReport())
        #expect(report.count == 2)
        #expect(again.isEmpty)
        book.forget(part: 0)
        #expect(book.admitsDevice(app: Self.app, part: 1, connected: 4, quotas: quotas) == true)
    }

    @Test func severalGatewaysGrantAnEvenShare() {
        var book = QuotaBook()
        book.gatewayCount = 3
        let quotas = quotas([(.publishesPerSecond, 10), (.devices, 10), (.queuedMessages, 1)])
        book.note(app: Self.app, part: 0, devices: 0, queued: 100)
        var granted = 0
        for _ in 0..<20 where book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1) == nil {
            granted += 1
        }
        #expect(granted == 4)
        #expect(book.admitsDevice(app: Self.app, part: 0, connected: 3, quotas: quotas) == true)
        #expect(book.admitsDevice(app: Self.app, part: 0, connected: 4, quotas: quotas) == false)
    }

    @Test func theLastWholeSecondIsShown() {
        var book = QuotaBook()
        let quotas = quotas([(.publishesPerSecond, 100)])
        for _ in 0..<30 { _ = book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 5_000) }
        #expect(book.usage(of: Self.app, quotas: quotas, now: 5_900).map { $0.used } == [0])
        #expect(book.usage(of: Self.app, quotas: quotas, now: 6_100).map { $0.used } == [30])
        #expect(book.usage(of: Self.app, quotas: quotas, now: 7_100).map { $0.used } == [0])
    }
}
