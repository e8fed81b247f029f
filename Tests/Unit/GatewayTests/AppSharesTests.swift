import Testing
import Wire

@testable import Gateway

@Suite("Shares of a loop")
struct AppSharesTests {
    private static func contended() -> (AppShares, Int, Int) {
        var shares = AppShares()
        let (first, second) = (shares.place(of: AppKey(1)), shares.place(of: AppKey(2)))
        shares.isContended = true
        return (shares, first, second)
    }

    private func take(_ shares: inout AppShares, _ place: Int, most: Int = 1_000_000) -> Int {
        var count = 0
        while count < most, shares.mayTake(place) {
            _ = shares.took(place, now: 1)
            count += 1
        }
        return count
    }

    @Test("an app that publishes alone has a wide slice and no limit on publishes in flight")
    func alone() {
        var shares = AppShares()
        let place = shares.place(of: AppKey(1))
        #expect(shares.place(of: AppKey(1)) == place)
        for _ in 0..<100 {
            #expect(take(&shares, place) == AppShares.lonePublishesPerTurn)
            _ = shares.turnEnded()
        }
        for slot in 0..<100 { shares.rest(place, AppShares.Connection(slot: UInt32(slot), stamp: 1)) }
        #expect(shares.turnEnded().count == AppShares.loneResumedPerTurn)
    }

    @Test("requests use slices by their bytes; requests without a token do not use the named app's share")
    func requests() {
        var (shares, app, other) = Self.contended()
        let strangers = shares.place(of: AppKey(1), isProven: false)
        #expect(strangers != app && strangers == shares.place(of: AppKey(1), isProven: false))
        // Only apps are reported.
        #expect(shares.tookRequest(strangers, byteCount: 1 << 20, now: 1) == nil)
        #expect(!shares.mayTakeRequest(strangers) && shares.mayTakeRequest(app))
        #expect(shares.tookRequest(app, byteCount: 0, now: 1) == AppKey(1))
        #expect(take(&shares, app) == AppShares.publishesPerTurn - 1)
        #expect(!shares.mayTakeRequest(app) && shares.mayTakeRequest(other))
        _ = shares.turnEnded()
        #expect(shares.mayTakeRequest(app) && shares.mayTakeRequest(strangers))
    }

    @Test("each app has its own slice per turn")
    func slices() {
        var (shares, first, second) = Self.contended()
        #expect(take(&shares, first) == AppShares.publishesPerTurn)
        #expect(take(&shares, second) == AppShares.publishesPerTurn)
        _ = shares.turnEnded()
        #expect(take(&shares, first) == AppShares.publishesPerTurn)
    }

    @Test("an app at its limit of publishes in flight waits for answers")
    func underWay() {
        var (shares, place, _) = Self.contended()
        var count = 0
        for _ in 0..<100 {
            count += take(&shares, place)
            _ = shares.turnEnded()
        }
        #expect(count == AppShares.publishesUnderWay)
        shares.rest(place, AppShares.Connection(slot: 7, stamp: 1))
        #expect(shares.turnEnded().isEmpty)
        shares.answered(place)
        #expect(shares.turnEnded().map(\.slot) == [7])
        #expect(take(&shares, place) == 1)
    }

    @Test("paused connections resume a few at a time, in the order in which they paused")
    func order() {
        var (shares, place, _) = Self.contended()
        _ = take(&shares, place)
        for slot in 0..<10 { shares.rest(place, AppShares.Connection(slot: UInt32(slot), stamp: 1)) }
        var resumed: [UInt32] = []
        for _ in 0..<3 { resumed += shares.turnEnded().map(\.slot) }
        #expect(resumed == Array(0..<10))
        #expect(shares.turnEnded().isEmpty)
    }

    @Test("while the loop pauses, an app above its slice gets no new slice, and one within it does")
    func pause() {
        var (shares, first, second) = Self.contended()
        _ = take(&shares, first)
        shares.rest(first, AppShares.Connection(slot: 7, stamp: 1))
        #expect(shares.isSliceUsedUp)
        for _ in 0..<5 {
            #expect(take(&shares, second, most: AppShares.publishesPerTurn - 1) == AppShares.publishesPerTurn - 1)
            #expect(shares.turnEnded(isPausing: true).isEmpty)
            #expect(!shares.mayTake(first))
        }
        #expect(shares.turnEnded().map(\.slot) == [7])
        #expect(shares.mayTake(first) && !shares.isSliceUsedUp)
    }

    @Test("a slice does not limit the only app that publishes")
    func pauseAlone() {
        var shares = AppShares()
        _ = take(&shares, shares.place(of: AppKey(1)), most: 1_000)
        #expect(!shares.isSliceUsedUp)
    }

    @Test("a constantly busy loop delays senders until it has idled for its share")
    func pace() {
        var pace = CPUShare()
        var (now, work): (Int64, Int64) = (1_000_000_000, 0)
        // After an idle time one burst is allowed.
        #expect(pace.wait(now: now, work: work) == 0)
        (now, work) = (now + CPUShare.burst * 3, work + CPUShare.burst * 3)
        let wait = pace.wait(now: now, work: work)
        #expect(wait > 0)
        #expect(pace.wait(now: now + wait - 10, work: work) > 0)
        #expect(pace.wait(now: now + wait + 10, work: work) == 0)
    }

    @Test("over a long time a loop that follows the waits works for its share")
    func paceHolds() {
        var pace = CPUShare()
        var (now, work): (Int64, Int64) = (1_000_000_000, 0)
        let began = now
        for turn in 0..<10_000 {
            let wait = pace.wait(now: now, work: work)
            let length = Int64(50_000 + turn % 7 * 30_000)
            (now, work) = (now + wait + length, work + length)
        }
        let share = work * 100 / (now - began)
        #expect((CPUShare.share - 1...CPUShare.share + 1).contains(share))
    }

    @Test("no turn adds more than the maximum wait")
    func paceBound() {
        var pace = CPUShare()
        _ = pace.wait(now: 1_000_000_000, work: 0)
        let wait = pace.wait(now: 11_000_000_000, work: 10_000_000_000)
        #expect(wait > 0 && wait <= CPUShare.longestWait)
    }

    @Test("an app resumes fully when the other apps have stopped")
    func over() {
        var (shares, place, _) = Self.contended()
        _ = take(&shares, place)
        for slot in 0..<10 { shares.rest(place, AppShares.Connection(slot: UInt32(slot), stamp: 1)) }
        shares.isContended = false
        #expect(shares.turnEnded().count == 10)
    }

    @Test("an app counts as publishing for some seconds, on every loop")
    func activity() {
        let activity = SharedActivity()
        activity.note([AppKey(1)], now: 1_000)
        #expect(!activity.isContended)
        activity.note([AppKey(2)], now: 2_000)
        #expect(activity.isContended)
        activity.note([AppKey(2)], now: 6_500)
        #expect(!activity.isContended)
        activity.note([AppKey(1)], now: 6_600)
        #expect(activity.isContended)
        activity.note([], now: 20_000)
        #expect(!activity.isContended)
    }

    @Test("a loop records an app at its first publish, and then once a second")
    func noted() {
        var shares = AppShares()
        let (first, second) = (shares.place(of: AppKey(1)), shares.place(of: AppKey(2)))
        #expect(shares.took(first, now: 0) == AppKey(1))
        #expect(shares.took(first, now: 1_000) == nil)
        #expect(shares.took(first, now: 1_001) == AppKey(1))
        #expect(shares.took(second, now: 1_001) == AppKey(2))
        #expect(shares.took(first, now: 2_000) == nil)
    }
}
