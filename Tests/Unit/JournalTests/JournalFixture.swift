import Foundation
import Platform
import Synchronization

@testable import Journal

/// A journal in a temporary folder; each batch holds one row with a number as its item.
final class JournalFixture {
    let path: String
    let folder: SegmentFolder
    private var memory: [UnsafeMutableRawPointer] = []
    private(set) var committer: Committer?
    private var thread: JoinBox?
    private let progress = Monitor<UInt64>(0)
    private let failures = Lock<[JournalError]>([])
    private var ticket: UInt64 = 0
    private(set) var ledger: SegmentLedger?

    // - Parameters:
    //   - isOnDisk: false uses a memory file system if available, for injected failures where syncs should cost nothing.
    //   - isPrepared: false leaves even the creation of the folder to the test.
    init(segment: Int = 4096, isOnDisk: Bool = true, isPrepared: Bool = true) throws {
        let isInMemory = !isOnDisk && FileManager.default.isWritableFile(atPath: "/dev/shm")
        path = (isInMemory ? "/dev/shm/" : NSTemporaryDirectory()) + "longwire-journal-" + UUID().uuidString
        folder = SegmentFolder(path: path, segmentByteCount: segment)
        if isPrepared { try folder.prepare() }
    }

    deinit {
        stop()
        for piece in memory { piece.deallocate() }
        try? FileManager.default.removeItem(atPath: path)
    }

    func start(
        fault: (@Sendable (Int) -> SystemError?)? = nil, unawaitedMilliseconds: UInt64 = Limits.unawaitedMilliseconds,
        durability: Committer.Durability = .fsync, run: UInt64? = nil
    ) throws {
        let ledger = try SegmentLedger(folder: folder, run: run ?? folder.highestGeneration() + 1)
        failures.withLock { $0.removeAll() }
        var configuration = Committer.Configuration()
        configuration.gatherMicroseconds = 0
        configuration.fault = fault
        configuration.durability = durability
        configuration.unawaitedMilliseconds = unawaitedMilliseconds
        let committer = Committer(ledger: ledger, configuration: configuration) { [failures, progress] error in
            failures.withLock { $0.append(error) }
            progress.broadcast { _ in }
        }
        _ = committer.register { [progress] ticket in progress.broadcast { $0 = ticket } }
        (self.ledger, self.committer) = (ledger, committer)
        thread = try JoinBox { committer.run() }
    }

    var lastTicket: UInt64 { ticket }
    /// The last number reported durable.
    var committedTicket: UInt64 { progress.withLock { $0 } }

    func stop() {
        committer?.close()
        thread?.join()
        (thread, committer, ledger) = (nil, nil, nil)
    }

    /// Writes one group with a batch for each number; returns true once it is durable, false if the committer failed.
    @discardableResult
    func commit(_ numbers: [UInt64], valueByteCount: Int = 24) -> Bool {
        submit(numbers, valueByteCount: valueByteCount)
        return wait()
    }

    func submit(_ numbers: [UInt64], valueByteCount: Int = 24, isAwaited: Bool = true) {
        var pieces: [BatchPiece] = []
        var byteCount = 0
        for number in numbers {
            let header = Self.header(number, valueByteCount: valueByteCount)
            let body = header.byteCount + valueByteCount
            let size = RecordHeader.recordByteCount(bodyByteCount: body)
            let start = UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 8)
            start.initializeMemory(as: UInt8.self, repeating: UInt8(truncatingIfNeeded: number), count: size)
            memory.append(start)
            header.write(to: start + RecordHeader.byteCount)
            let bodyBytes = UnsafeRawBufferPointer(start: start + RecordHeader.byteCount, count: body)
            ticket += 1
            RecordHeader.write(
                bodyByteCount: body, bucket: 7, operationCount: 1, bodyChecksum: Checksum.crc32c(bodyBytes),
                ticket: ticket,
                to: start)
            pieces.append(BatchPiece(start: start, byteCount: size, recordByteCount: size, ticket: ticket))
            byteCount += size
        }
        committer?.submit(pieces, shard: 0, byteCount: byteCount, isAwaited: isAwaited)
    }

    static func header(_ number: UInt64, valueByteCount: Int) -> OperationHeader {
        // Items below 2^21 yield records of one size.
        OperationHeader(
            .put, table: 2, prior: .nothing, ownerHigh: 1, ownerLow: 2, isOwnerAsBefore: false, item: number,
            wakeAt: 0, coldAlarm: 0, valueByteCount: valueByteCount)
    }

    /// Waits until everything submitted is durable; returns false if the committer failed.
    func wait() -> Bool {
        let (target, failures) = (ticket, failures)
        return progress.wait(
            atMostMilliseconds: 30_000, while: { $0 < target && failures.withLock { $0.isEmpty } }
        ) { $0 >= target }
    }

    var reportedFailures: [JournalError] { failures.withLock { $0 } }

    /// The numbers that a start would replay.
    func recovered() throws -> [UInt64] {
        let recovery = try Recovery(folder: folder)
        var numbers: [UInt64] = []
        for segment in recovery.segments { try recovery.replay(segment) { numbers.append($0.item) } }
        return numbers
    }

    func bytes(_ generation: UInt64) throws -> [UInt8] {
        [UInt8](try Data(contentsOf: URL(fileURLWithPath: folder.segmentPath(generation))))
    }

    func overwrite(_ generation: UInt64, _ bytes: some Sequence<UInt8>) throws {
        try Data(bytes).write(to: URL(fileURLWithPath: folder.segmentPath(generation)))
    }

    /// Waits for a sealed segment and recycles it.
    func recycleOldest() throws {
        guard let ledger else { return }
        while ledger.oldestSealed == nil { _ = ledger.wait(atMostMilliseconds: 100) }
        try ledger.recycleOldest(keepingSpares: 2)
    }
}

/// A failed expectation shows its operands, and a mirror cannot copy a thread's handle.
extension JournalFixture: CustomReflectable {
    var customMirror: Mirror { Mirror(self, children: ["path": path, "lastTicket": ticket]) }
}

/// A thread that a class may store.
final class JoinBox {
    private var thread: Platform.Thread?
    init(_ body: @escaping @Sendable () -> Void) throws { thread = try Platform.Thread(named: "test", body) }
    func join() {
        guard let thread = thread.take() else { return }
        thread.join()
    }
}
