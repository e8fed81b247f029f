// A wrapper of RocksDB. The spiller's thread is the only writer, apart from the start. Reader threads read.
//
// Rows are ingested as sorted files and bypass the memtable. Ingested rows are durable, so there is no write-ahead log to sync.
// The column families are `rows`, `alarms`, `start` (tables that a start reads completely, kept apart from messages), and one for
// each live `Period` of request or trace rows.

internal import CRocksDB
internal import Delivery
internal import Platform
internal import Synchronization
internal import Wire

/// A column family; readers may hold a reference while it is dropped.
final class ColumnFamily: @unchecked Sendable {
    // Sound because RocksDB's handles may be used from any thread, and the handle is destroyed with the last reference.
    let name: String
    let handle: OpaquePointer
    init(name: String, handle: OpaquePointer) { (self.name, self.handle) = (name, handle) }
    deinit { rocksdb_column_family_handle_destroy(handle) }
}

struct EphemeralFamily: Sendable {
    var period: Period
    var family: ColumnFamily
}

final class RowDatabase: @unchecked Sendable {
    // Sound because RocksDB is safe to use from several threads, `ephemeral` is behind a lock, and `close()` is called
    // once no thread uses the object any more.

    let path: String
    /// The number of bytes of a torn record that the opening removed from the manifest.
    let cutByteCount: Int
    private let database: OpaquePointer
    private let settings: DatabaseSettings
    private var rowsFamily: ColumnFamily?
    private var alarmsFamily: ColumnFamily?
    private var startFamily: ColumnFamily?
    private let ephemeral: Lock<[EphemeralFamily]>
    private let lastPeriod = Atomic<Int64>(0)
    private var isOpen = true
    private let reads = Atomic<Int>(0)

    var readCount: Int { reads.load(ordering: .relaxed) }

    var rows: ColumnFamily { rowsFamily.unsafelyUnwrapped }
    var alarms: ColumnFamily { alarmsFamily.unsafelyUnwrapped }
    var start: ColumnFamily { startFamily.unsafelyUnwrapped }
    /// Returns the column family of a table that is not ephemeral.
    func family(of table: StoreKey.Table) -> ColumnFamily { table.isReadAtStart ? start : rows }
    /// The families of all periods, oldest first.
    var ephemeralFamilies: [EphemeralFamily] { ephemeral.withLock { $0 } }
    /// Returns the families that may have rows of an ephemeral table, oldest first.
    func families(of table: StoreKey.Table) -> [EphemeralFamily] {
        let kind = Period.Kind(of: table)
        return ephemeral.withLock { $0.filter { $0.period.kind == kind } }
    }
    /// Returns the current period of a kind; `nil` before the first one.
    func newestPeriod(_ kind: Period.Kind) -> EphemeralFamily? {
        ephemeral.withLock { $0.last { $0.period.kind == kind } }
    }

