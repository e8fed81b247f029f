// A cold read as Redis commands, in rounds: the replies of one round determine the commands of the next one. Concurrent reads
// share their round trips (`ReadLanes`).

internal import Delivery
internal import Journal
internal import Redis
internal import Wire

enum RowReading {
    static func value(_ rows: [UInt8], _ key: StoreKey) -> RedisCommand {
        RedisCommand("HGET", rows, KeyCoding.bytes(key))
    }

    static func values(_ rows: [UInt8], _ keys: [[UInt8]]) -> RedisCommand {
        var command = RedisCommand("HMGET", rows)
        for key in keys { command.append(key) }
        return command
    }

    /// Returns a read of a sorted set's members from `first` through the last one that begins with `last`.
    static func range(
        _ key: [UInt8], from first: [UInt8], isExclusive: Bool = false, through last: [UInt8], count: Int?
    ) -> RedisCommand {
        var command = RedisCommand("ZRANGEBYLEX", key, [UInt8(ascii: isExclusive ? "(" : "[")] + first)
        // No member is longer than this number of bytes.
        command.append([UInt8(ascii: "[")] + last + [UInt8](repeating: 0xFF, count: KeyCoding.alarmKeyByteCount))
        if let count {
            command.append("LIMIT", "0", count)
        }
        return command
    }

    /// Returns a row in the form that a reader passes to a loop; `nil` for bytes that are not a row.
    static func row(_ key: StoreKey, _ stored: [UInt8], _ operation: ReadOperation) -> ColdRow? {
        stored.withUnsafeBytes { stored in
            KeyCoding.row(key, stored).map {
                ColdRow(key: key, wakeAt: $0.wakeAt, value: operation.keep($0.value))
            }
        }
    }

    /// The maximum configurable size of a server's string (`proto-max-bulk-len`).
    static let largestValue: Int64 = 1 << 40

    /// Returns the members of an index page; `nil` if they are not strictly ascending.
    ///
    /// The order guarantees that paging ends.
    static func names(_ list: [RedisReply], from first: [UInt8], isExclusive: Bool) -> [[UInt8]]? {
        var names: [[UInt8]] = []
        for reply in list {
            guard let name = reply.bytes else { return nil }
            let isFirst = names.isEmpty && !isExclusive && name == first
            guard isFirst || (names.last ?? first).lexicographicallyPrecedes(name) else { return nil }
            names.append(name)
        }
        return names
    }

    static func partition(_ key: StoreKey) -> [UInt8] {
        Array(KeyCoding.bytes(key).prefix(KeyCoding.partitionByteCount))
    }
}

final class Round {
    var requests: [RedisRequest] = []
    var handlers: [(RedisReply, Round) -> Void] = []

    /// Adds a command; the handler is called with the reply and with the next round, to which it may add commands.
    func ask(_ command: RedisCommand, _ slot: Int, _ handler: @escaping (RedisReply, Round) -> Void) {
        requests.append(RedisRequest(command, slot: slot))
        handlers.append(handler)
    }
}

final class RowRead {
    private let operation: ReadOperation
    private let index: Int
    private let part: RedisPart
    /// The names of an index page, and the number of names whose rows were read.
    private var names: [[UInt8]] = []
    private var nextName = 0
    private var isLastPage = false
    private var byteCount = 0
    private var rowLimit = Int.max
    private var byteLimit = Int.max
    private var range: (keys: GroupKeys, through: [UInt8])?
    private var highest = HighestRows(limit: 0)
    private var seen: Set<StoreKey> = []

    init(_ operation: ReadOperation, _ index: Int, _ part: RedisPart) {
        (self.operation, self.index, self.part) = (operation, index, part)
    }

    func begin(_ round: Round) {
        switch operation.parts[index].request {
        case .get(let key): get(key, round)
        case .scan(let start, let rows, let bytes):
            (rowLimit, byteLimit) = (rows, bytes)
            scan(start, round, isValueNeeded: true)
        case .measure(let start, let rows):
            rowLimit = rows
            scan(start, round, isValueNeeded: false)
        case .search(let bucket, let table, let matches): search(bucket, table, matches, round)
        case .traces(let bucket, let limit, let matches): traces(of: bucket, limit, matches, round)
        }
    }

    private func fail(_ reply: RedisReply, _ what: String) {
        operation.failure = "\(what) failed: \(reply.fault?.text ?? "an answer of another form")"
    }

    private func end() { operation.parts[index].isComplete = true }

    // MARK: One row

