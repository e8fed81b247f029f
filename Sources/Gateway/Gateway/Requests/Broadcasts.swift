internal import Delivery
internal import Wire

/// Announces a new broadcast, which the partition must deliver to its devices.
struct LaunchBroadcast: PartitionRequest {
    typealias Answer = NoAnswer
    static let number: UInt8 = 9
    var record: TaskRecord

    func isValid(in share: LoopShare) -> Bool { record.isValid }
    func home(of partitionCount: Int) -> Int? { record.app.home.loop(of: partitionCount) }
    func perform(on partition: Partition, _ origin: Origin) { partition.launch(record) }
}

/// Sends the complete broadcast logs of a partition's apps to another partition.
struct TellBroadcasts: PartitionRequest {
    typealias Answer = NoAnswer
    static let number: UInt8 = 12
    /// The home partition of these apps.
    var home: Int
    var logs: [AppBroadcasts]

    func isValid(in share: LoopShare) -> Bool {
        0..<share.count ~= home && logs.allSatisfy { $0.app.home.loop(of: share.count) == home && $0.isValid }
    }

    func home(of partitionCount: Int) -> Int? { home }
    func perform(on partition: Partition, _ origin: Origin) { partition.learn(logs, of: home) }
}

/// Announces broadcast logs that exceed one message; the receiver must request them.
struct OfferBroadcasts: PartitionRequest {
    typealias Answer = NoAnswer
    static let number: UInt8 = 13
    var home: Int

    func isValid(in share: LoopShare) -> Bool { 0..<share.count ~= home }
    func home(of partitionCount: Int) -> Int? { home }
    func perform(on partition: Partition, _ origin: Origin) { partition.learnBroadcasts(of: home) }
}

extension ScanBroadcast: PartitionRequest {
    static let number: UInt8 = 43

    func isValid(in share: LoopShare) -> Bool {
        record.isValid && record.broadcast != nil && share.isSame(as: self.share) && buckets.lowerBound >= 0
            && buckets.upperBound <= Bucket.count
    }
}

extension AdvanceBroadcast: PartitionRequest {
    static let number: UInt8 = 44
    var busy: TaskTransition { .busy }
    func isValid(in share: LoopShare) -> Bool { share.contains(task.home) && 0...Bucket.count ~= position }
    static func isValid(_ answer: TaskTransition) -> Bool { answer.isValid }
}

extension LiveBroadcasts: PartitionRequest {
    static let number: UInt8 = 45
    func isValid(in share: LoopShare) -> Bool { share.isSame(as: self.share) }
    static func isValid(_ answer: Logs?) -> Bool { answer?.logs.allSatisfy(\.isValid) ?? true }
}

extension BroadcastHeads: PartitionRequest {
    static let number: UInt8 = 46
    func isValid(in share: LoopShare) -> Bool { share.isSame(as: self.share) }
    static func isValid(_ answer: [AppBroadcasts]?) -> Bool { answer?.allSatisfy(\.isValid) ?? true }
}

extension AppBroadcasts {
    /// Whether the log contains only the app's broadcasts, in ascending order and within its bounds.
    var isValid: Bool {
        guard let bounds else { return false }
        var last = bounds.0
        let through = bounds.1
        for record in records {
            guard record.app == app, record.isValid, let number = record.broadcast?.number, last < number,
                number <= through
            else { return false }
            last = number
        }
        return true
    }
}
