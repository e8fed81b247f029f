import TestKit
import Testing
import Wire

@testable import Delivery

/// Past days are folded into one row per app and day, and later into one per app, without loss or double counting.
@Suite("The folding of past days' counters")
struct CounterFoldTests {
    private static let bucketCount = 12
    private static let firstDay: UInt32 = 20_000
    private static let reportDays: UInt32 = 90
    private static let apps = (1...10).map { AppKey(UInt64($0) * 1_000) }

    private static let settings = apps.map { AppSettings(key: $0, appID: "", apnsTopic: "") }

    private static func noon(_ day: UInt32) -> GatewayTime { Int64(day) * 86_400_000 + 43_200_000 }

    /// The counters of a gateway of several loops over one store.
    private struct Process {
        var fold = CounterFold()
        var shards: [Box] = []
        var rowCount = 0

        final class Box {
            var shard: Shard
            let share: LoopShare
            init(_ shard: consuming Shard, _ share: LoopShare) {
                self.shard = shard
                self.share = share
            }
        }

        init(_ store: MemoryShardStore, day: UInt32, loopCount: Int, apps: [AppSettings] = []) {
            store.crash()
            var (fold, rowCount) = (CounterFold(), 0)
            store.loadAll(table: .meta) {
                rowCount += 1
                _ = fold.take($0)
            }
            for index in 0..<loopCount {
                let share = LoopShare(index: index, count: loopCount, bucketCount: CounterFoldTests.bucketCount)
                var start = CounterStart(now: noon(day), fold: fold, countsFold: index == 0)
                store.loadAll(table: .counters) { if $0.key.bucket.loop(of: loopCount) == index { start.take($0) } }
                rowCount += start.rowCount
                let shard = Shard(
                    limits: ShardLimits(), apps: apps, store: store, verifier: SecretAsProof(),
                    encoder: TestFrames(), queueEpoch: 7, counters: start, now: noon(day))
                shards.append(Box(shard, share))
            }
            (self.fold, self.rowCount) = (fold, rowCount)
        }

        var pending: Int { shards.reduce(0) { $0 + Int($1.shard.statistics.pending) } }
        /// The same number from the per-app counters.
        var queued: Int { sum { $0.queuedMessages } }
        var queuedBytes: Int { sum { $0.queuedBytes } }
        var devices: Int { retained { $0.devices } }
        func recent(on day: UInt32) -> Int { retained { $0.recentMessages(on: day) } }

        private func retained(_ figure: (RetainedBytes) -> Int64) -> Int {
            shards.reduce(0) { sum, box in box.shard.apps.retained.reduce(sum) { $0 + Int(figure($1)) } }
        }

        private func sum(_ figure: (AppStatistics) -> Int64) -> Int {
            shards.reduce(0) { sum, box in
                box.shard.statistics(of: CounterFoldTests.apps).reduce(sum) { $0 + Int(figure($1)) }
            }
        }

        func totals(_ app: AppKey, _ day: UInt32) -> DayTotals {
            var sum = DayTotals()
            for box in shards { sum.add(box.shard.counters.totals(of: app, day: day)) }
            return sum
        }
    }

    private struct Books {
        var accepted: [CounterDay: Int] = [:]
        var registered: [CounterDay: Int] = [:]
        var pending = 0
        var blocks = 0
        var devices: Int { registered.values.reduce(0, +) }
        /// Returns the messages of this day and the previous one.
        func recent(on day: UInt32) -> Int {
            accepted.reduce(0) { $0 + ($1.key.day == day || $1.key.day + 1 == day ? $1.value : 0) }
        }
    }

