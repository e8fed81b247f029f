// Reads of cold rows. A reader thread sees only the disk. The shard's loop merges young rows into the reader's result.
//
// A race must be avoided: a row is young and not on disk when the reader looks, and has left memory by the time of the reply.
// Spilled rows therefore stay in memory until every read that was in flight when the loop was notified of the spill has been
// answered. Epochs track these reads: each batch of spilled rows begins a new epoch.
//
// A read that begins later does not hold such rows in memory. It reads every row that is with the spiller from the disk, which
// has the row by then (`staysInMemory`).

package import Delivery
package import Wire

/// The number of reads in flight, by the epoch in which they began.
struct ReadEpochs {
    private var current: UInt64 = 0
    private var oldest: UInt64 = 0
    private var counts: [Int] = [0]

    mutating func begin() -> UInt64 {
        counts[counts.count - 1] += 1
        return current
    }

    mutating func end(_ epoch: UInt64) {
        counts[Int(epoch - oldest)] -= 1
        while counts.count > 1, counts[0] == 0 {
            counts.removeFirst()
            oldest += 1
        }
    }

    /// Ends the current epoch and returns its number.
    mutating func advance() -> UInt64 {
        defer { current += 1 }
        if counts.count == 1, counts[0] == 0 {
            oldest += 1
        } else {
            counts.append(0)
        }
        return current
    }

    func isOver(_ epoch: UInt64) -> Bool { oldest > epoch }
}

extension EmbeddedShardStore {
    package func read(_ requests: [StoreRead]) -> ReadToken {
        lastToken += 1
        let parts = requests.map { request in
            var part = ReadOperation.Part(request: request)
            if case .get(let key) = request, staysInMemory(key) { part.isComplete = true }
            return part
        }
        send(ReadOperation(token: lastToken, epoch: epochs.begin(), mailbox: mailbox, parts: parts))
        return lastToken
    }

    /// Returns whether the row will still be in memory at the reply of a read that begins now.
    private func staysInMemory(_ key: StoreKey) -> Bool {
        // `YoungLog` does not record which of its rows are with the spiller.
        guard !key.table.isLogged, let number = index.find(key) else { return false }
        return !index[number].pointee.isCollected
    }

    package func requestAlarms(_ request: AlarmRequest) -> ReadToken {
        lastToken += 1
        // Requests run one at a time, because each continues where the previous one ended.
        if isReadingAlarms {
            waitingAlarmRequests.append((lastToken, request))
        } else {
            startAlarmRead(token: lastToken, request)
        }
        return lastToken
    }

