// Read-only inspection of a store's folder. A start would move the journal into the database and refuse damage. The inspection
// reads journal and database side by side and reports damage.
//
// Buckets are read one at a time, because all rows of a device lie in one bucket. Memory holds the rows of one bucket and the
// journal.

package import Delivery
internal import Journal
internal import Platform
internal import Wire

/// The folder of a stopped gateway; the lock prevents a gateway from starting on it during the inspection.
package final class StoreInspection {
    package struct Damage: Sendable {
        package enum Kind: String, Sendable { case format, journal, database, row, alarm, queue }
        package var kind: Kind
        package var place: String
        package var what: String

        package init(_ kind: Kind, _ place: String, _ what: String) {
            (self.kind, self.place, self.what) = (kind, place, what)
        }
    }

    package struct Row {
        package var key: StoreKey
        package var wakeAt: Int64
        package var value: [UInt8]
        package var lacksAlarm = false
    }

    package struct Log: Sendable {
        package var segmentCount = 0
        package var recordCount = 0
        package var recordByteCount = 0
        /// Bytes of an incomplete write behind the last whole record.
        package var cutByteCount = 0
        package var isUnsynced = false
    }

    private struct Young {
        var wakeAt: Int64
        /// `nil` if the row was deleted.
        var value: [UInt8]?
    }

    package let folder: String
    package private(set) var format = 0
    package private(set) var log = Log()
    package private(set) var damages: [Damage] = []
    /// Entries of the alarm index that no row needs; a running gateway removes them over time.
    package private(set) var staleAlarmCount = 0
    private var database: RowDatabase?
    private var young: [UInt16: [StoreKey: Young]] = [:]
    private let lock: LockFile?
    private let isBackup: Bool

    /// Locks the folder and reads its journal.
    ///
    /// - Parameters:
    ///   - folder: A gateway's `store.path`, or a backup.
    ///   - isRestoring: Whether the mark of an unfinished copy is expected.
    /// - Throws: `.inUse`, or an error if the folder is not a store of a readable format.
    package init(folder: String, isRestoring: Bool = false) throws(StoreError) {
        self.folder = folder
        isBackup = StoreBackup.isBackup(folder)
        if isBackup {
            // A backup does not change, and its disk may be read-only.
            lock = nil
            do throws(StoreError) {
                try StoreBackup(of: folder).verify(folder)
            } catch { damages.append(Damage(.format, folder, "\(error)")) }
        } else {
            lock = try EmbeddedStore.takeFolder(folder)
        }
        let format = try StoreFormat(of: folder)
        self.format = format.found
        if !isRestoring, EmbeddedStore.isUnfinishedCopy(folder) {
            damages.append(Damage(.format, folder, "\(StoreError.unfinishedCopy(folder: folder))"))
        }
        do throws(StoreError) {
            if FileSystem.exists(folder + "/rows/CURRENT") {
                database = try RowDatabase(
                    path: folder + "/rows", cacheByteCount: Limits.blockCacheByteCount, isReadOnly: true)
            } else if FileSystem.exists(folder + "/rows"), FileSystem.exists(folder + "/journal") {
                try EmbeddedStore.checkDatabaseIsThere(folder)
            }
        } catch { note(.database, folder + "/rows", error) }
        do throws(StoreError) { try readJournal() } catch { note(.journal, folder + "/journal", error) }
    }

    private func note(_ kind: Damage.Kind, _ place: String, _ error: StoreError) {
        switch error {
        case .damagedJournal(let file, let offset, let what):
            damages.append(Damage(kind, "\(file) at byte \(offset)", what))
        case .damagedDatabase(let folder, let what): damages.append(Damage(kind, folder, what))
        default: damages.append(Damage(kind, place, "\(error)"))
        }
    }

    package func close() {
        database?.close()
        database = nil
    }

    // MARK: The journal

    private func readJournal() throws(StoreError) {
        guard FileSystem.exists(folder + "/journal") else { return }
        // The segment size is not needed here: each header states it.
        let journal: Recovery
        do throws(JournalError) {
            journal = try Recovery(folder: SegmentFolder(path: folder + "/journal", isTrimmed: isBackup))
        } catch { throw StoreError(error) }
        log = Log(
            segmentCount: journal.segments.count, recordCount: journal.batchCount, recordByteCount: journal.byteCount,
            cutByteCount: journal.cutByteCount, isUnsynced: journal.isUnsynced)
        guard let database else { return }
        var counts = CountReplay(database, run: journal.run)
        let buffer = SegmentBuffer()
        for segment in journal.segments {
            try journal.replay(segment, using: buffer, &counts) { operation, key, _ in
                let value = operation.kind == .put ? Array(operation.value) : nil
                young[key.bucket.index, default: [:]][key] = Young(wakeAt: operation.wakeAt, value: value)
            }
        }
        let (rows, memory) = counts.takeChanged()
        withExtendedLifetime(memory) {
            for row in rows {
                let value = row.value.map { Array($0) }
                young[row.key.bucket.index, default: [:]][row.key] = Young(wakeAt: 0, value: value)
            }
        }
    }

    // MARK: Rows

    /// Returns the rows of a bucket as a start would find them, in no order.
    ///
    /// - Parameters:
    ///   - bucket: The bucket's index.
    ///   - report: Called for each unreadable item. Readable rows are returned nevertheless.
    /// - Returns: The rows with the journal's changes applied.
    package func rows(of bucket: UInt16, _ report: (Damage) -> Void) -> [Row] {
        let young = young[bucket] ?? [:]
        var rows: [Row] = []
        var alarms: [StoreKey: Set<Int64>] = [:]
        if let database {
            var areAlarmsWhole = true
            func note(_ damage: Damage) {
                areAlarmsWhole = false
                report(damage)
            }
            read(database.alarms, of: bucket, note) { key, _ in
                guard let alarm = KeyCoding.readAlarm(key) else {
                    return note(Damage(.alarm, "\(folder)/rows, bucket \(bucket)", "an alarm's key makes no sense"))
                }
                alarms[alarm.key, default: []].insert(alarm.wakeAt)
            }
            for family in [database.rows, database.start] + database.ephemeralFamilies.map(\.family) {
                read(family, of: bucket, report) { bytes, stored in
                    guard let key = KeyCoding.readKey(bytes), stored.count >= KeyCoding.rowPrefixByteCount else {
                        let place = "\(folder)/rows, family \(family.name), bucket \(bucket)"
                        return report(Damage(.row, place, "a row's key or length makes no sense"))
                    }
                    let known = alarms.removeValue(forKey: key) ?? []
                    guard young[key] == nil else { return }
                    if key.table == .counters {
                        rows.append(Row(key: key, wakeAt: 0, value: Array(CountStamp.read(stored).value)))
                        return
                    }
                    let wakeAt = key.table.hasAlarms ? stored.loadUnaligned(as: Int64.self) : 0
                    if wakeAt != 0, known.contains(wakeAt) {
                        staleAlarmCount += known.count - 1
                    } else {
                        staleAlarmCount += known.count
                    }
                    rows.append(
                        Row(
                            key: key, wakeAt: wakeAt, value: Array(stored[KeyCoding.rowPrefixByteCount...]),
                            lacksAlarm: areAlarmsWhole && wakeAt != 0 && !known.contains(wakeAt)))
                }
            }
            staleAlarmCount += alarms.values.reduce(0) { $0 + $1.count }
        }
        for (key, row) in young {
            if let value = row.value { rows.append(Row(key: key, wakeAt: row.wakeAt, value: value)) }
        }
        return rows
    }

    private func read(
        _ family: ColumnFamily, of bucket: UInt16, _ report: (Damage) -> Void,
        _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Void
    ) {
        guard let database else { return }
        do throws(StoreError) {
            try database.visitAll(of: bucket, in: family, body)
        } catch {
            report(Damage(.database, "\(folder)/rows, family \(family.name), bucket \(bucket)", "\(error)"))
        }
    }
}
