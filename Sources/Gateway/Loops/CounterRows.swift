internal import Delivery
internal import MessageStore

/// The counters of a shard's buckets as they stand at the start: copies, since the store lends rows for a call only.
final class CounterRows {
    private(set) var rows: [StoredRow] = []

    init(loading store: EmbeddedShardStore) throws(StoreError) {
        var copies: [StoredRow] = []
        try store.loadAll(table: .counters) { row in
            let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, row.value.count), alignment: 8)
            copy.copyMemory(from: row.value)
            let value = UnsafeRawBufferPointer(start: copy.baseAddress, count: row.value.count)
            copies.append(StoredRow(key: row.key, wakeAt: row.wakeAt, value: value))
        }
        rows = copies
    }

    deinit {
        for row in rows { row.value.deallocate() }
    }
}
