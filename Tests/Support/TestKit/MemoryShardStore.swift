// An in-memory shard store for tests that control when disk work completes.
//
// A ticket commits only in `sync()`, a read is answered only in `deliverReplies()`, and a row becomes cold only in `cool()`.
// `crash()` drops unsynced writes and leaves every row cold, as a restart does. The rules for rows are those of the embedded
// store; one conformance suite checks both.

package import Delivery
package import Wire

/// The in-memory fake of `ShardStore`.
package final class MemoryShardStore: ShardStore {
    package weak var observer: (any ShardStoreObserver)?

    /// False simulates a journal at its size limit.
    package var acceptsWrites = true
    package var batchByteCount = StoreBounds.smallestBatchByteCount
    /// True simulates a journal near its size limit.
    package var isShortOfRoom = false
    package private(set) var committedTicket: Ticket = 0
    /// The tables for which `isCertainlyAbsent` is exact.
    package var filteredTables: Set<StoreKey.Table> = [.request]
    /// The numbers of the reads that fail.
    ///
    /// The first read is 1, and alarm requests count. See also `readsFailFrom`.
    package var failingReads: Set<Int> = []
    /// The number of the first read from which all reads fail.
    package var readsFailFrom = Int.max
    package private(set) var readCount = 0
    /// The caller's violations of the store contract, such as a wrong `PriorRow`; a test expects none.
    package private(set) var violations: [String] = []

    /// The operations of the largest batch, and its bytes with the largest header for each operation.
    package private(set) var largestBatch = (operations: 0, byteCount: 0)

    fileprivate struct Row {
        var value: [UInt8]
        var wakeAt: Int64
    }
    private struct Young {
        var location: ValueLocation?  // nil: deleted
        var wakeAt: Int64
        var mayBeCold: Bool
        var ticket: Ticket
        var order: Int
    }
    private enum Operation {
        case put(StoreKey, Row)
        case delete(StoreKey)
        case add(StoreKey, CounterChange)
    }
    private enum Request {
        case reads([StoreRead])
        case alarms(AlarmRequest)
    }

    private var durable: [StoreKey: Row] = [:]  // the rows that survive a crash
    private var cold: [StoreKey: Row] = [:]  // the rows that need a read
    private var young: [StoreKey: Young] = [:]
    private var reportedAlarms: [StoreKey: Int64] = [:]
    /// Alarms reported at another time than the row's, because the row's successor cannot be read.
    private var postponedAlarms: [StoreKey: (wakeAt: Int64, until: Int64)] = [:]
    private struct Left {
        var wakeAt: Int64
        var group: AlarmGroup
        var until: Int64
    }
    private var leftAlarms: [StoreKey: Left] = [:]
    private var values: [UInt32: UnsafeMutableRawBufferPointer] = [:]
    private var graveyard: [UnsafeMutableRawBufferPointer] = []
    private var nextBlock: UInt32 = 1
    private var nextOrder = 0
    private var openBucket: Bucket?
    private var openOperations: [Operation] = []
    private var openByteCount = 0
    private var waiting: [(ticket: Ticket, operations: [Operation])] = []
    private var lastTicket: Ticket = 0
    private var lastToken: ReadToken = 0
    private var requests: [(token: ReadToken, number: Int, request: Request)] = []

    package init() {}

    deinit {
        for value in values.values { value.deallocate() }
        for value in graveyard { value.deallocate() }
    }

    // MARK: Calls of the test

    /// Commits every closed batch, or those up to `ticket`, and notifies the observer.
    package func sync(upTo ticket: Ticket = .max) {
        bury()
        var reached: Ticket?
        while let first = waiting.first, first.ticket <= ticket {
            waiting.removeFirst()
            for operation in first.operations {
                switch operation {
                case .put(let key, let row): durable[key] = row
                case .delete(let key): durable[key] = nil
                case .add(let key, let change):
                    // Adds to the durable row, as recovery does, and not to the sum in memory.
                    durable[key] = Row(value: change.added(to: durable[key]?.value, key), wakeAt: 0)
                }
            }
            reached = first.ticket
        }
        guard let reached else { return }
        committedTicket = reached
        observer?.storeCommitted(upTo: reached)
    }

    /// Answers at most `limit` of the pending reads, oldest first; reads requested during the call stay pending.
    package func deliverReplies(limit: Int = .max) {
        let count = min(limit, requests.count)
        let now = Array(requests.prefix(count))
        requests.removeFirst(count)
        for (token, number, request) in now {
            let reply: StoreReply
            if failingReads.contains(number) || number >= readsFailFrom {
                reply = StoreReply(token: token, results: [], failure: "injected read failure")
            } else {
                let bytes = ReplyBytes()
                let results: [StoreReadResult] =
                    switch request {
                    case .reads(let reads): reads.map { answer($0, into: bytes) }
                    case .alarms(let request): [answerAlarms(request, into: bytes)]
                    }
                reply = StoreReply(token: token, results: results, owner: bytes)
            }
            observer?.storeReplied(reply)
        }
    }

    /// Makes committed young rows cold, oldest first: all of them, or those that `isChosen` selects.
    package func cool(where isChosen: (StoreKey) -> Bool = { _ in true }) {
        bury()
        let chosen = young.filter { $0.value.ticket <= committedTicket && isChosen($0.key) }
        for (key, row) in chosen.sorted(by: { $0.value.order < $1.value.order }) {
            guard young[key]?.order == row.order else { continue }  // The observer may have changed the row.
            young[key] = nil
            guard let location = row.location else {
                cold[key] = nil
                continue
            }
            cold[key] = Row(value: [UInt8](value(at: location)), wakeAt: row.wakeAt)
            reportedAlarms[key] = nil
            retire(location)
            if isReportedWhenCooled(key) { observer?.storeCooled(key) }
        }
    }

    /// Drops unsynced writes and makes every row cold.
    ///
    /// Also removes the observer and restarts tickets at 1.
    package func crash() {
        observer = nil
        cold = durable
        for row in young.values { if let location = row.location { retire(location) } }
        bury()
        young.removeAll()
        reportedAlarms.removeAll()
        postponedAlarms.removeAll()
        leftAlarms.removeAll()
        waiting.removeAll()
        requests.removeAll()
        (openBucket, openOperations) = (nil, [])
        (lastTicket, committedTicket) = (0, 0)
    }

    package struct Backup {
        fileprivate var rows: [StoreKey: Row]
    }

    package var backup: Backup { Backup(rows: durable) }

    /// Restores a backup and restarts as after a crash.
    ///
    /// With `tables`, rows of other tables stay, as if one of several Redis servers lost its last entries.
    package func restore(_ backup: Backup, tables: Set<StoreKey.Table>? = nil) {
        let kept = durable.filter { tables?.contains($0.key.table) == false }
        durable = backup.rows.filter { tables?.contains($0.key.table) ?? true }.merging(kept) { $1 }
        crash()
    }

    /// Drops all ephemeral rows; the embedded store drops those older than a day.
    package func dropEphemeralRows() {
        cold = cold.filter { !$0.key.table.isEphemeral }
        durable = durable.filter { !$0.key.table.isEphemeral }
        for (key, row) in young where key.table.isEphemeral {
            if let location = row.location { retire(location) }
            young[key] = nil
        }
    }

    /// The reads that wait for `deliverReplies()`.
    package var waitingReadCount: Int { requests.count }
    /// The batches that wait for `sync()`.
    package var waitingBatchCount: Int { waiting.count }

    /// Every row that the owner sees, synced or not.
    package var visibleRows: [StoreKey: (value: [UInt8], wakeAt: Int64)] {
        var rows = cold.mapValues { (value: $0.value, wakeAt: $0.wakeAt) }
        for (key, row) in young {
            rows[key] = row.location.map { ([UInt8](value(at: $0)), row.wakeAt) }
        }
        return rows
    }

    /// Every row that survives a crash.
    package var durableRows: [StoreKey: (value: [UInt8], wakeAt: Int64)] {
        durable.mapValues { ($0.value, $0.wakeAt) }
    }

    /// Passes each row of a table to `body`, as `EmbeddedStore.loadAll` does.
    package func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) {
        for (key, row) in visibleRows.sorted(by: { $0.key < $1.key }) where key.table == table {
            row.value.withUnsafeBytes { body(StoredRow(key: key, wakeAt: row.wakeAt, value: $0)) }
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
        if wakeAt != 0, !isReportedWhenCooled(key) {
            breach(.alarm, key)
            wakeAt = 0
        }
        reserve(StoreBounds.operationByteCount + byteCount, key)
        judge(prior, of: key)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: max(byteCount, 1), alignment: 8)
        write(UnsafeMutableRawBufferPointer(rebasing: buffer[0..<byteCount]))
        let location = ValueLocation(block: nextBlock, offset: 0, byteCount: UInt32(byteCount))
        values[nextBlock] = buffer
        nextBlock += 1
        replace(key, with: location, wakeAt: wakeAt, prior: prior)
        openOperations.append(.put(key, Row(value: [UInt8](value(at: location)), wakeAt: wakeAt)))
        return location
    }

    package func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void) {
        check(key)
        reserve(StoreBounds.operationByteCount + change.byteCount, key)
        let stored = change.encoded
        let sum = change.added(to: visible(key)?.value, key)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: sum.count, alignment: 8)
        total(buffer)
        if !buffer.elementsEqual(sum) { violations.append("the total is not the sum of its changes: \(key)") }
        values[nextBlock] = buffer
        let location = ValueLocation(block: nextBlock, offset: 0, byteCount: UInt32(sum.count))
        nextBlock += 1
        replace(key, with: location, wakeAt: 0, prior: .maybe(wakeAt: 0))
        openOperations.append(.add(key, stored.withUnsafeBytes { CounterChange($0) } ?? CounterChange()))
    }

    package func delete(_ key: StoreKey, prior: PriorRow) {
        check(key)
        precondition(!key.table.isEphemeral, "ephemeral rows are not deleted by name")
        reserve(StoreBounds.operationByteCount, key)
        judge(prior, of: key)
        replace(key, with: nil, wakeAt: 0, prior: prior)
        openOperations.append(.delete(key))
    }

    package func endBatch() -> Ticket {
        precondition(openBucket != nil, "no batch is open")
        openBucket = nil
        closeBatch()
        return lastTicket
    }

    private func closeBatch() {
        largestBatch = (max(largestBatch.operations, openOperations.count), max(largestBatch.byteCount, openByteCount))
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

    private func check(_ key: StoreKey) {
        precondition(openBucket == key.bucket, "the row is not in the open batch's bucket")
        precondition(key.table.hasItems || key.item == 0, "this table has item 0 only")
    }

    private func isReportedWhenCooled(_ key: StoreKey) -> Bool { key.table.hasAlarms }

    /// Checks the caller's claim about the previous row.
    private func judge(_ prior: PriorRow, of key: StoreKey) {
        let present: Int64?
        if let row = young[key] {
            present = row.location == nil ? nil : row.wakeAt
        } else {
            present = cold[key]?.wakeAt
        }
        switch (prior, present) {
        case (.none, .some) where young[key] == nil:
            violations.append("prior is none, but a cold row stands under \(key)")
        case (.maybe(let named), .some(let actual)) where named != actual:
            violations.append("prior names the alarm \(named), but the row's is \(actual): \(key)")
        default: break
        }
    }

    private func replace(_ key: StoreKey, with location: ValueLocation?, wakeAt: Int64, prior: PriorRow) {
        let former = young[key]
        if let old = former?.location { retire(old) }
        let mayBeCold = former?.mayBeCold ?? (prior != .none)
        if location == nil, !mayBeCold {
            young[key] = nil  // The row was never cold, so no deletion has to be recorded.
            return
        }
        nextOrder += 1
        young[key] = Young(
            location: location, wakeAt: wakeAt, mayBeCold: mayBeCold, ticket: lastTicket + 1, order: nextOrder)
    }

    /// Overwrites a dead value at once to expose stale pointers; the buffer is freed in the next step of the test.
    private func retire(_ location: ValueLocation) {
        guard let buffer = values.removeValue(forKey: location.block) else { return }
        for index in buffer.indices { buffer[index] = 0xDD }
        graveyard.append(buffer)
    }

    private func bury() {
        for buffer in graveyard { buffer.deallocate() }
        graveyard.removeAll()
    }

    // MARK: Reading

    package func value(at location: ValueLocation) -> UnsafeRawBufferPointer {
        guard location.block > 0 else { return UnsafeRawBufferPointer(start: nil, count: 0) }  // The write was refused.
        guard let buffer = values[location.block] else {
            preconditionFailure("this location is no longer valid: its row was overwritten, deleted or cooled")
        }
        return UnsafeRawBufferPointer(rebasing: buffer[0..<Int(location.byteCount)])
    }

    package func young(_ key: StoreKey) -> YoungLookup {
        guard let row = young[key] else { return .unknown }
        guard let location = row.location else { return .deleted }
        return .found(location, wakeAt: row.wakeAt)
    }

    package func isCertainlyAbsent(_ key: StoreKey) -> Bool {
        if let row = young[key] { return row.location == nil }
        return filteredTables.contains(key.table) && cold[key] == nil
    }

    package func read(_ reads: [StoreRead]) -> ReadToken { enqueue(.reads(reads)) }

    package func requestAlarms(_ request: AlarmRequest) -> ReadToken { enqueue(.alarms(request)) }

    package var nextAlarm: Int64 {
        postponedAlarms = postponedAlarms.filter { young[$0.key] == nil && cold[$0.key]?.wakeAt == $0.value.wakeAt }
        return min(pendingAlarms().map(\.1.wakeAt).min() ?? .max, postponedAlarms.values.map(\.until).min() ?? .max)
    }

    package var alarmGroups: [AlarmGroup] {
        var groups: [AlarmGroup] = []
        for group in currentLeft().map(\.1.group) where !groups.contains(group) { groups.append(group) }
        return groups.sorted()
    }

    package func nextAlarm(of group: AlarmGroup) -> Int64 {
        currentLeft().filter { $0.1.group == group }.map(\.1.until).min() ?? .max
    }

    package func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64) {
        if young[key] != nil || cold[key]?.wakeAt != wakeAt { violations.append("left an alarm that is not: \(key)") }
        leftAlarms[key] = Left(wakeAt: wakeAt, group: group, until: until)
    }

    package func recallAlarms(of group: AlarmGroup, in bucket: Bucket) {
        for (key, left) in leftAlarms where left.group == group && key.bucket == bucket { leftAlarms[key]?.until = 0 }
    }

    private func currentLeft() -> [(StoreKey, Left)] {
        leftAlarms = leftAlarms.filter { young[$0.key] == nil && cold[$0.key]?.wakeAt == $0.value.wakeAt }
        return leftAlarms.sorted { ($0.value.wakeAt, $0.key) < ($1.value.wakeAt, $1.key) }
    }

    private func enqueue(_ request: Request) -> ReadToken {
        lastToken += 1
        readCount += 1
        requests.append((lastToken, readCount, request))
        return lastToken
    }

    package var waitingRequests: String { requests.map { "\($0.2)" }.joined(separator: "; ") }

    private func pendingAlarms() -> [(StoreKey, Row)] {
        cold.filter { $0.value.wakeAt != 0 && young[$0.key] == nil && reportedAlarms[$0.key] != $0.value.wakeAt }
            .map { ($0.key, $0.value) }
    }

    private func visible(_ key: StoreKey) -> Row? {
        guard let row = young[key] else { return cold[key] }
        return row.location.map { Row(value: [UInt8](value(at: $0)), wakeAt: row.wakeAt) }
    }

    private func partition(_ start: StoreKey) -> [(StoreKey, Row)] {
        func isInside(_ key: StoreKey) -> Bool {
            key.bucket == start.bucket && key.table == start.table && key.ownerHigh == start.ownerHigh
                && key.ownerLow == start.ownerLow && key.item >= start.item
        }
        let keys = Set(cold.keys.filter(isInside)).union(young.keys.filter(isInside))
        return keys.sorted().compactMap { key in visible(key).map { (key, $0) } }
    }

    private func answer(_ read: StoreRead, into bytes: ReplyBytes) -> StoreReadResult {
        switch read {
        case .get(let key):
            return .row(visible(key).map { bytes.row(key, $0.wakeAt, $0.value) })
        case .scan(let start, let rowLimit, let byteLimit):
            var rows: [StoredRow] = []
            var byteCount = 0
            for (key, row) in partition(start) {
                if !rows.isEmpty, rows.count >= rowLimit || byteCount + row.value.count > byteLimit {
                    return .rows(rows, isComplete: false)
                }
                rows.append(bytes.row(key, row.wakeAt, row.value))
                byteCount += row.value.count
            }
            return .rows(rows, isComplete: true)
        case .measure(let start, let rowLimit):
            let rows = partition(start).prefix(rowLimit)
            return .measure(
                rowCount: rows.count, byteCount: rows.reduce(0) { $0 + $1.1.value.count },
                firstItem: rows.first?.0.item ?? 0, lastItem: rows.last?.0.item ?? 0)
        case .search(let bucket, let table, let matches):
            let keys = cold.keys.filter { $0.bucket == bucket && $0.table == table }.sorted()
            guard let key = keys.first(where: { cold[$0].map { $0.value.withUnsafeBytes(matches) } == true }) else {
                return .row(nil)
            }
            return .row(visible(key).map { bytes.row(key, $0.wakeAt, $0.value) })
        case .traces(let bucket, let limit, let matches):
            let keys = Set(cold.keys).union(young.keys).filter { $0.bucket == bucket && $0.table == .trace }
            var rows: [StoredRow] = []
            for key in keys.sorted().reversed() {
                guard let row = visible(key), row.value.withUnsafeBytes({ matches(key, $0) }) else { continue }
                guard rows.count < limit else { return .rows(rows, isComplete: false) }
                rows.append(bytes.row(key, row.wakeAt, row.value))
            }
            return .rows(rows, isComplete: true)
        }
    }

    private func answerAlarms(_ request: AlarmRequest, into bytes: ReplyBytes) -> StoreReadResult {
        if let group = request.group { return answerGroup(group, request, into: bytes) }
        for (key, postponed) in postponedAlarms where postponed.until <= request.time {
            postponedAlarms[key] = nil
            reportedAlarms[key] = nil
        }
        let due = pendingAlarms().filter { $0.1.wakeAt <= request.time }
            .sorted { ($0.1.wakeAt, $0.0) < ($1.1.wakeAt, $1.0) }
        var rows: [StoredRow] = []
        for (key, row) in due {
            guard rows.count < request.limit else { return .rows(rows, isComplete: false) }
            reportedAlarms[key] = row.wakeAt
            switch row.value.withUnsafeBytes({ request.judge(key, $0) }) {
            case .take: if !isSucceeded(key, row, request) { rows.append(bytes.row(key, row.wakeAt, row.value)) }
            case .leave(let group, let until): leftAlarms[key] = Left(wakeAt: row.wakeAt, group: group, until: until)
            case .pass: violations.append("an alarm of no group was passed: \(key)")
            }
        }
        return .rows(rows, isComplete: true)
    }

    /// Returns whether the row's successor has the alarm, or should have it but cannot be read.
    private func isSucceeded(_ key: StoreKey, _ row: Row, _ request: AlarmRequest) -> Bool {
        guard let successor = row.value.withUnsafeBytes({ request.successor(of: key, $0) }).flatMap({ visible($0) })
        else { return false }
        if !successor.value.withUnsafeBytes({ AlarmRequest.isReadable(successor: $0) }) {
            postponedAlarms[key] = (row.wakeAt, row.value.withUnsafeBytes { request.end(of: key, $0) })
        }
        return true
    }

    private func answerGroup(_ group: AlarmGroup, _ request: AlarmRequest, into bytes: ReplyBytes) -> StoreReadResult {
        var rows: [StoredRow] = []
        for (key, left) in currentLeft()
        where left.group == group && (request.isEager || left.until <= request.time) {
            guard let row = cold[key] else { continue }
            guard rows.count < request.limit else { return .rows(rows, isComplete: false) }
            switch row.value.withUnsafeBytes({ request.judge(key, $0) }) {
            case .leave(_, let until): leftAlarms[key]?.until = until
            case .take:
                if !isSucceeded(key, row, request) { rows.append(bytes.row(key, row.wakeAt, row.value)) }
                leftAlarms[key] = nil
            case .pass: leftAlarms[key] = nil
            }
        }
        return .rows(rows, isComplete: true)
    }
}

private final class ReplyBytes {
    private var buffers: [UnsafeMutableRawBufferPointer] = []

    func row(_ key: StoreKey, _ wakeAt: Int64, _ value: [UInt8]) -> StoredRow {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: max(value.count, 1), alignment: 8)
        buffer.copyBytes(from: value)
        buffers.append(buffer)
        return StoredRow(
            key: key, wakeAt: wakeAt, value: UnsafeRawBufferPointer(rebasing: buffer[0..<value.count]))
    }

    deinit { for buffer in buffers { buffer.deallocate() } }
}

extension CounterChange {
    package var encoded: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: byteCount)
        bytes.withUnsafeMutableBytes { write(into: $0) }
        return bytes
    }
}
