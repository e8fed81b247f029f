internal import Delivery
internal import Wire

struct OnlinePoint: Sendable, Equatable, Codable {
    var time: GatewayTime
    var count: Int
}

/// Asks for an app's numbers of connected devices over the last day; the answer is `nil` if the owner is unavailable.
struct OnlinePointsRequest: PartitionRequest {
    static let number: UInt8 = 17
    var app: AppKey

    var busy: [OnlinePoint]? { nil }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows }

    func perform(on partition: Partition, _ origin: Origin) {
        let points = partition.context.usage.online.points(of: app).map { OnlinePoint(time: $0.time, count: $0.count) }
        partition.reply(Optional(points), to: origin)
    }
}

/// Asks for a day's peak of connected devices; the answer is `nil` if the owner is unavailable.
struct OnlinePeakRequest: PartitionRequest {
    static let number: UInt8 = 18
    var app: AppKey
    var day: UInt32

    var busy: Int? { nil }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows }

    func perform(on partition: Partition, _ origin: Origin) {
        partition.reply(Optional(partition.context.usage.online.peak(of: app, day: day)), to: origin)
    }
}
