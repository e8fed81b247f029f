// Copies all rows of one store into an empty one, offline, and proves by counts and digests that they are the same.
//
// Both sides are seen through the store's seam alone: the source lends its rows, the target takes them as a loop's writes.
// So a copy knows neither engine's format, and works between any two of them.

package import Delivery
internal import Cryptography
internal import MessageStore
internal import Wire

/// A store as a copy sees it.
package protocol CopyPlace: AnyObject {
    /// How the operator named it.
    var name: String { get }
    /// Lends every row of a table, in any order; before the first write.
    func visitRows(of table: StoreKey.Table, _ body: (StoredRow) -> Void) throws
    /// Writes rows of one bucket; they are durable after `finishWriting`.
    func write(_ rows: [CopiedRow]) throws
    func finishWriting() throws
    func close()
}

/// A row on its way.
package struct CopiedRow: Sendable {
    package var key: StoreKey
    package var wakeAt: Int64
    package var value: [UInt8]

    init(_ row: StoredRow) { (key, wakeAt, value) = (row.key, row.wakeAt, Array(row.value)) }
}

/// Rows of a table, in one number that does not depend on their order.
package struct TableSum: Equatable, Sendable {
    package var rowCount = 0
    package var byteCount = 0
    private var low: UInt64 = 0
    private var high: UInt64 = 0

    package init() {}

    mutating func add(_ row: StoredRow) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(StoreKey.encodedByteCount + 8 + row.value.count)
        let words = [
            UInt64(row.key.bucket.index), UInt64(row.key.table.rawValue), row.key.ownerHigh, row.key.ownerLow,
            row.key.item,
            UInt64(bitPattern: row.wakeAt),
        ]
        for word in words { withUnsafeBytes(of: word.bigEndian) { bytes.append(contentsOf: $0) } }
        bytes.append(contentsOf: row.value)
        let digest = SHA256.digest(bytes)
        (low, high) = (low &+ digest.words.0, high &+ digest.words.1)
        rowCount += 1
        byteCount += row.value.count
    }

    /// The digest's digits.
    package var text: String {
        [high, low].map { word in
            let text = String(word, radix: 16)
            return String(repeating: "0", count: 16 - text.count) + text
        }.joined()
    }
}

/// Why a copy ended early; the message is for the operator.
package struct CopyFailure: Error, Equatable, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}

package enum StoreCopy {
    /// Rows and bytes that are on their way at a time.
    static let batchRowCount = 500
    static let batchByteCount = 512 << 10

    /// Copies everything, then reads the target and compares.
    ///
    /// - Parameters:
    ///   - source: is not changed.
    ///   - openTarget: opens the target; called twice, the second time to read what was written.
    ///   - tell: gets a line of progress for each table.
    /// - Returns: what each table has.
    /// - Throws: `CopyFailure` when the target is not empty, or not the same afterwards; what the stores throw.
    package static func run(
        from source: any CopyPlace, to openTarget: () throws -> any CopyPlace, tell: (String) -> Void
    ) throws -> [StoreKey.Table: TableSum] {
        var sums: [StoreKey.Table: TableSum] = [:]
        do {
            let target = try openTarget()
            defer { target.close() }
            for table in StoreKey.Table.allCases {
                var count = 0
                try target.visitRows(of: table) { _ in count += 1 }
                guard count == 0 else {
                    throw CopyFailure(
                        "\(target.name) is not empty: it has \(count) rows of table \(table); nothing was copied")
                }
            }
            for table in StoreKey.Table.allCases {
                sums[table] = try copy(table, from: source, to: target)
                tell(line(table, sums[table] ?? TableSum()))
            }
            try target.finishWriting()
        }
        tell("reading \(source.name) and the copy again to compare")
        let target = try openTarget()
        defer { target.close() }
        for table in StoreKey.Table.allCases {
            var (again, copied) = (TableSum(), TableSum())
            try source.visitRows(of: table) { again.add($0) }
            try target.visitRows(of: table) { copied.add($0) }
            guard again == sums[table] else {
                throw CopyFailure("\(source.name) changed while it was copied: table \(table)")
            }
            guard copied == again else {
                throw CopyFailure(
                    "the copy is not the same: table \(table) has \(copied.rowCount) rows with digest \(copied.text), and "
                        + "\(source.name) has \(again.rowCount) with \(again.text); remove the copy and try again")
            }
        }
        return sums
    }

    private static func copy(
        _ table: StoreKey.Table, from source: any CopyPlace, to target: any CopyPlace
    ) throws -> TableSum {
        var sum = TableSum()
        var batch: [CopiedRow] = []
        var byteCount = 0
        var failure: (any Error)?
        func flush() {
            guard !batch.isEmpty, failure == nil else { return }
            do { try target.write(batch) } catch { failure = error }
            batch.removeAll(keepingCapacity: true)
            byteCount = 0
        }
        try source.visitRows(of: table) { row in
            sum.add(row)
            if batch.count == batchRowCount || byteCount + row.value.count > batchByteCount
                || batch.last.map({ $0.key.bucket != row.key.bucket }) ?? false
            {
                flush()
            }
            batch.append(CopiedRow(row))
            byteCount += row.value.count
        }
        flush()
        if let failure { throw failure }
        return sum
    }

    static func line(_ table: StoreKey.Table, _ sum: TableSum) -> String {
        "\(table): \(sum.rowCount) rows, \(sum.byteCount) bytes, digest \(sum.text)"
    }
}
