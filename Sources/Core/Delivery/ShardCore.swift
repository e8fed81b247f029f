// The fields that all parts of a shard share. A part that needs nothing else of the shard is a value beside the core in
// `Shard`: feeds, alias rows, tag walks, searches. Its operations get the core as a parameter.

internal import Structures
internal import Wire

/// The time, limits, apps, store, effects and figures of a shard, and its open reads.
struct ShardCore: ~Copyable {
    var now: GatewayTime
    var limits: ShardLimits
    var apps: AppTable
    let store: any ShardStore
    /// All that devices and consumers keep of numbers is held against it.
    var history: StoreHistory
    var counters: CounterTable
    var outbox: Outbox
    var batch = OpenBatch()
    var numbers = ShardStatistics()
    /// Commands that wait, for devices and for aliases.
    var waitingCount = 0
    /// Work that continues turn by turn (Shard+Slices).
    var slices: [Shard.Slice] = []
    var continuations: [ReadToken: Shard.Continuation] = [:]
    /// Replies and frames lent until the next call.
    var heldReplies: [StoreReply] = []
    var heldFrames: [LentFrame] = []
    /// Reads find nothing any more: see `Shard.abandon`.
    var isAbandoned = false

    /// Starts a call: what earlier calls lent ends.
    mutating func begin(_ time: GatewayTime) {
        if time > now { now = time }
        if !heldReplies.isEmpty { heldReplies.removeAll(keepingCapacity: true) }
        if !heldFrames.isEmpty { heldFrames.removeAll(keepingCapacity: true) }
    }

    // MARK: Reads

    mutating func read(_ requests: [StoreRead], then continuation: @escaping Shard.Continuation) {
        guard !isAbandoned else {
            // These tokens count down from the maximum, the store's count up from the lowest: none is given twice.
            continuations[.max - ReadToken(continuations.count)] = continuation
            return
        }
        continuations[store.read(requests)] = continuation
    }

    /// Gets a row without a read; `nil` when the row must be read.
    func known(_ key: StoreKey) -> Found<FoundRow>? {
        switch store.young(key) {
        case .found(let location, let wakeAt): .found(FoundRow(bytes: store.bytes(at: location), wakeAt: wakeAt))
        case .deleted: .absent
        case .unknown: store.isCertainlyAbsent(key) ? .absent : nil
        }
    }

    /// Gets a row from a reply; a row written in this turn is newer.
    func row(_ key: StoreKey, in reply: StoreReply) -> Found<FoundRow> {
        guard case .row(let stored)? = reply.results.first else { return .unreadable }
        switch store.young(key) {
        case .found(let location, let wakeAt):
            return .found(FoundRow(bytes: store.bytes(at: location), wakeAt: wakeAt))
        // Deleted during the read.
        case .deleted: return .absent
        case .unknown: break
        }
        return stored.map { .found(FoundRow(bytes: $0.bytes, wakeAt: $0.wakeAt)) } ?? .absent
    }

    mutating func damaged(_ key: StoreKey) {
        numbers.damagedRows &+= 1
        log(.error, "damagedRow", "table \(key.table), bucket \(key.bucket.index): the row cannot be read")
    }

    // MARK: Effects

    mutating func log(_ level: LogEvent.Level, _ name: StaticString, _ text: String) {
        outbox.send(.log(LogEvent(level: level, name: name, text: text)))
    }

    /// Answers once everything written so far is durable; the shard releases what is due when the part is done.
    mutating func answer(_ origin: Origin, _ answer: TaskAnswer) { outbox.hold(.taskAnswer(origin, answer)) }

    // MARK: Batches

    /// Writes rows that belong to no device, in a batch of their bucket.
    @discardableResult
    mutating func inBatch<Result>(in bucket: Bucket, _ write: (inout ShardCore) -> Result) -> Result {
        beginBatch(bucket)
        let result = write(&self)
        endBatch(bucket)
        return result
    }

    mutating func beginBatch(_ bucket: Bucket) {
        precondition(!batch.isOpen, "batches do not nest")
        store.beginBatch(bucket)
    }

    mutating func endBatch(_ bucket: Bucket) {
        counters.writeChanged(bucket, to: store)
        outbox.wrote(store.endBatch())
    }
}
