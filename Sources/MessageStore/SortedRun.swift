// Rows on their way into the ordered store: sorted, written to files, ingested. Files lie in their own folder, which is
// emptied at each start; a crash before or between ingestions repeats the whole run from the journal.

internal import Delivery
internal import Platform
internal import Wire

/// One row or removal on its way into the ordered store.
struct SpilledRow: @unchecked Sendable {
    // Sound because the shard keeps the value's block until the spiller gives the row back.
    var key: StoreKey
    /// `nil` for a removal.
    var value: UnsafeRawBufferPointer?
    var wakeAt: Int64
    /// The alarm of what the ordered store may hold under the key; 0 for none.
    var coldAlarm: Int64
    /// The shard's own: where the row stands in its index, and which of its versions this is; a logged row's number.
    var slot: UInt32
    var version: UInt32
    var block: UInt32
}

/// Rows by the family they belong to, each in the order they were written.
struct RowGroups {
    /// Messages, devices and what belongs to them.
    private(set) var rows: [SpilledRow] = []
    /// What a start reads whole.
    private(set) var start: [SpilledRow] = []
    private(set) var ephemeral: [SpilledRow] = []

    var count: Int { rows.count + start.count + ephemeral.count }

    /// Empty, with room for as many as `other` has.
    init(asManyAs other: RowGroups = RowGroups(of: [])) {
        rows.reserveCapacity(other.rows.count)
        ephemeral.reserveCapacity(other.ephemeral.count)
    }

    /// The rows of each shard, in the order they were written.
    init(of parts: [[SpilledRow]]) {
        let count = parts.reduce(0) { $0 + $1.count }
        let ephemeralCount = parts.reduce(0) { sum, rows in sum + rows.count { $0.key.table.isEphemeral } }
        rows.reserveCapacity(count - ephemeralCount)
        ephemeral.reserveCapacity(ephemeralCount)
        for part in parts {
            for row in part { append(row) }
        }
    }

    mutating func append(_ row: SpilledRow) {
        if row.key.table.isEphemeral {
            ephemeral.append(row)
        } else if row.key.table.isReadAtStart {
            start.append(row)
        } else {
            rows.append(row)
        }
    }
}

/// Rows in the order of their keys; of several with one key the last one written comes last.
///
/// What is sorted is sixteen bytes for each row, not the rows, which are six times as large.
struct SortedRows {
    private struct Place {
        /// The first eight bytes of the key.
        var prefix: UInt64
        var index: Int
    }

    /// The mark of a row that was the first ever under its key, in `SpilledRow.version`.
    static let brandNew: UInt32 = 1

    private let rows: [SpilledRow]
    private var places: [Place]

    /// `rows` in the order they were written; with `droppingShortLived`, those that begin with a brand-new row and end with
    /// a removal are left out: the database need not hear of them.
    init(_ rows: [SpilledRow], droppingShortLived: Bool) {
        self.rows = rows
        places = []
        places.reserveCapacity(rows.count)
        for index in rows.indices { places.append(Place(prefix: Self.prefix(rows[index].key), index: index)) }
        rows.withUnsafeBufferPointer { rows in
            places.sort { left, right in
                if left.prefix != right.prefix { return left.prefix < right.prefix }
                let (first, second) = (rows[left.index].key, rows[right.index].key)
                return first == second ? left.index < right.index : first < second
            }
        }
        if droppingShortLived { dropShortLived() }
    }

    private mutating func dropShortLived() {
        var kept = 0
        var start = 0
        while start < places.count {
            let key = self[start].key
            var end = start + 1
            while end < places.count, self[end].key == key { end += 1 }
            if self[start].version != Self.brandNew || self[end - 1].value != nil {
                for place in start..<end {
                    places[kept] = places[place]
                    kept += 1
                }
            }
            start = end
        }
        places.removeLast(places.count - kept)
    }

    private static func prefix(_ key: StoreKey) -> UInt64 {
        UInt64(key.bucket.index) << 48 | UInt64(key.table.rawValue) << 40 | key.ownerHigh >> 24
    }

    var isEmpty: Bool { places.isEmpty }
    var indices: Range<Int> { places.indices }
    subscript(position: Int) -> SpilledRow { rows[places[position].index] }
    /// True for the newest row of its key.
    func isLast(_ position: Int) -> Bool {
        position + 1 == places.count || self[position + 1].key != self[position].key
    }
}

/// Sorted rows by the family they belong to.
struct SortedRowGroups {
    let rows: SortedRows
    let start: SortedRows
    let ephemeral: SortedRows

    init(_ groups: RowGroups, droppingShortLived: Bool = false) {
        rows = SortedRows(groups.rows, droppingShortLived: droppingShortLived)
        start = SortedRows(groups.start, droppingShortLived: droppingShortLived)
        ephemeral = SortedRows(groups.ephemeral, droppingShortLived: droppingShortLived)
    }
}

