// Cold reads, with some threads for each server. A thread takes all queued reads and sends their commands together, round by
// round.
//
// A lane queries only its own server. A read of several servers, and a scan for alarms, moves from lane to lane, so a blocked
// server delays only its own data. A read fails once its server has not answered for `readMilliseconds`, counted from the first
// request even while the read is queued. Alarms of a server that is known to be silent are postponed.

internal import Delivery
internal import Journal
internal import Platform
internal import Redis
internal import Wire

extension StoreRead {
    fileprivate var bucket: Bucket {
        switch self {
        case .get(let key): key.bucket
        case .scan(let partition, _, _), .measure(let partition, _): partition.bucket
        case .search(let bucket, _, _), .traces(let bucket, _, _): bucket
        }
    }
}

private struct LaneWork {
    let operation: ReadOperation
    let part: RedisPart
}

/// The reads of all partitions, served by separate threads for each server.
final class RedisReaders: @unchecked Sendable {
    // Sound because `lanes` is set before any other thread exists and locks its shared state, and all other properties are
    // constants.
    private lazy var lanes = ServerLanes(
        named: "redis reader", threadCount: context.configuration.readerCount,
        isStepped: context.configuration.isStepped
    ) { [unowned self] server in ReadLane(server, self) }
    fileprivate let context: LogContext

    init(_ context: LogContext) {
        self.context = context
        _ = lanes
    }

    func submit(_ operation: ReadOperation, _ part: RedisPart) {
        operation.deadline = deadline
        operation.unread = operation.parts.indices.filter { !operation.parts[$0].isComplete }
        pass(LaneWork(operation: operation, part: part))
    }

    fileprivate var deadline: UInt64 { context.now + UInt64(context.configuration.readMilliseconds) }

    /// Passes an operation to the lane of the next server, or back to its loop.
    fileprivate func pass(_ work: LaneWork) {
        let operation = work.operation
        if operation.alarms != nil { setAside(work) }
        if operation.failure == nil, case .lane(let server) = next(work) {
            return lanes.lane(of: server).submit(work)
        }
        // The failure makes the loop request alarms outside this group until the server answers.
        if let alarms = operation.alarms, alarms.request.group != nil,
            alarms.scans.contains(where: { $0.aside ?? 0 > 0 })
        {
            operation.failure = "alarms of a server that does not answer are asked for later"
        }
        operation.mailbox.put { $0.replies.append(operation) }
    }

    /// Returns the server of a bucket's rows; `nil` while the slot map names none.
    fileprivate func server(of bucket: Bucket, _ part: RedisPart) -> RedisAddress? {
        part.keys(of: bucket).flatMap { context.cluster.primary(of: $0.slot) }
    }

    private enum Stop {
        case lane(RedisAddress?)
        case loop
    }

    /// Returns the next lane; servers that answer come first.
    private func next(_ work: LaneWork) -> Stop {
        var silent: RedisAddress?
        for bucket in unreadBuckets(work) {
            let server = server(of: bucket, work.part)
            guard let server, context.cluster.isSilent(server) else { return .lane(server) }
            silent = silent ?? server
        }
        return silent.map { .lane($0) } ?? .loop
    }

    private func unreadBuckets(_ work: LaneWork) -> [Bucket] {
        guard let alarms = work.operation.alarms else {
            return work.operation.unread.map { work.operation.parts[$0].request.bucket }
        }
        var buckets: [Bucket] = []
        if alarms.hasRoom { for scan in alarms.scans where scan.isOpen { buckets.append(Bucket(scan.bucket)) } }
        if alarms.rows.count < alarms.request.limit { for alarm in alarms.late { buckets.append(alarm.key.bucket) } }
        return buckets
    }

    // MARK: Alarms that cannot be read now

    private func setAside(_ work: LaneWork) {
        setAsideAlarms(work.operation) { bucket in
            self.server(of: bucket, work.part).map(context.cluster.isSilent) ?? false
        }
    }

    fileprivate func setAsideAlarms(_ operation: ReadOperation, of isMeant: (Bucket) -> Bool) {
        guard var alarms = operation.alarms else { return }
        operation.alarms = nil
        for index in alarms.scans.indices where alarms.scans[index].isOpen {
            if isMeant(Bucket(alarms.scans[index].bucket)) {
                alarms.scans[index].aside = context.configuration.silentAlarmMilliseconds
            }
        }
        let late = alarms.late.filter { isMeant($0.key.bucket) }
        if !late.isEmpty {
            alarms.late.removeAll { isMeant($0.key.bucket) }
            alarms.lateAside += late.map { ($0, context.configuration.silentAlarmMilliseconds) }
        }
        operation.alarms = alarms
    }

    // MARK: Running

    func step() -> Bool {
        var hasWorked = false
        for lane in lanes.all where lane.step() { hasWorked = true }
        return hasWorked
    }

    func start() throws(SystemError) { try lanes.start() }
    func close() { lanes.close() }
}

private final class ReadLane: ServerLane, @unchecked Sendable {
    // Sound because `queue` is a monitor and all other properties are constants; `stepper` is used only without threads.

    private struct Queue: ~Copyable {
        var work: [LaneWork] = []
        var isOpen = true
    }

    /// The lane's server; `nil` for the lane that reads from all servers.
    private let server: RedisAddress?
    private unowned let readers: RedisReaders
    private let context: LogContext
    private let queue = Monitor(Queue())
    private lazy var stepper = RedisClient(context.cluster)

