// The file of `store export` (docs/use/Operations.md, "Export and import"): every row of a store, independent of the engine.
//
//   "longwire export 1\n"
//   blocks: byte count of the body (4 bytes), CRC32C of the block's number (8 bytes) and the body (4 bytes), body
//
// The first block's body is "H" and a JSON object that names the source. Further bodies are "R" and rows. The last one is "E"
// and the sums of all tables, which prove that the file is complete. Numbers are in network order.

internal import Delivery
internal import MessageStore
internal import Platform
internal import Wire

struct ExportHeader: Equatable, Sendable {
    /// The version of the row format, which is that of the embedded engine's folder.
    var storeFormat: Int
    var release: String
    /// The time of the export, in milliseconds since 1970 by its machine's clock.
    var madeAt: Int64
    var source: String

    init(storeFormat: Int, release: String, madeAt: Int64, source: String) {
        (self.storeFormat, self.release, self.madeAt, self.source) = (storeFormat, release, madeAt, source)
    }
}

enum ExportForm {
    static let firstLine = "longwire export 1\n"
    static let firstWords = "longwire export "
    /// The size from which a block is written; with one more row it stays below `blockByteLimit`.
    static let blockByteCount = 256 << 10
    static let blockByteLimit = 1 << 20
    static let blockHeadByteCount = 8

    enum Kind: UInt8 {
        case header = 0x48  // H
        case rows = 0x52  // R
        case end = 0x45  // E
    }
}

/// A writer of an export; `put` receives the bytes in order.
struct ExportWriter {
    private let put: ([UInt8]) throws -> Void
    private var body: [UInt8] = []
    private var number: UInt64 = 0
    private(set) var sums: [StoreKey.Table: TableSum] = [:]
    private(set) var byteCount = 0
    private(set) var rowCount = 0

    init(_ header: ExportHeader, put: @escaping ([UInt8]) throws -> Void) throws {
        self.put = put
        try out(Array(ExportForm.firstLine.utf8))
        let text: JSONText = [
            "storeFormat": header.storeFormat, "release": header.release, "madeAt": header.madeAt,
            "source": header.source,
        ]
        body = [ExportForm.Kind.header.rawValue] + Array(text.text.utf8)
        try endBlock()
    }

    private mutating func out(_ bytes: [UInt8]) throws {
        byteCount += bytes.count
        try put(bytes)
    }

    mutating func add(_ row: StoredRow) throws {
        if body.isEmpty { body.append(ExportForm.Kind.rows.rawValue) }
        sums[row.key.table, default: TableSum()].add(row)
        rowCount += 1
        body.append(network: row.key.bucket.index)
        body.append(row.key.table.rawValue)
        for word in [row.key.ownerHigh, row.key.ownerLow, row.key.item] { body.append(network: word) }
        body.append(network: UInt64(bitPattern: row.wakeAt))
        body.append(network: UInt32(row.value.count))
        body.append(contentsOf: row.value)
        if body.count >= ExportForm.blockByteCount { try endBlock() }
    }

    private mutating func endBlock() throws {
        guard !body.isEmpty else { return }
        var head: [UInt8] = []
        head.append(network: UInt32(body.count))
        head.append(network: ExportForm.checksum(number, body))
        try out(head)
        try out(body)
        number += 1
        body.removeAll(keepingCapacity: true)
    }

    mutating func end() throws {
        try endBlock()
        body = [ExportForm.Kind.end.rawValue]
        for table in StoreKey.Table.allCases {
            guard let sum = sums[table] else { continue }
            body.append(table.rawValue)
            for word in [UInt64(sum.rowCount), UInt64(sum.byteCount), sum.words.high, sum.words.low] {
                body.append(network: word)
            }
        }
        try endBlock()
    }
}

/// A reader of an export, one block at a time; every failure names a byte offset.
struct ExportReader {
    private let name: String
    private let take: (Int) throws -> [UInt8]
    private var offset = 0
    private var number: UInt64 = 0
    private(set) var header = ExportHeader(storeFormat: 0, release: "", madeAt: 0, source: "")
    private var sums: [StoreKey.Table: TableSum] = [:]

    /// Reads the header of an export.
    ///
    /// - Parameters:
    ///   - name: the operator's name for the file.
    ///   - take: returns up to a number of bytes, fewer at the end.
    /// - Throws: `CopyFailure` for a file that is not an export or needs another release, and the errors of `take`.
    init(_ name: String, take: @escaping (Int) throws -> [UInt8]) throws {
        (self.name, self.take) = (name, take)
        let line = try take(ExportForm.firstLine.utf8.count)
        guard line.starts(with: ExportForm.firstWords.utf8) else {
            throw CopyFailure("\(name) is no export of Longwire: it does not begin with \"\(ExportForm.firstWords)\"")
        }
        guard line.elementsEqual(ExportForm.firstLine.utf8) else {
            throw CopyFailure(
                "\(name) is an export of another form (\"\(String(decoding: line.dropLast(), as: UTF8.self))\"), and this release "
                    + "reads \"\(ExportForm.firstLine.dropLast())\": import it with the release that made it")
        }
        offset = line.count
        let (kind, body) = try block()
        guard kind == .header, let header = Self.header(body) else { throw damaged("the first block is no header") }
        guard header.storeFormat <= EmbeddedStore.format else {
            throw CopyFailure(
                "\(name) was made by release \(header.release), whose rows have format \(header.storeFormat); this release reads "
                    + "up to \(EmbeddedStore.format): import it with that release or a later one")
        }
        self.header = header
    }

    private func damaged(_ what: String, at place: Int? = nil) -> CopyFailure {
        CopyFailure(
            "\(name) is damaged at byte \(place ?? offset): \(what). Get the file again from where it was made, and compare "
                + "their SHA-256 sums; the partly written store is not usable")
    }

