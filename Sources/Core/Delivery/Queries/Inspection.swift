// What operators ask of a shard, and have it do, when they begin from a complaint: a device, a task, a request id.

package import Wire

/// A question or an order of an operator about one app's devices and messages; as `TaskCommand.inspect`.
package enum Inspection: Sendable, Codable {
    /// The newest messages of a device.
    case recent(DeviceAddress, limit: Int)
    /// Which messages single pushes became, by the digests of their request: the device may be any of these buckets'.
    ///
    /// With the refusals of these requests, and those of these tasks.
    case requests(AppKey, [CallKey], tasks: [TaskID], LoopShare)
    /// Which task a call to several devices made, by the digest of its request.
    case call(CallKey)
    /// Which message a single push became.
    case single(TaskID, AppKey)
    /// Devices of the app, in the order of their buckets, from a place on.
    case devices(AppKey, after: DeviceCursor?, limit: Int, LoopShare)
    /// Due jobs of these apps (`nil`: all), the longest due of each app first, and how many there are.
    case jobs(apps: Set<AppKey>?, limit: Int)
    case change(DeviceAddress, DeviceChange)

    /// The most messages, devices or jobs that one answer has.
    package static let answerLimit = 500
    /// The most digests or tasks of one question.
    package static let keyLimit = 64
}

/// What an operator does to a device.
package enum DeviceChange: UInt8, Sendable, Codable {
    /// Ends every pending message of its queue as `revoked` that is neither in flight nor leased.
    case purge
    /// Makes those of its jobs due now that wait for a later attempt.
    case replay
    /// Ends its session; the device comes back by itself.
    case disconnect
}

/// A place in an app's list of devices.
package struct DeviceCursor: Sendable, Hashable, Codable, Comparable {
    package var bucket: Bucket
    /// The low word of the cid, by which the devices of a bucket are in order.
    package var item: UInt64
    package init(bucket: Bucket, item: UInt64) { (self.bucket, self.item) = (bucket, item) }
    package init(_ place: DeviceAddress) { self.init(bucket: place.bucket, item: place.cid.low) }
    package static func < (left: DeviceCursor, right: DeviceCursor) -> Bool {
        (left.bucket.index, left.item) < (right.bucket.index, right.item)
    }
}

package enum InspectionAnswer: Sendable, Codable {
    case recent(RecentMessages)
    case requests([PublishOutcome], [RefusedPublish])
    case call(TaskID)
    case single(MessageID, DeviceID)
    case devices([DeviceAddress])
    case jobs(JobOverview)
    case changed(DeviceChangeResult)
}

/// The newest messages of a device, newest first, with the publishes that were refused for it.
package struct RecentMessages: Sendable, Codable {
    package var traces: [MessageTrace]
    package var refusals: [RefusedPublish]
    /// There are older ones.
    package var isCut: Bool
    package init(traces: [MessageTrace], refusals: [RefusedPublish], isCut: Bool) {
        (self.traces, self.refusals, self.isCut) = (traces, refusals, isCut)
    }
}

/// What a `DeviceChange` did.
package struct DeviceChangeResult: Sendable, Equatable, Codable {
    /// Messages ended, jobs made due, or sessions closed.
    package var count: Int
    /// Messages that a purge left: in flight, or leased by a sender.
    package var leftCount: Int
    package init(count: Int, leftCount: Int = 0) { (self.count, self.leftCount) = (count, leftCount) }
}

/// The due jobs of a shard.
package struct JobOverview: Sendable, Codable {
    /// How many jobs of an app wait for a channel.
    package struct Queue: Sendable, Codable {
        package var app: AppKey
        package var channel: VendorChannel
        package var dueCount: Int
        /// Due, but kept from senders: the device is reachable, or wants no alerts.
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
        /// What the vendor said last; empty when it said nothing.
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
