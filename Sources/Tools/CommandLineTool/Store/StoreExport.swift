internal import Delivery
internal import Foundation
internal import MessageStore
internal import Platform
internal import Wire

/// Writes a store as one portable file, and makes a store of such a file.
enum StoreExport {
    /// Writes every row of `source`, then reads it again to see that it did not change meanwhile.
    ///
    /// - Parameters:
    ///   - source: keeps all that it has; no gateway works on it.
    ///   - target: how the operator named the file.
    ///   - release: of this program.
    ///   - put: takes the file's bytes in order.
    ///   - tell: gets lines of progress, and one for each table.
    /// - Returns: what there is of each table.
    /// - Throws: `CopyFailure` when the store changed meanwhile; what the store and `put` throw.
    static func write(
        _ source: any CopyPlace, to target: String, release: String, put: @escaping ([UInt8]) throws -> Void,
        tell: (String) -> Void
    ) throws -> [StoreKey.Table: TableSum] {
        try source.beginReading(for: target)
        let header = ExportHeader(
            storeFormat: EmbeddedStore.format, release: release, madeAt: Int64(SystemClock.wallMilliseconds),
            source: source.name)
        var writer = try ExportWriter(header, put: put)
        try source.visitRows { row in
            try writer.add(row)
            if writer.rowCount % StoreCopy.progressRowCount == 0 { tell("\(writer.rowCount) rows so far") }
        }
        guard try StoreCopy.sums(of: source) == writer.sums else {
            throw CopyFailure("\(source.name) changed while it was exported: stop what works on it, and run it again")
        }
        // The last block comes after the comparison: an export that differs is one that was cut off.
        try writer.end()
        try source.complete()
        for table in StoreKey.Table.allCases { tell(StoreCopy.line(table, writer.sums[table] ?? TableSum())) }
        return writer.sums
    }

    /// Makes a store of an export, and compares it with the export's sums.
    ///
    /// An import that does not end leaves a target that no gateway starts on.
    ///
    /// - Parameters:
    ///   - file: how the operator named it.
    ///   - target: gets the rows.
    ///   - isReplacing: what the target has is removed.
    ///   - take: gives up to a number of the file's bytes, fewer at its end.
    ///   - tell: gets lines of progress, and one for each table.
    /// - Returns: what there is of each table.
    /// - Throws: `CopyFailure` for a file that is damaged or shortened, and when the store is not the same afterwards; what
    ///   the store and `take` throw.
    static func read(
        _ file: String, into target: any CopyPlace, isReplacing: Bool, take: @escaping (Int) throws -> [UInt8],
        tell: @escaping (String) -> Void
    ) throws -> [StoreKey.Table: TableSum] {
        // Before anything is written or removed.
        var reader = try ExportReader(file, take: take)
        tell("an export of \(reader.header.source), made by release \(reader.header.release)")
        let sums = try StoreCopy.fill(target, from: file, isReplacing: isReplacing, tell: tell) { put in
            while let rows = try reader.nextRows() { try put(rows) }
        }
        try target.complete()
        return sums
    }
}

extension ExportForm {
    /// A JSON object; `nil` for anything else.
    static func object(_ bytes: [UInt8]) -> [String: Any]? {
        (try? JSONSerialization.jsonObject(with: Data(bytes))) as? [String: Any]
    }
}
