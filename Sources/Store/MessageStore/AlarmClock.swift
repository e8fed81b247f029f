// A shard's state of cold alarms. For each bucket it has a cursor (the last reported alarm) and a watermark (the time of the next
// alarm). A row may become cold with an alarm that sorts before the cursor. Such late alarms are stored individually. They are
// rare, because Delivery handles young alarms in a timer wheel.
//
// At a start the watermarks are unknown. Each bucket counts as overdue until a reader has looked up its first alarm, some buckets
// at a time. Alarms are then taken from the most overdue bucket first.

internal import Delivery
internal import Wire

struct AlarmClock: ~Copyable {
    /// The watermark of a bucket that was not read yet.
    private static let unknown: Int64 = 0

    private let shardCount: Int
    private let shardIndex: Int
    private var watermarks: [Int64]
    private var cursors: [Alarm?]
    private var late: [(alarm: Alarm, at: Int64)] = []
    private(set) var next = Int64.max
    private(set) var groups = AlarmGroups()

    /// Creates the clock; without alarms on disk (`hasAlarms`), no bucket has to be read.
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

    mutating func add(_ alarm: Alarm) {
        let place = Int(alarm.key.bucket.index) / shardCount
        if let cursor = cursors[place], alarm <= cursor {
            late.append((alarm, alarm.wakeAt))
        } else {
            watermarks[place] = min(watermarks[place], alarm.wakeAt)
        }
        next = min(next, alarm.wakeAt)
    }

    mutating func postpone(_ alarm: Alarm, until time: Int64) {
        late.append((alarm, time))
        next = min(next, time)
    }

    private func place(of key: StoreKey) -> Int { Int(key.bucket.index) / shardCount }

    /// Adds an alarm to a group of jobs without room in memory; the alarm is read again with its group.
    mutating func leave(_ alarm: Alarm, in group: AlarmGroup, until: Int64) {
        groups.add(alarm, to: group, place: place(of: alarm.key), until: until)
    }

    mutating func recall(_ group: AlarmGroup, _ bucket: Bucket) {
        groups.recall(group, place: Int(bucket.index) / shardCount)
    }

    mutating func makeWork(_ request: AlarmRequest) -> ReadOperation.AlarmWork {
        let time = request.time
        var work = ReadOperation.AlarmWork(request: request, scans: [], late: [])
        if let group = request.group {
            // Copied, because `scans` mutates the groups while the closure reads the cursors.
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
        // Earliest first, so that a limit does not delay the most overdue buckets.
        work.scans.sort { watermarks[$0.place] < watermarks[$1.place] }
        if work.scans.count > Limits.bucketsPerAlarmRead {
            work.scans.removeLast(work.scans.count - Limits.bucketsPerAlarmRead)
        }
        return work
    }

    /// Applies a reader's results, including the partial results of a failed read.
    ///
    /// A bucket that could not be read is retried later, so that other buckets get their turn.
    mutating func finish(_ work: ReadOperation.AlarmWork) {
        if let group = work.request.group {
            groups.finish(work, group)
            return
        }
        // Late alarms that the reader did not reach are still due.
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
