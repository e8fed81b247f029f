// Copies all rows of one store into an empty one, offline, and compares counts and digests afterwards.
//
// Both sides are accessed only through the store's interface: the source lends rows, the target accepts a loop's writes. A copy
// therefore works between any two engines.

internal import Delivery
internal import Cryptography
internal import MessageStore
internal import Wire

/// A store as the source or target of a copy.
///
/// Calls on a source: begin, read, complete. On a target: begin, write, finish, read, complete.
protocol CopyPlace: AnyObject {
    /// The operator's name for the store.
    var name: String { get }
    /// Opens the store as a source; no gateway may use it.
    func beginReading(for target: String) throws
    /// Opens the target, which must be empty unless `isReplacing` empties it, and marks the target as incomplete.
    ///
    /// A gateway refuses to start on an incomplete store; `complete` removes the mark.
    func beginWriting(from source: String, isReplacing: Bool) throws
    /// Lends every row once, in any order.
    func visitRows(_ body: (StoredRow) throws -> Void) throws
    /// Writes new rows; they are durable and visible after `finishWriting`.
    func write(_ rows: [CopiedRow]) throws
    func finishWriting() throws
    func complete() throws
    /// Closes the store; always the last call.
    func close()
}

struct CopiedRow: Sendable {
    var key: StoreKey
    var wakeAt: Int64
    var value: [UInt8]

    init(key: StoreKey, wakeAt: Int64, value: [UInt8]) { (self.key, self.wakeAt, self.value) = (key, wakeAt, value) }

    init(_ row: StoredRow) { (key, wakeAt, value) = (row.key, row.wakeAt, Array(row.value)) }
}

/// The count, size and digest of a table's rows, independent of their order.
struct TableSum: Equatable, Sendable {
    var rowCount = 0
    var byteCount = 0
    private var low: UInt64 = 0
    private var high: UInt64 = 0

    init() {}

    init(rowCount: Int, byteCount: Int, _ words: (high: UInt64, low: UInt64)) {
        (self.rowCount, self.byteCount, high, low) = (rowCount, byteCount, words.high, words.low)
    }

    var words: (high: UInt64, low: UInt64) { (high, low) }

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

    var text: String { StoreCheck.hex(high) + StoreCheck.hex(low) }
}

struct CopyFailure: Error, Equatable, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

enum StoreCopy {
    /// The maximum number and bytes of rows in memory.
    static let batchRowCount = 10_000
    static let batchByteCount = 4 << 20
    /// The number of rows after which progress is reported.
    static let progressRowCount = 1_000_000

    /// Copies all rows, then reads both stores and compares them.
    ///
    /// An unfinished copy leaves a target that no gateway starts on. A new copy with `isReplacing` empties the target.
    ///
    /// - Parameters:
    ///   - source: the store to copy, which is not changed.
    ///   - target: the store to fill.
    ///   - isReplacing: whether existing rows of the target are removed.
    ///   - report: receives lines of progress, and one for each table.
    /// - Returns: the sums of each table.
    /// - Throws: `CopyFailure` when the target is not empty, or differs afterwards, and the stores' errors.
    static func run(
        from source: any CopyPlace, to target: any CopyPlace, isReplacing: Bool = false,
        report: @escaping (String) -> Void
    ) throws -> [StoreKey.Table: TableSum] {
        try source.beginReading(for: target.name)
        let sums = try fill(target, from: source.name, isReplacing: isReplacing, report: report) { put in
            var batch: [CopiedRow] = []
            var byteCount = 0
            try source.visitRows { row in
                batch.append(CopiedRow(row))
                byteCount += row.value.count
                guard batch.count >= batchRowCount || byteCount >= batchByteCount else { return }
                try put(batch)
                batch.removeAll(keepingCapacity: true)
                byteCount = 0
            }
            try put(batch)
        }
        guard try sums == self.sums(of: source) else {
            throw CopyFailure("\(source.name) changed while it was copied: run it again with --replace")
        }
        try target.complete()
        try source.complete()
        return sums
    }

    /// Fills a store with the batches that `rows` passes on, then reads it again and compares.
    ///
    /// Returns the sums of each table. The caller must call `target.complete`.
    static func fill(
        _ target: any CopyPlace, from name: String, isReplacing: Bool, report: @escaping (String) -> Void,
        _ rows: (([CopiedRow]) throws -> Void) throws -> Void
    ) throws -> [StoreKey.Table: TableSum] {
        try target.beginWriting(from: name, isReplacing: isReplacing)
        var sums: [StoreKey.Table: TableSum] = [:]
        var rowCount = 0
        try rows { piece in
            for row in piece {
                row.value.withUnsafeBytes {
                    sums[row.key.table, default: TableSum()].add(
                        StoredRow(key: row.key, wakeAt: row.wakeAt, value: $0))
                }
            }
            try target.write(piece)
            let before = rowCount / progressRowCount
            rowCount += piece.count
            if rowCount / progressRowCount > before { report("\(rowCount) rows so far") }
        }
        try target.finishWriting()
        report("reading it again to compare")
        let found = try self.sums(of: target)
        for table in StoreKey.Table.allCases {
            let (wanted, got) = (sums[table] ?? TableSum(), found[table] ?? TableSum())
            report(line(table, got))
            guard wanted == got else {
                throw CopyFailure(
                    "the store is not the same: table \(table) has \(got.rowCount) rows with digest \(got.text), and "
                        + "\(name) has \(wanted.rowCount) with \(wanted.text); run it again with --replace")
            }
        }
        return sums
    }

    static func sums(of place: any CopyPlace) throws -> [StoreKey.Table: TableSum] {
        var sums: [StoreKey.Table: TableSum] = [:]
        try place.visitRows { sums[$0.key.table, default: TableSum()].add($0) }
        return sums
    }

    static func line(_ table: StoreKey.Table, _ sum: TableSum) -> String {
        "\(table): \(sum.rowCount) rows, \(sum.byteCount) bytes, digest \(sum.text)"
    }
}
