// The in-memory state of tasks: due times, stopped tasks, running calls, and unsettled first acks. After a restart the alarms of
// the rows restore due times and first acks.

internal import Structures
internal import Wire

struct RunningCall {
    var digest: UInt64
    var task: TaskID
    var waiting: [ShardReply<CallStart>] = []
    var since: GatewayTime = 0
}

struct TaskTable: ~Copyable {
    private struct Due {
        var at: GatewayTime
        var task: TaskID
    }

    /// A first ack that may be unsettled; at the time `at`, the shard reads its ledger row again.
    // Not private, because the compiler emits a broken module for a private structure inside a generic type.
    struct Unsettled {
        var at: GatewayTime
        var key: StoreKey
    }

    /// The time after which a call's runner counts as lost.
    struct Overdue {
        var at: GatewayTime
        var key: CallKey
    }

    /// Tasks whose rows this process wrote, by time.
    ///
    /// The store reports no alarm of a young row. A repeated alarm is harmless.
    private var due: [Due] = []
    /// Tasks that a restart resumes once before their time.
    private var resumed: Set<TaskID> = []
    /// Stopped tasks that accept no messages, with the time until which the shard must remember them.
    private var stopped: [TaskID: GatewayTime] = [:]
    /// The number of stopped tasks at which expired ones are removed.
    private var stoppedLimit = TaskTable.smallestStoppedLimit
    private static let smallestStoppedLimit = 4_096
    private(set) var calls: [CallKey: RunningCall] = [:]
    /// Ordered by time; may contain calls that have ended.
    private var overdue = Ring<Overdue>()
    private var lastPage: UInt64 = 0
    private var freshFirstAcks: [FirstAck] = []
    /// Ordered by time.
    private var unsettled = Ring<Unsettled>()

    // MARK: Times

    var nextDue: GatewayTime { due.first?.at ?? .max }

    mutating func schedule(_ task: TaskID, at time: GatewayTime) {
        due.insert(Due(at: time, task: task), at: due.firstIndex { $0.at > time } ?? due.count)
    }

    mutating func popDue(_ now: GatewayTime) -> TaskID? {
        guard let first = due.first, first.at <= now else { return nil }
        return due.removeFirst().task
    }

    /// Makes a task that a restart found incomplete due immediately.
    mutating func resume(_ task: TaskID, now: GatewayTime) {
        resumed.insert(task)
        schedule(task, at: now)
    }

    mutating func takeResumed(_ task: TaskID) -> Bool { resumed.remove(task) != nil }

    // MARK: Stops

    func isStopped(_ task: TaskID) -> Bool { stopped[task] != nil }

    /// Refuses the task's messages until this time, which must exceed the longest wait in a mailbox or for a record.
    mutating func stop(_ task: TaskID, until time: GatewayTime) { stopped[task] = max(stopped[task] ?? 0, time) }

    mutating func forgetStops(_ now: GatewayTime) {
        guard stopped.count > stoppedLimit else { return }
        stopped = stopped.filter { $0.value > now }
        // The limit is twice the count, so that removals cost amortized constant time per stop.
        stoppedLimit = max(Self.smallestStoppedLimit, 2 * stopped.count)
    }

    // MARK: Calls

    /// The time in ms after which a waiting repetition replaces the *runner*, the caller that carries out the call.
    private static let runnerMilliseconds: GatewayTime = 10_000
    /// The time in ms for which a call without repetitions stays in memory; a later repetition finds the call's row.
    private static let rememberedMilliseconds: GatewayTime = 600_000

    mutating func begin(_ key: CallKey, _ call: RunningCall) {
        calls[key] = call
        overdue.append(Overdue(at: call.since + Self.runnerMilliseconds, key: key))
    }

    /// Returns the next call whose runner timed out, with the repetition that runs it from now on.
    mutating func popOverdue(_ now: GatewayTime) -> (key: CallKey, digest: UInt64, runner: ShardReply<CallStart>)? {
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

    mutating func dropCalls() -> [ShardReply<CallStart>] {
        defer { calls.removeAll() }
        return calls.values.flatMap(\.waiting)
    }

    mutating func wait(for key: CallKey, _ reply: ShardReply<CallStart>) { calls[key]?.waiting.append(reply) }
    mutating func rename(_ key: CallKey, _ task: TaskID) { calls[key]?.task = task }
    @discardableResult
    mutating func end(_ key: CallKey) -> RunningCall? { calls.removeValue(forKey: key) }

    /// Returns the item for the key of a new row of parked devices; items increase across restarts.
    mutating func nextPage(_ now: GatewayTime) -> UInt64 {
        lastPage = max(lastPage + 1, UInt64(max(0, now)) << 16)
        return lastPage
    }

    // MARK: First acks

    /// Records, in the open batch, an ack whose siblings must end.
    mutating func noteFirstAck(_ facts: MessageFacts) {
        freshFirstAcks.append(FirstAck(task: facts.task, app: facts.app, message: facts.message))
    }

    var hasFreshFirstAcks: Bool { !freshFirstAcks.isEmpty }

    mutating func takeFreshFirstAcks() -> [FirstAck] {
        defer { freshFirstAcks.removeAll(keepingCapacity: true) }
        return freshFirstAcks
    }

    mutating func watch(_ key: StoreKey, until time: GatewayTime) { unsettled.append(Unsettled(at: time, key: key)) }

    mutating func popUnsettled(_ now: GatewayTime) -> StoreKey? {
        guard let first = unsettled.first, first.at <= now else { return nil }
        return unsettled.popFirst()?.key
    }
}
