// Operator queries that start from a complaint. No index exists for them, so that messages do not pay for rare queries: the shard
// searches existing rows.

internal import Structures
internal import Wire

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
        guard let row = PushRow(bytes, under: key), row.app == app, found.count < Inspection.keyLimit else { return }
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

    mutating func inspect(_ inspection: Inspection, _ origin: Origin) {
        switch inspection {
        case .recent(let place, let limit): recent(place, limit, origin)
        case .requests(let app, let keys, let tasks, let share): findRequests(app, keys, tasks, share, origin)
        case .call(let key): findCall(key, origin)
        case .single(let task, let app):
            findSingle(task, in: task.home) { shard, found in
                switch found {
                case .found(let row) where row.app == app:
                    shard.answer(origin, .inspected(.single(row.message, row.cid)))
                case .found, .absent: shard.answer(origin, .unknown)
                case .unreadable: shard.answer(origin, .busy)
                }
            }
        case .devices(let app, let start, let limit, let share):
            let buckets = share.buckets.filter { bucket in start.map { bucket >= $0.bucket } ?? true }
            readDevices(DeviceList(app, limit: limit, buckets: buckets, after: start), origin)
        case .jobs(let apps, let limit): answer(origin, .inspected(.jobs(overview(of: apps, limit: limit))))
        case .change(let place, let change): self.change(place, change, origin)
        }
    }

    /// Continues with a device of the app, or answers `.unknown` or `.busy`.
    mutating func withDevice(
        _ place: DeviceAddress, _ origin: Origin,
        _ body: @escaping (inout Shard, DeviceSlot) -> Void
    ) {
        whenReady(deviceSlot(place.cid, bucket: place.bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                return shard.answer(origin, readiness.mayBeRepeated ? .busy : .unknown)
            }
            guard shard.apps[Int(shard.devices.at(slot).value.appIndex)].key == place.app else {
                return shard.answer(origin, .unknown)
            }
            body(&shard, slot)
        }
    }

    // MARK: A device's messages

    private mutating func recent(_ place: DeviceAddress, _ limit: Int, _ origin: Origin) {
        let pending = PendingTraces(limit: limit)
        withDevice(place, origin) { shard, slot in
            shard.whileBusy(slot) { shard, done in
                shard.readPending(pending, slot, table: .message, from: 0, completion: done)
            } then: { shard, reading in
                guard reading == .whole else { return shard.answer(origin, .busy) }
                var next = shard.devices.at(slot).value.firstBroadcast
                while next != .none {
                    pending.add(shard.pendingTrace(next))
                    next = shard.messages.at(next).value.next
                }
                // Read last, so that messages that end during the query are found as ended.
                shard.readEnded(pending, place, origin)
            }
        }
    }

    private mutating func readPending(
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

    private mutating func readEnded(_ pending: PendingTraces, _ place: DeviceAddress, _ origin: Origin) {
        let (cid, app) = (place.cid, place.app)
        read([.traces(of: cid, in: place.bucket, limit: pending.limit + 1)]) { shard, reply in
            guard case .rows(let rows, _)? = reply.results.first else { return shard.answer(origin, .busy) }
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
                origin,
                .inspected(
                    .recent(RecentMessages(traces: pending.traces, refusals: refusals, isCut: pending.isCut))))
        }
    }

    // MARK: Requests

    private mutating func findRequests(
        _ app: AppKey, _ requests: [CallKey], _ tasks: [TaskID], _ share: LoopShare, _ origin: Origin
    ) {
        let search = RequestSearch(app, requests, tasks)
        for bucket in share.buckets {
            for request in requests {
                let key = PushRow.key(of: (request.high, request.low), in: bucket)
                switch store.young(key) {
                case .found(let location, _): search.take(store.bytes(at: location), under: key)
                case .deleted: break
                case .unknown: if !store.isCertainlyAbsent(key) { search.left.append(key) }
                }
            }
        }
        readRequests(search, origin)
    }

    private mutating func readRequests(_ search: RequestSearch, _ origin: Origin) {
        guard !search.left.isEmpty else {
            let refusals = refusals.find(limit: Inspection.keyLimit) {
                $0.app == search.app && (search.requests.contains($0.request) || search.tasks.contains($0.task))
            }
            return answer(origin, .inspected(.requests(search.found, refusals)))
        }
        let asked = search.left.suffix(Self.readsAtOnce)
        search.left.removeLast(asked.count)
        read(asked.map { .get($0) }) { shard, reply in
            guard reply.failure == nil else { return shard.answer(origin, .busy) }
            for case .row(let stored?) in reply.results { search.take(stored.bytes, under: stored.key) }
            shard.readRequests(search, origin)
        }
    }

    private mutating func findCall(_ key: CallKey, _ origin: Origin) {
        lookUp(StoreKey(key.bucket, .request, ownerHigh: key.high, ownerLow: key.low)) { shard, found in
            switch found {
            case .found(let stored):
                let row = CallRow.read(stored.bytes)
                shard.answer(origin, row.map { .inspected(.call($0.task)) } ?? .unknown)
            case .absent: shard.answer(origin, .unknown)
            case .unreadable: shard.answer(origin, .busy)
            }
        }
    }

    // MARK: Devices

    /// Reads the roster rows of some buckets, and continues until the limit is reached.
    private mutating func readDevices(_ list: DeviceList, _ origin: Origin) {
        guard list.found.count < list.limit, !list.buckets.isEmpty else {
            return answer(origin, .inspected(.devices(Array(list.found.prefix(list.limit)))))
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
        guard !reads.isEmpty else { return readDevices(list, origin) }
        read(reads) { shard, reply in
            guard reply.failure == nil else { return shard.answer(origin, .busy) }
            for case .rows(let rows, _) in reply.results {
                for row in rows {
                    var reader = RowReader(row.bytes)
                    guard let high = reader.next(UInt64.self), reader.isAtEnd else { continue }
                    list.found.append(
                        DeviceAddress(
                            app: list.app, bucket: row.key.bucket, cid: DeviceID(high: high, low: row.key.item)))
                }
            }
            shard.readDevices(list, origin)
        }
    }

    // MARK: Jobs

    private func overview(of wanted: Set<AppKey>?, limit: Int) -> JobOverview {
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
