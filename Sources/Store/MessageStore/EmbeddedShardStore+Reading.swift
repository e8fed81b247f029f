// Cold reads. A reader thread knows only the disk; the reply is made here, on the loop, by laying young rows over what
// it found.
//
// One thing could go wrong: a row that was young when the reader looked (so the disk did not have it) and that has left
// memory by the time of the reply. Therefore rows stay in memory, though spilled, until every read that was under way
// when the loop learned of the spill has been answered. Epochs count that: each batch of cooled rows begins a new one.
//
// A read that begins after that does not keep such rows in memory. So the disk, which has them by then, is asked for every row
// that is with the spiller (`staysInMemory`).

package import Delivery
package import Wire

/// Reads under way by the epoch in which they were asked for.
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

    /// Whether every read of this epoch and those before it has ended.
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

    /// Whether memory will still know the row at the reply of a read that begins now (see the epochs).
    private func staysInMemory(_ key: StoreKey) -> Bool {
        // Whether a logged row is with the spiller is not known.
        guard !key.table.isLogged, let number = index.find(key) else { return false }
        return !index[number].pointee.isCollected
    }

    package func requestAlarms(_ request: AlarmRequest) -> ReadToken {
        lastToken += 1
        // One at a time, since each begins where the one before it ended.
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

    /// While a request for alarms is under way there is no use in another one.
    package var nextAlarm: Int64 { isReadingAlarms ? .max : clock.next }

    private func startAlarmRead(token: ReadToken, _ request: AlarmRequest) {
        isReadingAlarms = true
        let work = clock.makeWork(request)
        send(ReadOperation(token: token, epoch: epochs.begin(), mailbox: mailbox, parts: [], alarms: work))
    }

    private func send(_ operation: ReadOperation) { rows.submit(operation) }

    /// Takes readers' answers one by one, each made only when the one before it was acted on: what that changed must show.
    func deliver(_ operations: [ReadOperation]) {
        for operation in operations {
            if let reply = finish(operation) { observer?.storeReplied(reply) }
        }
    }

    /// Makes a reply of a reader's answer, or asks for more and returns `nil`.
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

    /// `nil` when the disk must be asked for more: all that came is deleted or was not counted far enough.
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

    /// Visits what the partition holds now, in item order, as far as the part's rows tell about the disk.
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

    /// A young row for a reply, which may outlive it.
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
        // A young row has its alarm with Delivery, or had it cleared.
        for left in work.left where index.find(left.alarm.key) == nil {
            clock.leave(left.alarm, in: left.group, until: left.until)
        }
        for postponed in work.postponed where index.find(postponed.alarm.key) == nil {
            clock.postpone(postponed.alarm, until: postponed.until)
        }
        let rows = work.rows.filter { row in
            guard index.find(row.key) == nil else { return false }
            // A young successor is not on the disk yet.
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
