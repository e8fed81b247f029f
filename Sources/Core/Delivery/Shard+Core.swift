internal import Structures
internal import Wire

// Accessors for the core's fields.
extension Shard {
    var now: GatewayTime { @inline(__always) get { core.now } }
    var limits: ShardLimits {
        @inline(__always) _read { yield core.limits }
        @inline(__always) _modify { yield &core.limits }
    }
    var apps: AppTable {
        @inline(__always) _read { yield core.apps }
        @inline(__always) _modify { yield &core.apps }
    }
    var history: StoreHistory { @inline(__always) _read { yield core.history } }
    var counters: CounterTable {
        @inline(__always) _read { yield core.counters }
        @inline(__always) _modify { yield &core.counters }
    }
    var outbox: Outbox {
        @inline(__always) _read { yield core.outbox }
        @inline(__always) _modify { yield &core.outbox }
    }
    var batch: OpenBatch {
        @inline(__always) _read { yield core.batch }
        @inline(__always) _modify { yield &core.batch }
    }
    var numbers: ShardStatistics {
        @inline(__always) _read { yield core.numbers }
        @inline(__always) _modify { yield &core.numbers }
    }

    @inline(__always) func isPlanted(_ fault: PlantedFault) -> Bool { core.isPlanted(fault) }

    /// Whether the end time of a message or a lease has passed.
    @inline(__always) func isOver(_ end: GatewayTime) -> Bool {
        isPlanted(.expiryOffByOne) ? end < now : end <= now
    }

    @inline(__always)
    mutating func begin(_ time: GatewayTime) { core.begin(time) }

    @inline(__always)
    mutating func read(_ requests: [StoreRead], then continuation: @escaping Continuation) {
        core.read(requests, then: continuation)
    }

    mutating func damaged(_ key: StoreKey) { core.damaged(key) }
    mutating func log(_ level: LogEvent.Level, _ name: StaticString, _ text: String) { core.log(level, name, text) }

    /// Looks up a row and calls `completion` at once if memory has the answer, otherwise after a read.
    mutating func lookUp(_ key: StoreKey, completion: @escaping (inout Shard, Found<FoundRow>) -> Void) {
        if let known = core.known(key) { return completion(&self, known) }
        read([.get(key)]) { shard, reply in completion(&shard, shard.core.row(key, in: reply)) }
    }
}
