package import Wire

package enum TaskRow {
    static let version: UInt8 = 1
    /// The version of a broadcast's row; its plan follows the content.
    static let broadcastVersion: UInt8 = 2

    package static func key(_ task: TaskID) -> StoreKey { StoreKey(task.home, .task, task) }

    package static func byteCount(_ record: TaskRecord) -> Int {
        80 + RowWriter.byteCount(text: record.group) + record.content.byteCount
            + (record.broadcast.map { BroadcastPlan.fixedByteCount + $0.audience.byteCount } ?? 0)
    }

    package static func write(_ record: TaskRecord, into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(record.broadcast == nil ? version : broadcastVersion)
        writer.put(record.state.rawValue)
        writer.put(UInt16(0))
        writer.put(UInt32(0))
        writer.put(record.id.high)
        writer.put(record.id.low)
        writer.put(record.app.word)
        writer.put(record.createdAt)
        writer.put(record.validUntil)
        writer.put(record.scheduleAt)
        writer.put(record.firedAt)
        writer.put(record.resumeAt)
        writer.put(UInt64(0))
        writer.put(text: record.group)
        record.content.write(&writer)
        record.broadcast?.write(&writer)
    }

    /// - Returns: `nil` unless the bytes are a task row of a known version.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> TaskRecord? {
        var reader = unsafe RowReader(bytes)
        guard let version = reader.next(UInt8.self), version == Self.version || version == broadcastVersion,
            let state = TaskState(rawValue: reader.next() ?? 0),
            reader.next(byteCount: 6) != nil, let id = reader.nextIdentifier(TaskID.self),
            let app = reader.next(UInt64.self), let createdAt = reader.next(Int64.self),
            let validUntil = reader.next(Int64.self), let scheduleAt = reader.next(Int64.self),
            let firedAt = reader.next(Int64.self), let resumeAt = reader.next(Int64.self),
            reader.next(UInt64.self) != nil, let group = reader.nextText(), let content = MessageContent(&reader)
        else { return nil }
        var record = TaskRecord(
            id: id, app: AppKey(app), state: state, createdAt: createdAt, validUntil: validUntil,
            scheduleAt: scheduleAt, group: group, content: content)
        (record.firedAt, record.resumeAt) = (firedAt, resumeAt)
        guard version == broadcastVersion else { return record }
        guard let broadcast = BroadcastPlan(&reader) else { return nil }
        record.broadcast = broadcast
        return record
    }

    /// Returns the row's alarm: the scheduled time, the retry time, or the end of report retention.
    static func wakeAt(_ record: TaskRecord, retention: Int64) -> GatewayTime {
        switch record.state {
        case .scheduled: record.scheduleAt
        case .running, .stopping, .ending: record.resumeAt
        case .open where record.broadcast != nil: record.resumeAt
        case .open, .stopped, .cancelled, .ended: max(record.createdAt, record.scheduleAt) + retention
        }
    }
}

package enum TargetsRow {
    static let version: UInt8 = 1

    package static func byteCount(_ targets: [DeviceID]) -> Int { byteCount(count: targets.count) }

    static func byteCount(count: Int) -> Int { 8 + 16 * count }

    package static func write(_ targets: [DeviceID], into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(UInt8(0))
        writer.put(UInt16(0))
        writer.put(UInt32(truncatingIfNeeded: targets.count))
        for target in targets {
            writer.put(target.high)
            writer.put(target.low)
        }
    }

    package static func read(_ bytes: UnsafeRawBufferPointer) -> [DeviceID]? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version, reader.next(byteCount: 3) != nil,
            let count = reader.next(UInt32.self), Int(count) <= bytes.count / 16
        else { return nil }
        var targets: [DeviceID] = []
        targets.reserveCapacity(Int(count))
        for _ in 0..<count {
            guard let target = reader.nextIdentifier(DeviceID.self) else { return nil }
            targets.append(target)
        }
        return targets
    }
}

/// A call to several devices, written under its request's digest when the call begins; the answer is in a separate row.
package enum CallRow {
    /// Must differ from `RequestRow.version`, which uses the same table.
    static let version: UInt8 = 2

    package static func byteCount(targets: [DeviceID]) -> Int { byteCount(targetCount: targets.count) }

    static func byteCount(targetCount: Int) -> Int { 32 + TargetsRow.byteCount(count: targetCount) }

    package static func write(
        digest: UInt64, task: TaskID, targets: [DeviceID], into bytes: UnsafeMutableRawBufferPointer
    ) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(UInt8(0))
        writer.put(UInt16(0))
        writer.put(UInt32(0))
        writer.put(digest)
        writer.put(task.high)
        writer.put(task.low)
        unsafe TargetsRow.write(targets, into: UnsafeMutableRawBufferPointer(rebasing: bytes[32...]))
    }

    package static func read(
        _ bytes: UnsafeRawBufferPointer
    ) -> (digest: UInt64, task: TaskID, targets: [DeviceID])? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version, reader.next(byteCount: 7) != nil,
            let digest = reader.next(UInt64.self), let task = reader.nextIdentifier(TaskID.self),
            let targets = unsafe TargetsRow.read(UnsafeRawBufferPointer(rebasing: bytes[32...]))
        else { return nil }
        return (digest, task, targets)
    }

    /// Returns the key of the answer; an ephemeral row is written only once, so the answer needs its own key.
    package static func answerKey(_ key: CallKey) -> StoreKey {
        StoreKey(key.bucket, .request, ownerHigh: ~key.high, ownerLow: ~key.low)
    }

    package static func writeAnswer(
        _ outcomes: [PublishOutcome], digest: UInt64, into bytes: UnsafeMutableRawBufferPointer
    ) {
        for (index, outcome) in outcomes.enumerated() {
            let start = index * RequestRow.byteCount
            unsafe RequestRow.write(
                outcome, digest: digest,
                into: UnsafeMutableRawBufferPointer(rebasing: bytes[start..<start + RequestRow.byteCount]))
        }
    }

    package static func readAnswer(_ bytes: UnsafeRawBufferPointer) -> [PublishOutcome]? {
        guard bytes.count % RequestRow.byteCount == 0 else { return nil }
        var outcomes: [PublishOutcome] = []
        for start in stride(from: 0, to: bytes.count, by: RequestRow.byteCount) {
            let part = unsafe UnsafeRawBufferPointer(rebasing: bytes[start..<start + RequestRow.byteCount])
            guard let (outcome, _) = unsafe RequestRow.read(part) else { return nil }
            outcomes.append(outcome)
        }
        return outcomes
    }
}
