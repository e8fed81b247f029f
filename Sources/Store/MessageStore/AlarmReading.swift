internal import Delivery
internal import Wire

protocol AlarmSource: AnyObject {
    func has(_ bucket: UInt16) -> Bool
    /// Returns a cold row; the operation owns the value's bytes.
    func row(_ key: StoreKey, _ operation: ReadOperation) throws(StoreError) -> ColdRow?
    /// Returns a cursor over a bucket's alarms in order, beginning at `first`.
    func cursor(in bucket: UInt16, from first: Alarm?, _ operation: ReadOperation) throws(StoreError) -> any AlarmCursor
}

protocol AlarmCursor: AnyObject {
    /// The alarm under the cursor; `nil` behind the last one.
    var current: Alarm? { get }
    func advance() throws(StoreError)
}

struct AlarmReading {
    let source: any AlarmSource

    func perform(
        _ work: inout ReadOperation.AlarmWork, _ operation: ReadOperation
    ) throws(StoreError) {
        for index in work.scans.indices where work.hasRoom && work.scans[index].isOpen {
            let bucket = work.scans[index].bucket
            guard source.has(bucket) else { continue }
            work.underWay = index
            if work.request.group != nil {
                try readAlarmGroup(&work, index, operation)
                continue
            }
            let cursor = try source.cursor(in: bucket, from: work.scans[index].cursor, operation)
            if let last = work.scans[index].cursor, cursor.current == last { try cursor.advance() }
            if work.scans[index].isFirstLook {
                if let alarm = cursor.current { work.scans[index].nextAlarm = alarm.wakeAt }
                work.scans[index].wasRead = true
                continue
            }
            while let alarm = cursor.current {
                if alarm.wakeAt > work.request.time || !work.hasRoom {
                    work.scans[index].nextAlarm = alarm.wakeAt
                    break
                }
                if let row = try source.row(alarm.key, operation), row.wakeAt == alarm.wakeAt {
                    try take(row, &work, operation)
                } else {
                    work.stale.append(StaleAlarm(alarm: alarm))
                }
                work.count += 1
                work.scans[index].cursor = alarm
                try cursor.advance()
            }
            work.scans[index].wasRead = true
        }
        work.underWay = nil
        // Read late alarms last, so that an unreadable one does not block the others.
        var place = work.late.count
        while place > 0, work.rows.count < work.request.limit {
            place -= 1
            let alarm = work.late[place]
            guard source.has(alarm.key.bucket.index) else { continue }
            if let row = try source.row(alarm.key, operation), row.wakeAt == alarm.wakeAt {
                try take(row, &work, operation)
            }
            work.late.remove(at: place)
        }
    }

    /// Reports a row with a due alarm, or leaves the alarm to its group, as `AlarmRequest.judge` decides.
    private func take(
        _ row: ColdRow, _ work: inout ReadOperation.AlarmWork, _ operation: ReadOperation
    ) throws(StoreError) {
        switch work.request.judge(row.key, row.value) {
        case .take: try report(row, &work, operation)
        case .leave(let group, let until):
            work.left.append((Alarm(wakeAt: row.wakeAt, key: row.key), group, until))
        case .pass: break
        }
    }

    /// Reports a row with a due alarm, unless a job's row (the successor) took over the alarm; the alarm's index entry is then
    /// stale.
    private func report(
        _ row: ColdRow, _ work: inout ReadOperation.AlarmWork, _ operation: ReadOperation
    ) throws(StoreError) {
        let alarm = Alarm(wakeAt: row.wakeAt, key: row.key)
        guard let key = work.request.successor(of: row.key, row.value),
            let successor = try source.row(key, operation)
        else {
            work.rows.append(row)
            return
        }
        if AlarmRequest.isReadable(successor: successor.value) {
            work.stale.append(StaleAlarm(alarm: alarm, successor: key))
        } else {
            work.postponed.append((alarm, work.request.end(of: row.key, row.value)))
        }
    }

    /// Reads a group's alarms of one bucket again.
    ///
    /// The index sorts alarms by due time. An alarm that is left to its group also has a time to be read again (`until`). Only
    /// for strategy 4 (`vendorTimeout`) both times have the same order. Reading such a group stops at the first alarm that is
    /// left.
    private func readAlarmGroup(
        _ work: inout ReadOperation.AlarmWork, _ index: Int, _ operation: ReadOperation
    ) throws(StoreError) {
        guard let first = work.scans[index].cursor, let bound = work.scans[index].bound else {
            work.scans[index].wasRead = true
            return
        }
        let cursor = try source.cursor(in: bound.key.bucket.index, from: first, operation)
        while let alarm = cursor.current, alarm <= bound {
            guard work.hasRoom, work.scans[index].left?.count ?? 0 < Limits.leftAlarmsPerRead else {
                (work.scans[index].rest, work.scans[index].nextAlarm) = (alarm, 0)
                break
            }
            work.count += 1
            if alarm.key.table.mayHaveJob, let row = try source.row(alarm.key, operation), row.wakeAt == alarm.wakeAt {
                let verdict = work.request.judge(row.key, row.value)
                if verdict == .take { try report(row, &work, operation) }
                if case .leave(let group, let until) = verdict {
                    if group.kind == .vendorTimeout {
                        (work.scans[index].rest, work.scans[index].nextAlarm) = (alarm, until)
                        break
                    }
                    let left = work.scans[index].left ?? (alarm, .max, 0)
                    let pause = max(Limits.pilePauseMilliseconds, Limits.leftAlarmMilliseconds * Int64(left.count))
                    work.scans[index].left = (
                        left.first, max(min(left.until, until), work.request.time + pause), left.count + 1
                    )
                }
            }
            try cursor.advance()
        }
        work.scans[index].wasRead = true
    }
}
