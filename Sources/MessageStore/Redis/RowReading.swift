// Cold reads: a few threads for each server. A thread takes what has gathered and asks for all of it at once, then for what
// the answers lead to, and so on.

internal import Delivery
internal import Journal
internal import Platform
internal import Redis
internal import Wire

/// The commands that read rows.
enum RowReading {
    static func value(_ rows: [UInt8], _ key: StoreKey) -> RedisCommand {
        var command = RedisCommand("HGET")
        command.append(rows)
        command.append(KeyCoding.bytes(key))
        return command
    }

    static func values(_ rows: [UInt8], _ keys: [[UInt8]]) -> RedisCommand {
        var command = RedisCommand("HMGET")
        command.append(rows)
        for key in keys { command.append(key) }
        return command
    }

    /// Members of a sorted set from `first` on that are not behind all that begin with `last`.
    static func range(
        _ key: [UInt8], from first: [UInt8], isExclusive: Bool = false, through last: [UInt8], count: Int?
    ) -> RedisCommand {
        var command = RedisCommand("ZRANGEBYLEX")
        command.append(key)
        command.append([UInt8(ascii: isExclusive ? "(" : "[")] + first)
        // No member is longer than this many bytes.
        command.append([UInt8(ascii: "[")] + last + [UInt8](repeating: 0xFF, count: KeyCoding.alarmKeyByteCount))
        if let count {
            command.append("LIMIT")
            command.append("0")
            command.append(count)
        }
        return command
    }

    /// A row as a reader gives it to a loop; `nil` for bytes that are no row.
    static func row(_ key: StoreKey, _ stored: [UInt8], _ operation: ReadOperation) -> ColdRow? {
        stored.withUnsafeBytes { stored in
            guard stored.count >= KeyCoding.rowPrefixByteCount else { return nil }
            if key.table == .counters {
                return ColdRow(key: key, wakeAt: 0, value: operation.keep(CountStamp.read(stored).value))
            }
            return ColdRow(
                key: key, wakeAt: stored.loadUnaligned(as: Int64.self),
                value: operation.keep(UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...])))
        }
    }

    static func partition(_ key: StoreKey) -> [UInt8] {
        Array(KeyCoding.bytes(key).prefix(KeyCoding.partitionByteCount))
    }
}

extension StoreRead {
    fileprivate var bucket: Bucket {
        switch self {
        case .get(let key): key.bucket
        case .scan(let partition, _, _), .measure(let partition, _): partition.bucket
        case .search(let bucket, _, _), .traces(let bucket, _, _): bucket
        }
    }
}

/// Requests of one round trip, and what is done with each reply.
private final class Round {
    var requests: [RedisRequest] = []
    var handlers: [(RedisReply, Round) -> Void] = []

    /// `handler` gets the reply, and the round in which it may ask for more.
    func ask(_ command: RedisCommand, _ slot: Int, _ handler: @escaping (RedisReply, Round) -> Void) {
        requests.append(RedisRequest(command, slot: slot))
        handlers.append(handler)
    }
}

/// The reads of all parts: those of one server's rows by threads of their own, so that nobody waits for another server.
final class RedisReaders: @unchecked Sendable {
    // Sound because `lanes` is a lock and the rest are constants.
    private let lanes: ServerLanes<ReadLane>
    private let cluster: RedisCluster

    init(_ context: LogContext) {
        cluster = context.cluster
        lanes = ServerLanes(
            named: "redis reader", threadCount: context.configuration.readerCount,
            isStepped: context.configuration.isStepped
        ) { _ in ReadLane(context) }
    }

    func submit(_ operation: ReadOperation, _ part: RedisPart) {
        lanes.lane(of: server(of: operation, part)).submit(operation, part)
    }

    /// The one server that has all that is asked for; `nil` where there may be several.
    private func server(of operation: ReadOperation, _ owner: RedisPart) -> RedisAddress? {
        guard operation.alarms == nil else { return nil }
        var slot: Int?
        for part in operation.parts where !part.isComplete {
            guard let keys = owner.keys(of: part.request.bucket) else { continue }
            if let known = slot, known != keys.slot { return nil }
            slot = keys.slot
        }
        return slot.flatMap { cluster.primary(of: $0) }
    }

