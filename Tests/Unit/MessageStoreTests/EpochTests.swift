import Foundation
import TestKit
import Testing
import Wire

@testable import Delivery
@testable import MessageStore

@Suite("Embedded store: epochs")
struct EpochTests {
    /// A change of the folder between two runs.
    enum Change: CaseIterable, CustomTestStringConvertible {
        case nothing, otherSegments, emptyRun, otherSegmentsAndEmptyRun, noSpares, noJournal
        var testDescription: String { "\(self)" }
        var segment: Int { self == .otherSegments || self == .otherSegmentsAndEmptyRun ? 32 << 10 : 64 << 10 }
    }

    private static let key = CountersRow.key(Bucket(7), app: AppKey(1), day: 20_800)

    private static func configuration(_ folder: TemporaryFolder, segment: Int = 64 << 10) -> EmbeddedStore.Configuration
    {
        var configuration = StoreFixture.configuration(folder, segment: segment)
        configuration.youngMilliseconds = 3_600_000
        return configuration
    }

    private func accepted(_ fixture: StoreFixture) throws -> UInt64 {
        var accepted: UInt64 = 0
        try fixture.shards[0].loadAll(table: .counters) { row in
            accepted += CountersRow(row.value)?.accepted ?? 0
        }
        return accepted
    }

    /// Counts publishes in addition to the stored ones, one per batch.
    private func count(_ publishes: Int, in fixture: StoreFixture) throws {
        let shard = fixture.shards[0]
        var sum: [UInt8]?
        try shard.loadAll(table: .counters) { sum = Array($0.value) }
        let change = try #require([UInt8(1), 0, 0, 1].withUnsafeBytes { CounterChange($0) })
        for _ in 0..<publishes {
            let next = change.added(to: sum, Self.key)
            shard.beginBatch(Self.key.bucket)
            shard.add(Self.key, change) { $0.copyBytes(from: next) }
            _ = shard.endBatch()
            sum = next
        }
        try fixture.sync()
    }

    /// Counts a hundred publishes, moves the row to the ordered store, and changes the folder.
    private func prepare(_ folder: TemporaryFolder, _ change: Change) throws -> EmbeddedStore.Configuration {
        do {
            let fixture = try StoreFixture(Self.configuration(folder))
            defer { fixture.close() }
            try count(100, in: fixture)
            try fixture.spillAll()
        }
        let journal = folder.path + "/journal"
        if change == .noSpares {
            for name in try FileManager.default.contentsOfDirectory(atPath: journal) where name.hasPrefix("free-") {
                try FileManager.default.removeItem(atPath: journal + "/" + name)
            }
        }
        if change == .noJournal { try FileManager.default.removeItem(atPath: journal) }
        let configuration = Self.configuration(folder, segment: change.segment)
        if change == .emptyRun || change == .otherSegmentsAndEmptyRun {
            try StoreFixture(configuration).close()
        }
        return configuration
    }

    @Test(
        "counts of a run that ended before its first spill are added to those of earlier runs",
        arguments: Change.allCases)
    func counts(_ change: Change) throws {
        let folder = try TemporaryFolder()
        let configuration = try prepare(folder, change)
        do {
            // A killed process leaves the same: a close moves no rows.
            let fixture = try StoreFixture(configuration)
            defer { fixture.close() }
            #expect(try accepted(fixture) == 100)
            try count(50, in: fixture)
        }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        #expect(try accepted(fixture) == 150)
    }

    @Test("each opening has a higher epoch than all earlier ones", arguments: Change.allCases)
    func rises(_ change: Change) throws {
        let folder = try TemporaryFolder()
        func open(_ configuration: EmbeddedStore.Configuration) throws -> UInt64 {
            let fixture = try StoreFixture(configuration)
            defer { fixture.close() }
            let engine: any StoreEngine = fixture.embedded
            return engine.epoch
        }
        var last: UInt64 = 0
        for _ in 0..<3 {
            let configuration = try prepare(folder, change)
            for _ in 0..<2 {
                let epoch = try open(configuration)
                #expect(epoch > last)
                last = epoch
            }
        }
        // Two in each round are opened here, one in `prepare`, and one more for an empty run.
        #expect(last >= 9)
    }

    @Test("a folder without an epoch continues above its journal's generations")
    func olderFolder() throws {
        let folder = try TemporaryFolder()
        let configuration = try prepare(folder, .otherSegments)
        let epoch = try FileManager.default.contentsOfDirectory(atPath: folder.path + "/journal").compactMap {
            UInt64($0.suffix(16), radix: 16)
        }.max()
        try FileManager.default.removeItem(atPath: folder.path + "/epoch")
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        #expect(fixture.embedded.epoch > (try #require(epoch)))
    }

    @Test("an invalid epoch file is refused and kept", arguments: ["", "longwire epoch x\n", "7\n"])
    func unknownEpoch(text: String) throws {
        let folder = try TemporaryFolder()
        _ = try prepare(folder, .nothing)
        let path = folder.path + "/epoch"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        #expect(throws: StoreError.unknownEpoch(file: path)) { _ = try StoreFixture(Self.configuration(folder)) }
        #expect(try String(contentsOfFile: path, encoding: .utf8) == text)
    }
}
