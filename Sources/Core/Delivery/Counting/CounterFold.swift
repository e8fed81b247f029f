package import Wire

// A batch belongs to one bucket, so a shard writes counters rows by bucket, app and day. Past days do not need the bucket. The
// owner of bucket 0 *folds* the counters of all buckets for an app and day into one row of bucket 0. Days before the report
// retention are summed up in one row per app. A start thus reads a few rows per app and day instead of 4,096.
//
// Folding is exact across crashes. A day is folded two days later, when its buckets no longer change. The folded row is written
// first, and the loops remove their rows only after it is durable. From then on the unfolded rows of that day are ignored, so the
// removal can stop and resume anywhere.

package struct CounterDay: Hashable, Sendable, Codable {
    package var app: AppKey
    /// The number of days since 1970-01-01.
    package var day: UInt32
    /// See `CountersRow.part`.
    package var part: UInt8 = 0
    package init(app: AppKey, day: UInt32, part: UInt8 = 0) { (self.app, self.day, self.part) = (app, day, part) }

    /// The part and the day in one word, for stored keys.
    var item: UInt64 { UInt64(part) << 32 | UInt64(day) }
}

/// The folded days of all apps and parts, kept by the loop of bucket 0.
package struct CounterFold: Sendable, Equatable {
    /// The kind of a fold row in the table `meta`; the raw value is the first word of the stored key's owner.
    package enum RowKind: UInt64, Sendable { case day = 9, total = 10 }

    package struct Change: Sendable, Equatable {
        /// The days to fold, as sums over all buckets.
        package var days: [CountersRow] = []
        /// The sums of the days before the report retention, one per app; `day` is the last summed day.
        package var totals: [CountersRow] = []
        /// The folded days whose rows are deleted because they are older than the report retention.
        package var gone: [CounterDay] = []
        /// The days whose unfolded rows the loops remove after the change is durable.
        package var removed: [CounterDay] = []
        package var isEmpty: Bool { days.isEmpty && totals.isEmpty && gone.isEmpty }
    }

    /// The maximum number of days per change; it bounds the batch.
    package static let changedDayCount = 512

    package private(set) var days: [CounterDay: CountersRow] = [:]
    package private(set) var totals: [AppKey: CountersRow] = [:]

    package init() {}

    /// Creates a fold that knows the folded days without their counters.
    package init(_ folded: FoldedDays) {
        for day in folded.days { days[day] = CountersRow(day) }
        for last in folded.totals { totals[last.app] = CountersRow(app: last.app, day: last.day) }
    }

    package var folded: FoldedDays {
        var folded = FoldedDays()
        folded.days = Array(days.keys)
        folded.totals = totals.map { CounterDay(app: $0.key, day: $0.value.day) }
        return folded
    }

    /// Adds a row of the fold; returns false for any other row.
    package mutating func take(_ row: StoredRow) -> Bool {
        guard let kind = RowKind(rawValue: row.key.ownerHigh) else { return false }
        guard let counters = CountersRow(row.bytes) else { return true }
        switch kind {
        case .day: days[counters.counterDay] = counters
        case .total: totals[counters.app] = counters
        }
        return true
    }

    /// Returns whether unfolded rows of this day are ignored.
    package func contains(_ day: CounterDay) -> Bool {
        if days[day] != nil { return true }
        return totals[day.app].map { day.day <= $0.day } ?? false
    }

    /// All folded counters, for the shard of bucket 0.
    package var rows: [CountersRow] { Array(days.values) + Array(totals.values) }

    /// Returns the next change.
    ///
    /// - Parameters:
    ///   - parts: each shard's sums over its buckets, for days before yesterday.
    ///   - today: the current day.
    ///   - reportDays: the number of days before today that keep their own row.
    /// - Returns: the rows to write, and the rows to remove after the written rows are durable.
    package func change(_ parts: [[CountersRow]], today: UInt32, reportDays: UInt32) -> Change {
        var change = Change()
        var sums: [CounterDay: CountersRow] = [:]
        for part in parts.joined() {
            let day = part.counterDay
            guard !contains(day) else {
                if !change.removed.contains(day) { change.removed.append(day) }
                continue
            }
            guard Int64(part.day) + 2 <= Int64(today) else { continue }
            sums[day, default: CountersRow(day)].add(part)
        }
        for day in sums.keys.sorted(by: Self.isEarlier).prefix(Self.changedDayCount) {
            guard let row = sums[day] else { continue }
            change.days.append(row)
            change.removed.append(day)
        }
        // Only days that an earlier change folded, because a batch must not both write and remove a row.
        let old = days.keys.filter { Int64($0.day) + Int64(reportDays) < Int64(today) }.sorted(by: Self.isEarlier)
        var totals: [AppKey: CountersRow] = [:]
        for day in old.prefix(Self.changedDayCount) {
            guard let row = days[day] else { continue }
            // Reports show vendors' parts only by day, so the parts have no sum. `contains` finds such a day by the app's sum.
            guard day.part == 0 else {
                change.gone.append(day)
                continue
            }
            // The day may be earlier than the sum's last day if the clock was set back.
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
        (left.day, left.app.word, left.part) < (right.day, right.app.word, right.part)
    }

    /// Writes and records a change in one batch of bucket 0.
    ///
    /// No rows may be removed before the batch is durable.
    package mutating func write(_ change: Change, to store: any ShardStore) -> Ticket {
        store.beginBatch(Bucket(0))
        func put(_ row: CountersRow, _ kind: RowKind, item: UInt64) {
            store.putRow(
                Self.key(kind, row.app, item), wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: CountersRow.byteCount
            ) { row.write(into: $0) }
        }
        for row in change.days {
            put(row, .day, item: row.counterDay.item)
            days[row.counterDay] = row
        }
        for row in change.totals {
            put(row, .total, item: 0)
            totals[row.app] = row
        }
        for day in change.gone {
            store.delete(Self.key(.day, day.app, day.item), prior: .maybe(wakeAt: 0))
            days[day] = nil
        }
        return store.endBatch()
    }

    private static func key(_ kind: RowKind, _ app: AppKey, _ item: UInt64) -> StoreKey {
        StoreKey(Bucket(0), .meta, ownerHigh: kind.rawValue, ownerLow: app.word, item: item)
    }
}

/// An app's holdings computed from counters: additions minus removals.
///
/// A value is negative if the additions were counted on another day or in another partition.
struct CountedHoldings: Equatable {
    var messages: Int64 = 0
    /// The sizes of the pending messages, see `QueuedBlocks`.
    var blocks: Int64 = 0
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

/// The counters of a shard's buckets at a start, read row by row.
package struct CounterStart: Sendable {
    /// The folded days; `nil` while they are unknown.
    private let fold: CounterFold?
    let today: UInt32
    /// The rows of today and yesterday; they may still change because a send counts on the day of the message's acceptance.
    private(set) var current: [(bucket: Bucket, row: CountersRow)] = []
    /// The sums of earlier days over all buckets.
    private(set) var sums: [CounterDay: CountersRow] = [:]
    /// The sums of days that may already be folded; ignored until the shard knows the folded days.
    private(set) var withheld: [CounterDay: CountersRow] = [:]
    var knowsFold: Bool { fold != nil }
    /// The days whose folded counters are part of `sums`.
    private(set) var counted: Set<CounterDay> = []
    /// The folded days whose unfolded rows still exist.
    private(set) var folded: Set<CounterDay> = []
    package private(set) var damagedRowCount = 0
    package private(set) var rowCount = 0

    /// - Parameters:
    ///   - now: gateway time.
    ///   - fold: the folded days, without their counters unless `countsFold`; `nil` while unknown (`Shard.learnFold`).
    ///   - countsFold: whether this is the shard that owns bucket 0.
    package init(now: GatewayTime, fold: CounterFold? = CounterFold(), countsFold: Bool = false) {
        (self.fold, today) = (fold, CountersRow.day(of: now))
        guard countsFold, let fold else { return }
        for row in fold.rows {
            sums[row.counterDay, default: Self.blank(row)].add(row)
            counted.insert(row.counterDay)
        }
    }

    static func blank(_ row: CountersRow) -> CountersRow { CountersRow(row.counterDay) }

    /// Adds a row of the table `counters`, valid during the call.
    package mutating func take(_ stored: StoredRow) {
        rowCount += 1
        guard let row = CountersRow(stored.bytes) else {
            damagedRowCount += 1
            return
        }
        let day = row.counterDay
        if row.day &+ 1 >= today {
            current.append((stored.key.bucket, row))
        } else {
            guard let fold else { return withheld[day, default: Self.blank(row)].add(row) }
            if fold.contains(day) { folded.insert(day) } else { sums[day, default: Self.blank(row)].add(row) }
        }
    }

    var holdingsByApp: [AppKey: CountedHoldings] {
        var holdings: [AppKey: CountedHoldings] = [:]
        for entry in current { holdings[entry.row.app, default: CountedHoldings()] += entry.row.holdings }
        for row in sums.values { holdings[row.app, default: CountedHoldings()] += row.holdings }
        return holdings
    }

    package var pending: Int64 {
        var sum: UInt64 = 0
        for entry in current { sum &+= entry.row.accepted &- entry.row.ended }
        for row in sums.values { sum &+= row.accepted &- row.ended }
        return Int64(bitPattern: sum)
    }
}

/// The days that are folded already; shards of other loops get them and ignore the unfolded rows of these days.
package struct FoldedDays: Sendable, Equatable, Codable {
    /// The days with their own sum.
    package var days: [CounterDay] = []
    /// The last day of each app's sum of old days.
    package var totals: [CounterDay] = []
    package init() {}
}
