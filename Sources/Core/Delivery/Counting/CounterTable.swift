// The counters of a shard by bucket, app and UTC day. Each vendor except Apple also has a separate row (`CountersRow`).
// A batch counts for one bucket and one app. The batch contains the increments (`ShardStore.add`), so counters and the
// counted messages become durable together.
//
// The rows of today and yesterday are in memory because a broadcast's message, a send or an alert counts on the day of the
// message's acceptance. Earlier days are in memory as sums over all buckets of the shard. The rows of earlier days stay
// in the store until `CounterFold` folds them.

internal import Structures
internal import Wire

struct CounterTable: ~Copyable {
    struct Scope {
        var app: AppKey
        var bucket: Bucket
        var now: GatewayTime
        var day: UInt32 { CountersRow.day(of: now) }
    }

    private struct Removal {
        var days: [CounterDay]
        var buckets: [Bucket]
        var nextBucket = 0
        var nextDay = 0
    }

    /// The number of rows removed per second.
    static let removedRowCount = 4_096
    private static let rowsOfBatch = 256

    struct Changed {
        var slot = CounterSlot.none
        var change = CounterChange()
    }

    private var rows = Slab<CountersRow>()
    private var index = WideMap()
    private var slotsByApp: [AppKey: [(bucket: Bucket, slot: CounterSlot)]] = [:]
    /// The rows that the open batch changes, with the increments: one of today and one of yesterday.
    private var today = Changed()
    private var earlier = Changed()
    /// The changed rows of vendors' parts, with the increments; empty for almost every batch.
    private var parts: [Changed] = []
    /// This shard's counters of days whose rows are not in memory.
    private var pastDays: [CounterDay: CountersRow]
    /// The folded days, and those of them whose unfolded rows still exist and must be removed.
    private var foldedDays: Set<CounterDay>
    private var staleDays: Set<CounterDay>
    /// The counters of days before yesterday that are ignored until the shard knows the folded days.
    private var withheldDays: [CounterDay: CountersRow]
    /// Whether the shard knows the folded days; its totals are unknown until then.
    private(set) var knowsFold: Bool
    private var removals: [Removal] = []
    private var removalAt = GatewayTime.max
    /// The day of the last `dropOld`.
    private var droppedOn: UInt32

    init(_ start: CounterStart) {
        pastDays = start.sums
        (foldedDays, staleDays) = (start.counted.union(start.folded), start.folded)
        (withheldDays, knowsFold, droppedOn) = (start.withheld, start.knowsFold, start.today)
        for entry in start.current { keep(entry.row, entry.bucket) }
    }

    // MARK: Counting, in the open batch

    /// Counts a new message on the day of its acceptance, which for a broadcast's message is the day of the launch.
    ///
    /// - Returns: the day.
    mutating func countAccepted(_ scope: Scope, acceptedAt: GatewayTime, blocks: UInt16) -> UInt32 {
        guard let yesterday = openEarlier(scope, acceptedAt) else {
            let row = rows.at(openToday(scope))
            row.value.countAccepted(blocks: blocks)
            today.change.countAccepted(blocks: blocks)
            return scope.day
        }
        rows.at(yesterday).value.countAccepted(blocks: blocks)
        earlier.change.countAccepted(blocks: blocks)
        return scope.day &- 1
    }

    mutating func count(_ state: FinalState, _ scope: Scope, blocks: UInt16) {
        let row = rows.at(openToday(scope))
        row.value.finals[Int(state.rawValue) - 1] &+= 1
        row.value.extra[.endedBlocks] &+= UInt32(blocks)
        today.change.count(state)
        today.change.count(CountersRow.Extra.endedBlocks, by: blocks)
    }

    mutating func countResized(_ scope: Scope, from old: UInt16, to new: UInt16) {
        let row = rows.at(openToday(scope))
        row.value.extra[.acceptedBlocks] &+= UInt32(new)
        row.value.extra[.endedBlocks] &+= UInt32(old)
        today.change.count(CountersRow.Extra.acceptedBlocks, by: new)
        today.change.count(CountersRow.Extra.endedBlocks, by: old)
    }

    mutating func count(_ extra: CountersRow.Extra, _ scope: Scope) {
        rows.at(openToday(scope)).value.extra[extra] &+= 1
        today.change.count(extra)
    }

