// What an app has queued at all gateways of a cluster, as each of them learns it some times a second.

internal import Delivery
package import Wire

/// What an app has accepted and not ended in the parts of one gateway, or of several.
///
/// A part without bucket 0 counts less what was accepted before yesterday, so one gateway's number may be negative; the sum of all is right.
package struct AppQueue: Sendable, Equatable, Codable {
    package var app: AppKey
    package var count: Int
    /// Bytes that these messages count.
    package var bytes: Int
    /// Bytes that the app has on disk besides (`RetainedBytes`).
    package var retainedBytes: Int
    package init(app: AppKey, count: Int, bytes: Int = 0, retainedBytes: Int = 0) {
        (self.app, self.count, self.bytes, self.retainedBytes) = (app, count, bytes, retainedBytes)
    }

    /// Numbers of many gateways can be added up, whichever gateway sent them.
    package var isSound: Bool {
        Self.bounds ~= count && Self.bounds ~= bytes && Self.bounds ~= retainedBytes
    }
    /// The nearest one that is sound.
    fileprivate var bounded: AppQueue {
        AppQueue(
            app: app, count: Self.bounded(count), bytes: Self.bounded(bytes),
            retainedBytes: Self.bounded(retainedBytes))
    }
    private static func bounded(_ number: Int) -> Int { min(max(number, bounds.lowerBound), bounds.upperBound) }
    private static let bounds = -(1 << 48)...(1 << 48)

    fileprivate static func += (sum: inout AppQueue, more: AppQueue) {
        sum.count += more.count
        sum.bytes += more.bytes
        sum.retainedBytes += more.retainedBytes
    }
}

/// What the owner of part 0 knows of all gateways' queues.
package struct QueueLedger: Sendable {
    private struct Told: Sendable {
        var queues: [AppKey: AppQueue]
        var at: Int64
    }

    /// One that is silent for so long has left: its parts are at others, who tell of them.
    package static let silenceMilliseconds: Int64 = 5_000
    /// How often each tells: what another knows of it is twice as old at most, and the way.
    package static let exchangeMilliseconds: UInt64 = 250
    /// After which all that there are have told a gateway that counts anew: some of them are on the way to it with the last question.
    package static let beginMilliseconds: Int64 = 1_000
    /// Apps that one gateway tells of, at most.
    package static let appLimit = 4_096
    /// Gateways that are counted, at most: as many as a cluster has numbers for (`NodeID.range`).
    package static let gatewayLimit = 1_023

    private var gateways: [Int: Told] = [:]
    /// When the first of these told.
    private var beganAt: Int64 = 0

    package init() {}

    /// Takes what a gateway has, and answers what the others have of the same apps.
    ///
    /// A gateway beyond `gatewayLimit` gets its answer and is not counted.
    ///
    /// - Returns: `nil` while gateways may not have told yet: a sum without them would let the asker pass the quota by all that they have.
    package mutating func take(_ queues: [AppQueue], of node: Int, now: Int64) -> [AppQueue]? {
        gateways = gateways.filter { now - $0.value.at < Self.silenceMilliseconds }
        if gateways.isEmpty { beganAt = now }
        gateways[node] = nil
        let answer = queues.map { queue -> AppQueue in
            // Each number is bounded, and so are the gateways: the sum fits. Who asks refuses one that is not sound.
            var sum = AppQueue(app: queue.app, count: 0)
            for told in gateways.values { if let queue = told.queues[queue.app] { sum += queue } }
            return sum.bounded
        }
        if gateways.count < Self.gatewayLimit {
            gateways[node] = Told(queues: Dictionary(queues.map { ($0.app, $0.bounded) }) { $1 }, at: now)
        }
        return now - beganAt < Self.beginMilliseconds ? nil : answer
    }
}
