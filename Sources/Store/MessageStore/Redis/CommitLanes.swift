// The threads that commit. A lane serves the logs whose streams are on one server. It has several calls in flight, each on a
// separate connection. A call carries groups of one or more logs, then one wait for the server's replicas. While all connections
// are busy, the next groups gather. Groups thus share the cost of a commit, and few groups wait for the replicas of another
// group. The comment in `RedisLog.swift` explains which groups of a log may be in flight and why their order is kept.
//
// Each server has separate lanes, created for the first log that needs them, so a blocked server does not delay others. Redis
// serves a connection one read at a time and syncs after each turn with a write. Small groups therefore share a call, and a large
// group has a separate one.

internal import Journal
internal import Platform
internal import Redis
internal import Synchronization

final class CommitLanes: @unchecked Sendable {
    // Sound because all properties are constants, and a lane locks its shared state.
    /// Tables with one lane for each server; a partition uses the table with index `part % columns.count`.
    private let columns: [ServerLanes<CommitLane>]
    private let cluster: RedisCluster

    init(_ context: LogContext) {
        cluster = context.cluster
        let isStepped = context.configuration.isStepped
        columns = (0..<Limits.commitLanesOfServer).map { _ in
            ServerLanes(named: "redis log", threadCount: 1, isStepped: isStepped) {
                [unowned context] _ throws(SystemError) in
                try CommitLane(context)
            }
        }
    }

    /// Passes a log without a lane to the lane of its server; if its batches are not urgent, they wait some milliseconds for
    /// others.
    func schedule(_ log: RedisLog) { lane(of: log).adopt(log) }

    /// Returns the lane of the log's server; without a slot map this is the common lane, which requests a map.
    func lane(of log: RedisLog) -> CommitLane { column(of: log).lane(of: cluster.primary(of: log.slot)) }

    private func column(of log: RedisLog) -> ServerLanes<CommitLane> { columns[log.part % columns.count] }

    func step() -> Bool {
        var hasWorked = false
        for column in columns { for lane in column.all where lane.step() { hasWorked = true } }
        return hasWorked
    }

    func start() throws(SystemError) { for column in columns { try column.start() } }
    func close() { for column in columns { column.close() } }
}

final class CommitLane: ServerLane, @unchecked Sendable {
    // Sound because `state` is a lock, and all other state is accessed by the lane's thread only.

    private struct State: ~Copyable {
        /// Logs with new batches.
        var ready: [RedisLog] = []
        /// Logs whose batches may wait for others.
        var late: [RedisLog] = []
        var isOpen = true
        var isAsleep = false

        mutating func wakes() -> Bool {
            defer { isAsleep = false }
            return isAsleep
        }
    }

    private struct Call {
        struct Part {
            let log: RedisLog
            let step: GroupFlights.Step
        }
        let pipe: RedisPipe
        var parts: [Part] = []
        var byteCount = 0
        var wanted = 0

        func commands(_ wait: RedisCommand) -> [RedisCommand] {
            var commands: [RedisCommand] = []
            for part in parts { commands.append(contentsOf: part.step.commands) }
            commands.append(wait)
            return commands
        }
    }

    private unowned let context: LogContext
    private let state = Lock(State())
    private let poller: RedisPoller
    private lazy var client = RedisClient(context.cluster)
    /// Connections without a call in flight.
    private var idle: [RedisPipe] = []
    /// The time of the next check of idle connections, and whether one of them became readable.
    private var tidyAt: UInt64 = 0
    private var hasIdleNews = false
    private var calls: [Call] = []
    /// Logs with something to send, in order of arrival.
    private var wanting: [RedisLog] = []
    /// The time at which delayed batches must be sent.
    private var lateAt: UInt64?
    /// Logs whose last attempt failed, and the time of the retry.
    private var blocked: [RedisLog] = []
    private var retryAt: UInt64 = 0
    private var pause = Redis.Limits.retryMilliseconds
    private var lastReported: UInt64?

    init(_ context: LogContext) throws(SystemError) {
        self.context = context
        poller = try RedisPoller()
    }

    // MARK: From any thread

    /// Takes over a log that no other lane has.
    func adopt(_ log: RedisLog) { schedule(log, isPressing: log.pass(to: self)) }

    /// Queues a log of this lane; if it is not urgent, it waits some milliseconds for other logs.
    func schedule(_ log: RedisLog, isPressing: Bool) {
        let wakes = state.withLock { state in
            if isPressing {
                state.ready.append(log)
            } else {
                state.late.append(log)
                // The first delayed log sets the time for all.
                guard state.late.count == 1 else { return false }
            }
            return state.wakes()
        }
        if wakes { poller.wake() }
    }

    func close() {
        let wakes = state.withLock { state in
            state.isOpen = false
            return state.wakes()
        }
        if wakes { poller.wake() }
    }

