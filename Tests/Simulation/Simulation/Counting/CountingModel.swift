internal import Delivery
internal import Wire

/// The content of the counter rows, and the expected content: the durable messages and their durable final states.
struct CountingModel {
    /// The rows of whole days, by bucket and app, then by day.
    private var rows: [UInt64: [UInt32: CountersRow]] = [:]
    /// The rows of single vendors, by bucket and app, then by day and vendor.
    private var parts: [UInt64: [CounterDay: CountersRow]] = [:]
    private var pending: [UInt64: Int] = [:]
    /// The sizes of the pending messages, in blocks.
    private var blocks: [UInt64: Int] = [:]
    /// By app.
    private var accepted = [0, 0]
    private var finals = [[Int]](repeating: [Int](repeating: 0, count: 10), count: 2)

    static func place(_ bucket: Bucket, _ app: AppKey) -> UInt64 { UInt64(bucket.index) << 32 | app.word }

    mutating func accept(app: Int) { accepted[app] += 1 }

    mutating func changePending(at place: UInt64, by change: Int) { pending[place, default: 0] += change }
    mutating func changeBlocks(at place: UInt64, by change: Int) { blocks[place, default: 0] += change }

    /// Returns the sizes of all pending messages of an app.
    func blocks(of app: AppKey) -> Int {
        blocks.reduce(0) { $0 + ($1.key & 0xFFFF_FFFF == app.word & 0xFFFF_FFFF ? $1.value : 0) }
    }

    mutating func end(_ state: FinalState, app: Int) { finals[app][Int(state.rawValue)] += 1 }

    mutating func take(_ row: CountersRow, at place: UInt64) {
        guard row.part != 0 else { return rows[place, default: [:]][row.day] = row }
        parts[place, default: [:]][row.counterDay] = row
    }

    /// Checks accepted = Σ final states + pending, and the queued bytes, per bucket and app at each commit with counters.
    ///
    /// - Returns: the violation, or `nil`.
    func fault(at place: UInt64) -> String? {
        var open: Int64 = 0
        for (_, row) in rows[place] ?? [:] { open += Int64(bitPattern: row.accepted &- row.ended) }
        if open != Int64(pending[place] ?? 0) {
            return "counters say that \(open) messages of a bucket are pending, \(pending[place] ?? 0) are stored"
        }
        var queued: Int64 = 0
        for (_, row) in rows[place] ?? [:] {
            queued += Int64(row.extra[.acceptedBlocks]) - Int64(row.extra[.endedBlocks])
        }
        guard queued == Int64(blocks[place] ?? 0) else {
            return "counters say that \(queued) blocks of a bucket are queued, \(blocks[place] ?? 0) are stored"
        }
        return vendorFault(at: place)
    }

    /// Checks that vendors' rows count only alerts, and together not more alerts than the day's row.
    private func vendorFault(at place: UInt64) -> String? {
        var alerted: [UInt32: UInt64] = [:]
        for (day, row) in parts[place] ?? [:] {
            alerted[day.day, default: 0] += UInt64(row.extra[.alerted])
            if row.accepted != 0 || row.ended != 0 { return "a vendor's row of day \(day.day) counts messages" }
        }
        for (day, count) in alerted where count > UInt64(rows[place]?[day]?.extra[.alerted] ?? 0) {
            return "\(count) alerts of day \(day) are counted by vendor, more than in the day's row"
        }
        return nil
    }

    func sum(of extra: CountersRow.Extra) -> Int {
        rows.values.reduce(0) { $1.values.reduce($0) { $0 + Int($1.extra[extra]) } }
    }

    /// Returns the first error in an app's counters over all buckets and days.
    func fault(ofApp index: Int, _ app: AppKey) -> String? {
        var counted: UInt64 = 0
        var sums = [UInt64](repeating: 0, count: 10)
        for (_, days) in rows {
            for (_, row) in days where row.app == app {
                counted += row.accepted
                for state in FinalState.allCases { sums[Int(state.rawValue)] += row[state] }
            }
        }
        if counted != UInt64(accepted[index]) {
            return "\(counted) were counted as accepted, \(accepted[index]) were stored"
        }
        for state in FinalState.allCases where sums[Int(state.rawValue)] != UInt64(finals[index][Int(state.rawValue)]) {
            return "\(sums[Int(state.rawValue)]) were counted as \(state)"
        }
        return nil
    }
}

extension Oracle {
    private func place(of record: Record) -> UInt64 {
        CountingModel.place(record.identity.bucket, world.plan.apps[record.identity.app].key)
    }

    func notePending(_ record: Record, _ change: Int) { counting.changePending(at: place(of: record), by: change) }

    /// Records the message's share of its app's queued bytes: its queue charge in blocks of 64 bytes.
    func noteQueued(_ record: Record, charge: Int) {
        let blocks = (charge + 63) / 64
        counting.changeBlocks(at: place(of: record), by: blocks - record.durableBlocks)
        record.durableBlocks = blocks
    }

    /// Checks that the shards' queued bytes in memory equal those on disk; called when no write is pending.
    func checkQueuedBytes() {
        for app in world.plan.apps {
            let told = world.loops.reduce(0) { $0 + $1.shard.statistics(of: [app.key])[0].queuedBytes }
            let stored = 64 * counting.blocks(of: app.key)
            if told != Int64(stored) {
                fail(.books, "the loops have \(told) bytes queued of app \(app.key.word), \(stored) are stored")
            }
        }
    }

    func countersBecameDurable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ batch: inout DurableBatch) {
        guard let row = CountersRow(bytes) else { return }
        let place = CountingModel.place(key.bucket, row.app)
        counting.take(row, at: place)
        batch.counted = place
    }

    func checkCounters(_ batch: DurableBatch) {
        if let place = batch.counted, let text = counting.fault(at: place) { fail(.books, text) }
    }

    func checkTotals() {
        for (index, app) in world.plan.apps.enumerated() {
            if let text = counting.fault(ofApp: index, app.key) { fail(.books, text) }
        }
    }
}