    private func count(
        _ store: MemoryShardStore, _ day: UInt32, _ books: inout Books, _ random: inout SeededGenerator
    ) {
        for app in Self.apps {
            let key = CounterDay(app: app, day: day)
            for bucket in 0..<UInt16(Self.bucketCount) where Int.random(in: 0..<4, using: &random) > 0 {
                var row = CountersRow(app: app, day: day)
                row.accepted = UInt64.random(in: 1...9, using: &random)
                row.finals[0] = UInt64.random(in: 0...row.accepted, using: &random)
                row.extra[.registered] = UInt32.random(in: 0...2, using: &random)
                // Near the end of 32 bits both counters wrap, here and in sums.
                row.extra[.acceptedBlocks] = UInt32.random(in: 0...(1 << 20), using: &random)
                row.extra[.endedBlocks] = UInt32.random(in: 0...(1 << 20), using: &random)
                books.blocks += Int(row.extra[.acceptedBlocks]) - Int(row.extra[.endedBlocks])
                if Bool.random(using: &random) {
                    row.extra[.acceptedBlocks] &-= 1 << 31
                    row.extra[.endedBlocks] &-= 1 << 31
                }
                store.beginBatch(Bucket(bucket))
                store.put(
                    CountersRow.key(Bucket(bucket), app: app, day: day), wakeAt: 0, prior: .maybe(wakeAt: 0),
                    byteCount: CountersRow.byteCount
                ) { row.write(into: $0) }
                _ = store.endBatch()
                books.accepted[key, default: 0] += Int(row.accepted)
                books.registered[key, default: 0] += Int(row.extra[.registered])
                books.pending += Int(row.accepted) - Int(row.finals[0])
            }
        }
        store.sync()
    }

    /// Folds as the gateway does on the loop of bucket 0; returns false if the end of the process interrupted it.
    private func fold(
        _ process: inout Process, _ store: MemoryShardStore, _ day: UInt32, _ random: inout SeededGenerator
    ) -> Bool {
        let parts = process.shards.map { $0.shard.counters.foldable(today: day) }
        let change = process.fold.change(parts, today: day, reportDays: Self.reportDays)
        if !change.isEmpty {
            _ = process.fold.write(change, to: store)
            if Int.random(in: 0..<5, using: &random) == 0 { return false }
            store.sync()
        }
        for box in process.shards {
            if Int.random(in: 0..<8, using: &random) == 0 { return false }
            box.shard.counters.remove(change.removed, from: box.share.buckets, now: box.shard.now)
        }
        for second in 1...3 {
            for box in process.shards { box.shard.advance(to: Self.noon(day) + Int64(second) * 1_000) }
            if Int.random(in: 0..<6, using: &random) == 0 { return false }
            store.sync()
        }
        return true
    }

    @Test("after a year of ten apps with crashes at every step, all reports and pending counts are correct")
    func year() {
        var random = SeededGenerator(seed: 11)
        let store = MemoryShardStore()
        var books = Books()
        var mostRows = 0
        for day in Self.firstDay..<Self.firstDay + 365 {
            for _ in 0..<2 {
                var process = Process(
                    store, day: day, loopCount: Int.random(in: 1...3, using: &random), apps: Self.settings)
                mostRows = max(mostRows, process.rowCount)
                #expect(process.pending == books.pending, "day \(day)")
                if fold(&process, store, day, &random) { _ = fold(&process, store, day, &random) }
                #expect(process.pending == books.pending, "day \(day), after folding")
                #expect(process.queuedBytes == 64 * books.blocks, "day \(day), after folding")
                #expect(process.devices == books.devices, "day \(day), after folding")
                #expect(process.recent(on: day) == books.recent(on: day), "day \(day), after folding")
                let app = Self.apps[Int(day) % Self.apps.count]
                for back in [0, 1, 2, 3, 45, 89] where day >= Self.firstDay + UInt32(back) {
                    let asked = CounterDay(app: app, day: day - UInt32(back))
                    let totals = process.totals(app, asked.day)
                    #expect(totals.messages.accepted == books.accepted[asked] ?? 0, "day \(day) - \(back)")
                    #expect(totals.registered == books.registered[asked] ?? 0)
                    var accumulated = 0
                    for (key, count) in books.registered where key.app == app && key.day <= asked.day {
                        accumulated += count
                    }
                    #expect(totals.accumulated == accumulated)
                }
            }
            count(store, day, &books, &random)
        }
        // Today, yesterday, the day before, and some days that crashes left; folded days and one total per app.
        let bound = Self.apps.count * (6 * Self.bucketCount + Int(Self.reportDays) + 4)
        #expect(mostRows <= bound, "\(mostRows) rows at a start")
        #expect(mostRows > Self.apps.count * Int(Self.reportDays))
        #expect(store.violations.isEmpty)
    }