    func step() -> Bool {
        var hasWorked = false
        for lane in lanes.all where lane.step() { hasWorked = true }
        return hasWorked
    }

    func start() throws(SystemError) { try lanes.start() }
    func close() { lanes.close() }
}

/// The queue of reads of one server, and what its threads do.
private final class ReadLane: ServerLane, @unchecked Sendable {
    // Sound because `queue` is a monitor and the rest are constants; `stepper` is used where there is no thread.

    private struct Queue: ~Copyable {
        var operations: [(operation: ReadOperation, part: RedisPart)] = []
        var isOpen = true
    }

    private let context: LogContext
    private let queue = Monitor(Queue())
    private lazy var stepper = RedisClient(context.cluster)

    init(_ context: LogContext) { self.context = context }

    func submit(_ operation: ReadOperation, _ part: RedisPart) {
        queue.signal { $0.operations.append((operation, part)) }
    }

    func close() {
        queue.broadcast { queue in
            queue.isOpen = false
            queue.operations.removeAll()
        }
    }

    func finish() { stepper.close() }

    func run() {
        let client = RedisClient(context.cluster)
        while let taken = take(isWaiting: true) { perform(taken, client) }
        client.close()
    }

    func step() -> Bool {
        guard let taken = take(isWaiting: false), !taken.isEmpty else { return false }
        perform(taken, stepper)
        return true
    }

    /// What has gathered; `nil` at the end.
    private func take(isWaiting: Bool) -> [(operation: ReadOperation, part: RedisPart)]? {
        queue.wait(while: { isWaiting && $0.isOpen && $0.operations.isEmpty }) { queue in
            guard queue.isOpen else { return nil }
            let count = min(queue.operations.count, Limits.readsPerRound)
            defer { queue.operations.removeFirst(count) }
            return Array(queue.operations[..<count])
        }
    }

    private func perform(_ taken: [(operation: ReadOperation, part: RedisPart)], _ client: RedisClient) {
        let rows = taken.filter { $0.operation.alarms == nil }
        readRows(rows, client)
        for (operation, _) in rows { operation.mailbox.put { $0.replies.append(operation) } }
        for (operation, part) in taken where operation.alarms != nil {
            readAlarms(operation, part, client)
            operation.mailbox.put { $0.replies.append(operation) }
        }
    }

    private func readRows(_ taken: [(operation: ReadOperation, part: RedisPart)], _ client: RedisClient) {
        var round = Round()
        for (operation, part) in taken {
            for index in operation.parts.indices where !operation.parts[index].isComplete {
                RowRead(operation, index, part).begin(round)
            }
        }
        while !round.requests.isEmpty {
            let next = Round()
            do throws(RedisError) {
                let began = SystemClock.monotonicNanoseconds
                let replies = try client.run(
                    round.requests, deadline: context.now + UInt64(context.configuration.readMilliseconds))
                let time = (SystemClock.monotonicNanoseconds - began) / 1_000
                context.reads.withLock { $0.add(batches: replies.count, bytes: 0, microseconds: time) }
                for (handler, reply) in zip(round.handlers, replies) { handler(reply, next) }
            } catch {
                for (operation, _) in taken { operation.failure = error.description }
                return
            }
            round = next
        }
    }

    private func readAlarms(_ operation: ReadOperation, _ part: RedisPart, _ client: RedisClient) {
        guard var work = operation.alarms else { return }
        operation.alarms = nil
        let source = RedisAlarms(part, work.request, client, context)
        do throws(StoreError) { try AlarmReading(source: source).perform(&work, operation) } catch {
            operation.failure = error.description
        }
        operation.alarms = work
    }
}

