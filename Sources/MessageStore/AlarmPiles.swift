// Where the alarms lie that the clock has passed without telling them: for each pile and bucket the first one, so the
// memory follows from apps and buckets, not from rows. Looking again means reading the bucket from there up to the
// bucket's cursor; what else stands in between is passed.

internal import Delivery
internal import Wire

struct AlarmPiles: ~Copyable {
    /// A pile's alarms of one bucket.
    private struct Entry {
        var first: Alarm
        /// Not looked at before this, unless it is asked for eagerly.
        var until: Int64
        var isBeingRead = false
        /// Asked for while it was being read.
        var isRecalled = false
        /// What was given back behind the place that reading has reached: for the next time.
        var next: (first: Alarm, until: Int64)?

        /// When it is to be looked at again: a look that finds nothing brings `next` into its place.
        var due: Int64 { min(until, next?.until ?? .max) }

        mutating func add(_ alarm: Alarm, until time: Int64) {
            if isBeingRead || alarm < first {
                next = (min(next?.first ?? alarm, alarm), min(next?.until ?? time, time))
            } else {
                (first, until) = (min(first, alarm), min(until, time))
            }
        }
    }

    private var piles: [AlarmPile: [Int: Entry]] = [:]
    private var earliest: [AlarmPile: Int64] = [:]
    /// Those that have alarms.
    private(set) var names: [AlarmPile] = []

    /// The earliest time at which an alarm of the pile is to be looked at; `Int64.max` without any.
    func next(of pile: AlarmPile) -> Int64 { names.isEmpty ? .max : earliest[pile] ?? .max }

    mutating func add(_ alarm: Alarm, to pile: AlarmPile, place: Int, until: Int64) {
        if piles[pile] == nil { names.append(pile) }
        piles[pile, default: [:]][place, default: Entry(first: alarm, until: until)]
            .add(alarm, until: until)
        earliest[pile] = min(earliest[pile] ?? .max, until)
    }

    /// What the pile has in a place is to be looked at now.
    mutating func recall(_ pile: AlarmPile, place: Int) {
        guard piles[pile]?[place] != nil else { return }
        piles[pile]?[place]?.until = 0
        piles[pile]?[place]?.next?.until = 0
        piles[pile]?[place]?.isRecalled = true
        earliest[pile] = 0
    }

    /// What to look at, oldest first.
    mutating func scans(_ request: AlarmRequest, _ pile: AlarmPile, bound: (Int) -> Alarm?) -> [AlarmScan] {
        guard var entries = piles[pile] else { return [] }
        piles[pile] = nil
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
        piles[pile] = entries
        return scans
    }

    /// What came of it.
    mutating func finish(_ work: ReadOperation.AlarmWork, _ pile: AlarmPile) {
        var entries: [Int: Entry] = [:]
        swap(&entries, &piles[pile, default: [:]])
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
        earliest[pile] = entries.isEmpty ? nil : entries.values.reduce(Int64.max) { min($0, $1.due) }
        piles[pile] = entries.isEmpty ? nil : entries
        if entries.isEmpty { names.removeAll { $0 == pile } }
    }
}