/// Brings rows into the database.
struct SortedRun {
    let database: RowDatabase
    /// Where files are made, on the database's file system.
    let folder: String

    struct Outcome {
        var rowCount = 0
        var deletionCount = 0

        static func += (left: inout Outcome, right: Outcome) {
            left.rowCount += right.rowCount
            left.deletionCount += right.deletionCount
        }
    }

    /// Ingests rows, durable on return; of several with one key the last one counts.
    ///
    /// - Parameters:
    ///   - groups: sorted.
    ///   - period: where request and trace rows go.
    /// - Returns: what went in.
    /// - Throws: `.diskFull`, `.database`; some families may have taken their part, and a repetition is harmless.
    func ingest(_ groups: SortedRowGroups, period: Int64) throws(StoreError) -> Outcome {
        var outcome = Outcome()
        if !groups.rows.isEmpty {
            outcome += try write(groups.rows, name: "rows.sst", into: database.rows)
            // After the rows: an alarm without its row would be dropped as stale, a row without its alarm would sleep.
            try ingestAlarms(of: groups.rows)
        }
        if !groups.start.isEmpty { outcome += try write(groups.start, name: "start.sst", into: database.start) }
        if !groups.ephemeral.isEmpty {
            let family = try database.ephemeralFamily(period)
            outcome += try write(groups.ephemeral, name: "ephemeral.sst", into: family)
        }
        return outcome
    }

    private func write(
        _ rows: SortedRows, name: String, into family: ColumnFamily
    ) throws(StoreError) -> Outcome {
        let path = folder + "/" + name
        do throws(SystemError) { try FileSystem.removeFile(path) } catch { throw StoreError(error) }
        var outcome = Outcome()
        var writer = try SortedFileWriter(database, path: path)
        let scratch = UnsafeMutableRawBufferPointer.allocate(
            byteCount: KeyCoding.rowPrefixByteCount + Limits.valueByteCount, alignment: 8)
        let keyBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.rowKeyByteCount, alignment: 8)
        defer {
            scratch.deallocate()
            keyBytes.deallocate()
        }
        guard let keyStart = keyBytes.baseAddress else { return outcome }
        for index in rows.indices {
            let row = rows[index]
            guard rows.isLast(index) else { continue }
            KeyCoding.write(row.key, to: keyStart)
            guard let value = row.value else {
                try writer.delete(UnsafeRawBufferPointer(keyBytes))
                outcome.deletionCount += 1
                continue
            }
            scratch.storeBytes(of: row.wakeAt, as: Int64.self)
            UnsafeMutableRawBufferPointer(rebasing: scratch[KeyCoding.rowPrefixByteCount...]).copyMemory(from: value)
            let stored = scratch[..<(KeyCoding.rowPrefixByteCount + value.count)]
            try writer.put(UnsafeRawBufferPointer(keyBytes), UnsafeRawBufferPointer(rebasing: stored))
            outcome.rowCount += 1
        }
        try writer.finish()
        try database.ingest([path], into: family)
        return outcome
    }

    private func ingestAlarms(of rows: SortedRows) throws(StoreError) {
        var changes: [(alarm: Alarm, isSet: Bool)] = []
        for index in rows.indices {
            let row = rows[index]
            if row.coldAlarm != 0 { changes.append((Alarm(wakeAt: row.coldAlarm, key: row.key), false)) }
            // An older version's alarm may have reached the disk in a run that a crash cut off.
            if row.value != nil, row.wakeAt != 0 {
                changes.append((Alarm(wakeAt: row.wakeAt, key: row.key), rows.isLast(index)))
            }
        }
        guard !changes.isEmpty else { return }
        changes.sort { left, right in
            if left.alarm.key.bucket != right.alarm.key.bucket { return left.alarm.key.bucket < right.alarm.key.bucket }
            if left.alarm != right.alarm { return left.alarm < right.alarm }
            return !left.isSet && right.isSet  // of equal ones the setting comes last and counts
        }
        let path = folder + "/alarms.sst"
        do throws(SystemError) { try FileSystem.removeFile(path) } catch { throw StoreError(error) }
        var writer = try SortedFileWriter(database, path: path)
        let keyBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.alarmKeyByteCount, alignment: 8)
        defer { keyBytes.deallocate() }
        guard let keyStart = keyBytes.baseAddress else { return }
        for index in changes.indices {
            if index + 1 < changes.count, changes[index + 1].alarm == changes[index].alarm { continue }
            KeyCoding.write(changes[index].alarm, to: keyStart)
            if changes[index].isSet {
                try writer.put(UnsafeRawBufferPointer(keyBytes), UnsafeRawBufferPointer(start: nil, count: 0))
            } else {
                try writer.delete(UnsafeRawBufferPointer(keyBytes))
            }
        }
        try writer.finish()
        try database.ingest([path], into: database.alarms)
    }
}
