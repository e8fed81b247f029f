// The threads that commit. A lane serves logs whose streams one server has: what they have gathered goes to the server in
// one write, followed by one wait for its replicas. While that goes on, the next groups gather. So the cost of a commit is
// shared by many parts.
//
// Each server has lanes of its own, made when the first log needs them. A server that stands still holds up nobody else.
// Redis serves a connection one read at a time, and syncs after each turn in which something was written. Commands of
// 16 KiB and more are a read each, so one connection would have a sync for each part. Several share syncs.

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
    /// A server's memory is filled beyond its share.
    let isMemoryFilled = Atomic<Bool>(false)
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
            && !isMemoryFilled.load(ordering: .relaxed)
    }

    /// What is left before `acceptsWrites` ends is for those who need little.
    func isShortOfRoom(beside untoldByteCount: Int) -> Bool {
        moving + untoldByteCount >= configuration.uncommittedByteLimit / 4
            || logBytes.load(ordering: .relaxed) > configuration.logByteLimit / 8 * 7
    }

    func hasRoomForLists(beside untoldByteCount: Int) -> Bool {
        moving + untoldByteCount < configuration.uncommittedByteLimit / 2
            && logBytes.load(ordering: .relaxed) <= configuration.logByteLimit
            && !isMemoryFilled.load(ordering: .relaxed)
    }
}

final class CommitLanes: @unchecked Sendable {
    // Sound because everything is a constant, and a lane locks what it shares.
    /// One is the parts' whose numbers leave its place as remainder.
    private let columns: [ServerLanes<CommitLane>]
    private let cluster: RedisCluster

    init(_ context: LogContext) {
        cluster = context.cluster
        let isStepped = context.configuration.isStepped
        columns = (0..<Limits.commitLanesOfServer).map { _ in
            ServerLanes(named: "redis log", threadCount: 1, isStepped: isStepped) { [unowned context] _ in
                CommitLane(context)
            }
        }
    }

    /// Gives a log that no lane has to the lane of its server; unless pressed it waits some milliseconds for company.
    func schedule(_ log: RedisLog, isPressing: Bool) { lane(of: log).schedule(log, isPressing: isPressing) }

    /// A log that waits for company may not wait any more.
    func hurry(_ log: RedisLog) { for lane in column(of: log).all where lane.hurry(log) { return } }

    /// Without a map the lane of no server asks for it.
    func lane(of log: RedisLog) -> CommitLane { column(of: log).lane(of: cluster.primary(of: log.slot)) }

    private func column(of log: RedisLog) -> ServerLanes<CommitLane> { columns[log.part % columns.count] }

    /// Each lane does what it can do now, on the calling thread.
    func step() -> Bool {
        var hasWorked = false
        for column in columns { for lane in column.all where lane.step() { hasWorked = true } }
        return hasWorked
    }

    func start() throws(SystemError) { for column in columns { try column.start() } }
    func close() { for column in columns { column.close() } }
}

final class CommitLane: ServerLane, @unchecked Sendable {
    // Sound because `state` is a monitor, and everything else is the lane thread's own.

    private struct State: ~Copyable {
        var ready: [RedisLog] = []
        /// What they have may wait for company.
        var late: [RedisLog] = []
        var isOpen = true
    }

    private unowned let context: LogContext
    private let state = Monitor(State())
    private lazy var client = RedisClient(context.cluster)
    /// Logs whose last try failed, and when to try again.
    private var blocked: [RedisLog] = []
    private var retryAt: UInt64 = 0
    private var pause = Redis.Limits.retryMilliseconds
    private var lastReported: UInt64?

    init(_ context: LogContext) { self.context = context }

    func schedule(_ log: RedisLog, isPressing: Bool) {
        if isPressing { state.signal { $0.ready.append(log) } } else { state.signal { $0.late.append(log) } }
    }

    /// False when the log does not wait here.
    func hurry(_ log: RedisLog) -> Bool {
        state.signal { state in
            guard let place = state.late.firstIndex(where: { $0 === log }) else { return false }
            state.ready.append(state.late.remove(at: place))
            return true
        }
    }

    func close() { state.broadcast { $0.isOpen = false } }

