// Group commit. Each event loop submits the byte ranges of its batches at the end of a turn. The committer writes the batches of
// all loops with one `pwritev`, syncs, and reports the last durable ticket to each shard. The next group gathers during the sync.
// While the process is busy, the committer pauses after a small group, so that each sync carries more batches.
//
// A group lies within one segment. Batches that do not fit begin the next segment.

internal import Glibc
package import Platform
internal import Synchronization

/// A part of a batch in a loop's memory; the bytes must stay unchanged until the batch is reported durable.
package struct BatchPiece {
    package var start: UnsafeMutableRawPointer
    package var byteCount: Int
    /// The size of the whole record, on a batch's first piece (which begins with the header); 0 on the other pieces.
    package var recordByteCount: Int
    /// The ticket of the batch, set on its first piece.
    package var ticket: UInt64

    @inline(__always)
    package init(start: UnsafeMutableRawPointer, byteCount: Int, recordByteCount: Int, ticket: UInt64) {
        (self.start, self.byteCount) = (start, byteCount)
        (self.recordByteCount, self.ticket) = (recordByteCount, ticket)
    }
}

/// The writer of the journal, on a dedicated thread.
package final class Committer: @unchecked Sendable {
    // Sound because shared state is behind `queue`, `statisticsLock` and atomics. All other state (`current`, the scratch arrays)
    // is accessed only by the committer thread.

    package enum Durability: Sendable {
        /// Acknowledged batches are synced to disk.
        case fsync
        /// Acknowledged batches are in the kernel's page cache: they survive a crash of the process, but not of the machine.
        ///
        /// The segments record this mode, so that a start after a power failure continues with a prefix of what was written. The
        /// spiller calls `SegmentLedger.synchronize()` before it recycles a segment.
        case os
    }

    package struct Configuration: Sendable {
        package var durability = Durability.fsync
        package var smallGroupBatchCount = Limits.smallGroupBatchCount
        package var gatherMicroseconds = Limits.gatherMicroseconds
        package var unawaitedMilliseconds = Limits.unawaitedMilliseconds
        /// Injects write failures in tests: called before each group's write with the group's number, counted from 1.
        package var fault: (@Sendable (Int) -> SystemError?)?
        package init() {}
    }

    private struct Queued {
        var piece: BatchPiece
        var shard: Int
    }

    private struct Queue: ~Copyable {
        var pieces: [Queued] = []
        var completions: [@Sendable (UInt64) -> Void] = []
        /// Whether a shard waits for one of the pieces to become durable.
        var isAwaited = false
        var byteCount = 0
        var isClosing = false
        var sealBefore: UInt64?

        /// Whether the queue must be processed without waiting for more batches.
        var isPressing: Bool {
            isAwaited || isClosing || sealBefore != nil || byteCount >= Limits.unawaitedByteCount
        }
    }

    private struct Current: ~Copyable {
        var file: File
        var generation: UInt64
        var end: Int
        var openedAt: UInt64
        var previousGeneration: UInt64
        var previousEnd: Int
        var isEmpty: Bool { end == 0 }
    }

    package let ledger: SegmentLedger
    private let configuration: Configuration
    private let fatal: @Sendable (JournalError) -> Void
    private let queue = Monitor(Queue())
    private let uncommitted = Atomic<Int>(0)
    private let statisticsLock = Lock(JournalStatistics())

    // Accessed only by the committer thread.
    private var current: Current?
    private var last: (generation: UInt64, end: Int) = (0, 0)
    private var lastTickets: [UInt64] = []
    private var isUntold: [Bool] = []
    private var groupNumber = 0
    private var vectors: [UnsafeRawBufferPointer] = []
    private let headerBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: SegmentHeader.byteCount, alignment: 8)

    /// Creates the committer.
    ///
    /// Its thread must call `run()`.
    ///
    /// - Parameters:
    ///   - ledger: The source of segments.
    ///   - configuration: The durability and the group commit timing.
    ///   - fatal: Called once, on the committer thread, when a write or sync failed. Nothing commits afterwards. The server ends
    ///     the process with exit code 74.
    package init(
        ledger: SegmentLedger, configuration: Configuration, fatal: @escaping @Sendable (JournalError) -> Void
    ) {
        (self.ledger, self.configuration, self.fatal) = (ledger, configuration, fatal)
    }

    deinit { headerBytes.deallocate() }

    /// Adds a shard; `completion` is called on the committer thread with the last durable ticket.
    package func register(_ completion: @escaping @Sendable (UInt64) -> Void) -> Int {
        queue.withLock { queue in
            queue.completions.append(completion)
            return queue.completions.count - 1
        }
    }

    /// The number of bytes submitted or announced and not yet durable.
    package var uncommittedByteCount: Int { uncommitted.load(ordering: .relaxed) }

    package var statistics: JournalStatistics { statisticsLock.withLock { $0 } }

    /// The last written segment and its durable end offset; generation 0 before the first group.
    package var durableEnd: (generation: UInt64, end: Int) {
        statisticsLock.withLock { ($0.lastGeneration, $0.lastEnd) }
    }

    /// Counts bytes that a shard has encoded and will submit later in its turn; a negative number reverses an announcement.
    package func announce(byteCount: Int) { uncommitted.add(byteCount, ordering: .relaxed) }

    /// Submits whole batches in ticket order.
    ///
    /// Never waits for the disk.
    ///
    /// - Parameters:
    ///   - pieces: The parts of the batches.
    ///   - shard: The number of the submitting shard.
    ///   - byteCount: The total size of the batches' records.
    ///   - announcedByteCount: The part of `byteCount` that `announce` has already counted.
    ///   - isAwaited: Whether a caller waits for the batches to become durable. If not, they may be delayed by some milliseconds.
    package func submit(
        _ pieces: [BatchPiece], shard: Int, byteCount: Int, announcedByteCount: Int = 0, isAwaited: Bool = true
    ) {
        uncommitted.add(byteCount - announcedByteCount, ordering: .relaxed)
        let mustWake: Bool = queue.withLock { queue in
            let wasEmpty = queue.pieces.isEmpty
            for piece in pieces { queue.pieces.append(Queued(piece: piece, shard: shard)) }
            queue.isAwaited = queue.isAwaited || isAwaited
            queue.byteCount += byteCount
            return wasEmpty || queue.isPressing
        }
        if mustWake { queue.signal { _ in } }
    }

    /// Requests that the current segment is sealed if it was opened at or before `time`.
    package func sealSegment(openedBefore time: UInt64) {
        queue.signal { $0.sealBefore = max($0.sealBefore ?? 0, time) }
    }

    /// Runs the thread's loop until `close()` was called and everything submitted before it is written.
    package func run() {
        var work: [Queued] = []
        var load = ProcessLoad()
        var completions: [@Sendable (UInt64) -> Void] = []
        while true {
            var isClosing = false
            var sealBefore: UInt64?
            queue.wait(while: { $0.pieces.isEmpty && !$0.isPressing }) { _ in }
            queue.wait(atMostMilliseconds: configuration.unawaitedMilliseconds, while: { !$0.isPressing }) { queue in
                swap(&work, &queue.pieces)
                (queue.isAwaited, queue.byteCount) = (false, 0)
                isClosing = queue.isClosing
                sealBefore = queue.sealBefore
                queue.sealBefore = nil
                if completions.count != queue.completions.count { completions = queue.completions }
            }
            if work.isEmpty, isClosing { return }
            while lastTickets.count < completions.count { lastTickets.append(0) }
            do throws(JournalError) {
                let isSmall = try write(work, completions)
                work.removeAll(keepingCapacity: true)
                if let sealBefore, let openedAt = current?.openedAt, openedAt <= sealBefore { seal() }
                if isSmall, !isClosing, configuration.gatherMicroseconds > 0 {
                    load.look(threadCount: completions.count)
                    if load.isHigh { usleep(configuration.gatherMicroseconds) }
                }
            } catch {
                fatal(error)
                return
            }
        }
    }

    package func close() { queue.signal { $0.isClosing = true } }

    // MARK: Writing

    /// Writes `work` in one group per needed segment; returns true if the total number of batches was small.
    private func write(_ work: [Queued], _ completions: [@Sendable (UInt64) -> Void]) throws(JournalError) -> Bool {
        var next = 0
        var batchCount = 0
        while next < work.count {
            if current == nil { try openSegment() }
            let (end, batches) = try writeGroup(work, from: next, completions)
            if end == next { seal() }  // not even one batch fits any more
            next = end
            batchCount += batches
        }
        return batchCount > 0 && batchCount < configuration.smallGroupBatchCount
    }

    private func openSegment() throws(JournalError) {
        let taken = try ledger.takeSegment()
        let generation = taken.generation
        current = Current(
            file: taken.file, generation: generation, end: 0, openedAt: SystemClock.monotonicNanoseconds,
            previousGeneration: last.generation, previousEnd: last.end)
    }

    private func seal() {
        guard let segment = current.take() else { return }
        last = (segment.generation, segment.end)
        ledger.seal(
            SealedSegment(generation: segment.generation, lastTickets: lastTickets, openedAt: segment.openedAt))
    }

    /// Writes and syncs as many batches as fit into the segment, and reports them to their shards.
    private func writeGroup(
        _ work: [Queued], from first: Int, _ completions: [@Sendable (UInt64) -> Void]
    ) throws(JournalError) -> (end: Int, batches: Int) {
        guard var segment = current.take() else { return (first, 0) }
        let isFirst = segment.isEmpty
        let writeStart = segment.end
        let groupStart = isFirst ? SegmentHeader.byteCount : segment.end
        // Moved into a local variable because each access to a class property is checked for exclusivity at run time.
        var vectors: [UnsafeRawBufferPointer] = []
        swap(&vectors, &self.vectors)
        vectors.removeAll(keepingCapacity: true)
        defer { swap(&vectors, &self.vectors) }
        let segmentByteCount = ledger.folder.segmentByteCount
        if isFirst {
            SegmentHeader(
                generation: segment.generation, run: ledger.run, segmentByteCount: segmentByteCount,
                previousGeneration: segment.previousGeneration, previousEnd: segment.previousEnd,
                isUnsynced: configuration.durability == .os
            ).write(to: headerBytes)
            vectors.append(UnsafeRawBufferPointer(headerBytes))
        }
        // With durability `os` the records must not claim that earlier bytes were synced.
        let syncedEnd = configuration.durability == .fsync ? groupStart : 0
        var end = groupStart
        var next = first
        var batches = 0
        while next < work.count {
            let piece = work[next].piece
            if piece.recordByteCount > 0 {
                if end + piece.recordByteCount > segmentByteCount { break }
                RecordHeader.seal(piece.start, generation: segment.generation, groupStart: syncedEnd)
                end += piece.recordByteCount
                batches += 1
            }
            Self.append(piece, to: &vectors)
            next += 1
        }
        guard batches > 0 else {
            // An empty segment has room for every batch that a shard may create (`EmbeddedStore` checks the sizes).
            precondition(!isFirst, "a batch is larger than a segment")
            current = consume segment
            return (first, 0)
        }
        groupNumber += 1
        let began = SystemClock.monotonicNanoseconds
        do throws(SystemError) {
            if let failure = configuration.fault?(groupNumber) { throw failure }
            try segment.file.write(gathering: vectors, at: writeStart)
            if configuration.durability == .fsync { try segment.file.synchronizeData() }
        } catch {
            throw .system(error)
        }
        let microseconds = (SystemClock.monotonicNanoseconds - began) / 1000
        segment.end = end
        let generation = segment.generation
        current = consume segment
        complete(work[first..<next], completions)
        uncommitted.subtract(end - groupStart, ordering: .relaxed)
        statisticsLock.withLock { statistics in
            statistics.add(batches: batches, bytes: end - groupStart, microseconds: microseconds)
            (statistics.lastGeneration, statistics.lastEnd) = (generation, end)
        }
        return (next, batches)
    }

    private static func append(_ piece: BatchPiece, to vectors: inout [UnsafeRawBufferPointer]) {
        // Adjacent pieces, the usual case within one turn, become one vector.
        if let previous = vectors.last, let start = previous.baseAddress, start + previous.count == piece.start {
            vectors[vectors.count - 1] = UnsafeRawBufferPointer(
                start: start, count: previous.count + piece.byteCount)
        } else {
            vectors.append(UnsafeRawBufferPointer(start: piece.start, count: piece.byteCount))
        }
    }

    private func complete(_ group: ArraySlice<Queued>, _ completions: [@Sendable (UInt64) -> Void]) {
        // A shard's pieces are in ticket order, so a backward search finds its last ticket first.
        for index in isUntold.indices { isUntold[index] = true }
        while isUntold.count < completions.count { isUntold.append(true) }
        var openCount = completions.count
        for queued in group.reversed() where queued.piece.recordByteCount > 0 && isUntold[queued.shard] {
            isUntold[queued.shard] = false
            lastTickets[queued.shard] = queued.piece.ticket
            completions[queued.shard](queued.piece.ticket)
            openCount -= 1
            if openCount == 0 { break }
        }
    }
}
