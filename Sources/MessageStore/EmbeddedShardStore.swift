// One shard's side of the embedded store. Everything here runs on the shard's loop and touches memory only.
//
// Batches are encoded where they will be written from: into blocks, as the journal has them. A row of a queue
// (`message`, `vendorMessage`) is then read from its batch. Rows of the other tables are copied to blocks of their own:
// they live longer (a trace outlives its message by a day), and one of them would keep a whole block of batches alive.

public import Delivery
internal import Journal
internal import Platform
internal import Synchronization
public import Wire

/// The embedded store as one shard sees it; made by `EmbeddedStore.makeShard`.
public final class EmbeddedShardStore: ShardStore {
    public weak var observer: (any ShardStoreObserver)?

    let store: EmbeddedStore
    let shardIndex: Int
    let shardCount: Int
    let mailbox: ShardMailbox
    private let committerShard: Int
    var index = YoungIndex()
    var pool = BlockPool()
    var clock: AlarmClock
    private var filter = AbsenceFilter()
    /// By raw value: the ordered store may have rows of the table.
    private var mayBeCold: [Bool]

    // The open batch.
    private var isBatchOpen = false
    private var openBucket: UInt16 = 0
    private var batchBlock: UInt32
    private var keepBlock: UInt32
    private var pieceOffset = 0
    private var firstPiece = 0
    private var earlierByteCount = 0
    private var operationCount = 0

    private var pieces: [BatchPiece] = []
    private var pieceByteCount = 0
    private(set) var lastTicket: Ticket = 0
    public private(set) var committedTicket: Ticket = 0

    // Reads under way, see `EmbeddedShardStore+Reading`.
    var lastToken: ReadToken = 0
    var epochs = ReadEpochs()
    var isReadingAlarms = false
    var waitingAlarmRequests: [(token: ReadToken, time: Int64, limit: Int)] = []

    // Rows on their way out, see `EmbeddedShardStore+Spilling`.
    var content = ShardMailbox.Content()
    var collectUpTo: Ticket?
    var collected: [SpilledRow] = []
    var handOverAfter: Ticket?
    var cooling: [CoolingRows] = []
    private var isClosed = false

    init(
        store: EmbeddedStore, shardIndex: Int, shardCount: Int, mailbox: ShardMailbox, committerShard: Int,
        watermarks: [Int64], hasColdRows: Bool, hasColdEphemeralRows: Bool
    ) {
        (self.store, self.shardIndex, self.shardCount) = (store, shardIndex, shardCount)
        (self.mailbox, self.committerShard) = (mailbox, committerShard)
        clock = AlarmClock(shardIndex: shardIndex, shardCount: shardCount, watermarks: watermarks)
        mayBeCold = (0...255).map { raw in
            guard let table = StoreKey.Table(rawValue: UInt8(raw)) else { return true }
            return table.isEphemeral ? hasColdEphemeralRows : hasColdRows
        }
        batchBlock = pool.take(atLeast: 0, isAwaited: true)
        keepBlock = pool.take(atLeast: 0, isAwaited: false)
        mailbox.shard = self
    }

    deinit { precondition(isClosed, "EmbeddedShardStore dropped without close()") }

    // MARK: Writing

    public func beginBatch(_ bucket: Bucket) {
        precondition(!isBatchOpen, "batches do not nest")
        isBatchOpen = true
        openBucket = bucket.index
        pool.align(batchBlock)
        if pool.room(batchBlock) < RecordHeader.byteCount + 8 { changeBatchBlock(atLeast: RecordHeader.byteCount + 8) }
        pieceOffset = pool.advance(batchBlock, by: RecordHeader.byteCount)
        firstPiece = pieces.count
        earlierByteCount = 0
        operationCount = 0
    }

    @discardableResult
    public func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation {
        check(key)
        precondition(byteCount >= 0 && byteCount <= Limits.valueByteCount, "a value has at most 128 KiB")
        precondition(wakeAt == 0 || key.isReportedWhenCooled, "this table has no alarms")
        let header = reserve(Operation.headerByteCount + byteCount)
        let value = UnsafeMutableRawBufferPointer(start: header + Operation.headerByteCount, count: byteCount)
        write(value)

        let number = index.findOrInsert(key)
        let slot = index[number]
        let state = enter(slot, prior)
        Operation.write(
            isPut: true, table: key.table.rawValue, prior: state, ownerHigh: key.ownerHigh, ownerLow: key.ownerLow,
            item: key.item, wakeAt: wakeAt, coldAlarm: slot.pointee.coldAlarm, valueByteCount: byteCount, to: header)

        let location: ValueLocation
        if key.table == .message || key.table == .vendorMessage {
            location = ValueLocation(
                block: batchBlock, offset: UInt32(pool.used(batchBlock) - byteCount), byteCount: UInt32(byteCount))
        } else {
            location = keep(UnsafeRawBufferPointer(value))
        }
        pool.retain(location.block)
        slot.pointee.isDeleted = false
        slot.pointee.wakeAt = wakeAt
        slot.pointee.block = location.block
        slot.pointee.offset = location.offset
        slot.pointee.byteCount = location.byteCount
        index.touch(number)
        return location
    }

