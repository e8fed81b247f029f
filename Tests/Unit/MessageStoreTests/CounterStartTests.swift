import Foundation
import TestKit
import Testing
import Wire

@testable import Delivery
@testable import MessageStore

/// A start reads a number of counter rows that is bounded by the number of apps, not by the gateway's age.
@Suite("Counters at a start")
struct CounterStartTests {
    private static let today: UInt32 = 20_800
    private static var noon: Int64 { Int64(today) * 86_400_000 + 43_200_000 }
    private static let appCount = 10

    @Test("after a year of ten apps a start reads three days by bucket and folded rows, and keeps sums")
    func afterAYear() throws {
        let folder = try TemporaryFolder()
        var configuration = StoreFixture.configuration(folder, segment: 16 << 20)
        configuration.journalByteLimit = 512 << 20
        let apps = (1...Self.appCount).map { AppKey(UInt64($0)) }
        let days = [Self.today - 2, Self.today - 1, Self.today]
        do {
            let fixture = try StoreFixture(configuration)
            defer { fixture.close() }
            let shard = fixture.shards[0]
            for bucket in UInt16(0)..<UInt16(Bucket.count) {
                shard.beginBatch(Bucket(bucket))
                for app in apps {
                    for day in days {
                        var row = CountersRow(app: app, day: day)
                        (row.accepted, row.finals[0]) = (3, 2)
                        shard.put(
                            CountersRow.key(Bucket(bucket), app: app, day: day), wakeAt: 0, prior: .none,
                            byteCount: CountersRow.byteCount
                        ) { row.write(into: $0) }
                    }
                }
                _ = shard.endBatch()
                if bucket % 256 == 255 { try fixture.sync() }
            }
            var fold = CounterFold()
            var change = CounterFold.Change()
            for app in apps {
                for back in UInt32(3)...90 {
                    var row = CountersRow(app: app, day: Self.today - back)
                    row.accepted = 5
                    change.days.append(row)
                }
                change.totals.append(CountersRow(app: app, day: Self.today - 91))
            }
            _ = fold.write(change, to: shard)
            try fixture.sync()
            try fixture.spillAll()
        }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        let store = fixture.shards[0]
        var (fold, foldedCount) = (CounterFold(), 0)
        try store.loadAll(table: .meta) { if fold.take($0) { foldedCount += 1 } }
        var start = CounterStart(now: Self.noon, fold: fold, countsFold: true)
        try store.loadAll(table: .counters) { start.take($0) }
        #expect(foldedCount == Self.appCount * 89)
        #expect(start.rowCount == Self.appCount * Bucket.count * 3)
        // Today's and yesterday's are kept separately.
        #expect(start.current.count == Self.appCount * Bucket.count * 2)
        #expect(start.sums.count == Self.appCount * (1 + 89))
        let shard = Shard(
            limits: ShardLimits(), apps: [], store: store, verifier: SecretAsProof(), encoder: TestFrames(),
            queueEpoch: 7, counters: start, now: Self.noon)
        #expect(shard.statistics.pending == Int64(Self.appCount * (Bucket.count * 3 + 88 * 5)))
    }
}