/// One part of an operation on its way through the rounds.
private final class RowRead {
    private let operation: ReadOperation
    private let index: Int
    private let part: RedisPart
    /// Names that a page of the index gave, and how far their rows are read.
    private var names: [[UInt8]] = []
    private var nextName = 0
    private var isLastPage = false
    private var byteCount = 0
    private var rowLimit = Int.max
    private var byteLimit = Int.max
    private var range: (keys: GroupKeys, through: [UInt8])?
    /// What a search of traces has found so far.
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
                // The newest period comes first.
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
            guard let list = reply.array else { return self.fail(reply, "a read of the index") }
            self.names = list.compactMap(\.bytes)
            (self.nextName, self.isLastPage) = (0, list.count < count)
            if isValueNeeded { self.values(round) } else { self.sizes(round) }
        }
    }

    private func values(_ round: Round) {
        guard let (keys, _) = range else { return end() }
        guard nextName < names.count else { return pageEnded(round, isValueNeeded: true) }
        let chunk = Array(names[nextName..<min(nextName + Limits.rowsPerRead, names.count)])
        round.ask(RowReading.values(keys.rows, chunk), keys.slot) { reply, round in
            guard let values = reply.array else { return self.fail(reply, "a read of rows") }
            for (name, value) in zip(chunk, values) {
                guard let key = name.withUnsafeBytes({ KeyCoding.readKey($0) }), let stored = value.bytes else {
                    continue
                }
                guard let row = RowReading.row(key, stored, self.operation) else { continue }
                // Each read takes one row at least: those of an earlier read may all be deleted young.
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

    /// Rows of this read, besides those of an earlier one.
    private var taken = 0

    private func sizes(_ round: Round) {
        guard let (keys, _) = range else { return end() }
        guard !names.isEmpty else { return pageEnded(round, isValueNeeded: false) }
        let chunk = names
        nextName = chunk.count
        for (place, name) in chunk.enumerated() {
            var command = RedisCommand("HSTRLEN")
            command.append(keys.rows)
            command.append(name)
            round.ask(command, keys.slot) { reply, round in
                guard let count = reply.integer else { return self.fail(reply, "a row's size") }
                if count >= Int64(KeyCoding.rowPrefixByteCount),
                    let key = name.withUnsafeBytes({ KeyCoding.readKey($0) })
                {
                    self.taken += 1
                    // Only the count of the bytes is of interest: the pointer is never followed.
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

    /// The traces that match, from all periods of the group.
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
                // A scan may give a field twice.
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
            guard let list = reply.array else { return self.fail(reply, "a read of the index") }
            let names = list.compactMap(\.bytes)
            guard let end = names.last else { return self.end() }
            round.ask(RowReading.values(keys.rows, names), keys.slot) { reply, round in
                guard let values = reply.array else { return self.fail(reply, "a read of rows") }
                for (name, value) in zip(names, values) {
                    if let stored = value.bytes, look(name, stored) { return }
                }
                self.searchIndex(keys, from: end, isExclusive: true, through: last, round, look)
            }
        }
    }

    /// Looks through all rows of the group for those of a table that has no index.
    private func searchAll(
        _ hash: [UInt8], _ slot: Int, cursor: String, _ prefix: [UInt8], _ round: Round,
        _ look: @escaping ([UInt8], [UInt8]) -> Bool, then: @escaping () -> Void = {}
    ) {
        var command = RedisCommand("HSCAN")
        command.append(hash)
        command.append(cursor)
        command.append("MATCH")
        // Each byte escaped, so that none stands for others.
        command.append(prefix.flatMap { [UInt8(ascii: "\\"), $0] } + [UInt8(ascii: "*")])
        command.append("COUNT")
        command.append(Limits.rowsPerPage)
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

/// A part's alarms as a reader looks through them: in pages, whose rows are read together.
private final class RedisAlarms: AlarmSource {
    private let part: RedisPart
    private let request: AlarmRequest
    private let client: RedisClient
    private let context: LogContext
    private var rows: [StoreKey: [UInt8]?] = [:]
    /// Keys of the present page, whose rows are read with the first of them that is asked for.
    private var page: [StoreKey] = []

    init(_ part: RedisPart, _ request: AlarmRequest, _ client: RedisClient, _ context: LogContext) {
        (self.part, self.request, self.client, self.context) = (part, request, client, context)
    }

    func row(_ key: StoreKey, _ operation: ReadOperation) throws(StoreError) -> ColdRow? {
        if rows[key] == nil {
            let isOfPage = page.contains(key)
            try fetch(isOfPage ? page : [key])
            // The rows that may have taken these alarms over are asked for next.
            if isOfPage { try fetchSuccessors() }
        }
        guard case .some(.some(let stored)) = rows[key] else { return nil }
        return RowReading.row(key, stored, operation)
    }

    private func fetchSuccessors() throws(StoreError) {
        var wanted: [StoreKey] = []
        for key in page {
            guard case .some(.some(let stored)) = rows[key], stored.count >= KeyCoding.rowPrefixByteCount else {
                continue
            }
            let successor = stored.withUnsafeBytes {
                request.successor(of: key, UnsafeRawBufferPointer(rebasing: $0[KeyCoding.rowPrefixByteCount...]))
            }
            if let successor, rows[successor] == nil { wanted.append(successor) }
        }
        try fetch(wanted)
    }

    private func fetch(_ wanted: [StoreKey]) throws(StoreError) {
        guard !wanted.isEmpty else { return }
        var known: [StoreKey] = []
        var requests: [RedisRequest] = []
        for key in wanted {
            guard let keys = part.keys(of: key.bucket) else {
                rows[key] = .some(nil)
                continue
            }
            known.append(key)
            requests.append(RedisRequest(RowReading.value(keys.rows, key), slot: keys.slot))
        }
        for (key, reply) in zip(known, try run(requests)) {
            if let fault = reply.fault { throw .redis(what: fault.text) }
            rows[key] = .some(reply.bytes)
        }
    }

    private func run(_ requests: [RedisRequest]) throws(StoreError) -> [RedisReply] {
        do throws(RedisError) {
            return try client.run(requests, deadline: context.now + UInt64(context.configuration.readMilliseconds))
        } catch { throw .redis(what: error.description) }
    }

    func cursor(
        in bucket: UInt16, from first: Alarm?, _ operation: ReadOperation
    ) throws(StoreError) -> any AlarmCursor {
        try Cursor(self, bucket, from: first)
    }

    private final class Cursor: AlarmCursor {
        private unowned let source: RedisAlarms
        private let prefix: [UInt8]
        private let keys: GroupKeys?
        private var alarms: [Alarm] = []
        private var place = 0
        private var isLastPage = false
        private var last: [UInt8]

        init(_ source: RedisAlarms, _ bucket: UInt16, from first: Alarm?) throws(StoreError) {
            self.source = source
            prefix = [UInt8(bucket >> 8), UInt8(bucket & 0xFF)]
            keys = source.part.keys(of: Bucket(bucket))
            last = first.map { KeyCoding.bytes($0) } ?? prefix
            // A bucket that nobody has looked into yet is asked for its first alarm only.
            try read(isExclusive: false, count: first == nil ? 1 : Limits.alarmsPerPage)
        }

        var current: Alarm? { place < alarms.count ? alarms[place] : nil }

        func advance() throws(StoreError) {
            place += 1
            if place >= alarms.count, !isLastPage { try read(isExclusive: true, count: Limits.alarmsPerPage) }
        }

        private func read(isExclusive: Bool, count: Int) throws(StoreError) {
            (alarms, place) = ([], 0)
            guard let keys else {
                isLastPage = true
                return
            }
            repeat {
                let command = RowReading.range(
                    keys.alarms, from: last, isExclusive: isExclusive, through: prefix, count: count)
                let reply = try source.run([RedisRequest(command, slot: keys.slot)])[0]
                guard let list = reply.array else { throw .redis(what: reply.fault?.text ?? "no list of alarms") }
                let names = list.compactMap(\.bytes)
                isLastPage = list.count < count
                if let end = names.last { last = end }
                alarms = names.compactMap { name in name.withUnsafeBytes { KeyCoding.readAlarm($0) } }
            } while alarms.isEmpty && !isLastPage
            source.page = alarms.map(\.key)
        }
    }
}
