internal import Delivery
internal import Wire

/// A broadcast is out: the partition's devices are to meet it.
struct LaunchBroadcast: PartitionRequest {
    typealias Answer = NoAnswer
    static let number: UInt8 = 9
    var record: TaskRecord

    func isValid(in share: LoopShare) -> Bool { record.isValid }
    func home(of partitionCount: Int) -> Int? { record.app.home.loop(of: partitionCount) }
    func perform(on partition: Partition, _ origin: Origin) { partition.launch(record) }
}

/// The logs of a partition's own apps' broadcasts, whole, for another partition.
struct TellBroadcasts: PartitionRequest {
    typealias Answer = NoAnswer
    static let number: UInt8 = 12
    /// The partition whose apps these are.
    var home: Int
    var logs: [AppBroadcasts]

    func isValid(in share: LoopShare) -> Bool {
        0..<share.count ~= home && logs.allSatisfy { $0.app.home.loop(of: share.count) == home && $0.isValid }
    }

    func home(of partitionCount: Int) -> Int? { home }
    func perform(on partition: Partition, _ origin: Origin) { partition.learn(logs, of: home) }
}

/// A partition has more of its apps' broadcasts than one message holds: the receiver is to ask for them.
struct OfferBroadcasts: PartitionRequest {
    typealias Answer = NoAnswer
    static let number: UInt8 = 13
    var home: Int

    func isValid(in share: LoopShare) -> Bool { 0..<share.count ~= home }
    func home(of partitionCount: Int) -> Int? { home }
    func perform(on partition: Partition, _ origin: Origin) { partition.learnBroadcasts(of: home) }
}

extension AppBroadcasts {
    /// Whether its broadcasts are the app's, in the order of their numbers, within the log's bounds.
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