    private func get(_ key: StoreKey, _ round: Round) {
        guard let keys = part.keys(of: key.bucket) else { return end() }
        end()
        guard key.table.isEphemeral else {
            round.ask(RowReading.value(keys.rows, key), keys.slot) { reply, _ in self.take(key, reply) }
            return
        }
        for period in part.periods(of: key) {
            round.ask(RowReading.value(keys.ephemeral(period), key), keys.slot) { reply, _ in
                // The newest period's reply comes first.
                if self.operation.parts[self.index].rows.isEmpty { self.take(key, reply) }
            }
        }
    }

    private func take(_ key: StoreKey, _ reply: RedisReply) {
        switch reply {
        case .none: break
        case .bytes(let stored):
            if let row = RowReading.row(key, stored, operation) { operation.parts[index].rows.append(row) }
        default: fail(reply, "a row's read")
        }
    }

    // MARK: Rows in order

    private func scan(_ first: StoreKey, _ round: Round, isValueNeeded: Bool) {
        guard first.hasItems else { return get(first, round) }
        guard let keys = part.keys(of: first.bucket) else { return end() }
        let partition = RowReading.partition(first)
        range = (keys, partition)
        let last = operation.parts[index].rows.last?.key
        page(from: KeyCoding.bytes(last ?? first), isExclusive: last != nil, round, isValueNeeded)
    }

    private func page(from name: [UInt8], isExclusive: Bool, _ round: Round, _ isValueNeeded: Bool) {
        guard let (keys, through) = range else { return end() }
        let count = max(1, min(rowLimit, Limits.rowsPerPage))
        round.ask(
            RowReading.range(keys.index, from: name, isExclusive: isExclusive, through: through, count: count),
            keys.slot
        ) { reply, round in
            guard let list = reply.array, let names = RowReading.names(list, from: name, isExclusive: isExclusive)
            else {
                return self.fail(reply, "a read of the index")
            }
            self.names = names
            (self.nextName, self.isLastPage) = (0, list.count < count)
            if isValueNeeded { self.values(round) } else { self.sizes(round) }
        }
    }

    private func values(_ round: Round) {
        guard let (keys, _) = range else { return end() }
        guard nextName < names.count else { return pageEnded(round, isValueNeeded: true) }
        let chunk = Array(names[nextName..<min(nextName + Limits.rowsPerRead, names.count)])
        round.ask(RowReading.values(keys.rows, chunk), keys.slot) { reply, round in
            guard let values = reply.array, values.count == chunk.count else {
                return self.fail(reply, "a read of rows")
            }
            for (name, value) in zip(chunk, values) {
                guard let key = name.withUnsafeBytes({ KeyCoding.readKey($0) }), let stored = value.bytes else {
                    continue
                }
                guard let row = RowReading.row(key, stored, self.operation) else { continue }
                // Take at least one row: the loop repeats a read if young rows have deleted all of its rows.
                if self.taken > 0, self.taken >= self.rowLimit || self.byteCount + stored.count > self.byteLimit {
                    return
                }
                self.byteCount += stored.count
                self.taken += 1
                self.operation.parts[self.index].rows.append(row)
            }
            self.nextName += chunk.count
            self.values(round)
        }
    }

    /// The number of rows that this read has added, without those of an earlier read.
    private var taken = 0

    private func sizes(_ round: Round) {
        guard let (keys, _) = range else { return end() }
        guard !names.isEmpty else { return pageEnded(round, isValueNeeded: false) }
        let chunk = names
        nextName = chunk.count
        for (place, name) in chunk.enumerated() {
            let command = RedisCommand("HSTRLEN", keys.rows, name)
            round.ask(command, keys.slot) { reply, round in
                // The bound keeps sums of sizes from overflowing.
                guard let count = reply.integer, 0...RowReading.largestValue ~= count else {
                    return self.fail(reply, "a row's size")
                }
                if count >= Int64(KeyCoding.rowPrefixByteCount),
                    let key = name.withUnsafeBytes({ KeyCoding.readKey($0) })
                {
                    self.taken += 1
                    // Only the byte count is used; the pointer is never dereferenced.
                    let value = UnsafeRawBufferPointer(
                        start: UnsafeRawPointer(bitPattern: 8), count: Int(count) - KeyCoding.rowPrefixByteCount)
                    self.operation.parts[self.index].rows.append(ColdRow(key: key, wakeAt: 0, value: value))
                }
                if place == chunk.count - 1 { self.pageEnded(round, isValueNeeded: false) }
            }
        }
    }

    private func pageEnded(_ round: Round, isValueNeeded: Bool) {
        guard !isLastPage else { return end() }
        guard taken < rowLimit, let last = names.last else { return }
        page(from: last, isExclusive: true, round, isValueNeeded)
    }

