// The takeover of a partition: its log's entries are written as rows before the new owner's first write.

internal import Delivery
internal import Journal
internal import Platform
internal import Redis
internal import Wire

/// The steps that precede the opening of a partition.
final class PartOpening {
    private let part: Int
    private let partCount: Int
    private let epoch: UInt64
    private let context: LogContext
    private let client: RedisClient
    private let key: [UInt8]
    private let slot: Int
    let batches: RedisRowBatches
    private var isMissingEntries = false

    struct Findings {
        var hasRows = false
        var hasAlarms = false
        var start: [StoreKey.Table: [(key: StoreKey, stored: [UInt8])]] = [:]
        var nextNumber: UInt64 = 1
        var replayedEntryCount = 0
        var replayedByteCount = 0
    }

    init(part: Int, of partCount: Int, epoch: UInt64, context: LogContext, client: RedisClient) {
        (self.part, self.partCount, self.epoch) = (part, partCount, epoch)
        (self.context, self.client) = (context, client)
        key = GroupKeys.log(context.configuration.name, part: part)
        slot = RedisSlot.of(key)
        batches = RedisRowBatches(part: part, of: partCount, epoch: epoch, configuration: context.configuration)
    }

    /// Fences the previous owner, sets the epoch of the partition's groups, and moves the log into rows.
    ///
    /// - Returns: The partition's content.
    /// - Throws: `.epochTaken`, `.damagedLog`, `.redis`. The partition then has no owner. It can be opened again with a higher
    ///   epoch, which repeats the moves.
    func perform() throws(StoreError) -> Findings {
        try compare()
        try fence()
        try raise()
        var findings = Findings()
        try replay(&findings)
        if isMissingEntries { try renewHistory() }
        try trim()
        try look(&findings)
        return findings
    }

    /// Detects a log that is older than the partition's rows.
    ///
    /// An owner writes its epoch to the groups only after its fence is in the log. A group with a higher epoch than the log's
    /// last id therefore proves a loss. The fence of this owner would hide the loss.
    private func compare() throws(StoreError) {
        let last: LogID?
        do throws(RedisError) {
            last = try LogReading.lastID(of: key, slot: slot, by: client)
        } catch { throw .redis(what: error.description) }
        let replies = try run(
            batches.groups.map { keys in
                let command = RedisCommand("HGET", keys.marks, "epoch")
                return RedisRequest(command, slot: keys.slot)
            })
        let highest = replies.compactMap { $0.text.flatMap { UInt64($0) } }.max() ?? 0
        guard highest > last?.epoch ?? 0 else { return }
        context.report(.logIsOlder(part: part, last: last?.description ?? "0-0", epoch: highest))
        try renewHistory()
    }

    /// Waits until the store has a new history.
    ///
    /// The evidence of the loss must stay until then, because this process may end at any time.
    private func renewHistory() throws(StoreError) {
        let outcome = Monitor<Bool?>(nil)
        context.configuration.renewHistory { isRenewed in outcome.broadcast { $0 = isRenewed } }
        let limit = UInt64(context.configuration.rowsMilliseconds)
        guard outcome.wait(atMostMilliseconds: limit, while: { $0 == nil }, then: { $0 ?? false }) else {
            throw .redis(what: "part \(part) lost entries, and the store's history could not be renewed")
        }
    }

    // MARK: Fencing

    /// Appends the fence, the first entry of this epoch.
    ///
    /// A repeated attempt is recognized by its nonce and writes nothing. The entry of a late repetition could be taken for one of
    /// the owner's groups.
    static let fenceScript = RedisScript(
        """
        local last = '0-0'
        if redis.call('EXISTS', KEYS[1]) == 1 then
            local facts = redis.call('XINFO', 'STREAM', KEYS[1])
            for place = 1, #facts, 2 do
                if facts[place] == 'last-generated-id' then last = facts[place + 1] end
            end
        end
        local epoch, number = string.match(last, '^(%d+)-(%d+)$')
        if tonumber(epoch) > tonumber(ARGV[1]) then return last end
        if epoch == ARGV[1] then
            local first = redis.call('XRANGE', KEYS[1], epoch .. '-0', epoch .. '-0')
            if #first == 0 or first[1][2][2] ~= ARGV[2] then return last end
            return 'OK'
        end
        redis.call('XADD', KEYS[1], ARGV[1] .. '-0', 'f', ARGV[2])
        return 'OK'
        """)

