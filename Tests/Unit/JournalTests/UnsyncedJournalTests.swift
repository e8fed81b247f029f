import Foundation
import TestKit
import Testing

@testable import Journal

/// Durability `os`: a power failure may lose any unsynced page and keep its neighbors.
@Suite("Journal without syncs")
struct UnsyncedJournalTests {
    private static let pageByteCount = 512

    /// Loses some pages of each segment: they again hold `synced`, or the file's earlier content.
    private static func losePages(
        _ fixture: JournalFixture, synced: [UInt64: [UInt8]], share: Int, _ random: inout SeededGenerator
    ) throws -> Int {
        var lostCount = 0
        var earlier: [UInt8]?
        for generation in try fixture.folder.segments() {
            var bytes = try fixture.bytes(generation)
            let image = bytes
            let before = synced[generation] ?? earlier ?? [UInt8](repeating: 0, count: bytes.count)
            for page in 0..<bytes.count / Self.pageByteCount where Int.random(in: 0..<100, using: &random) < share {
                let range = page * Self.pageByteCount..<(page + 1) * Self.pageByteCount
                if bytes[range] != before[range] { lostCount += 1 }
                bytes.replaceSubrange(range, with: before[range])
            }
            try fixture.overwrite(generation, bytes)
            earlier = image
        }
        return lostCount
    }

    @Test("whichever pages a power failure loses, a start restores a prefix and reports it")
    func anyPages() throws {
        var (cutCount, discardedCount) = (0, 0)
        for seed in UInt64(1)...150 {
            var random = SeededGenerator(seed: seed)
            let fixture = try JournalFixture(segment: 4_096, isOnDisk: false)
            try fixture.start(durability: .os)
            var number: UInt64 = 0
            var first: UInt64 = 1
            var (synced, promised): ([UInt64: [UInt8]], UInt64) = ([:], 0)
            for _ in 0..<Int.random(in: 1...60, using: &random) {
                let count = UInt64.random(in: 1...4, using: &random)
                #expect(fixture.commit(Array(number + 1...number + count), valueByteCount: 90))
                number += count
                let ledger = try #require(fixture.ledger)
                if Int.random(in: 0..<12, using: &random) == 0 {
                    try ledger.synchronize()
                    promised = number
                    for generation in try fixture.folder.segments() {
                        synced[generation] = try fixture.bytes(generation)
                    }
                    // A segment may be recycled only then.
                    if let oldest = ledger.oldestSealed, Bool.random(using: &random) {
                        first = oldest.lastTickets[0] + 1
                        try ledger.recycleOldest(keepingSpares: 2)
                    }
                }
            }
            fixture.stop()
            let lost = try Self.losePages(
                fixture, synced: synced, share: [0, 3, 20, 60, 100][Int(seed % 5)], &random)
            let found = try fixture.recovered()
            let recovery = try Recovery(folder: fixture.folder)
            #expect(found == Array(first..<first + UInt64(found.count)), "seed \(seed)")
            #expect(first + UInt64(found.count) > promised, "seed \(seed): synced and lost")
            if lost == 0 { #expect(found.last ?? number == number && recovery.cutByteCount == 0, "seed \(seed)") }
            if !recovery.discarded.isEmpty { #expect(recovery.cutByteCount > 0 && recovery.isUnsynced, "seed \(seed)") }
            cutCount += recovery.cutByteCount > 0 ? 1 : 0
            discardedCount += recovery.discarded.count
            // A start interrupted between two of the segments finds the same.
            if let last = recovery.discarded.last {
                try fixture.folder.recycle(last)
                #expect(try fixture.recovered() == found, "seed \(seed)")
            }
            try Recovery(folder: fixture.folder).discard()
            #expect(try fixture.recovered() == found, "seed \(seed)")
            #expect(try Recovery(folder: fixture.folder).discarded.isEmpty)
        }
        #expect(cutCount > 30 && discardedCount > 30)
    }

    @Test("a missing segment is an error without syncs, too, because names are always synced")
    func missing() throws {
        let fixture = try JournalFixture()
        try fixture.start(durability: .os)
        for number in UInt64(1)...120 { #expect(fixture.commit([number])) }
        fixture.stop()
        let segments = try fixture.folder.segments()
        try #require(segments.count >= 3)
        try FileManager.default.removeItem(atPath: fixture.folder.segmentPath(segments[1]))
        #expect(throws: JournalError.self) { try fixture.recovered() }
    }
}