    func run() {
        var work: [RedisLog] = []
        while true {
            let isWaiting = !blocked.isEmpty
            let left = retryAt > context.now ? retryAt - context.now : 0
            if !isWaiting { state.wait(while: { $0.ready.isEmpty && $0.late.isEmpty && $0.isOpen }) { _ in } }
            let most = isWaiting ? left : Journal.Limits.unawaitedMilliseconds
            let isOpen = take(&work, atMostMilliseconds: most)
            guard isOpen else { return end(work) }
            round(work)
        }
    }

    /// One turn without a wait; whether there was something to do.
    func step() -> Bool {
        var work: [RedisLog] = []
        guard take(&work, atMostMilliseconds: 0) else { return false }
        round(work)
        return !work.isEmpty
    }

    /// Takes what is to be moved on, waiting for it; false at the end.
    private func take(_ work: inout [RedisLog], atMostMilliseconds milliseconds: UInt64) -> Bool {
        work.removeAll(keepingCapacity: true)
        var isOpen = true
        state.wait(atMostMilliseconds: milliseconds, while: { $0.ready.isEmpty && $0.isOpen }) { state in
            swap(&work, &state.ready)
            work.append(contentsOf: state.late)
            state.late.removeAll(keepingCapacity: true)
            isOpen = state.isOpen
        }
        // Without other work the pause was waited for, whatever the network's clock says.
        if !blocked.isEmpty, work.isEmpty || context.now >= retryAt || !isOpen {
            work.append(contentsOf: blocked)
            blocked.removeAll()
        }
        return isOpen
    }

    private func end(_ work: [RedisLog]) {
        for log in work { log.abandon() }
        client.close()
    }

    /// Ends a lane that has no thread.
    func finish() {
        var work: [RedisLog] = []
        _ = take(&work, atMostMilliseconds: 0)
        end(work)
    }

    /// Moves each of the logs on by one step.
    private func round(_ scheduled: [RedisLog]) {
        var byServer: [(address: RedisAddress, logs: [RedisLog])] = []
        var homeless: [RedisLog] = []
        for log in scheduled {
            guard log.prepare() else {
                log.abandon()
                continue
            }
            guard let address = context.cluster.primary(of: log.slot) else {
                homeless.append(log)
                continue
            }
            // The slot has another server now: its lane goes on.
            let lane = context.lanes.lane(of: log)
            guard lane === self else {
                lane.schedule(log, isPressing: true)
                continue
            }
            if log.flight?.state == .unknown, !verify(log) { continue }
            if let place = byServer.firstIndex(where: { $0.address == address }) {
                byServer[place].logs.append(log)
            } else {
                byServer.append((address, [log]))
            }
        }
        for (address, logs) in byServer { commit(logs, at: address) }
        if !homeless.isEmpty { askForMap() }
        for log in homeless { block(log) }
    }

    /// Asks the stream what it has; false when the log waits, or is lost.
    private func verify(_ log: RedisLog) -> Bool {
        do throws(RedisError) {
            let last = try LogReading.lastID(of: log.key, slot: log.slot, by: client)
            guard log.take(lastID: last) else {
                log.abandon()
                return false
            }
            return true
        } catch {
            fail([log], error)
            return false
        }
    }

    /// Sends what the logs have for one server, and waits for its replicas.
    private func commit(_ logs: [RedisLog], at address: RedisAddress) {
        var commands: [RedisCommand] = []
        var ranges: [Range<Int>] = []
        for log in logs {
            let start = commands.count
            commands.append(contentsOf: log.commands())
            ranges.append(start..<commands.count)
        }
        let wanted = replicas(of: address)
        commands.append(client.waitCommand(wanted, at: address, timeoutMilliseconds: Limits.replicaMilliseconds))
        let attempt: RedisClient.Attempt
        do throws(RedisError) {
            attempt = try client.exchange(commands, at: address, timeoutMilliseconds: Limits.commitMilliseconds)
        } catch {
            for log in logs {
                if case .unreachable = error { log.loseConnection() } else { log.loseReplies() }
            }
            return fail(logs, error)
        }
        let isDurable = RedisClient.isDurable(attempt.replies[commands.count - 1], wanted)
        var waiting: [RedisLog] = []
        for (log, range) in zip(logs, ranges) {
            if case .written(let connection) = log.flight?.state, connection != attempt.connection {
                // Its connection is gone, and this one's wait does not speak for it.
                log.loseConnection()
                again(log)
                continue
            }
            switch log.take(attempt.replies[range], connection: attempt.connection) {
            case .written:
                if !isDurable { waiting.append(log) } else if log.complete() { again(log) }
            case .elsewhere:
                redirect(log, attempt.replies[range], from: address)
            case .blocked(let fault):
                fail([log], .refused(address, fault))
            }
        }
        guard !waiting.isEmpty else { return succeed() }
        // A server that is a replica now answers with an error: what it wrote may be gone.
        if let fault = attempt.replies[commands.count - 1].fault {
            client.noteRefusal(of: commands[commands.count - 1], attempt.replies[commands.count - 1], at: address)
            for log in waiting { log.loseReplies() }
            return fail(waiting, .refused(address, fault))
        }
        // The wait itself took its time; the map tells whether a replica is gone for good.
        askForMap()
        report(.waitingForReplicas(server: address.description, wanted: wanted))
        for log in waiting { again(log) }
    }

