// Writes of rows to Redis: each group's rows in batches, each batch one script call. Only the thread that serves the partition
// writes. A batch without a reply is sent again before any later one.

internal import Delivery
internal import Redis
internal import Wire

struct GroupWriter {
    let keys: GroupKeys
    /// The number of the last batch; numbers restart in each epoch.
    var lastBatch: UInt64 = 0
    /// The existing periods, and the bytes of rows in each as reported by the server.
    var periods: [RedisPeriod: Int] = [:]
    /// The periods recorded in the marks, so that the next owner knows and drops them.
    var marked: Set<RedisPeriod> = []
}

private struct BatchBuilder {
    /// The commands in the order of execution: removals before additions.
    private enum Section: Int, CaseIterable {
        case dropAlarms, dropRows, dropKeys, rows, keys, alarms, requests, traces

        var command: String {
            switch self {
            case .dropAlarms, .dropKeys: "ZREM"
            case .dropRows: "HDEL"
            case .rows, .requests, .traces: "HSET"
            case .keys, .alarms: "ZADD"
            }
        }
    }

    private var ephemeralByteCounts = (requests: 0, traces: 0)
    private var sections: [[[UInt8]]] = Array(repeating: [], count: Section.allCases.count)
    private(set) var byteCount = 0
    private(set) var rowCount = 0

    private mutating func add(_ section: Section, _ arguments: [UInt8]...) {
        for argument in arguments {
            byteCount += argument.count + 16
            sections[section.rawValue].append(argument)
        }
    }

    private static let zero: [UInt8] = [UInt8(ascii: "0")]

    mutating func put(_ row: SpilledRow, _ value: UnsafeRawBufferPointer, run: UInt64) {
        rowCount += 1
        let key = KeyCoding.bytes(row.key)
        let stored = RedisRowBatches.stored(row, value, run: run)
        if row.key.table.isEphemeral {
            let isTrace = Period.Kind(of: row.key.table) == .traces
            add(isTrace ? .traces : .requests, key, stored)
            let byteCount = key.count + stored.count + Limits.redisFieldByteCount
            if isTrace { ephemeralByteCounts.traces += byteCount } else { ephemeralByteCounts.requests += byteCount }
            return
        }
        add(.rows, key, stored)
        if row.key.table.isIndexed { add(.keys, Self.zero, key) }
    }

    mutating func delete(_ key: StoreKey) {
        rowCount += 1
        let bytes = KeyCoding.bytes(key)
        add(.dropRows, bytes)
        if key.table.isIndexed { add(.dropKeys, bytes) }
    }

    mutating func set(_ alarm: Alarm) { add(.alarms, Self.zero, KeyCoding.bytes(alarm)) }
    mutating func drop(_ alarm: Alarm) {
        rowCount += 1
        add(.dropAlarms, KeyCoding.bytes(alarm))
    }

    var isEmpty: Bool { rowCount == 0 }

    /// Returns the script call, and the periods whose sums it reports; a new period gets an expiry time, in case no owner drops
    /// it.
    mutating func take(
        _ writer: inout GroupWriter, epoch: UInt64, now: Int64
    ) -> (request: RedisRequest, periods: [RedisPeriod]) {
        let periods = (requests: RedisPeriod(.requests, at: now), traces: RedisPeriod(.traces, at: now))
        var keys = [writer.keys.marks, writer.keys.rows, writer.keys.index, writer.keys.alarms]
        var sums: [(period: RedisPeriod, byteCount: Int, place: Int)] = []
        var places: [Int] = [4, 2, 3, 2, 3, 4, 0, 0]
        for (section, period, byteCount) in [
            (Section.requests, periods.requests, ephemeralByteCounts.requests),
            (.traces, periods.traces, ephemeralByteCounts.traces),
        ]
        where !sections[section.rawValue].isEmpty {
            keys.append(writer.keys.ephemeral(period))
            places[section.rawValue] = keys.count
            sums.append((period, byteCount, keys.count))
        }
        writer.lastBatch += 1
        var command = RedisCommand(RedisScripts.batch, keys: keys)
        command.append(epoch, writer.lastBatch, sums.count)
        for (period, byteCount, place) in sums {
            command.append(period.field, byteCount, place)
        }
        for section in Section.allCases where !sections[section.rawValue].isEmpty {
            command.append(section.command, places[section.rawValue], sections[section.rawValue].count)
            for argument in sections[section.rawValue] { command.append(argument) }
        }
        // Set the expiry until a batch with the period is known to have run.
        for (period, _, place) in sums where !writer.marked.contains(period) {
            // The expiry is relative, because the server's clock may differ from the gateway's.
            let left = max(1, period.end - now) + Limits.redisPeriodMilliseconds
            command.append("PEXPIRE", place, 1, "\(left)")
        }
        self = BatchBuilder()
        return (RedisRequest(command, slot: writer.keys.slot), sums.map(\.period))
    }
}

