public import Delivery
public import Wire

/// A shard store with the handles that the conformance suite turns.
public protocol ShardStoreHarness: AnyObject {
    /// The store in use; another object after `reopen()`.
    var store: any ShardStore { get }
    /// Makes everything written so far durable, and waits until the observer knows.
    func sync() throws
    /// Waits until every read asked for has been answered.
    func answerReads() throws
    /// Turns every row that is durable cold, and waits until the observer knows.
    func cool() throws
    /// Lets what goes on in the background go on for a moment, if there is such a thing.
    func breathe() throws
    /// Loses what is not durable and starts again; the observer is the driver's to set.
    func reopen() throws
}

/// The first thing that a store got wrong, with the seed that shows it.
public struct ConformanceFailure: Error, CustomStringConvertible {
    public var description: String
}

/// A small, fast generator whose sequence is its seed's alone.
public struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64
    public init(seed: UInt64) { state = seed }
    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}

/// Holds a shard store against a plain dictionary over `stepCount` random steps.
///
/// - Parameters:
///   - harness: an empty store.
///   - seed: names the sequence of steps.
///   - stepCount: how long it is.
///   - buckets: the buckets of the harness's shard that rows go to.
/// - Throws: `ConformanceFailure` after the first step that went wrong; what the harness throws.
public func checkShardStoreConformance(
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
        case 0..<48: write()
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
        // Few owners, so that rows meet; request ids come and go, so that filters see new ones.
        let owner = UInt64.random(in: 1...(table.isEphemeral ? 200 : 3), using: &random)
        return StoreKey(
            buckets.randomElement(using: &random) ?? Bucket(0), table, ownerHigh: owner &* 0x9E37_79B9_7F4A_7C15,
            ownerLow: owner, item: table.hasItems ? UInt64.random(in: 0...12, using: &random) : 0)
    }

    private mutating func write() {
        let bucket = buckets.randomElement(using: &random) ?? Bucket(0)
        let store = harness.store
        store.beginBatch(bucket)
        for _ in 0..<Int.random(in: 0...6, using: &random) {
            var key = key()
            key.bucket = bucket
            if key.table.isEphemeral, model.everWritten.contains(key) { continue }
            let prior = model.prior(of: key)
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
        let value = (0..<size).map { first &+ UInt8(truncatingIfNeeded: $0) }
        var wakeAt: Int64 = 0
        if key.table.hasAlarms, Bool.random(using: &random) {
            wakeAt = now + Int64.random(in: -300...900, using: &random)
        }
        let location = harness.store.put(key, wakeAt: wakeAt, prior: prior, byteCount: size) { bytes in
            bytes.copyBytes(from: value)
        }
        if !harness.store.value(at: location).elementsEqual(value) { model.fail("a put's bytes are not readable") }
        model.put(key, StoreModel.Row(value: value, wakeAt: wakeAt), at: location)
    }

    private mutating func read() {
        var reads: [StoreRead] = []
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            var key = key()
            let rowLimit = Int.random(in: 1...6, using: &random)
            switch Int.random(in: 0..<4, using: &random) {
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

    /// The owner removes a row at the first of many replies that show it; the others must not show it any more.
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

    /// The tables whose cooling the store reports.
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
        var rounds = 0
        repeat {
            let limit = Int.random(in: 1...8, using: &random)
            model.expectAlarms(harness.store.requestAlarms(upTo: now, limit: limit), upTo: now, limit: limit)
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

/// The fake as the suite drives it.
public final class MemoryStoreHarness: ShardStoreHarness {
    public let memory = MemoryShardStore()
    public init() {}
    public var store: any ShardStore { memory }
    public func sync() { memory.sync() }
    public func answerReads() { while memory.waitingReadCount > 0 { memory.deliverReplies() } }
    public func cool() { memory.cool() }
    public func breathe() {}
    public func reopen() { memory.crash() }
}
