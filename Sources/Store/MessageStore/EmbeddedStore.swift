// The store of one process: a journal for recent writes, and RocksDB for older rows.
//
//     FOLDER/lock      locked by the process that uses the folder; contains its process id
//     FOLDER/format    "longwire store N", N the format's version
//     FOLDER/epoch     "longwire epoch N", N the number of the last process that used the folder
//     FOLDER/history   the store's history, renewed when the content may have been rolled back (StoreHistoryFile)
//     FOLDER/journal/  segments
//     FOLDER/rows/     RocksDB
//     FOLDER/spill/    files to be ingested into RocksDB; emptied at each start
//     FOLDER/copying   exists while the folder is the target of an unfinished copy
//
// Threads: one committer, one spiller and some readers, all created and joined here. Shards are created before the loops run.
// Each is closed on its loop before the store is closed.

package import Delivery
package import Journal
internal import Platform
internal import Synchronization
internal import Wire

/// The durable store in a folder, locked by this process.
package final class EmbeddedStore: StoreEngine, OverlayOwner, @unchecked Sendable {
    // Sound because `shards` is behind a lock, and only the opener uses `threads` and `lock` (one thread calls `open` and
    // `close`). All other properties are immutable or synchronize themselves.

    package static let formatVersion = StoreFormat.current

    package struct Configuration: Sendable {
        package enum Durability: Sendable {
            /// Acknowledged writes are synced to disk.
            case fsync
            /// Acknowledged writes survive a crash of the process, but not of the machine.
            case os
        }
        package var folder: String
        package var durability = Durability.fsync
        package var segmentByteCount = Journal.Limits.segmentByteCount
        package var journalByteLimit = Limits.journalByteCount
        package var uncommittedByteLimit = Journal.Limits.uncommittedByteCount
        package var youngMilliseconds = Limits.youngMilliseconds
        package var blockCacheByteCount = Limits.blockCacheByteCount
        /// The maximum number of open files of the ordered store; a read from a closed file opens the file first.
        package var openFileLimit = Limits.openFileCount
        package var readerCount = Limits.readerCount
        /// The disk budgets of request ids and of traces; beyond a budget the oldest rows are dropped before they are a day old.
        package var requestByteLimit = Limits.requestByteCount
        package var traceByteLimit = Limits.traceByteCount
        package var deletionsBeforeCompaction = Limits.deletionsBeforeCompaction
        /// The committer's pause after a small group, in which the next group gathers; 0 for no pause.
        package var gatherMicroseconds = Journal.Limits.gatherMicroseconds
        /// The gateway time in milliseconds, for the age of request and trace rows; `nil` while unknown.
        ///
        /// No row is dropped because of its age until the time is known. Called on threads of the store.
        package var now: @Sendable () -> Int64? = { nil }
        /// The wall clock in milliseconds since 1970, for the begin of a history (`StoreHistoryFile`).
        package var wall: @Sendable () -> Int64 = { 0 }
        /// Called on a thread of the store after an unrecoverable failure.
        ///
        /// The default prints the error to stderr and exits with code 74. If a replacement returns, the store commits nothing any
        /// more.
        package var fatal: @Sendable (StoreError) -> Void = EmbeddedStore.exit(because:)
        package var committerFault: (@Sendable (Int) -> SystemFault?)?
        package var spillerTickMilliseconds = Limits.spillerTickMilliseconds
        package var spillFault: (@Sendable (SpillStep) -> Void)?
        /// Whether the folder may be the target of an unfinished copy, which is otherwise refused.
        package var isCopyTarget = false

        package init(folder: String) { self.folder = folder }
    }

    /// An injected failure for tests: a value of `errno`.
    package struct SystemFault: Sendable {
        package var code: Int32
        package init(code: Int32) { self.code = code }
    }
    /// The steps of a spill at which a test may inspect or stop the store.
    package enum SpillStep: Sendable { case collected, synchronized, ingested, recycled }

    package struct RecoveryReport: Sendable, Equatable {
        package var segmentCount = 0
        package var batchCount = 0
        package var byteCount = 0
        package var hadTornTail = false
        /// The bytes and whole segments written behind the journal's end, as far as they can be recognized.
        ///
        /// With durability `fsync` none of these bytes were acknowledged. `isUnsynced` means that they were written with `os`.
        package var cutByteCount = 0
        package var discardedSegmentCount = 0
        package var isUnsynced = false
        package var tableListByteCount = 0
        package var milliseconds = 0
    }

    let configuration: Configuration
    let committer: Committer
    let readers: Readers
    let spiller: Spiller
    let database: RowDatabase
    private let rows: EmbeddedRows
    package let ledger: SegmentLedger
    package let recovery: RecoveryReport
    package let history: StoreHistory
    package let historyChange: HistoryChange?
    private let hasAlarms: Bool
    private let hasColdRows: (rows: Bool, start: Bool, ephemeral: Bool)
    private let shards = Lock<[ObjectIdentifier: ShardMailbox]>([:])
    /// Closed shards; they must live until the committer has ended, because submitted batches are written from their memory.
    private let retired = Lock<[EmbeddedShardStore]>([])
    private var threads: [JoinableThread] = []
    private var lock: LockFile?
    private var isOpen = true

    /// Opens the folder, creates it if needed, and replays the journal.
    ///
    /// - Parameter configuration: The folder and the settings.
    /// - Throws: Any `StoreError`. The folder is then unchanged, or in a state that a crash could also have left.
    package init(_ configuration: Configuration) throws(StoreError) {
        self.configuration = configuration
        let began = SystemClock.monotonicMilliseconds
        let lock = try Self.takeFolder(configuration.folder)
        guard !StoreBackup.isBackup(configuration.folder) else { throw .isBackup(folder: configuration.folder) }
        guard configuration.isCopyTarget || !FileSystem.exists(Self.copyMark(of: configuration.folder)) else {
            throw .unfinishedCopy(folder: configuration.folder)
        }
        _ = try StoreFormat(of: configuration.folder)
        try Self.prepareFolder(configuration.folder)
        let folder = SegmentFolder(
            path: configuration.folder + "/journal", segmentByteCount: configuration.segmentByteCount)
        let journal: Recovery
        do throws(JournalError) {
            try folder.prepare()
            journal = try Recovery(folder: folder)
        } catch { throw StoreError(error) }
        try Self.removeUnfinishedDatabase(configuration.folder)
        try Self.checkDatabaseIsThere(configuration.folder)
        database = try RowDatabase(
            path: configuration.folder + "/rows", cacheByteCount: configuration.blockCacheByteCount,
            openFileLimit: configuration.openFileLimit)
        let run: SortedRun
        do throws(StoreError) {
            let spillFolder = configuration.folder + "/spill"
            try JournalReplay(
                journal, into: SortedRun(database: database, folder: spillFolder, run: journal.run)
            ).perform()
            var hasEphemeral = false
            for family in database.ephemeralFamilies where !hasEphemeral {
                hasEphemeral = try !database.isEmpty(family.family)
            }
            hasAlarms = try !database.isEmpty(database.alarms)
            hasColdRows = (
                try !database.isEmpty(database.rows), try !database.isEmpty(database.start), hasEphemeral
            )
            // Read the highest generation before `SegmentLedger` opens, because it removes spares of another segment size and
            // their generations.
            let generation: UInt64
            do throws(JournalError) { generation = try folder.highestGeneration() } catch { throw StoreError(error) }
            // Open the history before the first epoch is taken. An interrupted first start must still look like a new store.
            (history, historyChange) = try StoreHistoryFile.open(
                configuration.folder, isNew: generation == 0 && !StoreEpoch.exists(in: configuration.folder),
                isSynced: configuration.durability == .fsync, wall: configuration.wall)
            let epoch = try StoreEpoch.take(of: configuration.folder, above: generation)
            do throws(JournalError) { ledger = try SegmentLedger(folder: folder, run: epoch) } catch {
                throw StoreError(error)
            }
            run = SortedRun(database: database, folder: spillFolder, run: ledger.run)
        } catch {
            database.close()
            throw error
        }
        var journalConfiguration = Committer.Configuration()
        journalConfiguration.durability = configuration.durability == .fsync ? .fsync : .os
        journalConfiguration.gatherMicroseconds = configuration.gatherMicroseconds
        if let fault = configuration.committerFault {
            journalConfiguration.fault = { group in
                fault(group).map { SystemError(operation: "write", subject: "journal", code: $0.code) }
            }
        }
        let fatal = configuration.fatal
        committer = Committer(ledger: ledger, configuration: journalConfiguration) { fatal(StoreError($0)) }
        readers = Readers(database: database)
        spiller = Spiller(
            run: run, ledger: ledger, committer: committer, configuration: configuration,
            hasUnknownPeriods: hasColdRows.ephemeral)
        rows = EmbeddedRows(readers, spiller)
        recovery = RecoveryReport(
            segmentCount: journal.segments.count, batchCount: journal.batchCount, byteCount: journal.byteCount,
            hadTornTail: journal.tornTail != nil, cutByteCount: journal.cutByteCount,
            discardedSegmentCount: journal.discarded.count, isUnsynced: journal.isUnsynced,
            tableListByteCount: database.cutByteCount,
            milliseconds: Int(SystemClock.monotonicMilliseconds - began))
        self.lock = consume lock
        try startThreads()
    }

    deinit { precondition(!isOpen, "EmbeddedStore dropped without close()") }

    // MARK: Opening

    static func takeFolder(_ folder: String) throws(StoreError) -> LockFile {
        do throws(SystemError) {
            try FileSystem.createDirectory(folder)
        } catch { throw StoreError(error) }
        let lock: LockFile
        do throws(LockFile.Failure) {
            lock = try LockFile(path: folder + "/lock")
        } catch {
            switch error {
            case .heldByAnotherProcess(_, let process): throw .inUse(folder: folder, process: process)
            case .system(let error): throw StoreError(error)
            }
        }
        return lock
    }

    private static func prepareFolder(_ folder: String) throws(StoreError) {
        do throws(SystemError) {
            try FileSystem.removeTree(folder + "/spill")
            try FileSystem.createDirectory(folder + "/spill")
            try FileSystem.createDirectory(folder + "/rows")
            try proveRoom(folder + "/spill/room")
        } catch { throw StoreError(error) }
    }

    /// Throws on a full disk; RocksDB, as Debian builds it, would abort the process by an assertion.
    private static func proveRoom(_ path: String) throws(SystemError) {
        do {
            let file = try File(path: path, mode: .createNew)
            try file.fillWithZeros(byteCount: Limits.roomByteCount)
        }
        try FileSystem.removeFile(path)
    }

    /// Removes a database whose creation was interrupted in the first start.
    ///
    /// A power failure may keep `CURRENT` and lose the manifest that it names. A store without epoch, segments and tables was
    /// never written to.
    private static func removeUnfinishedDatabase(_ folder: String) throws(StoreError) {
        do throws(SystemError) {
            let rows = try FileSystem.list(folder + "/rows")
            let made = rows.filter { $0 != "lost+found" }
            guard made.contains(where: { $0 == "CURRENT" || $0.hasPrefix("MANIFEST-") }),
                !StoreEpoch.exists(in: folder), try !isUsed(folder), !made.contains(where: { $0.hasSuffix(".sst") })
            else { return }
            // Keep the folder itself: it may be a symbolic link or a mount point.
            for name in made { try FileSystem.removeTree(folder + "/rows/" + name) }
        } catch { throw StoreError(error) }
    }

    /// Returns whether the journal has a segment; the first segment is created after the database.
    private static func isUsed(_ folder: String) throws(SystemError) -> Bool {
        try FileSystem.list(folder + "/journal").contains { $0.hasPrefix("segment-") || $0.hasPrefix("free-") }
    }

    /// Throws if the folder's database was removed or has lost its file `CURRENT`; RocksDB would create an empty database and
    /// delete the old files.
    static func checkDatabaseIsThere(_ folder: String) throws(StoreError) {
        let rows: [String]
        let isUsed: Bool
        do throws(SystemError) {
            rows = try FileSystem.list(folder + "/rows")
            isUsed = try Self.isUsed(folder)
        } catch { throw StoreError(error) }
        guard !rows.contains("CURRENT") else { return }
        let isLeft = rows.contains { $0.hasSuffix(".sst") }
        guard isUsed || isLeft else { return }
        throw .damagedDatabase(folder: folder + "/rows", what: "its file CURRENT is missing")
    }

    private func startThreads() throws(StoreError) {
        let (committer, readers, spiller, fatal) = (committer, readers, spiller, configuration.fatal)
        do throws(SystemError) {
            threads.append(try JoinableThread(named: "committer") { committer.run() })
            threads.append(try JoinableThread(named: "spiller") { spiller.run(fatal: fatal) })
            for number in 0..<max(configuration.readerCount, 1) {
                threads.append(try JoinableThread(named: "reader \(number)") { readers.run() })
            }
        } catch {
            close()
            throw StoreError(error)
        }
    }

    // MARK: Shards

    /// Creates shard `index` of `count`.
    ///
    /// Call before any loop runs, or on the shard's loop.
    ///
    /// - Parameters:
    ///   - index: The shard has the buckets whose index modulo `count` is `index`.
    ///   - count: The number of shards, constant during a run; it may differ between runs.
    ///   - post: Runs a closure on the shard's loop, soon and in order. Called from the store's threads.
    /// - Returns: The shard. It must be closed on its loop before the store is closed.
    package func makeShard(
        index: Int, of count: Int, post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) -> EmbeddedShardStore {
        precondition(count > 0 && (0..<count).contains(index), "no such shard")
        let mailbox = ShardMailbox(post: post)
        let shard = EmbeddedShardStore(
            owner: self, log: committer, rows: rows, shardIndex: index, shardCount: count, mailbox: mailbox,
            hasAlarms: hasAlarms, hasColdRows: mayHaveRows)
        shards.withLock { $0[ObjectIdentifier(mailbox)] = mailbox }
        spiller.add(mailbox, number: shard.logNumber)
        return shard
    }

    package func makeLoopStore(
        index: Int, of count: Int, post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) -> any LoopStore { makeShard(index: index, of: count, post: post) }

    package var epoch: UInt64 { committer.epoch }

    private func mayHaveRows(_ table: StoreKey.Table) -> Bool {
        if table.isEphemeral { return hasColdRows.ephemeral }
        return table.isReadAtStart ? hasColdRows.start : hasColdRows.rows
    }

    func retire(_ shard: EmbeddedShardStore) {
        shards.withLock { $0[ObjectIdentifier(shard.mailbox)] = nil }
        spiller.remove(shard.mailbox)
        retired.withLock { $0.append(shard) }
    }

    func collected(_ rows: [SpilledRow], from shard: EmbeddedShardStore) {
        spiller.collected(rows, from: shard.mailbox)
    }

    /// Returns whether room is short; the space between this bound and that of `acceptsWrites` is reserved for apps below their
    /// share.
    func isShortOfRoom(beside untoldByteCount: Int) -> Bool {
        committer.uncommittedByteCount + untoldByteCount >= configuration.uncommittedByteLimit / 4
            || ledger.byteCount > configuration.journalByteLimit / 8 * 7
    }

    package var acceptsWrites: Bool { acceptsWrites(beside: 0) }
    package var isServing: Bool { acceptsWrites }

    /// Returns whether publishes are accepted; `untoldByteCount` counts encoded bytes that the committer does not count yet.
    func acceptsWrites(beside untoldByteCount: Int) -> Bool {
        committer.uncommittedByteCount + untoldByteCount < configuration.uncommittedByteLimit
            && ledger.byteCount <= configuration.journalByteLimit && !ledger.lacksSpare
    }

    /// Whether the journal is stuck; always false, because a blocked disk affects all loops equally.
    var isStuck: Bool { false }

    func hasRoomForLists(beside untoldByteCount: Int) -> Bool {
        committer.uncommittedByteCount + untoldByteCount < configuration.uncommittedByteLimit / 2
            && ledger.byteCount <= configuration.journalByteLimit && !ledger.lacksSpare
    }

    /// The number of rows that a loop collects or drops for the spiller in one turn.
    ///
    /// A loaded loop has few, long turns. While the journal is filling up, rows must not wait for turns: a full journal refuses
    /// all publishes, which is worse than turns that are some milliseconds longer.
    var sliceRowCount: Int {
        let (filled, bound) = (ledger.byteCount, configuration.journalByteLimit)
        if filled > bound { return Limits.sliceRowCount * 32 }
        return Double(filled) > Double(bound) * Limits.spillShare ? Limits.sliceRowCount * 8 : Limits.sliceRowCount
    }

    // MARK: Operating

    package func requestSpill() { spiller.requestSpill() }

    /// Compacts the ordered store completely on the calling thread, for tests and maintenance.
    package func compact() {
        database.compact(database.rows)
        database.compact(database.alarms)
        database.compact(database.start)
    }

    /// Commits submitted batches, ends the threads and closes the files.
    ///
    /// The journal remains for the next start. Every shard must be closed before. No loop may call the store afterwards.
    package func close() {
        guard isOpen else { return }
        isOpen = false
        precondition(shards.withLock { $0.isEmpty }, "close the shards before the store")
        committer.close()
        spiller.close()
        readers.close()
        for thread in threads { thread.join() }
        threads.removeAll()
        // A stop has time to sync. A failed sync is ignored, because durability `os` does not promise one.
        if configuration.durability == .os, (try? ledger.synchronize()) != nil {
            StoreHistoryFile.noteSynced(history, in: configuration.folder)
        }
        retired.withLock { shards in
            for shard in shards { shard.mailbox.discard() }
            shards.removeAll()
        }
        database.close()
        lock = nil
    }

    @Sendable private static func exit(because error: StoreError) {
        StandardError.write("longwire: \(error)\n")
        StandardError.exit(code: 74)
    }
}

extension Committer: DurableLog {
    var epoch: UInt64 { ledger.run }
    var batchByteCount: Int { ledger.folder.segmentByteCount - SegmentHeader.byteCount }
}

/// RocksDB and its reader and spiller threads as a loop's store uses them.
final class EmbeddedRows: OrderedRows {
    private let readers: Readers
    private let spiller: Spiller

    init(_ readers: Readers, _ spiller: Spiller) { (self.readers, self.spiller) = (readers, spiller) }

    func submit(_ operation: ReadOperation) { readers.submit(operation) }

    func loadAll(
        table: StoreKey.Table, buckets: [UInt16], _ body: (StoredRow) -> Void
    ) throws(StoreError) {
        try readers.loadAll(table: table, buckets: buckets, body)
    }

    func dropStale(_ alarms: [StaleAlarm]) { spiller.dropStale(alarms) }
    var hasOnlyKnownRequests: Bool { spiller.hasOnlyKnownPeriods }
    var oldestRequestPeriod: Int64 { spiller.oldestPeriod }
}
