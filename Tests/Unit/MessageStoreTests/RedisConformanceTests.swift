import Delivery
import Redis
import SimulatedRedis
import TestKit
import Testing
import Wire

@testable import MessageStore

@Suite("Shard store conformance on Redis", .enabled(if: RedisServers.executable != nil, "no redis-server"), .serialized)
struct RedisConformanceTests {
    @Test("log and rows keep what is written while rows move", arguments: conformanceSeeds(3))
    func spilling(seed: UInt64) throws {
        let servers = try RedisServers()
        var configuration = RedisFixture.configuration()
        configuration.youngMilliseconds = 0
        let harness = try RedisStoreHarness(servers.makeCluster(), configuration)
        defer { harness.close() }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 700, buckets: ConformanceTests.buckets)
    }

    @Test("the log alone keeps what is written", arguments: conformanceSeeds(1))
    func log(seed: UInt64) throws {
        let servers = try RedisServers()
        let harness = try RedisStoreHarness(servers.makeCluster(), RedisFixture.configuration(), isSpilling: false)
        defer { harness.close() }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 400, buckets: ConformanceTests.buckets)
    }

    @Test("the store reports a breach of its bounds and continues")
    func bounds() throws {
        let servers = try RedisServers()
        let harness = try RedisStoreHarness(servers.makeCluster(), RedisFixture.configuration())
        defer { harness.close() }
        try checkShardStoreBounds(harness, bucket: Bucket(7))
    }

    @Test("a message's alarm is not reported once its job has a row")
    func successors() throws {
        let servers = try RedisServers()
        let harness = try RedisStoreHarness(servers.makeCluster(), RedisFixture.configuration())
        defer { harness.close() }
        try checkAlarmSuccessors(harness)
    }

    @Test("a limited read continues after rows that are young deletions")
    func narrowScan() throws {
        let servers = try RedisServers()
        let harness = try RedisStoreHarness(servers.makeCluster(), RedisFixture.configuration())
        defer { harness.close() }
        try checkNarrowScan(harness)
    }

    @Test("a message whose job row cannot be read has an alarm at its expiry")
    func unreadableSuccessor() throws {
        let servers = try RedisServers()
        let harness = try RedisStoreHarness(servers.makeCluster(), RedisFixture.configuration())
        defer { harness.close() }
        try checkUnreadableSuccessor(harness)
    }
}

@Suite("Shard store conformance on a simulated Redis")
struct SimulatedRedisConformanceTests {
    private func check(seed: UInt64, oneIn count: Double?, hasFailovers: Bool) throws {
        let cluster = SimulatedCluster(seed: seed)
        let network = SimulatedNetwork(cluster)
        var configuration = RedisFixture.configuration()
        configuration.youngMilliseconds = 0
        // Calls advance time: each turn of the watch is one.
        configuration.watchMilliseconds = 2
        (configuration.readMilliseconds, configuration.rowsMilliseconds) = (600_000, 600_000)
        // The suite's clock is fixed, so a failed read is retried until it succeeds.
        configuration.silentAlarmMilliseconds = 0
        let harness = try RedisStoreHarness(
            RedisCluster(seeds: network.seeds, network: network), configuration)
        defer {
            // Closing must not wait for failing servers.
            cluster.rates = .none
            cluster.mend()
            harness.close()
        }
        if let count { cluster.rates = .all(oneIn: count) }
        var random = SeededGenerator(seed: seed)
        var failoverCount = 0
        if hasFailovers {
            harness.trouble = {
                guard Int.random(in: 0..<4, using: &random) == 0 else { return }
                if cluster.failOver(Int.random(in: 0..<cluster.shardCount, using: &random)) { failoverCount += 1 }
                cluster.mend()
            }
        }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 400, buckets: ConformanceTests.buckets)
        // The planned faults happened.
        #expect((cluster.faultCounts["reply lost"] ?? 0 > 0) == (count != nil))
        #expect((failoverCount > 0) == hasFailovers)
    }

    @Test("the store conforms without faults", arguments: conformanceSeeds(2))
    func calm(seed: UInt64) throws { try check(seed: seed, oneIn: nil, hasFailovers: false) }

    @Test("the store conforms with lost replies, late commands and refusals", arguments: conformanceSeeds(4))
    func faults(seed: UInt64) throws { try check(seed: seed, oneIn: 60, hasFailovers: false) }

    @Test("the store conforms while primaries change", arguments: conformanceSeeds(4))
    func failovers(seed: UInt64) throws { try check(seed: seed, oneIn: 200, hasFailovers: true) }
}
