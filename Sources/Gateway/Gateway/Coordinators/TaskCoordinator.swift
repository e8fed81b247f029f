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
        let completion: ([PublishOutcome]) -> Void
        init(count: Int, completion: @escaping ([PublishOutcome]) -> Void) {
            (run, self.completion) = (ListRun(count: count), completion)
        }
    }

    /// The most lists in flight on one loop; further lists are answered as busy.
    static let pendingLimit = 65_536
    static let cacheLimit = 1_024
    /// The lifetime of a cached record; it is short, because the announcement of a stop may be lost on a broken link.
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

    func ask<Request: PartitionRequest>(
        home task: TaskID, _ request: Request, completion: @escaping (Request.Answer) -> Void
    ) {
        owner.ask(request, of: task.home, completion: completion)
    }

    /// Asks all partitions; the answers are in the order of the partitions.
    func askAll<Request: PartitionRequest>(
        _ request: (LoopShare) -> Request, completion: @escaping ([Request.Answer]) -> Void
    ) {
        let count = owner.partitionCount
        let gathering = Gathering(count: count, completion: completion)
        for partition in 0..<count {
            owner.ask(request(LoopShare(index: partition, count: count)), of: partition) {
                gathering.take($0, at: partition)
            }
        }
    }

    /// Asks all partitions; `nil` if one of them did not answer.
    func collect<Request: PartitionRequest, Part>(
        _ request: (LoopShare) -> Request, completion: @escaping ([Part]?) -> Void
    ) where Request.Answer == Part? {
        askAll(request) { completion($0.allOrNil()) }
    }

    /// Sums a task's totals over all partitions; `nil` if one of them did not answer.
    func totals(of task: TaskID, _ app: AppKey, completion: @escaping (TaskTotals?) -> Void) {
        askAll({ TaskTotalsQuery(task, app, $0) }) { answers in
            guard let parts = answers.map(\.value).allOrNil() else { return completion(nil) }
            completion(parts.reduce(into: TaskTotals()) { $0.add($1) })
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

    /// Returns the task's row, from the cache if possible; the cache has only tasks in state `open`.
    func record(_ task: TaskID, _ app: AppKey, completion: @escaping (Found<TaskRecord>) -> Void) {
        if let (record, until) = cache[task], until > owner.loop.now {
            return completion(record.app == app ? .found(record) : .absent)
        }
        ask(home: task, LoadTask(task, app)) { [self] answer in
            if let record = answer.value, record.state == .open { keep(record) }
            completion(answer)
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
        /// With 0, a device's shard always looks in the store for an earlier message of the task.
        var createdAt: GatewayTime
        var content: MessageContent
        var isBulk: Bool
        var permit: PublishPermit
    }

    /// Sends a message to devices, with one message per partition.
    func fanOut(_ sending: Sending, _ given: [ListTarget], completion: @escaping ([PublishOutcome]) -> Void) {
        guard !given.isEmpty else { return completion([]) }
        guard let (slot, stamp) = lists.insert(PendingList(count: given.count, completion: completion)) else {
            return completion(given.map { PublishOutcome(code: .busy, cid: $0.cid, task: sending.task) })
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
        pending.completion(pending.run.outcomes.compactMap { $0 })
    }

    // MARK: Stop

    /// Stops a task: stores the stop, so that the task reaches no more devices, then ends its pending messages everywhere.
    ///
    /// `completion` receives the number of ended messages.
    func stop(_ task: TaskID, _ app: AppKey, completion: @escaping (Found<Int>) -> Void) {
        if task.kind == .single { return ask(home: task, StopSingle(task, app), completion: completion) }
        let ended: (Int?) -> Void = { completion($0.map { .found($0) } ?? .unreadable) }
        ask(home: task, ChangeTask(task, app, .stop)) { [self] answer in
            switch answer {
            case .changed(let record) where record.state == .stopping && record.broadcast != nil:
                sweep(task, app) { [self] count in
                    ended(count)
                    // The home closes the broadcast only now, because messages ended by the closing scan are not in the count.
                    if count != nil { ask(home: task, ChangeTask(task, app, .swept)) { _ in } }
                }
            case .changed(let record) where record.state == .stopping: sweepAndStop(task, app, completion: ended)
            // The task had already ended.
            case .changed, .refused: completion(.found(0))
            case .unknown: stopWithoutRow(task, app, completion: completion)
            case .busy: completion(.unreadable)
            }
        }
    }

    /// Stops a push to an alias, a task that has several devices but no row; its counted messages show whether it exists.
    private func stopWithoutRow(_ task: TaskID, _ app: AppKey, completion: @escaping (Found<Int>) -> Void) {
        totals(of: task, app) { [self] totals in
            guard let totals else { return completion(.unreadable) }
            guard totals.accepted > 0 else { return completion(.absent) }
            sweep(task, app) { completion($0.map { .found($0) } ?? .unreadable) }
        }
    }

    /// Ends a task's pending messages on all partitions; `completion` receives `nil` if the sweep must be repeated.
    func sweep(_ task: TaskID, _ app: AppKey, completion: @escaping (Int?) -> Void) {
        collect({ SweepTask(task, app, $0) }) { counts in completion(counts?.reduce(0, +)) }
    }

    private func sweepAndStop(_ task: TaskID, _ app: AppKey, completion: @escaping (Int?) -> Void) {
        forgetEverywhere(task)
        sweep(task, app) { [self] count in
            // The row stays in state `stopping` until all is done, and its home retries.
            guard let count else { return completion(nil) }
            ask(home: task, ChangeTask(task, app, .stopped)) { completion($0.isChanged ? count : nil) }
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
        ask(home: first.task, ReadTargets(first.task, from: 0)) { [self] page in
            guard let page else { return }
            let targets = page.devices.map { app.target($0, of: first.task) }
            let siblings = targets.filter { $0.digest != first.message.low }
            let gathering = Gathering<Int?>(count: siblings.count) { [self] answers in
                guard answers.allOrNil() != nil else { return }
                owner.ask(SettleFirstAck(first), of: bucket) { _ in }
            }
            for sibling in siblings {
                let device = DeviceAddress(app: first.app, bucket: sibling.bucket, cid: sibling.cid)
                owner.ask(EndSibling(first.task, device, digest: sibling.digest), of: sibling.bucket) {
                    gathering.take($0)
                }
            }
        }
    }

    // MARK: A task's time

    /// Forgets the work of a released partition; the partition's next owner continues the work.
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
        let completion: () -> Void = { [self] in
            // After a release, the entry may belong to a later ownership, which has restarted the work.
            if home.isServing { underWay[work] = nil }
        }
        guard record.broadcast == nil else { return broadcastDue(record, of: home, completion: completion) }
        switch record.state {
        case .stopping: sweepAndStop(record.id, record.app) { _ in completion() }
        case .running: sendScheduled(record, from: 0, of: home, completion: completion)
        case .open, .scheduled, .stopped, .cancelled, .ending, .ended: completion()
        }
    }

    /// Sends a scheduled task page by page; after a failed page its home retries the task.
    ///
    /// The devices' shards deduplicate the message, so a repeated page delivers nothing twice.
    private func sendScheduled(
        _ record: TaskRecord, from item: UInt64, of home: Partition, completion: @escaping () -> Void
    ) {
        guard mayContinue(home), let app = owner.registry[record.app] else { return completion() }
        ask(home: record.id, ReadTargets(record.id, from: item)) { [self] page in
            guard let page else { return completion() }
            let sending = Sending(
                task: record.id, app: record.app, createdAt: record.createdAt, content: record.content, isBulk: true,
                permit: owner.permitOfKeptTask)
            fanOut(sending, page.devices.map { app.target($0, of: record.id) }) { [self] outcomes in
                guard !outcomes.contains(where: { $0.code.isRetryable }) else { return completion() }
                if let next = page.next {
                    return sendScheduled(record, from: next, of: home, completion: completion)
                }
                ask(home: record.id, ChangeTask(record.id, record.app, .sent)) { _ in completion() }
            }
        }
    }
}
