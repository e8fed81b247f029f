// Writes rows to the ordered store through sorted files. The files lie in a separate folder that each start empties. A crash
// before or between ingestions repeats the whole run from the journal.

internal import Delivery
internal import Platform

struct SortedRun {
    let database: RowDatabase
    /// The folder of the files, on the database's file system.
    let folder: String
    /// The run of the journal that the rows belong to (`SegmentHeader.run`).
    let run: UInt64

    struct Outcome {
        var rowCount = 0
        var deletionCount = 0

        static func += (left: inout Outcome, right: Outcome) {
            left.rowCount += right.rowCount
            left.deletionCount += right.deletionCount
        }
    }

    /// Ingests rows, durable on return.
    ///
    /// The last of several rows with one key is stored.
    ///
    /// - Parameters:
    ///   - groups: The sorted rows. Request and trace rows go to the newest periods of their kinds.
    ///   - now: The gateway time at which a first period begins; `Period.undated` if unknown.
    /// - Returns: The number of rows and deletions.
    /// - Throws: `.diskFull`, `.database`. Some families may have been ingested; the call can be repeated.
    func ingest(_ groups: SortedRowGroups, now: Int64) throws(StoreError) -> Outcome {
        var outcome = Outcome()
        if !groups.rows.isEmpty {
            outcome += try write(groups.rows, name: "rows.sst", into: database.rows)
            // Ingest alarms after their rows. An alarm without its row is dropped as stale, and the row would be left without an
            // alarm.
            try ingestAlarms(of: groups.rows)
        }
        if !groups.start.isEmpty { outcome += try write(groups.start, name: "start.sst", into: database.start) }
        for (kind, rows) in [(Period.Kind.requests, groups.requests), (.traces, groups.traces)] where !rows.isEmpty {
            let newest: EphemeralFamily
            if let found = database.newestPeriod(kind) {
                newest = found
            } else {
                newest = try database.beginPeriod(kind, at: now)
            }
            outcome += try write(rows, name: "\(kind.rawValue).sst", into: newest.family)
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
        var scratch = UnsafeMutableRawBufferPointer.allocate(
            byteCount: KeyCoding.rowPrefixByteCount + StoreBounds.valueByteCount + CountStamp.byteCount, alignment: 8)
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
            let most = KeyCoding.rowPrefixByteCount + value.count + CountStamp.byteCount
            if most > scratch.count {
                // The value exceeds the size bound. The shard has reported this, and the written value is kept.
                scratch.deallocate()
                scratch = .allocate(byteCount: most, alignment: 8)
            }
            scratch.storeBytes(of: row.wakeAt, as: Int64.self)
            UnsafeMutableRawBufferPointer(rebasing: scratch[KeyCoding.rowPrefixByteCount...]).copyMemory(from: value)
            var stored = scratch[..<(KeyCoding.rowPrefixByteCount + value.count)]
            if row.countedUpTo != 0 {
                scratch.storeBytes(of: row.countedUpTo, as: UInt64.self)
                scratch.storeBytes(of: run, toByteOffset: stored.count, as: UInt64.self)
                stored = scratch[..<most]
            }
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
            // Delete the alarms of older versions, too: an interrupted run may have written them.
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
