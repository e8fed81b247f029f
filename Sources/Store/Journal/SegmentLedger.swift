// The segments of this process run, shared by two threads. The committer takes spares and seals segments. The spiller recycles
// sealed segments and prepares a spare in advance, so that the committer does not wait for zeros to be written.

internal import Platform
internal import Synchronization

/// A full or aged segment; every record in it is synced, except with durability `os`.
package struct SealedSegment: Sendable, Equatable {
    package var generation: UInt64
    /// The last ticket of each shard in this or an earlier segment.
    package var lastTickets: [UInt64]
    /// The monotonic time at which the segment was opened, in nanoseconds.
    package var openedAt: UInt64
}

struct TakenSegment: ~Copyable {
    var file: File
    var generation: UInt64
}

package final class SegmentLedger: Sendable {
    private struct State: ~Copyable {
        var sealed: [SealedSegment] = []
        var spares: [UInt64] = []
        /// Segments that were taken and are not known to be synced; the last one may be the committer's current segment.
        var unsynced: [UInt64] = []
        var nextGeneration: UInt64
        var nextSpareName: UInt64
        /// Segments that a backup reads; they are removed rather than reused.
        var pinned: Set<UInt64> = []
        var isOpen = true
        var wakeCount = 0
    }

    package let folder: SegmentFolder
    /// The number of this process run, higher than all earlier runs; it is also the run's first generation.
    package let run: UInt64
    private let state: Monitor<State>
    private let segmentsInUse = Atomic<Int>(0)
    private let isSpareMissing = Atomic<Bool>(false)

    /// Takes over a prepared folder that has no segments with records.
    ///
    /// - Parameters:
    ///   - folder: The folder of the segments. Spares of another size are removed.
    ///   - run: A number above those of all earlier runs and above the generations of all existing files.
    /// - Throws: `.system` when the folder cannot be read.
    package init(folder: SegmentFolder, run: UInt64) throws(JournalError) {
        self.folder = folder
        self.run = run
        // A new spare is named by a number that no segment had. The generation of its first use is never below that number.
        state = Monitor(State(spares: try folder.spares(), nextGeneration: run, nextSpareName: run))
    }

    package var byteCount: Int { segmentsInUse.load(ordering: .relaxed) * folder.segmentByteCount }
    package var segmentCount: Int { segmentsInUse.load(ordering: .relaxed) }

    /// Returns a file to write next; creates one synchronously if there is no spare.
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
        // Under heavy load the next spare is needed within a second and takes half a second to fill. Wake the spiller now.
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

    /// Whether the last attempt to create a spare failed, most likely because the disk is full.
    ///
    /// Without a spare the committer stops at the end of the current segment. Publishes are therefore refused, and acks use the
    /// rest of the segment.
    package var lacksSpare: Bool { isSpareMissing.load(ordering: .relaxed) }

    /// Creates a spare if there is none; the spiller calls this in advance.
    package func keepSpare() throws(JournalError) {
        let name: UInt64? = state.withLock { state in
            guard state.spares.isEmpty else { return nil }
            let name = max(state.nextGeneration, state.nextSpareName)
            state.nextSpareName = name + 1
            return name
        }
        guard let name else { return }
        do throws(JournalError) {
            try folder.makeSpare(name, isAwaited: false)
        } catch {
            isSpareMissing.store(true, ordering: .relaxed)
            throw error
        }
        state.withLock { $0.spares.append(name) }
        isSpareMissing.store(false, ordering: .relaxed)
    }

    package var oldestSealed: SealedSegment? { state.withLock { $0.sealed.first } }

    package var secondSealed: SealedSegment? { state.withLock { $0.sealed.count > 1 ? $0.sealed[1] : nil } }

    /// Waits until a segment is sealed or `wake()` is called, at most `milliseconds`; returns false after `close()`.
    package func wait(atMostMilliseconds milliseconds: UInt64) -> Bool {
        state.wait(atMostMilliseconds: milliseconds, while: { $0.isOpen && $0.wakeCount == 0 }) { state in
            state.wakeCount = 0
            return state.isOpen
        }
    }

    /// Syncs everything written so far.
    ///
    /// Needed with durability `os`, where the committer does not sync. Recycling a segment drops rows that a later segment
    /// replaced or deleted. If that later segment were lost after the recycling, an old row would be missing.
    ///
    /// - Throws: `.system` when a file cannot be synced; its content may be lost.
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

    /// Protects segments from reuse while a backup reads them; call only while no segment is being recycled.
    package func pin(_ generations: [UInt64]) { state.withLock { $0.pinned.formUnion(generations) } }

    package func unpinAll() { state.withLock { $0.pinned.removeAll() } }

    package func wake() { state.broadcast { $0.wakeCount += 1 } }
    package func close() { state.broadcast { $0.isOpen = false } }

    /// Recycles the oldest sealed segment, whose rows are now stored elsewhere or deleted.
    ///
    /// - Parameter limit: The number of spares to keep. Surplus spares of a burst are removed.
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
