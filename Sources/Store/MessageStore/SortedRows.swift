// Rows between memory and the database: grouped by column family and sorted.

internal import Delivery
internal import Wire

/// A row or deletion to be written to the ordered store.
struct SpilledRow: @unchecked Sendable {
    // Sound because the shard keeps the value's block until the spiller returns the row.
    var key: StoreKey
    /// `nil` for a removal.
    var value: UnsafeRawBufferPointer?
    var wakeAt: Int64
    /// The alarm that the ordered store may have for the key; 0 for none.
    var coldAlarm: Int64
    /// The row's slot and version in the shard; for a logged row, the two halves of its number.
    var slot: UInt32
    var version: UInt32
    var block: UInt32
    /// The last batch that a counter row includes; 0 for other rows.
    var countedUpTo: Ticket = 0
}

/// Rows by column family, each in the order in which they were written.
struct RowGroups {
    private(set) var rows: [SpilledRow] = []
    /// Rows of the tables that a start reads completely.
    private(set) var start: [SpilledRow] = []
    private(set) var requests: [SpilledRow] = []
    private(set) var traces: [SpilledRow] = []

    var count: Int { rows.count + start.count + requests.count + traces.count }

    init(asManyAs other: RowGroups = RowGroups(of: [])) {
        rows.reserveCapacity(other.rows.count)
        requests.reserveCapacity(other.requests.count)
        traces.reserveCapacity(other.traces.count)
    }

    init(of parts: [[SpilledRow]]) {
        let count = parts.reduce(0) { $0 + $1.count }
        func ephemeralCount(_ kind: Period.Kind) -> Int {
            parts.reduce(0) { sum, rows in
                sum + rows.count { $0.key.table.isEphemeral && Period.Kind(of: $0.key.table) == kind }
            }
        }
        let (requestCount, traceCount) = (ephemeralCount(.requests), ephemeralCount(.traces))
        rows.reserveCapacity(count - requestCount - traceCount)
        requests.reserveCapacity(requestCount)
        traces.reserveCapacity(traceCount)
        for part in parts {
            for row in part { append(row) }
        }
    }

    mutating func append(_ row: SpilledRow) {
        if row.key.table.isEphemeral {
            if Period.Kind(of: row.key.table) == .traces { traces.append(row) } else { requests.append(row) }
        } else if row.key.table.isReadAtStart {
            start.append(row)
        } else {
            rows.append(row)
        }
    }
}

/// Rows in key order.
///
/// Versions of one key stay in write order, the newest last. The sort moves places of sixteen bytes rather than rows, which are
/// six times as large.
struct SortedRows {
    private struct Place {
        var prefix: UInt64
        var index: Int
    }

    /// The value of `SpilledRow.version` for the first row ever written under its key.
    static let brandNew: UInt32 = 1

    private let rows: [SpilledRow]
    private var places: [Place]

    /// Sorts `rows`, which are in write order; `droppingShortLived` removes keys whose versions begin with a brand-new row and
    /// end with a deletion: these rows need not reach the database.
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
    func isLast(_ position: Int) -> Bool {
        position + 1 == places.count || self[position + 1].key != self[position].key
    }
}

struct SortedRowGroups {
    let rows: SortedRows
    let start: SortedRows
    let requests: SortedRows
    let traces: SortedRows

    init(_ groups: RowGroups, droppingShortLived: Bool = false) {
        rows = SortedRows(groups.rows, droppingShortLived: droppingShortLived)
        start = SortedRows(groups.start, droppingShortLived: droppingShortLived)
        requests = SortedRows(groups.requests, droppingShortLived: droppingShortLived)
        traces = SortedRows(groups.traces, droppingShortLived: droppingShortLived)
    }
}
