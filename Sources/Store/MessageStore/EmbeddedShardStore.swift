// One shard's part of the store. All code here runs on the shard's loop and accesses memory only.
//
// Batches are encoded in the blocks from which the journal writes them. A row of a queue (`message`, `vendorMessage`) is read
// directly from its batch. Rows of other tables live longer and would each pin a whole block of batches, so they are copied to
// separate blocks. Logged rows (traces) also have separate blocks, because they leave in insertion order.

package import Delivery
internal import Journal
internal import Platform
internal import Synchronization
package import Wire

package final class EmbeddedShardStore: LoopStore {
    /// The observer, retained until `close()`; a weak reference would move each retain of the loop to the slow path.
    package var observer: (any ShardStoreObserver)?

    let owner: any OverlayOwner
    let log: any DurableLog
    let rows: any OrderedRows
    let shardIndex: Int
    let shardCount: Int
    package let batchByteCount: Int
    let mailbox: ShardMailbox
    let logNumber: Int
    private let core: UnsafeMutablePointer<Core>
    var clock: AlarmClock
    private var filter = AbsenceFilter()
    /// Whether the ordered store may have rows of a table, by the table's raw value.
    private var mayBeCold: [Bool]

    // Reads in flight, see `EmbeddedShardStore+Reading`.
    var lastToken: ReadToken = 0
    var epochs = ReadEpochs()
    var isReadingAlarms = false
    var waitingAlarmRequests: [(token: ReadToken, request: AlarmRequest)] = []

    // Rows that are being spilled, see `EmbeddedShardStore+Spilling`.
    var content = ShardMailbox.Content()
    var collectUpTo: Ticket?
    var collected: [SpilledRow] = []
    var handOverAfter: Ticket?
    var cooling: [CoolingRows] = []
    private var isClosed = false

    /// The state that every batch changes.
    ///
    /// The state is behind a pointer, because each access to a class property is checked for exclusivity at run time. At 90
    /// instructions per check and 45 accesses per message, the checks would cost more than the work.
    private struct Core: ~Copyable {
        var index = YoungIndex()
        var log = YoungLog()
        var pool = BlockPool()

        var isBatchOpen = false
        var openBucket: UInt16 = 0
        var batchBlock: UInt32 = 0
        var keepBlock: UInt32 = 0
        var logBlock: UInt32 = 0
        var pieceOffset = 0
        var firstPiece = 0
        var earlierByteCount = 0
        var operationCount = 0
        var ownerHigh: UInt64 = 0
        var ownerLow: UInt64 = 0
        var batchByteCount = 0

        var seconds: UInt64 = 0
        var pieces: [BatchPiece] = []
        var pieceByteCount = 0
        /// The part of `pieceByteCount` that the log has already counted.
        var announcedByteCount = 0
        var lastTicket: Ticket = 0
        var submittedTicket: Ticket = 0
        var committedTicket: Ticket = 0
    }

    var index: YoungIndex {
        @inline(__always) _read { yield core.pointee.index }
        @inline(__always) _modify { yield &core.pointee.index }
    }

    var loggedRows: YoungLog {
        @inline(__always) _read { yield core.pointee.log }
        @inline(__always) _modify { yield &core.pointee.log }
    }

    var pool: BlockPool {
        @inline(__always) _read { yield core.pointee.pool }
        @inline(__always) _modify { yield &core.pointee.pool }
    }

    var lastTicket: Ticket { core.pointee.lastTicket }
    package var committedTicket: Ticket { core.pointee.committedTicket }

    init(
        owner: any OverlayOwner, log: any DurableLog, rows: any OrderedRows, shardIndex: Int, shardCount: Int,
        mailbox: ShardMailbox, hasAlarms: Bool, hasColdRows: (StoreKey.Table) -> Bool
    ) {
        (self.owner, self.log, self.rows) = (owner, log, rows)
        (self.shardIndex, self.shardCount, self.mailbox) = (shardIndex, shardCount, mailbox)
        logNumber = log.register { mailbox.committed(upTo: $0) }
        batchByteCount = log.batchByteCount
        clock = AlarmClock(shardIndex: shardIndex, shardCount: shardCount, hasAlarms: hasAlarms)
        mayBeCold = (0...255).map { raw in
            guard let table = StoreKey.Table(rawValue: UInt8(raw)) else { return true }
            return hasColdRows(table)
        }
        core = .allocate(capacity: 1)
        core.initialize(to: Core())
        core.pointee.batchBlock = core.pointee.pool.take(atLeast: 0, isAwaited: true)
        core.pointee.keepBlock = core.pointee.pool.take(atLeast: 0, isAwaited: false)
        core.pointee.logBlock = core.pointee.pool.take(atLeast: 0, isAwaited: false)
        mailbox.shard = self
    }

    deinit {
        precondition(isClosed, "EmbeddedShardStore dropped without close()")
        core.deinitialize(count: 1)
        core.deallocate()
    }

    // MARK: Writing

    package func beginBatch(_ bucket: Bucket) {
        precondition(!core.pointee.isBatchOpen, "batches do not nest")
        core.pointee.isBatchOpen = true
        core.pointee.openBucket = bucket.index
        beginRecord()
    }

    private func beginRecord() {
        pool.align(core.pointee.batchBlock)
        if pool.room(core.pointee.batchBlock) < RecordHeader.byteCount + 8 {
            changeBatchBlock(atLeast: RecordHeader.byteCount + 8)
        }
        core.pointee.pieceOffset = pool.advance(core.pointee.batchBlock, by: RecordHeader.byteCount)
        core.pointee.firstPiece = core.pointee.pieces.count
        core.pointee.earlierByteCount = 0
        core.pointee.operationCount = 0
        core.pointee.batchByteCount = Self.recordOverhead
    }

    /// The bytes of a record besides its operations: the header, and up to eight bytes of padding.
    private static let recordOverhead = RecordHeader.byteCount + 8

    @discardableResult
    package func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation {
        check(key)
        var wakeAt = wakeAt
        if byteCount > StoreBounds.valueByteCount {
            let isFit = Self.recordOverhead + OperationHeader.largestByteCount + byteCount <= batchByteCount
            tell(isFit ? .largeValue(byteCount: byteCount) : .unfitValue(byteCount: byteCount), key)
            guard isFit else { return ValueLocation(block: core.pointee.batchBlock, offset: 0, byteCount: 0) }
        }
        if wakeAt != 0, !key.isReportedWhenCooled {
            tell(.alarm, key)
            wakeAt = 0
        }
        if key.table.isLogged { return putLogged(key, prior, byteCount, write) }

        let number = index.findOrInsert(key)
        let slot = index[number]
        let former = priorState(slot, prior)
        let value = writeOperation(
            .put, key, former, wakeAt: wakeAt, coldAlarm: coldAlarm(slot, prior), byteCount: byteCount)
        write(value)
        // A value that was not lent to the spiller may be overwritten. Device rows, for example, are rewritten with each change.
        let isInPlace =
            !slot.pointee.isDeleted && !slot.pointee.isCollected && Int(slot.pointee.byteCount) == byteCount
            && slot.pointee.isRewritten
        enter(slot, prior, keepsPlace: isInPlace)
        if isInPlace {
            if let start = value.baseAddress, byteCount > 0 {
                (pool.start(slot.pointee.block) + Int(slot.pointee.offset))
                    .copyMemory(from: start, byteCount: byteCount)
            }
            slot.pointee.wakeAt = wakeAt
            index.touch(number)
            return ValueLocation(
                block: slot.pointee.block, offset: slot.pointee.offset, byteCount: slot.pointee.byteCount)
        }

        let location: ValueLocation
        if key.table == .message || key.table == .vendorMessage {
            location = ValueLocation(
                block: core.pointee.batchBlock, offset: UInt32(pool.used(core.pointee.batchBlock) - byteCount),
                byteCount: UInt32(byteCount))
        } else {
            location = keep(UnsafeRawBufferPointer(value), in: &core.pointee.keepBlock)
        }
        place(slot, at: location)
        slot.pointee.wakeAt = wakeAt
        index.touch(number)
        return location
    }

    private func putLogged(
        _ key: StoreKey, _ prior: PriorRow, _ byteCount: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation {
        var state = Operation.Prior.nothing
        if case .maybe = prior { state = .maybeCold }
        let value = writeOperation(.put, key, state, wakeAt: 0, coldAlarm: 0, byteCount: byteCount)
        write(value)
        let location = keep(UnsafeRawBufferPointer(value), in: &core.pointee.logBlock)
        pool.retain(location.block)
        loggedRows.append(key, ticket: core.pointee.lastTicket + 1, at: location)
        return location
    }

    package func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void) {
        check(key)
        precondition(key.table == .counters, "only rows of counts are added to")
        let number = index.findOrInsert(key)
        let slot = index[number]
        let prior = PriorRow.maybe(wakeAt: 0)
        let former = priorState(slot, prior)
        change.write(
            into: writeOperation(.add, key, former, wakeAt: 0, coldAlarm: 0, byteCount: change.byteCount))
        if !slot.pointee.isDeleted, !slot.pointee.isCollected, slot.pointee.byteCount == CountersRow.byteCount {
            // The row keeps its age: the spiller must write the sum with the segment of the first change.
            change.add(
                to: UnsafeMutableRawBufferPointer(
                    start: pool.start(slot.pointee.block) + Int(slot.pointee.offset), count: CountersRow.byteCount))
            return
        }
        enter(slot, prior)
        let location = makeRoom(CountersRow.byteCount, in: &core.pointee.keepBlock)
        total(
            UnsafeMutableRawBufferPointer(
                start: pool.start(location.block) + Int(location.offset), count: CountersRow.byteCount))
        place(slot, at: location)
        slot.pointee.wakeAt = 0
        index.touch(number)
    }

    private func place(_ slot: UnsafeMutablePointer<YoungSlot>, at location: ValueLocation) {
        pool.retain(location.block)
        slot.pointee.isDeleted = false
        slot.pointee.block = location.block
        slot.pointee.offset = location.offset
        slot.pointee.byteCount = location.byteCount
    }

    package func delete(_ key: StoreKey, prior: PriorRow) {
        check(key)
        precondition(!key.table.isEphemeral, "ephemeral rows are not deleted by name")
        if prior == .none, index.find(key) == nil { return }  // nothing here, nothing there
        let number = index.findOrInsert(key)
        let slot = index[number]
        let former = priorState(slot, prior)
        _ = writeOperation(.delete, key, former, wakeAt: 0, coldAlarm: coldAlarm(slot, prior), byteCount: 0)
        enter(slot, prior)
        slot.pointee.isDeleted = true
        slot.pointee.wakeAt = 0
        // A row that the ordered store never had needs no record of its deletion.
        if slot.pointee.mayBeCold { index.touch(number) } else { index.remove(number) }
    }

    package func endBatch() -> Ticket {
        precondition(core.pointee.isBatchOpen, "no batch is open")
        core.pointee.isBatchOpen = false
        endRecord()
        return core.pointee.lastTicket
    }

    private func endRecord() {
        let last = UnsafeRawBufferPointer(
            start: pool.start(core.pointee.batchBlock) + core.pointee.pieceOffset,
            count: pool.used(core.pointee.batchBlock) - core.pointee.pieceOffset)
        let bodyByteCount = core.pointee.earlierByteCount + last.count - RecordHeader.byteCount
        let recordByteCount = RecordHeader.recordByteCount(bodyByteCount: bodyByteCount)
        var checksum: UInt32 = 0
        for (number, piece) in core.pointee.pieces[core.pointee.firstPiece...].enumerated() {
            let skipped = number == 0 ? RecordHeader.byteCount : 0
            checksum = Checksum.crc32c(
                UnsafeRawBufferPointer(start: piece.start + skipped, count: piece.byteCount - skipped), seed: checksum)
        }
        let skipped = core.pointee.firstPiece == core.pointee.pieces.count ? RecordHeader.byteCount : 0
        checksum = Checksum.crc32c(UnsafeRawBufferPointer(rebasing: last[skipped...]), seed: checksum)

        let padding = recordByteCount - RecordHeader.byteCount - bodyByteCount
        let padOffset = pool.advance(core.pointee.batchBlock, by: padding)  // `reserve` left room for it
        (pool.start(core.pointee.batchBlock) + padOffset).initializeMemory(as: UInt8.self, repeating: 0, count: padding)
        core.pointee.lastTicket += 1
        core.pointee.pieces.append(
            BatchPiece(
                start: pool.start(core.pointee.batchBlock) + core.pointee.pieceOffset,
                byteCount: pool.used(core.pointee.batchBlock) - core.pointee.pieceOffset,
                recordByteCount: 0, ticket: 0))
        core.pointee.pieces[core.pointee.firstPiece].recordByteCount = recordByteCount
        core.pointee.pieces[core.pointee.firstPiece].ticket = core.pointee.lastTicket
        RecordHeader.write(
            bodyByteCount: bodyByteCount, bucket: core.pointee.openBucket, operationCount: core.pointee.operationCount,
            bodyChecksum: checksum, ticket: core.pointee.lastTicket,
            to: core.pointee.pieces[core.pointee.firstPiece].start)
        core.pointee.pieceByteCount += recordByteCount
        let untold = core.pointee.pieceByteCount - core.pointee.announcedByteCount
        if untold >= Limits.announcedByteCount {
            // A turn may encode more bytes than the store's bound. Other loops must count the bytes before the turn ends.
            log.announce(byteCount: untold)
            core.pointee.announcedByteCount += untold
        }
    }

    /// Submits the turn's batches to the log.
    ///
    /// The loop calls this once at the end of each turn.
    ///
    /// - Parameter awaited: The last ticket that the loop waits for. Batches that no caller waits for may take some milliseconds
    ///   longer.
    package func turnEnded(awaited: Ticket = .max) {
        precondition(!core.pointee.isBatchOpen, "a batch is open at the end of a turn")
        guard !core.pointee.pieces.isEmpty else { return }
        log.submit(
            core.pointee.pieces, shard: logNumber, byteCount: core.pointee.pieceByteCount,
            announcedByteCount: core.pointee.announcedByteCount, isAwaited: awaited > core.pointee.submittedTicket)
        core.pointee.submittedTicket = core.pointee.lastTicket
        core.pointee.pieces.removeAll(keepingCapacity: true)
        core.pointee.pieceByteCount = 0
        core.pointee.announcedByteCount = 0
    }

    /// Frees unused memory; call about once a second.
    package func secondPassed() {
        core.pointee.seconds &+= 1
        if core.pointee.seconds % Limits.spareSeconds == 0 { pool.dropUnusedSpares() }
    }

    package var acceptsWrites: Bool { owner.acceptsWrites(beside: untoldByteCount) }
    package var isShortOfRoom: Bool { owner.isShortOfRoom(beside: untoldByteCount) }

    /// Whether a push to a list may continue; such pushes leave half of the space to single pushes, which cannot be delayed.
    package var hasRoomForLists: Bool { owner.hasRoomForLists(beside: untoldByteCount) }
    package var isStuck: Bool { owner.isStuck }

    /// The bytes encoded in this turn that the log does not count yet.
    private var untoldByteCount: Int { core.pointee.pieceByteCount - core.pointee.announcedByteCount }

    @inline(__always) private func check(_ key: StoreKey) {
        precondition(
            core.pointee.isBatchOpen && key.bucket.index == core.pointee.openBucket,
            "the row is not in the open batch's bucket")
        precondition(key.hasItems || key.item == 0, "this table has item 0 only")
    }

    private func tell(_ kind: StoreBreach.Kind, _ key: StoreKey) { observer?.storeBreached(StoreBreach(kind, key)) }

    /// Closes the open record and continues the batch in another one.
    private func splitBatch(_ key: StoreKey) {
        tell(
            .longBatch(operationCount: core.pointee.operationCount, byteCount: core.pointee.batchByteCount), key)
        endRecord()
        beginRecord()
    }

    /// Writes an operation's header; returns the space for its value.
    @inline(__always) private func writeOperation(
        _ kind: Operation.Kind, _ key: StoreKey, _ prior: Operation.Prior, wakeAt: Int64, coldAlarm: Int64,
        byteCount: Int
    ) -> UnsafeMutableRawBufferPointer {
        let most = OperationHeader.largestByteCount + byteCount
        if core.pointee.operationCount == StoreBounds.operationCount
            || core.pointee.batchByteCount + most > batchByteCount
        {
            splitBatch(key)
        }
        let isOwnerAsBefore =
            core.pointee.operationCount > 0 && core.pointee.ownerLow == key.ownerLow
            && core.pointee.ownerHigh == key.ownerHigh
        (core.pointee.ownerHigh, core.pointee.ownerLow) = (key.ownerHigh, key.ownerLow)
        let header = OperationHeader(
            kind, table: key.table.rawValue, prior: prior, ownerHigh: key.ownerHigh, ownerLow: key.ownerLow,
            isOwnerAsBefore: isOwnerAsBefore, item: key.item, wakeAt: wakeAt, coldAlarm: coldAlarm,
            valueByteCount: byteCount)
        let start = reserve(header.byteCount + byteCount)
        header.write(to: start)
        return UnsafeMutableRawBufferPointer(start: start + header.byteCount, count: byteCount)
    }

    /// Reserves space in the batch's blocks, with room for the record's padding; the caller has checked the batch's size.
    @inline(__always) private func reserve(_ byteCount: Int) -> UnsafeMutableRawPointer {
        core.pointee.batchByteCount += byteCount
        if pool.room(core.pointee.batchBlock) < byteCount + 8 {
            let start = pool.start(core.pointee.batchBlock) + core.pointee.pieceOffset
            let pieceSize = pool.used(core.pointee.batchBlock) - core.pointee.pieceOffset
            core.pointee.pieces.append(BatchPiece(start: start, byteCount: pieceSize, recordByteCount: 0, ticket: 0))
            core.pointee.earlierByteCount += pieceSize
            changeBatchBlock(atLeast: byteCount + 8)
            core.pointee.pieceOffset = 0
        }
        core.pointee.operationCount += 1
        return pool.start(core.pointee.batchBlock) + pool.advance(core.pointee.batchBlock, by: byteCount)
    }

    private func changeBatchBlock(atLeast byteCount: Int) {
        // Use the open batch's ticket, because some of its bytes may be in the block.
        pool.fill(core.pointee.batchBlock, lastTicket: core.pointee.lastTicket + 1)
        core.pointee.batchBlock = pool.take(atLeast: byteCount, isAwaited: true)
    }

    private func keep(_ value: UnsafeRawBufferPointer, in current: inout UInt32) -> ValueLocation {
        let location = makeRoom(value.count, in: &current)
        if let start = value.baseAddress, !value.isEmpty {
            (pool.start(location.block) + Int(location.offset)).copyMemory(from: start, byteCount: value.count)
        }
        return location
    }

    private func makeRoom(_ byteCount: Int, in current: inout UInt32) -> ValueLocation {
        if pool.room(current) < byteCount {
            pool.fill(current, lastTicket: 0)
            current = pool.take(atLeast: byteCount, isAwaited: false)
        }
        let offset = pool.advance(current, by: byteCount)
        return ValueLocation(block: current, offset: UInt32(offset), byteCount: UInt32(byteCount))
    }

    /// Returns the row's state before the operation: from the index if it has the row, otherwise from the caller.
    @inline(__always) private func priorState(
        _ slot: UnsafeMutablePointer<YoungSlot>, _ prior: PriorRow
    ) -> Operation.Prior {
        // The index is more reliable than the caller about the ordered store's content.
        guard slot.pointee.isNew else { return slot.pointee.mayBeCold ? .maybeCold : .journalOnly }
        return prior == .none ? .nothing : .maybeCold
    }

    @inline(__always) private func coldAlarm(_ slot: UnsafeMutablePointer<YoungSlot>, _ prior: PriorRow) -> Int64 {
        guard slot.pointee.isNew, case .maybe(let alarm) = prior else { return slot.pointee.coldAlarm }
        return alarm
    }

    /// Updates a slot before its new value is stored.
    @inline(__always) private func enter(
        _ slot: UnsafeMutablePointer<YoungSlot>, _ prior: PriorRow, keepsPlace: Bool = false
    ) {
        slot.pointee.version &+= 1
        slot.pointee.isCollected = false
        slot.pointee.ticket = core.pointee.lastTicket + 1
        guard slot.pointee.isNew else {
            if !slot.pointee.isDeleted, !keepsPlace { pool.release(slot.pointee.block) }
            return
        }
        slot.pointee.isNew = false
        guard case .maybe(let alarm) = prior else { return }
        slot.pointee.mayBeCold = true
        slot.pointee.coldAlarm = alarm
    }

    // MARK: Young rows

    package func value(at location: ValueLocation) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(
            start: pool.start(location.block) + Int(location.offset), count: Int(location.byteCount))
    }

    package func young(_ key: StoreKey) -> YoungLookup {
        if key.table.isLogged { return loggedRows.find(key).map { .found($0, wakeAt: 0) } ?? .unknown }
        guard let number = index.find(key) else { return .unknown }
        let slot = index[number]
        if slot.pointee.isDeleted { return .deleted }
        return .found(
            ValueLocation(
                block: slot.pointee.block, offset: slot.pointee.offset, byteCount: slot.pointee.byteCount),
            wakeAt: slot.pointee.wakeAt)
    }

    package func isCertainlyAbsent(_ key: StoreKey) -> Bool {
        switch young(key) {
        case .found: return false
        case .deleted: return true
        case .unknown: break
        }
        if !mayBeCold[Int(key.table.rawValue)] { return true }
        guard key.table == .request, rows.hasOnlyKnownRequests else { return false }
        return !filter.mayContain(key, oldest: rows.oldestRequestPeriod)
    }

    func noteCold(_ key: StoreKey, wakeAt: Int64, period: Int64) {
        mayBeCold[Int(key.table.rawValue)] = true
        if key.table == .request { filter.insert(key, period: period) }
        if wakeAt != 0 { clock.add(Alarm(wakeAt: wakeAt, key: key)) }
    }

    package var youngRowCount: Int { index.slotCount + loggedRows.count }
    package var blockByteCount: Int { pool.byteCount }

    /// Visits every cold row of a table in this shard's buckets.
    ///
    /// Call before the shard's first write.
    ///
    /// - Parameters:
    ///   - table: A table that is not ephemeral.
    ///   - body: Called with each row, ordered by key within a bucket. The row is valid during the call.
    /// - Throws: `.database` when a block cannot be read.
    package func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) throws(StoreError) {
        precondition(core.pointee.lastTicket == 0, "loadAll belongs before the first write")
        try rows.loadAll(
            table: table, buckets: AlarmClock.buckets(shardIndex: shardIndex, shardCount: shardCount), body)
    }

    // MARK: The loop's turn

    /// Processes the mailbox on the loop: first commits, then replies, then cooled rows.
    func drain() {
        guard !isClosed else { return }
        let committed = mailbox.take(&content)
        if committed > core.pointee.committedTicket {
            core.pointee.committedTicket = committed
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
        filter.drop(before: rows.oldestRequestPeriod)
    }

    /// Closes the store on its loop.
    ///
    /// No callbacks arrive afterwards. Batches that `turnEnded()` has not submitted are lost; submitted ones are written. The
    /// store spills no rows of this shard afterwards, so only the journal has them.
    package func close() {
        isClosed = true
        log.announce(byteCount: -core.pointee.announcedByteCount)
        core.pointee.announcedByteCount = 0
        mailbox.shard = nil
        observer = nil
        owner.retire(self)
    }
}
