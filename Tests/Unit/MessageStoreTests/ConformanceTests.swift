import Delivery
import Foundation
import TestKit
import Testing
import Wire

@testable import MessageStore

/// The seed in `LONGWIRE_SEED`, or a fixed list.
func conformanceSeeds(_ count: Int) -> [UInt64] {
    if let text = ProcessInfo.processInfo.environment["LONGWIRE_SEED"], let seed = UInt64(text) { return [seed] }
    return Array(1...UInt64(count) + 1)
}

@Suite("Shard store conformance")
struct ConformanceTests {
    static let buckets = [Bucket(0), Bucket(7), Bucket(4095)]

    @Test("the fake keeps what is written", arguments: conformanceSeeds(20))
    func fake(seed: UInt64) throws {
        let harness = MemoryStoreHarness()
        try checkShardStoreConformance(harness, seed: seed, stepCount: 1500, buckets: Self.buckets)
        #expect(harness.memory.violations == [])
    }

    @Test("the fake reports a breach of its bounds and continues")
    func fakeBounds() throws {
        let harness = MemoryStoreHarness()
        harness.memory.batchByteCount = (8 << 20) - 64
        try checkShardStoreBounds(harness, bucket: Bucket(7))
        #expect(harness.memory.violations.count == 5)
    }

    @Test("the embedded store reports a breach of its bounds and continues", arguments: [false, true])
    func bounds(isSpilling: Bool) throws {
        let folder = try TemporaryFolder()
        let harness = try EmbeddedStoreHarness(
            StoreFixture.configuration(folder, segment: 8 << 20), isSpilling: isSpilling)
        defer { harness.close() }
        try checkShardStoreBounds(harness, bucket: Bucket(7))
    }

    @Test("a message's alarm is not reported once its job has a row", arguments: [false, true])
    func successors(isFake: Bool) throws {
        if isFake { return try checkAlarmSuccessors(MemoryStoreHarness()) }
        let folder = try TemporaryFolder()
        let harness = try EmbeddedStoreHarness(StoreFixture.configuration(folder), isSpilling: true)
        defer { harness.close() }
        try checkAlarmSuccessors(harness)
        // One message's and two jobs' alarms. The alarms that the jobs have taken over are gone permanently.
        try harness.waitForAlarms(3)
        try harness.reopen()
        try harness.waitForAlarms(3)
    }

    @Test("a limited read continues after rows that are young deletions", arguments: [false, true])
    func narrowScan(isFake: Bool) throws {
        if isFake { return try checkNarrowScan(MemoryStoreHarness()) }
        let folder = try TemporaryFolder()
        let harness = try EmbeddedStoreHarness(StoreFixture.configuration(folder), isSpilling: true)
        defer { harness.close() }
        try checkNarrowScan(harness)
    }

    @Test("a message whose job row cannot be read has an alarm at its expiry", arguments: [false, true])
    func unreadableSuccessor(isFake: Bool) throws {
        if isFake { return try checkUnreadableSuccessor(MemoryStoreHarness()) }
        let folder = try TemporaryFolder()
        let harness = try EmbeddedStoreHarness(StoreFixture.configuration(folder), isSpilling: true)
        defer { harness.close() }
        try checkUnreadableSuccessor(harness)
        try harness.waitForAlarms(2)
    }

    @Test("the smallest configurable journal accepts many times its size")
    func smallestJournal() throws {
        let folder = try TemporaryFolder()
        var configuration = StoreFixture.configuration(folder)
        configuration.journalByteLimit = 16 << 20
        configuration.segmentByteCount = Limits.segmentByteCount(journalByteLimit: 16 << 20)
        configuration.uncommittedByteLimit = Limits.uncommittedByteCount(journalByteLimit: 16 << 20)
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        let shard = fixture.shards[0]
        for number in UInt64(1)...2_000 {
            try fixture.wait("room for row \(number)") { shard.acceptsWrites }
            shard.beginBatch(Bucket(7))
            shard.put(
                StoreKey(Bucket(7), .message, ownerHigh: 1, ownerLow: 1, item: number), wakeAt: 0, prior: .none,
                byteCount: 25_000
            ) { $0.initializeMemory(as: UInt8.self, repeating: 1) }
            let ticket = shard.endBatch()
            if number % 16 == 0 { try fixture.sync([ticket]) }
        }
        #expect(fixture.embedded.statistics.spilledRowCount > 0)
    }

    @Test("the journal alone keeps what is written", arguments: conformanceSeeds(2))
    func journal(seed: UInt64) throws {
        let folder = try TemporaryFolder()
        let harness = try EmbeddedStoreHarness(StoreFixture.configuration(folder), isSpilling: false)
        defer { harness.close() }
        try checkShardStoreConformance(harness, seed: seed, stepCount: 500, buckets: Self.buckets)
    }

    @Test("journal and ordered store keep what is written while rows move", arguments: conformanceSeeds(4))
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
