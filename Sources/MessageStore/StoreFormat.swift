internal import Delivery
internal import Platform
internal import Wire

/// The version of a store's folder: what its file `format` says, and how an older folder is brought up to date.
struct StoreFormat {
    /// The version of what this code writes.
    static let current = 9
    private static let prefix = "longwire store "

    private let folder: String
    let found: Int

    /// Reads the version; a new folder gets the current one.
    ///
    /// - Throws: `.unknownFormat`, `.missingFormat`, `.newerFormat`, or what reading the file met.
    init(of folder: String) throws(StoreError) {
        self.folder = folder
        let path = folder + "/format"
        do throws(SystemError) {
            let bytes: [UInt8]
            do throws(SystemError) {
                bytes = try FileSystem.read(path)
            } catch {
                // Only a file that is certainly not there may be written: any other failure hides a version. It is the first
                // file of a new folder, so beside a database or a journal it was lost.
                guard error.isNotFound else { throw error }
                guard !FileSystem.exists(folder + "/rows"), !FileSystem.exists(folder + "/journal") else {
                    throw SystemError(operation: "missing", subject: path, code: 0)
                }
                try Self.write(to: folder)
                found = Self.current
                return
            }
            let text = String(decoding: bytes, as: UTF8.self)
            let line = text.prefix { $0 != "\n" }
            guard line.hasPrefix(Self.prefix), let found = Int(line.dropFirst(Self.prefix.count)) else {
                throw SystemError(operation: "format", subject: path, code: 0)
            }
            self.found = found
        } catch {
            switch error.operation {
            case "format": throw .unknownFormat(file: path)
            case "missing": throw .missingFormat(file: path)
            default: throw StoreError(error)
            }
        }
        guard found <= Self.current else {
            throw .newerFormat(folder: folder, found: found, supported: Self.current)
        }
    }

    private static func write(to folder: String) throws(SystemError) {
        try FileSystem.replace(folder + "/format", with: Array("\(prefix)\(current)\n".utf8))
    }

    /// Brings an older folder up to date, before anything is written that the older version does not know.
    ///
    /// A crash at any point leaves a folder that the older version, or this one, opens with every row.
    func raise(_ database: RowDatabase) throws(StoreError) {
        guard found < Self.current else { return }
        if found < 5 { try copyStartRows(database) }
        do throws(SystemError) { try Self.write(to: folder) } catch { throw StoreError(error) }
    }

    /// Up to format 4 the rows that a start reads whole stood among all the others; there they are left as they are, since
    /// nobody looks for them in that place any more.
    private func copyStartRows(_ database: RowDatabase) throws(StoreError) {
        // A start that was cut off here may have copied rows that the older version deleted afterwards.
        try database.emptyStart()
        let path = folder + "/spill/start.sst"
        let keyBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.rowKeyByteCount, alignment: 8)
        defer { keyBytes.deallocate() }
        guard let keyStart = keyBytes.baseAddress, try !database.isEmpty(database.rows) else { return }
        // In the order of their keys. What format 4 had in `rows` does not change when a table moves later.
        let tables: [StoreKey.Table] = [.counters, .meta, .broadcast]
        var writer = try SortedFileWriter(database, path: path)
        for bucket in 0..<UInt16(Bucket.count) {
            for table in tables {
                try database.visit(table, of: bucket, in: database.rows) { key, stored throws(StoreError) in
                    KeyCoding.write(key, to: keyStart)
                    try writer.put(UnsafeRawBufferPointer(keyBytes), stored)
                    return true
                }
            }
        }
        guard writer.entryCount > 0 else { return }
        try writer.finish()
        try database.ingest([path], into: database.start)
    }
}