    private mutating func bytes(_ count: Int, of what: String) throws -> [UInt8] {
        let bytes = try take(count)
        guard bytes.count == count else {
            throw damaged(
                "it ends in the middle of \(what), \(count - bytes.count) bytes early", at: offset + bytes.count)
        }
        offset += count
        return bytes
    }

    private mutating func block() throws -> (ExportForm.Kind, ArraySlice<UInt8>) {
        let start = offset
        let head = try take(ExportForm.blockHeadByteCount)
        guard !head.isEmpty else {
            throw damaged("it ends without its last block: it was cut off, or its export did not end")
        }
        guard head.count == ExportForm.blockHeadByteCount else {
            throw damaged("it ends in the middle of a block's head", at: offset + head.count)
        }
        offset += head.count
        var words = NetworkBytes(head[...])
        guard let count = words.next(UInt32.self), let checksum = words.next(UInt32.self),
            1...ExportForm.blockByteLimit ~= Int(count)
        else { throw damaged("a block's length is invalid", at: start) }
        let body = try bytes(Int(count), of: "a block")
        guard checksum == ExportForm.checksum(number, body) else {
            throw damaged("the block of \(count) bytes that begins there does not have its checksum", at: start)
        }
        number += 1
        guard let kind = ExportForm.Kind(rawValue: body[0]) else {
            throw CopyFailure(
                "\(name) has a block of a kind that this release does not know, at byte \(start): import it with the release "
                    + "that made it")
        }
        return (kind, body.dropFirst())
    }

    /// Returns the rows of the next block, or `nil` after the last, once all sums are verified.
    mutating func nextRows() throws -> [CopiedRow]? {
        let start = offset
        let (kind, body) = try block()
        switch kind {
        case .header: throw damaged("it has a second header", at: start)
        case .rows:
            guard let rows = try rows(body, at: start) else { throw damaged("a row does not fit its block", at: start) }
            return rows
        case .end:
            guard let told = Self.sums(body), told == sums else {
                throw damaged("the rows before it are not those of its sums", at: start)
            }
            guard try take(1).isEmpty else { throw damaged("bytes follow its last block") }
            return nil
        }
    }

    private mutating func rows(_ body: ArraySlice<UInt8>, at start: Int) throws -> [CopiedRow]? {
        var rows: [CopiedRow] = []
        var words = NetworkBytes(body)
        while !words.isAtEnd {
            guard let bucket = words.next(UInt16.self), bucket < Bucket.count, let number = words.next(UInt8.self),
                let high = words.next(UInt64.self), let low = words.next(UInt64.self),
                let item = words.next(UInt64.self), let wakeAt = words.next(UInt64.self),
                let count = words.next(UInt32.self), count <= StoreBounds.valueByteCount,
                let value = words.bytes(Int(count))
            else { return nil }
            guard let table = StoreKey.Table(rawValue: number) else {
                throw CopyFailure(
                    "\(name) has rows of a table \(number) that this release does not know, at byte \(start): import it with the "
                        + "release that made it")
            }
            let key = StoreKey(Bucket(bucket), table, ownerHigh: high, ownerLow: low, item: item)
            let row = CopiedRow(key: key, wakeAt: Int64(bitPattern: wakeAt), value: Array(value))
            row.value.withUnsafeBytes {
                sums[table, default: TableSum()].add(StoredRow(key: key, wakeAt: row.wakeAt, value: $0))
            }
            rows.append(row)
        }
        return rows
    }

    private static func sums(_ body: ArraySlice<UInt8>) -> [StoreKey.Table: TableSum]? {
        var sums: [StoreKey.Table: TableSum] = [:]
        var words = NetworkBytes(body)
        while !words.isAtEnd {
            guard let table = words.next(UInt8.self).flatMap({ StoreKey.Table(rawValue: $0) }),
                let rows = words.next(UInt64.self), let bytes = words.next(UInt64.self),
                let high = words.next(UInt64.self), let low = words.next(UInt64.self), sums[table] == nil
            else { return nil }
            sums[table] = TableSum(rowCount: Int(clamping: rows), byteCount: Int(clamping: bytes), (high, low))
        }
        return sums
    }

    private static func header(_ body: ArraySlice<UInt8>) -> ExportHeader? {
        guard let object = ExportForm.object(Array(body)), let format = object["storeFormat"] as? Int,
            let release = object["release"] as? String, let madeAt = object["madeAt"] as? Int,
            let source = object["source"] as? String
        else { return nil }
        return ExportHeader(storeFormat: format, release: release, madeAt: Int64(madeAt), source: source)
    }
}

extension ExportForm {
    /// Returns a block's checksum, which includes its number, so that missing or reordered blocks are detected.
    static func checksum(_ number: UInt64, _ body: [UInt8]) -> UInt32 {
        let seed = withUnsafeBytes(of: number.bigEndian) { Checksum.crc32c($0) }
        return body.withUnsafeBytes { Checksum.crc32c($0, seed: seed) }
    }
}

private struct NetworkBytes {
    private var rest: ArraySlice<UInt8>
    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }
    var isAtEnd: Bool { rest.isEmpty }

    mutating func next<Number: FixedWidthInteger>(_: Number.Type) -> Number? {
        guard let bytes = bytes(MemoryLayout<Number>.size) else { return nil }
        return bytes.reduce(0) { $0 << 8 | Number($1) }
    }

    mutating func bytes(_ count: Int) -> ArraySlice<UInt8>? {
        guard rest.count >= count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}

extension [UInt8] {
    fileprivate mutating func append(network number: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) }
    }
}