    /// Opens the database.
    ///
    /// - Parameters:
    ///   - path: The database's folder.
    ///   - cacheByteCount: The size of the block cache.
    ///   - openFileLimit: The maximum number of open files.
    ///   - isReadOnly: Whether nothing in the folder may change. The database must then exist.
    /// - Throws: RocksDB's error.
    init(
        path: String, cacheByteCount: Int, openFileLimit: Int = Limits.openFileCount, isReadOnly: Bool = false
    ) throws(StoreError) {
        self.path = path
        settings = DatabaseSettings(cacheByteCount: cacheByteCount, openFileLimit: openFileLimit)
        var names = Set(["default", "rows", "alarms", "start"])
        try planned("rocksdb open", "open", path)
        let hasTables = isReadOnly || FileSystem.exists(path + "/CURRENT")
        cutByteCount = hasTables && !isReadOnly ? try ManifestTail.cut(path) : 0
        if hasTables {
            var count = 0
            var error: UnsafeMutablePointer<CChar>?
            let list = rocksdb_list_column_families(settings.options, path, &count, &error)
            if let error {
                // RocksDB returns an empty list even on failure.
                if let list { rocksdb_list_column_families_destroy(list, 0) }
                throw StoreError(opening: path, message: take(error))
            }
            for index in 0..<count { if let name = list?[index] { names.insert(String(cString: name)) } }
            rocksdb_list_column_families_destroy(list, count)
        }
        let ordered = names.sorted()
        var handles = [OpaquePointer?](repeating: nil, count: ordered.count)
        var error: UnsafeMutablePointer<CChar>?
        let copies = ordered.map { strdupe($0) }
        defer { for copy in copies { copy.deallocate() } }
        let pointers = copies.map { UnsafePointer<CChar>?($0) }
        let settings = settings
        let familyOptions: [OpaquePointer?] = ordered.map { name in
            Period(name: name) == nil ? settings.options : settings.ephemeralOptions
        }
        let opened =
            isReadOnly
            ? rocksdb_open_for_read_only_column_families(
                settings.options, path, CInt(ordered.count), pointers, familyOptions, &handles, 0, &error)
            : rocksdb_open_column_families(
                settings.options, path, CInt(ordered.count), pointers, familyOptions, &handles, &error)
        if let error { throw StoreError(opening: path, message: take(error)) }
        guard let opened else { throw StoreError(opening: path, message: "no reason given") }
        database = opened
        var periods: [Period] = []
        var families: [String: ColumnFamily] = [:]
        for (name, handle) in zip(ordered, handles) {
            guard let handle else { continue }
            let family = ColumnFamily(name: name, handle: handle)
            switch name {
            case "rows": rowsFamily = family
            case "alarms": alarmsFamily = family
            case "start": startFamily = family
            default:
                if let period = Period(name: name) {
                    periods.append(period)
                    families[name] = family
                }
            }
        }
        let all = periods.sorted { $0.number < $1.number }.compactMap { period in
            families[period.name].map { EphemeralFamily(period: period, family: $0) }
        }
        ephemeral = Lock(all)
        lastPeriod.store(max(0, all.map(\.period.number).max() ?? 0), ordering: .relaxed)
    }

    /// Closes the database; handles are destroyed first, because Debian's build asserts that none is left.
    func close() {
        guard isOpen else { return }
        isOpen = false
        rowsFamily = nil
        alarmsFamily = nil
        startFamily = nil
        ephemeral.withLock { $0.removeAll() }
        rocksdb_close(database)
    }

    deinit { precondition(!isOpen, "RowDatabase dropped without close()") }

    // MARK: Reading

    /// Passes the stored bytes of a key to `body`; `nil` if the key does not exist.
    func get<Result>(
        _ key: UnsafeRawBufferPointer, in family: ColumnFamily, _ body: (UnsafeRawBufferPointer) -> Result
    ) throws(StoreError) -> Result? {
        reads.add(1, ordering: .relaxed)
        let slice = try call("rocksdb get", "read", path) { error in
            rocksdb_get_pinned_cf(
                database, settings.readOptions, family.handle, characters(key), key.count, &error)
        }
        guard let slice else { return nil }
        defer { rocksdb_pinnableslice_destroy(slice) }
        var count = 0
        let bytes = rocksdb_pinnableslice_value(slice, &count)
        return body(UnsafeRawBufferPointer(start: bytes, count: count))
    }

    /// Visits entries from `start` on, until `body` returns false or the prefix ends.
    ///
    /// - Parameters:
    ///   - start: The first key.
    ///   - prefixCount: The number of leading bytes of `start` that all visited keys share.
    ///   - family: The column family.
    ///   - body: Called with key and value, which are valid during the call.
    /// - Throws: `.database` when a block cannot be read.
    func scan(
        from start: UnsafeRawBufferPointer, prefixCount: Int, in family: ColumnFamily,
        _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Bool
    ) throws(StoreError) {
        let iterator = try DatabaseIterator(self, family, prefix: start.prefix(prefixCount))
        try iterator.seek(start)
        while let (key, value) = iterator.current {
            guard body(key, value) else { return }
            try iterator.advance()
        }
    }

    /// Visits a table's rows in one bucket until `body` returns false; the stored bytes are valid during the call.
    func visit(
        _ table: StoreKey.Table, of bucket: UInt16, in family: ColumnFamily,
        _ body: (StoreKey, UnsafeRawBufferPointer) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let prefix = [UInt8(bucket >> 8), UInt8(bucket & 0xFF), table.rawValue]
        let iterator = try DatabaseIterator(self, family, prefix: prefix)
        try iterator.seekToFirst()
        while let (bytes, stored) = iterator.current {
            guard let key = KeyCoding.readKey(bytes), key.bucket.index == bucket, key.table == table,
                stored.count >= KeyCoding.rowPrefixByteCount, try body(key, stored)
            else { return }
            try iterator.advance()
        }
    }