    // MARK: The thread

    func run() {
        while turn() { sleep() }
        end()
    }

    private func sleep() {
        let now = context.now
        var until = UInt64.max
        if let lateAt { until = min(until, lateAt) }
        if !blocked.isEmpty { until = min(until, retryAt) }
        for call in calls { until = min(until, call.pipe.deadline) }
        if !idle.isEmpty { until = min(until, tidyAt) }
        let isIdle = state.withLock { state in
            state.isAsleep = state.ready.isEmpty && (state.late.isEmpty || lateAt != nil) && state.isOpen
            return state.isAsleep
        }
        guard isIdle else { return }
        hasIdleNews = poller.sleep(
            for: calls.map(\.pipe.interest), idle: idle.map(\.interest),
            atMostMilliseconds: until == .max ? nil : until > now ? until - now : 0)
        state.withLock { $0.isAsleep = false }
    }

    /// Does everything that is possible without waiting; returns false after the lane is closed.
    private func turn() -> Bool {
        guard take() else { return false }
        tidy()
        advance()
        retry()
        dispatch()
        return true
    }

    /// Closes idle connections that the server has closed or whose server has no slots.
    private func tidy() {
        let now = context.now
        guard hasIdleNews || now >= tidyAt else { return }
        (hasIdleNews, tidyAt) = (false, now + Limits.idlePipeMilliseconds)
        guard !idle.isEmpty else { return }
        let addresses = context.cluster.primaries.map(\.address)
        idle.removeAll { pipe in
            // Without a slot map the connections are kept.
            guard pipe.isBroken || !addresses.isEmpty && !addresses.contains(pipe.address) else { return false }
            pipe.close()
            return true
        }
    }

    func step() -> Bool {
        guard turn() else { return false }
        let isBusy = !calls.isEmpty
        advance()
        return isBusy
    }

    private func take() -> Bool {
        let now = context.now
        let isStepped = context.configuration.isStepped
        var (ready, late): ([RedisLog], [RedisLog]) = ([], [])
        let isOpen = state.withLock { state in
            swap(&ready, &state.ready)
            if isStepped || lateAt.map({ now >= $0 }) ?? false {
                swap(&late, &state.late)
                lateAt = nil
            } else if !state.late.isEmpty, lateAt == nil {
                lateAt = now + Journal.Limits.unawaitedMilliseconds
            }
            return state.isOpen
        }
        // A log that moved to another lane is served there.
        for log in ready where log.belongs(to: self) { want(log) }
        for log in late where log.belongs(to: self) {
            log.isDue = true
            want(log)
        }
        return isOpen
    }

    private func want(_ log: RedisLog) {
        guard log.place == .none else { return }
        log.place = .wanting
        wanting.append(log)
    }

    private func retry() {
        guard !blocked.isEmpty, context.now >= retryAt else { return }
        let logs = blocked
        blocked.removeAll()
        for log in logs {
            log.place = .none
            want(log)
        }
    }

    private func end() {
        let (ready, late) = state.withLock { ($0.ready, $0.late) }
        for log in (ready + late).filter({ $0.belongs(to: self) }) + wanting + blocked { log.abandon() }
        for call in calls {
            call.pipe.close()
            for part in call.parts { part.log.abandon() }
        }
        for pipe in idle { pipe.close() }
        (wanting, blocked, calls, idle) = ([], [], [], [])
        client.close()
    }

    func finish() { end() }

    // MARK: Sending

    /// Sends the groups of the logs while there are free connections.
    private func dispatch() {
        guard !wanting.isEmpty else { return }
        let logs = wanting
        wanting.removeAll(keepingCapacity: true)
        var drafts: [RedisAddress: Call] = [:]
        var failures: [RedisAddress: RedisError] = [:]
        // A log that was blocked in the meantime must wait for its retry.
        for log in logs where log.place == .wanting {
            log.place = .none
            guard let address = address(of: log, &failures) else { continue }
            var isWaiting = false
            while let byteCount = log.nextByteCount {
                if let draft = drafts[address], draft.byteCount > 0,
                    draft.byteCount + byteCount > Limits.callByteCount
                {
                    drafts[address] = nil
                    send(draft)
                }
                if drafts[address] == nil {
                    do throws(RedisError) {
                        guard let pipe = try pipe(to: address, for: byteCount) else {
                            isWaiting = true
                            break
                        }
                        drafts[address] = Call(pipe: pipe)
                    } catch {
                        failures[address] = error
                        fail([log], error)
                        break
                    }
                }
                guard let step = log.next() else { break }
                drafts[address]?.parts.append(Call.Part(log: log, step: step))
                drafts[address]?.byteCount += byteCount
            }
            if isWaiting {
                log.noteWait()
                want(log)
            } else if log.place == .none {
                log.isDue = false
                if log.isDrained, !log.isHalted, log.release() { schedule(log, isPressing: log.isPressing) }
            }
        }
        for draft in drafts.values where draft.parts.isEmpty { idle.append(draft.pipe) }
        for draft in drafts.values where !draft.parts.isEmpty { send(draft) }
    }

