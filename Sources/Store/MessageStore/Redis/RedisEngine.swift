// The store of a cluster of gateways: logs and rows in Redis (`RedisKeys`). A process opens and closes the partitions that it
// owns one by one, at any time. Each open partition has a log, an overlay and rows.
//
// Threads: for each server one commit lane and some readers; workers that move rows out of memory; a watch that monitors the
// servers' memory and settings. The number of threads does not depend on the number of partitions.

internal import Delivery
internal import Journal
internal import Platform
package import Redis
internal import Synchronization

package final class RedisEngine: StoreService, @unchecked Sendable {
    // Sound because `parts` is a lock, and only the opener uses `threads` (one thread calls `init` and `close`). All other
    // properties are immutable or synchronize themselves.

    package struct Configuration: Sendable {
        /// The cluster's name, the prefix of all keys.
        package var name = "longwire"
        /// The minimum number of replicas that must confirm a write; the slot map may require more.
        package var minReplicas = 1
        /// The maximum of bytes submitted and not yet durable, over all partitions; beyond it publishes are refused.
        package var uncommittedByteLimit = Journal.Limits.uncommittedByteCount
        /// The maximum of log bytes that are not yet stored as rows, over all partitions.
        package var logByteLimit = Limits.journalByteCount
        /// The budget of request ids over the whole cluster; beyond it the oldest are dropped before they are a day old.
        package var requestByteLimit = Limits.requestByteCount
        /// The budget of traces over the whole cluster.
        package var traceByteLimit = Limits.traceByteCount
        /// The age at which rows leave memory and log.
        package var youngMilliseconds = Limits.youngMilliseconds
        /// The share of a server's `maxmemory` beyond which publishes are refused.
        package var memoryShare = Limits.redisMemoryShare
        package var readerCount = Limits.readerCount
        package var workerCount = 2
        /// The maximum size of a log entry, unless a single batch is larger.
        package var entryByteLimit = 1 << 20
        /// The timeout of a command that moves or replays rows.
        package var rowsMilliseconds = 15_000
        /// The timeout of a cold read; its command then fails with a retryable error.
        package var readMilliseconds = 2_000
        /// The delay before the alarms of an unresponsive server are read again; 0 retries without a delay, for tests.
        package var silentAlarmMilliseconds = Limits.silentAlarmMilliseconds
        /// The maximum time that closing a partition waits for submitted batches to become durable.
        package var flushMilliseconds: UInt64 = 5_000
        package var tickMilliseconds = Limits.spillerTickMilliseconds
        package var watchMilliseconds: UInt64 = 1_000
        /// The interval of checks of the servers' settings; the settings of a new server are checked at once.
        package var settingsMilliseconds: UInt64 = 60_000
        /// Whether the engine has no threads; `step` then does their work, for tests.
        package var isStepped = false
        /// The gateway time in milliseconds, for the age of request and trace rows; `nil` while unknown.
        package var now: @Sendable () -> Int64? = { nil }
        /// Returns the highest epoch that a gateway has claimed for a partition; `nil` if the register does not answer.
        ///
        /// Called and awaited by a thread of the store that finds a higher epoch in the partition's log.
        package var claimedEpoch: @Sendable (_ part: Int) -> UInt64? = { _ in nil }
        /// Requests a new history of the whole store, because durable data was lost.
        ///
        /// Called from any thread. The callee calls `done` once, at any time: with true when the new history is stored durably,
        /// with false if that failed.
        package var renewHistory: @Sendable (_ done: @escaping @Sendable (_ isRenewed: Bool) -> Void) -> Void = {
            $0(true)
        }
        /// Reports an event for the operator; called on threads of the store.
        package var report: @Sendable (Event) -> Void = { _ in }

        /// The time span of one log span: a sixteenth of the age at which rows leave the log.
        var spanMilliseconds: UInt64 { max(1, youngMilliseconds / 16) }

        package init() {}
    }

    package enum Loss: Sendable, Equatable, CustomStringConvertible {
        /// A successor with a higher epoch has fenced the log.
        case fenced(part: Int, epoch: UInt64, successor: UInt64)
        /// Another program has written or removed an entry of the partition's log.
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

    package enum Event: Sendable, Equatable, CustomStringConvertible {
        /// Commits fail at the moment and are retried.
        case commitFailed(reason: String)
        /// A write has reached its primary, but not enough replicas; `replicas` are those in the slot map.
        case waitingForReplicas(server: String, wanted: Int, replicas: [String])
        /// Durable entries were lost in a failover to a replica that did not have them.
        case entriesLost(part: Int, from: String, through: String)
        /// A partition's whole log was lost.
        case streamLost(part: Int, from: String)
        /// A takeover found rows of an owner whose entries are missing in the log.
        case logIsOlder(part: Int, last: String, epoch: UInt64)
        /// A takeover found a gap between two log entries.
        case entriesMissing(part: Int, after: String, before: String)
        /// Another program has written or removed an entry of a partition's log; `mending` contains the commands to run.
        case foreignEntry(part: Int, stream: String, entry: String, mending: String)
        /// A server's memory use has exceeded its share, or has fallen below it again.
        case memoryFilled(server: String, usedByteCount: Int, byteLimit: Int)
        case memoryFreed
        /// Servers have settings under which an accepted message may be lost; publishes are refused.
        case settingsWrong(String)
        case settingsRight
        /// Rows could not be moved out of memory; the move is retried.
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

    package struct OpenPart: @unchecked Sendable {
        // Sound because the store is created before the value is shared, and is used only on its loop afterwards.

        /// The store, to be used and closed on its loop.
        package let store: any LoopStore
        package let part: Int
        package let epoch: UInt64
        /// The number and size of the log entries that were moved to rows.
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

    private final class PartTable: Sendable {
        let parts = Lock<[Int: RedisPart]>([:])
        var all: [RedisPart] { parts.withLock { $0.values.sorted { $0.part < $1.part } } }
    }

    /// Starts the engine's threads.
    ///
    /// No server is contacted yet.
    ///
    /// - Throws: `.system` when a thread cannot be created.
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

    /// The exclusive upper bound of epochs: scripts compare them as floating-point numbers.
    package static let epochLimit: UInt64 = 1 << 52

    /// Opens a partition: fences the previous owner, moves its log into rows, and creates a store.
    ///
    /// Blocks until the whole log is moved. Must not be called on a loop.
    ///
    /// - Parameters:
    ///   - part: The partition's number. It has the buckets whose index modulo `count` is `part`.
    ///   - count: The number of partitions, a power of two up to 256. It can never change.
    ///   - epoch: The number of this owner, above 0 and above those of all earlier owners.
    ///   - post: Runs a closure on the store's loop, soon and in order. Called from the engine's threads.
    ///   - onLost: Called once, on a thread of the engine, when another owner has the partition. Nothing commits afterwards. The
    ///     store must be closed on its loop, and the partition with `closePart`.
    /// - Returns: The partition with its store.
    /// - Throws: `.epochTaken` if an owner of that or a higher epoch exists, `.damagedLog` if the log contains invalid bytes,
    ///   `.redis` if servers do not answer in time. The partition then has no owner.
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

    /// Closes a partition whose store has been closed on its loop.
    ///
    /// A later owner replays its log. Blocks for at most `flushMilliseconds` while Redis does not accept the submitted batches.
    ///
    /// - Parameter part: The number of an open partition.
    /// - Returns: Whether all submitted batches are durable.
    @discardableResult
    package func closePart(_ part: Int) -> Bool {
        guard let open = parts.parts.withLock({ $0.removeValue(forKey: part) }) else { return true }
        return open.close(flushMilliseconds: configuration.flushMilliseconds)
    }

    package var openParts: [Int] { parts.all.map(\.part).sorted() }

    // MARK: Operating

    package var acceptsWrites: Bool {
        context.acceptsWrites(beside: 0) && parts.all.allSatisfy { !$0.log.isStuck }
    }

    /// Whether some partition works; a full memory does not count, because it affects all gateways equally.
    package var isServing: Bool {
        let parts = parts.all
        return parts.isEmpty || parts.contains { !$0.log.isStuck }
    }

    /// Whether an open partition's log accepts writes, as far as is known; false if no server answers.
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

    package enum Step: Sendable, CaseIterable { case commit, read, moveRows, watch }

    /// Does one turn of a kind of thread on the calling thread, for an engine without threads.
    ///
    /// - Parameter step: The kind of thread.
    /// - Returns: Whether there was work.
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

    private func retention(_ kind: Period.Kind, _ cutCount: Int, _ cutAge: Int64) -> StoreStatistics.Retention {
        var retention = StoreStatistics.Retention()
        var oldest: Int64?
        let open = parts.all
        for part in open {
            // This gateway's share of the cluster's budget.
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

    /// The check of all servers' durability settings, once a minute and when a server joins the slot map.
    private struct SettingsWatch {
        /// The findings by server; a server that does not answer keeps its last ones.
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

    /// Sends PING to one of the silent primaries; readers and workers use the result (`RedisCluster.isSilent`).
    private static func probe(_ context: LogContext, _ client: RedisClient) {
        guard let server = context.cluster.silentPrimaries.first else { return }
        // The client records the result.
        _ = try? client.exchange([RedisCommand("PING")], at: server, timeoutMilliseconds: Redis.Limits.mapMilliseconds)
    }

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
                    // The bounds keep the sums from overflowing.
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
