// What became of messages and devices, on its way to the app's feed of events: a row in the batch of what happened, then an
// append at the feed's home, then the row goes. So what happened durably is told, at least once, and in the order of each
// device. An app without the feed pays one look at its settings for each event.

internal import Structures
internal import Wire

extension EventBatch {
    static func key(_ entry: EventTable.Entry, _ app: AppKey) -> StoreKey { key(entry.bucket, app, entry.number) }

    static func key(_ bucket: Bucket, _ app: AppKey, _ number: UInt64) -> StoreKey {
        StoreKey(bucket, .event, ownerHigh: app.word, ownerLow: 0, item: number)
    }
}

extension Shard {
    /// Writes an event of the open batch's device, if its app has the feed.
    @inline(__always)
    mutating func noteEvent(
        _ kind: FeedItem.Kind, message: MessageID = .none, task: TaskID = .none, reason: String = ""
    ) {
        guard apps[Int(devices.at(batch.device).value.appIndex)].mayHaveEvents else { return }
        writeEvent(kind, message, task, reason)
    }

    private mutating func writeEvent(
        _ kind: FeedItem.Kind, _ message: MessageID, _ task: TaskID, _ reason: String
    ) {
        let device = devices.at(batch.device)
        let (bucket, app) = (device.value.bucket, apps[Int(device.value.appIndex)].key)
        let limit: Int
        switch apps[Int(device.value.appIndex)].eventRule {
        case .off: return
        case .kept(let limits): limit = limits.count
        case .counted:
            events.apps[app, default: .init()].unsure &+= 1
            return
        }
        guard events.apps[app, default: .init()].rowCount < limit else {
            events.apps[app, default: .init()].lost &+= 1
            numbers.eventsLost &+= 1
            return
        }
        var item = FeedItem(kind, at: now, cid: device.value.cid)
        (item.message, item.task) = (message, task)
        if !reason.isEmpty { item.payload = Array(reason.utf8) }
        let entry = EventTable.Entry(bucket: bucket, number: events.nextNumber(now), item: item)
        let items = [item][...]
        store.putRow(
            EventBatch.key(entry, app), wakeAt: 0, prior: .none, byteCount: FeedRow.byteCount(items)
        ) { FeedRow.write(items, into: $0) }
        batch.rowCount += 1
        events.apps[app, default: .init()].note(entry)
    }

    /// The session of a device begins or ends.
    mutating func notePresence(_ kind: FeedItem.Kind, of slot: DeviceSlot) {
        guard apps[Int(devices.at(slot).value.appIndex)].mayHaveEvents, !batch.isOpen, batch.series == .none else {
            return
        }
        inBatch(of: slot) { $0.noteEvent(kind) }
    }

    /// What is durable and has not been told, for each app whose last batch was told; `share` says which buckets are here.
    ///
    /// The gateway calls this some times a second, and `eventsTold` for each batch.
    package mutating func takeEvents(_ share: LoopShare, now: GatewayTime) -> [EventBatch] {
        begin(now)
        var batches: [EventBatch] = []
        for entry in apps {
            guard case .kept = entry.eventRule else { continue }
            let app = entry.key
            // Taken out while it is changed: a second reference would have the whole list copied.
            var state = events.apps.removeValue(forKey: app) ?? EventTable.AppEvents()
            if state.unsure > 0 {
                numbers.eventsLost &+= state.unsure
                (state.lost, state.unsure) = (state.lost &+ state.unsure, 0)
            }
            if !state.isTelling {
                if state.stamp <= outbox.committedTicket, state.stamped > 0 || state.lost > 0 {
                    var taken = EventBatch(app: app)
                    let entries = state.waiting.prefix(min(state.stamped, FeedBounds.pageItems))
                    taken.items = entries.map(\.item)
                    taken.edition = state.edition
                    taken.rows = entries.map { EventBatch.key($0, app) }
                    (taken.lost, state.lost) = (state.lost, 0)
                    state.waiting.removeFirst(entries.count)
                    state.stamped -= entries.count
                    state.isTelling = true
                    batches.append(taken)
                }
                if state.stamped == 0 { (state.stamped, state.stamp) = (state.waiting.count, outbox.lastTicket) }
            }
            let maySweep = !state.isSweeping && !state.isTelling && state.sweepRest.until <= now
            let mustSweep = maySweep && state.sweptBelow < share.bucketCount
            state.isSweeping = state.isSweeping || mustSweep
            events.apps[app] = state
            if mustSweep { sweepEvents(of: app, share) }
        }
        return batches
    }

