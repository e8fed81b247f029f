internal import Delivery
internal import Foundation
internal import MessageStore
internal import Platform
internal import Wire

enum StoreExport {
    /// Writes every row of `source`, then reads the store again to detect changes.
    ///
    /// - Parameters:
    ///   - source: the store, which is not changed. No gateway may use it.
    ///   - target: the operator's name for the file.
    ///   - release: the version of this program.
    ///   - put: receives the file's bytes in order.
    ///   - report: receives lines of progress, and one for each table.
    /// - Returns: the sums of each table.
    /// - Throws: `CopyFailure` when the store changed during the export, and the errors of the store and of `put`.
    static func write(
        _ source: any CopyPlace, to target: String, release: String, put: @escaping ([UInt8]) throws -> Void,
        report: (String) -> Void
    ) throws -> [StoreKey.Table: TableSum] {
        try source.beginReading(for: target)
        let header = ExportHeader(
            storeFormat: EmbeddedStore.format, release: release, madeAt: Int64(SystemClock.wallMilliseconds),
            source: source.name)
        var writer = try ExportWriter(header, put: put)
        try source.visitRows { row in
            try writer.add(row)
            if writer.rowCount % StoreCopy.progressRowCount == 0 { report("\(writer.rowCount) rows so far") }
        }
        guard try StoreCopy.sums(of: source) == writer.sums else {
            throw CopyFailure("\(source.name) changed while it was exported: stop what works on it, and run it again")
        }
        // The last block is written after the comparison, so that the export of a changed store stays incomplete.
        try writer.end()
        try source.complete()
        for table in StoreKey.Table.allCases { report(StoreCopy.line(table, writer.sums[table] ?? TableSum())) }
        return writer.sums
    }

    /// Fills a store from an export and compares it with the export's sums.
    ///
    /// An unfinished import leaves a target that no gateway starts on.
    ///
    /// - Parameters:
    ///   - file: the operator's name for the file.
    ///   - target: the store to fill.
    ///   - isReplacing: whether existing rows of the target are removed.
    ///   - take: returns up to a number of the file's bytes, fewer at its end.
    ///   - report: receives lines of progress, and one for each table.
    /// - Returns: the sums of each table.
    /// - Throws: `CopyFailure` for a damaged or truncated file, or when the store differs afterwards, and the errors of the
    ///   store and of `take`.
    static func read(
        _ file: String, into target: any CopyPlace, isReplacing: Bool, take: @escaping (Int) throws -> [UInt8],
        report: @escaping (String) -> Void
    ) throws -> [StoreKey.Table: TableSum] {
        // The header is read before anything is written or removed.
        var reader = try ExportReader(file, take: take)
        report("an export of \(reader.header.source), made by release \(reader.header.release)")
        let sums = try StoreCopy.fill(target, from: file, isReplacing: isReplacing, report: report) { put in
            while let rows = try reader.nextRows() { try put(rows) }
        }
        try target.complete()
        return sums
    }
}

extension ExportForm {
    static func object(_ bytes: [UInt8]) -> [String: Any]? {
        (try? JSONSerialization.jsonObject(with: Data(bytes))) as? [String: Any]
    }
}