final class RedisRowBatches {
    // Used by one thread at a time: the one that opens the partition, then the worker that serves it.

    struct Outcome {
        var rowCount = 0
        var deletionCount = 0
        /// The period that the request ids went to.
        var period: Int64 = 0
    }

    let epoch: UInt64
    private let part: Int
    private var writers: [Int: GroupWriter] = [:]
    private let minReplicas: Int
    private let timeoutMilliseconds: Int
    /// Whether to give up at once if a server is silent or refuses writes, because the caller has other work.
    var isImpatient = false

    init(part: Int, of partCount: Int, epoch: UInt64, configuration: RedisEngine.Configuration) {
        (self.part, self.epoch) = (part, epoch)
        (minReplicas, timeoutMilliseconds) = (configuration.minReplicas, configuration.rowsMilliseconds)
        for group in RedisGroups.groups(part: part, of: partCount) {
            writers[group] = GroupWriter(keys: GroupKeys(configuration.name, group: group))
        }
    }

    static func stored(_ row: SpilledRow, _ value: UnsafeRawBufferPointer, run: UInt64) -> [UInt8] {
        let isCounted = row.countedUpTo != 0
        let count = KeyCoding.rowPrefixByteCount + value.count + (isCounted ? CountStamp.byteCount : 0)
        return [UInt8](unsafeUninitializedCapacity: count) { bytes, used in
            let bytes = UnsafeMutableRawBufferPointer(bytes)
            if isCounted {
                bytes.storeBytes(of: row.countedUpTo, as: UInt64.self)
                bytes.storeBytes(of: run, toByteOffset: count - CountStamp.byteCount, as: UInt64.self)
            } else {
                bytes.storeBytes(of: row.wakeAt, as: Int64.self)
            }
            UnsafeMutableRawBufferPointer(rebasing: bytes[KeyCoding.rowPrefixByteCount...]).copyMemory(from: value)
            used = count
        }
    }

    var groups: [GroupKeys] { writers.values.map(\.keys).sorted { $0.group < $1.group } }

    func note(_ period: RedisPeriod, byteCount: Int, in group: Int) {
        // The bound keeps the sums from overflowing, whatever the marks contain.
        writers[group]?.periods[period] = min(max(0, byteCount), 1 << 48)
        writers[group]?.marked.insert(period)
    }

    /// Returns a group's periods, oldest first.
    func periods(of group: Int) -> [RedisPeriod] {
        writers[group]?.periods.keys.sorted { ($0.number, $0.kind.rawValue) < ($1.number, $1.kind.rawValue) } ?? []
    }

    var ephemeralByteCounts: [RedisPeriod: Int] {
        writers.values.reduce(into: [:]) { sums, writer in sums.merge(writer.periods, uniquingKeysWith: +) }
    }

    /// Writes rows, durable on every replica on return.
    ///
    /// The last of several rows with one key is stored. After a failure the same rows must be written again before any others. A
    /// late batch of the failed attempt then writes the same as the repetition, or arrives after it and changes nothing.
    ///
    /// - Parameters:
    ///   - parts: The rows in write order.
    ///   - run: The epoch whose tickets the counter rows name.
    ///   - now: The time for the periods of request ids and traces.
    ///   - client: The calling thread's client.
    /// - Returns: The number of rows and deletions.
    /// - Throws: `.redis`; some batches may have been written, and the same rows may be written again. `.epochTaken` when another
    ///   owner has the partition.
    func write(
        _ parts: [[SpilledRow]], run: UInt64, now: Int64, by client: RedisClient
    ) throws(StoreError) -> Outcome {
        var outcome = Outcome()
        outcome.period = RedisPeriod(.requests, at: now).number
        var builders: [Int: BatchBuilder] = [:]
        var outgoing = Outgoing()
        let groups = RowGroups(of: parts)
        for rows in [groups.rows, groups.start, groups.requests, groups.traces] {
            let sorted = SortedRows(rows, droppingShortLived: false)
            for place in sorted.indices {
                let row = sorted[place]
                let isLast = sorted.isLast(place)
                let group = RedisGroups.group(of: row.key.bucket)
                guard writers[group] != nil else { continue }
                var builder = builders[group] ?? BatchBuilder()
                builders[group] = nil
                // An interrupted replay may have left the alarm of an older version of this row.
                if row.coldAlarm != 0, row.coldAlarm != row.wakeAt || row.value == nil || !isLast {
                    builder.drop(Alarm(wakeAt: row.coldAlarm, key: row.key))
                }
                if let value = row.value {
                    if isLast {
                        builder.put(row, value, run: run)
                        outcome.rowCount += 1
                    }
                    if row.wakeAt != 0, row.key.table.hasAlarms {
                        let alarm = Alarm(wakeAt: row.wakeAt, key: row.key)
                        if isLast { builder.set(alarm) } else { builder.drop(alarm) }
                    }
                } else if isLast {
                    builder.delete(row.key)
                    outcome.deletionCount += 1
                }
                let isFull =
                    builder.rowCount >= Limits.rowsPerBatch || builder.byteCount >= Limits.rowBatchByteCount
                // Versions of one row stay in one batch, so that removal and addition are atomic.
                if isFull, isLast { try add(&builder, of: group, now, to: &outgoing, client) }
                builders[group] = builder
            }
        }
        for group in builders.keys.sorted() {
            guard var builder = builders[group], !builder.isEmpty else { continue }
            try add(&builder, of: group, now, to: &outgoing, client)
        }
        try send(&outgoing, client)
        return outcome
    }

