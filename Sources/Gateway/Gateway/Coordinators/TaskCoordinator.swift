internal import Quotas
internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// Carries out calls about tasks on the loop that received them.
///
/// It asks the loops that own the rows, distributes a list's devices to their loops, and collects the outcomes.
///
/// A call continues if its caller disconnects; only the answer is lost.
final class TaskCoordinator {
    private final class PendingList {
        var run: ListRun
        let then: ([PublishOutcome]) -> Void
        init(count: Int, then: @escaping ([PublishOutcome]) -> Void) {
            (run, self.then) = (ListRun(count: count), then)
        }
    }

    /// The most lists in flight on one loop; further lists are answered as busy.
    static let pendingLimit = 65_536
    static let cacheLimit = 1_024
    /// The lifetime of a cached record, because the announcement of a stop may be lost on a broken link.
    static let cacheMilliseconds: UInt64 = 5_000

    unowned let owner: EventLoopHost
    private var lists = StampedTable<PendingList>(limit: TaskCoordinator.pendingLimit)
    private var cache: [TaskID: (record: TaskRecord, until: UInt64)] = [:]
    private var cacheOrder: [TaskID] = []
    /// Tasks that this host is sending or stopping on behalf of its partitions.
    private var underWay: [Work: ObjectIdentifier] = [:]
    /// Delayed steps, with their times in monotonic milliseconds.
    private var delayed: [(at: UInt64, step: () -> Void)] = []

    private struct Work: Hashable {
        var task: TaskID
        var state: TaskState
    }

    init(_ owner: EventLoopHost) { self.owner = owner }

    var hasWorkUnderWay: Bool { lists.count > 0 }

    func later(_ milliseconds: Int64, _ step: @escaping () -> Void) {
        delayed.append((owner.loop.now + UInt64(max(0, milliseconds)), step))
    }

    func tick(now: UInt64) {
        guard delayed.contains(where: { $0.at <= now }) else { return }
        let due = delayed.filter { $0.at <= now }
        delayed.removeAll { $0.at <= now }
        for one in due { one.step() }
    }

    // MARK: Asking

    /// Sends a command to a partition; `told` receives `.busy` if there is no answer.
    func ask(_ partition: Int, _ command: TaskCommand, told: @escaping (TaskAnswer) -> Void) {
        owner.ask(command, of: partition, completion: told)
    }

    func ask(home task: TaskID, _ command: TaskCommand, told: @escaping (TaskAnswer) -> Void) {
        ask(task.home.loop(of: owner.partitionCount), command, told: told)
    }

    func askAll(_ command: (LoopShare) -> TaskCommand, told: @escaping ([TaskAnswer]) -> Void) {
        let count = owner.partitionCount
        let gathering = Gathering(count: count, done: told)
        for loop in 0..<count {
            ask(loop, command(LoopShare(index: loop, count: count))) { gathering.take($0, at: loop) }
        }
    }

    // MARK: Stored messages

    func forget(_ task: TaskID) {
        guard cache.removeValue(forKey: task) != nil else { return }
        cacheOrder.removeAll { $0 == task }
    }

    func forgetEverywhere(_ task: TaskID) {
        owner.context.tellEveryGateway(.taskChanged(task))
    }

    /// Returns the task's row, from this loop's cache if the task accepts targets.
    func record(_ task: TaskID, _ app: AppKey, told: @escaping (TaskAnswer) -> Void) {
        if let (record, until) = cache[task], until > owner.loop.now {
            return told(record.app == app ? .record(record) : .unknown)
        }
        ask(home: task, .load(task, app)) { [self] answer in
            if case .record(let record) = answer, record.state == .open { keep(record) }
            told(answer)
        }
    }

    private func keep(_ record: TaskRecord) {
        let kept = (record: record, until: owner.loop.now + Self.cacheMilliseconds)
        guard cache.updateValue(kept, forKey: record.id) == nil else { return }
        cacheOrder.append(record.id)
        guard cacheOrder.count > Self.cacheLimit else { return }
        cache[cacheOrder.removeFirst()] = nil
    }

