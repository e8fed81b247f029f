// Rows on their way into the ordered store: sorted, written to files, ingested. Files lie in their own folder, which is
// emptied at each start; a crash before or between ingestions repeats the whole run from the journal.

internal import Delivery
internal import Platform

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

/// Brings rows into the database.
struct SortedRun {
    let database: RowDatabase
    /// Where files are made, on the database's file system.
    let folder: String

    struct Outcome {
        var rowCount = 0
        var deletionCount = 0
    }

    /// Sorts and ingests `rows`, durable on return; of several with one key the last one counts.
    ///
    /// - Parameters:
    ///   - rows: in the order they were written; sorted on return.
    ///   - period: where request and trace rows go.
    /// - Returns: what went in.
    /// - Throws: `.diskFull`, `.database`; some families may have taken their part, and a repetition is harmless.
    func ingest(_ rows: inout [SpilledRow], period: Int64) throws(StoreError) -> Outcome {
        var outcome = Outcome()
        // Ties keep the later row: the sort is stable.
        rows.sort { $0.key < $1.key }
        let (durable, ephemeral) = (rows.filter { !$0.key.table.isEphemeral }, rows.filter { $0.key.table.isEphemeral })
        if !durable.isEmpty {
            let part = try write(durable, name: "rows.sst", into: database.rows)
            outcome.rowCount += part.rowCount
            outcome.deletionCount += part.deletionCount
            // After the rows: an alarm without its row would be dropped as stale, a row without its alarm would sleep.
            try ingestAlarms(of: durable)
        }
        if !ephemeral.isEmpty {
            let family = try database.ephemeralFamily(period)
            outcome.rowCount += try write(ephemeral, name: "ephemeral.sst", into: family).rowCount
        }
        return outcome
    }

    private func write(
        _ rows: [SpilledRow], name: String, into family: ColumnFamily
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
            if index + 1 < rows.count, rows[index + 1].key == row.key { continue }
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

    private func ingestAlarms(of rows: [SpilledRow]) throws(StoreError) {
        var changes: [(alarm: Alarm, isSet: Bool)] = []
        for index in rows.indices {
            let row = rows[index]
            if row.coldAlarm != 0 { changes.append((Alarm(wakeAt: row.coldAlarm, key: row.key), false)) }
            let isLast = index + 1 == rows.count || rows[index + 1].key != row.key
            // An older version's alarm may have reached the disk in a run that a crash cut off.
            if row.value != nil, row.wakeAt != 0 {
                changes.append((Alarm(wakeAt: row.wakeAt, key: row.key), isLast))
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
