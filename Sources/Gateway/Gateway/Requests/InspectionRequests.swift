internal import Delivery
internal import Wire

extension RecentQuery: PartitionRequest {
    static let number: UInt8 = 47
    var busy: Found<RecentMessages> { .unreadable }

    func isValid(in share: LoopShare) -> Bool {
        share.contains(device.bucket) && 1...InspectionBounds.answerLimit ~= limit
    }
}

extension RequestQuery: PartitionRequest {
    static let number: UInt8 = 48

    func isValid(in share: LoopShare) -> Bool {
        requests.count <= InspectionBounds.keyLimit && tasks.count <= InspectionBounds.keyLimit
            && share.isSame(as: self.share)
    }
}

extension CallQuery: PartitionRequest {
    static let number: UInt8 = 49
    var busy: Found<TaskID> { .unreadable }
    func isValid(in share: LoopShare) -> Bool { share.contains(key.bucket) }
}

extension SingleQuery: PartitionRequest {
    static let number: UInt8 = 50
    var busy: Found<DeviceID> { .unreadable }
    func isValid(in share: LoopShare) -> Bool { share.contains(task.home) }
}

extension DeviceListQuery: PartitionRequest {
    static let number: UInt8 = 51

    func isValid(in share: LoopShare) -> Bool {
        1...InspectionBounds.answerLimit ~= limit && share.isSame(as: self.share)
    }
}

extension JobsQuery: PartitionRequest {
    static let number: UInt8 = 52
    func isValid(in share: LoopShare) -> Bool { 1...InspectionBounds.answerLimit ~= limit }
}

extension ChangeDevice: PartitionRequest {
    static let number: UInt8 = 53
    var busy: Found<DeviceChangeResult> { .unreadable }
    func isValid(in share: LoopShare) -> Bool { share.contains(device.bucket) }
}
