// The threads that read the ordered store for the loops.

internal import Delivery
internal import Platform
internal import Wire

/// A queue of reads and what its threads do with one.
final class Readers: Sendable {
    private struct Queue: ~Copyable {
        var operations: [ReadOperation] = []
        var head = 0
        var isOpen = true
    }

    private let database: RowDatabase
    private let queue = Monitor(Queue())

    init(database: RowDatabase) { self.database = database }

    func submit(_ operation: ReadOperation) {
        queue.signal { $0.operations.append(operation) }
    }

    func close() { queue.broadcast { $0.isOpen = false } }

    /// A reader thread's body.
    func run() {
        while true {
            let operation: ReadOperation? = queue.wait(while: { $0.isOpen && $0.head == $0.operations.count }) {
                queue in
                guard queue.isOpen else { return nil }
                let operation = queue.operations[queue.head]
                queue.head += 1
                if queue.head == queue.operations.count || queue.head > 4096 {
                    queue.operations.removeFirst(queue.head)
                    queue.head = 0
                }
                return operation
            }
            guard let operation else { return }
            do throws(StoreError) {
                try perform(operation)
            } catch {
                operation.failure = error.description
            }
            operation.mailbox.put { $0.replies.append(operation) }
        }
    }

    private func perform(_ operation: ReadOperation) throws(StoreError) {
        for index in operation.parts.indices where !operation.parts[index].isComplete {
            switch operation.parts[index].request {
            case .get(let key):
                if let row = try get(key, operation) { operation.parts[index].rows.append(row) }
                operation.parts[index].isComplete = true
            case .scan(let start, let rowLimit, let byteLimit):
                try scan(&operation.parts[index], start, rowLimit, byteLimit, operation, isValueNeeded: true)
            case .measure(let start, let rowLimit):
                try scan(&operation.parts[index], start, rowLimit, .max, operation, isValueNeeded: false)
            case .search(let bucket, let table, let matches):
                try database.visit(table, of: bucket.index, in: database.family(of: table)) { key, stored in
                    guard matches(UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...])) else {
                        return true
                    }
                    if let row = Self.row(key, stored, operation) { operation.parts[index].rows.append(row) }
                    return false
                }
                operation.parts[index].isComplete = true
            }
        }
        guard var alarms = operation.alarms else { return }
        operation.alarms = nil
        defer { operation.alarms = alarms }
        try readAlarms(&alarms, operation)
    }

    private func get(_ key: StoreKey, _ operation: ReadOperation) throws(StoreError) -> ColdRow? {
        let keyBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.rowKeyByteCount, alignment: 8)
        defer { keyBytes.deallocate() }
        guard let start = keyBytes.baseAddress else { return nil }
        KeyCoding.write(key, to: start)
        func find(_ family: ColumnFamily) throws(StoreError) -> ColdRow? {
            let found = try database.get(UnsafeRawBufferPointer(keyBytes), in: family) { stored in
                Self.row(key, stored, operation)
            }
            return found ?? nil
        }
        guard key.table.isEphemeral else { return try find(database.family(of: key.table)) }
        for family in database.families(of: key.table).reversed() {
            if let row = try find(family.family) { return row }
        }
        return nil
    }

    private static func row(_ key: StoreKey, _ stored: UnsafeRawBufferPointer, _ operation: ReadOperation) -> ColdRow? {
        guard stored.count >= KeyCoding.rowPrefixByteCount else { return nil }
        if key.table == .counters {
            return ColdRow(key: key, wakeAt: 0, value: operation.keep(CountStamp.read(stored).value))
        }
        return ColdRow(
            key: key, wakeAt: stored.loadUnaligned(as: Int64.self),
            value: operation.keep(UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...])))
    }

    /// Reads on where the part's rows end, up to the bounds, at least one row.
    private func scan(
        _ part: inout ReadOperation.Part, _ first: StoreKey, _ rowLimit: Int, _ byteLimit: Int,
        _ operation: ReadOperation, isValueNeeded: Bool
    ) throws(StoreError) {
        guard first.hasItems else {
            if let row = try get(first, operation) { part.rows.append(row) }
            part.isComplete = true
            return
        }
        var start = first
        if let last = part.rows.last {
            guard last.key.item < .max else {
                part.isComplete = true
                return
            }
            start.item = last.key.item + 1
        }
        let keyBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.rowKeyByteCount, alignment: 8)
        defer { keyBytes.deallocate() }
        guard let keyStart = keyBytes.baseAddress else { return }
        KeyCoding.write(start, to: keyStart)
        var rows: [ColdRow] = []
        var byteCount = 0
        var isComplete = true
        let family = database.family(of: first.table)
        try database.scan(
            from: UnsafeRawBufferPointer(keyBytes), prefixCount: KeyCoding.partitionByteCount, in: family
        ) { keyBytes, stored in
            guard let key = KeyCoding.readKey(keyBytes), key.isInPartition(of: first) else { return false }
            if !rows.isEmpty, rows.count >= rowLimit || byteCount + stored.count > byteLimit {
                isComplete = false
                return false
            }
            byteCount += stored.count
            if isValueNeeded {
                if let row = Self.row(key, stored, operation) { rows.append(row) }
            } else if stored.count >= KeyCoding.rowPrefixByteCount {
                // Only the count of the bytes is of interest: the pointer is never followed.
                let value = UnsafeRawBufferPointer(start: keyStart, count: stored.count - KeyCoding.rowPrefixByteCount)
                rows.append(ColdRow(key: key, wakeAt: 0, value: value))
            }
            return true
        }
        part.rows.append(contentsOf: rows)
        part.isComplete = isComplete
    }

    // MARK: Alarms

    private func readAlarms(_ work: inout ReadOperation.AlarmWork, _ operation: ReadOperation) throws(StoreError) {
        let keyBytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.alarmKeyByteCount, alignment: 8)
        defer { keyBytes.deallocate() }
        guard let keyStart = keyBytes.baseAddress else { return }
        for index in work.scans.indices where work.hasRoom {
            let bucket = work.scans[index].bucket
            work.underWay = index
            keyStart.storeBytes(of: bucket.bigEndian, as: UInt16.self)
            let iterator = try DatabaseIterator(database, database.alarms, prefix: keyBytes[..<2])
            if work.request.pile != nil {
                try readPile(&work, index, iterator, keyBytes, operation)
                continue
            }
            if let cursor = work.scans[index].cursor {
                KeyCoding.write(cursor, to: keyStart)
                try iterator.seek(UnsafeRawBufferPointer(keyBytes))
                if let entry = iterator.current, KeyCoding.readAlarm(entry.key) == cursor { try iterator.advance() }
            } else {
                try iterator.seekToFirst()
            }
            if work.scans[index].isFirstLook {
                if let entry = iterator.current, let alarm = KeyCoding.readAlarm(entry.key),
                    alarm.key.bucket.index == bucket
                {
                    work.scans[index].nextAlarm = alarm.wakeAt
                }
                work.scans[index].wasRead = true
                continue
            }
            while let entry = iterator.current, let alarm = KeyCoding.readAlarm(entry.key),
                alarm.key.bucket.index == bucket
            {
                if alarm.wakeAt > work.request.time || !work.hasRoom {
                    work.scans[index].nextAlarm = alarm.wakeAt
                    break
                }
                if let row = try get(alarm.key, operation), row.wakeAt == alarm.wakeAt {
                    try take(row, &work, operation)
                } else {
                    work.stale.append(StaleAlarm(alarm: alarm))
                }
                work.count += 1
                work.scans[index].cursor = alarm
                try iterator.advance()
            }
            work.scans[index].wasRead = true
        }
        work.underWay = nil
        // Last: one that cannot be read keeps nothing else from its turn.
        while let alarm = work.late.last, work.rows.count < work.request.limit {
            if let row = try get(alarm.key, operation), row.wakeAt == alarm.wakeAt { try take(row, &work, operation) }
            work.late.removeLast()
        }
    }

    /// Takes a row whose alarm is due, or leaves it to its pile.
    private func take(
        _ row: ColdRow, _ work: inout ReadOperation.AlarmWork, _ operation: ReadOperation
    ) throws(StoreError) {
        switch work.request.judge(row.key, row.value) {
        case .take: try report(row, &work, operation)
        case .leave(let pile, let until):
            work.left.append((Alarm(wakeAt: row.wakeAt, key: row.key), pile, until))
        case .pass: break
        }
    }

    /// Takes a row whose alarm is due, unless its successor has the alarm: then the row's own entry is useless for good.
    private func report(
        _ row: ColdRow, _ work: inout ReadOperation.AlarmWork, _ operation: ReadOperation
    ) throws(StoreError) {
        let alarm = Alarm(wakeAt: row.wakeAt, key: row.key)
        guard let key = work.request.successor(of: row.key, row.value), let successor = try get(key, operation) else {
            work.rows.append(row)
            return
        }
        if AlarmRequest.isReadable(successor: successor.value) {
            work.stale.append(StaleAlarm(alarm: alarm, successor: key))
        } else {
            work.postponed.append((alarm, work.request.end(of: row.key, row.value)))
        }
    }

    /// Looks at a pile's alarms of one bucket again.
    ///
    /// They stand in the order in which they were due, and their times to be looked at in any: one that is left may have
    /// another behind it that ends earlier. Only those of strategy 4 have one order for both.
    private func readPile(
        _ work: inout ReadOperation.AlarmWork, _ index: Int, _ iterator: borrowing DatabaseIterator,
        _ keyBytes: UnsafeMutableRawBufferPointer, _ operation: ReadOperation
    ) throws(StoreError) {
        guard let keyStart = keyBytes.baseAddress, let first = work.scans[index].cursor,
            let bound = work.scans[index].bound
        else {
            work.scans[index].wasRead = true
            return
        }
        KeyCoding.write(first, to: keyStart)
        try iterator.seek(UnsafeRawBufferPointer(keyBytes))
        while let entry = iterator.current, let alarm = KeyCoding.readAlarm(entry.key),
            alarm.key.bucket == bound.key.bucket, alarm <= bound
        {
            guard work.hasRoom, work.scans[index].left?.count ?? 0 < Limits.leftAlarmsPerRead else {
                (work.scans[index].rest, work.scans[index].nextAlarm) = (alarm, 0)
                break
            }
            work.count += 1
            if alarm.key.table.mayHaveJob, let row = try get(alarm.key, operation), row.wakeAt == alarm.wakeAt {
                let verdict = work.request.judge(row.key, row.value)
                if verdict == .take { try report(row, &work, operation) }
                if case .leave(let pile, let until) = verdict {
                    if pile.kind == .vendorTimeout {
                        (work.scans[index].rest, work.scans[index].nextAlarm) = (alarm, until)
                        break
                    }
                    let left = work.scans[index].left ?? (alarm, .max, 0)
                    let pause = max(Limits.pilePauseMilliseconds, Limits.leftAlarmMilliseconds * Int64(left.count))
                    work.scans[index].left = (
                        left.first, max(min(left.until, until), work.request.time + pause), left.count + 1
                    )
                }
            }
            try iterator.advance()
        }
        work.scans[index].wasRead = true
    }

    /// Every cold row of a table in `buckets`, for the start.
    func loadAll(
        table: StoreKey.Table, buckets: [UInt16], _ body: (StoredRow) -> Void
    ) throws(StoreError) {
        precondition(!table.isEphemeral, "ephemeral tables are not loaded")
        let family = database.family(of: table)
        guard try !database.isEmpty(family) else { return }
        for bucket in buckets {
            try database.visit(table, of: bucket, in: family) { key, stored in
                if table == .counters {
                    body(StoredRow(key: key, wakeAt: 0, value: CountStamp.read(stored).value))
                    return true
                }
                body(
                    StoredRow(
                        key: key, wakeAt: stored.loadUnaligned(as: Int64.self),
                        value: UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...])))
                return true
            }
        }
    }
}
