internal import Delivery

struct HighestRows {
    private let limit: Int
    private var rows: [(key: StoreKey, stored: [UInt8])] = []

    init(limit: Int) { self.limit = max(0, limit) }

    /// Adds a stored row, including the prefix of its value.
    mutating func add(_ key: StoreKey, _ stored: some Sequence<UInt8>) {
        rows.append((key, Array(stored)))
        // Sort only after many additions, because a device may have all traces of its bucket.
        if rows.count >= 2 * limit + 64 { trim() }
    }

    private mutating func trim() {
        rows.sort { $1.key < $0.key }
        if rows.count > limit { rows.removeLast(rows.count - limit) }
    }

    /// Returns the rows, highest first; their values live as long as the operation.
    mutating func taken(_ operation: ReadOperation) -> [ColdRow] {
        trim()
        return rows.compactMap { key, stored in
            guard stored.count >= KeyCoding.rowPrefixByteCount else { return nil }
            let value = stored.withUnsafeBytes {
                operation.keep(UnsafeRawBufferPointer(rebasing: $0[KeyCoding.rowPrefixByteCount...]))
            }
            return ColdRow(key: key, wakeAt: 0, value: value)
        }
    }
}
