// Access to all rows of a stopped cluster, for a copy. It bypasses logs and overlays: logs are first moved into rows, and new
// rows are written directly to their groups.

package import Delivery
internal import Journal
package import Redis
internal import Wire

package struct WrittenRow: Sendable {
    package var key: StoreKey
    package var wakeAt: Int64
    package var value: [UInt8]
    package init(key: StoreKey, wakeAt: Int64, value: [UInt8]) {
        (self.key, self.wakeAt, self.value) = (key, wakeAt, value)
    }
}

/// Access for one thread; the caller must ensure that no gateway owns a partition.
package final class RedisRowAccess {
    private let context: LogContext
    private let client: RedisClient
    private let partCount: Int
    private var batches: [RedisRowBatches] = []
    /// The epoch under which each partition was opened.
    package private(set) var epochs: [UInt64] = []
    /// Called often, so that the caller can renew its mark in the register (`copyUntil`) during a long call.
    package var tick: () throws(StoreError) -> Void = {}

    package init(_ cluster: RedisCluster, _ configuration: RedisEngine.Configuration, partCount: Int) {
        context = LogContext(cluster, configuration)
        client = RedisClient(cluster)
        self.partCount = partCount
    }

    package func close() { client.close() }

    /// Returns whether the cluster has neither rows nor log entries; changes nothing.
    package func isEmpty() throws(StoreError) -> Bool {
        for group in 0..<RedisGroups.count {
            try tick()
            let keys = GroupKeys(context.configuration.name, group: group)
            let replies = try run([command("HLEN", keys.rows), command("HKEYS", keys.marks)], keys.slot)
            if replies[0].integer != 0 { return false }
            let marks = (replies[1].array ?? []).compactMap(\.text)
            if marks.contains(where: { RedisPeriod(field: $0) != nil }) { return false }
        }
        for part in 0..<RedisGroups.count {
            let key = GroupKeys.log(context.configuration.name, part: part)
            let slot = RedisSlot.of(key)
            let command = RedisCommand("XRANGE", key, "-", "+", "COUNT", "64")
            guard let entries = try run([command], slot)[0].array else { continue }
            for entry in entries {
                // Other entries contain no rows.
                if entry.array?.last?.array?.first?.text == "b" { return false }
            }
        }
        return true
    }

    /// Fences all previous owners and moves their logs into rows.
    ///
    /// - Parameter floor: The last known epoch of each partition.
    /// - Throws: `.damagedLog`, `.redis`.
    package func open(above floor: [UInt64]) throws(StoreError) {
        epochs = (0..<partCount).map { ($0 < floor.count ? floor[$0] : 0) + 1 }
        batches = []
        for part in 0..<partCount {
            try tick()
            var triesLeft = 3
            while true {
                let opening = PartOpening(
                    part: part, of: partCount, epoch: epochs[part], context: context, client: client)
                do throws(StoreError) {
                    _ = try opening.perform()
                    batches.append(opening.batches)
                    break
                } catch {
                    guard case .epochTaken(_, let top) = error, triesLeft > 0 else { throw error }
                    triesLeft -= 1
                    epochs[part] = max(epochs[part], top) + 1
                }
            }
        }
    }

    /// Removes every row; the epochs remain, so that no former owner can write.
    package func clear() throws(StoreError) {
        for batches in batches {
            for keys in batches.groups {
                try tick()
                var doomed = [keys.rows, keys.index, keys.alarms]
                let periods = batches.periods(of: keys.group)
                for period in periods { doomed.append(keys.ephemeral(period)) }
                var commands = doomed.map { command("UNLINK", $0) }
                for period in periods {
                    var forget = command("HDEL", keys.marks)
                    forget.append(period.field)
                    commands.append(forget)
                }
                _ = try run(commands, keys.slot, isDurable: true)
            }
        }
        // Open again, to reload the periods.
        try open(above: epochs)
    }

    /// Visits every row once, in no order.
    ///
    /// - Throws: `.damagedRow` for an unreadable row, `.redis`.
    package func visit(_ body: (StoredRow) throws -> Void) throws {
        for batches in batches {
            for keys in batches.groups.sorted(by: { $0.group < $1.group }) {
                try scan(keys.rows, keys, isEphemeral: false, body)
                for period in batches.periods(of: keys.group) {
                    try scan(keys.ephemeral(period), keys, isEphemeral: true, body)
                }
            }
        }
    }

    private func scan(
        _ hash: [UInt8], _ keys: GroupKeys, isEphemeral: Bool, _ body: (StoredRow) throws -> Void
    ) throws {
        // HSCAN may return a field twice, and may miss some if it continues on another server.
        var seen: Set<StoreKey> = []
        for _ in 0..<Self.scanCount {
            var cursor = "0"
            repeat {
                try tick()
                var command = command("HSCAN", hash)
                for word in [cursor, "COUNT", "\(Limits.copiedRowsPerPage)"] { command.append(word) }
                guard let reply = try run([command], keys.slot)[0].array, reply.count == 2, let next = reply[0].text,
                    let fields = reply[1].array, fields.count % 2 == 0
                else { throw damaged(hash, "it is no hash of rows") }
                for place in stride(from: 0, to: fields.count, by: 2) {
                    guard let name = fields[place].bytes, let key = name.withUnsafeBytes({ KeyCoding.readKey($0) }),
                        RedisGroups.group(of: key.bucket) == keys.group, key.table.isEphemeral == isEphemeral
                    else { throw damaged(hash, "a field is no row's key") }
                    guard let stored = fields[place + 1].bytes, stored.count >= KeyCoding.rowPrefixByteCount else {
                        throw damaged(hash, "the row \(key) is shorter than any row")
                    }
                    guard seen.insert(key).inserted else { continue }
                    try stored.withUnsafeBytes { stored in
                        guard var row = KeyCoding.row(key, stored) else { return }
                        if !key.table.hasAlarms { row.wakeAt = 0 }
                        try body(row)
                    }
                }
                cursor = next
            } while cursor != "0"
            guard let count = try run([command("HLEN", hash)], keys.slot)[0].integer else {
                throw damaged(hash, "it is no hash of rows")
            }
            if count == seen.count { return }
        }
        throw StoreError.redis(
            what: "\(String(decoding: hash, as: UTF8.self)) changes while it is read: another program works on it")
    }

    private static let scanCount = 5

    private func damaged(_ hash: [UInt8], _ what: String) -> StoreError {
        .damagedRow(place: String(decoding: hash, as: UTF8.self), what: what)
    }

    /// Writes rows of any partitions, durable on return.
    ///
    /// Each key must be written only once.
    ///
    /// - Parameters:
    ///   - rows: The rows.
    ///   - now: The gateway time, for the periods of request ids and traces.
    /// - Throws: `.redis`, and `.epochTaken` when a gateway has taken over a partition.
    package func write(_ rows: [WrittenRow], now: Int64) throws(StoreError) {
        try tick()
        let byteCount = rows.reduce(0) { $0 + $1.value.count }
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, byteCount), alignment: 8)
        defer { memory.deallocate() }
        var offset = 0
        var spilled = [[SpilledRow]](repeating: [], count: partCount)
        for row in rows {
            let place = UnsafeMutableRawBufferPointer(rebasing: memory[offset..<offset + row.value.count])
            place.copyBytes(from: row.value)
            offset += row.value.count
            spilled[row.key.bucket.loop(of: partCount)].append(
                SpilledRow(
                    key: row.key, value: UnsafeRawBufferPointer(place), wakeAt: row.wakeAt, coldAlarm: 0, slot: noSlot,
                    version: 0, block: 0))
        }
        for (part, rows) in spilled.enumerated() where !rows.isEmpty {
            _ = try batches[part].write([rows], run: epochs[part], now: now, by: client)
        }
    }

    /// Returns the server's time, in milliseconds since 1970.
    package func time() throws(StoreError) -> Int64 {
        let key = GroupKeys(context.configuration.name, group: 0)
        guard let parts = try run([RedisCommand("TIME")], key.slot)[0].array,
            let seconds = parts.first?.text.flatMap({ Int64($0) }), 0..<1 << 40 ~= seconds
        else { throw .redis(what: "TIME has an answer of another form") }
        return seconds * 1_000
    }

    private func command(_ name: String, _ key: [UInt8]) -> RedisCommand {
        RedisCommand(name, key)
    }

    private func run(_ commands: [RedisCommand], _ slot: Int, isDurable: Bool = false) throws(StoreError)
        -> [RedisReply]
    {
        let replies: [RedisReply]
        do throws(RedisError) {
            replies = try client.run(
                commands.map { RedisRequest($0, slot: slot) }, isDurable: isDurable,
                minReplicas: context.configuration.minReplicas,
                deadline: context.now + UInt64(context.configuration.rowsMilliseconds))
        } catch { throw .redis(what: error.description) }
        for (command, reply) in zip(commands, replies) {
            guard let fault = reply.fault else { continue }
            let words = command.arguments.prefix(2).map { String(decoding: $0, as: UTF8.self) }
            throw .redis(what: "\(words.joined(separator: " ")): \(fault)")
        }
        return replies
    }
}