    @Test("a year without folding is folded in steps, and a start keeps sums of it, not rows")
    func wholeYear() {
        var random = SeededGenerator(seed: 12)
        let store = MemoryShardStore()
        var books = Books()
        for day in Self.firstDay..<Self.firstDay + 365 { count(store, day, &books, &random) }
        let today = Self.firstDay + 365
        var rounds = 0
        while rounds < 60 {
            var process = Process(store, day: today, loopCount: 2)
            #expect(process.pending == books.pending)
            _ = fold(&process, store, today, &random)
            rounds += 1
        }
        let process = Process(store, day: today, loopCount: 1)
        #expect(process.pending == books.pending)
        #expect(process.fold.days.count == Self.apps.count * 89 && process.fold.totals.count == Self.apps.count)
        #expect(process.rowCount <= Self.apps.count * (2 * Self.bucketCount + 91))
        for back in 1...90 {
            let asked = CounterDay(app: Self.apps[back % 10], day: today - UInt32(back))
            #expect(process.totals(asked.app, asked.day).messages.accepted == books.accepted[asked] ?? 0)
        }
    }

    @Test("a shard that does not know the folded days reports no counts; then each day counts once")
    func unknownFold() throws {
        var random = SeededGenerator(seed: 12)
        let store = MemoryShardStore()
        var books = Books()
        let harness = DeliveryHarness()
        let last = CountersRow.day(of: harness.now)
        let first = last - 6
        for day in first...last { count(store, day, &books, &random) }
        // Two days are folded, and their rows still exist.
        var process = Process(store, day: first + 3, loopCount: 1)
        let change = process.fold.change(
            process.shards.map { $0.shard.counters.foldable(today: first + 3) }, today: first + 3,
            reportDays: Self.reportDays)
        _ = process.fold.write(change, to: store)
        store.sync()
        #expect(Set(change.days.map(\.day)) == [first, first + 1])

        var start = CounterStart(now: harness.now, fold: nil)
        store.loadAll(table: .counters) { start.take($0) }
        harness.shard = Shard(
            limits: harness.limits, apps: harness.apps + Self.settings, store: store, verifier: SecretAsProof(),
            encoder: TestFrames(), queueEpoch: 7, counters: start, now: harness.now)
        let world = BroadcastHarness(harness)
        let isSilent =
            harness.isBusy(DayQuery(Self.apps[0], day: last)) && harness.isBusy(FoldableQuery(today: last))
        #expect(isSilent, "a count without the days that may be folded")
        harness.shard.learnFold(process.fold.folded, now: harness.now)
        // Requested twice, because two answers may arrive.
        harness.shard.learnFold(process.fold.folded, now: harness.now)
        var folded = 0
        for app in Self.apps {
            for day in first...last {
                guard let totals = world.ask(DayQuery(app, day: day)) else {
                    Issue.record("no counts")
                    continue
                }
                let isFolded = day < first + 2
                let expected = books.accepted[CounterDay(app: app, day: day)] ?? 0
                #expect(totals.messages.accepted == (isFolded ? 0 : expected), "day \(day)")
            }
            folded += process.fold.rows.filter { $0.app == app }.reduce(0) { $0 + Int($1.accepted) - Int($1.ended) }
        }
        #expect(Int(harness.statistics.pending) == books.pending - folded)
        let queued = harness.shard.statistics(of: Self.apps).reduce(0) { $0 + Int($1.queuedMessages) }
        #expect(queued == books.pending - folded)
        // The rows of folded days are given as zeros, so that they are removed.
        guard let rows = world.ask(FoldableQuery(today: last)) else {
            Issue.record("nothing to fold")
            return
        }
        #expect(rows.filter { $0.day < first + 2 }.allSatisfy { $0.accepted == 0 })
        #expect(Set(rows.map(\.day)) == Set(first...last - 2))
    }

    @Test("a vendor's counts are folded beside their app's day, and dropped with it after the reports")
    func parts() {
        let store = MemoryShardStore()
        var fold = CounterFold()
        var own = CountersRow(app: Self.apps[0], day: 10)
        own.accepted = 5
        var part = CountersRow(app: Self.apps[0], day: 10, part: 3)
        part.extra[.alerted] = 2
        let change = fold.change([[own, part], [part]], today: 12, reportDays: 3)
        #expect(change.days.count == 2 && Set(change.removed) == [own.counterDay, part.counterDay])
        #expect(change.days.first { $0.part == 3 }?.extra[.alerted] == 4)
        _ = fold.write(change, to: store)
        store.sync()
        var read = CounterFold()
        store.loadAll(table: .meta) { _ = read.take($0) }
        #expect(read == fold && fold.contains(part.counterDay))
        let later = fold.change([], today: 20, reportDays: 3)
        #expect(later.totals.map(\.part) == [0] && Set(later.gone) == [own.counterDay, part.counterDay])
        _ = fold.write(later, to: store)
        // Rows that a removal left behind are still ignored.
        #expect(fold.contains(part.counterDay) && fold.rows == later.totals)
        #expect(fold.change([[part]], today: 20, reportDays: 3).removed == [part.counterDay])
    }

