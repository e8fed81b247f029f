// Group commit. Loops hand over the byte ranges of their batches at the end of a turn; the committer takes what all of
// them have gathered, writes it with one `pwritev`, syncs it, and tells each shard how far it is. While it syncs the
// next group gathers. While the process is busy it rests after a small group, so that fewer syncs carry more.
//
// A group lies in one segment. What does not fit begins the next one.

internal import Glibc
package import Platform
internal import Synchronization

/// A part of a batch in a loop's memory, which must stay as it is until the batch's completion.
package struct BatchPiece {
    package var start: UnsafeMutableRawPointer
    package var byteCount: Int
    /// The whole record's size on a batch's first piece, which begins with the header; 0 on the others.
    package var recordByteCount: Int
    /// On the batch's first piece.
    package var ticket: UInt64

    @inline(__always)
    package init(start: UnsafeMutableRawPointer, byteCount: Int, recordByteCount: Int, ticket: UInt64) {
        (self.start, self.byteCount) = (start, byteCount)
        (self.recordByteCount, self.ticket) = (recordByteCount, ticket)
    }
}

/// The thread that writes the journal.
package final class Committer: @unchecked Sendable {
    // Sound because what threads share is behind `queue`, `statisticsLock` and atomics, and everything else
    // (`current`, the scratch arrays) is touched only by the committer thread.

    package enum Durability: Sendable {
        /// On the disk.
        case fsync
        /// With the operating system: outlasts the process, not the machine.
        ///
        /// The segments say so: after a power failure a start goes on with what was written up to some moment. The
        /// spiller calls `SegmentLedger.synchronize()` before it gives a segment back.
        case os
    }

    package struct Configuration: Sendable {
        package var durability = Durability.fsync
        package var smallGroupBatchCount = Limits.smallGroupBatchCount
        package var gatherMicroseconds = Limits.gatherMicroseconds
        package var unawaitedMilliseconds = Limits.unawaitedMilliseconds
        /// Tests make a write fail with it: called before each group's write with the group's number from 1.
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
        /// A shard waits for one of the pieces.
        var isAwaited = false
        var byteCount = 0
        var isClosing = false
        var sealBefore: UInt64?

        /// There is something to do that may not wait for company.
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

    // The committer thread's own.
    private var current: Current?
    private var last: (generation: UInt64, end: Int) = (0, 0)
    private var lastTickets: [UInt64] = []
    private var isUntold: [Bool] = []
    private var groupNumber = 0
    private var vectors: [UnsafeRawBufferPointer] = []
    private let headerBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: SegmentHeader.byteCount, alignment: 8)

    /// Prepares the committer; `run()` is its thread's body.
    ///
    /// - Parameters:
    ///   - ledger: where segments come from.
    ///   - configuration: how and how often to sync.
    ///   - fatal: called once, on the committer thread, when a write or sync failed; nothing commits after it. The
    ///     server ends the process with exit code 74.
    package init(
        ledger: SegmentLedger, configuration: Configuration, fatal: @escaping @Sendable (JournalError) -> Void
    ) {
        (self.ledger, self.configuration, self.fatal) = (ledger, configuration, fatal)
    }

    deinit { headerBytes.deallocate() }

    /// Adds a shard; `completion` is called on the committer thread with the last ticket that is durable.
    package func register(_ completion: @escaping @Sendable (UInt64) -> Void) -> Int {
        queue.withLock { queue in
            queue.completions.append(completion)
            return queue.completions.count - 1
        }
    }

    /// Bytes handed over and not yet durable.
    package var uncommittedByteCount: Int { uncommitted.load(ordering: .relaxed) }

    package var statistics: JournalStatistics { statisticsLock.withLock { $0 } }

    /// The segment that was written last, and where in it everything before is durable; generation 0 before the first one.
    package var durableEnd: (generation: UInt64, end: Int) {
        statisticsLock.withLock { ($0.lastGeneration, $0.lastEnd) }
    }

    /// Counts bytes that a shard has encoded and will hand over later in its turn; a negative number takes some back.
    package func announce(byteCount: Int) { uncommitted.add(byteCount, ordering: .relaxed) }

    /// Hands over batches, whole and in the order of their tickets; never waits for the disk.
    ///
    /// - Parameters:
    ///   - pieces: the batches' parts.
    ///   - shard: whose they are.
    ///   - byteCount: of their records.
    ///   - announcedByteCount: those of them that `announce` has counted.
    ///   - isAwaited: false when nobody waits for them to be durable: they may then take some milliseconds longer.
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

    /// Asks for the current segment to be sealed if its first record was written at or before `time`.
    package func sealSegment(openedBefore time: UInt64) {
        queue.signal { $0.sealBefore = max($0.sealBefore ?? 0, time) }
    }

    /// The thread's body: runs until `close()` and until everything handed over before it is written.
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

    /// Lets `run()` end once the queue is empty.
    package func close() { queue.signal { $0.isClosing = true } }

    // MARK: Writing

    /// Writes `work` in as many groups as it needs segments; true when it was a small one.
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

    /// Writes and syncs as many batches as the segment takes, and tells their shards.
    private func writeGroup(
        _ work: [Queued], from first: Int, _ completions: [@Sendable (UInt64) -> Void]
    ) throws(JournalError) -> (end: Int, batches: Int) {
        guard var segment = current.take() else { return (first, 0) }
        let isFirst = segment.isEmpty
        let writeStart = segment.end
        let groupStart = isFirst ? SegmentHeader.byteCount : segment.end
        // Moved out for the loop below: each access to a class's own variable is checked at run time.
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
        // What was not synced is not claimed to have been.
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
            // An empty segment takes every batch that a shard may make (`EmbeddedStore` checks the sizes).
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
        // Neighbours in memory, the usual case within one turn, become one vector.
        if let previous = vectors.last, let start = previous.baseAddress, start + previous.count == piece.start {
            vectors[vectors.count - 1] = UnsafeRawBufferPointer(
                start: start, count: previous.count + piece.byteCount)
        } else {
            vectors.append(UnsafeRawBufferPointer(start: piece.start, count: piece.byteCount))
        }
    }

    private func complete(_ group: ArraySlice<Queued>, _ completions: [@Sendable (UInt64) -> Void]) {
        // A shard's pieces stand in the order of its tickets, so from the back its first is its last.
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