    private func succeed() {
        pause = Redis.Limits.retryMilliseconds
        lastReported = nil
    }

    private func replicas(of address: RedisAddress) -> Int {
        max(context.configuration.minReplicas, context.cluster.replicaCount(of: address))
    }

    /// Follows MOVED by the map, and ASK for this one time.
    private func redirect(_ log: RedisLog, _ replies: ArraySlice<RedisReply>, from address: RedisAddress) {
        guard let reply = replies.first(where: { $0.fault != nil }) else { return again(log) }
        guard let (target, isAsking) = client.redirect(reply, from: address), let target else {
            askForMap()
            return block(log)
        }
        guard isAsking else { return again(log) }
        var commands: [RedisCommand] = []
        for command in log.commands() { commands += [RedisCommand("ASKING"), command] }
        let count = commands.count
        let wanted = replicas(of: target)
        commands.append(client.waitCommand(wanted, at: target, timeoutMilliseconds: Limits.replicaMilliseconds))
        do throws(RedisError) {
            let attempt = try client.exchange(commands, at: target)
            let answers = stride(from: 1, to: count, by: 2).map { attempt.replies[$0] }
            switch log.take(answers[...], connection: attempt.connection) {
            case .written:
                guard RedisClient.isDurable(attempt.replies[count], wanted) else {
                    log.loseReplies()
                    return block(log)
                }
                if log.complete() { again(log) }
            case .elsewhere: block(log)
            case .blocked(let fault): fail([log], .refused(target, fault))
            }
        } catch {
            log.loseReplies()
            fail([log], error)
        }
    }

    /// The log has more to do now, perhaps in another lane.
    private func again(_ log: RedisLog) {
        context.lanes.lane(of: log).schedule(log, isPressing: log.flight != nil || log.isPressing)
    }

    private func block(_ log: RedisLog) {
        context.failedCommits.add(1, ordering: .relaxed)
        if blocked.isEmpty {
            retryAt = context.now + UInt64(pause)
            pause = min(pause * 2, Redis.Limits.longestRetryMilliseconds)
        }
        log.setAside()
        blocked.append(log)
    }

    private func fail(_ logs: [RedisLog], _ error: RedisError) {
        askForMap()
        report(.commitFailed(reason: error.description))
        for log in logs { block(log) }
    }

    private func askForMap() {
        do throws(RedisError) { try client.askForMap() } catch {
            report(.commitFailed(reason: error.description))
        }
    }

    /// Trouble that goes on is told of now and then.
    private func report(_ event: RedisEngine.Event) {
        let now = context.now
        if let lastReported, now < lastReported + Limits.reportMilliseconds { return }
        lastReported = now
        context.report(event)
    }
}

/// What a stream says of itself.
enum LogReading {
    /// The last id that a stream has given, trimmed entries included; `nil` without a stream.
    static func lastID(of key: [UInt8], slot: Int, by client: RedisClient) throws(RedisError) -> LogID? {
        var command = RedisCommand("XINFO", "STREAM")
        command.append(key)
        let attempt = try client.attempt([command], slot: slot)
        if let fault = attempt.replies[0].fault {
            if fault.text.contains("no such key") { return nil }
            throw .refused(attempt.address, fault)
        }
        guard let fields = attempt.replies[0].array,
            let place = fields.firstIndex(where: { $0.text == "last-generated-id" }), place + 1 < fields.count,
            let id = fields[place + 1].text.flatMap({ LogID($0) })
        else { throw .unexpected(attempt.address, command: "XINFO STREAM", "no last id") }
        return id
    }
}
