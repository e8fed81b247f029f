// A shard's knowledge of cold alarms: for each of its buckets how far they have been reported (the cursor) and when the
// next one is (the watermark). A row that turns cold with an alarm behind the cursor is remembered by itself (late); it
// is rare, since Delivery handles young alarms in its own wheel.
//
// A start knows no watermark and does not wait for them: each bucket is taken for overdue until a reader has looked, some
// buckets at a time, and only then alarms are taken, those of the most overdue bucket first.

internal import Delivery
internal import Wire

struct AlarmClock: ~Copyable {
    /// The watermark of a bucket that nobody has looked into.
    private static let unknown: Int64 = 0

    private let shardCount: Int
    private let shardIndex: Int
    private var watermarks: [Int64]
    private var cursors: [Alarm?]
    /// Cold alarms behind their bucket's cursor, and when each is due.
    private var late: [(alarm: Alarm, at: Int64)] = []
    private(set) var next = Int64.max
    private(set) var groups = AlarmGroups()

    /// Without alarms on the disk (`hasAlarms`) nobody needs to look.
    init(shardIndex: Int, shardCount: Int, hasAlarms: Bool) {
        (self.shardIndex, self.shardCount) = (shardIndex, shardCount)
        let count = Self.buckets(shardIndex: shardIndex, shardCount: shardCount).count
        next = hasAlarms ? Self.unknown : .max
        watermarks = Array(repeating: next, count: count)
        cursors = Array(repeating: nil, count: count)
    }

    static func buckets(shardIndex: Int, shardCount: Int) -> [UInt16] {
        stride(from: shardIndex, to: Bucket.count, by: shardCount).map { UInt16($0) }
    }

    /// A row has turned cold.
    mutating func add(_ alarm: Alarm) {
        let place = Int(alarm.key.bucket.index) / shardCount
        if let cursor = cursors[place], alarm <= cursor {
            late.append((alarm, alarm.wakeAt))
        } else {
            watermarks[place] = min(watermarks[place], alarm.wakeAt)
        }
        next = min(next, alarm.wakeAt)
    }

    /// A row's alarm is due at another time than the row says.
    mutating func postpone(_ alarm: Alarm, until time: Int64) {
        late.append((alarm, time))
        next = min(next, time)
    }

    private func place(of key: StoreKey) -> Int { Int(key.bucket.index) / shardCount }

    /// Takes back an alarm that was reported; it will be reported again with its group.
    mutating func leave(_ alarm: Alarm, in group: AlarmGroup, until: Int64) {
        groups.add(alarm, to: group, place: place(of: alarm.key), until: until)
    }

    mutating func recall(_ group: AlarmGroup, _ bucket: Bucket) {
        groups.recall(group, place: Int(bucket.index) / shardCount)
    }

    /// What to look at for the alarms that are asked for.
    mutating func makeWork(_ request: AlarmRequest) -> ReadOperation.AlarmWork {
        let time = request.time
        var work = ReadOperation.AlarmWork(request: request, scans: [], late: [])
        if let group = request.group {
            // A copy, since the loop below changes the groups.
            let cursors = cursors
            work.scans = groups.scans(request, group) { cursors[$0] }
            return work
        }
        if !late.isEmpty {
            var rest: [(alarm: Alarm, at: Int64)] = []
            for entry in late {
                if entry.at <= time, work.late.count < work.request.limit {
                    work.late.append(entry.alarm)
                } else {
                    rest.append(entry)
                }
            }
            late = rest
        }
        for place in watermarks.indices where watermarks[place] <= time {
            work.scans.append(
                AlarmScan(
                    place: place, bucket: UInt16(place * shardCount + shardIndex), cursor: cursors[place],
                    bound: nil, isFirstLook: watermarks[place] == Self.unknown))
        }
        // Earliest first: with a limit, the most overdue buckets must not wait for the others.
        work.scans.sort { watermarks[$0.place] < watermarks[$1.place] }
        if work.scans.count > Limits.bucketsPerAlarmRead {
            work.scans.removeLast(work.scans.count - Limits.bucketsPerAlarmRead)
        }
        return work
    }

    /// What a reader found, or found before something could not be read.
    ///
    /// The bucket in which that was is asked again later, or no other would get its turn.
    mutating func finish(_ work: ReadOperation.AlarmWork) {
        if let group = work.request.group {
            groups.finish(work, group)
            return
        }
        // Those that the reader did not come to are still due.
        late.append(contentsOf: work.late.map { ($0, $0.wakeAt) })
        for (alarm, pause) in work.lateAside { late.append((alarm, work.request.time + pause)) }
        for (index, scan) in work.scans.enumerated()
        where scan.wasRead || scan.aside != nil || index == work.underWay {
            cursors[scan.place] = scan.cursor
            watermarks[scan.place] =
                scan.wasRead
                ? scan.nextAlarm : work.request.time + (scan.aside ?? Limits.alarmRetryMilliseconds)
        }
        recompute()
    }

    private mutating func recompute() {
        next = min(watermarks.min() ?? .max, late.map(\.at).min() ?? .max)
    }
}