    /// Counts a send or an alert of a message on the day of the message's acceptance.
    ///
    /// A day's accepted messages and the counted sends thus concern the same set of messages. If the acceptance was before
    /// yesterday, the send counts today. An alert also counts in the part of its vendor.
    mutating func count(
        _ reach: CountersRow.Reach, of facts: MessageFacts, vendor: VendorChannel? = nil, now: GatewayTime
    ) {
        guard !reach.isEmpty else { return }
        let scope = Scope(app: facts.app, bucket: facts.bucket, now: now)
        if let yesterday = openEarlier(scope, facts.acceptedAt) {
            rows.at(yesterday).value.count(reach)
            earlier.change.count(reach)
            if reach.contains(.alerted) { countPart(.alerted, of: vendor, scope, on: scope.day &- 1) }
        } else {
            rows.at(openToday(scope)).value.count(reach)
            today.change.count(reach)
            if reach.contains(.alerted) { countPart(.alerted, of: vendor, scope, on: scope.day) }
        }
    }

    /// Counts a user's event on a message; an event on a vendor's alert also counts in the part of its vendor.
    mutating func count(_ extra: CountersRow.Extra, ofAlertBy vendor: VendorChannel?, _ scope: Scope) {
        count(extra, scope)
        countPart(extra, of: vendor, scope, on: scope.day)
    }

    private mutating func countPart(
        _ extra: CountersRow.Extra, of vendor: VendorChannel?, _ scope: Scope, on day: UInt32
    ) {
        guard let vendor, vendor != .apns else { return }
        let counted = CounterDay(app: scope.app, day: day, part: VendorChannel.nibble(of: vendor))
        let slot = slot(of: counted, scope.bucket) ?? keep(CountersRow(counted), scope.bucket)
        rows.at(slot).value.extra[extra] &+= 1
        let place = parts.firstIndex { $0.slot == slot } ?? parts.count
        if place == parts.count { parts.append(Changed(slot: slot)) }
        parts[place].change.count(extra)
    }

    mutating func writeChanged(_ bucket: Bucket, to store: any ShardStore) {
        if today.slot != .none {
            write(today, bucket, to: store)
            today = Changed()
        }
        if earlier.slot != .none {
            write(earlier, bucket, to: store)
            earlier = Changed()
        }
        guard !parts.isEmpty else { return }
        for part in parts { write(part, bucket, to: store) }
        parts.removeAll(keepingCapacity: true)
    }

    private func write(_ changed: Changed, _ bucket: Bucket, to store: any ShardStore) {
        let row = rows.at(changed.slot)
        store.addCounts(CountersRow.key(bucket, row.value.counterDay), changed.change, to: row)
    }

    /// Returns the row of the batch's bucket, app and day, and marks it as changed.
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

    /// Returns the row of yesterday and marks it as changed; `nil` if a message of this acceptance counts today.
    private mutating func openEarlier(_ scope: Scope, _ acceptedAt: GatewayTime) -> CounterSlot? {
        let day = CountersRow.day(of: acceptedAt)
        guard day &+ 1 == scope.day else { return nil }
        let slot = slot(of: scope.app, scope.bucket, day) ?? keep(CountersRow(app: scope.app, day: day), scope.bucket)
        earlier.slot = slot
        return slot
    }

    @discardableResult
    private mutating func keep(_ row: CountersRow, _ bucket: Bucket) -> CounterSlot {
        let slot = rows.insert(row)
        slotsByApp[row.app, default: []].append((bucket, slot))
        index.set(row.app.word, Self.key(bucket, row.counterDay), slot.number)
        return slot
    }

    private func slot(of app: AppKey, _ bucket: Bucket, _ day: UInt32) -> CounterSlot? {
        slot(of: CounterDay(app: app, day: day), bucket)
    }

    private func slot(of day: CounterDay, _ bucket: Bucket) -> CounterSlot? {
        index[day.app.word, Self.key(bucket, day)].map { CounterSlot(number: $0) }
    }

    private static func key(_ bucket: Bucket, _ day: CounterDay) -> UInt64 { UInt64(bucket.index) << 40 | day.item }

    // MARK: Days

    /// Replaces the rows of days before yesterday with sums; their stored rows remain and no longer change.
    ///
    /// The table does this once a day although `advance` calls it often.
    mutating func dropOld(before today: UInt32) {
        guard today > droppedOn else { return }
        droppedOn = today
        for (app, places) in slotsByApp {
            var kept: [(bucket: Bucket, slot: CounterSlot)] = []
            for place in places {
                let day = rows.at(place.slot).value.counterDay
                if day.day &+ 1 >= today {
                    kept.append(place)
                } else {
                    _ = index.remove(app.word, Self.key(place.bucket, day))
                    let row = rows.remove(place.slot)
                    pastDays[day, default: CountersRow(day)].add(row)
                }
            }
            slotsByApp[app] = kept.isEmpty ? nil : kept
        }
    }

    var rowCount: Int { rows.count }

