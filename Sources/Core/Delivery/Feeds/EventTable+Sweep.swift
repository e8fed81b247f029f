// Events on their way to their feed: taken in batches, deleted after the feed has them, and swept up after a restart.

internal import Wire

extension EventBatch {
    static func key(_ entry: EventTable.Entry, _ app: AppKey) -> StoreKey { key(entry.bucket, app, entry.number) }

    static func key(_ bucket: Bucket, _ app: AppKey, _ number: UInt64) -> StoreKey {
        StoreKey(bucket, .event, ownerHigh: app.word, ownerLow: 0, item: number)
    }
}

extension EventTable {
    /// Returns durable events that their feeds do not have, one batch per app without a batch in flight.
    ///
    /// `share` describes the buckets of this shard. The gateway calls this several times a second, and `told` after each batch.
    mutating func take(_ share: LoopShare, _ core: inout ShardCore) -> [EventBatch] {
        var batches: [EventBatch] = []
        for entry in core.apps.entries {
            guard case .kept = entry.eventRule else { continue }
            let app = entry.key
            // The state leaves `apps` during the change, because a second reference would copy its whole list.
            var state = apps.removeValue(forKey: app) ?? EventTable.AppEvents()
            if state.unsure > 0 {
                core.numbers.eventsLost &+= state.unsure
                (state.lost, state.unsure) = (state.lost &+ state.unsure, 0)
            }
            if !state.isTelling {
                let isReady =
                    state.stamp <= core.outbox.committedTicket && state.callbackRest.until <= core.now
                    && (state.stamped > 0 || state.lost > 0)
                if isReady, readCallbacks(of: app, &state, &core) {
                    state.isTelling = true
                } else if isReady {
                    var taken = EventBatch(app: app)
                    let entries = state.waiting.prefix(Self.batchCount(state.waiting[..<state.stamped]))
                    taken.items = entries.map(\.item)
                    taken.edition = state.edition
                    taken.rows = entries.map { EventBatch.key($0, app) }
                    (taken.lost, state.lost) = (state.lost, 0)
                    state.waiting.removeFirst(entries.count)
                    state.stamped -= entries.count
                    state.isTelling = true
                    batches.append(taken)
                }
                if state.stamped == 0 { (state.stamped, state.stamp) = (state.waiting.count, core.outbox.lastTicket) }
            }
            let maySweep = !state.isSweeping && !state.isTelling && state.sweepRest.until <= core.now
            let mustSweep = maySweep && state.sweptBelow < share.bucketCount
            state.isSweeping = state.isSweeping || mustSweep
            apps[app] = state
            if mustSweep { sweep(app, share, &core) }
        }
        return batches
    }

    /// Returns the number of items of the next batch: as many as a page may have, by number and by bytes.
    private static func batchCount(_ entries: ArraySlice<Entry>) -> Int {
        var (count, byteCount) = (0, 0)
        for entry in entries.prefix(FeedBounds.pageItems) {
            byteCount += FeedRow.byteCount(entry.item)
            guard count == 0 || byteCount <= FeedBounds.pageByteCount else { break }
            count += 1
        }
        return count
    }

    // MARK: Custom callbacks

    /// Adds the custom callbacks to the items of the next batch.
    ///
    /// - Returns: true if some callbacks must be read first; the items then wait for the reply, so that no later event overtakes
    ///   them.
    private mutating func readCallbacks(of app: AppKey, _ state: inout AppEvents, _ core: inout ShardCore) -> Bool {
        var asked: [StoreKey] = []
        var isAsked: Set<StoreKey> = []
        let count = min(state.stamped, FeedBounds.pageItems)
        for index in 0..<count where state.waiting[index].item.awaitsCallback {
            let key = state.waiting[index].callbackKey
            if let known = core.known(key) {
                state.waiting[index].takeCallback(known, &core)
            } else if isAsked.insert(key).inserted {
                asked.append(key)
            }
        }
        guard !asked.isEmpty else { return false }
        let entries = Array(state.waiting.prefix(count))
        state.waiting.removeFirst(count)
        state.stamped -= count
        let (keys, edition) = (asked, state.edition)
        core.read(keys.map { .get($0) }) { shard, reply in
            shard.events.readCallbacks(keys, of: entries, app, reply, edition: edition, &shard.core)
        }
        return true
    }

    private mutating func readCallbacks(
        _ keys: [StoreKey], of entries: [Entry], _ app: AppKey, _ reply: StoreReply, edition: Int,
        _ core: inout ShardCore
    ) {
        guard var state = apps.removeValue(forKey: app) else { return }
        defer { apps[app] = state }
        state.isTelling = false
        // Memory was cleared during the read. The sweep finds the rows.
        guard state.edition == edition else { return }
        var entries = entries
        if reply.failure == nil, reply.results.count == keys.count {
            state.callbackRest = FeedBackoff()
            var found: [StoreKey: Found<FoundRow>] = [:]
            for (key, result) in zip(keys, reply.results) {
                guard case .row(let stored) = result else { continue }
                found[key] = stored.map { .found(FoundRow(bytes: $0.bytes, wakeAt: $0.wakeAt)) } ?? .absent
            }
            for index in entries.indices where entries[index].item.awaitsCallback {
                let key = entries[index].callbackKey
                if let row = core.known(key) ?? found[key] { entries[index].takeCallback(row, &core) }
            }
        } else {
            state.callbackRest.failed(at: core.now)
        }
        state.waiting.insert(contentsOf: entries, at: 0)
        state.stamped += entries.count
    }

