// An in-memory shard store for long runs: the cost of an operation, except a restart, does not grow with the number of rows.
//
// The world decides when a batch becomes durable, when a read is answered and which rows become cold. The rules for rows are
// those of the embedded store; the conformance suite in TestKit checks this store, too.

package import Delivery
package import Wire

/// An observer of a store's rows.
package protocol StoreWitness: AnyObject {
    /// Reports a written, visible row; it is durable only after `batchBecameDurable` names its ticket.
    func rowWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, ticket: Ticket)
    func batchBecameDurable(_ operations: [SimulatedStore.Operation], ticket: Ticket)
}

package final class SimulatedStore: WorldStore {
    package weak var observer: (any ShardStoreObserver)?
    package weak var witness: (any StoreWitness)?

    package var acceptsWrites = true
    package var batchByteCount = StoreBounds.smallestBatchByteCount
    package var isShortOfRoom = false
    package private(set) var committedTicket: Ticket = 0
    /// The last batch that survives a crash; the shard is notified later.
    package private(set) var durableTicket: Ticket = 0
    /// The caller's violations of the store contract.
    package private(set) var violations: [String] = []
    /// The tables for which `isCertainlyAbsent` is exact.
    package var filteredTables: Set<StoreKey.Table> = [.request]
    /// Called for each read with its token.
    package var onRead: ((ReadToken, _ isForAlarms: Bool) -> Void)?

    package enum Operation {
        case put(StoreKey, Value)
        case delete(StoreKey)
        /// The witness receives it as `.put` of the sum.
        case add(StoreKey, CounterChange)
    }

    package final class Value {
        let wakeAt: Int64
        let bytes: UnsafeRawBufferPointer

        init(copying source: UnsafeRawBufferPointer, wakeAt: Int64) {
            let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: max(source.count, 1), alignment: 8)
            copy.copyMemory(from: source)
            bytes = UnsafeRawBufferPointer(rebasing: copy[0..<source.count])
            self.wakeAt = wakeAt
        }

        deinit { bytes.deallocate() }
    }

    private final class Cell {
        let key: StoreKey
        var durable: Value?
        var cold: Value?
        var isYoung = false
        /// 0 while the young row is a deletion.
        var block: UInt32 = 0
        var byteCount = 0
        var wakeAt: Int64 = 0
        var mayBeCold = false
        var ticket: Ticket = 0
        var order = 0
        /// The alarm that was already reported for the row; 0 if none.
        var reportedAlarm: Int64 = 0

        init(_ key: StoreKey) { self.key = key }

        var isPresent: Bool { isYoung ? block != 0 : cold != nil }
    }

    private struct PartitionKey: Hashable {
        var high: UInt64
        var low: UInt64
        var table: UInt8
        func hash(into hasher: inout Hasher) {
            hasher.combine(low)
            hasher.combine(table)
        }
    }

    private enum Request {
        case reads([StoreRead])
        case alarms(AlarmRequest)
    }

    private struct Alarm {
        var time: Int64
        var cell: Cell
        func comesBefore(_ other: Alarm) -> Bool {
            time != other.time ? time < other.time : cell.key < other.cell.key
        }
    }

    private struct Left {
        var time: Int64
        var group: AlarmGroup
        var until: Int64
    }
    /// The largest row of each table, for the check against `RowBounds`.
    package var rowByteCounts: [UInt8: Int] = [:]
    private var leftAlarms: [StoreKey: Left] = [:]

    private var cells: [StoreKey: Cell] = [:]
    private var partitions: [PartitionKey: [Cell]] = [:]
    private var youngOrder: [(cell: Cell, order: Int)] = []
    private var youngHead = 0
    private var alarms: [Alarm] = []
    /// The alarm reads that a fresh start answers without an alarm, because its scan is not complete.
    private var alarmReadsInVain = 0
    private var blocks: [UnsafeMutableRawBufferPointer?] = [nil]
    private var freeBlocks: [UInt32] = []
    private var graveyard: [(UnsafeMutableRawBufferPointer, UInt32)] = []
    private var nextOrder = 0
    private var openBucket: Bucket?
    private var openOperations: [Operation] = []
    private var openByteCount = 0
    private var waiting: [(ticket: Ticket, operations: [Operation])] = []
    private var waitingHead = 0
    package private(set) var lastTicket: Ticket = 0
    private var lastToken: ReadToken = 0
    private var requests: [ReadToken: Request] = [:]

    package init() {}

    package func turnEnded() {}

    deinit {
        bury()
        for case let block? in blocks { block.deallocate() }
    }

    // MARK: The world's handles

    /// Makes every closed batch up to `ticket` durable without notifying the shard.
    package func makeDurable(upTo ticket: Ticket) {
        while waitingHead < waiting.count, waiting[waitingHead].ticket <= ticket {
            let batch = waiting[waitingHead]
            waiting[waitingHead].operations = []
            waitingHead += 1
            var operations = batch.operations
            for (index, operation) in operations.enumerated() {
                switch operation {
                case .put(let key, let value): cell(key).durable = value
                case .delete(let key): cells[key]?.durable = nil
                case .add(let key, let change):
                    // Adds to the durable row, as recovery does, and not to the sum in memory.
                    let cell = cell(key)
                    let sum = change.added(to: cell.durable.map { [UInt8]($0.bytes) }, key)
                    let value = sum.withUnsafeBytes { Value(copying: $0, wakeAt: 0) }
                    cell.durable = value
                    operations[index] = .put(key, value)
                }
            }
            durableTicket = batch.ticket
            witness?.batchBecameDurable(operations, ticket: batch.ticket)
        }
        if waitingHead > 1_000 || waitingHead == waiting.count {
            waiting.removeFirst(waitingHead)
            waitingHead = 0
        }
    }

    /// Notifies the shard that everything up to `ticket` is durable.
    package func complete(upTo ticket: Ticket) {
        bury()
        guard ticket > committedTicket else { return }
        committedTicket = ticket
        observer?.storeCommitted(upTo: ticket)
    }

    /// The number of closed batches that are not durable.
    package var waitingBatchCount: Int { waiting.count - waitingHead }
    package var waitingTokens: [ReadToken] { requests.keys.sorted() }
    package var youngCount: Int { youngOrder.count - youngHead }

    /// Answers one read with the current rows.
    package func answer(_ token: ReadToken, failing: Bool) {
        bury()
        guard let request = requests.removeValue(forKey: token) else { return }
        guard !failing else {
            observer?.storeReplied(StoreReply(token: token, results: [], failure: "injected read failure"))
            return
        }
        let kept = Kept()
        let results: [StoreReadResult]
        switch request {
        case .reads(let reads):
            results = reads.map { answer($0, into: kept) }
        case .alarms(let request): results = [answerAlarms(request, into: kept)]
        }
        observer?.storeReplied(StoreReply(token: token, results: results, owner: kept))
    }

    /// Makes at most `limit` committed young rows cold, oldest first, except those that `isSpared` selects.
    ///
    /// - Returns: the number of rows that became cold.
    @discardableResult
    package func cool(limit: Int, isSpared: (StoreKey) -> Bool = { _ in false }) -> Int {
        bury()
        var left: [(cell: Cell, order: Int)] = []
        var count = 0
        while youngHead < youngOrder.count, count < limit {
            let (cell, order) = youngOrder[youngHead]
            guard cell.isYoung, cell.order == order else {
                youngHead += 1
                continue
            }
            guard cell.ticket <= committedTicket else { break }
            youngHead += 1
            if isSpared(cell.key) {
                left.append((cell, order))
                continue
            }
            count += 1
            turnCold(cell)
        }
        if youngHead > 2_000 || youngHead == youngOrder.count {
            youngOrder.removeFirst(youngHead)
            youngHead = 0
        }
        youngOrder.append(contentsOf: left)
        return count
    }

    private func turnCold(_ cell: Cell) {
        cell.isYoung = false
        guard cell.block != 0 else {
            cell.cold = nil
            dropIfEmpty(cell)
            return
        }
        cell.cold = Value(copying: value(cell), wakeAt: cell.wakeAt)
        cell.reportedAlarm = 0
        retire(cell)
        if cell.wakeAt != 0 { push(Alarm(time: cell.wakeAt, cell: cell)) }
        if Self.isReportedWhenCooled(cell.key) { observer?.storeCooled(cell.key) }
    }

    /// Returns the rows that survive a crash: the durable rows and the first `keepingTail` batches that were written, but not
    /// synced.
    func survivors(keepingTail: Int) -> [StoreKey: Value] {
        if keepingTail > 0, waitingHead < waiting.count {
            let last = waiting[min(waiting.count, waitingHead + keepingTail) - 1].ticket
            makeDurable(upTo: last)
        }
        return durableRows
    }

    var durableRows: [StoreKey: Value] { cells.compactMapValues(\.durable) }

    package func reopened() -> SimulatedStore {
        let store = SimulatedStore()
        store.rowByteCounts = rowByteCounts
        store.load(survivors(keepingTail: 0))
        return store
    }

    /// Fills an empty store with cold rows.
    func load(_ rows: [StoreKey: Value]) {
        for key in rows.keys.sorted() {
            guard let value = rows[key] else { continue }
            let cell = cell(key)
            (cell.durable, cell.cold) = (value, value)
            insert(cell)
            if value.wakeAt != 0 { push(Alarm(time: value.wakeAt, cell: cell)) }
        }
        alarmReadsInVain = alarms.isEmpty ? 0 : 2
    }

    /// Drops all ephemeral rows; the embedded store drops those older than a day.
    @discardableResult
    package func dropEphemeralRows() -> Bool {
        bury()
        for key in cells.keys.filter({ $0.table.isEphemeral }) {
            guard let cell = cells[key] else { continue }
            if cell.isYoung, cell.ticket > durableTicket { continue }
            if cell.isYoung, cell.block != 0 { retire(cell) }
            (cell.isYoung, cell.cold, cell.durable) = (false, nil, nil)
            cells[key] = nil
        }
        return true
    }

    package func rowCount(_ table: StoreKey.Table) -> Int {
        var count = 0
        for (key, cell) in cells where key.table == table && cell.isPresent { count += 1 }
        return count
    }

    package func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) {
        for key in cells.keys.filter({ $0.table == table }).sorted() {
            guard let value = cells[key]?.durable else { continue }
            body(StoredRow(key: key, wakeAt: value.wakeAt, value: value.bytes))
        }
    }

    // MARK: Writing

    package func beginBatch(_ bucket: Bucket) {
        precondition(openBucket == nil, "batches do not nest")
        openBucket = bucket
        openByteCount = 48
    }

    @discardableResult
    package func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation {
        check(key)
        var wakeAt = wakeAt
        if byteCount > StoreBounds.valueByteCount {
            let isFit = 48 + StoreBounds.operationByteCount + byteCount <= batchByteCount
            breach(isFit ? .largeValue(byteCount: byteCount) : .unfitValue(byteCount: byteCount), key)
            guard isFit else { return ValueLocation(block: 0, offset: 0, byteCount: 0) }
        }
        if let most = rowByteCounts[key.table.rawValue], byteCount > most {
            violations.append("a row of \(byteCount) bytes, above its table's \(most): \(key)")
        }
        if wakeAt != 0, !Self.isReportedWhenCooled(key) {
            breach(.alarm, key)
            wakeAt = 0
        }
        reserve(StoreBounds.operationByteCount + byteCount, key)
        let cell = cell(key)
        judge(prior, cell)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: max(byteCount, 1), alignment: 8)
        write(UnsafeMutableRawBufferPointer(rebasing: buffer[0..<byteCount]))
        let location = enter(cell, prior, buffer, byteCount: byteCount, wakeAt: wakeAt)
        let bytes = UnsafeRawBufferPointer(rebasing: buffer[0..<byteCount])
        openOperations.append(.put(key, Value(copying: bytes, wakeAt: wakeAt)))
        witness?.rowWritten(key, bytes, ticket: lastTicket + 1)
        return location
    }

    /// Sets a cell's new young value.
    private func enter(
        _ cell: Cell, _ prior: PriorRow, _ buffer: UnsafeMutableRawBufferPointer, byteCount: Int, wakeAt: Int64
    ) -> ValueLocation {
        let wasPresent = cell.isPresent
        makeYoung(cell, prior)
        let block: UInt32
        if let recycled = freeBlocks.popLast() {
            block = recycled
            blocks[Int(block)] = buffer
        } else {
            block = UInt32(blocks.count)
            blocks.append(buffer)
        }
        (cell.block, cell.byteCount, cell.wakeAt) = (block, byteCount, wakeAt)
        if !wasPresent { insert(cell) }
        return ValueLocation(block: block, offset: 0, byteCount: UInt32(byteCount))
    }

    package func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void) {
        check(key)
        reserve(StoreBounds.operationByteCount + change.byteCount, key)
        let cell = cell(key)
        let before = cell.isYoung ? (cell.block == 0 ? nil : [UInt8](value(cell))) : cell.cold.map { [UInt8]($0.bytes) }
        let sum = change.added(to: before, key)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: sum.count, alignment: 8)
        total(buffer)
        if !buffer.elementsEqual(sum) { violations.append("the total is not the sum of its changes: \(key)") }
        _ = enter(cell, .maybe(wakeAt: 0), buffer, byteCount: sum.count, wakeAt: 0)
        openOperations.append(.add(key, change))
        witness?.rowWritten(key, UnsafeRawBufferPointer(buffer), ticket: lastTicket + 1)
    }

    package func delete(_ key: StoreKey, prior: PriorRow) {
        check(key)
        precondition(!key.table.isEphemeral, "ephemeral rows are not deleted by name")
        reserve(StoreBounds.operationByteCount, key)
        let cell = cell(key)
        judge(prior, cell)
        if cell.isPresent { removeFromPartition(cell) }
        makeYoung(cell, prior)
        cell.block = 0
        if !cell.mayBeCold {
            cell.isYoung = false  // The row was never cold, so no deletion has to be recorded.
            if cell.durable == nil { dropIfEmpty(cell) }
        }
        openOperations.append(.delete(key))
    }

    package func endBatch() -> Ticket {
        precondition(openBucket != nil, "no batch is open")
        openBucket = nil
        closeBatch()
        return lastTicket
    }

    private func closeBatch() {
        lastTicket += 1
        waiting.append((lastTicket, openOperations))
        openOperations = []
    }

    /// Closes the open batch and starts another if the operation does not fit.
    private func reserve(_ byteCount: Int, _ key: StoreKey) {
        if openOperations.count == StoreBounds.operationCount || openByteCount + byteCount > batchByteCount {
            breach(.longBatch(operationCount: openOperations.count, byteCount: openByteCount), key)
            closeBatch()
            openByteCount = 48
        }
        openByteCount += byteCount
    }

    private func breach(_ kind: StoreBreach.Kind, _ key: StoreKey) {
        let breach = StoreBreach(kind, key)
        violations.append("\(breach)")
        observer?.storeBreached(breach)
    }

    private func makeYoung(_ cell: Cell, _ prior: PriorRow) {
        if cell.isYoung {
            if cell.block != 0 { retire(cell) }
        } else {
            cell.mayBeCold = prior != .none
            cell.isYoung = true
        }
        nextOrder += 1
        (cell.order, cell.ticket) = (nextOrder, lastTicket + 1)
        youngOrder.append((cell, nextOrder))
    }

    private func check(_ key: StoreKey) {
        precondition(openBucket == key.bucket, "the row is not in the open batch's bucket")
        precondition(key.table.hasItems || key.item == 0, "this table has item 0 only")
    }

    private static func isReportedWhenCooled(_ key: StoreKey) -> Bool { key.table.hasAlarms }

    private func judge(_ prior: PriorRow, _ cell: Cell) {
        let present: Int64? = cell.isYoung ? (cell.block == 0 ? nil : cell.wakeAt) : cell.cold?.wakeAt
        switch (prior, present) {
        case (.none, .some) where !cell.isYoung:
            violations.append("prior is none, but a cold row stands under \(cell.key)")
        case (.maybe(let named), .some(let actual)) where named != actual:
            violations.append("prior names the alarm \(named), but the row's is \(actual): \(cell.key)")
        default: break
        }
    }

    // MARK: Cells

    private func cell(_ key: StoreKey) -> Cell {
        if let cell = cells[key] { return cell }
        let cell = Cell(key)
        cells[key] = cell
        return cell
    }

    private func dropIfEmpty(_ cell: Cell) {
        if !cell.isYoung, cell.cold == nil, cell.durable == nil { cells[cell.key] = nil }
    }

    private static func hasPartitions(_ key: StoreKey) -> Bool {
        key.table.hasItems
    }

    private static func partitionKey(_ key: StoreKey) -> PartitionKey {
        PartitionKey(
            high: key.ownerHigh ^ UInt64(key.bucket.index) << 52, low: key.ownerLow, table: key.table.rawValue)
    }

    private func insert(_ cell: Cell) {
        guard Self.hasPartitions(cell.key) else { return }
        let item = cell.key.item
        var list: [Cell] = []
        let place = Self.partitionKey(cell.key)
        swap(&list, &partitions[place, default: []])
        var index = list.count
        while index > 0, list[index - 1].key.item > item { index -= 1 }
        list.insert(cell, at: index)
        swap(&list, &partitions[place, default: []])
    }

    private func removeFromPartition(_ cell: Cell) {
        guard Self.hasPartitions(cell.key) else { return }
        let place = Self.partitionKey(cell.key)
        partitions[place]?.removeAll { $0 === cell }
    }

    private func value(_ cell: Cell) -> UnsafeRawBufferPointer {
        guard let buffer = blocks[Int(cell.block)] else { preconditionFailure("a young row without bytes") }
        return UnsafeRawBufferPointer(rebasing: buffer[0..<cell.byteCount])
    }

    /// Overwrites a dead value at once to expose stale pointers; the buffer is freed in the world's next step.
    private func retire(_ cell: Cell) {
        guard let buffer = blocks[Int(cell.block)] else { return }
        blocks[Int(cell.block)] = nil
        buffer.initializeMemory(as: UInt8.self, repeating: 0xDD)
        graveyard.append((buffer, cell.block))
        cell.block = 0
    }

    private func bury() {
        guard !graveyard.isEmpty else { return }
        for (buffer, block) in graveyard {
            buffer.deallocate()
            freeBlocks.append(block)
        }
        graveyard.removeAll(keepingCapacity: true)
    }

    // MARK: Reading

    package func value(at location: ValueLocation) -> UnsafeRawBufferPointer {
        guard location.block > 0 else { return UnsafeRawBufferPointer(start: nil, count: 0) }  // The write was refused.
        guard let buffer = blocks[Int(location.block)] else {
            preconditionFailure("this location is no longer valid: its row was overwritten, deleted or cooled")
        }
        return UnsafeRawBufferPointer(rebasing: buffer[0..<Int(location.byteCount)])
    }

    package func young(_ key: StoreKey) -> YoungLookup {
        guard let cell = cells[key], cell.isYoung else { return .unknown }
        guard cell.block != 0 else { return .deleted }
        return .found(
            ValueLocation(block: cell.block, offset: 0, byteCount: UInt32(cell.byteCount)), wakeAt: cell.wakeAt)
    }

    package func isCertainlyAbsent(_ key: StoreKey) -> Bool {
        guard let cell = cells[key] else { return filteredTables.contains(key.table) }
        if cell.isYoung { return cell.block == 0 }
        return filteredTables.contains(key.table) && cell.cold == nil
    }

    package func read(_ reads: [StoreRead]) -> ReadToken {
        lastToken += 1
        requests[lastToken] = .reads(reads)
        onRead?(lastToken, false)
        return lastToken
    }

    package func requestAlarms(_ request: AlarmRequest) -> ReadToken {
        lastToken += 1
        requests[lastToken] = .alarms(request)
        onRead?(lastToken, true)
        return lastToken
    }

    package var nextAlarm: Int64 {
        dropStaleAlarms()
        return alarmReadsInVain > 0 ? 0 : alarms.first?.time ?? .max
    }

    package var alarmGroups: [AlarmGroup] {
        var groups: [AlarmGroup] = []
        for (_, left) in currentLeft() where !groups.contains(left.group) { groups.append(left.group) }
        return groups
    }

    package func nextAlarm(of group: AlarmGroup) -> Int64 {
        currentLeft().reduce(Int64.max) { $1.1.group == group ? min($0, $1.1.until) : $0 }
    }

    package func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64) {
        if cells[key]?.isYoung != false || cells[key]?.cold?.wakeAt != wakeAt {
            violations.append("an alarm is given back that the store does not have: \(key)")
        }
        leftAlarms[key] = Left(time: wakeAt, group: group, until: until)
    }

    package func recallAlarms(of group: AlarmGroup, in bucket: Bucket) {
        for (key, left) in leftAlarms where left.group == group && key.bucket == bucket { leftAlarms[key]?.until = 0 }
    }

    /// Returns the alarms left in groups whose rows are unchanged, oldest first.
    private func currentLeft() -> [(StoreKey, Left)] {
        guard !leftAlarms.isEmpty else { return [] }
        leftAlarms = leftAlarms.filter { key, left in
            guard let cell = cells[key], !cell.isYoung else { return false }
            return cell.cold?.wakeAt == left.time
        }
        return leftAlarms.sorted { ($0.value.time, $0.key) < ($1.value.time, $1.key) }
    }

    private func isSucceeded(_ key: StoreKey, _ row: Value, _ request: AlarmRequest) -> Bool {
        request.successor(of: key, row.bytes).map { cells[$0]?.isPresent == true } ?? false
    }

    private func answerGroup(_ group: AlarmGroup, _ request: AlarmRequest, into kept: Kept) -> StoreReadResult {
        var rows: [StoredRow] = []
        for (key, left) in currentLeft()
        where left.group == group && (request.isEager || left.until <= request.time) {
            guard rows.count < request.limit else { return .rows(rows, isComplete: false) }
            guard let value = cells[key]?.cold else { continue }
            switch request.judge(key, value.bytes) {
            case .leave(_, let until): leftAlarms[key]?.until = until
            case .take:
                if !isSucceeded(key, value, request) { rows.append(kept.row(key, value)) }
                leftAlarms[key] = nil
            case .pass: leftAlarms[key] = nil
            }
        }
        return .rows(rows, isComplete: true)
    }

    private func answer(_ read: StoreRead, into kept: Kept) -> StoreReadResult {
        switch read {
        case .get(let key):
            guard let cell = cells[key], cell.isPresent else { return .row(nil) }
            return .row(kept.row(cell.key, visible(cell)))
        case .scan(let start, let rowLimit, let byteLimit):
            var rows: [StoredRow] = []
            var byteCount = 0
            for cell in partition(start) {
                let row = visible(cell)
                if !rows.isEmpty, rows.count >= rowLimit || byteCount + row.bytes.count > byteLimit {
                    return .rows(rows, isComplete: false)
                }
                rows.append(kept.row(cell.key, row))
                byteCount += row.bytes.count
            }
            return .rows(rows, isComplete: true)
        case .measure(let start, let rowLimit):
            var (count, bytes, first, last) = (0, 0, UInt64(0), UInt64(0))
            for cell in partition(start) {
                guard count < rowLimit else { break }
                if count == 0 { first = cell.key.item }
                last = cell.key.item
                count += 1
                bytes += cell.isYoung ? cell.byteCount : cell.cold?.bytes.count ?? 0
            }
            return .measure(rowCount: count, byteCount: bytes, firstItem: first, lastItem: last)
        case .search(let bucket, let table, let matches):
            let found = cells.values.filter { cell in
                guard cell.key.bucket == bucket, cell.key.table == table, let cold = cell.cold else { return false }
                return Array(cold.bytes).withUnsafeBytes(matches)
            }
            guard let cell = found.min(by: { $0.key < $1.key }), cell.isPresent else { return .row(nil) }
            return .row(kept.row(cell.key, visible(cell)))
        case .traces(let bucket, let limit, let matches):
            let found = cells.values.filter { cell in
                guard cell.key.bucket == bucket, cell.key.table == .trace, cell.isPresent else { return false }
                return Array(visible(cell).bytes).withUnsafeBytes { matches(cell.key, $0) }
            }
            let newest = found.sorted { $1.key < $0.key }.prefix(limit)
            return .rows(newest.map { kept.row($0.key, visible($0)) }, isComplete: found.count <= limit)
        }
    }

    /// Returns the rows from a key on; most tables have one row per partition.
    private func partition(_ start: StoreKey) -> ArraySlice<Cell> {
        guard Self.hasPartitions(start) else {
            guard let cell = cells[start], cell.isPresent else { return [] }
            return [cell]
        }
        guard let list = partitions[Self.partitionKey(start)] else { return [] }
        return list[(list.firstIndex { $0.key.item >= start.item } ?? list.count)...]
    }

    private func visible(_ cell: Cell) -> Value {
        if cell.isYoung { return Value(copying: value(cell), wakeAt: cell.wakeAt) }
        guard let cold = cell.cold else { preconditionFailure("this row is not there") }
        return cold
    }

    private func answerAlarms(_ request: AlarmRequest, into kept: Kept) -> StoreReadResult {
        if let group = request.group { return answerGroup(group, request, into: kept) }
        guard alarmReadsInVain == 0 else {
            alarmReadsInVain -= 1
            return .rows([], isComplete: false)
        }
        var rows: [StoredRow] = []
        while rows.count < request.limit {
            dropStaleAlarms()
            guard let first = alarms.first, first.time <= request.time else { break }
            first.cell.reportedAlarm = first.time
            let row = visible(first.cell)
            switch request.judge(first.cell.key, row.bytes) {
            case .take:
                if !isSucceeded(first.cell.key, row, request) { rows.append(kept.row(first.cell.key, row)) }
            case .leave(let group, let until):
                leftAlarms[first.cell.key] = Left(time: first.time, group: group, until: until)
            case .pass: violations.append("an alarm of no group was passed: \(first.cell.key)")
            }
        }
        dropStaleAlarms()
        return .rows(rows, isComplete: (alarms.first?.time ?? .max) > request.time)
    }

    private func isCurrent(_ alarm: Alarm) -> Bool {
        guard !alarm.cell.isYoung, let cold = alarm.cell.cold else { return false }
        return cold.wakeAt == alarm.time && alarm.cell.reportedAlarm != alarm.time
    }

    private func dropStaleAlarms() {
        while let first = alarms.first, !isCurrent(first) { popAlarm() }
    }

    private func push(_ alarm: Alarm) {
        alarms.append(alarm)
        var index = alarms.count - 1
        while index > 0, alarm.comesBefore(alarms[(index - 1) / 2]) {
            alarms.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    private func popAlarm() {
        guard let last = alarms.popLast(), !alarms.isEmpty else { return }
        alarms[0] = last
        var index = 0
        while true {
            var child = index * 2 + 1
            guard child < alarms.count else { return }
            if child + 1 < alarms.count, alarms[child + 1].comesBefore(alarms[child]) { child += 1 }
            guard alarms[child].comesBefore(alarms[index]) else { return }
            alarms.swapAt(index, child)
            index = child
        }
    }

    /// The owner of the value bytes of a reply.
    private final class Kept {
        private var values: [Value] = []
        func row(_ key: StoreKey, _ value: Value) -> StoredRow {
            values.append(value)
            return StoredRow(key: key, wakeAt: value.wakeAt, value: value.bytes)
        }
    }
}
