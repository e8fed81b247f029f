import MessageStore
import Testing

@testable import Gateway

@Suite("Budgets of request ids and traces")
struct RetentionWatchTests {
    @Test("a budget is reported at four fifths once, and again after it was lower; each loss is reported")
    func notices() {
        var watch = RetentionWatch("requests", limitName: "requestBytes")
        func look(_ byteCount: Int, cuts: Int = 0) -> [RetentionWatch.Notice] {
            var retention = StoreStatistics.Retention()
            (retention.byteCount, retention.byteLimit, retention.cutCount) = (byteCount, 1_000, cuts)
            return watch.notices(retention)
        }
        #expect(look(0).isEmpty && look(799).isEmpty)
        #expect(look(800) == [.near])
        #expect(look(790).isEmpty && look(900).isEmpty)
        #expect(look(690).isEmpty)
        #expect(look(1_000) == [.near])
        #expect(look(940, cuts: 2) == [.cut])
        #expect(look(1_000, cuts: 2).isEmpty)
    }

    @Test("the store has gateway time only after the end of the last run is known")
    func storeTime() throws {
        let time = SharedTime()
        let store = StoreSetup.configuration(
            GatewayConfiguration(), try DescriptorBudget(capacity: 20_000, loopCount: 1, hasOwnTables: false),
            log: try Log(format: .text, level: .error), time: time)
        #expect(store.now() == nil)
        // A wall clock two days ahead of the stored time is refused.
        let boot = BootID(high: 1, low: 2), day: Int64 = 86_400_000
        let stored = ClockRecord(maximum: 1_795_000_000_000, boot: ClockReader.boot(), bootID: boot)
        let clock = GatewayClock(
            GatewayClock.Reading(wall: stored.maximum + 2 * day, boot: stored.boot), bootID: boot, stored: stored)
        time.set(clock.mapping)
        let now = try #require(store.now())
        #expect(now >= stored.maximum && now < stored.maximum + day)
    }
}