    /// Visits all entries of a bucket, even those that are not valid rows.
    func visitAll(
        of bucket: UInt16, in family: ColumnFamily, _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Void
    ) throws(StoreError) {
        let iterator = try DatabaseIterator(self, family, prefix: [UInt8(bucket >> 8), UInt8(bucket & 0xFF)])
        try iterator.seekToFirst()
        while let (bytes, stored) = iterator.current {
            body(bytes, stored)
            try iterator.advance()
        }
    }

    fileprivate func makeIterator(_ family: ColumnFamily, _ options: OpaquePointer) -> OpaquePointer? {
        reads.add(1, ordering: .relaxed)
        return rocksdb_create_iterator_cf(database, options, family.handle)
    }

    var cachedByteCount: Int { settings.cachedByteCount }

    func emptyCache() { settings.emptyCache() }

    func isEmpty(_ family: ColumnFamily) throws(StoreError) -> Bool {
        let iterator = try DatabaseIterator(self, family, prefix: EmptyCollection())
        try iterator.seekToFirst()
        return iterator.current == nil
    }

    func fileByteCount(_ family: ColumnFamily) -> Int {
        var value: UInt64 = 0
        guard
            rocksdb_property_int_cf(database, family.handle, "rocksdb.total-sst-files-size", &value) == 0
        else { return 0 }
        return Int(clamping: value)
    }

    // MARK: Writing

    /// Ingests sorted, synced files; the files are moved.
    func ingest(_ files: [String], into family: ColumnFamily) throws(StoreError) {
        let copies = files.map { strdupe($0) }
        defer { for copy in copies { copy.deallocate() } }
        let pointers = copies.map { UnsafePointer<CChar>?($0) }
        try call("rocksdb ingest", "ingest", path) { error in
            rocksdb_ingest_external_file_cf(
                database, family.handle, pointers, pointers.count, settings.ingestOptions, &error)
        }
    }

    fileprivate func makeWriter() -> OpaquePointer? {
        rocksdb_sstfilewriter_create(settings.environmentOptions, settings.options)
    }

    /// Begins the next period of a kind; only the writing thread may call this.
    func beginPeriod(_ kind: Period.Kind, at time: Int64) throws(StoreError) -> EphemeralFamily {
        // The number is not reused after a failure: a half-made family may exist under its name.
        let number = lastPeriod.add(1, ordering: .relaxed).newValue
        let period = Period(kind, number: number, begin: time)
        let new = EphemeralFamily(period: period, family: try makeFamily(period.name, settings.ephemeralOptions))
        ephemeral.withLock { $0.append(new) }
        return new
    }

    /// Drops a period with all rows; concurrent readers finish normally.
    func dropEphemeral(_ period: Period) throws(StoreError) {
        let found: ColumnFamily? = ephemeral.withLock { families in
            guard let index = families.firstIndex(where: { $0.period == period }) else { return nil }
            return families.remove(at: index).family
        }
        if let found { try drop(found) }
    }

    private func makeFamily(_ name: String, _ options: OpaquePointer) throws(StoreError) -> ColumnFamily {
        let handle = try call("rocksdb create family", "create a column family", path) { error in
            rocksdb_create_column_family(database, options, name, &error)
        }
        guard let handle else { throw StoreError(operation: "create a column family", message: "no reason given") }
        return ColumnFamily(name: name, handle: handle)
    }

    private func drop(_ family: ColumnFamily) throws(StoreError) {
        try call("rocksdb drop family", "drop a column family", path) { error in
            rocksdb_drop_column_family(database, family.handle, &error)
        }
    }

    /// Deletes keys without a write-ahead log; a crash may undo the deletions.
    func deleteLoosely(_ keys: [[UInt8]], in family: ColumnFamily) throws(StoreError) {
        let options: OpaquePointer = rocksdb_writeoptions_create()
        defer { rocksdb_writeoptions_destroy(options) }
        rocksdb_writeoptions_disable_WAL(options, 1)
        for key in keys {
            try call("rocksdb delete", "delete", path) { error in
                key.withUnsafeBytes {
                    rocksdb_delete_cf(database, options, family.handle, characters($0), $0.count, &error)
                }
            }
        }
    }

