// Operator queries that start from a complaint. No index exists for them, so that messages do not pay for rare queries: the shard
// searches existing rows.

internal import Structures
package import Wire

private final class PendingTraces {
    let limit: Int
    var traces: [MessageTrace] = []
    var isCut = false
    init(limit: Int) { self.limit = limit }

    func add(_ trace: MessageTrace) {
        traces.append(trace)
        if traces.count >= 2 * limit + 64 { trim() }
    }

    func trim() {
        traces.sort { ($1.acceptedAt, $1.sequence) < ($0.acceptedAt, $0.sequence) }
        guard traces.count > limit else { return }
        isCut = true
        traces.removeLast(traces.count - limit)
    }
}

private final class RequestSearch {
    let app: AppKey
    let tasks: Set<TaskID>
    let requests: Set<CallKey>
    var left: [StoreKey] = []
    var found: [PublishOutcome] = []
    init(_ app: AppKey, _ requests: [CallKey], _ tasks: [TaskID]) {
        (self.app, self.requests, self.tasks) = (app, Set(requests), Set(tasks))
    }

    func take(_ bytes: LentBytes, under key: StoreKey) {
        guard let row = PushRow(bytes, under: key), row.app == app, found.count < InspectionBounds.keyLimit else {
            return
        }
        found.append(row.outcome)
    }
}

private final class DeviceList {
    let app: AppKey
    let limit: Int
    var buckets: ArraySlice<Bucket>
    var start: DeviceCursor?
    var found: [DeviceAddress] = []
    init(_ app: AppKey, limit: Int, buckets: [Bucket], after start: DeviceCursor?) {
        (self.app, self.limit, self.buckets, self.start) = (app, limit, buckets[...], start)
    }
}

extension Shard {
    /// The number of partitions or rows per read.
    private static var readsAtOnce: Int { 64 }

    /// Continues with a device of the app, or answers `absent` or busy.
    mutating func withDevice<Value>(
        _ place: DeviceAddress, _ reply: ShardReply<Found<Value>>,
        completion: @escaping (inout Shard, DeviceSlot) -> Void
    ) {
        whenReady(deviceSlot(place.cid, bucket: place.bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                return readiness.mayBeRepeated ? shard.answerBusy(reply) : shard.answer(reply, .absent)
            }
            guard shard.apps[Int(shard.devices.at(slot).value.appIndex)].key == place.app else {
                return shard.answer(reply, .absent)
            }
            completion(&shard, slot)
        }
    }

    // MARK: A device's messages

    fileprivate mutating func readPending(
        _ pending: PendingTraces, _ slot: DeviceSlot, table: StoreKey.Table, from item: UInt64,
        completion: @escaping (inout Shard, Reading) -> Void
    ) {
        scan(slot, table: table, from: item, rowLimit: 256, byteLimit: 1 << 20) { shard, page in
            guard case .rows(let rows, let isLast) = page else { return completion(&shard, .unreadable) }
            for row in rows {
                if let listed = shard.listedMessage(table: table, item: row.facts.item, of: slot) {
                    pending.add(shard.pendingTrace(listed))
                } else {
                    pending.add(Self.pendingTrace(row.facts, row.job, at: shard.now))
                }
            }
            if !isLast, let last = rows.last {
                shard.readPending(pending, slot, table: table, from: last.facts.item &+ 1, completion: completion)
            } else if table == .message {
                shard.readPending(pending, slot, table: .vendorMessage, from: 0, completion: completion)
            } else {
                completion(&shard, .whole)
            }
        }
    }

    fileprivate mutating func readEnded(
        _ pending: PendingTraces, _ place: DeviceAddress, _ reply: ShardReply<Found<RecentMessages>>
    ) {
        let (cid, app) = (place.cid, place.app)
        read([.traces(of: cid, in: place.bucket, limit: pending.limit + 1)]) { shard, read in
            guard case .rows(let rows, _)? = read.results.first else { return shard.answerBusy(reply) }
            let ended = rows.compactMap { row -> MessageTrace? in
                let id = MessageID(high: row.key.ownerHigh, low: row.key.ownerLow)
                return TraceRow(row.bytes, of: id).flatMap { $0.facts.app == app ? Self.endedTrace($0) : nil }
            }
            let known = Set(ended.map(\.message))
            pending.traces.removeAll { known.contains($0.message) }
            for trace in ended { pending.add(trace) }
            pending.trim()
            let refusals = shard.refusals.find(limit: pending.limit) { $0.cid == cid && $0.app == app }
            shard.answer(
                reply, .found(RecentMessages(traces: pending.traces, refusals: refusals, isCut: pending.isCut)))
        }
    }

