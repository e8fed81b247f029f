// Queries and commands of operators that start from a complaint about a device, a task or a request id.

package import Wire

package enum InspectionBounds {
    /// The maximum number of messages, devices or jobs per answer.
    package static let answerLimit = 500
    /// The maximum number of digests or tasks per query.
    package static let keyLimit = 64
}

package enum DeviceChange: UInt8, Sendable, Codable {
    /// End every pending message as `revoked`, except those in flight or leased.
    case purge
    /// Make jobs that wait for a later attempt due now.
    case replay
    /// End the session; the device reconnects.
    case disconnect
    /// Remove the device from the app's blacklist; its queued messages are then sent.
    case unblacklist
}

package struct DeviceCursor: Sendable, Hashable, Codable, Comparable {
    package var bucket: Bucket
    /// The low word of the cid, which orders the devices of a bucket.
    package var item: UInt64
    package init(bucket: Bucket, item: UInt64) { (self.bucket, self.item) = (bucket, item) }
    package init(_ place: DeviceAddress) { self.init(bucket: place.bucket, item: place.cid.low) }
    package static func < (left: DeviceCursor, right: DeviceCursor) -> Bool {
        (left.bucket.index, left.item) < (right.bucket.index, right.item)
    }
}

/// The newest messages of a device, newest first, and the publishes refused for it.
package struct RecentMessages: Sendable, Codable {
    package var traces: [MessageTrace]
    package var refusals: [RefusedPublish]
    /// Whether older messages exist.
    package var isCut: Bool
    package init(traces: [MessageTrace], refusals: [RefusedPublish], isCut: Bool) {
        (self.traces, self.refusals, self.isCut) = (traces, refusals, isCut)
    }
}

package struct DeviceChangeResult: Sendable, Equatable, Codable {
    /// The number of messages ended, jobs made due, or sessions closed.
    package var count: Int
    /// The number of messages that a purge did not end: in flight or leased.
    package var leftCount: Int
    package init(count: Int, leftCount: Int = 0) { (self.count, self.leftCount) = (count, leftCount) }
}

package struct JobOverview: Sendable, Codable {
    package struct Queue: Sendable, Codable {
        package var app: AppKey
        package var channel: VendorChannel
        package var dueCount: Int
        /// The due jobs withheld from senders because the device is reachable or silenced.
        package var heldCount: Int
        package init(app: AppKey, channel: VendorChannel, dueCount: Int, heldCount: Int) {
            (self.app, self.channel, self.dueCount, self.heldCount) = (app, channel, dueCount, heldCount)
        }
    }

    package struct Job: Sendable, Codable {
        package var message: MessageID
        package var app: AppKey
        package var cid: DeviceID
        package var channel: VendorChannel
        package var acceptedAt: GatewayTime
        package var dueAt: GatewayTime
        package var expiresAt: GatewayTime
        package var attempts: UInt16
        /// The reason of the last failed attempt; may be empty.
        package var reason: String
        package init(
            message: MessageID, app: AppKey, cid: DeviceID, channel: VendorChannel, acceptedAt: GatewayTime,
            dueAt: GatewayTime, expiresAt: GatewayTime, attempts: UInt16, reason: String
        ) {
            (self.message, self.app, self.cid, self.channel) = (message, app, cid, channel)
            (self.acceptedAt, self.dueAt, self.expiresAt) = (acceptedAt, dueAt, expiresAt)
            (self.attempts, self.reason) = (attempts, reason)
        }
    }

    package var queues: [Queue]
    package var jobs: [Job]
    package init(queues: [Queue] = [], jobs: [Job] = []) { (self.queues, self.jobs) = (queues, jobs) }

    package mutating func add(_ other: JobOverview, limit: Int) {
        for queue in other.queues {
            if let place = queues.firstIndex(where: { $0.app == queue.app && $0.channel == queue.channel }) {
                queues[place].dueCount += queue.dueCount
                queues[place].heldCount += queue.heldCount
            } else {
                queues.append(queue)
            }
        }
        jobs = Array((jobs + other.jobs).sorted { $0.dueAt < $1.dueAt }.prefix(limit))
    }
}