    /// Makes a checkpoint: a folder with hard links to the current files, and a manifest.
    ///
    /// - Parameter folder: A folder on the same file system. It must not exist; its parent must exist.
    /// - Throws: RocksDB's error.
    func makeCheckpoint(_ folder: String) throws(StoreError) {
        let checkpoint = try call("rocksdb checkpoint", "make a checkpoint", path) { error in
            rocksdb_checkpoint_object_create(database, &error)
        }
        guard let checkpoint else { throw StoreError(operation: "make a checkpoint", message: "no reason given") }
        defer { rocksdb_checkpoint_object_destroy(checkpoint) }
        // A log size of 0 flushes the memtable first, because no write-ahead log covers it.
        try call("rocksdb checkpoint files", "make a checkpoint", path) { error in
            rocksdb_checkpoint_create(checkpoint, folder, 0, &error)
        }
    }

    /// Enables RocksDB's background compaction, which is off until then.
    ///
    /// A process that was killed under load leaves pending compactions. They would take half of the machine right after the next
    /// start.
    func startCompacting() throws(StoreError) {
        settings.allowCompaction()
        for family in [rows, alarms, start] + ephemeralFamilies.map(\.family) {
            let (name, value) = (strdupe("disable_auto_compactions"), strdupe("false"))
            defer {
                name.deallocate()
                value.deallocate()
            }
            let (names, values) = ([UnsafePointer<CChar>?(name)], [UnsafePointer<CChar>?(value)])
            try call("rocksdb set options", "set options", path) { error in
                rocksdb_set_options_cf(database, family.handle, 1, names, values, &error)
            }
        }
    }

    /// Marks a family's files for background compaction; RocksDB's deletion collector marks only files that RocksDB writes
    /// itself, not ingested ones.
    func suggestCompaction(_ family: ColumnFamily) throws(StoreError) {
        let low = [CChar](repeating: 0, count: 1)
        let high = [CChar](repeating: -1, count: 40)
        try call("rocksdb compact", "compact", path) { error in
            rocksdb_suggest_compact_range_cf(
                database, family.handle, low, low.count, high, high.count, &error)
        }
    }

    func compact(_ family: ColumnFamily) {
        rocksdb_compact_range_cf(database, family.handle, nil, 0, nil, 0)
    }
}

/// A cursor over a snapshot of the entries with a common key prefix.
///
/// The bounds are passed to RocksDB. Without them RocksDB would step over all deleted entries behind the prefix, possibly very
/// many until compaction.
struct DatabaseIterator: ~Copyable {
    private let raw: OpaquePointer
    private let options: OpaquePointer
    /// The prefix and its successor; RocksDB reads them while the iterator exists.
    private let bounds: UnsafeMutablePointer<CChar>
    private let path: String

    init(_ database: RowDatabase, _ family: ColumnFamily, prefix: some Collection<UInt8>) throws(StoreError) {
        try planned("rocksdb iterator", "read", database.path)
        let options: OpaquePointer = rocksdb_readoptions_create()
        // Prefix filters can skip files only for seeks within one bucket, table and owner.
        if prefix.count == KeyCoding.partitionByteCount {
            rocksdb_readoptions_set_prefix_same_as_start(options, 1)
        } else {
            rocksdb_readoptions_set_total_order_seek(options, 1)
        }
        let bounds = UnsafeMutablePointer<CChar>.allocate(capacity: max(1, prefix.count * 2))
        if !prefix.isEmpty {
            let end = bounds + prefix.count
            for (index, byte) in prefix.enumerated() {
                bounds[index] = CChar(bitPattern: byte)
                end[index] = CChar(bitPattern: byte)
            }
            rocksdb_readoptions_set_iterate_lower_bound(options, bounds, prefix.count)
            // The upper bound is the first key behind the prefix. A prefix of 0xFF bytes has no upper bound.
            var count = prefix.count
            while count > 0, end[count - 1] == -1 { count -= 1 }
            if count > 0 {
                end[count - 1] &+= 1
                rocksdb_readoptions_set_iterate_upper_bound(options, end, count)
            }
        }
        guard let made = database.makeIterator(family, options) else {
            rocksdb_readoptions_destroy(options)
            bounds.deallocate()
            throw StoreError(operation: "read", message: "no iterator")
        }
        (raw, path) = (made, database.path)
        (self.options, self.bounds) = (options, bounds)
    }

