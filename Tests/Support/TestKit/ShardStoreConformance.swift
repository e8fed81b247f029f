package import Delivery
package import Wire

/// A shard store with the controls that the conformance suite needs.
package protocol ShardStoreHarness: AnyObject {
    /// The store in use; a new object after `reopen()`.
    var store: any ShardStore { get }
    /// Makes everything written so far durable, and waits until the observer is notified.
    func sync() throws
    /// Waits until every requested read has been answered.
    func answerReads() throws
    /// Makes every durable row cold, and waits until the observer is notified.
    func cool() throws
    /// Lets background work run for a moment, if the store has any.
    func breathe() throws
    /// Drops what is not durable and restarts; the driver sets the observer again.
    func reopen() throws
}

/// The first error of a store, with the seed that reproduces it.
package struct ConformanceFailure: Error, CustomStringConvertible {
    package var description: String
}

/// A small, fast random generator whose sequence depends only on the seed.
package struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64
    package init(seed: UInt64) { state = seed }
    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}

/// Checks that a message's alarm is not reported once its job has a row.
package func checkAlarmSuccessors(_ harness: any ShardStoreHarness) throws {
    // The rows of three messages whose jobs are due.
    let delivery = DeliveryHarness()
    for _ in 0..<9 { _ = delivery.publish(delivery.register(state: .background, token: "aa")) }
    let all = delivery.store.visibleRows.filter { $0.key.table == .message }.sorted { $0.key < $1.key }
    let bucket = all[0].key.bucket
    let rows = all.filter { $0.key.bucket == bucket }
    func require(_ isTrue: Bool, _ text: String) throws {
        if !isTrue { throw ConformanceFailure(description: text) }
    }
    try require(rows.count >= 3, "too few messages in a bucket")
    func job(_ row: (key: StoreKey, value: (value: [UInt8], wakeAt: Int64))) throws -> StoreKey {
        let message = row.value.value.withUnsafeBytes { RowInspection.message($0)?.message }
        guard let message else { throw ConformanceFailure(description: "a message that cannot be read") }
        return StoreKey(bucket, .job, message)
    }
    let time = delivery.now + 1
    _ = delivery.lease()
    func jobBytes(_ key: StoreKey) throws -> [UInt8] {
        guard let row = delivery.store.visibleRows[key] else { throw ConformanceFailure(description: "no job's row") }
        return row.value
    }
    func put(_ key: StoreKey, _ bytes: [UInt8], wakeAt: Int64) {
        harness.store.put(key, wakeAt: wakeAt, prior: .none, byteCount: bytes.count) { $0.copyBytes(from: bytes) }
    }
    func reported() throws -> Set<StoreKey> {
        let witness = AlarmWitness()
        harness.store.observer = witness
        var rounds = 0
        repeat {
            _ = harness.store.requestAlarms(AlarmRequest(upTo: time, limit: 8))
            try harness.answerReads()
            rounds += 1
        } while !witness.isComplete && rounds < 10_000
        return witness.found
    }

    harness.store.beginBatch(bucket)
    for row in rows.prefix(3) { put(row.key, row.value.value, wakeAt: row.value.wakeAt) }
    put(try job(rows[1]), try jobBytes(job(rows[1])), wakeAt: time)
    _ = harness.store.endBatch()
    let first = AlarmWitness()
    harness.store.observer = first
    try harness.sync()
    try harness.cool()
    // The third message's job is young.
    harness.store.beginBatch(bucket)
    put(try job(rows[2]), try jobBytes(job(rows[2])), wakeAt: time)
    _ = harness.store.endBatch()
    try harness.sync()
    var expected: Set = [rows[0].key, try job(rows[1])]
    try require(try reported() == expected, "a message's alarm beside its job's")
    for _ in 0..<2 {
        try harness.reopen()
        expected.insert(try job(rows[2]))
        try require(try reported() == expected, "the same after a restart")
    }
}

