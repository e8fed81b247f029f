internal import Structures
internal import Wire

/// Days whose rows by bucket are to go, and how far that has come.
struct CounterRemoval {
    var days: [CounterDay]
    var buckets: [Bucket]
    var nextBucket = 0
    var nextDay = 0
}

extension Shard {
    /// What was counted on days before yesterday that are not folded, and folded days (as zeros) of which a start found rows.
    ///
    /// All loops are asked with the same day, or one would leave a day out that another one gives.
    func foldableCounters(today: UInt32) -> [CountersRow] {
        let today = Int64(today)
        var sums: [CounterDay: CountersRow] = [:]
        for (day, row) in dayTotals where Int64(day.day) + 2 <= today && !foldedCounters.contains(day) {
            sums[day] = row
        }
        // Of an app that is configured no more, say: its rows leave memory only with the process.
        for slot in 0..<counters.highWater where counters.isOccupied(slot) {
            let row = counters.pointer(slot)
            let day = CounterDay(app: row.pointee.app, day: row.pointee.day)
            guard Int64(day.day) + 2 <= today, !foldedCounters.contains(day) else { continue }
            sums[day, default: CountersRow(app: day.app, day: day.day)].add(row.pointee)
        }
        for day in staleCounters { sums[day] = CountersRow(app: day.app, day: day.day) }
        return Array(sums.values)
    }

    /// Removes the rows of folded days from these buckets, some each second; what they told stays in memory.
    mutating func removeCounters(_ days: [CounterDay], _ share: LoopShare) {
        let new = days.filter { !foldedCounters.contains($0) || staleCounters.contains($0) }
        for day in new {
            foldedCounters.insert(day)
            staleCounters.remove(day)
        }
        guard !new.isEmpty else { return }
        counterRemovals.append(CounterRemoval(days: new, buckets: share.buckets))
        if counterRemovalAt == .max { counterRemovalAt = now }
    }

    /// So many rows a second: a start of an older format may find millions of them.
    private static let removedRowCount = 4_096
    private static let rowsOfBatch = 256

    mutating func removeCounterSlice() {
        guard now >= counterRemovalAt else { return }
        counterRemovalAt = counterRemovals.isEmpty ? .max : now + 1_000
        var budget = store.acceptsWrites ? Self.removedRowCount : 0
        while budget > 0, var removal = counterRemovals.first {
            guard removal.nextBucket < removal.buckets.count else {
                counterRemovals.removeFirst()
                continue
            }
            let bucket = removal.buckets[removal.nextBucket]
            let end = min(removal.days.count, removal.nextDay + Self.rowsOfBatch)
            store.beginBatch(bucket)
            for day in removal.days[removal.nextDay..<end] {
                store.delete(CountersRow.key(bucket, app: day.app, day: day.day), prior: .maybe(wakeAt: 0))
            }
            lastTicket = store.endBatch()
            budget -= end - removal.nextDay
            removal.nextDay = end == removal.days.count ? 0 : end
            if removal.nextDay == 0 { removal.nextBucket += 1 }
            counterRemovals[0] = removal
        }
    }
}
