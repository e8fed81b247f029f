import Delivery
import SimulatedRedis
import Wire

@testable import MessageStore
@testable import Simulation

/// One loop's partition of the engine on Redis, with a dictionary of all written rows.
///
/// The oracle observes the dictionary. The engine's reads, and the rows that the next owner finds, are compared with it.
final class WatchedStore: WorldStore, ShardStoreObserver {
    typealias Rows = [StoreKey: SimulatedStore.Value]

    weak var observer: (any ShardStoreObserver)?
    weak var witness: (any StoreWitness)?
    var onRead: ((ReadToken, _ isForAlarms: Bool) -> Void)?
    let part: Int
    let loop: ProcessLoop
    let real: EmbeddedShardStore
    private unowned let stores: RedisStores
    let epoch: UInt64

    /// The rows that the loop sees, and those known to be durable.
    private var current: Rows
    private(set) var durable: Rows
    private var batches: [(ticket: Ticket, operations: [SimulatedStore.Operation])] = []
    private var operations: [SimulatedStore.Operation] = []
    private var bucket: Bucket?
    private(set) var lastTicket: Ticket = 0
    private(set) var durableTicket: Ticket = 0
    private var reads: [ReadToken: [StoreRead]] = [:]
    private var waiting: Set<ReadToken> = []
    private var coolCount = 0
    private var isAccepting = true
    private var breaches: [String] = []
    /// The number of batches that the next owner found, once it exists.
    private(set) var found: Ticket?
    private var ephemeral: [(ticket: Ticket, key: StoreKey, value: SimulatedStore.Value)] = []

    init(_ open: RedisEngine.OpenPart, on loop: ProcessLoop, rows: Rows, of stores: RedisStores) {
        guard let real = open.store as? EmbeddedShardStore else { preconditionFailure("another kind of store") }
        (part, epoch, self.loop, self.real, self.stores) = (open.part, open.epoch, loop, real, stores)
        (current, durable) = (rows, rows)
        real.observer = self
    }

    /// Ends the process and removes its observers.
    func close() {
        (observer, witness, onRead) = (nil, nil, nil)
        real.close()
        loop.end()
    }

    var violations: [String] { breaches + stores.violations }

    // MARK: Writing

    var acceptsWrites: Bool {
        get { isAccepting && real.acceptsWrites }
        set { isAccepting = newValue }
    }
    var isShortOfRoom: Bool { real.isShortOfRoom }
    var batchByteCount: Int { real.batchByteCount }
    var committedTicket: Ticket { real.committedTicket }
    var waitingBatchCount: Int { batches.count }

    func beginBatch(_ bucket: Bucket) {
        self.bucket = bucket
        real.beginBatch(bucket)
    }

    @discardableResult
    func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation {
        var copy: SimulatedStore.Value?
        let location = real.put(key, wakeAt: wakeAt, prior: prior, byteCount: byteCount) { buffer in
            write(buffer)
            copy = SimulatedStore.Value(copying: UnsafeRawBufferPointer(buffer), wakeAt: wakeAt)
        }
        if let copy { wrote(key, copy, .put(key, copy)) }
        return location
    }

    private func wrote(_ key: StoreKey, _ value: SimulatedStore.Value, _ operation: SimulatedStore.Operation) {
        if key.table.isEphemeral {
            ephemeral.append((lastTicket + 1, key, value))
            if ephemeral.count > 80 { ephemeral.removeFirst(40) }
        } else {
            current[key] = value
        }
        operations.append(operation)
        witness?.rowWritten(key, value.bytes, ticket: lastTicket + 1)
    }

    func delete(_ key: StoreKey, prior: PriorRow) {
        real.delete(key, prior: prior)
        current[key] = nil
        operations.append(.delete(key))
    }