/// Checks that a read limited to one row finds a row behind others whose deletions are young.
///
/// - Parameter harness: an empty store.
/// - Throws: `ConformanceFailure` if the row is not found; errors of the harness.
package func checkNarrowScan(_ harness: any ShardStoreHarness) throws {
    let bucket = Bucket(7)
    func key(_ item: UInt64) -> StoreKey { StoreKey(bucket, .tag, ownerHigh: 7, ownerLow: 1, item: item) }
    let witness = AlarmWitness()
    harness.store.observer = witness
    harness.store.beginBatch(bucket)
    for item in UInt64(1)...5 {
        let bytes = [UInt8](repeating: UInt8(item), count: 50)
        harness.store.put(key(item), wakeAt: 0, prior: .none, byteCount: 50) { $0.copyBytes(from: bytes) }
    }
    _ = harness.store.endBatch()
    try harness.sync()
    try harness.cool()
    harness.store.beginBatch(bucket)
    for item in UInt64(1)...3 { harness.store.delete(key(item), prior: .maybe(wakeAt: 0)) }
    _ = harness.store.endBatch()
    try harness.sync()
    _ = harness.store.read([.scan(partition: key(1), rowLimit: 1, byteLimit: 1)])
    try harness.answerReads()
    guard witness.found == [key(4)] else {
        throw ConformanceFailure(description: "\(witness.found.map(\.item)) in place of the fourth row")
    }
}

/// Checks that a message keeps its expiry alarm if its job's row cannot be read.
///
/// - Parameter harness: an empty store.
/// - Throws: `ConformanceFailure` for the first error; errors of the harness.
package func checkUnreadableSuccessor(_ harness: any ShardStoreHarness) throws {
    let delivery = DeliveryHarness()
    _ = delivery.publish(delivery.register(state: .background, token: "aa"))
    guard let row = delivery.store.visibleRows.first(where: { $0.key.table == .message }),
        let message = row.value.value.withUnsafeBytes({ RowInspection.message($0) })
    else { throw ConformanceFailure(description: "no message") }
    let job = StoreKey(row.key.bucket, .job, message.message)
    let time = delivery.now + 1
    func expect(_ expected: Set<StoreKey>, at time: Int64) throws {
        let witness = AlarmWitness()
        harness.store.observer = witness
        var rounds = 0
        repeat {
            _ = harness.store.requestAlarms(AlarmRequest(upTo: time, limit: 8))
            try harness.answerReads()
            rounds += 1
        } while !witness.isComplete && rounds < 10_000
        guard witness.found == expected else {
            throw ConformanceFailure(description: "\(witness.found) at \(time), in place of \(expected)")
        }
    }

    harness.store.beginBatch(row.key.bucket)
    for (key, bytes, wakeAt) in [(row.key, row.value.value, row.value.wakeAt), (job, [9], time)] {
        harness.store.put(key, wakeAt: wakeAt, prior: .none, byteCount: bytes.count) { $0.copyBytes(from: bytes) }
    }
    _ = harness.store.endBatch()
    let first = AlarmWitness()
    harness.store.observer = first
    try harness.sync()
    try harness.cool()
    for isReopened in [false, true, true] {
        if isReopened { try harness.reopen() }
        try expect([job], at: time)
        guard harness.store.nextAlarm == message.expiresAt else {
            throw ConformanceFailure(description: "the next alarm is at \(harness.store.nextAlarm)")
        }
        try expect([], at: message.expiresAt - 1)
        try expect([row.key], at: message.expiresAt)
        try expect([], at: message.expiresAt + 1)
    }
}

private final class AlarmWitness: ShardStoreObserver {
    var found: Set<StoreKey> = []
    var isComplete = false
    func storeCommitted(upTo ticket: Ticket) {}
    func storeCooled(_ key: StoreKey) {}
    func storeReplied(_ reply: StoreReply) {
        guard case .rows(let rows, let isComplete)? = reply.results.first else { return }
        found.formUnion(rows.map(\.key))
        self.isComplete = isComplete
    }
}

/// Compares a shard store with a plain dictionary over `stepCount` random steps.
///
/// - Parameters:
///   - harness: an empty store.
///   - seed: the seed of the steps.
///   - stepCount: the number of steps.
///   - buckets: the buckets of the harness's shard to use.
/// - Throws: `ConformanceFailure` after the first wrong step; errors of the harness.
package func checkShardStoreConformance(
    _ harness: any ShardStoreHarness, seed: UInt64, stepCount: Int, buckets: [Bucket]
) throws {
    var driver = ConformanceDriver(harness: harness, seed: seed, buckets: buckets)
    for step in 0..<stepCount {
        try driver.step()
        if let failure = driver.model.failures.first {
            throw ConformanceFailure(description: "LONGWIRE_SEED=\(seed), step \(step): \(failure)")
        }
    }
    try driver.finish()
    if let failure = driver.model.failures.first {
        throw ConformanceFailure(description: "LONGWIRE_SEED=\(seed), at the end: \(failure)")
    }
}