    // MARK: Fan-out

    struct Sending {
        var task: TaskID
        var app: AppKey
        /// The task's creation time; 0 if unknown.
        ///
        /// With 0, devices check whether they already have the task's message.
        var createdAt: GatewayTime
        var content: MessageContent
        var isBulk: Bool
        var permit: PublishPermit
    }

    /// Sends a message to devices, with one message per partition.
    func fanOut(_ sending: Sending, _ given: [ListTarget], then: @escaping ([PublishOutcome]) -> Void) {
        guard !given.isEmpty else { return then([]) }
        guard let (slot, stamp) = lists.insert(PendingList(count: given.count, then: then)) else {
            return then(given.map { PublishOutcome(code: .busy, cid: $0.cid, task: sending.task) })
        }
        var targets = given
        if !sending.content.revokes.isNone {
            for index in targets.indices {
                targets[index].revokedDigest = messageDigest(of: sending.content.revokes, for: targets[index].cid)
            }
        }
        let route = owner.route(.list, slot, stamp)
        let parts = ListRun.deal(
            targets, task: sending.task, app: sending.app, createdAt: sending.createdAt, content: sending.content,
            isBulk: sending.isBulk, route: route.word, loopCount: owner.partitionCount)
        // Partitions of this host are last, so that other loops can start before this loop is busy.
        for (partition, fanout) in parts where owner.servingPartition(partition) == nil {
            owner.publish(fanout, to: partition, sending.permit)
        }
        for (partition, fanout) in parts where owner.servingPartition(partition) != nil {
            owner.publish(fanout, to: partition, sending.permit)
        }
    }

    func answered(_ route: Route, place: Int, _ outcome: PublishOutcome) {
        guard let pending = lists[route.slot, route.stamp], pending.run.take(place, outcome) else { return }
        lists.remove(route.slot, route.stamp)
        pending.then(pending.run.outcomes.compactMap { $0 })
    }

    // MARK: Stop

    /// Stops a task: stores the stop, so that it reaches no more devices, then ends its pending messages everywhere.
    ///
    /// `told` receives `.swept` with the number of ended messages, or the failure.
    func stop(_ task: TaskID, _ app: AppKey, told: @escaping (TaskAnswer) -> Void) {
        if task.kind == .single { return ask(home: task, .stopSingle(task, app), told: told) }
        ask(home: task, .change(task, app, .stop)) { [self] answer in
            switch answer {
            case .record(let record) where record.state == .stopping && record.broadcast != nil:
                sweepBroadcast(record) { [self] answer in
                    told(answer)
                    // The home closes the broadcast only now, because messages ended by the closing scan are not in the count.
                    guard case .swept = answer else { return }
                    ask(home: task, .change(task, app, .swept)) { _ in }
                }
            case .record(let record) where record.state == .stopping: sweep(task, app, told: told)
            // The task had already ended.
            case .record, .refused: told(.swept(0))
            case .unknown: stopWithoutRow(task, app, told: told)
            default: told(answer)
            }
        }
    }

    /// Stops a push to an alias; such a task has several devices but no row, so its messages are counted instead.
    private func stopWithoutRow(_ task: TaskID, _ app: AppKey, told: @escaping (TaskAnswer) -> Void) {
        askAll({ .totals(task, app, $0) }) { [self] answers in
            var sum = TaskTotals()
            for answer in answers {
                guard case .totals(let part) = answer else { return told(.busy) }
                sum.add(part)
            }
            guard sum.accepted > 0 else { return told(.unknown) }
            askAll({ .sweep(task, app, $0) }) { answers in
                var count = 0
                for answer in answers {
                    guard case .swept(let part) = answer else { return told(.busy) }
                    count += part
                }
                told(.swept(count))
            }
        }
    }

