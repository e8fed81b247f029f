package import Wire

// A batch belongs to one bucket, so a shard writes counters rows by bucket, app and day. Past days need no buckets. The
// keeper *folds* what all buckets counted for an app on a day into one row of bucket 0. Days before the reach of
// reports go into one row an app. So a start reads a few rows an app and day in place of 4,096.
//
// Exactly once across crashes: the day's buckets change no more, since the fold waits for the second day after. The
// keeper writes the folded row from their sums, and the loops remove their rows only once it is durable. From then on a
// row of a folded day counts for nothing. So the removal may stop anywhere and start again.

/// An app and a UTC day.
package struct CounterDay: Hashable, Sendable, Codable {
    package var app: AppKey
    /// Days since 1970-01-01.
    package var day: UInt32
    package init(app: AppKey, day: UInt32) { (self.app, self.day) = (app, day) }
}

/// The folded days of all apps, as the loop of bucket 0 keeps them.
package struct CounterFold: Sendable, Equatable {
    /// The first word of the owner of its rows in the table `meta`; stored.
    package enum RowKind: UInt64, Sendable { case day = 9, total = 10 }

    /// What one batch changes.
    package struct Change: Sendable, Equatable {
        /// Days to fold now, sums over all buckets.
        package var days: [CountersRow] = []
        /// Sums of the days before the reach of reports, one an app; `day` is the last of them.
        package var totals: [CountersRow] = []
        /// Folded days that are in such a sum now.
        package var gone: [CounterDay] = []
        /// Days whose rows by bucket the loops remove once the change is durable.
        package var removed: [CounterDay] = []
        package var isEmpty: Bool { days.isEmpty && totals.isEmpty && gone.isEmpty }
    }

    /// The most days that one change folds, so that its batch stays small.
    package static let changedDayCount = 512

    package private(set) var days: [CounterDay: CountersRow] = [:]
    package private(set) var totals: [AppKey: CountersRow] = [:]

    package init() {}

    /// The fold as a shard needs it that does not count its numbers.
    package init(_ folded: FoldedDays) {
        for day in folded.days { days[day] = CountersRow(app: day.app, day: day.day) }
        for last in folded.totals { totals[last.app] = CountersRow(app: last.app, day: last.day) }
    }

    /// Which days are folded, without their numbers.
    package var folded: FoldedDays {
        var folded = FoldedDays()
        folded.days = Array(days.keys)
        folded.totals = totals.map { CounterDay(app: $0.key, day: $0.value.day) }
        return folded
    }

    /// Takes one of the fold's rows; false for any other row.
    package mutating func take(_ row: StoredRow) -> Bool {
        guard let kind = RowKind(rawValue: row.key.ownerHigh) else { return false }
        guard let counters = CountersRow(row.bytes) else { return true }
        switch kind {
        case .day: days[CounterDay(app: counters.app, day: counters.day)] = counters
        case .total: totals[counters.app] = counters
        }
        return true
    }

    /// Whether rows by bucket of this day count for nothing any more.
    package func contains(_ day: CounterDay) -> Bool {
        if days[day] != nil { return true }
        return totals[day.app].map { day.day <= $0.day } ?? false
    }

    /// Every folded number, for the shard of bucket 0.
    package var rows: [CountersRow] { Array(days.values) + Array(totals.values) }

    /// The next change, from what the shards have counted.
    ///
    /// - Parameters:
    ///   - parts: of every shard, sums over its buckets of days before yesterday.
    ///   - today: the day that it is now.
    ///   - reportDays: the number of days before today that keep a row each.
    /// - Returns: what to write, and which rows to remove once that is durable.
    package func change(_ parts: [[CountersRow]], today: UInt32, reportDays: UInt32) -> Change {
        var change = Change()
        var sums: [CounterDay: CountersRow] = [:]
        for part in parts.joined() {
            let day = CounterDay(app: part.app, day: part.day)
            guard !contains(day) else {
                if !change.removed.contains(day) { change.removed.append(day) }
                continue
            }
            guard Int64(part.day) + 2 <= Int64(today) else { continue }
            sums[day, default: CountersRow(app: part.app, day: part.day)].add(part)
        }
        for day in sums.keys.sorted(by: Self.isEarlier).prefix(Self.changedDayCount) {
            guard let row = sums[day] else { continue }
            change.days.append(row)
            change.removed.append(day)
        }
        // Only days that were folded before, so that no batch writes and removes one row.
        let old = days.keys.filter { Int64($0.day) + Int64(reportDays) < Int64(today) }.sorted(by: Self.isEarlier)
        var totals: [AppKey: CountersRow] = [:]
        for day in old.prefix(Self.changedDayCount) {
            guard let row = days[day] else { continue }
            // The day may be before the sum's last one, after the clock was set back.
            var total = totals[day.app] ?? self.totals[day.app] ?? CountersRow(app: day.app, day: day.day)
            total.add(row)
            total.day = max(total.day, day.day)
            totals[day.app] = total
            change.gone.append(day)
        }
        change.totals = totals.values.sorted { $0.app.word < $1.app.word }
        return change
    }

    private static func isEarlier(_ left: CounterDay, _ right: CounterDay) -> Bool {
        left.day != right.day ? left.day < right.day : left.app.word < right.app.word
    }

    /// Writes a change in one batch of bucket 0 and takes it in; nothing may be removed before the batch is durable.
    package mutating func write(_ change: Change, to store: any ShardStore) -> Ticket {
        store.beginBatch(Bucket(0))
        func put(_ row: CountersRow, _ kind: RowKind, item: UInt64) {
            store.putRow(
                Self.key(kind, row.app, item), wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: CountersRow.byteCount
            ) { row.write(into: $0) }
        }
        for row in change.days {
            put(row, .day, item: UInt64(row.day))
            days[CounterDay(app: row.app, day: row.day)] = row
        }
        for row in change.totals {
            put(row, .total, item: 0)
            totals[row.app] = row
        }
        for day in change.gone {
            store.delete(Self.key(.day, day.app, UInt64(day.day)), prior: .maybe(wakeAt: 0))
            days[day] = nil
        }
        return store.endBatch()
    }

    private static func key(_ kind: RowKind, _ app: AppKey, _ item: UInt64) -> StoreKey {
        StoreKey(Bucket(0), .meta, ownerHigh: kind.rawValue, ownerLow: app.word, item: item)
    }
}

