// Moves the journal into the database at a start, segment by segment, oldest first.
//
// Two threads share the work. The starting thread reads a segment and sorts its rows, large segments in pieces. The other thread
// writes the previous piece into the database. Two buffers alternate between them. A segment is recycled only when all of its
// rows are durable, so an interrupted start is repeated by the next one.

internal import Delivery
internal import Journal
internal import Platform
internal import Wire

final class JournalReplay: @unchecked Sendable {
    // Sound because `belt` is a monitor, `run` and `journal` are immutable values, and one thread at a time owns a piece.

    private struct Piece {
        var rows: SortedRowGroups
        /// The memory of the rows' values.
        var buffer: SegmentBuffer
        /// The memory of the counter rows' values.
        var memory: CountedMemory
        /// The segment that ends with this piece, if any.
        var ended: UInt64?
    }

    private struct Belt: ~Copyable {
        var free: [SegmentBuffer]
        var ready: Piece?
        var isOver = false
        var failure: StoreError?
    }

    private let journal: Recovery
    private let run: SortedRun
    private let belt: Monitor<Belt>

    init(_ journal: Recovery, into run: SortedRun) {
        (self.journal, self.run) = (journal, run)
        belt = Monitor(Belt(free: [SegmentBuffer(), SegmentBuffer()]))
    }

    /// Moves all rows, durable on return.
    ///
    /// - Throws: `.damagedJournal` for a valid record that this version cannot decode, `.diskFull`, `.database` and `.system`.
    ///   Rows before the failure may have been moved.
    func perform() throws(StoreError) {
        do throws(JournalError) { try journal.discard() } catch { throw StoreError(error) }
        guard !journal.segments.isEmpty else { return }
        do throws(JournalError) { try journal.synchronize() } catch { throw StoreError(error) }
        let writer: JoinableThread
        do throws(SystemError) {
            writer = try JoinableThread(named: "replay") { self.write() }
        } catch { throw StoreError(error) }
        var failure: StoreError?
        do throws(StoreError) { try read() } catch { failure = error }
        belt.broadcast { $0.isOver = true }
        writer.join()
        // A failure of the writer concerns an earlier segment, so it takes precedence.
        if let failure = belt.withLock({ $0.failure }) ?? failure { throw failure }
    }

    // MARK: The starting thread

    private func read() throws(StoreError) {
        var groups = RowGroups()
        var counts = CountReplay(run.database, run: journal.run)
        for segment in journal.segments {
            let buffer: SegmentBuffer? = belt.wait(while: { $0.free.isEmpty && $0.failure == nil }) { belt in
                belt.failure == nil ? belt.free.removeLast() : nil
            }
            guard let buffer else { return }
            try collect(segment, buffer, &groups, &counts)
            handOver(&groups, &counts, buffer, ended: segment.generation)
        }
    }

    private func collect(
        _ segment: Recovery.Segment, _ buffer: SegmentBuffer, _ groups: inout RowGroups, _ counts: inout CountReplay
    ) throws(StoreError) {
        try journal.replay(segment, using: buffer, &counts) { operation, key, counts in
            if groups.count >= Limits.replayedRowCount { handOver(&groups, &counts, buffer, ended: nil) }
            groups.append(
                SpilledRow(
                    key: key, value: operation.kind == .put ? operation.value : nil, wakeAt: operation.wakeAt,
                    coldAlarm: operation.coldAlarm, slot: noSlot,
                    version: operation.kind == .put && operation.prior == .nothing ? SortedRows.brandNew : 0, block: 0))
        }
    }

    private func handOver(
        _ groups: inout RowGroups, _ counts: inout CountReplay, _ buffer: SegmentBuffer, ended: UInt64?
    ) {
        let (rows, memory) = counts.takeChanged()
        for row in rows { groups.append(row) }
        let piece = Piece(
            rows: SortedRowGroups(groups, droppingShortLived: true), buffer: buffer, memory: memory, ended: ended)
        groups = RowGroups(asManyAs: groups)
        belt.wait(while: { $0.ready != nil && $0.failure == nil }) { $0.ready = piece }
        belt.broadcast { _ in }
    }

    // MARK: The writing thread

    private func write() {
        do throws(StoreError) {
            while let piece = next() {
                // The gateway time is unknown before the rows are loaded.
                _ = try run.ingest(piece.rows, now: Period.undated)
                guard let ended = piece.ended else { continue }
                do throws(JournalError) {
                    try journal.folder.recycle(ended)
                } catch { throw StoreError(error) }
                belt.broadcast { $0.free.append(piece.buffer) }
            }
        } catch {
            belt.broadcast { $0.failure = error }
        }
    }

    private func next() -> Piece? {
        let piece: Piece? = belt.wait(while: { $0.ready == nil && !$0.isOver }) { belt in
            defer { belt.ready = nil }
            return belt.ready
        }
        belt.broadcast { _ in }
        return piece
    }
}

extension Recovery {
    /// Adds a segment's counter changes to `counts`, and passes all other rows to `row`.
    ///
    /// - Throws: `.damagedJournal` for a record that this version cannot decode.
    func replay(
        _ segment: Segment, using buffer: SegmentBuffer, _ counts: inout CountReplay,
        _ row: (Operation, StoreKey, inout CountReplay) -> Void
    ) throws(StoreError) {
        var unreadable: UInt8?
        var failure: StoreError?
        do throws(JournalError) {
            try replay(segment, using: buffer) { operation in
                guard let key = operation.storeKey, key.table == .counters || operation.kind != .add else {
                    unreadable = operation.table
                    return
                }
                guard key.table == .counters else { return row(operation, key, &counts) }
                guard failure == nil else { return }
                do throws(StoreError) { try counts.take(operation, key) } catch { failure = error }
            }
        } catch { throw StoreError(error) }
        if let failure { throw failure }
        if counts.isDamaged { unreadable = StoreKey.Table.counters.rawValue }
        if let unreadable {
            throw .damagedJournal(
                file: folder.segmentPath(segment.generation), offset: 0,
                what: "it has rows or changes of table \(unreadable) that this version does not know")
        }
    }
}

extension Operation {
    /// The row's key; `nil` if this version does not know the table or the bucket.
    var storeKey: StoreKey? {
        guard let bucket = Bucket(exactly: UInt64(bucket)), let table = StoreKey.Table(rawValue: table) else {
            return nil
        }
        return StoreKey(bucket, table, ownerHigh: ownerHigh, ownerLow: ownerLow, item: item)
    }
}