    /// Batches that are sent together, at most one per group: a retried batch must not run after a later one of its group.
    private struct Outgoing {
        var requests: [RedisRequest] = []
        var batches: [(group: Int, periods: [RedisPeriod])] = []
        var byteCount = 0
    }

    private func add(
        _ builder: inout BatchBuilder, of group: Int, _ now: Int64,
        to outgoing: inout Outgoing, _ client: RedisClient
    ) throws(StoreError) {
        if outgoing.byteCount >= Limits.rowWriteByteCount || outgoing.batches.contains(where: { $0.group == group }) {
            try send(&outgoing, client)
        }
        guard var writer = writers[group] else { return }
        outgoing.byteCount += builder.byteCount
        let (request, periods) = builder.take(&writer, epoch: epoch, now: now)
        outgoing.requests.append(request)
        outgoing.batches.append((group, periods))
        writers[group] = writer
    }

    func drop(_ alarms: [Alarm], by client: RedisClient) throws(StoreError) {
        var builders: [Int: BatchBuilder] = [:]
        for alarm in alarms {
            builders[RedisGroups.group(of: alarm.key.bucket), default: BatchBuilder()].drop(alarm)
        }
        var outgoing = Outgoing()
        for group in builders.keys.sorted() {
            guard var builder = builders[group] else { continue }
            try add(&builder, of: group, 0, to: &outgoing, client)
        }
        try send(&outgoing, client)
    }

    /// Drops a group's period; the server frees its rows in the background.
    func end(_ period: RedisPeriod, of group: Int, by client: RedisClient) throws(StoreError) {
        guard let writer = writers[group] else { return }
        var command = RedisCommand(
            RedisScripts.endPeriod, keys: [writer.keys.marks, writer.keys.ephemeral(period)])
        command.append(epoch, period.field)
        let reply = try run([RedisRequest(command, slot: writer.keys.slot)], client)[0]
        if let successor = RedisScripts.successor(reply) { throw .epochTaken(part: part, epoch: successor) }
        guard reply.integer != nil else { throw .redis(what: "a period of part \(part): \(reply)") }
        writers[group]?.periods[period] = nil
        writers[group]?.marked.remove(period)
    }

    private func send(_ outgoing: inout Outgoing, _ client: RedisClient) throws(StoreError) {
        guard !outgoing.requests.isEmpty else { return }
        let sent = outgoing
        outgoing = Outgoing()
        for ((group, periods), reply) in zip(sent.batches, try run(sent.requests, client)) {
            if let successor = RedisScripts.successor(reply) { throw .epochTaken(part: part, epoch: successor) }
            guard reply.integer != nil || reply.array?.count == periods.count else {
                throw .redis(what: "rows of part \(part): \(reply.fault?.text ?? "an answer of another form")")
            }
            for (place, period) in periods.enumerated() {
                let known = writers[group]?.periods[period] ?? 0
                note(period, byteCount: reply.array?[place].integer.flatMap { Int(exactly: $0) } ?? known, in: group)
            }
        }
    }

    private func run(_ requests: [RedisRequest], _ client: RedisClient) throws(StoreError) -> [RedisReply] {
        do throws(RedisError) {
            return try client.run(
                requests, isDurable: true, minReplicas: minReplicas,
                deadline: client.cluster.network.monotonicMilliseconds + UInt64(timeoutMilliseconds),
                isImpatient: isImpatient)
        } catch { throw .redis(what: error.description) }
    }
}
