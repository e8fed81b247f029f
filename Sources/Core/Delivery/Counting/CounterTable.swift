// What a shard counts, by bucket, app and UTC day. A batch counts for one bucket and one app, and carries what it adds
// (`ShardStore.add`). So the numbers and the messages that they count are durable together.
//
// Today's and yesterday's rows are in memory one by one, since a send or an alert counts on the day of the message's
// acceptance. Earlier days are sums over all buckets of the shard; their rows stay in the store until they are folded
// (`CounterFold`).

internal import Structures
internal import Wire

struct CounterTable: ~Copyable {
    /// The bucket, app and time for which a batch counts.
    struct Scope {
        var app: AppKey
        var bucket: Bucket
        var now: GatewayTime
        var day: UInt32 { CountersRow.day(of: now) }
    }

    /// Days whose rows by bucket the shard removes, and how far it is.
    private struct Removal {
        var days: [CounterDay]
        var buckets: [Bucket]
        var nextBucket = 0
        var nextDay = 0
    }

    /// Rows that one second removes.
    static let removedRowCount = 4_096
    private static let rowsOfBatch = 256

    struct Changed {
        var slot = CounterSlot.none
        var change = CounterChange()
    }

    private var rows = Slab<CountersRow>()
    private var index = WideMap()
    /// A report looks at one app's rows.
    private var slotsByApp: [AppKey: [(bucket: Bucket, slot: CounterSlot)]] = [:]
    /// The rows that the open batch changes, and what it adds: that of today, and that of yesterday.
    private var today = Changed()
    private var earlier = Changed()
    /// What this shard counted on days whose rows are not in memory.
    private var pastDays: [CounterDay: CountersRow]
    /// Days that are folded, and those of them whose rows a start found and the shard still has to remove.
    private var foldedDays: Set<CounterDay>
    private var staleDays: Set<CounterDay>
    /// Days before yesterday that count for nothing until the shard knows which days are folded.
    private var withheldDays: [CounterDay: CountersRow]
    /// Whether it knows that: until then it cannot tell what it has counted.
    private(set) var knowsFold: Bool
    private var removals: [Removal] = []
    private var removalAt = GatewayTime.max
    /// The day for which `dropOld` was called last.
    private var droppedOn: UInt32

    init(_ start: CounterStart) {
        pastDays = start.sums
        (foldedDays, staleDays) = (start.counted.union(start.folded), start.folded)
        (withheldDays, knowsFold, droppedOn) = (start.withheld, start.knowsFold, start.today)
        for entry in start.current { keep(entry.row, entry.bucket) }
    }

    // MARK: Counting, in the open batch

    mutating func countAccepted(_ scope: Scope, blocks: UInt16) {
        let row = rows.at(openToday(scope))
        row.value.accepted &+= 1
        row.value.extra[.acceptedBlocks] &+= UInt32(blocks)
        today.change.countAccepted()
        today.change.count(CountersRow.Extra.acceptedBlocks, by: blocks)
    }

    mutating func count(_ state: FinalState, _ scope: Scope, blocks: UInt16) {
        let row = rows.at(openToday(scope))
        row.value.finals[Int(state.rawValue) - 1] &+= 1
        row.value.extra[.endedBlocks] &+= UInt32(blocks)
        today.change.count(state)
        today.change.count(CountersRow.Extra.endedBlocks, by: blocks)
    }

    /// Counts that a pending message has another size now.
    mutating func countResized(_ scope: Scope, from old: UInt16, to new: UInt16) {
        let row = rows.at(openToday(scope))
        row.value.extra[.acceptedBlocks] &+= UInt32(new)
        row.value.extra[.endedBlocks] &+= UInt32(old)
        today.change.count(CountersRow.Extra.acceptedBlocks, by: new)
        today.change.count(CountersRow.Extra.endedBlocks, by: old)
    }

    /// Counts something that is neither an acceptance nor an end.
    mutating func count(_ extra: CountersRow.Extra, _ scope: Scope) {
        rows.at(openToday(scope)).value.extra[extra] &+= 1
        today.change.count(extra)
    }

    /// Counts the channels on which a message went out, on the day of its acceptance.
    ///
    /// So a day's messages and their targets are one set. If that day is before yesterday, today counts.
    mutating func count(_ reach: CountersRow.Reach, of facts: MessageFacts, now: GatewayTime) {
        guard !reach.isEmpty else { return }
        let scope = Scope(app: facts.app, bucket: facts.bucket, now: now)
        let acceptedOn = CountersRow.day(of: facts.acceptedAt)
        if acceptedOn &+ 1 == scope.day, let slot = slot(of: facts.app, facts.bucket, acceptedOn) {
            earlier.slot = slot
            earlier.change.count(reach)
            rows.at(slot).value.count(reach)
        } else {
            rows.at(openToday(scope)).value.count(reach)
            today.change.count(reach)
        }
    }

