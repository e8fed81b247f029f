internal import Journal
internal import Platform
internal import Redis
internal import Synchronization

/// The state shared by all logs and lanes of an engine: limits, bytes in flight and metrics.
final class LogContext: @unchecked Sendable {
    // Sound because all properties are constants, atomics or behind locks; `lanes` is set before any other thread exists.
    let cluster: RedisCluster
    let configuration: RedisEngine.Configuration
    /// The bytes submitted to logs and not yet durable.
    let uncommitted = Atomic<Int>(0)
    /// The part of `uncommitted` in stuck logs; a stuck log refuses publishes itself and must not block the others.
    let stalled = Atomic<Int>(0)
    /// The bytes of log entries that are not yet stored as rows.
    let logBytes = Atomic<Int>(0)
    let statistics = Lock(JournalStatistics())
    /// The statistics of cold reads: a group is a round trip, a batch is a command.
    let reads = Lock(JournalStatistics())
    let failedCommits = Atomic<Int>(0)
    let spilledRows = Atomic<Int>(0)
    let spilledDeletions = Atomic<Int>(0)
    /// The description of a server whose memory is full; empty if none is.
    let filledMemory = Lock("")
    let isMemoryFilled = Atomic<Bool>(false)
    /// The servers' settings under which accepted messages may be lost; empty if there are none.
    let wrongSettings = Lock("")
    let hasWrongSettings = Atomic<Bool>(false)
    /// The memory use and limit of all primaries together; the limit is 0 if a primary has none.
    let memory = Lock<(usedByteCount: Int, byteLimit: Int)>((0, 0))
    let earlyDrops = Lock(EarlyDrops())
    private let failures = Lock<(last: String?, count: Int)>((nil, 0))
    private(set) lazy var lanes = CommitLanes(self)

    init(_ cluster: RedisCluster, _ configuration: RedisEngine.Configuration) {
        (self.cluster, self.configuration) = (cluster, configuration)
        _ = lanes
    }

    var now: UInt64 { cluster.network.monotonicMilliseconds }
    func report(_ event: RedisEngine.Event) { configuration.report(event) }

    var spillFailures: (last: String?, count: Int) { failures.withLock { $0 } }

    func noteSpillFailure(_ reason: String) {
        let isNew = failures.withLock { failures in
            defer { failures = (reason, failures.count + 1) }
            return failures.last != reason
        }
        if isNew { report(.spillFailed(reason: reason)) }
    }

    // MARK: Room

    func retentionLimit(_ kind: Period.Kind) -> Int {
        let limit = kind == .traces ? configuration.traceByteLimit : configuration.requestByteLimit
        let memory = memory.withLock { $0.byteLimit }
        guard memory > 0 else { return limit }
        return min(limit, memory / (kind == .traces ? Limits.redisTraceShare : Limits.redisRequestShare))
    }

    /// The bytes in flight, without those of stuck logs.
    private var moving: Int { uncommitted.load(ordering: .relaxed) - stalled.load(ordering: .relaxed) }

    func acceptsWrites(beside untoldByteCount: Int) -> Bool {
        moving + untoldByteCount < configuration.uncommittedByteLimit
            && logBytes.load(ordering: .relaxed) <= configuration.logByteLimit
            && !isMemoryFilled.load(ordering: .relaxed) && !hasWrongSettings.load(ordering: .relaxed)
    }

    /// The exceeded bound of the gateway; empty if there is none.
    var fullBound: String {
        if logBytes.load(ordering: .relaxed) > configuration.logByteLimit {
            return "limits.journalBytes is reached: rows wait until a server takes them"
        }
        return moving >= configuration.uncommittedByteLimit
            ? "limits.uncommittedBytes is reached: Redis is slower than the publishes" : ""
    }

    /// Returns whether room is short; the space between this bound and that of `acceptsWrites` is reserved for apps below their
    /// share.
    func isShortOfRoom(beside untoldByteCount: Int) -> Bool {
        moving + untoldByteCount >= configuration.uncommittedByteLimit / 4
            || logBytes.load(ordering: .relaxed) > configuration.logByteLimit / 8 * 7
    }

    func hasRoomForLists(beside untoldByteCount: Int) -> Bool {
        moving + untoldByteCount < configuration.uncommittedByteLimit / 2
            && logBytes.load(ordering: .relaxed) <= configuration.logByteLimit
            && !isMemoryFilled.load(ordering: .relaxed) && !hasWrongSettings.load(ordering: .relaxed)
    }
}