    // MARK: A row by its value

    private func search(
        _ bucket: Bucket, _ table: StoreKey.Table, _ matches: @escaping @Sendable (UnsafeRawBufferPointer) -> Bool,
        _ round: Round
    ) {
        guard let keys = part.keys(of: bucket) else { return end() }
        let prefix = [UInt8(bucket.index >> 8), UInt8(bucket.index & 0xFF), table.rawValue]
        func look(_ name: [UInt8], _ stored: [UInt8]) -> Bool {
            let isMatch = stored.withUnsafeBytes { stored in
                stored.count >= KeyCoding.rowPrefixByteCount
                    && matches(UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...]))
            }
            guard isMatch, let key = name.withUnsafeBytes({ KeyCoding.readKey($0) }) else { return false }
            if let row = RowReading.row(key, stored, operation) { operation.parts[index].rows.append(row) }
            end()
            return true
        }
        if table.isIndexed {
            searchIndex(keys, from: prefix, isExclusive: false, through: prefix, round, look)
        } else {
            searchAll(keys.rows, keys.slot, cursor: "0", prefix, round, look)
        }
    }

    private func traces(
        of bucket: Bucket, _ limit: Int, _ matches: @escaping @Sendable (StoreKey, UnsafeRawBufferPointer) -> Bool,
        _ round: Round
    ) {
        end()
        guard let keys = part.keys(of: bucket) else { return }
        let prefix = [UInt8(bucket.index >> 8), UInt8(bucket.index & 0xFF), StoreKey.Table.trace.rawValue]
        highest = HighestRows(limit: limit)
        for period in part.periods(of: StoreKey(bucket, .trace, ownerHigh: 0, ownerLow: 0)) {
            searchAll(keys.ephemeral(period), keys.slot, cursor: "0", prefix, round) { name, stored in
                guard let key = name.withUnsafeBytes({ KeyCoding.readKey($0) }) else { return false }
                let isMatch = stored.withUnsafeBytes { stored in
                    stored.count >= KeyCoding.rowPrefixByteCount
                        && matches(key, UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...]))
                }
                // HSCAN may return a field twice.
                if isMatch, self.seen.insert(key).inserted { self.highest.add(key, stored) }
                return false
            } then: {
                self.operation.parts[self.index].rows = self.highest.taken(self.operation)
            }
        }
    }

    private func searchIndex(
        _ keys: GroupKeys, from first: [UInt8], isExclusive: Bool, through last: [UInt8], _ round: Round,
        _ look: @escaping ([UInt8], [UInt8]) -> Bool
    ) {
        round.ask(
            RowReading.range(
                keys.index, from: first, isExclusive: isExclusive, through: last, count: Limits.rowsPerRead),
            keys.slot
        ) { reply, round in
            guard let list = reply.array, let names = RowReading.names(list, from: first, isExclusive: isExclusive)
            else {
                return self.fail(reply, "a read of the index")
            }
            guard let end = names.last else { return self.end() }
            round.ask(RowReading.values(keys.rows, names), keys.slot) { reply, round in
                guard let values = reply.array, values.count == names.count else {
                    return self.fail(reply, "a read of rows")
                }
                for (name, value) in zip(names, values) {
                    if let stored = value.bytes, look(name, stored) { return }
                }
                self.searchIndex(keys, from: end, isExclusive: true, through: last, round, look)
            }
        }
    }

    /// Scans all rows of the group for rows of a table without an index.
    private func searchAll(
        _ hash: [UInt8], _ slot: Int, cursor: String, _ prefix: [UInt8], _ round: Round,
        _ look: @escaping ([UInt8], [UInt8]) -> Bool, then: @escaping () -> Void = {}
    ) {
        var command = RedisCommand("HSCAN", hash, cursor, "MATCH")
        // Every byte is escaped, so that none acts as a wildcard.
        command.append(prefix.flatMap { [UInt8(ascii: "\\"), $0] } + [UInt8(ascii: "*")], "COUNT", Limits.rowsPerPage)
        round.ask(command, slot) { reply, round in
            guard let parts = reply.array, parts.count == 2, let next = parts[0].text, let list = parts[1].array else {
                return self.fail(reply, "a search")
            }
            for place in stride(from: 0, to: list.count - 1, by: 2) {
                guard let name = list[place].bytes, name.starts(with: prefix), let stored = list[place + 1].bytes else {
                    continue
                }
                if look(name, stored) { return }
            }
            guard next == "0" else {
                return self.searchAll(hash, slot, cursor: next, prefix, round, look, then: then)
            }
            self.end()
            then()
        }
    }
}
