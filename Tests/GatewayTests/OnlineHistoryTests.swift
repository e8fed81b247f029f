import Delivery
import Testing
import Wire

@testable import Gateway

@Suite("How many devices were connected")
struct OnlineHistoryTests {
    private static let app = AppKey(7)

    @Test("a day's peak is what any look found, not only that of a ten-minute point")
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
