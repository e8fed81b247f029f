// Counter rows. A batch journals only the change of a counter row. The loop keeps the sums in memory. The spiller writes a sum
// when it moves the segment of the first change that is not on disk. A start adds up the changes in the journal.
//
// A segment is replayed as a whole, and a row on disk may already include changes of segments that still exist. The stored row
// therefore names its last included batch by run number and shard ticket. A start skips every change up to that batch.
//
//     ticket u64 · counts · run u64          ticket 0: no run follows (a copied row)

internal import Delivery
internal import Journal
internal import Wire

/// The last batch that a counter row includes.
struct CountStamp: Equatable {
    /// The run (`SegmentHeader.run`), because tickets restart in each run.
    var run: UInt64
    var ticket: Ticket

    static let byteCount = 8

    /// Splits a stored row into its counts and its stamp, if any.
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

/// The stored rows for a replay, each with prefix and stamp.
protocol StoredRows: AnyObject {
    /// Passes the stored bytes of a row to `body`; does not call `body` if there is no row.
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

/// The counter rows of a journal replay, used by the starting thread only.
///
/// The rows stay in memory for the whole replay. There is one for each bucket, app and day in the journal.
struct CountReplay: ~Copyable {
    private struct Row {
        let key: StoreKey
        /// `nil` if the row does not exist or was deleted.
        var value: [UInt8]?
        /// Whether the value has the current layout, so that changes can be added.
        var isCurrent = false
        /// The last batch that the stored row includes; changes up to it are skipped.
        var known: Ticket = 0
        var last: Ticket = 0
        var isChanged = false
    }

    private let stored: any StoredRows
    private let run: UInt64
    private var rows: [Row] = []
    private var places: [StoreKey: Int] = [:]
    private var changed: [Int] = []
    private(set) var isDamaged = false

    init(_ stored: any StoredRows, run: UInt64) { (self.stored, self.run) = (stored, run) }

    /// Applies one operation.
    ///
    /// Call in journal order.
    ///
    /// - Throws: `.database` when the stored row cannot be read.
    mutating func take(_ operation: Operation, _ key: StoreKey) throws(StoreError) {
        let place: Int
        if let known = places[key] {
            place = known
        } else {
            // The disk still has the row's state before the replay, because no change of the row was passed to the writer yet.
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
            // Add in place: a journal may have a change for each message.
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

/// The values of counter rows that were passed to the writing thread.
final class CountedMemory: @unchecked Sendable {
    // Sound because one thread fills it before another one receives it.
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