    private func fence() throws(StoreError) {
        var command = RedisCommand(Self.fenceScript, keys: [key])
        command.append(epoch, "\(UInt64.random(in: .min ... .max))")
        let reply = try run([RedisRequest(command, slot: slot)], isDurable: true)[0]
        guard let text = reply.text else { throw unusable(reply, "the fence") }
        guard text != "OK" else { return }
        guard let top = LogID(text) else { throw unusable(reply, "the fence") }
        guard !top.isBeyondEpochs else {
            let found: (entries: [LogID], epochBelow: UInt64)
            do throws(RedisError) {
                found = try LogReading.beyondEpochs(of: key, slot: slot, by: client)
            } catch { throw .redis(what: error.description) }
            // The repaired log keeps the entries below the foreign one, so its last id must not be below their highest epoch.
            throw .foreignEntry(
                stream: String(decoding: key, as: UTF8.self), entry: text,
                mending: LogMending.advice(
                    key, top, after: max(epoch - 1, found.epochBelow), others: found.entries.filter { $0 != top }))
        }
        throw .epochTaken(part: part, epoch: top.epoch)
    }

    private func raise() throws(StoreError) {
        let groups = batches.groups
        let requests = groups.map { keys in
            var command = RedisCommand(RedisScripts.raise, keys: [keys.marks])
            command.append(epoch)
            return RedisRequest(command, slot: keys.slot)
        }
        for reply in try run(requests, isDurable: true) {
            guard let found = reply.text.flatMap({ UInt64($0) }), found >= epoch else {
                throw unusable(reply, "the epoch of a group")
            }
            if found > epoch { throw .epochTaken(part: part, epoch: found) }
        }
        let marks = try run(
            groups.map { keys in
                let command = RedisCommand("HGETALL", keys.marks)
                return RedisRequest(command, slot: keys.slot)
            })
        for (keys, reply) in zip(groups, marks) {
            guard let words = reply.array else { throw unusable(reply, "the marks of group \(keys.group)") }
            for place in stride(from: 0, to: words.count - 1, by: 2) {
                guard let period = words[place].text.flatMap({ RedisPeriod(field: $0) }) else { continue }
                batches.note(period, byteCount: words[place + 1].text.flatMap { Int($0) } ?? 0, in: keys.group)
            }
        }
    }

    // MARK: Replaying

