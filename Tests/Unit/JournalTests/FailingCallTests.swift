import Foundation
import Platform
import TestKit
import Testing

@testable import Journal

#if DEBUG
/// A short run of a journal, restart included, in which one call, or every call from it on, fails.
///
/// Numbers are committed in order, so a journal holds a range. The range must start no later than after the last recycled number.
/// It must end between the last number reported durable and the last one submitted.
private final class JournalRun {
    let fixture: JournalFixture
    let plan: FaultPlan
    /// The last number in segments that were recycled or were about to be.
    private(set) var givenBack: UInt64 = 0
    private(set) var problems: [String] = []
    private(set) var failures: [JournalError] = []
    private var random = SeededGenerator(seed: 11)

    init(_ kind: FaultPlan.Kind, at number: Int, _ extent: FaultPlan.Extent) throws {
        fixture = try JournalFixture(isOnDisk: false, isPrepared: false)
        plan = FaultPlan(folder: fixture.path, kind: kind, at: number, extent: extent)
    }

    func play() throws {
        defer { plan.remove() }
        do {
            try open()
            for _ in 0..<14 { guard try step() else { break } }
            fixture.stop()
            if fixture.reportedFailures.isEmpty {
                try open()
                for _ in 0..<4 { guard try step() else { break } }
            }
        } catch let error as JournalError {
            failures.append(error)
        }
        fixture.stop()
        failures += fixture.reportedFailures
        if fixture.reportedFailures.count > 1 { problems.append("the failure was reported more than once") }
    }

    /// Starts: checks, reads and recycles the existing segments, oldest first.
    private func open() throws {
        try fixture.folder.prepare()
        let recovery = try Recovery(folder: fixture.folder)
        var numbers: [UInt64] = []
        for segment in recovery.segments { try recovery.replay(segment) { numbers.append($0.item) } }
        check(numbers)
        for segment in recovery.segments {
            try recovery.replay(segment) { givenBack = max(givenBack, $0.item) }
            try fixture.folder.recycle(segment.generation)
        }
        givenBack = max(givenBack, fixture.committedTicket)
        try fixture.start()
    }

    /// Returns false if the committer has failed.
    private func step() throws -> Bool {
        let count = UInt64.random(in: 1...6, using: &random)
        let first = fixture.lastTicket + 1
        let isCommitted = fixture.commit(
            Array(first..<first + count), valueByteCount: Int.random(in: 1...240, using: &random))
        guard isCommitted else {
            if fixture.reportedFailures.isEmpty { problems.append("a commit never ended, and no failure was told") }
            return false
        }
        guard let ledger = fixture.ledger else { return false }
        // As in the spiller, the committer deals later with a spare that cannot be created.
        do throws(JournalError) { try ledger.keepSpare() } catch { failures.append(error) }
        if Bool.random(using: &random), let oldest = ledger.oldestSealed {
            givenBack = max(givenBack, oldest.lastTickets[0])
            try ledger.recycleOldest(keepingSpares: 2)
        }
        return true
    }

    func check(_ numbers: [UInt64]) {
        guard let first = numbers.first, let last = numbers.last else {
            if fixture.committedTicket > givenBack { problems.append("everything is lost") }
            return
        }
        if numbers != Array(first...last) { problems.append("out of order: \(numbers)") }
        if first > givenBack + 1 { problems.append("lost: \(givenBack + 1)..<\(first)") }
        if last < fixture.committedTicket { problems.append("lost: after \(last), to \(fixture.committedTicket)") }
        if last > fixture.lastTicket { problems.append("never written: \(last)") }
    }
}

extension JournalRun: CustomReflectable {
    var customMirror: Mirror { Mirror(self, children: ["problems": problems]) }
}

@Suite("Journal: every call failing")
struct JournalFailingCallTests {
    static let faults: [(FaultPlan.Kind, FaultPlan.Extent)] = [
        (.error(EIO), .once), (.error(EIO), .fromThereOn), (.error(ENOSPC), .once), (.error(ENOSPC), .fromThereOn),
        (.error(EROFS), .fromThereOn),
    ]

