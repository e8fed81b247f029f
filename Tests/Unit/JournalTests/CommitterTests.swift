import Foundation
import Platform
import Testing

@testable import Journal

@Suite("Committer")
struct CommitterTests {
    @Test("a failed write is reported once, and no batch commits after it")
    func failedWrite() throws {
        let fixture = try JournalFixture()
        let failure = SystemError(operation: "write", subject: "test", code: 28)
        try fixture.start(fault: { $0 == 2 ? failure : nil })
        #expect(fixture.commit([1]))
        #expect(!fixture.commit([2]))
        #expect(!fixture.commit([3]))
        #expect(fixture.reportedFailures == [.system(failure)])
        fixture.stop()
        #expect(try fixture.recovered() == [1])
    }

    @Test("bytes and groups are counted, and every batch is committed")
    func statistics() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        #expect(fixture.commit([1, 2, 3]))
        #expect(fixture.commit([4]))
        let committer = try #require(fixture.committer)
        fixture.stop()  // The thread counts a group after it has notified the shards.
        #expect(committer.statistics.batchCount == 4)
        #expect(committer.statistics.groupCount == 2)
        #expect(committer.statistics.largestGroup == 3)
        #expect(committer.statistics.commitTimes.reduce(0, +) == 2)
        #expect(committer.uncommittedByteCount == 0)
    }

    @Test("batches without waiters are written with the next group")
    func company() throws {
        let fixture = try JournalFixture()
        try fixture.start(unawaitedMilliseconds: 3_600_000)
        fixture.submit([1], isAwaited: false)
        fixture.submit([2, 3], isAwaited: false)
        #expect(fixture.commit([4]))
        fixture.submit([5], isAwaited: false)
        let committer = try #require(fixture.committer)
        fixture.stop()  // It waits for no batch, but writes all.
        #expect(committer.statistics.groupCount == 2)
        #expect(committer.statistics.batchCount == 5)
        #expect(try fixture.recovered() == [1, 2, 3, 4, 5])
    }

    @Test("batches without waiters are written soon, and at once if there are many")
    func noCompany() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        fixture.submit([1], isAwaited: false)
        #expect(fixture.wait())
        fixture.stop()
        let many = try JournalFixture(segment: 4 << 20)
        try many.start(unawaitedMilliseconds: 3_600_000)
        many.submit(Array(1...11), valueByteCount: 100_000, isAwaited: false)
        #expect(many.wait())
        many.stop()
    }

    @Test("freed segments are reused before new ones are created")
    func reuse() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        var number: UInt64 = 0
        for _ in 0..<10 {
            while fixture.ledger?.oldestSealed == nil {
                number += 1
                #expect(fixture.commit([number]))
            }
            try fixture.recycleOldest()
        }
        fixture.stop()
        let names = try FileManager.default.contentsOfDirectory(atPath: fixture.path)
        #expect(names.count <= 4, "\(names)")
    }

    @Test("a group that does not fit continues in the next segment, batch by batch")
    func acrossSegments() throws {
        let fixture = try JournalFixture()
        try fixture.start()
        #expect(fixture.commit(Array(1...200)))
        fixture.stop()
        #expect(try fixture.folder.segments().count > 2)
        #expect(try fixture.recovered() == Array(1...200))
    }
}
