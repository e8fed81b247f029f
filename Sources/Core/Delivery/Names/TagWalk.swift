// A walk over all devices of an app that satisfy a tag expression, bucket by bucket.
//
// Tag rows are in their device's bucket, so a loop answers for its own buckets. The walk reads a page of each needed partition,
// for a few buckets at a time, and merges the pages in cid order. Each page arrives in a separate turn, so other work can run in
// between.

internal import Wire

private struct Lane {
    let partition: StoreKey
    var devices: [DeviceID] = []
    var place = 0
    var next: UInt64 = 0
    var isComplete = false

    var needsPage: Bool { place == devices.count && !isComplete }
    var read: StoreRead {
        var start = partition
        start.item = next
        return .scan(partition: start, rowLimit: TagWalk.pageRowCount, byteLimit: 1 << 20)
    }

    mutating func take(_ rows: [StoredRow], isComplete ends: Bool) {
        devices.removeAll(keepingCapacity: true)
        place = 0
        for row in rows {
            var reader = RowReader(row.bytes)
            guard let high = reader.next(UInt64.self), reader.isAtEnd else { continue }
            devices.append(DeviceID(high: high, low: row.key.item))
        }
        let last = rows.last?.key.item
        isComplete = ends || last == nil || last == .max
        next = (last ?? 0) &+ 1
    }
}

private struct BucketMerge {
    let bucket: Bucket
    var lanes: [Lane]

    /// Merges until a page is missing, no rows are left, or the work limit is reached.
    mutating func merge(_ expression: TagExpression, into found: inout [DeviceID], work: inout Int) {
        let cost = expression.work
        while work > 0 {
            var lowest: DeviceID?
            for lane in lanes {
                if lane.needsPage { return }
                guard lane.place < lane.devices.count else { continue }
                let head = lane.devices[lane.place]
                if lowest.map({ (head.low, head.high) < ($0.low, $0.high) }) ?? true { lowest = head }
            }
            guard let lowest else { return }
            work -= cost
            var present: UInt64 = 0
            for index in lanes.indices {
                let place = lanes[index].place
                guard place < lanes[index].devices.count, lanes[index].devices[place] == lowest else { continue }
                present |= 1 << UInt64(index)
                lanes[index].place += 1
            }
            if expression.isTrue(present) { found.append(lowest) }
        }
    }
}

/// A running walk: it lists the next reads, takes the pages, and finds devices in them.
final class TagWalk {
    /// The rows of one page: a few microseconds of work.
    static let pageRowCount = 256
    /// The pages requested at a time: well below a millisecond of work.
    private static let pageCount = 16

    let app: AppKey
    private let expression: TagExpression
    private let stride: Int
    private let end: Int
    private var nextBucket: Int
    private var merges: [BucketMerge] = []
    private var asked: [(merge: Int, lane: Int)] = []

    /// Creates a walk over every `stride`-th bucket from `first` to `end`.
    init(of app: AppKey, where expression: TagExpression, first: Int, stride: Int, end: Int) {
        (self.app, self.expression, self.nextBucket, self.stride, self.end) = (app, expression, first, stride, end)
    }

    /// Returns the next reads; empty at the end of the walk.
    func nextReads() -> [StoreRead] {
        asked = []
        for merge in merges.indices { ask(merge) }
        while asked.count < Self.pageCount, nextBucket < end {
            merges.append(begin(Bucket(UInt16(nextBucket))))
            nextBucket += stride
            ask(merges.count - 1)
        }
        return asked.map { merges[$0.merge].lanes[$0.lane].read }
    }

    /// Adds the pages of a reply; returns false if they could not be read.
    func take(_ reply: StoreReply) -> Bool {
        guard reply.failure == nil, reply.results.count == asked.count else { return false }
        for (place, result) in zip(asked, reply.results) {
            guard case .rows(let rows, let isComplete) = result else { continue }
            merges[place.merge].lanes[place.lane].take(rows, isComplete: isComplete)
        }
        return true
    }

    /// Finds devices in the pages, up to the work limit of a turn.
    ///
    /// - Returns: portions of one bucket each; `isDone` is false if a later turn must continue.
    func merge(work limit: Int) -> (found: [(bucket: Bucket, devices: [DeviceID])], isDone: Bool) {
        var work = limit
        var portions: [(bucket: Bucket, devices: [DeviceID])] = []
        for index in merges.indices where work > 0 {
            var found: [DeviceID] = []
            merges[index].merge(expression, into: &found, work: &work)
            if !found.isEmpty { portions.append((merges[index].bucket, found)) }
        }
        guard work > 0 else { return (portions, false) }
        merges.removeAll { merge in merge.lanes.allSatisfy { !$0.needsPage } }
        return (portions, true)
    }

    private func ask(_ merge: Int) {
        for lane in merges[merge].lanes.indices where merges[merge].lanes[lane].needsPage {
            asked.append((merge, lane))
        }
    }

    private func begin(_ bucket: Bucket) -> BucketMerge {
        var owners = expression.tags.map(\.digest)
        if expression.needsRoster { owners.append(0) }
        return BucketMerge(
            bucket: bucket,
            lanes: owners.map { Lane(partition: StoreKey(bucket, .tag, ownerHigh: app.word, ownerLow: $0)) })
    }
}