    /// Writes what was counted into the open batch of the store, as its last step.
    mutating func writeChanged(_ bucket: Bucket, to store: any ShardStore) {
        if today.slot != .none {
            write(today, bucket, to: store)
            today = Changed()
        }
        if earlier.slot != .none {
            write(earlier, bucket, to: store)
            earlier = Changed()
        }
    }

    private func write(_ changed: Changed, _ bucket: Bucket, to store: any ShardStore) {
        let row = rows.at(changed.slot)
        store.addCounts(CountersRow.key(bucket, app: row.value.app, day: row.value.day), changed.change, to: row)
    }

    /// The row of the batch's bucket, app and day, which the batch changes.
    private mutating func openToday(_ scope: Scope) -> CounterSlot {
        if today.slot != .none {
            assert(rows.at(today.slot).value.app == scope.app, "a batch counts for one app")
            return today.slot
        }
        today.slot =
            slot(of: scope.app, scope.bucket, scope.day)
            ?? keep(CountersRow(app: scope.app, day: scope.day), scope.bucket)
        return today.slot
    }

    @discardableResult
    private mutating func keep(_ row: CountersRow, _ bucket: Bucket) -> CounterSlot {
        let slot = rows.insert(row)
        slotsByApp[row.app, default: []].append((bucket, slot))
        index.set(row.app.word, Self.key(bucket, row.day), slot.number)
        return slot
    }

    private func slot(of app: AppKey, _ bucket: Bucket, _ day: UInt32) -> CounterSlot? {
        index[app.word, Self.key(bucket, day)].map { CounterSlot(number: $0) }
    }

    private static func key(_ bucket: Bucket, _ day: UInt32) -> UInt64 { UInt64(bucket.index) << 32 | UInt64(day) }

    // MARK: Days

    /// Keeps only the sums of days before yesterday; their rows stay in the store and do not change any more.
    ///
    /// Called often, it works once a day: whichever command came first after midnight, the rows go.
    mutating func dropOld(before today: UInt32) {
        guard today > droppedOn else { return }
        droppedOn = today
        for (app, places) in slotsByApp {
            var kept: [(bucket: Bucket, slot: CounterSlot)] = []
            for place in places {
                let day = rows.at(place.slot).value.day
                if day &+ 1 >= today {
                    kept.append(place)
                } else {
                    _ = index.remove(app.word, Self.key(place.bucket, day))
                    let row = rows.remove(place.slot)
                    pastDays[CounterDay(app: app, day: day), default: CountersRow(app: app, day: day)].add(row)
                }
            }
            slotsByApp[app] = kept.isEmpty ? nil : kept
        }
    }

    /// Rows in memory.
    var rowCount: Int { rows.count }

    /// What these buckets accepted for an app on a day whose rows are in memory: today, or yesterday.
    func accepted(of app: AppKey, on day: UInt32) -> Int64 {
        var sum: Int64 = 0
        for (_, slot) in slotsByApp[app] ?? [] where rows.at(slot).value.day == day {
            sum &+= Int64(bitPattern: rows.at(slot).value.accepted)
        }
        return sum
    }

    /// What was counted for an app on a day, and how many devices it had at the day's end.
    func totals(of app: AppKey, day: UInt32) -> DayTotals {
        var sum = CountersRow(app: app, day: day)
        var deviceCount = 0
        func take(_ part: CountersRow) {
            guard part.app == app, part.day <= day else { return }
            deviceCount += Int(part.extra[.registered]) - Int(part.extra[.collected])
            if part.day == day { sum.add(part) }
        }
        for part in pastDays.values { take(part) }
        for (_, slot) in slotsByApp[app] ?? [] { take(rows.at(slot).value) }
        return DayTotals(sum, deviceCount: deviceCount)
    }

    // MARK: Folding

    /// The shard knows now which days are folded; what it withheld of the others counts.
    ///
    /// - Returns: what apps have by the counts of these days.
    mutating func learnFold(_ fold: CounterFold) -> [AppKey: CountedHoldings] {
        guard !knowsFold else { return [:] }
        knowsFold = true
        var more: [AppKey: CountedHoldings] = [:]
        for (day, row) in withheldDays {
            if fold.contains(day) {
                foldedDays.insert(day)
                staleDays.insert(day)
            } else {
                pastDays[day, default: CounterStart.blank(row)].add(row)
                more[day.app, default: CountedHoldings()] += row.holdings
            }
        }
        withheldDays = [:]
        return more
    }

