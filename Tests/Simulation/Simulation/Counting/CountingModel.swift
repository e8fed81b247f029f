internal import Delivery
internal import Wire

/// What the counters' rows say, and what they must say: the messages that became durable, and their durable ends.
struct CountingModel {
    /// By bucket and app, then by day.
    private var rows: [UInt64: [UInt32: CountersRow]] = [:]
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

    /// The sizes of all pending messages of an app.
    func blocks(of app: AppKey) -> Int {
        blocks.reduce(0) { $0 + ($1.key & 0xFFFF_FFFF == app.word & 0xFFFF_FFFF ? $1.value : 0) }
    }

    mutating func end(_ state: FinalState, app: Int) { finals[app][Int(state.rawValue)] += 1 }

    mutating func take(_ row: CountersRow, at place: UInt64) { rows[place, default: [:]][row.day] = row }

    /// accepted = Σ final states + pending, and so the queued bytes, in each bucket of each app, at each commit that counts.
    ///
    /// - Returns: what is wrong; `nil` when nothing is.
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
        guard queued != Int64(blocks[place] ?? 0) else { return nil }
        return "counters say that \(queued) blocks of a bucket are queued, \(blocks[place] ?? 0) are stored"
    }

    /// One of the counts besides acceptances and ends, all buckets, apps and days together.
    func sum(of extra: CountersRow.Extra) -> Int {
        rows.values.reduce(0) { $1.values.reduce($0) { $0 + Int($1.extra[extra]) } }
    }

    /// What is wrong with an app's counters, all buckets and days together.
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

// Counters, held against the messages.
extension Oracle {
    private func place(of record: Record) -> UInt64 {
        CountingModel.place(record.identity.bucket, world.plan.apps[record.identity.app].key)
    }

    func notePending(_ record: Record, _ change: Int) { counting.changePending(at: place(of: record), by: change) }

    /// What a message counts among its app's queued bytes from here on: the charge of its queue, in blocks of 64 bytes.
    func noteQueued(_ record: Record, charge: Int) {
        let blocks = (charge + 63) / 64
        counting.changeBlocks(at: place(of: record), by: blocks - record.durableBlocks)
        record.durableBlocks = blocks
    }

    /// What the shards of a process have in memory is what the disk has: asked where nothing waits to be written.
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