    /// Handles the result of a batch: the feed's home has it, or (`isTold` false) refused it, and the events are sent again.
    mutating func told(_ batch: EventBatch, isTold: Bool, _ core: inout ShardCore) {
        guard var state = apps.removeValue(forKey: batch.app) else { return }
        state.isTelling = false
        guard isTold || core.isPlanted(.eventsLeftUntold) else {
            state.lost &+= batch.lost
            defer { apps[batch.app] = state }
            // Memory was cleared while the batch was in flight. The sweep finds the rows.
            guard batch.edition == state.edition else { return }
            let entries = zip(batch.rows, batch.items).map {
                EventTable.Entry(bucket: $0.bucket, number: $0.item, item: $1)
            }
            state.waiting.insert(contentsOf: entries, at: 0)
            state.stamped += entries.count
            return
        }
        state.rowCount = max(0, state.rowCount - batch.rows.count)
        apps[batch.app] = state
        let rows = batch.rows.sorted()
        var first = 0
        while first < rows.count {
            let bucket = rows[first].bucket
            let end = rows[first...].prefix(OpenBatch.rowLimit).firstIndex { $0.bucket != bucket }
            let last = end ?? min(rows.count, first + OpenBatch.rowLimit)
            core.inBatch(in: bucket) { core in
                for key in rows[first..<last] { core.store.delete(key, prior: .maybe(wakeAt: 0)) }
            }
            first = last
        }
    }

    private mutating func sweep(_ app: AppKey, _ share: LoopShare, _ core: inout ShardCore) {
        guard let state = apps[app] else { return }
        let buckets = share.buckets.filter { Int($0.index) >= state.sweptBelow }.prefix(EventTable.sweptBuckets)
        guard let last = buckets.last else {
            apps[app]?.sweptBelow = share.bucketCount
            apps[app]?.isSweeping = false
            return
        }
        let requests = buckets.enumerated().map { place, bucket in
            StoreRead.scan(
                partition: EventBatch.key(bucket, app, place == 0 ? state.sweepFrom : 0),
                rowLimit: EventTable.sweptRows, byteLimit: 256 << 10)
        }
        let edition = state.edition
        core.read(requests) { shard, reply in
            shard.events.swept(app, Array(buckets), reply, edition: edition, &shard.core)
            shard.events.goOn(app, share, last: last, edition: edition, &shard.core)
        }
    }

    private mutating func goOn(
        _ app: AppKey, _ share: LoopShare, last: Bucket, edition: Int, _ core: inout ShardCore
    ) {
        if swiftApp == app { swiftApp = nil }
        guard var state = apps[app], state.edition == edition else { return }
        if Int(last.index) + share.count >= share.bucketCount, state.sweptBelow > Int(last.index) {
            state.sweptBelow = share.bucketCount
            apps[app] = state
        }
        // Only one app is swept at the rate of the reads. The others are swept a few buckets per tick.
        guard swiftApp == nil, state.waiting.isEmpty, !state.isTelling,
            state.sweptBelow < share.bucketCount, state.sweepRest.until <= core.now, !core.isAbandoned
        else { return }
        swiftApp = app
        apps[app]?.isSweeping = true
        sweep(app, share, &core)
    }

    private mutating func swept(
        _ app: AppKey, _ buckets: [Bucket], _ reply: StoreReply, edition: Int, _ core: inout ShardCore
    ) {
        guard var state = apps.removeValue(forKey: app) else { return }
        state.isSweeping = false
        defer { apps[app] = state }
        // Memory was cleared during the read, so the sweep starts again.
        guard state.edition == edition else { return }
        guard reply.failure == nil, reply.results.count == buckets.count else {
            return state.sweepRest.failed(at: core.now)
        }
        state.sweepRest = FeedBackoff()
        for (bucket, result) in zip(buckets, reply.results) {
            guard case .rows(let rows, let isComplete) = result else { return }
            for row in rows {
                state.sweepFrom = row.key.item + 1
                guard let item = FeedRow.read(row.bytes)?.first else {
                    core.damaged(row.key)
                    continue
                }
                // Rows of an earlier process count only in the first edition because later editions read them again.
                if edition == 0, row.key.item < firstNumber { state.rowCount += 1 }
                state.waiting.append(EventTable.Entry(bucket: bucket, number: row.key.item, item: item))
            }
            guard isComplete, state.waiting.count < EventTable.waitingLimit else {
                if isComplete { (state.sweptBelow, state.sweepFrom) = (Int(bucket.index) + 1, 0) }
                return
            }
            (state.sweptBelow, state.sweepFrom) = (Int(bucket.index) + 1, 0)
        }
    }
}

extension EventTable.Entry {
    fileprivate var callbackKey: StoreKey { CallbackRow.key(item.task, in: bucket) }

    /// Takes the custom callback from its row; a missing row is past its retention.
    fileprivate mutating func takeCallback(_ row: Found<FoundRow>, _ core: inout ShardCore) {
        item.awaitsCallback = false
        guard case .found(let row) = row else { return }
        if let text = CallbackRow.read(row.bytes) { item.customCallback = text } else { core.damaged(callbackKey) }
    }
}