    /// Returns a connection for a call that begins with a group of `byteCount` bytes; `nil` while the maximum number of calls is
    /// in flight.
    private func pipe(to address: RedisAddress, for byteCount: Int) throws(RedisError) -> RedisPipe? {
        // Large calls have separate slots, so that they do not delay small ones.
        let isLarge = byteCount > Limits.callByteCount
        let count = calls.count { $0.pipe.address == address && ($0.byteCount > Limits.callByteCount) == isLarge }
        guard count < (isLarge ? Limits.largeCallsOfLane : Limits.callsOfLane) else { return nil }
        if let place = idle.lastIndex(where: { $0.address == address }) { return idle.remove(at: place) }
        return try RedisPipe(to: address, of: context.cluster)
    }

    private func send(_ draft: Call) {
        var call = draft
        let address = call.pipe.address
        call.wanted = replicas(of: address)
        let wait = client.waitCommand(call.wanted, at: address, timeoutMilliseconds: Limits.replicaMilliseconds)
        do throws(RedisError) {
            try call.pipe.begin(call.commands(wait), timeoutMilliseconds: Limits.commitMilliseconds)
            calls.append(call)
        } catch { lose(call, error) }
    }

    private func replicas(of address: RedisAddress) -> Int {
        max(context.configuration.minReplicas, context.cluster.replicaCount(of: address))
    }

    /// Returns the server to which a log may send now; `nil` if the log may not send, or if another lane serves it.
    private func address(of log: RedisLog, _ failures: inout [RedisAddress: RedisError]) -> RedisAddress? {
        if log.isOver {
            if log.isDrained { log.abandon() }
            return nil
        }
        // The log is queued again when its calls have ended.
        if log.isHalted, !log.isDrained { return nil }
        guard let address = context.cluster.primary(of: log.slot) else {
            askForMap()
            block(log)
            return nil
        }
        if let error = failures[address] {
            fail([log], error)
            return nil
        }
        // The slot has moved to another server, whose lane takes over the log.
        let lane = context.lanes.lane(of: log)
        guard lane === self else {
            if log.isDrained { lane.adoptPressed(log) }
            return nil
        }
        guard log.isHalted else { return address }
        if log.hasUnknown {
            do throws(RedisError) {
                guard try verify(log) else { return nil }
            } catch {
                failures[address] = error
                fail([log], error)
                return nil
            }
            guard !log.isHalted else {
                block(log)
                return nil
            }
        } else {
            log.resume()
        }
        guard let target = log.asking else { return address }
        log.asking = nil
        ask(target, for: log)
        return nil
    }

    private func adoptPressed(_ log: RedisLog) {
        _ = log.pass(to: self)
        schedule(log, isPressing: true)
    }

    /// Reads the stream's tail; returns false if the partition is lost.
    private func verify(_ log: RedisLog) throws(RedisError) -> Bool {
        let tail = try LogReading.tail(of: log.key, slot: log.slot, log.lookAtAll, by: client)
        var isForeign = false
        if let last = tail.last, last.epoch > log.epoch {
            isForeign = try log.isForeign(last, by: client)
        }
        guard log.take(lastID: tail.last, entries: tail.entries, isForeign: isForeign) else {
            log.abandon()
            return false
        }
        return true
    }

    // MARK: Replies

    private func advance() {
        let before = calls
        calls.removeAll(keepingCapacity: true)
        for call in before {
            do throws(RedisError) {
                guard let replies = try call.pipe.proceed() else {
                    calls.append(call)
                    continue
                }
                idle.append(call.pipe)
                finish(call, replies)
            } catch { lose(call, error) }
        }
    }

