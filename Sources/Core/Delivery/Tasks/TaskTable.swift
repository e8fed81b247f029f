// What a shard keeps in memory of tasks besides their rows: due times, stopped tasks, calls under way, and first acks
// that are not settled. After a restart all of it comes back from the rows' alarms.

internal import Structures
internal import Wire

/// A larger call under way.
struct RunningCall {
    var digest: UInt64
    var task: TaskID
    var waiting: [Origin] = []
    /// When its runner, or the last one that took it over, began.
    var since: GatewayTime = 0
}

struct TaskTable: ~Copyable {
    private struct Due {
        var at: GatewayTime
        var task: TaskID
    }

    /// A first ack that may not be settled: the shard looks at its ledger row again at this time.
    // Not private: the compiler makes a broken module of a private structure in a generic one.
    struct Unsettled {
        var at: GatewayTime
        var key: StoreKey
    }

    /// A call's runner may have left by then.
    struct Overdue {
        var at: GatewayTime
        var key: CallKey
    }

    /// Tasks whose rows this process wrote, by time.
    ///
    /// While a row is young the store reports no alarm of it. An alarm that fires twice does no harm.
    private var due: [Due] = []
    /// Tasks that a restart resumes before their time, once.
    private var resumed: Set<TaskID> = []
    /// Tasks that take no messages any more, each with the time until which the shard must remember that.
    private var stopped: [TaskID: GatewayTime] = [:]
    /// The number of stopped tasks at which the shard looks for old ones.
    private var stoppedLimit = TaskTable.smallestStoppedLimit
    private static let smallestStoppedLimit = 4_096
    /// Larger calls under way, with their repetitions, which wait for the same answer.
    private(set) var calls: [CallKey: RunningCall] = [:]
    /// In the order of their times; of a call that has ended, too.
    private var overdue = Ring<Overdue>()
    private var lastPage: UInt64 = 0
    /// First acks of the open batch.
    private var freshFirstAcks: [FirstAck] = []
    /// In the order of their times.
    private var unsettled = Ring<Unsettled>()

    // MARK: Times

    var nextDue: GatewayTime { due.first?.at ?? .max }

    mutating func schedule(_ task: TaskID, at time: GatewayTime) {
        due.insert(Due(at: time, task: task), at: due.firstIndex { $0.at > time } ?? due.count)
    }

    /// The next task that is due.
    mutating func popDue(_ now: GatewayTime) -> TaskID? {
        guard let first = due.first, first.at <= now else { return nil }
        return due.removeFirst().task
    }

    /// Makes a task due at once that a restart found half done.
    mutating func resume(_ task: TaskID, now: GatewayTime) {
        resumed.insert(task)
        schedule(task, at: now)
    }

    /// True once for a task that a restart resumes.
    mutating func takeResumed(_ task: TaskID) -> Bool { resumed.remove(task) != nil }

    // MARK: Stops

    func isStopped(_ task: TaskID) -> Bool { stopped[task] != nil }

    /// Refuses the task's messages until this time: longer than one can wait in a mailbox or for a record.
    mutating func stop(_ task: TaskID, until time: GatewayTime) { stopped[task] = max(stopped[task] ?? 0, time) }

    /// Forgets stops that are over, when there are many.
    mutating func forgetStops(_ now: GatewayTime) {
        guard stopped.count > stoppedLimit else { return }
        stopped = stopped.filter { $0.value > now }
        // As many may come again before the next look, so that a look costs each of them little.
        stoppedLimit = max(Self.smallestStoppedLimit, 2 * stopped.count)
    }

    // MARK: Calls

    /// How long a call's runner may take, as its repetitions see it.
    private static let runnerMilliseconds: GatewayTime = 10_000
    /// How long a call without repetitions is remembered; a later one finds its row.
    private static let rememberedMilliseconds: GatewayTime = 600_000

    mutating func begin(_ key: CallKey, _ call: RunningCall) {
        calls[key] = call
        overdue.append(Overdue(at: call.since + Self.runnerMilliseconds, key: key))
    }

    /// The next call whose runner is silent for too long, with the repetition that runs it from now on.
    mutating func popOverdue(_ now: GatewayTime) -> (key: CallKey, digest: UInt64, runner: Origin)? {
        while let first = overdue.first, first.at <= now {
            _ = overdue.popFirst()
            guard var call = calls[first.key], call.since + Self.runnerMilliseconds <= now else { continue }
            guard !call.waiting.isEmpty else {
                if now - call.since < Self.rememberedMilliseconds {
                    overdue.append(Overdue(at: now + Self.runnerMilliseconds, key: first.key))
                } else {
                    calls[first.key] = nil
                }
                continue
            }
            let runner = call.waiting.removeFirst()
            call.since = now
            begin(first.key, call)
            return (first.key, call.digest, runner)
        }
        return nil
    }

    /// Forgets the calls under way and returns their repetitions.
    mutating func dropCalls() -> [Origin] {
        defer { calls.removeAll() }
        return calls.values.flatMap(\.waiting)
    }

    mutating func wait(for key: CallKey, _ origin: Origin) { calls[key]?.waiting.append(origin) }
    /// Moves the call to the id that its first attempt got.
    mutating func rename(_ key: CallKey, _ task: TaskID) { calls[key]?.task = task }
    @discardableResult
    mutating func end(_ key: CallKey) -> RunningCall? { calls.removeValue(forKey: key) }

    /// The item of a new row of parked devices: it grows across restarts, too.
    mutating func nextPage(_ now: GatewayTime) -> UInt64 {
        lastPage = max(lastPage + 1, UInt64(max(0, now)) << 16)
        return lastPage
    }

    // MARK: First acks

    /// Notes, in the open batch, that a device acked a message whose siblings must end.
    mutating func noteFirstAck(_ facts: MessageFacts) {
        freshFirstAcks.append(FirstAck(task: facts.task, app: facts.app, message: facts.message))
    }

    var hasFreshFirstAcks: Bool { !freshFirstAcks.isEmpty }

    mutating func takeFreshFirstAcks() -> [FirstAck] {
        defer { freshFirstAcks.removeAll(keepingCapacity: true) }
        return freshFirstAcks
    }

    /// Looks at the ledger row again at that time.
    mutating func watch(_ key: StoreKey, until time: GatewayTime) { unsettled.append(Unsettled(at: time, key: key)) }

    /// The next ledger row whose first ack should be settled by now.
    mutating func popUnsettled(_ now: GatewayTime) -> StoreKey? {
        guard let first = unsettled.first, first.at <= now else { return nil }
        return unsettled.popFirst()?.key
    }
}