    deinit {
        rocksdb_iter_destroy(raw)
        rocksdb_readoptions_destroy(options)
        bounds.deallocate()
    }

    func seek(_ key: UnsafeRawBufferPointer) throws(StoreError) {
        rocksdb_iter_seek(raw, characters(key), key.count)
        try check()
    }

    func seekToFirst() throws(StoreError) {
        rocksdb_iter_seek_to_first(raw)
        try check()
    }

    func advance() throws(StoreError) {
        rocksdb_iter_next(raw)
        try check()
    }

    /// The key and value under the cursor, valid until it moves; `nil` past the end.
    var current: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer)? {
        guard rocksdb_iter_valid(raw) != 0 else { return nil }
        var (keyCount, valueCount) = (0, 0)
        let key = rocksdb_iter_key(raw, &keyCount)
        let value = rocksdb_iter_value(raw, &valueCount)
        return (
            UnsafeRawBufferPointer(start: key, count: keyCount),
            UnsafeRawBufferPointer(start: value, count: valueCount)
        )
    }

    private func check() throws(StoreError) {
        try call("rocksdb step", "read", path) { error in
            if rocksdb_iter_valid(raw) == 0 { rocksdb_iter_get_error(raw, &error) }
        }
    }
}

/// Writes one sorted file for ingestion; keys must be strictly ascending.
struct SortedFileWriter: ~Copyable {
    let path: String
    private let raw: OpaquePointer
    private(set) var entryCount = 0

    init(_ database: RowDatabase, path: String) throws(StoreError) {
        try planned("rocksdb open file", "write", path)
        guard let raw = database.makeWriter() else { throw StoreError(operation: "write", message: "no writer") }
        var error: UnsafeMutablePointer<CChar>?
        rocksdb_sstfilewriter_open(raw, path, &error)
        if let error {
            rocksdb_sstfilewriter_destroy(raw)
            throw StoreError(operation: "write", message: take(error))
        }
        self.raw = raw
        self.path = path
    }

    deinit { rocksdb_sstfilewriter_destroy(raw) }

    mutating func put(_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(StoreError) {
        try call("rocksdb write file", "write", path) { error in
            rocksdb_sstfilewriter_put(raw, characters(key), key.count, characters(value), value.count, &error)
        }
        entryCount += 1
    }

    mutating func delete(_ key: UnsafeRawBufferPointer) throws(StoreError) {
        try call("rocksdb write file", "write", path) { error in
            rocksdb_sstfilewriter_delete(raw, characters(key), key.count, &error)
        }
        entryCount += 1
    }

    func finish() throws(StoreError) {
        try call("rocksdb finish file", "write", path) { error in rocksdb_sstfilewriter_finish(raw, &error) }
    }
}

/// Calls RocksDB; throws RocksDB's error or a fault that a test injected.
@inline(__always)
private func call<Result>(
    _ name: StaticString, _ operation: String, _ path: String, _ body: (inout UnsafeMutablePointer<CChar>?) -> Result
) throws(StoreError) -> Result {
    try planned(name, operation, path)
    var error: UnsafeMutablePointer<CChar>?
    let result = body(&error)
    if let error { throw StoreError(operation: operation, message: take(error)) }
    return result
}

private func characters(_ bytes: UnsafeRawBufferPointer) -> UnsafePointer<CChar>? {
    bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
}

/// Throws if a test injected a fault (`FaultPlan`); compiled out of release builds.
@inline(__always)
private func planned(_ call: StaticString, _ operation: String, _ path: String) throws(StoreError) {
    #if DEBUG
    guard case .error(let code)? = FaultPlan.fault(of: call, on: path) else { return }
    let reason = SystemError(operation: "planned", subject: path, code: code)
    throw StoreError(operation: operation, message: "IO error: \(reason)")
    #endif
}

private func take(_ message: UnsafeMutablePointer<CChar>) -> String {
    defer { rocksdb_free(message) }
    return String(cString: message)
}

private func strdupe(_ text: String) -> UnsafeMutablePointer<CChar> {
    let bytes = text.utf8CString
    let copy = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count)
    _ = UnsafeMutableBufferPointer(start: copy, count: bytes.count).initialize(from: bytes)
    return copy
}
