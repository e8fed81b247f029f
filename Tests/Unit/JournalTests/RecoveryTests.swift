import Foundation
import Platform
import Testing

@testable import Journal

@Suite("Journal recovery")
struct RecoveryTests {
    /// Returns a stopped journal of one segment with the groups 1 2 3 | 4 | 5 6, and its file content.
    private func smallJournal() throws -> (fixture: JournalFixture, generation: UInt64, image: [UInt8]) {
        let fixture = try JournalFixture()
        try fixture.start()
        #expect(fixture.commit([1, 2, 3]))
        #expect(fixture.commit([4]))
        #expect(fixture.commit([5, 6]))
        fixture.stop()
        let generation = try #require(try fixture.folder.segments().first)
        return (fixture, generation, try fixture.bytes(generation))
    }
    private static let recordByteCount = RecordHeader.recordByteCount(
        bodyByteCount: JournalFixture.header(1, valueByteCount: 24).byteCount + 24)

    @Test("committed batches are recovered in order, over several segments")
    func roundTrip() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        for number in UInt64(1)...200 { #expect(fixture.commit([number], valueByteCount: 100)) }
        fixture.stop()
        #expect(try fixture.folder.segments().count > 5)
        #expect(try fixture.recovered() == Array(1...200))
    }

    @Test("a write torn at any byte leaves the first whole batches and no error")
    func tornAnywhere() throws {
        let (fixture, generation, image) = try smallJournal()
        let end = SegmentHeader.byteCount + 6 * Self.recordByteCount
        for cut in 0...end {
            var torn = image
            for index in cut..<torn.count { torn[index] = 0 }
            try fixture.overwrite(generation, torn)
            let whole = cut < SegmentHeader.byteCount ? 0 : (cut - SegmentHeader.byteCount) / Self.recordByteCount
            let found = try fixture.recovered()
            // The tear may have taken only trailing zeros of a record.
            #expect(found == Array(1..<UInt64(found.count + 1)))
            #expect(found.count >= whole && found.count <= whole + 1, "cut at \(cut)")
        }
    }

    @Test("a group whose later batch reached the disk without its first one is cut off")
    func tornInside() throws {
        let (fixture, generation, image) = try smallJournal()
        var torn = image
        let fifth = SegmentHeader.byteCount + 4 * Self.recordByteCount
        for index in fifth..<fifth + Self.recordByteCount { torn[index] = 0 }
        try fixture.overwrite(generation, torn)
        #expect(try fixture.recovered() == [1, 2, 3, 4])
        #expect(try Recovery(folder: fixture.folder).tornTail?.offset == fifth)
    }

    @Test("a flipped bit in synced data is refused, and elsewhere loses at most the last group")
    func flippedAnywhere() throws {
        let (fixture, generation, image) = try smallJournal()
        let lastGroup = SegmentHeader.byteCount + 4 * Self.recordByteCount
        for offset in 0..<SegmentHeader.byteCount + 6 * Self.recordByteCount {
            var damaged = image
            damaged[offset] ^= 1 << UInt8(offset % 8)
            try fixture.overwrite(generation, damaged)
            do {
                let found = try fixture.recovered()
                let isUnused = found == [1, 2, 3, 4, 5, 6]  // a reserved byte or padding
                let isTail = offset >= lastGroup && (found == [1, 2, 3, 4] || found == [1, 2, 3, 4, 5])
                #expect(isUnused || isTail, "byte \(offset) gave \(found)")
            } catch let error as JournalError {
                guard case .damaged(let file, _, _) = error else {
                    Issue.record("\(error)")
                    continue
                }
                #expect(file == fixture.folder.segmentPath(generation))
                #expect(offset < lastGroup, "byte \(offset) is in the last group")
            }
        }
    }

    @Test("records of a file's earlier use are never replayed")
    func recycled() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        // Fill one segment, free it, and fill until it is reused.
        var number: UInt64 = 0
        for _ in 0..<3 {
            while fixture.ledger?.oldestSealed == nil {
                number += 1
                #expect(fixture.commit([number]))
            }
            try fixture.recycleOldest()
        }
        number += 1
        #expect(fixture.commit([number]))
        fixture.stop()
        let found = try fixture.recovered()
        #expect(found.last == number)
        // Only the current segment, though its file is full of old records.
        #expect(found == Array((number - UInt64(found.count) + 1)...number))
        #expect(found.count < 35)
        let generation = try #require(try fixture.folder.segments().last)
        let image = try fixture.bytes(generation)
        let end = SegmentHeader.byteCount + found.count * Self.recordByteCount
        #expect(image[end...].contains { $0 != 0 }, "the file has been used before")
    }

    @Test("a file shorter than its original size is refused")
    func shortened() throws {
        let (fixture, generation, image) = try smallJournal()
        try fixture.overwrite(generation, image[..<(image.count - 1)])
        #expect(throws: JournalError.self) { try fixture.recovered() }
    }

    @Test("a segment that lost its end, though a later one was written, is refused")
    func lostEnd() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        for number in UInt64(1)...60 { #expect(fixture.commit([number])) }
        fixture.stop()
        let segments = try fixture.folder.segments()
        try #require(segments.count >= 2)
        var image = try fixture.bytes(segments[0])
        let recovery = try Recovery(folder: fixture.folder)
        for index in recovery.segments[0].end - Self.recordByteCount..<image.count { image[index] = 0 }
        try fixture.overwrite(segments[0], image)
        #expect(throws: JournalError.self) { try fixture.recovered() }
    }

    @Test("a segment of an earlier run after one of a later run is refused, and the opposite is not")
    func earlierRun() throws {
        for lowered in [0, 1] {
            let fixture = try JournalFixture()
            // As if the folder had been opened before.
            try fixture.start(run: 9)
            for number in UInt64(1)...60 { #expect(fixture.commit([number])) }
            fixture.stop()
            let segments = try fixture.folder.segments()
            try #require(segments.count >= 2)
            let generation = segments[lowered]
            var image = try fixture.bytes(generation)
            var header = try #require(image.withUnsafeBytes { SegmentHeader(in: $0, generation: generation) })
            #expect(header.run == 9)
            header.run = 8
            image.withUnsafeMutableBytes {
                header.write(to: UnsafeMutableRawBufferPointer(rebasing: $0[..<SegmentHeader.byteCount]))
            }
            try fixture.overwrite(generation, image)
            guard lowered == 1 else {
                #expect(try fixture.recovered() == Array(1...60))
                continue
            }
            let error = #expect(throws: JournalError.self) { try fixture.recovered() }
            guard case .damaged(let file, 0, _)? = error else {
                Issue.record("\(String(describing: error))")
                continue
            }
            #expect(file == fixture.folder.segmentPath(generation))
        }
    }

    @Test("a missing segment between two others is refused")
    func missing() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        for number in UInt64(1)...120 { #expect(fixture.commit([number])) }
        fixture.stop()
        let segments = try fixture.folder.segments()
        try #require(segments.count >= 3)
        try FileManager.default.removeItem(atPath: fixture.folder.segmentPath(segments[1]))
        #expect(throws: JournalError.self) { try fixture.recovered() }
    }
}