    /// The feed's home has the batch, or (`isTold` false) could not take it: it comes again.
    package mutating func eventsTold(_ batch: EventBatch, isTold: Bool, now: GatewayTime) {
        begin(now)
        guard var state = events.apps.removeValue(forKey: batch.app) else { return }
        state.isTelling = false
        guard isTold || isPlanted(.eventsLeftUntold) else {
            state.lost &+= batch.lost
            defer { events.apps[batch.app] = state }
            // Memory was cleared meanwhile: the sweep finds the rows.
            guard batch.edition == state.edition else { return }
            let entries = zip(batch.rows, batch.items).map {
                EventTable.Entry(bucket: $0.bucket, number: $0.item, item: $1)
            }
            state.waiting.insert(contentsOf: entries, at: 0)
            state.stamped += entries.count
            return
        }
        state.rowCount = max(0, state.rowCount - batch.rows.count)
        events.apps[batch.app] = state
        let rows = batch.rows.sorted()
        var first = 0
        while first < rows.count {
            let bucket = rows[first].bucket
            let end = rows[first...].prefix(OpenBatch.rowLimit).firstIndex { $0.bucket != bucket }
            let last = end ?? min(rows.count, first + OpenBatch.rowLimit)
            inBatch(in: bucket) { shard in
                for key in rows[first..<last] { shard.store.delete(key, prior: .maybe(wakeAt: 0)) }
            }
            first = last
        }
    }

    /// Reads the rows of the next buckets that the sweep has not passed.
    private mutating func sweepEvents(of app: AppKey, _ share: LoopShare) {
        guard let state = events.apps[app] else { return }
        let buckets = share.buckets.filter { Int($0.index) >= state.sweptBelow }.prefix(EventTable.sweptBuckets)
        guard let last = buckets.last else {
            events.apps[app]?.sweptBelow = share.bucketCount
            events.apps[app]?.isSweeping = false
            return
        }
        let requests = buckets.enumerated().map { place, bucket in
            StoreRead.scan(
                partition: EventBatch.key(bucket, app, place == 0 ? state.sweepFrom : 0),
                rowLimit: EventTable.sweptRows, byteLimit: 256 << 10)
        }
        let edition = state.edition
        read(requests) { shard, reply in
            shard.swept(app, Array(buckets), reply, edition: edition)
            if shard.events.swiftApp == app { shard.events.swiftApp = nil }
            guard var state = shard.events.apps[app], state.edition == edition else { return }
            if Int(last.index) + share.count >= share.bucketCount, state.sweptBelow > Int(last.index) {
                state.sweptBelow = share.bucketCount
                shard.events.apps[app] = state
            }
            // One app's buckets are passed at the pace of the reads, those of the others a few a tick.
            guard shard.events.swiftApp == nil, state.waiting.isEmpty, !state.isTelling,
                state.sweptBelow < share.bucketCount, state.sweepRest.until <= shard.now, !shard.isAbandoned
            else { return }
            shard.events.swiftApp = app
            shard.events.apps[app]?.isSweeping = true
            shard.sweepEvents(of: app, share)
        }
    }

    /// Takes the rows that the sweep has read of some buckets.
    private mutating func swept(_ app: AppKey, _ buckets: [Bucket], _ reply: StoreReply, edition: Int) {
        guard var state = events.apps.removeValue(forKey: app) else { return }
        state.isSweeping = false
        defer { events.apps[app] = state }
        // The events left memory during the read: the sweep starts over.
        guard state.edition == edition else { return }
        guard reply.failure == nil, reply.results.count == buckets.count else {
            return state.sweepRest.failed(at: now)
        }
        state.sweepRest = FeedBackoff()
        for (bucket, result) in zip(buckets, reply.results) {
            guard case .rows(let rows, let isComplete) = result else { return }
            for row in rows {
                state.sweepFrom = row.key.item + 1
                guard let item = FeedRow.read(row.bytes)?.first else {
                    damaged(row.key)
                    continue
                }
                // Rows of an earlier process, each once: a later edition reads them again.
                if edition == 0, row.key.item < events.firstNumber { state.rowCount += 1 }
                state.waiting.append(EventTable.Entry(bucket: bucket, number: row.key.item, item: item))
            }
            guard isComplete, state.waiting.count < EventTable.waitingLimit else {
                if isComplete { (state.sweptBelow, state.sweepFrom) = (Int(bucket.index) + 1, 0) }
                return
            }
            (state.sweptBelow, state.sweepFrom) = (Int(bucket.index) + 1, 0)
        }
    }

    /// True when an app of this shard has the feed.
    package var hasEvents: Bool { apps.contains { $0.mayHaveEvents } }
}
