// Which segments exist in this run and who has them. The committer takes spares and seals segments, the spiller gives
// sealed ones back and keeps a spare at hand, so that the committer need not wait for zeros.

internal import Platform
internal import Synchronization

/// A full (or aged) segment: every record in it is synced.
package struct SealedSegment: Sendable, Equatable {
    package var generation: UInt64
    /// The last ticket of each shard in or before this segment.
    package var lastTickets: [UInt64]
    /// When its first record was written, on the monotonic clock.
    package var openedAt: UInt64
}

/// A segment's file on its way to the committer.
struct TakenSegment: ~Copyable {
    var file: File
    var generation: UInt64
}

/// The segments of a running journal.
package final class SegmentLedger: Sendable {
    private struct State: ~Copyable {
        var sealed: [SealedSegment] = []
        var spares: [UInt64] = []
        /// Taken, and not known to be on the disk whole; the last one may be the committer's.
        var unsynced: [UInt64] = []
        var nextGeneration: UInt64
        var nextSpareName: UInt64
        /// A backup reads them: they are removed in place of being written anew.
        var pinned: Set<UInt64> = []
        var isOpen = true
        var wakeCount = 0
    }

    package let folder: SegmentFolder
    /// The number of this run, higher in each, and its first generation.
    package let run: UInt64
    private let state: Monitor<State>
    private let segmentsInUse = Atomic<Int>(0)

    /// Takes over a prepared folder without segments that may hold records.
    ///
    /// - Parameters:
    ///   - folder: where the segments are; spares of another size are removed.
    ///   - run: above the numbers of all runs before, and above the generations of all files there.
    /// - Throws: `.system` when the folder cannot be read.
    package init(folder: SegmentFolder, run: UInt64) throws(JournalError) {
        self.folder = folder
        self.run = run
        // Fresh spares are named by numbers that no segment has had; the generation of a spare's first use is never
        // below its name.
        state = Monitor(State(spares: try folder.spares(), nextGeneration: run, nextSpareName: run))
    }

    /// Bytes of the segments that hold or may hold records which a start would replay.
    package var byteCount: Int { segmentsInUse.load(ordering: .relaxed) * folder.segmentByteCount }
    package var segmentCount: Int { segmentsInUse.load(ordering: .relaxed) }

    /// A file to write next; made on the spot if there is no spare.
    func takeSegment() throws(JournalError) -> TakenSegment {
        let (generation, spare) = state.withLock { state in
            state.nextGeneration = max(state.nextGeneration, state.nextSpareName)
            let generation = state.nextGeneration
            state.nextGeneration += 1
            return (generation, state.spares.isEmpty ? nil : state.spares.removeFirst())
        }
        if spare == nil { try folder.makeSpare(generation, isAwaited: true) }
        let file = try folder.open(spare: spare ?? generation, as: generation)
        segmentsInUse.add(1, ordering: .relaxed)
        // Under a heavy load the next spare is needed within a second, and takes half of one to fill: it begins now.
        state.broadcast { state in
            state.unsynced.append(generation)
            state.wakeCount += 1
        }
        return TakenSegment(file: file, generation: generation)
    }

    func seal(_ segment: SealedSegment) {
        state.broadcast { state in
            state.sealed.append(segment)
            state.wakeCount += 1
        }
    }

    /// Makes a spare if there is none; called ahead of need, off the committer.
    package func keepSpare() throws(JournalError) {
        let name: UInt64? = state.withLock { state in
            guard state.spares.isEmpty else { return nil }
            let name = max(state.nextGeneration, state.nextSpareName)
            state.nextSpareName = name + 1
            return name
        }
        guard let name else { return }
        try folder.makeSpare(name, isAwaited: false)
        state.withLock { $0.spares.append(name) }
    }

    /// The oldest sealed segment.
    package var oldestSealed: SealedSegment? { state.withLock { $0.sealed.first } }

    /// The one sealed after it.
    package var secondSealed: SealedSegment? { state.withLock { $0.sealed.count > 1 ? $0.sealed[1] : nil } }

    /// Sleeps until something was sealed or `wake()` was called, at most `milliseconds`; false once closed.
    package func wait(atMostMilliseconds milliseconds: UInt64) -> Bool {
        state.wait(atMostMilliseconds: milliseconds, while: { $0.isOpen && $0.wakeCount == 0 }) { state in
            state.wakeCount = 0
            return state.isOpen
        }
    }

    /// Brings everything written so far to the disk, where the committer does not do it itself (durability `os`).
    ///
    /// A row that was replaced or removed leaves with its segment. If a later one, which says so, were lost after that, the
    /// row would be missing though it is old.
    ///
    /// - Throws: `.system` when a file cannot be synced; what it holds may be lost.
    package func synchronize() throws(JournalError) {
        let (generations, sealed) = state.withLock { state in
            (state.unsynced, Set(state.sealed.map(\.generation)))
        }
        do throws(SystemError) {
            for generation in generations {
                try File(path: folder.segmentPath(generation), mode: .readWrite).synchronizeData()
            }
        } catch { throw .system(error) }
        state.withLock { state in state.unsynced.removeAll { generations.contains($0) && sealed.contains($0) } }
    }

    /// Keeps what segments hold from being overwritten; called where no segment is given back meanwhile.
    package func pin(_ generations: [UInt64]) { state.withLock { $0.pinned.formUnion(generations) } }

    /// Ends what `pin` began, for all of them.
    package func unpinAll() { state.withLock { $0.pinned.removeAll() } }

    package func wake() { state.broadcast { $0.wakeCount += 1 } }
    package func close() { state.broadcast { $0.isOpen = false } }

    /// Gives back the oldest sealed segment, whose rows are safe elsewhere or gone.
    ///
    /// - Parameter limit: spares beyond it are removed, so that a burst's segments do not stay for ever.
    /// - Throws: `.system` when the file could not be renamed; the segment is then still the oldest.
    package func recycleOldest(keepingSpares limit: Int) throws(JournalError) {
        guard let oldest = oldestSealed else { return }
        let isPinned = state.withLock { $0.pinned.contains(oldest.generation) }
        if isPinned { try folder.remove(segment: oldest.generation) } else { try folder.recycle(oldest.generation) }
        segmentsInUse.subtract(1, ordering: .relaxed)
        let surplus: UInt64? = state.withLock { state in
            state.sealed.removeFirst()
            state.unsynced.removeAll { $0 == oldest.generation }
            if !isPinned { state.spares.append(oldest.generation) }
            return state.spares.count > limit ? state.spares.removeFirst() : nil
        }
        if let surplus { try folder.remove(spare: surplus) }
    }
}