    init(_ server: RedisAddress?, _ readers: RedisReaders) {
        (self.server, self.readers, context) = (server, readers, readers.context)
    }

    func submit(_ work: LaneWork) { queue.signal { $0.work.append(work) } }

    func close() {
        queue.broadcast { queue in
            queue.isOpen = false
            queue.work.removeAll()
        }
    }

    func finish() { stepper.close() }

    func run() {
        let client = RedisClient(context.cluster)
        while let taken = take(isWaiting: true) { perform(taken, client) }
        client.close()
    }

    func step() -> Bool {
        guard let taken = take(isWaiting: false), !taken.isEmpty else { return false }
        // In a simulation the clock may have advanced by any span before this step, so the timeout begins with the first attempt.
        for work in taken where !work.operation.hasBegun {
            (work.operation.hasBegun, work.operation.deadline) = (true, readers.deadline)
        }
        perform(taken, stepper)
        return true
    }

    /// Takes the queued reads of rows for one round, or one scan for alarms; `nil` after the end.
    private func take(isWaiting: Bool) -> [LaneWork]? {
        queue.wait(while: { isWaiting && $0.isOpen && $0.work.isEmpty }) { queue in
            guard queue.isOpen else { return nil }
            let rows = queue.work.prefix { $0.operation.alarms == nil }.prefix(Limits.readsPerRound).count
            let count = min(queue.work.count, max(1, rows))
            defer { queue.work.removeFirst(count) }
            return Array(queue.work[..<count])
        }
    }

    private func perform(_ taken: [LaneWork], _ client: RedisClient) {
        guard let first = taken.first else { return }
        if first.operation.alarms != nil { readAlarms(first, client) } else { readRows(taken, client) }
    }

    private func has(_ bucket: Bucket, _ part: RedisPart) -> Bool {
        server == nil || readers.server(of: bucket, part) == server
    }

    // MARK: Rows

    private func readRows(_ taken: [LaneWork], _ client: RedisClient) {
        let began = context.now
        let live = taken.filter { work in
            guard work.operation.deadline <= began else { return true }
            work.operation.failure =
                server.map { "Redis at \($0) did not answer in time" } ?? "no Redis server answered"
            readers.pass(work)
            return false
        }
        guard let earliest = live.map(\.operation.deadline).min() else { return }
        // The earliest deadline limits the round trip, but leaves enough time for a server to answer.
        var deadline = max(earliest, began + Limits.shortestReadMilliseconds)
        let former = live.map(\.operation.parts)
        var round = Round()
        for work in live {
            let operation = work.operation
            let mine = operation.unread.filter { has(operation.parts[$0].request.bucket, work.part) }
            operation.unread.removeAll { mine.contains($0) }
            for index in mine { RowRead(operation, index, work.part).begin(round) }
        }
        while !round.requests.isEmpty {
            let next = Round()
            do throws(RedisError) {
                let began = SystemClock.monotonicNanoseconds
                let replies = try client.run(round.requests, deadline: deadline)
                let time = (SystemClock.monotonicNanoseconds - began) / 1_000
                context.reads.withLock { $0.add(batches: replies.count, bytes: 0, microseconds: time) }
                for (handler, reply) in zip(round.handlers, replies) { handler(reply, next) }
            } catch {
                return giveUp(live, former, error)
            }
            deadline = readers.deadline
            for work in live { work.operation.deadline = deadline }
            round = next
        }
        for work in live { readers.pass(work) }
    }

    /// Fails the reads whose deadline has passed, and queues the others again.
    private func giveUp(_ live: [LaneWork], _ former: [[ReadOperation.Part]], _ error: RedisError) {
        let now = context.now
        var again: [LaneWork] = []
        for (work, parts) in zip(live, former) {
            guard error.isPassing, work.operation.deadline > now else {
                work.operation.failure = error.description
                readers.pass(work)
                continue
            }
            (work.operation.parts, work.operation.failure) = (parts, nil)
            work.operation.unread = parts.indices.filter { !parts[$0].isComplete }
            again.append(work)
        }
        guard !again.isEmpty else { return }
        queue.signal { if $0.isOpen { $0.work.insert(contentsOf: again, at: 0) } }
    }

    // MARK: Alarms

    private func readAlarms(_ work: LaneWork, _ client: RedisClient) {
        let operation = work.operation
        guard let request = operation.alarms?.request else { return readers.pass(work) }
        let source = RedisAlarms(work.part, request, client, context) { [unowned self] bucket in
            has(bucket, work.part)
        }
        while var alarms = operation.alarms {
            operation.alarms = nil
            var failure: StoreError?
            do throws(StoreError) { try AlarmReading(source: source).perform(&alarms, operation) } catch {
                failure = error
            }
            // Postpone an unreadable bucket, so that it does not delay the others.
            let failed = alarms.underWay
            alarms.underWay = nil
            if failure != nil, !source.isCutOff, let failed {
                alarms.scans[failed].aside = Limits.alarmRetryMilliseconds
            }
            operation.alarms = alarms
            guard failure != nil else { break }
            if source.isCutOff || failed == nil {
                readers.setAsideAlarms(operation) { has($0, work.part) }
                break
            }
        }
        readers.pass(work)
    }
}
