// What counts for all parts of an engine on Redis: its bytes on their way, its room, its figures.

internal import Journal
internal import Platform
internal import Redis
internal import Synchronization

/// What the logs and lanes of an engine share.
final class LogContext: @unchecked Sendable {
    // Sound because everything is a constant, an atomic or behind a lock; `lanes` is set before any other thread exists.
    let cluster: RedisCluster
    let configuration: RedisEngine.Configuration
    /// Bytes handed over to logs and not yet durable.
    let uncommitted = Atomic<Int>(0)
    /// Those of them whose logs stand still: they refuse publishes themselves, and are not to stop the others.
    let stalled = Atomic<Int>(0)
    /// Bytes of entries that rows do not have yet.
    let logBytes = Atomic<Int>(0)
    let statistics = Lock(JournalStatistics())
    /// Round trips of cold reads; a batch is one request.
    let reads = Lock(JournalStatistics())
    /// Commits that were refused or got no reply, and were tried again.
    let failedCommits = Atomic<Int>(0)
    let spilledRows = Atomic<Int>(0)
    let spilledDeletions = Atomic<Int>(0)
    /// The description of a server whose memory is full; empty: there is none.
    let filledMemory = Lock("")
    /// `filledMemory` names one; for the path of a publish.
    let isMemoryFilled = Atomic<Bool>(false)
    /// The servers' settings under which accepted messages may be lost; empty: none.
    let wrongSettings = Lock("")
    /// `wrongSettings` has some; for the path of a publish.
    let hasWrongSettings = Atomic<Bool>(false)
    /// What all primaries use and may use; 0 where one of them has no bound.
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

    /// Bytes that request ids or traces may take, all parts together.
    func retentionLimit(_ kind: Period.Kind) -> Int {
        let limit = kind == .traces ? configuration.traceByteLimit : configuration.requestByteLimit
        let memory = memory.withLock { $0.byteLimit }
        guard memory > 0 else { return limit }
        return min(limit, memory / (kind == .traces ? Limits.redisTraceShare : Limits.redisRequestShare))
    }

    /// Bytes on their way, without those of logs that stand still.
    private var moving: Int { uncommitted.load(ordering: .relaxed) - stalled.load(ordering: .relaxed) }

    func acceptsWrites(beside untoldByteCount: Int) -> Bool {
        moving + untoldByteCount < configuration.uncommittedByteLimit
            && logBytes.load(ordering: .relaxed) <= configuration.logByteLimit
            && !isMemoryFilled.load(ordering: .relaxed) && !hasWrongSettings.load(ordering: .relaxed)
    }

    /// Which bound of the gateway is reached; empty: none.
    var fullBound: String {
        if logBytes.load(ordering: .relaxed) > configuration.logByteLimit {
            return "limits.journalBytes is reached: rows wait until a server takes them"
        }
        return moving >= configuration.uncommittedByteLimit
            ? "limits.uncommittedBytes is reached: Redis is slower than the publishes" : ""
    }

    /// What is left before `acceptsWrites` ends is for those who need little.
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