    /// Returns the number of accepted messages of an app on today or yesterday, in these buckets.
    func accepted(of app: AppKey, on day: UInt32) -> Int64 {
        var sum: Int64 = 0
        for (_, slot) in slotsByApp[app] ?? [] where rows.at(slot).value.day == day {
            sum &+= Int64(bitPattern: rows.at(slot).value.accepted)
        }
        return sum
    }

    /// Returns the counters of an app on a day, and its number of devices at the end of the day.
    func totals(of app: AppKey, day: UInt32) -> DayTotals {
        var sum = CountersRow(app: app, day: day)
        var ofVendors: [UInt8: CountersRow] = [:]
        var deviceCount = 0
        func take(_ part: CountersRow) {
            guard part.app == app, part.day <= day else { return }
            guard part.part == 0 else {
                if part.day == day { ofVendors[part.part, default: CountersRow(part.counterDay)].add(part) }
                return
            }
            deviceCount += Int(part.extra[.registered]) - Int(part.extra[.collected])
            if part.day == day { sum.add(part) }
        }
        for part in pastDays.values { take(part) }
        for (_, slot) in slotsByApp[app] ?? [] { take(rows.at(slot).value) }
        return DayTotals(sum, ofVendors: ofVendors, deviceCount: deviceCount)
    }

    // MARK: Folding

    /// Sets the folded days and adds the withheld counters of all other days.
    ///
    /// - Returns: the apps' holdings by these counters.
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

    /// Replaces this shard's counters of the given days with the folded ones.
    ///
    /// - Returns: the increase of the apps' holdings.
    mutating func takeFold(_ days: [CountersRow]) -> [AppKey: CountedHoldings] {
        var more: [AppKey: CountedHoldings] = [:]
        for row in days {
            let day = row.counterDay
            more[row.app, default: CountedHoldings()] += row.holdings
            if let known = pastDays[day] { more[row.app, default: CountedHoldings()] -= known.holdings }
            pastDays[day] = row
        }
        return more
    }

    /// Drops the counters of days that another shard counts.
    ///
    /// - Returns: the change of the apps' holdings, zero or negative.
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

    /// Returns this shard's counters of unfolded days before yesterday.
    ///
    /// Folded days with remaining rows are returned as zeros. The caller must pass the same day to all loops; otherwise a fold
    /// could miss a loop's counters.
    func foldable(today: UInt32) -> [CountersRow] {
        let today = Int64(today)
        var sums: [CounterDay: CountersRow] = [:]
        for (day, row) in pastDays where Int64(day.day) + 2 <= today && !foldedDays.contains(day) { sums[day] = row }
        for slot in rows.slots() where rows.isOccupied(slot) {
            let row = rows.at(slot)
            let day = row.value.counterDay
            guard Int64(day.day) + 2 <= today, !foldedDays.contains(day) else { continue }
            sums[day, default: CountersRow(day)].add(row.value)
        }
        for day in staleDays { sums[day] = CountersRow(day) }
        return Array(sums.values)
    }

    /// Removes the unfolded rows of folded days from these buckets, some each second; the counters stay in memory.
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

    /// Returns the next rows to remove in one batch of a bucket; `budget` is the number of rows left for this second.
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
    fileprivate init(_ row: CountersRow, ofVendors: [UInt8: CountersRow], deviceCount: Int) {
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
        var apple = TaskTotals.Channel(row)
        for (part, row) in ofVendors {
            // The figures of all vendors are subtracted, also of vendors that only a later version knows, because none are
            // Apple's.
            let figures = TaskTotals.Channel(row)
            apple.subtract(figures)
            if let channel = VendorChannel.channel(ofNibble: part) { messages.add(figures, of: channel) }
        }
        messages.add(apple, of: .apns)
        messages.vendor = TaskTotals.Channel(row)
        messages.all.sent = Int(row.extra[.reached])
        messages.all.received = acked + messages.vendor.received
        messages.all.shown = messages.live.shown + messages.vendor.shown
        messages.all.clicked = messages.live.clicked + messages.vendor.clicked
    }
}

extension TaskTotals.Channel {
    /// Creates the figures of vendors' alerts.
    fileprivate init(_ row: CountersRow) {
        self.init()
        (sent, shown, clicked) = (
            Int(row.extra[.alerted]), Int(row.extra[.shownVendor]), Int(row.extra[.clickedVendor])
        )
        received = max(shown, clicked)
    }

    fileprivate mutating func subtract(_ other: TaskTotals.Channel) {
        sent = max(0, sent - other.sent)
        shown = max(0, shown - other.shown)
        clicked = max(0, clicked - other.clicked)
        received = max(shown, clicked)
    }
}
