// What a shard remembers of tasks besides their rows: when they are due, which were stopped, which calls are under way,
// and which first acks have yet to be settled. All of it can be made anew after a restart, from the rows' alarms.

internal import Structures
internal import Wire

/// A larger call under way.
struct RunningCall {
    var digest: UInt64
    var task: TaskID
    var waiting: [Origin] = []
}

struct TaskTable: ~Copyable {
    private struct Due {
        var at: GatewayTime
        var task: TaskID
    }

    /// A first ack that may not be settled: its ledger row is looked at again at this time.
    // Not private: the compiler makes a broken module of a private structure in a generic one.
    struct Unsettled {
        var at: GatewayTime
        var key: StoreKey
    }

    /// Tasks whose rows were written in this run, by time.
    ///
    /// As long as a row is young the store tells no alarm of it; one that is told twice does no harm.
    private var due: [Due] = []
    /// Tasks that a restart takes up before their time, once.
    private var resumed: Set<TaskID> = []
    /// Tasks that take no messages any more, and until when that must be remembered.
    private var stopped: [TaskID: GatewayTime] = [:]
    /// The number of stopped tasks at which the old ones are looked for.
    private var stoppedLimit = TaskTable.smallestStoppedLimit
    private static let smallestStoppedLimit = 4_096
    /// Larger calls under way, and their repetitions, which wait for the same answer.
    private(set) var calls: [CallKey: RunningCall] = [:]
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

    /// The next task whose time has come.
    mutating func popDue(_ now: GatewayTime) -> TaskID? {
        guard let first = due.first, first.at <= now else { return nil }
        return due.removeFirst().task
    }

    /// A restart found the task half done: it is due at once.
    mutating func resume(_ task: TaskID, now: GatewayTime) {
        resumed.insert(task)
        schedule(task, at: now)
    }

    /// True once for a task that a restart takes up.
    mutating func takeResumed(_ task: TaskID) -> Bool { resumed.remove(task) != nil }

    // MARK: Stops

    func isStopped(_ task: TaskID) -> Bool { stopped[task] != nil }

    /// The task takes no messages until then: longer than anything of it can still wait in a mailbox or for a record.
    mutating func stop(_ task: TaskID, until time: GatewayTime) { stopped[task] = max(stopped[task] ?? 0, time) }

    /// Forgets stops that are over, when there are many.
    mutating func forgetStops(_ now: GatewayTime) {
        guard stopped.count > stoppedLimit else { return }
        stopped = stopped.filter { $0.value > now }
        // As many again may come before the next look, so that looking costs each of them little.
        stoppedLimit = max(Self.smallestStoppedLimit, 2 * stopped.count)
    }

    // MARK: Calls

    mutating func begin(_ key: CallKey, _ call: RunningCall) { calls[key] = call }
    mutating func wait(for key: CallKey, _ origin: Origin) { calls[key]?.waiting.append(origin) }
    /// The call goes on under the id that its first attempt was given.
    mutating func rename(_ key: CallKey, _ task: TaskID) { calls[key]?.task = task }
    @discardableResult
    mutating func end(_ key: CallKey) -> RunningCall? { calls.removeValue(forKey: key) }

    /// The item of a new row of parked devices: it rises over restarts, too.
    mutating func nextPage(_ now: GatewayTime) -> UInt64 {
        lastPage = max(lastPage + 1, UInt64(max(0, now)) << 16)
        return lastPage
    }

    // MARK: First acks

    /// Notes, in the open batch, that a message was acked whose siblings are to be ended.
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
