// RocksDB, wrapped. Only the spiller's thread writes (and the start, before there are threads); readers read.
//
// Rows come in as sorted files, never through a memtable, so there is no write-ahead log to sync: what an ingestion
// has taken in is on disk. Column families: `rows`, `alarms`, `start` (the tables that a start reads whole, which it would
// otherwise have to look for among all messages), and one for each `Period` whose request or trace rows are still kept.

internal import CRocksDB
internal import Delivery
internal import Platform
internal import Synchronization
internal import Wire

/// A column family; readers may hold one while it is dropped.
final class ColumnFamily: @unchecked Sendable {
    // Sound because RocksDB's handles may be used from any thread, and this one is destroyed with its last reference.
    let name: String
    let handle: OpaquePointer
    init(name: String, handle: OpaquePointer) { (self.name, self.handle) = (name, handle) }
    deinit { rocksdb_column_family_handle_destroy(handle) }
}

/// A family of request and trace rows.
struct EphemeralFamily: Sendable {
    var period: Period
    var family: ColumnFamily
}

/// The ordered store on disk.
final class RowDatabase: @unchecked Sendable {
    // Sound because RocksDB is safe to use from several threads, `ephemeral` is behind a lock, and `close()` is called
    // once no thread uses the object any more.

    let path: String
    /// Bytes of a torn record that the opening cut off the list of tables.
    let cutByteCount: Int
    private let database: OpaquePointer
    private let settings: DatabaseSettings
    private var rowsFamily: ColumnFamily?
    private var alarmsFamily: ColumnFamily?
    private var startFamily: ColumnFamily?
    private let ephemeral: Lock<[EphemeralFamily]>
    /// The highest number that a period has had.
    private let lastPeriod = Atomic<Int64>(0)
    private var isOpen = true
    /// Looks into the database so far.
    private let reads = Atomic<Int>(0)

    var readCount: Int { reads.load(ordering: .relaxed) }

    var rows: ColumnFamily { rowsFamily.unsafelyUnwrapped }
    var alarms: ColumnFamily { alarmsFamily.unsafelyUnwrapped }
    var start: ColumnFamily { startFamily.unsafelyUnwrapped }
    /// Where the rows of a table lie that is not ephemeral.
    func family(of table: StoreKey.Table) -> ColumnFamily { table.isReadAtStart ? start : rows }
    /// Oldest first.
    var ephemeralFamilies: [EphemeralFamily] { ephemeral.withLock { $0 } }
    /// Those in which rows of the table may lie, oldest first.
    func families(of table: StoreKey.Table) -> [EphemeralFamily] {
        let kind = Period.Kind(of: table)
        return ephemeral.withLock { $0.filter { $0.period.kind == kind } }
    }
    /// The period that takes rows of the kind; `nil` before the first.
    func newestPeriod(_ kind: Period.Kind) -> EphemeralFamily? {
        ephemeral.withLock { $0.last { $0.period.kind == kind } }
    }

    /// - Parameters:
    ///   - path: the database's folder.
    ///   - cacheByteCount: memory for blocks.
    ///   - openFileLimit: files that are kept open.
    ///   - isReadOnly: nothing in the folder changes; then the database must be there.
    /// - Throws: what RocksDB said.
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
                // Even a failure gives a list, an empty one.
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

    /// Closes the database; handles go first, since Debian's build asserts that none is left.
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

    /// Looks a key up and lends its stored bytes; `nil` when it is not there.
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

    /// Visits the entries from `start` on that share its first bytes, until `body` returns false or there is none.
    ///
    /// - Parameters:
    ///   - start: where to begin.
    ///   - prefixCount: how many of its bytes all of them begin with.
    ///   - family: where to look.
    ///   - body: gets key and value, valid during the call.
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

    /// Visits the rows of a table in one bucket, as long as `body` says so; it gets key and stored bytes, valid in the call.
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

    /// Visits everything that a family has under the first two bytes of a bucket, whatever it is.
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

    /// Bytes of blocks, indexes and filters in memory.
    var cachedByteCount: Int { settings.cachedByteCount }

    /// Frees the cache, as far as no open table needs it.
    func emptyCache() { settings.emptyCache() }

    /// Whether a family has no entry at all.
    func isEmpty(_ family: ColumnFamily) throws(StoreError) -> Bool {
        let iterator = try DatabaseIterator(self, family, prefix: EmptyCollection())
        try iterator.seekToFirst()
        return iterator.current == nil
    }

