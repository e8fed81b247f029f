internal import Structures
internal import Wire

/// The shared fields of a shard: time, limits, apps, store, effects, figures and open reads.
///
/// Components that need only these fields, such as feeds and alias rows, are separate values in `Shard`. Their operations get the
/// core as a parameter.
struct ShardCore: ~Copyable {
    var now: GatewayTime
    var limits: ShardLimits
    var apps: AppTable
    let store: any ShardStore
    /// The store's current history; positions and cursors of another history settle nothing.
    var history: StoreHistory
    var counters: CounterTable
    var outbox: Outbox
    var batch = OpenBatch()
    var numbers = ShardStatistics()
    /// The number of commands that wait for device records or alias rows.
    var waitingCount = 0
    var slices: [Shard.Slice] = []
    var continuations: [ReadToken: Shard.Continuation] = [:]
    /// Replies and frames whose bytes stay valid until the next call.
    var heldReplies: [StoreReply] = []
    var heldFrames: [LentFrame] = []
    /// Whether all reads fail because the shard is abandoned (`Shard.abandon`).
    var isAbandoned = false
    /// Makes the compiler pass the core and the shard by address.
    ///
    /// A type with a field of unknown size has no loadable form. Without this field, each call of a non-mutating function copied
    /// the whole shard, 4,400 bytes, to the stack.
    private let pin: Any = ()

    /// Begins a call; bytes lent by earlier calls become invalid.
    mutating func begin(_ time: GatewayTime) {
        if time > now { now = time }
        if !heldReplies.isEmpty { heldReplies.removeAll(keepingCapacity: true) }
        if !heldFrames.isEmpty { heldFrames.removeAll(keepingCapacity: true) }
    }

    // MARK: Reads

    mutating func read(_ requests: [StoreRead], then continuation: @escaping Shard.Continuation) {
        guard !isAbandoned else {
            // These tokens count down from the maximum. The store's tokens count up, so no token repeats.
            continuations[.max - ReadToken(continuations.count)] = continuation
            return
        }
        continuations[store.read(requests)] = continuation
    }

    /// Returns a row without a read, or `nil` if the row must be read.
    func known(_ key: StoreKey) -> Found<FoundRow>? {
        switch store.young(key) {
        case .found(let location, let wakeAt): .found(FoundRow(bytes: store.bytes(at: location), wakeAt: wakeAt))
        case .deleted: .absent
        case .unknown: store.isCertainlyAbsent(key) ? .absent : nil
        }
    }

    /// Returns the row of a reply, or its newer version that was written during the read.
    func row(_ key: StoreKey, in reply: StoreReply) -> Found<FoundRow> {
        guard case .row(let stored)? = reply.results.first else { return .unreadable }
        switch store.young(key) {
        case .found(let location, let wakeAt):
            return .found(FoundRow(bytes: store.bytes(at: location), wakeAt: wakeAt))
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

    // MARK: Batches

    /// Writes rows that belong to no device, as one batch of their bucket.
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