    /// Counts these days whole, in place of what this shard has of them.
    ///
    /// - Returns: what apps have more by these counts.
    mutating func takeFold(_ days: [CountersRow]) -> [AppKey: CountedHoldings] {
        var more: [AppKey: CountedHoldings] = [:]
        for row in days {
            let day = CounterDay(app: row.app, day: row.day)
            more[row.app, default: CountedHoldings()] += row.holdings
            if let known = pastDays[day] { more[row.app, default: CountedHoldings()] -= known.holdings }
            pastDays[day] = row
        }
        return more
    }

    /// Another shard counts these days.
    ///
    /// - Returns: what apps have more here without them: nothing, or less.
    mutating func drop(_ days: [CounterDay]) -> [AppKey: CountedHoldings] {
        var more: [AppKey: CountedHoldings] = [:]
        for day in days {
            if let known = pastDays.removeValue(forKey: day) {
                more[day.app, default: CountedHoldings()] -= known.holdings
            }
            withheldDays[day] = nil
        }
        return more
    }

    /// What this shard counted on days before yesterday that are not folded.
    ///
    /// Folded days of which a start found rows come as zeros. The keeper asks all loops with the same day, or one would
    /// leave a day out that another gives.
    func foldable(today: UInt32) -> [CountersRow] {
        let today = Int64(today)
        var sums: [CounterDay: CountersRow] = [:]
        for (day, row) in pastDays where Int64(day.day) + 2 <= today && !foldedDays.contains(day) { sums[day] = row }
        for slot in rows.slots() where rows.isOccupied(slot) {
            let row = rows.at(slot)
            let day = CounterDay(app: row.value.app, day: row.value.day)
            guard Int64(day.day) + 2 <= today, !foldedDays.contains(day) else { continue }
            sums[day, default: CountersRow(app: day.app, day: day.day)].add(row.value)
        }
        for day in staleDays { sums[day] = CountersRow(app: day.app, day: day.day) }
        return Array(sums.values)
    }

    /// Removes the rows of folded days from these buckets, some each second; their numbers stay in memory.
    mutating func remove(_ days: [CounterDay], from buckets: [Bucket], now: GatewayTime) {
        let new = days.filter { !foldedDays.contains($0) || staleDays.contains($0) }
        for day in new {
            foldedDays.insert(day)
            staleDays.remove(day)
        }
        guard !new.isEmpty else { return }
        removals.append(Removal(days: new, buckets: buckets))
        if removalAt == .max { removalAt = now }
    }

    /// Rows of one bucket to remove now, in a batch of their own; `budget` says how many this second may remove.
    mutating func nextRemoval(_ now: GatewayTime, budget: inout Int) -> (bucket: Bucket, days: ArraySlice<CounterDay>)?
    {
        guard now >= removalAt else { return nil }
        while budget > 0, let removal = removals.first {
            guard removal.nextBucket < removal.buckets.count else {
                removals.removeFirst()
                continue
            }
            let end = min(removal.days.count, removal.nextDay + Self.rowsOfBatch)
            budget -= end - removal.nextDay
            removals[0].nextDay = end == removal.days.count ? 0 : end
            if end == removal.days.count { removals[0].nextBucket += 1 }
            return (removal.buckets[removal.nextBucket], removal.days[removal.nextDay..<end])
        }
        removalAt = removals.isEmpty ? .max : now + 1_000
        return nil
    }
}

extension DayTotals {
    /// A day's counters as a report gives them.
    fileprivate init(_ row: CountersRow, deviceCount: Int) {
        self.init()
        accumulated = deviceCount
        registered = Int(row.extra[.registered])
        active = Int(row.extra[.active])
        messages.accepted = Int(row.accepted)
        for state in FinalState.allCases { messages[state] = Int(row[state]) }
        let acked = messages[.delivered] + messages[.deliveredOffline]
        messages.live.sent = Int(row.extra[.sent])
        messages.live.received = acked
        messages.live.shown = Int(row.extra[.shownLive])
        messages.live.clicked = Int(row.extra[.clickedLive])
        messages.vendor.sent = Int(row.extra[.alerted])
        messages.vendor.received = max(Int(row.extra[.shownVendor]), Int(row.extra[.clickedVendor]))
        messages.vendor.shown = Int(row.extra[.shownVendor])
        messages.vendor.clicked = Int(row.extra[.clickedVendor])
        messages.all.sent = Int(row.extra[.reached])
        messages.all.received = acked + messages.vendor.received
        messages.all.shown = messages.live.shown + messages.vendor.shown
        messages.all.clicked = messages.live.clicked + messages.vendor.clicked
    }
}