    // MARK: Requests

    fileprivate mutating func readRequests(
        _ search: RequestSearch, _ reply: ShardReply<RequestQuery.Findings?>
    ) {
        guard !search.left.isEmpty else {
            let refusals = refusals.find(limit: InspectionBounds.keyLimit) {
                $0.app == search.app && (search.requests.contains($0.request) || search.tasks.contains($0.task))
            }
            return answer(reply, RequestQuery.Findings(outcomes: search.found, refusals: refusals))
        }
        let asked = search.left.suffix(Self.readsAtOnce)
        search.left.removeLast(asked.count)
        read(asked.map { .get($0) }) { shard, read in
            guard read.failure == nil else { return shard.answerBusy(reply) }
            for case .row(let stored?) in read.results { search.take(stored.bytes, under: stored.key) }
            shard.readRequests(search, reply)
        }
    }

    // MARK: Devices

    /// Reads the roster rows of some buckets, and continues until the limit is reached.
    fileprivate mutating func readDevices(_ list: DeviceList, _ reply: ShardReply<[DeviceAddress]?>) {
        guard list.found.count < list.limit, !list.buckets.isEmpty else {
            return answer(reply, Array(list.found.prefix(list.limit)))
        }
        let buckets = list.buckets.prefix(Self.readsAtOnce)
        list.buckets = list.buckets.dropFirst(buckets.count)
        let reads = buckets.compactMap { bucket -> StoreRead? in
            var item: UInt64 = 0
            if let start = list.start, start.bucket == bucket {
                guard start.item < .max else { return nil }
                item = start.item + 1
            }
            let partition = StoreKey(bucket, .tag, ownerHigh: list.app.word, ownerLow: 0, item: item)
            return .scan(partition: partition, rowLimit: list.limit, byteLimit: 1 << 20)
        }
        guard !reads.isEmpty else { return readDevices(list, reply) }
        read(reads) { shard, read in
            guard read.failure == nil else { return shard.answerBusy(reply) }
            for case .rows(let rows, _) in read.results {
                for row in rows {
                    var reader = RowReader(row.bytes)
                    guard let high = reader.next(UInt64.self), reader.isAtEnd else { continue }
                    list.found.append(
                        DeviceAddress(
                            app: list.app, bucket: row.key.bucket, cid: DeviceID(high: high, low: row.key.item)))
                }
            }
            shard.readDevices(list, reply)
        }
    }

    // MARK: Jobs

    fileprivate func overview(of wanted: Set<AppKey>?, limit: Int) -> JobOverview {
        var overview = JobOverview()
        for app in apps.indices where wanted?.contains(apps[app].key) ?? true {
            for channel in VendorChannel.allCases {
                let (due, held) = (jobs.dueCount(of: app, channel), jobs.heldCount(of: app, channel))
                guard due + held > 0 else { continue }
                overview.queues.append(
                    JobOverview.Queue(app: apps[app].key, channel: channel, dueCount: due, heldCount: held))
                for isBulk in [false, true] {
                    var next = jobs.firstDue(of: app, channel, isBulk: isBulk)
                    var count = 0
                    while next != .none, count < limit {
                        let row = jobs.at(next).value.row
                        overview.jobs.append(
                            JobOverview.Job(
                                message: row.facts.message, app: row.facts.app, cid: row.facts.cid, channel: channel,
                                acceptedAt: row.facts.acceptedAt, dueAt: row.dueAt, expiresAt: row.facts.expiresAt,
                                attempts: row.attempts, reason: row.lastReason))
                        next = jobs.at(next).value.dueLinks.next
                        count += 1
                    }
                }
            }
        }
        overview.jobs.sort { $0.dueAt < $1.dueAt }
        overview.jobs.removeLast(max(0, overview.jobs.count - limit))
        return overview
    }
}

extension JobRow {
    fileprivate var lastReason: String {
        let failures: Set<TraceEvent> = [.vendorRetry, .vendorRejected, .badToken, .leaseLapsed, .unsent]
        return steps.last { failures.contains($0.event) }?.detail ?? ""
    }
}

// MARK: Questions