    /// The memory of the values of one piece of the log, until its rows are written.
    private final class PieceMemory {
        private var buffers: [UnsafeMutableRawBufferPointer] = []
        private(set) var byteCount = 0
        func keep(_ bytes: [UInt8]) -> UnsafeRawBufferPointer {
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, bytes.count), alignment: 8)
            buffer.copyBytes(from: bytes)
            buffers.append(buffer)
            byteCount += bytes.count
            return UnsafeRawBufferPointer(rebasing: buffer[..<bytes.count])
        }
        deinit { for buffer in buffers { buffer.deallocate() } }
    }

    private struct Piece {
        var rows: [SpilledRow] = []
        var memory = PieceMemory()
    }

    private func replay(_ findings: inout Findings) throws(StoreError) {
        var start = "-"
        var pageCount = 16
        var last: LogID?
        var piece = Piece()
        let source = CountSource(self)
        var counts = CountReplay(source, run: 0)
        var run: UInt64 = 0
        while true {
            let page: Page
            do throws(RedisError) { page = try readPage(from: start, count: pageCount) } catch {
                // Large entries after small ones may exceed the size of one reply. Retry with one entry per page.
                if case .malformed = error, pageCount > 1 {
                    pageCount = 1
                    continue
                }
                if case .unexpected(_, _, let what) = error {
                    throw .damagedLog(stream: String(decoding: key, as: UTF8.self), entry: start, what: what)
                }
                throw .redis(what: error.description)
            }
            if let (entry, what) = page.stranger {
                throw .damagedLog(stream: String(decoding: key, as: UTF8.self), entry: entry, what: what)
            }
            guard let end = page.entries.last?.id else { break }
            let byteCount = page.entries.reduce(0) { $0 + ($1.body?.count ?? 0) }
            let isWhole = page.entries.count < pageCount
            pageCount = max(
                1, min(Limits.replayPageEntryCount, Limits.replayPageByteCount * page.entries.count / max(1, byteCount))
            )
            for entry in page.entries {
                if let last, last.epoch == entry.id.epoch, entry.id.number > last.number,
                    entry.id.number - last.number > 1
                {
                    context.report(
                        .entriesMissing(part: part, after: last.description, before: entry.id.description))
                    isMissingEntries = true
                }
                last = entry.id
                guard let body = entry.body else { continue }
                findings.replayedEntryCount += 1
                findings.replayedByteCount += body.count
                if entry.id.epoch != run {
                    // Tickets restart in each epoch.
                    try write(&piece, &counts, run: run)
                    counts = CountReplay(source, run: entry.id.epoch)
                    run = entry.id.epoch
                }
                try take(body, entry.id, &piece, &counts, source)
                if piece.rows.count >= Limits.replayPieceRowCount
                    || piece.memory.byteCount >= Limits.replayPieceByteCount
                {
                    try write(&piece, &counts, run: run)
                }
            }
            guard !isWhole else { break }
            start = "(\(end)"
        }
        try write(&piece, &counts, run: run)
    }

    private struct Page {
        var entries: [(id: LogID, body: [UInt8]?)] = []
        /// An invalid entry, and the reason.
        var stranger: (entry: String, what: String)?
    }

    private func readPage(from start: String, count: Int) throws(RedisError) -> Page {
        var command = RedisCommand("XRANGE", key, start)
        // The fence is the end: later entries belong to this owner.
        command.append("(\(epoch)-0", "COUNT", count)
        let reply = try client.run([RedisRequest(command, slot: slot)], deadline: deadline)[0]
        let address = context.cluster.primary(of: slot) ?? RedisAddress(host: "", port: 0)
        if let fault = reply.fault { throw .refused(address, fault) }
        guard let entries = reply.array else { throw .unexpected(address, command: "XRANGE", "no list of entries") }
        var page = Page()
        for entry in entries {
            guard let parts = entry.array, parts.count == 2, let text = parts[0].text, let id = LogID(text) else {
                throw .unexpected(address, command: "XRANGE", "it has no id")
            }
            guard let fields = parts[1].array, fields.count == 2, let name = fields[0].text else {
                page.stranger = (text, "it has other fields than one")
                break
            }
            switch (name, fields[1].bytes) {
            case ("b", let body?): page.entries.append((id, body))
            case ("b", nil): page.stranger = (text, "its field b has no bytes")
            case ("f", _), ("w", _): page.entries.append((id, nil))
            default: page.stranger = (text, "its field \(name) is none that this version knows")
            }
            if page.stranger != nil { break }
        }
        return page
    }

    private func take(
        _ body: [UInt8], _ id: LogID, _ piece: inout Piece, _ counts: inout CountReplay, _ source: CountSource
    ) throws(StoreError) {
        let stream = String(decoding: key, as: UTF8.self)
        let bytes = piece.memory.keep(body)
        var counted: Set<StoreKey> = []
        _ = LogEntry.visit(bytes, id) { operation in
            if let key = operation.storeKey, key.table == .counters { counted.insert(key) }
        }
        try source.prefetch(counted)
        var unreadable: String?
        var failure: StoreError?
        let damage = LogEntry.visit(bytes, id) { operation in
            guard unreadable == nil, failure == nil else { return }
            guard let key = operation.storeKey, RedisGroups.group(of: key.bucket) % partCount == part else {
                unreadable = "it has a row of table \(operation.table) and bucket \(operation.bucket)"
                return
            }
            if key.table == .counters {
                do throws(StoreError) { try counts.take(operation, key) } catch { failure = error }
                return
            }
            guard operation.kind != .add else {
                unreadable = "it adds to a row of table \(operation.table)"
                return
            }
            piece.rows.append(
                SpilledRow(
                    key: key, value: operation.kind == .put ? operation.value : nil, wakeAt: operation.wakeAt,
                    coldAlarm: operation.coldAlarm, slot: noSlot, version: 0, block: 0))
        }
        if let failure { throw failure }
        if let what = damage ?? unreadable ?? (counts.isDamaged ? "a change of counts cannot be read" : nil) {
            throw .damagedLog(stream: stream, entry: id.description, what: what)
        }
    }

    private func write(_ piece: inout Piece, _ counts: inout CountReplay, run: UInt64) throws(StoreError) {
        let (rows, memory) = counts.takeChanged()
        piece.rows.append(contentsOf: rows)
        if !piece.rows.isEmpty {
            _ = try batches.write([piece.rows], run: run, now: try time(), by: client)
        }
        withExtendedLifetime(memory) {}
        withExtendedLifetime(piece.memory) {}
        piece = Piece()
    }

    /// Returns the gateway time, or the server's time while the gateway time is unknown.
    private func time() throws(StoreError) -> Int64 {
        if let now = context.configuration.now() { return now }
        let reply = try run([RedisRequest(RedisCommand("TIME"), slot: slot)])[0]
        guard let seconds = reply.array?.first?.text.flatMap({ Int64($0) }), 0..<1 << 40 ~= seconds else {
            throw unusable(reply, "TIME")
        }
        return seconds * 1_000
    }

    private func trim() throws(StoreError) {
        let reply = try run([RedisRequest(RedisScripts.trim(key, epoch: epoch, before: 0), slot: slot)])[0]
        if let successor = RedisScripts.successor(reply) { throw .epochTaken(part: part, epoch: successor) }
        guard reply.integer != nil else { throw unusable(reply, "XTRIM") }
    }

    // MARK: Reading the log

    private func look(_ findings: inout Findings) throws(StoreError) {
        let last: LogID?
        do throws(RedisError) {
            last = try LogReading.lastID(of: key, slot: slot, by: client)
        } catch { throw .redis(what: error.description) }
        guard let last, last.epoch == epoch else { throw .epochTaken(part: part, epoch: last?.epoch ?? 0) }
        guard last.number < 1 << 62 else {
            throw .damagedLog(
                stream: String(decoding: key, as: UTF8.self), entry: last.description,
                what: "no entry can follow it: another program wrote it")
        }
        findings.nextNumber = last.number + 1
        let groups = batches.groups
        func counts(_ name: String, _ key: (GroupKeys) -> [UInt8]) throws(StoreError) -> Bool {
            let requests = groups.map { keys in
                let command = RedisCommand(name, key(keys))
                return RedisRequest(command, slot: keys.slot)
            }
            var isAny = false
            for reply in try run(requests) {
                // A failed count must not be treated as zero rows.
                guard let count = reply.integer else { throw unusable(reply, name) }
                if count > 0 { isAny = true }
            }
            return isAny
        }
        findings.hasRows = try counts("HLEN") { $0.rows }
        findings.hasAlarms = try counts("ZCARD") { $0.alarms }
        guard findings.hasRows else { return }
        for table in StoreKey.Table.allCases where table.isReadAtStart {
            findings.start[table] = try load(table)
        }
    }

    func load(_ table: StoreKey.Table) throws(StoreError) -> [(key: StoreKey, stored: [UInt8])] {
        var found: [(key: StoreKey, stored: [UInt8])] = []
        for keys in batches.groups {
            let buckets = stride(from: keys.group, to: Bucket.count, by: RedisGroups.count).map { UInt16($0) }
            let ranges = buckets.map { bucket in
                let prefix = [UInt8(bucket >> 8), UInt8(bucket & 0xFF), table.rawValue]
                return RedisRequest(
                    RowReading.range(keys.index, from: prefix, through: prefix, count: nil), slot: keys.slot)
            }
            var names: [[UInt8]] = []
            for reply in try run(ranges) {
                guard let list = reply.array else { throw unusable(reply, "the index") }
                names.append(contentsOf: list.compactMap(\.bytes))
            }
            for first in stride(from: 0, to: names.count, by: Limits.rowsPerBatch) {
                let part = names[first..<min(first + Limits.rowsPerBatch, names.count)]
                let reply = try run([RedisRequest(RowReading.values(keys.rows, Array(part)), slot: keys.slot)])[0]
                guard let values = reply.array, values.count == part.count else { throw unusable(reply, "the rows") }
                for (name, value) in zip(part, values) {
                    guard let key = name.withUnsafeBytes({ KeyCoding.readKey($0) }), let stored = value.bytes,
                        stored.count >= KeyCoding.rowPrefixByteCount, key.table == table,
                        RedisGroups.group(of: key.bucket) == keys.group
                    else { continue }
                    found.append((key, stored))
                }
            }
        }
        return found.sorted { $0.key < $1.key }
    }

    // MARK: Commands

    private var deadline: UInt64 { context.now + UInt64(context.configuration.rowsMilliseconds) }

    fileprivate func run(_ requests: [RedisRequest], isDurable: Bool = false) throws(StoreError) -> [RedisReply] {
        guard !requests.isEmpty else { return [] }
        do throws(RedisError) {
            return try client.run(
                requests, isDurable: isDurable, minReplicas: context.configuration.minReplicas, deadline: deadline)
        } catch { throw .redis(what: error.description) }
    }

    fileprivate func unusable(_ reply: RedisReply, _ what: String) -> StoreError {
        .redis(what: "\(what): \(reply.fault?.text ?? "an answer of another form")")
    }

    fileprivate final class CountSource: StoredRows {
        private let opening: PartOpening
        private let keys: [Int: GroupKeys]
        private var fetched: [StoreKey: [UInt8]?] = [:]
        private var known: Set<StoreKey> = []

        init(_ opening: PartOpening) {
            self.opening = opening
            keys = Dictionary(uniqueKeysWithValues: opening.batches.groups.map { ($0.group, $0) })
        }

        func prefetch(_ wanted: Set<StoreKey>) throws(StoreError) {
            let new = wanted.subtracting(known)
            guard !new.isEmpty else { return }
            known.formUnion(new)
            let list = new.sorted()
            let replies = try opening.run(
                list.compactMap { key in
                    keys[RedisGroups.group(of: key.bucket)].map {
                        RedisRequest(RowReading.value($0.rows, key), slot: $0.slot)
                    }
                })
            guard replies.count == list.count else { return }
            for (key, reply) in zip(list, replies) { fetched[key] = .some(try stored(reply)) }
        }

        func withStored(_ key: StoreKey, _ body: (UnsafeRawBufferPointer) -> Void) throws(StoreError) {
            // Each row is needed once: afterwards the replay has it in memory.
            if let found = fetched.removeValue(forKey: key) {
                if let stored = found { stored.withUnsafeBytes(body) }
                return
            }
            guard let place = keys[RedisGroups.group(of: key.bucket)] else { return }
            let reply = try opening.run([RedisRequest(RowReading.value(place.rows, key), slot: place.slot)])[0]
            if let stored = try stored(reply) { stored.withUnsafeBytes(body) }
        }

        /// Returns the stored row; `nil` only if the server confirmed that there is none.
        private func stored(_ reply: RedisReply) throws(StoreError) -> [UInt8]? {
            if reply.isNone { return nil }
            guard let bytes = reply.bytes else { throw opening.unusable(reply, "a row of counts") }
            return bytes
        }
    }
}