    package var alarmGroups: [AlarmGroup] { clock.groups.names }
    package func nextAlarm(of group: AlarmGroup) -> Int64 { isReadingAlarms ? .max : clock.groups.next(of: group) }
    package func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64) {
        clock.leave(Alarm(wakeAt: wakeAt, key: key), in: group, until: until)
    }
    package func recallAlarms(of group: AlarmGroup, in bucket: Bucket) { clock.recall(group, bucket) }

    /// The next alarm time; no alarm is reported while a request is in flight.
    package var nextAlarm: Int64 { isReadingAlarms ? .max : clock.next }

    private func startAlarmRead(token: ReadToken, _ request: AlarmRequest) {
        isReadingAlarms = true
        let work = clock.makeWork(request)
        send(ReadOperation(token: token, epoch: epochs.begin(), mailbox: mailbox, parts: [], alarms: work))
    }

    private func send(_ operation: ReadOperation) { rows.submit(operation) }

    /// Processes replies one by one; each reply is built only after the observer has handled the previous one, so that it
    /// reflects the observer's changes.
    func deliver(_ operations: [ReadOperation]) {
        for operation in operations {
            if let reply = finish(operation) { observer?.storeReplied(reply) }
        }
    }

    /// Builds the reply, or resubmits the operation for more rows and returns `nil`.
    private func finish(_ operation: ReadOperation) -> StoreReply? {
        if let work = operation.alarms { return finishAlarms(work, operation) }
        if let failure = operation.failure {
            epochs.end(operation.epoch)
            return StoreReply(token: operation.token, results: [], failure: failure)
        }
        var results: [StoreReadResult] = []
        results.reserveCapacity(operation.parts.count)
        var needsMore = false
        for part in operation.parts {
            guard let result = merge(part, operation) else {
                needsMore = true
                continue
            }
            results.append(result)
        }
        if needsMore {
            send(operation)
            return nil
        }
        epochs.end(operation.epoch)
        return StoreReply(token: operation.token, results: results, owner: operation)
    }

    // MARK: Merging

    /// Merges a part's cold rows with young rows; `nil` if more rows must be read, since all rows so far are deleted or too few
    /// to measure.
    private func merge(_ part: ReadOperation.Part, _ operation: ReadOperation) -> StoreReadResult? {
        switch part.request {
        case .get(let key):
            if key.table.isLogged, let location = loggedRows.find(key) {
                return .row(StoredRow(key: key, wakeAt: 0, value: operation.keep(value(at: location))))
            }
            if let number = index.find(key) {
                return .row(index[number].pointee.isDeleted ? nil : keep(number, operation))
            }
            return .row(part.rows.first.map { StoredRow(key: key, wakeAt: $0.wakeAt, value: $0.value) })
        case .scan(let start, let rowLimit, let byteLimit):
            var rows: [StoredRow] = []
            var byteCount = 0
            var isCut = false
            visitRows(part, from: start) { key, wakeAt, value, number in
                if !rows.isEmpty, rows.count >= rowLimit || byteCount + value.count > byteLimit {
                    isCut = true
                    return false
                }
                byteCount += value.count
                if let number {
                    rows.append(keep(number, operation))
                } else {
                    rows.append(StoredRow(key: key, wakeAt: wakeAt, value: value))
                }
                return true
            }
            if rows.isEmpty, !part.isComplete { return nil }
            return .rows(rows, isComplete: part.isComplete && !isCut)
        case .measure(let start, let rowLimit):
            var (rowCount, byteCount, first, last) = (0, 0, UInt64(0), UInt64(0))
            visitRows(part, from: start) { key, _, value, _ in
                guard rowCount < rowLimit else { return false }
                if rowCount == 0 { first = key.item }
                last = key.item
                rowCount += 1
                byteCount += value.count
                return true
            }
            if rowCount < rowLimit, !part.isComplete { return nil }
            return .measure(rowCount: rowCount, byteCount: byteCount, firstItem: first, lastItem: last)
        case .search:
            guard let cold = part.rows.first else { return .row(nil) }
            if let number = index.find(cold.key) {
                return .row(index[number].pointee.isDeleted ? nil : keep(number, operation))
            }
            return .row(StoredRow(key: cold.key, wakeAt: cold.wakeAt, value: cold.value))
        case .traces(let bucket, let limit, let matches):
            var rows = part.rows.map { StoredRow(key: $0.key, wakeAt: 0, value: $0.value) }
            var known = Set(rows.map(\.key))
            loggedRows.visit(.trace, of: bucket) { key, location in
                let value = value(at: location)
                guard matches(key, value), known.insert(key).inserted else { return }
                rows.append(StoredRow(key: key, wakeAt: 0, value: operation.keep(value)))
            }
            rows.sort { $1.key < $0.key }
            return .rows(Array(rows.prefix(max(0, limit))), isComplete: rows.count <= limit)
        }
    }

    /// Visits the current rows of one owner in item order, as far as the cold rows are known.
    private func visitRows(
        _ part: ReadOperation.Part, from start: StoreKey,
        _ visit: (StoreKey, Int64, UnsafeRawBufferPointer, UInt32?) -> Bool
    ) {
        let bound = part.isComplete ? UInt64.max : part.rows.last?.key.item ?? 0
        if !part.isComplete, part.rows.isEmpty { return }
        var slot = index.firstSlot(from: start)
        var next = 0
        while true {
            let cold = next < part.rows.count ? part.rows[next] : nil
            guard slot != noSlot, index[slot].pointee.item <= bound else {
                guard let cold, visit(cold.key, cold.wakeAt, cold.value, nil) else { return }
                next += 1
                continue
            }
            let young = index[slot]
            if let cold, cold.key.item < young.pointee.item {
                guard visit(cold.key, cold.wakeAt, cold.value, nil) else { return }
                next += 1
                continue
            }
            if let cold, cold.key.item == young.pointee.item { next += 1 }
            if !young.pointee.isDeleted {
                let location = ValueLocation(
                    block: young.pointee.block, offset: young.pointee.offset, byteCount: young.pointee.byteCount)
                guard visit(young.pointee.key, young.pointee.wakeAt, value(at: location), slot) else { return }
            }
            slot = start.hasItems ? young.pointee.itemAfter : noSlot
        }
    }

    /// Copies a young row for a reply, which may outlive the row.
    private func keep(_ number: UInt32, _ operation: ReadOperation) -> StoredRow {
        let slot = index[number]
        let location = ValueLocation(
            block: slot.pointee.block, offset: slot.pointee.offset, byteCount: slot.pointee.byteCount)
        return StoredRow(key: slot.pointee.key, wakeAt: slot.pointee.wakeAt, value: operation.keep(value(at: location)))
    }

    // MARK: Alarms

    private func finishAlarms(_ work: ReadOperation.AlarmWork, _ operation: ReadOperation) -> StoreReply {
        clock.finish(work)
        if !work.stale.isEmpty { rows.dropStale(work.stale) }
        // Delivery handles the alarms of young rows.
        for left in work.left where index.find(left.alarm.key) == nil {
            clock.leave(left.alarm, in: left.group, until: left.until)
        }
        for postponed in work.postponed where index.find(postponed.alarm.key) == nil {
            clock.postpone(postponed.alarm, until: postponed.until)
        }
        let rows = work.rows.filter { row in
            guard index.find(row.key) == nil else { return false }
            // A young successor (the row that took over the alarm) is not on disk yet, so the reader could not find it.
            return work.request.successor(of: row.key, row.value).map { index.find($0) == nil } ?? true
        }.map { StoredRow(key: $0.key, wakeAt: $0.wakeAt, value: $0.value) }
        epochs.end(operation.epoch)
        let next = work.request.group.map { clock.groups.next(of: $0) } ?? clock.next
        let isComplete = next > (work.request.isEager ? .max - 1 : work.request.time)
        let reply = StoreReply(
            token: operation.token, results: [.rows(rows, isComplete: isComplete)],
            failure: operation.failure,
            owner: operation)
        alarmReadEnded()
        return reply
    }

    private func alarmReadEnded() {
        isReadingAlarms = false
        guard !waitingAlarmRequests.isEmpty else { return }
        let (token, request) = waitingAlarmRequests.removeFirst()
        startAlarmRead(token: token, request)
    }
}
