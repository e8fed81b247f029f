package import Delivery
internal import Journal
internal import Platform
internal import Wire

extension EmbeddedStore {
    package static var format: Int { StoreFormat.current }

    static func copyMark(of folder: String) -> String { folder + "/copying" }

    package static func isUnfinishedCopy(_ folder: String) -> Bool { FileSystem.exists(copyMark(of: folder)) }

    /// Marks the folder as the target of a copy, durably.
    ///
    /// No gateway starts on it before `endCopy`.
    ///
    /// - Parameters:
    ///   - folder: The store's folder.
    ///   - source: The copied store, named in the mark for an operator.
    /// - Throws: An error of writing the mark.
    package static func beginCopy(to folder: String, from source: String) throws(StoreError) {
        do throws(SystemError) {
            try FileSystem.createDirectory(folder)
            try FileSystem.replace(copyMark(of: folder), with: Array("a copy of \(source) has not ended\n".utf8))
        } catch { throw StoreError(error) }
    }

    /// Begins a new history and removes the mark.
    ///
    /// The store is then complete. It needs a new history, because its content may be older than what devices and consumers have
    /// seen, and the source may continue independently.
    ///
    /// - Parameters:
    ///   - folder: The store's folder.
    ///   - wall: The wall clock in milliseconds since 1970.
    /// - Throws: An error of writing.
    package static func endCopy(to folder: String, wall: Int64) throws(StoreError) {
        do throws(SystemError) {
            try StoreHistoryFile.renew(folder, wall: wall)
            try FileSystem.removeFile(copyMark(of: folder))
            try FileSystem.synchronizeDirectory(folder)
        } catch { throw StoreError(error) }
    }

    /// Removes the content of a stopped store; the owner number in the file `epoch` remains.
    package static func empty(_ folder: String) throws(StoreError) {
        do throws(SystemError) {
            for name in ["spill", "rows", "journal"] { try FileSystem.removeTree(folder + "/" + name) }
            try FileSystem.removeFile(folder + "/format")
            try FileSystem.synchronizeDirectory(folder)
        } catch { throw StoreError(error) }
    }

    /// Visits every row of a table for a copy, ordered by key within a bucket.
    ///
    /// Call before a shard writes.
    ///
    /// - Parameters:
    ///   - table: Any table. Rows of ephemeral tables are visited period by period, oldest first.
    ///   - body: Called with each row, which is valid during the call.
    /// - Throws: The store's error when a block cannot be read.
    package func visitRows(of table: StoreKey.Table, _ body: (StoredRow) -> Void) throws(StoreError) {
        let families =
            table.isEphemeral ? database.families(of: table).map(\.family) : [database.family(of: table)]
        for family in families where try !database.isEmpty(family) {
            for bucket in 0..<UInt16(Bucket.count) {
                try database.visit(table, of: bucket, in: family) { key, stored in
                    guard var row = KeyCoding.row(key, stored) else { return true }
                    if !table.hasAlarms { row.wakeAt = 0 }
                    body(row)
                    return true
                }
            }
        }
    }
}
