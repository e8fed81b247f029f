internal import Delivery
internal import Wire

extension CreateTask: PartitionRequest {
    static let number: UInt8 = 24
    var busy: Answer { .busy }

    func isValid(in share: LoopShare) -> Bool {
        // A request's row and its task's row must be in the same bucket.
        record.isValid && share.contains(record.id.home) && (key == .none || key.bucket == record.id.home)
    }
}

extension LoadTask: PartitionRequest {
    static let number: UInt8 = 25
    var busy: Found<TaskRecord> { .unreadable }
    func isValid(in share: LoopShare) -> Bool { share.contains(task.home) }
    static func isValid(_ answer: Found<TaskRecord>) -> Bool { answer.value?.isValid ?? true }
}

extension ChangeTask: PartitionRequest {
    static let number: UInt8 = 26
    var busy: TaskTransition { .busy }
    func isValid(in share: LoopShare) -> Bool { share.contains(task.home) }
    static func isValid(_ answer: TaskTransition) -> Bool { answer.isValid }
}

extension ParkTargets: PartitionRequest {
    static let number: UInt8 = 27
    var busy: Answer { .busy }

    func isValid(in share: LoopShare) -> Bool {
        share.contains(task.home) && devices.count <= TaskBounds.targetsOfARow
    }
}

extension ReadTargets: PartitionRequest {
    static let number: UInt8 = 28
    func isValid(in share: LoopShare) -> Bool { share.contains(task.home) }
}

extension SweepTask: PartitionRequest {
    static let number: UInt8 = 29
    func isValid(in share: LoopShare) -> Bool { share.isSame(as: self.share) }
}

extension StopSingle: PartitionRequest {
    static let number: UInt8 = 30
    var busy: Found<Int> { .unreadable }
    func isValid(in share: LoopShare) -> Bool { share.contains(task.home) }
}

extension KeepSiblings: PartitionRequest {
    static let number: UInt8 = 31

    func isValid(in share: LoopShare) -> Bool {
        share.contains(task.home) && devices.count <= TaskBounds.targetsOfARow
    }
}

extension EndSibling: PartitionRequest {
    static let number: UInt8 = 32
    func isValid(in share: LoopShare) -> Bool { share.contains(device.bucket) }
}

extension SettleFirstAck: PartitionRequest {
    static let number: UInt8 = 33
    func isValid(in share: LoopShare) -> Bool { share.contains(first.message.bucket) }
}

extension BeginCall: PartitionRequest {
    static let number: UInt8 = 34
    var busy: CallStart { .busy }
    func isValid(in share: LoopShare) -> Bool { share.contains(key.bucket) && devices.count <= TaskBounds.callTargets }
}

extension EndCall: PartitionRequest {
    static let number: UInt8 = 35

    func isValid(in share: LoopShare) -> Bool {
        share.contains(key.bucket) && outcomes?.count ?? 0 <= TaskBounds.callTargets
    }
}

extension JoinGroup: PartitionRequest {
    static let number: UInt8 = 36
    func isValid(in share: LoopShare) -> Bool { share.contains(group.bucket) }
}

extension ReadGroup: PartitionRequest {
    static let number: UInt8 = 37
    func isValid(in share: LoopShare) -> Bool { share.contains(group.bucket) }
}

extension MessageContent {
    /// Whether the time to live is within the bounds for values from a link.
    var isValid: Bool { -1...LinkCodec.timeToLiveLimit ~= timeToLive }
}

extension TaskTransition {
    var isValid: Bool { if case .changed(let record) = self { record.isValid } else { true } }
}

extension TaskRecord {
    var isValid: Bool {
        let times = [createdAt, validUntil, scheduleAt, firedAt, resumeAt]
        guard content.isValid, times.allSatisfy(LinkCodec.isTime) else { return false }
        guard let broadcast else { return true }
        return id.home == app.home && LinkCodec.isTime(broadcast.launchedAt) && LinkCodec.isTime(broadcast.expiresAt)
            && 0...Int64(Int32.max) ~= broadcast.speed && 0...Bucket.count ~= broadcast.position
    }
}
