import Foundation
import TestKit
import Testing
import Wire

@testable import MessageStore

/// `LONGWIRE_SEED` plays one sequence; otherwise a fixed handful.
func conformanceSeeds(_ count: Int) -> [UInt64] {
    if let text = ProcessInfo.processInfo.environment["LONGWIRE_SEED"], let seed = UInt64(text) { return [seed] }
    return Array(1...UInt64(count) + 1)
}

@Suite("Shard store conformance")
struct ConformanceTests {
    static let buckets = [Bucket(0), Bucket(7), Bucket(4095)]

    @Test("the fake holds what it is told", arguments: conformanceSeeds(20))
    func fake(seed: UInt64) throws {
        let harness = MemoryStoreHarness()
        try checkShardStoreConformance(harness, seed: seed, stepCount: 1500, buckets: Self.buckets)
        #expect(harness.memory.violations == [])
    }

    @Test("the journal alone holds what it is told", arguments: conformanceSeeds(2))
    func journal(seed: UInt64) throws {
        let folder = try TemporaryFolder()
        let harness = try EmbeddedStoreHarness(StoreFixture.configuration(folder), isSpilling: false)
        defer { harness.close() }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 500, buckets: Self.buckets)
    }

    @Test("journal and ordered store hold what they are told while rows spill", arguments: conformanceSeeds(4))
    func spilling(seed: UInt64) throws {
        let folder = try TemporaryFolder()
        var configuration = StoreFixture.configuration(folder, segment: 16 << 10)
        configuration.youngMilliseconds = 0
        configuration.deletionsBeforeCompaction = 50
        let harness = try EmbeddedStoreHarness(configuration, isSpilling: true)
        defer { harness.close() }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 700, buckets: Self.buckets)
    }
}
