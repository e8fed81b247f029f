internal import Delivery
internal import Platform
internal import Wire

final class Readers: Sendable {
    private struct Queue: ~Copyable {
        var operations: [ReadOperation] = []
        var head = 0
        var isOpen = true
    }

    fileprivate let database: RowDatabase
    private let queue = Monitor(Queue())

    init(database: RowDatabase) { self.database = database }

    func submit(_ operation: ReadOperation) {
        queue.signal { $0.operations.append(operation) }
    }

    func close() { queue.broadcast { $0.isOpen = false } }

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
            case .traces(let bucket, let limit, let matches):
                operation.parts[index].rows = try traces(of: bucket, limit, matches, operation)
                operation.parts[index].isComplete = true
            }
        }
        guard var alarms = operation.alarms else { return }
        operation.alarms = nil
        defer { operation.alarms = alarms }
        try AlarmReading(source: DatabaseAlarms(self)).perform(&alarms, operation)
    }

    fileprivate func get(_ key: StoreKey, _ operation: ReadOperation) throws(StoreError) -> ColdRow? {
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

    private func traces(
        of bucket: Bucket, _ limit: Int, _ matches: (StoreKey, UnsafeRawBufferPointer) -> Bool,
        _ operation: ReadOperation
    ) throws(StoreError) -> [ColdRow] {
        var found = HighestRows(limit: limit)
        for period in database.families(of: .trace) {
            try database.visit(.trace, of: bucket.index, in: period.family) { key, stored in
                let value = UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...])
                if matches(key, value) { found.add(key, stored) }
                return true
            }
        }
        return found.taken(operation)
    }

    private static func row(_ key: StoreKey, _ stored: UnsafeRawBufferPointer, _ operation: ReadOperation) -> ColdRow? {
        KeyCoding.row(key, stored).map {
            ColdRow(key: key, wakeAt: $0.wakeAt, value: operation.keep($0.value))
        }
    }

    /// Continues a scan behind the part's last row, up to the limits; reads at least one row.
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
                // Only the byte count is used; the pointer is never dereferenced.
                let value = UnsafeRawBufferPointer(start: keyStart, count: stored.count - KeyCoding.rowPrefixByteCount)
                rows.append(ColdRow(key: key, wakeAt: 0, value: value))
            }
            return true
        }
        part.rows.append(contentsOf: rows)
        part.isComplete = isComplete
    }

    func loadAll(
        table: StoreKey.Table, buckets: [UInt16], _ body: (StoredRow) -> Void
    ) throws(StoreError) {
        precondition(!table.isEphemeral, "ephemeral tables are not loaded")
        let family = database.family(of: table)
        guard try !database.isEmpty(family) else { return }
        for bucket in buckets {
            try database.visit(table, of: bucket, in: family) { key, stored in
                if let row = KeyCoding.row(key, stored) { body(row) }
                return true
            }
        }
    }
}

private final class DatabaseAlarms: AlarmSource {
    private let readers: Readers

    init(_ readers: Readers) { self.readers = readers }

    func has(_ bucket: UInt16) -> Bool { true }

    func row(_ key: StoreKey, _ operation: ReadOperation) throws(StoreError) -> ColdRow? {
        try readers.get(key, operation)
    }

    func cursor(in bucket: UInt16, from first: Alarm?, _ operation: ReadOperation) throws(StoreError) -> any AlarmCursor
    {
        try DatabaseAlarmCursor(readers.database, bucket, from: first)
    }
}

private final class DatabaseAlarmCursor: AlarmCursor {
    private let iterator: DatabaseIterator
    private(set) var current: Alarm?

    init(_ database: RowDatabase, _ bucket: UInt16, from first: Alarm?) throws(StoreError) {
        let prefix = [UInt8(bucket >> 8), UInt8(bucket & 0xFF)]
        iterator = try DatabaseIterator(database, database.alarms, prefix: prefix)
        if let first {
            let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: KeyCoding.alarmKeyByteCount, alignment: 8)
            defer { bytes.deallocate() }
            if let start = bytes.baseAddress { KeyCoding.write(first, to: start) }
            try iterator.seek(UnsafeRawBufferPointer(bytes))
        } else {
            try iterator.seekToFirst()
        }
        look()
    }

    func advance() throws(StoreError) {
        try iterator.advance()
        look()
    }

    private func look() { current = iterator.current.flatMap { KeyCoding.readAlarm($0.key) } }
}