    public func delete(_ key: StoreKey, prior: PriorRow) {
        check(key)
        precondition(!key.table.isEphemeral, "ephemeral rows are not deleted by name")
        if prior == .none, index.find(key) == nil { return }  // nothing here, nothing there
        let header = reserve(Operation.headerByteCount)
        let number = index.findOrInsert(key)
        let slot = index[number]
        let state = enter(slot, prior)
        Operation.write(
            isPut: false, table: key.table.rawValue, prior: state, ownerHigh: key.ownerHigh, ownerLow: key.ownerLow,
            item: key.item, wakeAt: 0, coldAlarm: slot.pointee.coldAlarm, valueByteCount: 0, to: header)
        slot.pointee.isDeleted = true
        slot.pointee.wakeAt = 0
        // A row that the ordered store has never had is gone without a trace.
        if slot.pointee.mayBeCold { index.touch(number) } else { index.remove(number) }
    }

    public func endBatch() -> Ticket {
        precondition(isBatchOpen, "no batch is open")
        isBatchOpen = false
        let last = UnsafeRawBufferPointer(
            start: pool.start(batchBlock) + pieceOffset, count: pool.used(batchBlock) - pieceOffset)
        let bodyByteCount = earlierByteCount + last.count - RecordHeader.byteCount
        let recordByteCount = RecordHeader.recordByteCount(bodyByteCount: bodyByteCount)
        precondition(operationCount <= UInt16.max, "a batch has at most 65,535 rows")
        precondition(recordByteCount <= store.batchByteLimit, "the batch is larger than a segment")
        var checksum: UInt32 = 0
        for (number, piece) in pieces[firstPiece...].enumerated() {
            let skipped = number == 0 ? RecordHeader.byteCount : 0
            checksum = Checksum.crc32c(
                UnsafeRawBufferPointer(start: piece.start + skipped, count: piece.byteCount - skipped), seed: checksum)
        }
        let skipped = firstPiece == pieces.count ? RecordHeader.byteCount : 0
        checksum = Checksum.crc32c(UnsafeRawBufferPointer(rebasing: last[skipped...]), seed: checksum)

        let padding = recordByteCount - RecordHeader.byteCount - bodyByteCount
        let padOffset = pool.advance(batchBlock, by: padding)  // `reserve` left room for it
        (pool.start(batchBlock) + padOffset).initializeMemory(as: UInt8.self, repeating: 0, count: padding)
        lastTicket += 1
        pieces.append(
            BatchPiece(
                start: pool.start(batchBlock) + pieceOffset, byteCount: pool.used(batchBlock) - pieceOffset,
                recordByteCount: 0, ticket: 0))
        pieces[firstPiece].recordByteCount = recordByteCount
        pieces[firstPiece].ticket = lastTicket
        RecordHeader.write(
            bodyByteCount: bodyByteCount, bucket: openBucket, operationCount: operationCount, bodyChecksum: checksum,
            to: pieces[firstPiece].start)
        pieceByteCount += recordByteCount
        return lastTicket
    }

    /// Hands the turn's batches to the committer; the loop calls it once at the end of each turn.
    public func turnEnded() {
        precondition(!isBatchOpen, "a batch is open at the end of a turn")
        guard !pieces.isEmpty else { return }
        store.committer.submit(pieces, shard: committerShard, byteCount: pieceByteCount)
        pieces.removeAll(keepingCapacity: true)
        pieceByteCount = 0
    }

    public var acceptsWrites: Bool { store.acceptsWrites }

    @inline(__always) private func check(_ key: StoreKey) {
        precondition(isBatchOpen && key.bucket.index == openBucket, "the row is not in the open batch's bucket")
        precondition(key.hasItems || key.item == 0, "this table has item 0 only")
    }

    /// Room in the batch, its end included.
    @inline(__always) private func reserve(_ byteCount: Int) -> UnsafeMutableRawPointer {
        if pool.room(batchBlock) < byteCount + 8 {
            let start = pool.start(batchBlock) + pieceOffset
            let pieceSize = pool.used(batchBlock) - pieceOffset
            pieces.append(BatchPiece(start: start, byteCount: pieceSize, recordByteCount: 0, ticket: 0))
            earlierByteCount += pieceSize
            changeBatchBlock(atLeast: byteCount + 8)
            pieceOffset = 0
        }
        operationCount += 1
        return pool.start(batchBlock) + pool.advance(batchBlock, by: byteCount)
    }

    private func changeBatchBlock(atLeast byteCount: Int) {
        // The open batch's ticket: bytes of it may stand in the block.
        pool.fill(batchBlock, lastTicket: lastTicket + 1)
        batchBlock = pool.take(atLeast: byteCount, isAwaited: true)
    }

