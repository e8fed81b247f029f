// The store of several gateways: logs and rows in Redis (`RedisKeys`). A process opens the parts that it owns, one by one,
// at any time, and closes them again; each part has a log, an overlay and rows of its own.
//
// Threads: for each server a lane that commits and some readers; workers that move rows out of memory; a watch that asks
// the servers how full they are. Their number does not depend on that of the parts.

internal import Delivery
internal import Journal
internal import Platform
package import Redis
internal import Synchronization

/// The store on Redis, as far as this process has a share in it.
package final class RedisEngine: StoreService, @unchecked Sendable {
    // Sound because `parts` is a lock, `threads` is used by the opener only (`init` and `close` are called by one thread),
    // and the rest is immutable or synchronizes itself.

    /// How the engine works; the defaults are right for a server.
    package struct Configuration: Sendable {
        /// The cluster's name, which all keys begin with.
        package var name = "longwire"
        /// Replicas that must have a write, whatever the cluster's map says; the map may ask for more.
        package var minReplicas = 1
        /// Bytes handed over and not yet durable, all parts together; past it publishes are refused.
        package var uncommittedByteLimit = Journal.Limits.uncommittedByteCount
        /// Bytes of log that rows do not have yet, all parts together.
        package var logByteLimit = Limits.journalByteCount
        /// Request ids, all parts of the cluster together; past it the oldest go before they are a day old.
        package var requestByteLimit = Limits.requestByteCount
        /// The same for traces.
        package var traceByteLimit = Limits.traceByteCount
        /// Rows older than this leave memory and log.
        package var youngMilliseconds = Limits.youngMilliseconds
        /// Publishes are refused while a server's memory is filled beyond this share of its `maxmemory`.
        package var memoryShare = Limits.redisMemoryShare
        /// Threads that read, for each server.
        package var readerCount = Limits.readerCount
        package var workerCount = 2
        /// One entry of the log, unless a single batch is larger.
        package var entryByteLimit = 1 << 20
        /// A command that moves or replays rows is tried for so long.
        package var rowsMilliseconds = 15_000
        /// A cold read is tried for so long; then its command fails with a retryable error.
        package var readMilliseconds = 2_000
        /// Alarms of a server that does not answer are asked for again after this; 0 asks again and again, for tests.
        package var silentAlarmMilliseconds = Limits.silentAlarmMilliseconds
        /// A part that is closed waits for so long until what was handed over is durable.
        package var flushMilliseconds: UInt64 = 5_000
        package var tickMilliseconds = Limits.spillerTickMilliseconds
        package var watchMilliseconds: UInt64 = 1_000
        /// The servers' settings are read again after this, and those of a new server at once.
        package var settingsMilliseconds: UInt64 = 60_000
        /// Without threads: `step` does what they would do, for tests.
        package var isStepped = false
        /// Gateway time in milliseconds, for the age of request and trace rows; `nil` as long as it is not known.
        package var now: @Sendable () -> Int64? = { nil }
        /// The highest epoch that a gateway has claimed for a part, asked anew; `nil` when nothing tells.
        ///
        /// A thread of the store that finds a higher epoch in the part's log asks it, and waits.
        package var claimedEpoch: @Sendable (_ part: Int) -> UInt64? = { _ in nil }
        /// Has the history of the whole store end, since something durable is gone; from any thread.
        ///
        /// Calls `done` once, at any time: with true when another history is written down, so that the end of this process
        /// does not undo it. With false when it will not be.
        package var renewHistory: @Sendable (_ done: @escaping @Sendable (_ isRenewed: Bool) -> Void) -> Void = {
            $0(true)
        }
        /// What an operator should know; called on threads of the store.
        package var report: @Sendable (Event) -> Void = { _ in }

        /// What a span of the log takes in; a sixteenth of the age at which it leaves.
        var spanMilliseconds: UInt64 { max(1, youngMilliseconds / 16) }

        package init() {}
    }

    /// Why this process does not have a part any more.
    package enum Loss: Sendable, Equatable, CustomStringConvertible {
        /// Another owner of a higher epoch has begun to write.
        case fenced(part: Int, epoch: UInt64, successor: UInt64)
        /// Another program has written an entry to the part's log, or removed one.
        case foreignEntry(part: Int, epoch: UInt64, entry: String)

        package var description: String {
            switch self {
            case .fenced(let part, let epoch, let successor):
                "part \(part) of the store, owned here with epoch \(epoch), has another owner with epoch \(successor)"
            case .foreignEntry(let part, let epoch, let entry):
                "part \(part) of the store, owned here with epoch \(epoch), has entry \(entry) of another program in its log"
            }
        }
    }

    /// What an operator should know of the store on Redis.
    package enum Event: Sendable, Equatable, CustomStringConvertible {
        /// Nothing commits for now; tried again.
        case commitFailed(reason: String)
        /// A write is at its primary, and not at enough replicas.
        ///
        /// `replicas`: those that the map names for it.
        case waitingForReplicas(server: String, wanted: Int, replicas: [String])
        /// Entries that were reported durable are gone: a failover to a replica that did not have them.
        case entriesLost(part: Int, from: String, through: String)
        /// A part's whole log is gone.
        case streamLost(part: Int, from: String)
        /// A takeover finds rows of an owner without an entry in the log.
        case logIsOlder(part: Int, last: String, epoch: UInt64)
        /// A takeover finds entries missing between two others.
        case entriesMissing(part: Int, after: String, before: String)
        /// Another program has written to a part's log, or removed an entry; `mending`: the commands to run.
        case foreignEntry(part: Int, stream: String, entry: String, mending: String)
        /// Memory is filled beyond its share, or no more.
        case memoryFilled(server: String, usedByteCount: Int, byteLimit: Int)
        case memoryFreed
        /// Servers have settings under which an accepted message may be lost; publishes are refused.
        case settingsWrong(String)
        case settingsRight
        /// Rows could not leave memory; tried again.
        case spillFailed(reason: String)

        package var description: String {
            switch self {
            case .commitFailed(let reason): "nothing commits to Redis for now: \(reason)"
            case .waitingForReplicas(let server, let wanted, let replicas):
                "the primary \(server) waits for \(wanted) replicas "
                    + "(\(replicas.isEmpty ? "the map names none" : replicas.joined(separator: ", "))): nothing commits there before "
                    + "they have it; INFO replication at the primary shows the one that is missing or whose lag grows"
            case .entriesLost(let part, let from, let through):
                "Redis lost entries of the log of part \(part), from \(from) through \(through): a replica that did not have "
                    + "them became primary; messages that were accepted may be lost"
            case .streamLost(let part, let from):
                "Redis lost the log of part \(part) since \(from): messages that were accepted may be lost"
            case .logIsOlder(let part, let last, let epoch):
                "the log of part \(part) ends at \(last), and an owner of epoch \(epoch) had it: its server was put back to older data; "
                    + "messages that were accepted may be lost"
            case .entriesMissing(let part, let after, let before):
                "the log of part \(part) has no entries between \(after) and \(before): messages that were accepted may be lost"
            case .foreignEntry(let part, let stream, let entry, let mending):
                "another program wrote or removed entry \(entry) of the stream \(stream), the log of part \(part): the part "
                    + "stops and is taken anew; \(mending), and let nothing but gateways write to keys that begin with {lw:"
            case .memoryFilled(let server, let used, let limit):
                "Redis at \(server) uses \(used) of \(limit) bytes: new messages are refused until some leave"
            case .settingsWrong(let problems):
                "new messages are refused, since accepted ones could be lost: \(problems)"
            case .settingsRight: "all Redis servers have the required settings again: new messages are accepted"
            case .memoryFreed: "Redis has memory again: new messages are accepted"
            case .spillFailed(let reason): "rows could not be moved out of memory: \(reason)"
            }
        }
    }

    /// A part that is open here.
    package struct OpenPart: @unchecked Sendable {
        // Sound because the store is made before anybody has the value, and afterwards used on its loop only.

        /// The store, to be used and closed on its loop.
        package let store: any LoopStore
        package let part: Int
        package let epoch: UInt64
        /// Entries of the log that were moved to rows, and their bytes.
        package let replayedEntryCount: Int
        package let replayedByteCount: Int
    }

    package let cluster: RedisCluster
    package let configuration: Configuration
    private let context: LogContext
    private let readers: RedisReaders
    private let spiller: RedisSpiller
    private let parts: PartTable
    private let watch = Monitor(true)
    private var threads: [JoinableThread] = []
    private var isOpen = true

    /// The parts that are open, by number.
    private final class PartTable: Sendable {
        let parts = Lock<[Int: RedisPart]>([:])
        var all: [RedisPart] { parts.withLock { $0.values.sorted { $0.part < $1.part } } }
    }

    /// Starts the engine's threads; no server is asked yet.
    ///
    /// - Throws: `.system` when a thread cannot be made.
    package init(_ cluster: RedisCluster, _ configuration: Configuration) throws(StoreError) {
        (self.cluster, self.configuration) = (cluster, configuration)
        let context = LogContext(cluster, configuration)
        let parts = PartTable()
        (self.context, self.parts) = (context, parts)
        readers = RedisReaders(context)
        spiller = RedisSpiller(context) { parts.all }
        do throws(SystemError) {
            try context.lanes.start()
            try readers.start()
            guard !configuration.isStepped else { return }
            for number in 0..<max(1, configuration.workerCount) {
                threads.append(try JoinableThread(named: "redis rows \(number)") { [spiller] in spiller.run() })
            }
            threads.append(
                try JoinableThread(named: "redis watch") { [context, watch] in Self.watch(context, watch) })
        } catch {
            close()
            throw StoreError(error)
        }
    }

    deinit { precondition(!isOpen, "RedisEngine dropped without close()") }

    // MARK: Parts

    /// Epochs are below it: scripts compare them as floating-point numbers.
    package static let epochLimit: UInt64 = 1 << 52

    /// Opens a part: fences its owner before, moves what that one's log has into rows, and makes a store for it.
    ///
    /// Blocks until that is done, as long as the log is: not to be called on a loop.
    ///
    /// - Parameters:
    ///   - part: the part has the buckets whose number leaves this rest when divided by `count`.
    ///   - count: the number of parts, a power of two up to 256, and the same for ever.
    ///   - epoch: the number of this owner, above 0 and above those of all owners before it.
    ///   - post: runs a closure on the store's loop, soon, in order; called from the engine's threads.
    ///   - onLost: called once, on a thread of the engine, when another owner has the part. Nothing more commits then; the
    ///     store is to be closed on its loop, and the part with `closePart`.
    /// - Returns: the part with its store.
    /// - Throws: `.epochTaken` when there is an owner of that epoch or a higher one, `.damagedLog` when the log has
    ///   bytes that are not what was written, `.redis` when servers do not answer in time. The part has no owner then.
    package func openPart(
        _ part: Int, of count: Int, epoch: UInt64, post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void,
        onLost: @escaping @Sendable (Loss) -> Void
    ) throws(StoreError) -> OpenPart {
        precondition(
            count > 0 && count <= RedisGroups.count && count & (count - 1) == 0, "parts are a power of two up to 256")
        precondition((0..<count).contains(part), "no such part")
        precondition(epoch > 0 && epoch < Self.epochLimit, "epochs are above 0, and numbers that a script can compare")
        precondition(parts.parts.withLock { $0[part] == nil }, "the part is open here already")
        let client = RedisClient(cluster)
        defer { client.close() }
        let opening = PartOpening(part: part, of: count, epoch: epoch, context: context, client: client)
        let findings = try opening.perform()
        let log = RedisLog(part: part, epoch: epoch, nextNumber: findings.nextNumber, engine: context, onLost: onLost)
        let mailbox = ShardMailbox(post: post)
        let open = RedisPart(
            opening, findings, part: part, of: count, log: log, context: context, mailbox: mailbox, readers: readers,
            spiller: spiller)
        let shard = EmbeddedShardStore(
            owner: open, log: log, rows: open, shardIndex: part, shardCount: count, mailbox: mailbox,
            hasAlarms: findings.hasAlarms, hasColdRows: open.mayHaveRows)
        parts.parts.withLock { $0[part] = open }
        return OpenPart(
            store: shard, part: part, epoch: epoch, replayedEntryCount: findings.replayedEntryCount,
            replayedByteCount: findings.replayedByteCount)
    }

    /// Ends a part whose store has been closed on its loop; a later owner replays what its log has.
    ///
    /// Blocks for `flushMilliseconds` at most, while Redis does not take what was handed over.
    ///
    /// - Parameter part: one that is open here.
    /// - Returns: true when all that was handed over is durable.
    @discardableResult
    package func closePart(_ part: Int) -> Bool {
        guard let open = parts.parts.withLock({ $0.removeValue(forKey: part) }) else { return true }
        return open.close(flushMilliseconds: configuration.flushMilliseconds)
    }

    /// The parts that are open here.
    package var openParts: [Int] { parts.all.map(\.part).sorted() }

    // MARK: Operating

    package var acceptsWrites: Bool {
        context.acceptsWrites(beside: 0) && parts.all.allSatisfy { !$0.log.isStuck }
    }

    /// One server that stands still, or a filled memory, is the same for every gateway: what else they have goes on.
    package var isServing: Bool {
        let parts = parts.all
        return parts.isEmpty || parts.contains { !$0.log.isStuck }
    }

    /// Whether a part is open here whose log takes writes, as far as is known; false when no server answers.
    package var hasWorkingPart: Bool {
        let primaries = cluster.primaries
        return !primaries.allSatisfy { cluster.isSilent($0.address) }
            && parts.all.contains { !$0.log.isStuck && !$0.log.isLost }
    }

    package func requestSpill() { for part in parts.all { part.requestSpill() } }

    package func close() {
        guard isOpen else { return }
        isOpen = false
        for part in parts.all { closePart(part.part) }
        spiller.close()
        context.lanes.close()
        readers.close()
        watch.broadcast { $0 = false }
        for thread in threads { thread.join() }
        threads.removeAll()
        if configuration.isStepped { spiller.finish() }
    }

    /// What a thread of the engine does in one turn.
    package enum Step: Sendable, CaseIterable { case commit, read, moveRows, watch }

    /// Does what the threads of a kind would do now, on the calling thread; for an engine without threads.
    ///
    /// - Parameter step: whose turn it is.
    /// - Returns: whether there was something to do.
    package func step(_ step: Step) -> Bool {
        precondition(configuration.isStepped, "this engine has threads")
        switch step {
        case .commit: return context.lanes.step()
        case .read: return readers.step()
        case .moveRows: return spiller.step()
        case .watch:
            let client = RedisClient(cluster)
            Self.look(context, client)
            var settings = SettingsWatch()
            settings.look(context, client)
            client.close()
            return true
        }
    }

    /// A snapshot; from any thread.
    package var statistics: StoreStatistics {
        let log = context.statistics.withLock { $0 }
        var result = StoreStatistics()
        result.batchCount = log.batchCount
        result.groupCount = log.groupCount
        result.largestGroup = log.largestGroup
        result.journalWrittenByteCount = log.byteCount
        result.longestCommit = log.longestCommit
        result.totalCommitTime = log.totalCommitTime
        result.commitTimes = log.commitTimes
        result.uncommittedByteCount = context.uncommitted.load(ordering: .relaxed)
        result.journalByteCount = context.logBytes.load(ordering: .relaxed)
        result.segmentCount = parts.all.reduce(0) { $0 + $1.log.spans.count }
        result.spilledRowCount = context.spilledRows.load(ordering: .relaxed)
        result.spilledDeletionCount = context.spilledDeletions.load(ordering: .relaxed)
        (result.lastSpillFailure, result.spillFailureCount) = context.spillFailures
        (result.redisByteCount, result.redisByteLimit) = context.memory.withLock { $0 }
        let drops = context.earlyDrops.withLock { $0 }
        result.requests = retention(.requests, drops.requestCount, drops.requestMilliseconds)
        result.traces = retention(.traces, drops.traceCount, drops.traceMilliseconds)
        result.refusalReason = refusalReason
        result.failedCommitCount = context.failedCommits.load(ordering: .relaxed)
        let reads = context.reads.withLock { $0 }
        (result.readTimes, result.totalReadTime) = (reads.commitTimes, reads.totalCommitTime)
        return result
    }

    /// The reason for refused publishes, with the servers that have not answered.
    private var refusalReason: String? {
        var reasons = [context.wrongSettings.withLock { $0 }, context.filledMemory.withLock { $0 }]
        var stuck: [String: [Int]] = [:]
        for part in parts.all where part.log.isStuck {
            stuck[cluster.primary(of: part.log.slot)?.description ?? "an unknown server", default: []].append(part.part)
        }
        for (server, parts) in stuck.sorted(by: { $0.key < $1.key }) {
            let list = parts.sorted().map { "\($0)" }.joined(separator: ", ")
            reasons.append("Redis at \(server) does not answer or lacks replicas: no writes for parts \(list)")
        }
        reasons.append(context.fullBound)
        let told = reasons.filter { !$0.isEmpty }
        return told.isEmpty ? nil : told.joined(separator: "; ")
    }

    /// Of the parts that are open here.
    private func retention(_ kind: Period.Kind, _ cutCount: Int, _ cutAge: Int64) -> StoreStatistics.Retention {
        var retention = StoreStatistics.Retention()
        var oldest: Int64?
        let open = parts.all
        for part in open {
            // This gateway's share of what all may take.
            retention.byteLimit += context.retentionLimit(kind) / max(1, part.partCount)
            for (period, byteCount) in part.retainedByteCounts where period.kind == kind {
                retention.byteCount += byteCount
                oldest = min(oldest ?? period.number, period.number)
            }
        }
        if let now = configuration.now(), let oldest {
            retention.milliseconds = max(0, now - oldest * Limits.redisPeriodMilliseconds)
        }
        (retention.cutCount, retention.cutMilliseconds) = (cutCount, cutAge)
        return retention
    }

    // MARK: The watch

    private static func watch(_ context: LogContext, _ isOpen: Monitor<Bool>) {
        let client = RedisClient(context.cluster)
        var settings = SettingsWatch()
        while isOpen.wait(atMostMilliseconds: context.configuration.watchMilliseconds, while: { $0 }, then: { $0 }) {
            look(context, client)
            settings.look(context, client)
        }
        client.close()
    }

    /// The settings of all servers that durability depends on, read once a minute and when a server joins the map.
    private struct SettingsWatch {
        /// The findings at each server of the map; a server that does not answer keeps its last ones.
        private var problems: [RedisAddress: [RedisProblem]] = [:]
        private var lookedAt: UInt64?

        mutating func look(_ context: LogContext, _ client: RedisClient) {
            let servers = context.cluster.primaries.flatMap { [$0.address] + $0.replicas }
            problems = problems.filter { servers.contains($0.key) }
            let isDue = lookedAt.map { $0 + context.configuration.settingsMilliseconds <= context.now } ?? true
            if isDue { lookedAt = context.now }
            for server in servers where isDue || problems[server] == nil {
                guard !context.cluster.isSilent(server),
                    let found = RedisSettings.durabilityProblems(at: server, client)
                else { continue }
                problems[server] = found
            }
            let all = servers.flatMap { problems[$0] ?? [] }.map(\.description).joined(separator: "; ")
            let before = context.wrongSettings.withLock { old in
                defer { old = all }
                return old
            }
            guard all != before else { return }
            context.hasWrongSettings.store(!all.isEmpty, ordering: .relaxed)
            context.report(all.isEmpty ? .settingsRight : .settingsWrong(all))
        }
    }

    /// Asks one of the primaries that were silent; readers and workers go by the answer (`RedisCluster.isSilent`).
    private static func probe(_ context: LogContext, _ client: RedisClient) {
        guard let server = context.cluster.silentPrimaries.first else { return }
        // The client notes what comes of it.
        _ = try? client.exchange([RedisCommand("PING")], at: server, timeoutMilliseconds: Redis.Limits.mapMilliseconds)
    }

    /// Asks each server how full it is.
    private static func look(_ context: LogContext, _ client: RedisClient) {
        do throws(RedisError) { try client.askForMap() } catch { return }
        var filled: (server: String, used: Int, limit: Int)?
        var sum = (used: 0, limit: 0)
        var isBounded = true
        for primary in context.cluster.primaries {
            for server in [primary.address] + primary.replicas where !context.cluster.isSilent(server) {
                do throws(RedisError) {
                    let replies = try client.exchange(
                        [RedisCommand("INFO", "server"), RedisCommand("INFO", "memory")], at: server,
                        timeoutMilliseconds: Redis.Limits.mapMilliseconds
                    ).replies
                    if let text = replies[0].text {
                        context.cluster.note(version: RedisInformation(text).version, of: server)
                    }
                    guard server == primary.address, let text = replies[1].text else { continue }
                    let information = RedisInformation(text)
                    // Sums of all servers stay numbers.
                    guard let used = information.number("used_memory"), let limit = information.number("maxmemory"),
                        0..<1 << 52 ~= used, 0..<1 << 52 ~= limit
                    else { continue }
                    sum = (sum.used + used, sum.limit + limit)
                    if limit <= 0 { isBounded = false }
                    if limit > 0, Double(used) >= Double(limit) * context.configuration.memoryShare {
                        filled = (server.description, used, limit)
                    }
                } catch { continue }
            }
        }
        probe(context, client)
        context.memory.withLock { $0 = (sum.used, isBounded ? sum.limit : 0) }
        let event = filled.map {
            Event.memoryFilled(server: $0.server, usedByteCount: $0.used, byteLimit: $0.limit)
        }
        context.filledMemory.withLock { $0 = event?.description ?? "" }
        let wasFilled = context.isMemoryFilled.exchange(filled != nil, ordering: .relaxed)
        if let event, !wasFilled {
            context.report(event)
        } else if filled == nil, wasFilled {
            context.report(.memoryFreed)
        }
    }
}