/// Writes more than a store's bounds allow.
///
/// The store must report each breach and keep the rows that it took.
///
/// - Parameters:
///   - harness: an empty store that takes batches of 8 MiB less 64 bytes.
///   - bucket: the bucket of the rows.
/// - Throws: `ConformanceFailure` for the first error; errors of the harness.
package func checkShardStoreBounds(_ harness: any ShardStoreHarness, bucket: Bucket) throws {
    let witness = BreachWitness()
    harness.store.observer = witness
    func require(_ isTrue: Bool, _ text: String) throws {
        if !isTrue { throw ConformanceFailure(description: "\(text); breaches: \(witness.breaches)") }
    }
    func row(_ owner: UInt64, _ item: UInt64) -> StoreKey {
        StoreKey(bucket, .tag, ownerHigh: owner, ownerLow: 1, item: item)
    }
    func put(_ key: StoreKey, _ byteCount: Int, wakeAt: Int64 = 0) {
        harness.store.put(key, wakeAt: wakeAt, prior: .maybe(wakeAt: 0), byteCount: byteCount) {
            $0.initializeMemory(as: UInt8.self, repeating: UInt8(truncatingIfNeeded: key.item))
        }
    }
    let count = UInt64(StoreBounds.operationCount)

    // Exactly at the bounds the store reports nothing.
    harness.store.beginBatch(bucket)
    for item in 1...count { put(row(1, item), 8) }
    let first = harness.store.endBatch()
    harness.store.beginBatch(bucket)
    put(row(2, 1), StoreBounds.valueByteCount)
    let second = harness.store.endBatch()
    try require(witness.breaches.isEmpty && second == first + 1, "what is within the bounds was told of")

    // One operation above the bound, and bytes beyond a batch.
    harness.store.beginBatch(bucket)
    for item in 1...count + 1 { put(row(3, item), 8) }
    let third = harness.store.endBatch()
    try require(witness.breaches.count == 1 && third == second + 2, "a batch with an operation too many")
    guard case .longBatch(StoreBounds.operationCount, _)? = witness.breaches.last?.kind else {
        throw ConformanceFailure(description: "another breach: \(witness.breaches)")
    }
    harness.store.beginBatch(bucket)
    let large = UInt64(harness.store.batchByteCount / StoreBounds.valueByteCount + 1)
    for item in 1...large { put(row(4, item), StoreBounds.valueByteCount) }
    try require(harness.store.endBatch() == third + 2 && witness.breaches.count == 2, "a batch with too many bytes")

    harness.store.beginBatch(bucket)
    put(row(5, 1), StoreBounds.valueByteCount + 1)
    put(row(5, 2), harness.store.batchByteCount)
    put(row(5, 3), 8, wakeAt: 1_000)
    put(row(5, 4), 8)
    _ = harness.store.endBatch()
    let kinds = witness.breaches.dropFirst(2).map(\.kind)
    try require(
        kinds == [
            .largeValue(byteCount: StoreBounds.valueByteCount + 1),
            .unfitValue(byteCount: harness.store.batchByteCount), .alarm,
        ], "values and alarms")

    let asked = [
        row(1, count), row(2, 1), row(3, 1), row(3, count + 1), row(4, 1), row(4, large), row(5, 1), row(5, 2),
        row(5, 3), row(5, 4),
    ]
    func look(_ when: String) throws {
        _ = harness.store.read(asked.map { .get($0) })
        try harness.answerReads()
        let found = witness.sizes
        let expected: [Int?] = [
            8, StoreBounds.valueByteCount, 8, 8, StoreBounds.valueByteCount, StoreBounds.valueByteCount,
            StoreBounds.valueByteCount + 1, nil, 8, 8,
        ]
        try require(found == expected, "\(when): \(found)")
    }
    try look("young")
    try harness.sync()
    try harness.cool()
    try look("cold")
    try harness.reopen()
    harness.store.observer = witness
    try look("after a start")
}