    private func sweep(_ task: TaskID, _ app: AppKey, told: @escaping (TaskAnswer) -> Void) {
        forgetEverywhere(task)
        askAll({ .sweep(task, app, $0) }) { [self] answers in
            var count = 0
            for answer in answers {
                // The row stays in state `stopping` until all is done, and its home retries.
                guard case .swept(let part) = answer else { return told(.busy) }
                count += part
            }
            ask(home: task, .change(task, app, .stopped)) { answer in
                if case .record = answer { told(.swept(count)) } else { told(.busy) }
            }
        }
    }

    // MARK: First acks

    /// Ends a task's messages for all devices except the one that acked first, then notifies that device's shard.
    ///
    /// After a failure the shard reports the first ack again.
    func endSiblings(of first: FirstAck) {
        guard !owner.context.isStopping, let app = owner.registry[first.app], let bucket = first.message.bucket else {
            return
        }
        ask(home: first.task, .targets(first.task, from: 0)) { [self] answer in
            guard case .targets(let cids, _) = answer else { return }
            let targets = cids.map { app.target($0, of: first.task) }
            let siblings = targets.filter { $0.digest != first.message.low }
            let gathering = Gathering<TaskAnswer>(count: siblings.count) { [self] answers in
                let isWhole = answers.allSatisfy { if case .swept = $0 { true } else { false } }
                guard isWhole else { return }
                ask(bucket.loop(of: owner.partitionCount), .settleFirstAck(first)) { _ in }
            }
            for sibling in siblings {
                let command = TaskCommand.endSibling(
                    first.task, first.app, cid: sibling.cid, bucket: sibling.bucket, digest: sibling.digest)
                ask(sibling.bucket.loop(of: owner.partitionCount), command) { gathering.take($0) }
            }
        }
    }

    // MARK: A task's time

    /// Forgets the work of a released partition; its next owner continues it.
    ///
    /// Each run checks `mayContinue` before its next step.
    func partitionLeft(_ partition: Partition) {
        let left = ObjectIdentifier(partition)
        underWay = underWay.filter { $0.value != left }
    }

    /// Whether task work of a partition may continue: not after its release, nor while the gateway stops.
    func mayContinue(_ home: Partition) -> Bool { !owner.context.isStopping && home.isServing }

    /// Starts or resumes the work of a due task.
    func taskDue(_ record: TaskRecord, of home: Partition) {
        let work = Work(task: record.id, state: record.state)
        guard !owner.context.isStopping, underWay[work] == nil else { return }
        underWay[work] = ObjectIdentifier(home)
        let done: (TaskAnswer) -> Void = { [self] _ in
            // After a release, the next owner may already have restarted the work.
            if home.isServing { underWay[work] = nil }
        }
        guard record.broadcast == nil else { return broadcastDue(record, of: home, done: done) }
        switch record.state {
        case .stopping: sweep(record.id, record.app, told: done)
        case .running: sendScheduled(record, from: 0, of: home, done: done)
        case .open, .scheduled, .stopped, .cancelled, .ending, .ended: done(.done)
        }
    }

    /// Sends a scheduled task page by page; after a failed page its home retries the task.
    ///
    /// Devices deduplicate the message, so a repeated page delivers nothing twice.
    private func sendScheduled(
        _ record: TaskRecord, from item: UInt64, of home: Partition, done: @escaping (TaskAnswer) -> Void
    ) {
        guard mayContinue(home), let app = owner.registry[record.app] else { return done(.busy) }
        ask(home: record.id, .targets(record.id, from: item)) { [self] answer in
            guard case .targets(let cids, let next) = answer else { return done(.busy) }
            let sending = Sending(
                task: record.id, app: record.app, createdAt: record.createdAt, content: record.content, isBulk: true,
                permit: owner.permitOfKeptTask)
            fanOut(sending, cids.map { app.target($0, of: record.id) }) { [self] outcomes in
                guard !outcomes.contains(where: { $0.code.isRetryable }) else { return done(.busy) }
                if let next { return sendScheduled(record, from: next, of: home, done: done) }
                ask(home: record.id, .change(record.id, record.app, .sent), told: done)
            }
        }
    }
}
