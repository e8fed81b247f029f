package import Delivery
internal import Journal
internal import Platform
internal import Wire

extension EmbeddedStore {
    /// The form of the rows that this release writes.
    package static var format: Int { StoreFormat.current }

    static func copyMark(of folder: String) -> String { folder + "/copying" }

    /// Whether the folder is the target of a copy that has not ended.
    package static func isUnfinishedCopy(_ folder: String) -> Bool { FileSystem.exists(copyMark(of: folder)) }

    /// Marks the folder as the target of a copy, durably; no gateway starts on it before `endCopy`.
    ///
    /// - Parameters:
    ///   - folder: a store's.
    ///   - source: what is copied, for who looks into the file.
    /// - Throws: what writing the mark came upon.
    package static func beginCopy(to folder: String, from source: String) throws(StoreError) {
        do throws(SystemError) {
            try FileSystem.createDirectory(folder)
            try FileSystem.replace(copyMark(of: folder), with: Array("a copy of \(source) has not ended\n".utf8))
        } catch { throw StoreError(error) }
    }

    /// Gives the store a history of its own, and removes the mark: the store is whole.
    ///
    /// The content may be older than the one that devices and consumers have seen, and its source may go on.
    ///
    /// - Parameters:
    ///   - folder: a store's.
    ///   - wall: the wall clock in milliseconds since 1970.
    /// - Throws: the failure of a write.
    package static func endCopy(to folder: String, wall: Int64) throws(StoreError) {
        do throws(SystemError) {
            try StoreHistoryFile.renew(folder, wall: wall)
            try FileSystem.removeFile(copyMark(of: folder))
            try FileSystem.synchronizeDirectory(folder)
        } catch { throw StoreError(error) }
    }

    /// Removes what a store has in a folder that no process works on; the number of the next owner stays.
    package static func empty(_ folder: String) throws(StoreError) {
        do throws(SystemError) {
            for name in ["spill", "rows", "journal"] { try FileSystem.removeTree(folder + "/" + name) }
            try FileSystem.removeFile(folder + "/format")
            try FileSystem.synchronizeDirectory(folder)
        } catch { throw StoreError(error) }
    }

    /// Lends every row of a table, ordered by key within a bucket: for a copy, before a shard writes anything.
    ///
    /// - Parameters:
    ///   - table: ephemeral ones as well; these come by period, oldest first.
    ///   - body: gets each row, valid during the call.
    /// - Throws: the store's error when a block cannot be read.
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