    /// Copies a value to where the longer-lived rows are.
    private func keep(_ value: UnsafeRawBufferPointer) -> ValueLocation {
        if pool.room(keepBlock) < value.count {
            pool.fill(keepBlock, lastTicket: 0)
            keepBlock = pool.take(atLeast: value.count, isAwaited: false)
        }
        let offset = pool.advance(keepBlock, by: value.count)
        if let start = value.baseAddress, !value.isEmpty {
            (pool.start(keepBlock) + offset).copyMemory(from: start, byteCount: value.count)
        }
        return ValueLocation(block: keepBlock, offset: UInt32(offset), byteCount: UInt32(value.count))
    }

    /// What a write does to its slot before the new content is known.
    @inline(__always) private func enter(_ slot: UnsafeMutablePointer<YoungSlot>, _ prior: PriorRow) -> Operation.Prior
    {
        slot.pointee.version &+= 1
        slot.pointee.isCollected = false
        slot.pointee.ticket = lastTicket + 1
        guard slot.pointee.isNew else {
            // The index knows better than the caller what the ordered store has.
            if !slot.pointee.isDeleted { pool.release(slot.pointee.block) }
            return slot.pointee.mayBeCold ? .maybeCold : .journalOnly
        }
        slot.pointee.isNew = false
        guard case .maybe(let alarm) = prior else { return .nothing }
        slot.pointee.mayBeCold = true
        slot.pointee.coldAlarm = alarm
        return .maybeCold
    }

    // MARK: Young rows

    public func value(at location: ValueLocation) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(
            start: pool.start(location.block) + Int(location.offset), count: Int(location.byteCount))
    }

    public func young(_ key: StoreKey) -> YoungLookup {
        guard let number = index.find(key) else { return .unknown }
        let slot = index[number]
        if slot.pointee.isDeleted { return .deleted }
        return .found(
            ValueLocation(
                block: slot.pointee.block, offset: slot.pointee.offset, byteCount: slot.pointee.byteCount),
            wakeAt: slot.pointee.wakeAt)
    }

    public func isCertainlyAbsent(_ key: StoreKey) -> Bool {
        switch young(key) {
        case .found: return false
        case .deleted: return true
        case .unknown: break
        }
        if !mayBeCold[Int(key.table.rawValue)] { return true }
        guard key.table == .request, store.hasOnlyKnownPeriods else { return false }
        return !filter.mayContain(key, oldest: store.oldestPeriod)
    }

    /// A row is in the ordered store alone now.
    func noteCold(_ key: StoreKey, wakeAt: Int64, period: Int64) {
        mayBeCold[Int(key.table.rawValue)] = true
        if key.table == .request { filter.insert(key, period: period) }
        if wakeAt != 0 { clock.add(Alarm(wakeAt: wakeAt, key: key)) }
    }

    /// Young rows and remembered removals.
    public var youngRowCount: Int { index.slotCount }
    /// Memory of batches and values.
    public var blockByteCount: Int { pool.byteCount }

    /// Every cold row of a table in this shard's buckets, for the start: before the shard's first write.
    ///
    /// - Parameters:
    ///   - table: not an ephemeral one.
    ///   - body: gets each row, valid during the call, ordered by key within a bucket.
    /// - Throws: `.database` when a block cannot be read.
    public func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) throws(StoreError) {
        precondition(lastTicket == 0, "loadAll belongs before the first write")
        try store.readers.loadAll(
            table: table, buckets: AlarmClock.buckets(shardIndex: shardIndex, shardCount: shardCount), body)
    }

    // MARK: The loop's turn

    /// On the loop, by the mailbox's post: commits, then replies, then what has cooled.
    func drain() {
        guard !isClosed else { return }
        let committed = mailbox.take(&content)
        if committed > committedTicket {
            committedTicket = committed
            pool.committed(upTo: committed)
            observer?.storeCommitted(upTo: committed)
        }
        if !content.replies.isEmpty {
            let replies = content.replies
            content.replies.removeAll()
            deliver(replies)
        }
        for rows in content.cooled {
            cooling.append(CoolingRows(rows: rows.rows, period: rows.period, epoch: epochs.advance(), next: 0))
        }
        content.cooled.removeAll()
        coolSlice()
        handOver()
        if let ticket = content.collect {
            collectUpTo = ticket
            content.collect = nil
        }
        collectSlice()
        filter.drop(before: store.oldestPeriod)
    }

    /// Takes the shard out of service on its loop; nothing is delivered to it any more.
    ///
    /// Batches not handed over by `turnEnded()` are lost, those handed over are written. From here on the store spills
    /// nothing: the journal alone has this shard's young rows.
    public func close() {
        isClosed = true
        mailbox.shard = nil
        observer = nil
        store.retire(self)
    }
}