/// What an app has by counts: what came less what went.
///
/// Less than nothing where the counts have the end of what other counts began: on another day, or in another part.
struct CountedHoldings: Equatable {
    /// Accepted and not ended.
    var messages: Int64 = 0
    /// Their sizes, see `QueuedBlocks`.
    var blocks: Int64 = 0
    /// Devices that registered and were not removed.
    var devices: Int64 = 0

    static func += (sum: inout CountedHoldings, more: CountedHoldings) {
        sum.messages &+= more.messages
        sum.blocks &+= more.blocks
        sum.devices &+= more.devices
    }

    static func -= (sum: inout CountedHoldings, less: CountedHoldings) {
        sum.messages &-= less.messages
        sum.blocks &-= less.blocks
        sum.devices &-= less.devices
    }
}

/// The counters rows of a shard's buckets at a start: read one by one, kept as sums.
package struct CounterStart: Sendable {
    /// `nil`: not known yet.
    private let fold: CounterFold?
    let today: UInt32
    /// Rows of today and yesterday, which may still change: a send or an alert counts on the day of the message's
    /// acceptance.
    private(set) var current: [(bucket: Bucket, row: CountersRow)] = []
    /// Earlier days, over all buckets.
    private(set) var sums: [CounterDay: CountersRow] = [:]
    /// As `sums`, of days of which the shard does not know yet whether they are folded; they count for nothing until then.
    private(set) var withheld: [CounterDay: CountersRow] = [:]
    var knowsFold: Bool { fold != nil }
    /// Days whose folded numbers are among the sums.
    private(set) var counted: Set<CounterDay> = []
    /// Folded days of which rows by bucket still exist.
    private(set) var folded: Set<CounterDay> = []
    package private(set) var damagedRowCount = 0
    package private(set) var rowCount = 0

    /// - Parameters:
    ///   - now: gateway time.
    ///   - fold: the folded days; their own numbers are left out unless `countsFold`. `nil`: their keeper cannot be
    ///     asked yet (`Shard.learnFold`).
    ///   - countsFold: for one shard of all, the one that owns bucket 0.
    package init(now: GatewayTime, fold: CounterFold? = CounterFold(), countsFold: Bool = false) {
        (self.fold, today) = (fold, CountersRow.day(of: now))
        guard countsFold, let fold else { return }
        for row in fold.rows {
            sums[CounterDay(app: row.app, day: row.day), default: Self.blank(row)].add(row)
            counted.insert(CounterDay(app: row.app, day: row.day))
        }
    }

    static func blank(_ row: CountersRow) -> CountersRow { CountersRow(app: row.app, day: row.day) }

    /// Takes in a row of the table `counters`, valid during the call.
    package mutating func take(_ stored: StoredRow) {
        rowCount += 1
        guard let row = CountersRow(stored.bytes) else {
            damagedRowCount += 1
            return
        }
        let day = CounterDay(app: row.app, day: row.day)
        if row.day &+ 1 >= today {
            current.append((stored.key.bucket, row))
        } else {
            guard let fold else { return withheld[day, default: Self.blank(row)].add(row) }
            if fold.contains(day) { folded.insert(day) } else { sums[day, default: Self.blank(row)].add(row) }
        }
    }

    /// What each app has.
    var holdingsByApp: [AppKey: CountedHoldings] {
        var holdings: [AppKey: CountedHoldings] = [:]
        for entry in current { holdings[entry.row.app, default: CountedHoldings()] += entry.row.holdings }
        for row in sums.values { holdings[row.app, default: CountedHoldings()] += row.holdings }
        return holdings
    }

    /// Accepted and not ended.
    package var pending: Int64 {
        var sum: UInt64 = 0
        for entry in current { sum &+= entry.row.accepted &- entry.row.ended }
        for row in sums.values { sum &+= row.accepted &- row.ended }
        return Int64(bitPattern: sum)
    }
}

/// The days that are folded, for shards of other loops: a row of such a day by bucket counts for nothing.
package struct FoldedDays: Sendable, Equatable, Codable {
    /// Days with a sum of their own.
    package var days: [CounterDay] = []
    /// For each app the last day of those that are summed up together.
    package var totals: [CounterDay] = []
    package init() {}
}
