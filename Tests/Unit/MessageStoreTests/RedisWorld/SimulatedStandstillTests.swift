import Delivery
import Redis
import SimulatedRedis
import Testing
import Wire

@testable import MessageStore

/// A primary of a simulated cluster stalls for two minutes; the partition's log is on another one.
@Suite("An unresponsive primary, simulated")
struct SimulatedStandstillTests {
    private static let partCount = 16
    private static let part = 3
    private static let now: Int64 = 1_000_000_000

    private final class Bench {
        let cluster: SimulatedCluster
        let process: WorldProcess
        let victim: Int
        let buckets: [(bucket: Bucket, shard: Int)]

        init(seed: UInt64) throws {
            let cluster = SimulatedCluster(seed: seed)
            self.cluster = cluster
            var configuration = RedisEngine.Configuration()
            configuration.name = "world"
            configuration.isStepped = true
            configuration.flushMilliseconds = 0
            configuration.now = { SimulatedStandstillTests.now }
            let network = ProcessNetwork(cluster)
            let process = try WorldProcess(
                1, network, seeds: SimulatedNetwork(cluster).seeds, configuration)
            self.process = process
            try process.open(part: SimulatedStandstillTests.part, of: SimulatedStandstillTests.partCount, epoch: 1)
            func home(_ key: [UInt8]) -> Int { cluster.shard(of: String(decoding: key, as: UTF8.self)) }
            let buckets: [(bucket: Bucket, shard: Int)] = RedisGroups.groups(
                part: SimulatedStandstillTests.part, of: SimulatedStandstillTests.partCount
            ).map { (Bucket(UInt16($0)), home(GroupKeys("world", group: $0).marks)) }
            self.buckets = buckets
            let own = home(GroupKeys.log("world", part: SimulatedStandstillTests.part))
            victim = buckets.first { $0.shard != own }?.shard ?? own
        }

        deinit { process.end(part: SimulatedStandstillTests.part) }

        var store: EmbeddedShardStore? { process.store }
        func key(_ bucket: Bucket, _ number: UInt64) -> StoreKey {
            StoreKey(bucket, .job, ownerHigh: 1, ownerLow: number)
        }

        /// Writes one row for each group.
        func put(_ number: UInt64) {
            guard let store else { return }
            for (bucket, _) in buckets {
                store.beginBatch(bucket)
                store.put(
                    key(bucket, number), wakeAt: SimulatedStandstillTests.now, prior: .maybe(wakeAt: 0), byteCount: 1
                ) { $0[0] = UInt8(number) }
                _ = store.endBatch()
            }
            store.turnEnded()
        }

        func turn(_ count: Int = 6) {
            process.engine.requestSpill()
            for _ in 0..<count {
                for step in RedisEngine.Step.allCases { _ = process.engine.step(step) }
                process.loop.turn()
                cluster.advance(milliseconds: 200)
            }
        }

        func isYoung(_ bucket: Bucket, _ number: UInt64) -> Bool {
            store.map { $0.young(key(bucket, number)) != .unknown } ?? false
        }
    }

    @Test("an unresponsive primary is probed at intervals; the others continue, and all work ends", arguments: 1...4)
    func standstill(seed: UInt64) throws {
        let bench = try Bench(seed: seed)
        bench.put(1)
        bench.turn()
        #expect(bench.store?.youngRowCount == 0)
        bench.cluster.stall(bench.cluster.primary(of: bench.victim), for: 120_000)
        let began = bench.cluster.milliseconds
        for number in UInt64(2)...20 {
            bench.put(number)
            bench.turn()
            for (bucket, shard) in bench.buckets {
                #expect(bench.isYoung(bucket, number) == (shard == bench.victim), "row \(number) of \(bucket)")
            }
        }
        // Six turns of 200 ms a round, each with a probe of 500 ms. One call of five seconds detects the stall.
        #expect(bench.cluster.milliseconds - began < 19 * 6 * 800 + 10_000)
        #expect(bench.process.engine.statistics.segmentCount > 0, "the log forgot what no group has")

        // Alarms of the others, without a wait.
        var owners: [Bucket: Int] = [:]
        for _ in 0..<8 {
            guard let token = bench.store?.requestAlarms(AlarmRequest(upTo: Self.now, limit: 64)) else { break }
            let before = bench.cluster.milliseconds
            while bench.process.engine.step(.read) {}
            #expect(bench.cluster.milliseconds - before < 1_000, "alarms waited for the silent one")
            bench.process.loop.turn()
            for key in bench.process.reader.keys[token] ?? [] { owners[key.bucket, default: 0] += 1 }
        }
        for (bucket, shard) in bench.buckets {
            #expect(owners[bucket] ?? 0 == (shard == bench.victim ? 0 : 20), "alarms of \(bucket)")
        }

        bench.cluster.mend()
        bench.turn(20)
        #expect(bench.store?.youngRowCount == 0)
        #expect(bench.process.engine.statistics.segmentCount == 0)
        #expect(bench.process.witness.losses.isEmpty)
    }

    @Test("only rows of the primary without memory wait", arguments: 1...2)
    func outOfMemory(seed: UInt64) throws {
        let bench = try Bench(seed: seed)
        bench.cluster.setOutOfMemory(true, on: bench.cluster.primary(of: bench.victim))
        let began = bench.cluster.milliseconds
        for number in UInt64(1)...10 {
            bench.put(number)
            bench.turn()
            for (bucket, shard) in bench.buckets {
                #expect(bench.isYoung(bucket, number) == (shard == bench.victim), "row \(number) of \(bucket)")
            }
        }
        #expect(bench.cluster.milliseconds - began < 10 * 6 * 400, "a refusal is not waited for")
        bench.cluster.setOutOfMemory(false)
        bench.turn(20)
        #expect(bench.store?.youngRowCount == 0)
        #expect(bench.process.engine.statistics.segmentCount == 0)
    }
}
