import Testing
import Wire

@testable import Delivery

@Suite("The counters of a shard")
struct ShardStatisticsTests {
    @Test("a partition's next shard continues the counters, but not the gauges")
    func addsCounters() {
        var earlier = ShardStatistics()
        for counter in ShardStatistics.counters { earlier[keyPath: counter] = 2 }
        for counter in VendorStatistics.counters { earlier[.apns][keyPath: counter] = 3 }
        (earlier.finals[0], earlier.finals[8], earlier.pending, earlier[.apns].dueJobs) = (4, 5, 6, 7)
        var present = ShardStatistics()
        for counter in ShardStatistics.counters { present[keyPath: counter] = 1 }
        present.addCounters(of: earlier)
        #expect(ShardStatistics.counters.allSatisfy { present[keyPath: $0] == 3 })
        #expect(VendorStatistics.counters.allSatisfy { present[.apns][keyPath: $0] == 3 })
        #expect((present.finals[0], present.finals[8], present.pending) == (4, 5, 0))
        #expect(present[.apns].dueJobs == 0)
    }

    @Test("no counter is omitted")
    func allCounters() {
        func count(_ value: Any) -> Int { Mirror(reflecting: value).children.count { $0.value is UInt64 } }
        #expect(count(ShardStatistics()) == ShardStatistics.counters.count)
        #expect(count(VendorStatistics()) == VendorStatistics.counters.count)
    }
}