    @Test("a fold that is the day's first command counts no day in memory twice")
    func foldBeforeTheFirstTimer() throws {
        var random = SeededGenerator(seed: 17)
        let store = MemoryShardStore()
        var books = Books()
        let today = Self.firstDay + 3
        for day in Self.firstDay..<today { count(store, day, &books, &random) }
        let yesterday = Process(store, day: today - 1, loopCount: 2, apps: Self.settings)
        func check(_ when: String) {
            #expect(yesterday.queued == books.pending && yesterday.devices == books.devices, "\(when)")
            for day in Self.firstDay..<today {
                let sum = Self.apps.reduce(0) { $0 + yesterday.totals($1, day).messages.accepted }
                let counted = books.accepted.reduce(0) { $0 + ($1.key.day == day ? $1.value : 0) }
                #expect(sum == counted, "\(when), day \(day)")
            }
        }
        check("at first")
        // Two days later a constantly busy loop gets the request before its timer runs.
        let later = Self.noon(today + 1)
        for box in yesterday.shards {
            box.shard.ask(FoldableQuery(today: today + 1), origin: .none, now: later)
        }
        var process = yesterday
        let change = process.fold.change(
            process.shards.map { $0.shard.counters.foldable(today: today + 1) }, today: today + 1,
            reportDays: Self.reportDays)
        #expect(change.days.contains { $0.day == today - 1 })
        _ = process.fold.write(change, to: store)
        store.sync()
        process.shards[0].shard.takeFold(change.days, now: later)
        for box in process.shards {
            box.shard.ask(RemoveCounters(change.removed, box.share, isCounted: true), origin: .none, now: later)
        }
        for box in process.shards { box.shard.advance(to: later + 1_000) }
        check("after the fold, and the timer")
    }

    @Test("in a cluster a folded day counts once, whichever shards start before and after it")
    func foldOfCluster() throws {
        var random = SeededGenerator(seed: 13)
        let store = MemoryShardStore()
        var books = Books()
        let today = Self.firstDay + 4
        for day in Self.firstDay...today { count(store, day, &books, &random) }
        func check(_ process: Process, _ when: String) {
            #expect(process.pending == books.pending, "\(when)")
            #expect(process.queued == books.pending, "\(when)")
            #expect(process.queuedBytes == 64 * books.blocks, "\(when)")
            #expect(process.devices == books.devices && process.recent(on: today) == books.recent(on: today), "\(when)")
            for app in Self.apps {
                for day in Self.firstDay...today {
                    let expected = books.accepted[CounterDay(app: app, day: day)] ?? 0
                    #expect(process.totals(app, day).messages.accepted == expected, "\(when), day \(day)")
                }
            }
        }
        var process = Process(store, day: today, loopCount: 3, apps: Self.settings)
        check(process, "at first")
        let change = process.fold.change(
            process.shards.map { $0.shard.counters.foldable(today: today) }, today: today,
            reportDays: Self.reportDays)
        _ = process.fold.write(change, to: store)
        store.sync()
        process.shards[0].shard.takeFold(change.days, now: Self.noon(today))
        for box in process.shards {
            box.shard.ask(
                RemoveCounters(change.removed, box.share, isCounted: true), origin: .none, now: Self.noon(today))
        }
        check(process, "folded")
        // A partition moves, and its new shard knows that these days are folded.
        let moved = Process(store, day: today, loopCount: 3, apps: Self.settings)
        process.shards[1] = moved.shards[1]
        check(process, "a part has moved")
        // Part 0 moves, and its new shard counts the folded sums.
        process.shards[0] = moved.shards[0]
        check(process, "part 0 has moved")
        let again = process.fold.change(
            process.shards.map { $0.shard.counters.foldable(today: today) }, today: today,
            reportDays: Self.reportDays)
        #expect(again.days.isEmpty)
    }
}