    func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void) {
        real.add(key, change, total: total)
        let sum = Self.sum(change, current[key], key)
        wrote(key, sum, .add(key, change))
    }

    private static func sum(_ change: CounterChange, _ before: SimulatedStore.Value?, _ key: StoreKey)
        -> SimulatedStore.Value
    {
        let sum = change.added(to: before.map { [UInt8]($0.bytes) }, key)
        return sum.withUnsafeBytes { SimulatedStore.Value(copying: $0, wakeAt: 0) }
    }

    /// The key of a row that names the last batch of its bucket.
    static func mark(of bucket: Bucket) -> StoreKey { StoreKey(bucket, .meta, ownerHigh: .max, ownerLow: 1) }

    func endBatch() -> Ticket {
        guard let bucket else { preconditionFailure("no batch is open") }
        let mark = Self.mark(of: bucket)
        let text = SimulatedStore.Value(text: "\(epoch):\(lastTicket + 1)")
        real.put(mark, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: text.bytes.count) {
            $0.copyMemory(from: text.bytes)
        }
        current[mark] = text
        operations.append(.put(mark, text))
        let ticket = real.endBatch()
        if ticket != lastTicket + 1 { breaches.append("batch \(lastTicket + 1) has ticket \(ticket)") }
        batches.append((ticket, operations))
        operations = []
        lastTicket = ticket
        return ticket
    }

    func turnEnded() { real.turnEnded() }

    // MARK: The world's handles

    func makeDurable(upTo ticket: Ticket) { stores.commit() }

    func complete(upTo ticket: Ticket) { loop.turn() }

    func cool(limit: Int, isSpared: (StoreKey) -> Bool) -> Int {
        let before = coolCount
        stores.spill(isWhole: limit == .max)
        return coolCount - before
    }

    /// Redis drops ephemeral rows only at the end of a day.
    func dropEphemeralRows() -> Bool { false }

    func rowCount(_ table: StoreKey.Table) -> Int { current.keys.count { $0.table == table } }

    func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void) {
        for key in durable.keys.filter({ $0.table == table && $0.ownerHigh != .max }).sorted() {
            guard let value = durable[key] else { continue }
            body(StoredRow(key: key, wakeAt: value.wakeAt, value: value.bytes))
        }
    }

    /// Marks batches up to this one as durable.
    private func advance(to ticket: Ticket) {
        while let batch = batches.first, batch.ticket <= ticket {
            batches.removeFirst()
            var operations = batch.operations
            for (place, operation) in operations.enumerated() {
                switch operation {
                case .put(let key, let value): if !key.table.isEphemeral { durable[key] = value }
                case .delete(let key): durable[key] = nil
                case .add(let key, let change):
                    let sum = Self.sum(change, durable[key], key)
                    durable[key] = sum
                    operations[place] = .put(key, sum)
                }
            }
            durableTicket = batch.ticket
            operations.removeAll { if case .put(let key, _) = $0 { key.ownerHigh == .max } else { false } }
            witness?.batchBecameDurable(operations, ticket: batch.ticket)
        }
    }

    // MARK: Reports of the engine

    func storeCommitted(upTo ticket: Ticket) {
        if let found {
            // This process has a successor, and its callers are gone.
            if ticket > found {
                stores.fail("part \(part): batch \(ticket) of a former owner was told durable, \(found) were found")
            }
            return
        }
        advance(to: ticket)
        observer?.storeCommitted(upTo: ticket)
    }

    func storeReplied(_ reply: StoreReply) {
        waiting.remove(reply.token)
        let asked = reads.removeValue(forKey: reply.token)
        guard found == nil else { return }
        if reply.failure == nil, let asked {
            for (read, result) in zip(asked, reply.results) { check(read, result) }
        }
        observer?.storeReplied(reply)
    }

    func storeCooled(_ key: StoreKey) {
        coolCount += 1
        guard found == nil else { return }
        observer?.storeCooled(key)
    }

    func storeBreached(_ breach: StoreBreach) { breaches.append("\(breach)") }

    // MARK: Reading

    func value(at location: ValueLocation) -> UnsafeRawBufferPointer { real.value(at: location) }
    func young(_ key: StoreKey) -> YoungLookup { real.young(key) }

    func isCertainlyAbsent(_ key: StoreKey) -> Bool {
        let isAbsent = real.isCertainlyAbsent(key)
        if isAbsent, current[key] != nil { breaches.append("\(key) is there, and called absent") }
        return isAbsent
    }

    func read(_ requests: [StoreRead]) -> ReadToken {
        let token = real.read(requests)
        reads[token] = requests
        waiting.insert(token)
        onRead?(token, false)
        return token
    }

    func requestAlarms(_ request: AlarmRequest) -> ReadToken {
        let token = real.requestAlarms(request)
        waiting.insert(token)
        onRead?(token, true)
        return token
    }

    func answer(_ token: ReadToken, failing: Bool) {
        guard waiting.contains(token) else { return }
        stores.read()
        loop.turn()
        // The read requested more, or waits for another read.
        if waiting.contains(token) {
            onRead?(token, false)
        }
    }

    var nextAlarm: Int64 { real.nextAlarm }
    var alarmGroups: [AlarmGroup] { real.alarmGroups }
    func nextAlarm(of group: AlarmGroup) -> Int64 { real.nextAlarm(of: group) }
    func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64) {
        real.leaveAlarm(key, wakeAt: wakeAt, in: group, until: until)
    }
    func recallAlarms(of group: AlarmGroup, in bucket: Bucket) { real.recallAlarms(of: group, in: bucket) }

    /// Checks a reply against the current rows.
    private func check(_ read: StoreRead, _ result: StoreReadResult) {
        switch (read, result) {
        case (.get(let key), .row(let row)):
            guard !key.table.isEphemeral else { return }
            if !Self.isSame(row, current[key]) {
                breaches.append("a read of \(key) shows another row than was written")
            }
        case (.scan(let first, _, _), .rows(let rows, let isComplete)):
            let keys = partition(first)
            if isComplete ? rows.count != keys.count : rows.count > keys.count {
                breaches.append("a scan from \(first) shows \(rows.count) rows of \(keys.count)")
            }
            for (key, row) in zip(keys, rows) where row.key != key || !Self.isSame(row, current[key]) {
                return breaches.append("a scan from \(first) shows \(row.key) in place of \(key), or another value")
            }
        case (.measure(let first, let limit), .measure(let count, let byteCount, _, _)):
            let keys = partition(first).prefix(limit)
            let bytes = keys.reduce(0) { $0 + (current[$1]?.bytes.count ?? 0) }
            if keys.count != count || bytes != byteCount {
                breaches.append(
                    "a measure from \(first) counts \(count) rows, \(byteCount) bytes: \(keys.count), \(bytes)")
            }
        default: break
        }
    }

    private func partition(_ first: StoreKey) -> [StoreKey] {
        current.keys.filter {
            $0.ownerLow == first.ownerLow && $0.ownerHigh == first.ownerHigh && $0.table == first.table
                && $0.bucket == first.bucket && $0.item >= first.item
        }.sorted()
    }

    private static func isSame(_ row: StoredRow?, _ value: SimulatedStore.Value?) -> Bool {
        guard let row, let value else { return row == nil && value == nil }
        return row.value.elementsEqual(value.bytes) && (!row.key.table.hasAlarms || row.wakeAt == value.wakeAt)
    }

    // MARK: The next owner

    /// Learns the rows that the next owner found, and which of the last ephemeral rows exist.
    func succeeded(by rows: Rows, has isThere: (StoreKey, SimulatedStore.Value) -> Bool) {
        var count: Ticket = 0
        for (key, value) in rows where key == Self.mark(of: key.bucket) {
            let words = String(decoding: value.bytes, as: UTF8.self).split(separator: ":")
            if words.count == 2, UInt64(words[0]) == epoch { count = max(count, Ticket(words[1]) ?? 0) }
        }
        let told = max(durableTicket, real.committedTicket)
        if count < told {
            stores.fail("part \(part): \(told) batches of epoch \(epoch) were durable, \(count) are there")
        }
        advance(to: count)
        found = count
        if count > told { stores.note("batches found that nobody was told of") }
        for key in Set(rows.keys).union(durable.keys) {
            let (there, expected) = (rows[key], durable[key])
            let isEqual: Bool =
                if let there, let expected {
                    there.bytes.elementsEqual(expected.bytes)
                        && (!key.table.hasAlarms || there.wakeAt == expected.wakeAt)
                } else {
                    there == nil && expected == nil
                }
            guard !isEqual else { continue }
            let what = there == nil ? "is not there" : expected == nil ? "is there again" : "has another value"
            return stores.fail("part \(part), after \(count) batches of epoch \(epoch): \(key) \(what)")
        }
        for (ticket, key, value) in ephemeral where ticket <= count && !isThere(key, value) {
            return stores.fail("part \(part), after \(count) batches of epoch \(epoch): \(key) is not there")
        }
    }
}

extension SimulatedStore.Value {
    convenience init(text: String) {
        self.init(copying: Array(text.utf8), wakeAt: 0)
    }

    convenience init(copying bytes: [UInt8], wakeAt: Int64) {
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, bytes.count), alignment: 8)
        defer { copy.deallocate() }
        copy.copyBytes(from: bytes)
        self.init(copying: UnsafeRawBufferPointer(rebasing: copy[..<bytes.count]), wakeAt: wakeAt)
    }
}