    private func finish(_ call: Call, _ replies: [RedisReply]) {
        let address = call.pipe.address
        let wait = replies[replies.count - 1]
        let isDurable = RedisClient.isDurable(wait, call.wanted)
        var isShort = false
        var start = 0
        for part in call.parts {
            let (log, step) = (part.log, part.step)
            let end = start + step.commands.count
            switch log.take(step, replies[start..<end]) {
            case .stored:
                if isDurable {
                    log.complete(upTo: step.number)
                } else if let fault = wait.fault {
                    // A server that became a replica replies with an error. Its writes may be lost.
                    log.doubt(step.number)
                    log.needsPause = true
                    trouble(.refused(address, fault))
                } else {
                    isShort = true
                }
            case .old: break
            // The server lost the script or an entry, and may lose it again.
            case .again: log.needsPause = true
            case .elsewhere(let reply): redirect(log, reply, from: address)
            case .streamLost:
                log.needsPause = true
                trouble(.refused(address, RedisFault("ERR no such key")))
            case .blocked(let fault):
                log.needsPause = true
                trouble(.refused(address, fault))
            }
            start = end
        }
        if wait.fault != nil {
            client.noteRefusal(
                of: client.waitCommand(call.wanted, at: address, timeoutMilliseconds: Limits.replicaMilliseconds), wait,
                at: address)
        }
        if isShort {
            // No pause is needed, because the wait lasted until its timeout. The map shows whether a replica has left
            // permanently.
            askForMap()
            let primary = client.cluster.primaries.first { $0.address == address }
            report(
                .waitingForReplicas(
                    server: address.description, wanted: call.wanted,
                    replicas: primary?.replicas.map(\.description) ?? []))
        } else if isDurable {
            pause = Redis.Limits.retryMilliseconds
            if !call.parts.contains(where: \.log.needsPause) { lastReported = nil }
        }
        goOn(call)
    }

    /// Handles a call whose replies were lost.
    private func lose(_ call: Call, _ error: RedisError) {
        // A restarted server or a network failure has probably closed the idle connections, too.
        for pipe in idle where pipe.address == call.pipe.address { pipe.close() }
        idle.removeAll { $0.address == call.pipe.address }
        for part in call.parts {
            part.log.lose(part.step)
            part.log.needsPause = part.log.isHalted
        }
        trouble(error)
        goOn(call)
    }

    private func goOn(_ call: Call) {
        for part in call.parts {
            let log = part.log
            guard log.isDrained || !log.isHalted else { continue }
            if log.needsPause, log.isDrained, !log.isOver {
                log.needsPause = false
                if log.place != .blocked { block(log) }
            } else {
                want(log)
            }
        }
    }

    /// Handles a redirect: MOVED updates the map; ASK is stored until the log's calls have ended.
    private func redirect(_ log: RedisLog, _ reply: RedisReply, from address: RedisAddress) {
        guard let (target, isAsking) = client.redirect(reply, from: address), let target else {
            askForMap()
            log.needsPause = true
            return
        }
        if isAsking { log.asking = target }
    }

    /// Sends a log's groups one by one to the server that its slot is migrating to.
    private func ask(_ target: RedisAddress, for log: RedisLog) {
        // Batches that gather now wait for the next turn, so that replies of other logs are read in between.
        var isGathering = true
        while let step = log.next(isGathering: isGathering) {
            isGathering = false
            var commands: [RedisCommand] = []
            for command in step.commands { commands += [RedisCommand("ASKING"), command] }
            let count = commands.count
            let wanted = replicas(of: target)
            commands.append(client.waitCommand(wanted, at: target, timeoutMilliseconds: Limits.replicaMilliseconds))
            let attempt: RedisClient.Attempt
            do throws(RedisError) {
                attempt = try client.exchange(commands, at: target)
            } catch {
                log.lose(step)
                return fail([log], error)
            }
            let answers = stride(from: 1, to: count, by: 2).map { attempt.replies[$0] }
            switch log.take(step, answers[...]) {
            case .stored:
                guard RedisClient.isDurable(attempt.replies[count], wanted) else {
                    client.noteRefusal(of: commands[count], attempt.replies[count], at: target)
                    log.doubt(step.number)
                    return block(log)
                }
                log.complete(upTo: step.number)
            case .blocked(let fault): return fail([log], .refused(target, fault))
            case .old, .again, .elsewhere, .streamLost: return block(log)
            }
        }
        if log.release() { schedule(log, isPressing: true) }
    }

    // MARK: Trouble

    private func block(_ log: RedisLog) {
        context.failedCommits.add(1, ordering: .relaxed)
        if blocked.isEmpty {
            retryAt = context.now + UInt64(pause)
            pause = min(pause * 2, Redis.Limits.longestRetryMilliseconds)
        }
        log.setAside()
        if log.place == .wanting { wanting.removeAll { $0 === log } }
        log.place = .blocked
        blocked.append(log)
    }

    private func fail(_ logs: [RedisLog], _ error: RedisError) {
        trouble(error)
        for log in logs { block(log) }
    }

    private func trouble(_ error: RedisError) {
        askForMap()
        report(.commitFailed(reason: error.description))
    }

    private func askForMap() {
        do throws(RedisError) { try client.askForMap() } catch {
            report(.commitFailed(reason: error.description))
        }
    }

    /// Reports an event, at most once per interval for continuing failures.
    private func report(_ event: RedisEngine.Event) {
        let now = context.now
        if let lastReported, now < lastReported + Limits.reportMilliseconds { return }
        lastReported = now
        context.report(event)
    }
}
