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
            // Removed during the change, because a second reference would copy the whole list.
            var state = apps.removeValue(forKey: app) ?? EventTable.AppEvents()
            if state.unsure > 0 {
                core.numbers.eventsLost &+= state.unsure
                (state.lost, state.unsure) = (state.lost &+ state.unsure, 0)
            }
            if !state.isTelling {
                if state.stamp <= core.outbox.committedTicket, state.stamped > 0 || state.lost > 0 {
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

    /// Handles the result of a batch: the feed's home has it, or (`isTold` false) refused it, and the events are sent again.
    mutating func told(_ batch: EventBatch, isTold: Bool, _ core: inout ShardCore) {
        guard var state = apps.removeValue(forKey: batch.app) else { return }
        state.isTelling = false
        guard isTold || core.isPlanted(.eventsLeftUntold) else {
            state.lost &+= batch.lost
            defer { apps[batch.app] = state }
            // Memory was cleared since then. The sweep finds the rows.
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
        // The events left memory during the read. The sweep restarts.
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