private final class BreachWitness: ShardStoreObserver {
    var breaches: [StoreBreach] = []
    /// The value sizes of the last reply; `nil` for a missing row.
    var sizes: [Int?] = []

    func storeCommitted(upTo ticket: Ticket) {}
    func storeReplied(_ reply: StoreReply) {
        sizes = reply.results.map { result in
            if case .row(let stored?) = result { stored.value.count } else { nil }
        }
    }
    func storeCooled(_ key: StoreKey) {}
    func storeBreached(_ breach: StoreBreach) { breaches.append(breach) }
}

private struct ConformanceDriver {
    let harness: any ShardStoreHarness
    let buckets: [Bucket]
    let model = StoreModel()
    private var random: SeededGenerator
    private var isDirty = false
    private var now: Int64 = 1000

    init(harness: any ShardStoreHarness, seed: UInt64, buckets: [Bucket]) {
        (self.harness, self.buckets) = (harness, buckets)
        random = SeededGenerator(seed: seed)
        harness.store.observer = model
    }

    mutating func step() throws {
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<48: try write()
        case 48..<64: read()
        case 64..<66: try removeWhileReading()
        case 66..<74: lookUp()
        case 74..<80: try harness.answerReads()
        case 80..<86: try sync()
        case 86..<89: try harness.breathe()
        case 89..<94:
            try sync()
            try harness.cool()
        case 94..<98: try checkAlarms()
        default: try reopen()
        }
    }

    mutating func finish() throws {
        try sync()
        try harness.answerReads()
        try reopen()
        for key in model.rows.keys.sorted() { ask([.get(key)]) }
        try harness.answerReads()
        now += 10_000
        try checkAlarms()
    }

    // MARK: Steps

    private mutating func key() -> StoreKey {
        let table = StoreKey.Table.allCases.randomElement(using: &random) ?? .message
        // Few owners, so that keys collide. Request ids are ephemeral, so that filters see new ones.
        let owner = UInt64.random(in: 1...(table.isEphemeral ? 200 : 3), using: &random)
        return StoreKey(
            buckets.randomElement(using: &random) ?? Bucket(0), table, ownerHigh: owner &* 0x9E37_79B9_7F4A_7C15,
            ownerLow: owner, item: table.hasItems ? UInt64.random(in: 0...12, using: &random) : 0)
    }

    /// Adds to a counter row; the store has to return the sum.
    private mutating func count(_ key: StoreKey) throws {
        var (fields, amounts) = (0, [UInt8]())
        for field in 0..<20 where Int.random(in: 0..<6, using: &random) == 0 {
            fields |= 1 << field
            let amount = Int.random(in: 1...(Bool.random(using: &random) ? 3 : 65_535), using: &random)
            let parts = [amount & 127, amount >> 7 & 127, amount >> 14]
            let count = amount < 1 << 7 ? 1 : amount < 1 << 14 ? 2 : 3
            for place in 0..<count { amounts.append(UInt8(parts[place] | (place + 1 < count ? 128 : 0))) }
        }
        let bytes = [UInt8(fields & 255), UInt8(fields >> 8 & 255), UInt8(fields >> 16)] + amounts
        guard let change = bytes.withUnsafeBytes({ CounterChange($0) }), change.encoded == bytes else {
            return model.fail("a change is not read as it was written: \(bytes)")
        }
        let sum = change.added(to: model.rows[key]?.value, key)
        harness.store.add(key, change) { $0.copyBytes(from: sum) }
        guard case .found(let location, wakeAt: 0) = harness.store.young(key) else {
            return model.fail("a row of counts is not in memory: \(key)")
        }
        model.put(key, StoreModel.Row(value: sum, wakeAt: 0), at: location)
    }

    private mutating func write() throws {
        let bucket = buckets.randomElement(using: &random) ?? Bucket(0)
        let store = harness.store
        store.beginBatch(bucket)
        for _ in 0..<Int.random(in: 0...6, using: &random) {
            var key = key()
            key.bucket = bucket
            if key.table.isEphemeral, model.everWritten.contains(key) { continue }
            let prior = model.prior(of: key)
            if key.table == .counters, Int.random(in: 0..<100, using: &random) < 80 {
                try count(key)
                continue
            }
            if !key.table.isEphemeral, Int.random(in: 0..<100, using: &random) < 45 {
                store.delete(key, prior: prior)
                model.delete(key)
            } else {
                put(key, prior)
            }
        }
        let ticket = store.endBatch()
        if ticket <= model.committedTicket { model.fail("ticket \(ticket) is not new") }
        isDirty = true
    }

    private mutating func put(_ key: StoreKey, _ prior: PriorRow) {
        let size =
            switch Int.random(in: 0..<20, using: &random) {
            case 0: 0
            case 1: Int.random(in: 400...1500, using: &random)
            default: Int.random(in: 1...60, using: &random)
            }
        let first = UInt8.random(in: 0...255, using: &random)
        var value = (0..<size).map { first &+ UInt8(truncatingIfNeeded: $0) }
        if key.table == .job, first % 4 != 0 { value = job() }
        // Changes are added only to counter rows.
        if key.table == .counters { value = CounterChange().added(to: nil, key) }
        var wakeAt: Int64 = 0
        if key.table.hasAlarms, Bool.random(using: &random) {
            wakeAt = now + Int64.random(in: -300...900, using: &random)
        }
        let location = harness.store.put(key, wakeAt: wakeAt, prior: prior, byteCount: value.count) { bytes in
            bytes.copyBytes(from: value)
        }
        if !harness.store.value(at: location).elementsEqual(value) { model.fail("a put's bytes are not readable") }
        model.put(key, StoreModel.Row(value: value, wakeAt: wakeAt), at: location)
    }

    /// The offset of the app's lowest byte in `job()`.
    private static let appOffset = 8

    /// Returns a job's row with the fields that readers check: one of three apps; due, leased or neither; finished or not.
    private mutating func job() -> [UInt8] {
        // A live message that expires after its TTL, with a random state and app.
        var row: [UInt8] = [
            1, UInt8.random(in: 1...3, using: &random), 1, 0, StoreKey.Table.message.rawValue, 0, 128, 0,
        ]
        row += [UInt8.random(in: 1...3, using: &random), 0, 0, 0, 0, 0, 0, 0]
        // Accepted at 0, so that the TTL is the expiry time. Integers are zigzag varints with seven bits a byte.
        row += [UInt8](repeating: 0, count: 16)
        let timeToLive = now + Int64.random(in: -200...1_200, using: &random)
        var rest = UInt64(bitPattern: timeToLive << 1 ^ timeToLive >> 63)
        while rest > 127 {
            row.append(UInt8(truncatingIfNeeded: rest) | 128)
            rest >>= 7
        }
        row += [UInt8(rest), 0]
        return row + [UInt8](repeating: 0, count: Int.random(in: 0...60, using: &random))
    }

    private mutating func read() {
        var reads: [StoreRead] = []
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            var key = key()
            let rowLimit = Int.random(in: 1...6, using: &random)
            switch Int.random(in: 0..<5, using: &random) {
            case 4:
                let parity = UInt8.random(in: 0...1, using: &random)
                reads.append(
                    .traces(bucket: key.bucket, limit: rowLimit) { ($0.ownerLow & 1 == 0) != ($1.count & 1 == parity) })
            case 0 where !key.table.isEphemeral:
                if Bool.random(using: &random) { key.item = 0 }
                reads.append(.measure(partition: key, rowLimit: rowLimit * 4))
            case 1,
                2 where !key.table.isEphemeral:
                if Bool.random(using: &random) { key.item = 0 }
                let byteLimit = Int.random(in: 1...300, using: &random)
                reads.append(.scan(partition: key, rowLimit: rowLimit, byteLimit: byteLimit))
            default: reads.append(.get(key))
            }
        }
        ask(reads)
    }

    /// Removes a row at the first of many replies that contain it; the later replies must not contain it.
    private mutating func removeWhileReading() throws {
        guard let key = model.rows.keys.sorted().randomElement(using: &random), !key.table.isEphemeral else { return }
        try sync()
        try harness.cool()
        for _ in 0..<8 { ask([.get(key)]) }
        let (store, model) = (harness.store, model)
        model.afterReply = { [unowned model] in
            guard let row = model.rows[key] else { return }
            store.beginBatch(key.bucket)
            store.delete(key, prior: .maybe(wakeAt: row.wakeAt))
            _ = store.endBatch()
            model.delete(key)
        }
        try harness.answerReads()
        model.afterReply = nil
        isDirty = true
    }

    private func ask(_ reads: [StoreRead]) { model.expect(harness.store.read(reads), reads) }

    private mutating func lookUp() {
        for _ in 0..<10 {
            let key = key()
            if harness.store.isCertainlyAbsent(key), model.rows[key] != nil { model.fail("\(key) is not absent") }
            switch harness.store.young(key) {
            case .unknown:
                if model.locations[key] != nil, isReported(key) { model.fail("\(key) is young, but not known") }
            case .deleted:
                if model.rows[key] != nil { model.fail("\(key) is not deleted") }
            case .found(let location, let wakeAt):
                guard let row = model.rows[key] else {
                    model.fail("\(key) is deleted, but found")
                    continue
                }
                if row.wakeAt != wakeAt || !harness.store.value(at: location).elementsEqual(row.value) {
                    model.fail("\(key) is young with another value")
                }
                if isReported(key), model.locations[key] == nil { model.fail("\(key) was reported as cold") }
            }
        }
    }

    private func isReported(_ key: StoreKey) -> Bool { key.table.hasAlarms }

    private mutating func sync() throws {
        try harness.sync()
        model.synced()
        isDirty = false
    }

    private mutating func checkAlarms() throws {
        now += Int64.random(in: 0...300, using: &random)
        let next = harness.store.nextAlarm
        if let first = model.alarms.values.min(), next > first { model.fail("the next alarm is \(first), not \(next)") }
        let full = [AppKey(1), AppKey(2), AppKey(3)].filter { _ in Int.random(in: 0..<3, using: &random) == 0 }
        try ask { AlarmRequest(upTo: $0, limit: $1, fullApps: full) }
        try checkGroups(full)
    }

    /// Returns alarms to their groups, then requests groups: some with room for the app, some for finished jobs.
    private mutating func checkGroups(_ full: [AppKey]) throws {
        let given = model.rows.keys.sorted().filter { key in
            guard let row = model.rows[key], key.table == .job, row.wakeAt != 0, row.wakeAt <= now,
                row.value.count > Self.appOffset
            else { return false }
            return model.locations[key] == nil && model.alarms[key] == nil && model.left[key] == nil
                && row.value[0] == 1
                && row.value[1] <= 2
        }
        for key in given where Bool.random(using: &random) {
            guard let row = model.rows[key] else { continue }
            let group = AlarmGroup(app: AppKey(UInt64(row.value[Self.appOffset])), kind: .held)
            harness.store.leaveAlarm(key, wakeAt: row.wakeAt, in: group, until: now + 300)
            model.leave(key, in: group)
            if Int.random(in: 0..<4, using: &random) == 0 { harness.store.recallAlarms(of: group, in: key.bucket) }
        }
        for group in Set(model.left.values).sorted() {
            if !harness.store.alarmGroups.contains(group) { model.fail("a group with alarms is not named") }
            if harness.store.nextAlarm(of: group) == .max { model.fail("a group with alarms has none next") }
        }
        for group in harness.store.alarmGroups where Bool.random(using: &random) {
            if full.contains(group.app), group.kind != .held {
                try ask { AlarmRequest(upTo: $0, limit: $1, group: group, fullApps: full) }
            } else {
                try ask { AlarmRequest(upTo: $0, limit: $1, group: group, isEager: true) }
            }
        }
    }

    private mutating func ask(_ request: (Int64, Int) -> AlarmRequest) throws {
        var rounds = 0
        repeat {
            let request = request(now, Int.random(in: 1...8, using: &random))
            model.expectAlarms(harness.store.requestAlarms(request), request)
            try harness.answerReads()
            rounds += 1
            if rounds > 1000 { return model.fail("alarms never end") }
        } while !model.alarmsAreComplete
    }

    private mutating func reopen() throws {
        try harness.reopen()
        model.restarted()
        harness.store.observer = model
    }
}

package final class MemoryStoreHarness: ShardStoreHarness {
    package let memory = MemoryShardStore()
    package init() {}
    package var store: any ShardStore { memory }
    package func sync() { memory.sync() }
    package func answerReads() { while memory.waitingReadCount > 0 { memory.deliverReplies() } }
    package func cool() { memory.cool() }
    package func breathe() {}
    package func reopen() { memory.crash() }
}
