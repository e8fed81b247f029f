// All devices of an app for which a tag expression is true, bucket by bucket.
//
// Tag rows are in their device's bucket, so a loop answers for its own buckets. For some buckets at a time it reads a
// page of each partition that it needs, and merges them in the order of the cid. Each page is a reader's answer in a
// turn of its own: between two of them the loop does everything else.

internal import Structures
internal import Wire

/// How a walk over tag rows ends.
enum TagWalkEnd {
    case whole, unreadable
    /// It did not begin.
    case tooManyWalks
}

/// One partition of tag rows, page by page.
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
        return .scan(partition: start, rowLimit: Shard.tagPageRowCount, byteLimit: 1 << 20)
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

/// The partitions of one bucket, merged.
private struct BucketMerge {
    let bucket: Bucket
    var lanes: [Lane]

    /// Merges until a page is missing, nothing is left, or the turn has done its share of work.
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

/// A walk under way.
private final class TagWalk {
    let app: AppKey
    let expression: TagExpression
    let stride: Int
    let end: Int
    var nextBucket: Int
    var merges: [BucketMerge] = []
    let visit: (inout Shard, Bucket, [DeviceID]) -> Void
    let finish: (inout Shard, TagWalkEnd) -> Void

    init(
        app: AppKey, expression: TagExpression, first: Int, stride: Int, end: Int,
        visit: @escaping (inout Shard, Bucket, [DeviceID]) -> Void,
        finish: @escaping (inout Shard, TagWalkEnd) -> Void
    ) {
        (self.app, self.expression, self.nextBucket, self.stride, self.end) = (app, expression, first, stride, end)
        (self.visit, self.finish) = (visit, finish)
    }

    func begin(_ bucket: Bucket) -> BucketMerge {
        var owners = expression.tags.map(\.digest)
        if expression.needsRoster { owners.append(0) }
        return BucketMerge(
            bucket: bucket,
            lanes: owners.map { Lane(partition: StoreKey(bucket, .tag, ownerHigh: app.word, ownerLow: $0)) })
    }
}

extension Shard {
    /// Rows of one page, which is a few microseconds' work.
    static var tagPageRowCount: Int { 256 }
    /// Pages asked for at a time: together well below a millisecond.
    private static var tagPageCount: Int { 16 }

    /// Finds the devices of an app for which the expression is true, in every `stride`-th bucket from `first` to `end`.
    ///
    /// `visit` gets them in portions, each of one bucket. `finish` is called once. The walk may see a change during it or
    /// not.
    mutating func walkTags(
        of app: AppKey, where expression: TagExpression, first: Int, stride: Int, end: Int = Bucket.count,
        visit: @escaping (inout Shard, Bucket, [DeviceID]) -> Void,
        finish: @escaping (inout Shard, TagWalkEnd) -> Void
    ) {
        guard !expression.isNever else {
            finish(&self, .whole)
            return
        }
        // Each app may always have one walk: the walks of others do not keep it from asking.
        guard tagWalks.take(app, limit: limits.tagWalks) else {
            finish(&self, .tooManyWalks)
            return
        }
        step(
            TagWalk(app: app, expression: expression, first: first, stride: stride, end: end, visit: visit) {
                shard, end in
                shard.tagWalks.give(back: app)
                finish(&shard, end)
            })
    }

    private mutating func step(_ walk: TagWalk) {
        var asked: [(merge: Int, lane: Int)] = []
        func ask(_ merge: Int) {
            for lane in walk.merges[merge].lanes.indices where walk.merges[merge].lanes[lane].needsPage {
                asked.append((merge, lane))
            }
        }
        for merge in walk.merges.indices { ask(merge) }
        while asked.count < Self.tagPageCount, walk.nextBucket < walk.end {
            walk.merges.append(walk.begin(Bucket(UInt16(walk.nextBucket))))
            walk.nextBucket += walk.stride
            ask(walk.merges.count - 1)
        }
        guard !asked.isEmpty else {
            walk.finish(&self, .whole)
            return
        }
        read(asked.map { walk.merges[$0.merge].lanes[$0.lane].read }) { shard, reply in
            guard reply.failure == nil, reply.results.count == asked.count else {
                walk.finish(&shard, .unreadable)
                return
            }
            for (place, result) in zip(asked, reply.results) {
                guard case .rows(let rows, let isComplete) = result else { continue }
                walk.merges[place.merge].lanes[place.lane].take(rows, isComplete: isComplete)
            }
            shard.merge(walk)
        }
    }

    /// Merges what the readers read, as much as one turn may, then asks for more.
    private mutating func merge(_ walk: TagWalk) {
        var work = limits.tagWalkWork
        for index in walk.merges.indices where work > 0 {
            var found: [DeviceID] = []
            walk.merges[index].merge(walk.expression, into: &found, work: &work)
            if !found.isEmpty { walk.visit(&self, walk.merges[index].bucket, found) }
        }
        guard work > 0 else {
            later { $0.merge(walk) }
            return
        }
        walk.merges.removeAll { merge in merge.lanes.allSatisfy { !$0.needsPage } }
        step(walk)
    }

    /// `DirectoryStep.count`.
    mutating func count(_ command: DirectoryCommand, _ expression: TagExpression, first: Int, stride: Int) {
        let origin = command.origin
        let counted = Counted()
        walkTags(of: command.app, where: expression, first: first, stride: stride) { _, _, found in
            counted.sum += found.count
        } finish: { shard, end in
            shard.reply(origin, end == .whole ? .count(counted.sum) : .failed)
        }
    }

    private final class Counted { var sum = 0 }
}