    @Test(
        "for every n, a failed n-th call loses no durable batch and is reported", arguments: faults.indices)
    func nthCall(index: Int) throws {
        let (kind, extent) = Self.faults[index]
        var number = 0
        var kinds = Set<Substring>()
        while true {
            number += 1
            let run = try JournalRun(kind, at: number, extent)
            try run.play()
            let here = "call \(number), \(kind), \(extent): \(run.plan.hits)"
            // Without faults everything durable is there, and the journal works.
            try run.fixture.folder.prepare()
            run.check(try run.fixture.recovered())
            #expect(run.problems == [], "\(here)")
            try run.fixture.start()
            #expect(run.fixture.commit([run.fixture.lastTicket + 1]), "\(here)")
            run.fixture.stop()
            #expect(try run.fixture.recovered().last == run.fixture.lastTicket, "\(here)")
            for hit in run.plan.hits { kinds.insert(hit.prefix { $0 != " " }) }
            for failure in run.failures {
                guard case .system(let error) = failure else {
                    Issue.record("\(here) was taken for damage: \(failure)")
                    continue
                }
                #expect(error.subject.hasPrefix(run.fixture.path), "\(here): \(error)")
            }
            if run.plan.callCount < number { break }
            // Leftover names are removed in any case. Every other failed call is reported.
            let isTold = !run.failures.isEmpty
            let isTidying = run.plan.hits.allSatisfy { $0.hasPrefix("unlink") }
            #expect(isTold || isTidying, "\(here) went unnoticed")
        }
        #expect(number > 100)
        for call in ["open", "write", "read", "fdatasync", "fallocate", "rename", "fsync", "mkdir", "opendir"] {
            #expect(kinds.contains(Substring(call)), "no \(call) failed")
        }
    }

    @Test("short writes and reads, and interrupted calls, change nothing")
    func shortAndInterrupted() throws {
        for (kind, extent) in [
            (FaultPlan.Kind.short, FaultPlan.Extent.once), (.short, .fromThereOn), (.error(EINTR), .once),
        ] {
            var number = 0
            var callCount = Int.max
            while number < callCount {
                number += extent == .once ? 1 : 7
                let run = try JournalRun(kind, at: number, extent)
                try run.play()
                callCount = run.plan.callCount
                run.check(try run.fixture.recovered())
                #expect(run.problems == [] && run.failures == [], "call \(number), \(kind): \(run.plan.hits)")
            }
        }
    }

    @Test("a disk that fills up during a group's write leaves whole groups, and the failure is reported")
    func fullInTheMiddle() throws {
        let fixture = try JournalFixture(isOnDisk: false)
        try fixture.start()
        #expect(fixture.commit([1, 2]))
        let half = FaultPlan(folder: fixture.path, kind: .short, at: 1, extent: .once) { $0 == "write" }
        let full = FaultPlan(folder: fixture.path, kind: .error(ENOSPC), at: 2, extent: .fromThereOn) {
            $0 == "write"
        }
        #expect(!fixture.commit([3, 4, 5, 6]))
        half.remove()
        full.remove()
        fixture.stop()
        guard case .system(let error)? = fixture.reportedFailures.first else {
            Issue.record("\(fixture.reportedFailures)")
            return
        }
        #expect(error.isOutOfSpace && error.operation == "write")
        let found = try fixture.recovered()
        #expect(found.starts(with: [1, 2]) && found.count < 6, "\(found)")
    }

    @Test("a spare whose folder cannot be synced leaves no file, however often it is tried")
    func failedSpares() throws {
        let fixture = try JournalFixture(isOnDisk: false)
        let ledger = try SegmentLedger(folder: fixture.folder, run: 1)
        // The second sync of each attempt is the folder's.
        for _ in 0..<5 {
            let plan = FaultPlan(folder: fixture.path, kind: .error(EIO), at: 2, extent: .once) { $0 == "fsync" }
            #expect(throws: JournalError.self) { try ledger.keepSpare() }
            plan.remove()
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: fixture.path) == [])
        try ledger.keepSpare()
        #expect(try FileManager.default.contentsOfDirectory(atPath: fixture.path).count == 1)
    }

    @Test("a committer without a spare does not wait for zeros, and the next spare is started at once")
    func awaitedSegment() throws {
        let fixture = try JournalFixture(segment: 1 << 20, isOnDisk: false)
        let ledger = try SegmentLedger(folder: fixture.folder, run: 1)
        let plan = FaultPlan(folder: fixture.path, kind: .error(EIO), at: 1, extent: .fromThereOn) { $0 == "write" }
        defer { plan.remove() }
        let taken = try ledger.takeSegment()
        #expect(try taken.file.byteCount() == 1 << 20)
        #expect(throws: JournalError.self, "a spare that nobody waits for is written") { try ledger.keepSpare() }
        // It would sleep for an hour.
        #expect(ledger.wait(atMostMilliseconds: 3_600_000))
    }

    @Test("an unreadable segment is reported by name, and the next start reads it")
    func unreadable() throws {
        let fixture = try JournalFixture(isOnDisk: false)
        try fixture.start()
        #expect(fixture.commit([1, 2, 3]))
        fixture.stop()
        let path = fixture.folder.segmentPath(try #require(try fixture.folder.segments().first))
        let plan = FaultPlan(folder: path, kind: .error(EIO), at: 1, extent: .fromThereOn) { $0 == "read" }
        let expected = JournalError.system(SystemError(operation: "read", subject: path, code: EIO))
        #expect(throws: expected) { try fixture.recovered() }
        plan.remove()
        #expect(try fixture.recovered() == [1, 2, 3])
    }
}
#endif
