// The store of one process: the journal for the young, RocksDB for what stays.
//
//     FOLDER/lock      held while a process works here; names it
//     FOLDER/format    "longwire store N", N the format's version
//     FOLDER/epoch     "longwire epoch N", N the number of the last process that worked here
//     FOLDER/history   the store's history, which changes when the content may be older than before (StoreHistoryFile)
//     FOLDER/journal/  segments
//     FOLDER/rows/     RocksDB
//     FOLDER/spill/    files on their way into RocksDB; emptied at each start
//     FOLDER/copying   there while the folder is the target of a copy: what it has is not whole
//
// Threads: one committer, one spiller, a few readers, all made and joined here. Shards are made before the loops run
// and closed on their loops before the store is.

package import Delivery
package import Journal
internal import Platform
internal import Synchronization
internal import Wire

/// A folder with everything that Longwire must not forget, opened by this process alone.
package final class EmbeddedStore: StoreEngine, OverlayOwner, @unchecked Sendable {
    // Sound because `shards` is behind a lock, `threads` and `lock` are used by the opener only (`open` and `close` are
    // called by one thread), and the rest is immutable or synchronizes itself.

    /// The version of what this code writes.
    package static let formatVersion = StoreFormat.current

    /// How a store works; the defaults are right for a server.
    package struct Configuration: Sendable {
        package enum Durability: Sendable {
            /// Accepted means on the disk.
            case fsync
            /// Accepted means with the operating system: outlasts the process, not the machine.
            case os
        }
        package var folder: String
        package var durability = Durability.fsync
        package var segmentByteCount = Journal.Limits.segmentByteCount
        package var journalByteLimit = Limits.journalByteCount
        package var uncommittedByteLimit = Journal.Limits.uncommittedByteCount
        package var youngMilliseconds = Limits.youngMilliseconds
        package var blockCacheByteCount = Limits.blockCacheByteCount
        /// Files that the ordered store keeps open; a read of another one opens it.
        package var openFileLimit = Limits.openFileCount
        package var readerCount = Limits.readerCount
        /// Disk for request ids and, apart from them, for traces; past it the oldest go before their day is over.
        package var requestByteLimit = Limits.requestByteCount
        package var traceByteLimit = Limits.traceByteCount
        package var deletionsBeforeCompaction = Limits.deletionsBeforeCompaction
        /// After a small group the committer rests this long, so that the next one gathers; 0 for no rest.
        package var gatherMicroseconds = Journal.Limits.gatherMicroseconds
        /// Gateway time in milliseconds, for the age of request and trace rows; `nil` as long as it is not known.
        ///
        /// Until it is known no row goes for its age. Called on threads of the store.
        package var now: @Sendable () -> Int64? = { nil }
        /// The wall clock in milliseconds since 1970, with which a history begins (`StoreHistoryFile`).
        package var wall: @Sendable () -> Int64 = { 0 }
        /// Called on a thread of the store when it cannot go on.
        ///
        /// By default it says why on standard error and ends the process with code 74; one that returns leaves a store that commits nothing any more.
        package var fatal: @Sendable (StoreError) -> Void = EmbeddedStore.exit(because:)
        package var committerFault: (@Sendable (Int) -> SystemFault?)?
        package var spillerTickMilliseconds = Limits.spillerTickMilliseconds
        package var spillFault: (@Sendable (SpillStep) -> Void)?
        /// Opens the target of a copy that has not ended; otherwise it is refused.
        package var isCopyTarget = false

        package init(folder: String) { self.folder = folder }
    }

    /// A failure for tests to inject: the value of `errno`.
    package struct SystemFault: Sendable {
        package var code: Int32
        package init(code: Int32) { self.code = code }
    }
    /// The points of a spill at which a test may look or stop.
    package enum SpillStep: Sendable { case collected, synchronized, ingested, recycled }

    /// What a start found.
    package struct RecoveryReport: Sendable, Equatable {
        package var segmentCount = 0
        package var batchCount = 0
        package var byteCount = 0
        package var hadTornTail = false
        /// What was written behind the place where the journal ends now, as far as it shows, and how many whole segments of it.
        ///
        /// With durability `fsync` none of it was answered; `isUnsynced` says that it was written with `os`.
        package var cutByteCount = 0
        package var discardedSegmentCount = 0
        package var isUnsynced = false
        /// Bytes of a torn record that were cut off RocksDB's list of tables.
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
    /// Why this start gave the store another history.
    package let historyChange: HistoryChange?
    private let hasAlarms: Bool
    private let hasColdRows: (rows: Bool, start: Bool, ephemeral: Bool)
    private let shards = Lock<[ObjectIdentifier: ShardMailbox]>([:])
    /// Closed shards, kept until the committer has ended: what they handed over is written out of their own memory.
    private let retired = Lock<[EmbeddedShardStore]>([])
    private var threads: [JoinableThread] = []
    private var lock: LockFile?
    private var isOpen = true

    /// Opens the folder, made if it is not there, and replays the journal.
    ///
    /// - Parameter configuration: the folder and how to work in it.
    /// - Throws: every case of `StoreError`; the folder is then as it was, or as a crash at that point would leave it.
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
            // A start that changes the segments' size removes the files that had the generations.
            let generation: UInt64
            do throws(JournalError) { generation = try folder.highestGeneration() } catch { throw StoreError(error) }
            // Before the first epoch: a first start that is cut off must leave a new store to the next one.
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

    /// Fails clearly on a full disk: RocksDB, as Debian builds it, ends the process by an assertion instead.
    private static func proveRoom(_ path: String) throws(SystemError) {
        do {
            let file = try File(path: path, mode: .createNew)
            try file.fillWithZeros(byteCount: Limits.roomByteCount)
        }
        try FileSystem.removeFile(path)
    }

    /// Removes what a first start left that was cut off while RocksDB made its database.
    ///
    /// A power failure may keep `CURRENT` and lose the manifest that it names. A store without an epoch, a segment and a table
    /// was never written to.
    private static func removeUnfinishedDatabase(_ folder: String) throws(StoreError) {
        do throws(SystemError) {
            let rows = try FileSystem.list(folder + "/rows")
            let made = rows.filter { $0 != "lost+found" }
            guard made.contains(where: { $0 == "CURRENT" || $0.hasPrefix("MANIFEST-") }),
                !StoreEpoch.exists(in: folder), try !isUsed(folder), !made.contains(where: { $0.hasSuffix(".sst") })
            else { return }
            // The folder itself may be a link, or another disk.
            for name in made { try FileSystem.removeTree(folder + "/rows/" + name) }
        } catch { throw StoreError(error) }
    }

    /// Whether the journal has a segment; the first is made once the database is there.
    private static func isUsed(_ folder: String) throws(SystemError) -> Bool {
        try FileSystem.list(folder + "/journal").contains { $0.hasPrefix("segment-") || $0.hasPrefix("free-") }
    }

    /// Refuses a folder whose database was taken away or has lost its root file.
    ///
    /// RocksDB would make a new, empty one in its place and delete the files of the old one.
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

    /// Makes the store's side of shard `index` of `count`; before any loop runs, or on the shard's loop.
    ///
    /// - Parameters:
    ///   - index: the shard has the buckets whose number leaves this rest when divided by `count`.
    ///   - count: the same for all shards of a run; free to differ from one run to the next.
    ///   - post: runs a closure on the shard's loop, soon, in order; called from the store's threads.
    /// - Returns: the shard, to be closed on its loop before the store is.
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

    /// What is left before `acceptsWrites` ends is for those who need little.
    func isShortOfRoom(beside untoldByteCount: Int) -> Bool {
        committer.uncommittedByteCount + untoldByteCount >= configuration.uncommittedByteLimit / 4
            || ledger.byteCount > configuration.journalByteLimit / 8 * 7
    }

    package var acceptsWrites: Bool { acceptsWrites(beside: 0) }
    package var isServing: Bool { acceptsWrites }

    /// As a shard sees it that has encoded more than the committer counts yet.
    func acceptsWrites(beside untoldByteCount: Int) -> Bool {
        committer.uncommittedByteCount + untoldByteCount < configuration.uncommittedByteLimit
            && ledger.byteCount <= configuration.journalByteLimit
    }

    /// A disk that stands still holds up all loops alike.
    var isStuck: Bool { false }

    func hasRoomForLists(beside untoldByteCount: Int) -> Bool {
        committer.uncommittedByteCount + untoldByteCount < configuration.uncommittedByteLimit / 2
            && ledger.byteCount <= configuration.journalByteLimit
    }

    /// How many rows a loop collects or drops for the spiller in one turn.
    ///
    /// The turns of a loaded loop are long and few. While the journal fills, rows must not wait for turns: at its bound all
    /// publishes would be refused, which costs everybody more than a turn that is some milliseconds longer.
    var sliceRowCount: Int {
        let (filled, bound) = (ledger.byteCount, configuration.journalByteLimit)
        if filled > bound { return Limits.sliceRowCount * 32 }
        return Double(filled) > Double(bound) * Limits.spillShare ? Limits.sliceRowCount * 8 : Limits.sliceRowCount
    }

    // MARK: Operating

    /// Moves everything that is young out of the journal as soon as it can; takes effect in the background.
    package func requestSpill() { spiller.requestSpill() }

    /// Compacts the ordered store completely, now, on the calling thread: for tests and maintenance.
    package func compact() {
        database.compact(database.rows)
        database.compact(database.alarms)
        database.compact(database.start)
    }

    /// Stops: writes what was handed over, ends the threads, closes the files.
    ///
    /// The journal stays for the next start.
    ///
    /// Every shard has been closed on its loop, and no loop calls the store any more.
    package func close() {
        guard isOpen else { return }
        isOpen = false
        precondition(shards.withLock { $0.isEmpty }, "close the shards before the store")
        committer.close()
        spiller.close()
        readers.close()
        for thread in threads { thread.join() }
        threads.removeAll()
        // A stop has the time that a publish has not. If it fails, nothing is lost that was promised.
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

/// RocksDB and the threads that read and write it, as a loop's store sees them.
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
