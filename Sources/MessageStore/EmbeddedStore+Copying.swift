package import Delivery
internal import Journal
internal import Wire

extension EmbeddedStore {
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
                    if table == .counters {
                        body(StoredRow(key: key, wakeAt: 0, value: CountStamp.read(stored).value))
                    } else {
                        // Where others have an alarm, rows without alarms may have something of the store's own.
                        let wakeAt = table.hasAlarms ? stored.loadUnaligned(as: Int64.self) : 0
                        let value = UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...])
                        body(StoredRow(key: key, wakeAt: wakeAt, value: value))
                    }
                    return true
                }
            }
        }
    }
}