/// Asks for the newest messages of a device.
package struct RecentQuery: ShardQuestion {
    package var device: DeviceAddress
    package var limit: Int
    package init(_ device: DeviceAddress, limit: Int) { (self.device, self.limit) = (device, limit) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Found<RecentMessages>>) {
        let pending = PendingTraces(limit: limit)
        shard.withDevice(device, reply) { shard, slot in
            shard.whileBusy(slot) { shard, done in
                shard.readPending(pending, slot, table: .message, from: 0, completion: done)
            } then: { shard, reading in
                guard reading == .whole else { return shard.answerBusy(reply) }
                var next = shard.devices.at(slot).value.firstBroadcast
                while next != .none {
                    pending.add(shard.pendingTrace(next))
                    next = shard.messages.at(next).value.next
                }
                // Ended messages are read last, so that a message that ends during the query is not missed.
                shard.readEnded(pending, device, reply)
            }
        }
    }
}

/// Asks for the messages of single pushes by the digests of their requests.
///
/// The device may be in any of these buckets. The answer includes refusals of these requests and tasks.
package struct RequestQuery: ShardQuestion {
    package struct Findings: Sendable, Codable {
        package var outcomes: [PublishOutcome]
        package var refusals: [RefusedPublish]
        package init(outcomes: [PublishOutcome] = [], refusals: [RefusedPublish] = []) {
            (self.outcomes, self.refusals) = (outcomes, refusals)
        }
    }

    package var app: AppKey
    package var requests: [CallKey]
    package var tasks: [TaskID]
    package var share: LoopShare
    package init(_ app: AppKey, _ requests: [CallKey], tasks: [TaskID], _ share: LoopShare) {
        (self.app, self.requests, self.tasks, self.share) = (app, requests, tasks, share)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Findings?>) {
        let search = RequestSearch(app, requests, tasks)
        for bucket in share.buckets {
            for request in requests {
                let key = PushRow.key(of: (request.high, request.low), in: bucket)
                switch shard.store.young(key) {
                case .found(let location, _): search.take(shard.store.bytes(at: location), under: key)
                case .deleted: break
                case .unknown: if !shard.store.isCertainlyAbsent(key) { search.left.append(key) }
                }
            }
        }
        shard.readRequests(search, reply)
    }
}

/// Asks for the task of a call to several devices, by the digest of its request.
package struct CallQuery: ShardQuestion {
    package var key: CallKey
    package init(_ key: CallKey) { self.key = key }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Found<TaskID>>) {
        shard.lookUp(StoreKey(key.bucket, .request, ownerHigh: key.high, ownerLow: key.low)) { shard, found in
            switch found {
            case .found(let stored):
                shard.answer(reply, CallRow.read(stored.bytes).map { .found($0.task) } ?? .absent)
            case .absent: shard.answer(reply, .absent)
            case .unreadable: shard.answerBusy(reply)
            }
        }
    }
}

/// Asks for the device of a single push.
package struct SingleQuery: ShardQuestion {
    package var task: TaskID
    package var app: AppKey
    package init(_ task: TaskID, _ app: AppKey) { (self.task, self.app) = (task, app) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Found<DeviceID>>) {
        shard.withSingleTask(task, app, reply) { shard, row in shard.answer(reply, .found(row.cid)) }
    }
}

/// Asks for devices of an app after a cursor, in bucket order.
package struct DeviceListQuery: ShardQuestion {
    package var app: AppKey
    package var start: DeviceCursor?
    package var limit: Int
    package var share: LoopShare
    package init(_ app: AppKey, after start: DeviceCursor?, limit: Int, _ share: LoopShare) {
        (self.app, self.start, self.limit, self.share) = (app, start, limit, share)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<[DeviceAddress]?>) {
        let buckets = share.buckets.filter { bucket in start.map { bucket >= $0.bucket } ?? true }
        shard.readDevices(DeviceList(app, limit: limit, buckets: buckets, after: start), reply)
    }
}

/// Asks for the due jobs of these apps (`nil`: all), longest due first, and their number.
package struct JobsQuery: ShardQuestion {
    package var apps: Set<AppKey>?
    package var limit: Int
    package init(apps: Set<AppKey>?, limit: Int) { (self.apps, self.limit) = (apps, limit) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<JobOverview?>) {
        shard.answer(reply, shard.overview(of: apps, limit: limit))
    }
}