    /// Bytes of a family's files.
    func fileByteCount(_ family: ColumnFamily) -> Int {
        var value: UInt64 = 0
        guard
            rocksdb_property_int_cf(database, family.handle, "rocksdb.total-sst-files-size", &value) == 0
        else { return 0 }
        return Int(clamping: value)
    }

    // MARK: Writing

    /// Takes in sorted, synced files; they are moved.
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

    /// Begins the next period of a kind; only the thread that writes calls it.
    func beginPeriod(_ kind: Period.Kind, at time: Int64) throws(StoreError) -> EphemeralFamily {
        // Counted on after a failure, too: half made, its name may be taken.
        let number = lastPeriod.add(1, ordering: .relaxed).newValue
        let period = Period(kind, number: number, begin: time)
        let new = EphemeralFamily(period: period, family: try makeFamily(period.name, settings.ephemeralOptions))
        ephemeral.withLock { $0.append(new) }
        return new
    }

    /// Drops a period with all its rows; a reader at work in it finishes unharmed.
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

    /// Removes keys whose loss in a crash does no harm.
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

    /// Makes a folder that has the database as it is now: links to its files, and a list of them.
    ///
    /// - Parameter folder: on the same file system; it must not be there, and the one above it must.
    /// - Throws: what RocksDB said.
    func makeCheckpoint(_ folder: String) throws(StoreError) {
        let checkpoint = try call("rocksdb checkpoint", "make a checkpoint", path) { error in
            rocksdb_checkpoint_object_create(database, &error)
        }
        guard let checkpoint else { throw StoreError(operation: "make a checkpoint", message: "no reason given") }
        defer { rocksdb_checkpoint_object_destroy(checkpoint) }
        // What is in memory goes to a file first, since it has no log of RocksDB's.
        try call("rocksdb checkpoint files", "make a checkpoint", path) { error in
            rocksdb_checkpoint_create(checkpoint, folder, 0, &error)
        }
    }

    /// Lets RocksDB merge files in its own threads and time; until then it leaves them all as they are.
    ///
    /// A process that was killed under load leaves merging to be done, which would take half of the machine from the start
    /// of the next one.
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

    /// Marks the files of a family for compaction, in RocksDB's own threads and time.
    ///
    /// The collector of deletions marks only files that RocksDB writes itself, not ingested ones.
    func suggestCompaction(_ family: ColumnFamily) throws(StoreError) {
        let low = [CChar](repeating: 0, count: 1)
        let high = [CChar](repeating: -1, count: 40)
        try call("rocksdb compact", "compact", path) { error in
            rocksdb_suggest_compact_range_cf(
                database, family.handle, low, low.count, high, high.count, &error)
        }
    }

    /// Compacts a family now, on the calling thread.
    func compact(_ family: ColumnFamily) {
        rocksdb_compact_range_cf(database, family.handle, nil, 0, nil, 0)
    }
}

/// A cursor over those entries of a family whose keys begin with the same bytes, as they were when the cursor was made.
///
/// RocksDB itself knows where they begin and end: it would step over everything that was deleted behind the last of them,
/// and that may be any number of rows until their files are merged.
struct DatabaseIterator: ~Copyable {
    private let raw: OpaquePointer
    private let options: OpaquePointer
    /// The prefix and its successor; RocksDB reads them as long as the cursor is there.
    private let bounds: UnsafeMutablePointer<CChar>
    private let path: String

    init(_ database: RowDatabase, _ family: ColumnFamily, prefix: some Collection<UInt8>) throws(StoreError) {
        try planned("rocksdb iterator", "read", database.path)
        let options: OpaquePointer = rocksdb_readoptions_create()
        // Within a partition the filters say which files need no look; across partitions they cannot.
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
            // The first key behind all that begin so; behind bytes of ones alone there is none.
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

    /// Key and value under the cursor, valid until it moves; `nil` past the end.
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

/// Writes one sorted file for ingestion; keys in strictly ascending order.
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

    /// Ends and syncs the file.
    func finish() throws(StoreError) {
        try call("rocksdb finish file", "write", path) { error in rocksdb_sstfilewriter_finish(raw, &error) }
    }
}

/// Calls RocksDB, and throws what it says of a failure, or what a test planned.
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

/// Fails if a test planned so (`FaultPlan`); nothing in a release build.
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
