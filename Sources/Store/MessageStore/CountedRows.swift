// Rows of counts. A batch writes what it adds to them and not the rows themselves. A loop keeps the sums in memory. The
// spiller writes them when it moves the segment of the first change that the disk has not. A start adds up what the
// journal has.
//
// A segment is replayed as a whole, and a row on the disk may hold changes of segments that are still there. So the
// stored row names the last batch that it holds, by the number of the run and the shard's ticket. A start passes over
// every change up to that batch.
//
//     ticket u64 · counts · run u64          ticket 0: no run follows (a row that was copied)

internal import Delivery
internal import Journal
internal import Wire

/// The last batch whose changes a row of counts holds.
struct CountStamp: Equatable {
    /// `SegmentHeader.run`; tickets count anew in each.
    var run: UInt64
    var ticket: Ticket

    static let byteCount = 8

    /// A stored row's counts and stamp, if it has one.
    static func read(_ stored: UnsafeRawBufferPointer) -> (value: UnsafeRawBufferPointer, stamp: CountStamp?) {
        let ticket = stored.loadUnaligned(as: UInt64.self)
        let start = KeyCoding.rowPrefixByteCount
        guard ticket != 0, stored.count >= start + byteCount else {
            return (UnsafeRawBufferPointer(rebasing: stored[start...]), nil)
        }
        let end = stored.count - byteCount
        return (
            UnsafeRawBufferPointer(rebasing: stored[start..<end]),
            CountStamp(run: stored.loadUnaligned(fromByteOffset: end, as: UInt64.self), ticket: ticket)
        )
    }
}

/// Where the rows are that a replay finds, each with its prefix and its stamp.
protocol StoredRows: AnyObject {
    /// Lends the bytes of a row as they are stored; does not call `body` for a row that is not there.
    func withStored(_ key: StoreKey, _ body: (UnsafeRawBufferPointer) -> Void) throws(StoreError)
}

extension RowDatabase: StoredRows {
    func withStored(_ key: StoreKey, _ body: (UnsafeRawBufferPointer) -> Void) throws(StoreError) {
        let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.rowKeyByteCount, alignment: 8)
        defer { bytes.deallocate() }
        if let start = bytes.baseAddress { KeyCoding.write(key, to: start) }
        _ = try get(UnsafeRawBufferPointer(bytes), in: family(of: key.table), body)
    }
}

/// The rows of counts of a journal that is replayed; the starting thread's own.
///
/// They stay in memory for the whole replay, one for each bucket, app and day that the journal names.
struct CountReplay: ~Copyable {
    private struct Row {
        let key: StoreKey
        /// `nil`: there is none, or it was deleted.
        var value: [UInt8]?
        /// The value has the form that changes are added to.
        var isCurrent = false
        /// What the disk has already; changes up to it are passed over.
        var known: Ticket = 0
        var last: Ticket = 0
        var isChanged = false
    }

    private let stored: any StoredRows
    private let run: UInt64
    private var rows: [Row] = []
    private var places: [StoreKey: Int] = [:]
    private var changed: [Int] = []
    /// A change could not be read.
    private(set) var isDamaged = false

    init(_ stored: any StoredRows, run: UInt64) { (self.stored, self.run) = (stored, run) }

    /// Takes one operation, in the order of the journal.
    ///
    /// - Throws: `.database` when the row on the disk cannot be read.
    mutating func take(_ operation: Operation, _ key: StoreKey) throws(StoreError) {
        let place: Int
        if let known = places[key] {
            place = known
        } else {
            // The disk has what it had before the replay: the writing thread got nothing of this row yet.
            rows.append(try load(key))
            place = rows.count - 1
            places[key] = place
        }
        guard operation.ticket > rows[place].known else { return }
        rows[place].last = operation.ticket
        if !rows[place].isChanged {
            rows[place].isChanged = true
            changed.append(place)
        }
        switch operation.kind {
        case .put: (rows[place].value, rows[place].isCurrent) = (Array(operation.value), false)
        case .delete: (rows[place].value, rows[place].isCurrent) = (nil, false)
        case .add:
            guard let change = CounterChange(operation.value) else {
                isDamaged = true
                return
            }
            if !rows[place].isCurrent {
                rows[place].value = CountersRow.current(rows[place].value, key)
                rows[place].isCurrent = true
            }
            // In place: a journal may have a change for each message.
            rows[place].value?.withUnsafeMutableBytes { change.add(to: $0) }
        }
    }

    private func load(_ key: StoreKey) throws(StoreError) -> Row {
        var row = Row(key: key)
        try stored.withStored(key) { stored in
            guard stored.count >= KeyCoding.rowPrefixByteCount else { return }
            let (value, stamp) = CountStamp.read(stored)
            row.value = Array(value)
            if let stamp, stamp.run == run { row.known = stamp.ticket }
        }
        return row
    }

    /// The rows that changed since the last call, with the memory that holds their values.
    mutating func takeChanged() -> (rows: [SpilledRow], memory: CountedMemory) {
        let memory = CountedMemory(byteCount: changed.reduce(0) { $0 + (rows[$1].value?.count ?? 0) })
        var spilled: [SpilledRow] = []
        spilled.reserveCapacity(changed.count)
        for place in changed {
            let row = rows[place]
            spilled.append(
                SpilledRow(
                    key: row.key, value: row.value.map { memory.keep($0) }, wakeAt: 0, coldAlarm: 0, slot: noSlot,
                    version: 0, block: 0, countedUpTo: row.last))
            rows[place].isChanged = false
        }
        changed.removeAll(keepingCapacity: true)
        return (spilled, memory)
    }
}

/// The values of rows of counts on their way to the writing thread.
final class CountedMemory: @unchecked Sendable {
    // Sound because one thread fills it and then hands it over.
    private let bytes: UnsafeMutableRawBufferPointer
    private var used = 0

    init(byteCount: Int) { bytes = .allocate(byteCount: max(1, byteCount), alignment: 8) }

    deinit { bytes.deallocate() }

    func keep(_ value: [UInt8]) -> UnsafeRawBufferPointer {
        let place = UnsafeMutableRawBufferPointer(rebasing: bytes[used..<used + value.count])
        place.copyBytes(from: value)
        used += value.count
        return UnsafeRawBufferPointer(place)
    }
}
