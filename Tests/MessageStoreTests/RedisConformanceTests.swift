import Delivery
import Redis
import TestKit
import Testing
import Wire

@testable import MessageStore

@Suite("Shard store conformance on Redis", .enabled(if: RedisServers.executable != nil, "no redis-server"), .serialized)
struct RedisConformanceTests {
    @Test("log and rows hold what they are told while rows spill", arguments: conformanceSeeds(3))
    func spilling(seed: UInt64) throws {
        let servers = try RedisServers()
        var configuration = RedisFixture.configuration()
        configuration.youngMilliseconds = 0
        let harness = try RedisStoreHarness(servers.makeCluster(), configuration)
        defer { harness.close() }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 700, buckets: ConformanceTests.buckets)
    }

    @Test("the log alone holds what it is told", arguments: conformanceSeeds(1))
    func log(seed: UInt64) throws {
        let servers = try RedisServers()
        let harness = try RedisStoreHarness(servers.makeCluster(), RedisFixture.configuration(), isSpilling: false)
        defer { harness.close() }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 400, buckets: ConformanceTests.buckets)
    }

    @Test("beyond its bounds the store tells of it and goes on")
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

    @Test("a message whose job's row cannot be read has an alarm at its end")
    func unreadableSuccessor() throws {
        let servers = try RedisServers()
        let harness = try RedisStoreHarness(servers.makeCluster(), RedisFixture.configuration())
        defer { harness.close() }
        try checkUnreadableSuccessor(harness)
    }
}
