// Overdue alarms of jobs that their app has no room for (`AlarmGroup`). Each group and bucket stores only its first alarm, so
// memory grows with apps and buckets rather than with rows. A later scan reads the bucket from that alarm to the bucket's cursor
// and skips the rows of other groups.

internal import Delivery
internal import Wire

struct AlarmGroups: ~Copyable {
    private struct Entry {
        var first: Alarm
        /// The time from which a scan reads the alarms; an eager request (`AlarmRequest.isEager`) reads them earlier.
        var until: Int64
        var isBeingRead = false
        var isRecalled = false
        /// The first of the alarms that the scan from `first` may miss, for the scan after it.
        var next: (first: Alarm, until: Int64)?

        /// The time of the next scan; a scan that finds nothing replaces the entry with `next`.
        var due: Int64 { min(until, next?.until ?? .max) }

        mutating func add(_ alarm: Alarm, until time: Int64) {
            if isBeingRead || alarm < first {
                next = (min(next?.first ?? alarm, alarm), min(next?.until ?? time, time))
            } else {
                (first, until) = (min(first, alarm), min(until, time))
            }
        }
    }

    private var groups: [AlarmGroup: [Int: Entry]] = [:]
    private var earliest: [AlarmGroup: Int64] = [:]
    private(set) var names: [AlarmGroup] = []

    func next(of group: AlarmGroup) -> Int64 { names.isEmpty ? .max : earliest[group] ?? .max }

    mutating func add(_ alarm: Alarm, to group: AlarmGroup, place: Int, until: Int64) {
        if groups[group] == nil { names.append(group) }
        groups[group, default: [:]][place, default: Entry(first: alarm, until: until)]
            .add(alarm, until: until)
        earliest[group] = min(earliest[group] ?? .max, until)
    }

    /// Makes the group's alarms of a bucket due immediately.
    mutating func recall(_ group: AlarmGroup, place: Int) {
        guard groups[group]?[place] != nil else { return }
        groups[group]?[place]?.until = 0
        groups[group]?[place]?.next?.until = 0
        groups[group]?[place]?.isRecalled = true
        earliest[group] = 0
    }

    /// Returns the scans to perform, oldest first.
    mutating func scans(_ request: AlarmRequest, _ group: AlarmGroup, bound: (Int) -> Alarm?) -> [AlarmScan] {
        guard var entries = groups[group] else { return [] }
        groups[group] = nil
        var places = entries.filter { $0.value.due <= request.time || request.isEager }
            .map { (place: $0.key, first: $0.value.first) }
        places.sort { $0.first < $1.first }
        if places.count > Limits.bucketsPerAlarmRead { places.removeLast(places.count - Limits.bucketsPerAlarmRead) }
        let scans = places.map { place, first in
            entries[place]?.isBeingRead = true
            entries[place]?.isRecalled = false
            return AlarmScan(
                place: place, bucket: first.key.bucket.index, cursor: first, bound: bound(place), isFirstLook: false)
        }
        groups[group] = entries
        return scans
    }

    mutating func finish(_ work: ReadOperation.AlarmWork, _ group: AlarmGroup) {
        var entries: [Int: Entry] = [:]
        swap(&entries, &groups[group, default: [:]])
        for (index, scan) in work.scans.enumerated() {
            guard var entry = entries[scan.place] else { continue }
            if scan.wasRead, let left = scan.left { entry.add(left.first, until: left.until) }
            entry.isBeingRead = false
            let next = entry.next
            entry.next = nil
            if !scan.wasRead {
                if index == work.underWay || scan.aside != nil {
                    entry.until = work.request.time + (scan.aside ?? Limits.alarmRetryMilliseconds)
                }
            } else if let rest = scan.rest {
                (entry.first, entry.until) = (rest, scan.nextAlarm)
            } else if let next {
                (entry.first, entry.until) = next
                if entry.isRecalled { entry.until = 0 }
                entries[scan.place] = entry
                continue
            } else {
                entries[scan.place] = nil
                continue
            }
            if let next { entry.add(next.first, until: next.until) }
            if entry.isRecalled { entry.until = 0 }
            entries[scan.place] = entry
        }
        earliest[group] = entries.isEmpty ? nil : entries.values.reduce(Int64.max) { min($0, $1.due) }
        groups[group] = entries.isEmpty ? nil : entries
        if entries.isEmpty { names.removeAll { $0 == group } }
    }
}
