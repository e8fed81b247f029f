// The queued messages of apps over all gateways of a cluster, exchanged several times a second.

internal import Delivery
package import Wire

/// The holdings of an app: messages accepted and not ended, in the partitions of one or several gateways.
///
/// A partition without bucket 0 does not count messages accepted before yesterday, so one gateway's number may be negative. The
/// sum of all gateways is correct.
package struct AppQueue: Sendable, Equatable, Codable {
    package var app: AppKey
    package var count: Int
    /// The bytes of the queued messages.
    package var bytes: Int
    /// The app's other bytes on disk (`RetainedBytes`).
    package var retainedBytes: Int
    package init(app: AppKey, count: Int, bytes: Int = 0, retainedBytes: Int = 0) {
        (self.app, self.count, self.bytes, self.retainedBytes) = (app, count, bytes, retainedBytes)
    }

    /// Whether the numbers of many gateways can be added safely, whichever gateway sent them.
    package var isSound: Bool {
        Self.bounds ~= count && Self.bounds ~= bytes && Self.bounds ~= retainedBytes
    }
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

/// The holdings of all gateways, on the owner of partition 0.
package struct QueueLedger: Sendable {
    private struct Told: Sendable {
        var queues: [AppKey: AppQueue]
        var at: Int64
    }

    /// The time without a report after which a gateway is removed; its partitions are then reported by others.
    package static let silenceMilliseconds: Int64 = 5_000
    /// The interval of reports; a gateway's knowledge is at most twice as old, plus the network delay.
    package static let exchangeMilliseconds: UInt64 = 250
    /// The time after which every gateway has reported to a new ledger, including those that were still sending to the previous
    /// one.
    package static let beginMilliseconds: Int64 = 1_000
    package static let appLimit = 4_096
    /// The maximum number of counted gateways, which is the number of node numbers (`NodeID.range`).
    package static let gatewayLimit = 1_023

    private var gateways: [Int: Told] = [:]
    private var beganAt: Int64 = 0

    package init() {}

    /// Stores a gateway's holdings, and returns the holdings of all others for the same apps.
    ///
    /// A gateway beyond `gatewayLimit` gets a reply, but is not counted.
    ///
    /// - Returns: The sums; `nil` while some gateways may not have reported yet. A sum without them would let the caller exceed
    ///   the quota by their holdings.
    package mutating func take(_ queues: [AppQueue], of node: Int, now: Int64) -> [AppQueue]? {
        gateways = gateways.filter { now - $0.value.at < Self.silenceMilliseconds }
        if gateways.isEmpty { beganAt = now }
        gateways[node] = nil
        let answer = queues.map { queue -> AppQueue in
            // The numbers and the gateways are bounded, so the sum cannot overflow. The receiver rejects values that are not
            // sound.
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
