// Tasks and their reports. See docs/build/Tasks.md.

package import Wire

package enum TaskBounds {
    /// The maximum length of a group's name, as in Getui.
    package static let groupByteCount = 100
    /// The number of devices per call whose outcomes fit into one row.
    ///
    /// A larger call, to many aliases, has no such row. It is idempotent because the ledger rows show which devices have the
    /// task.
    package static let callTargets = StoreBounds.valueByteCount / RequestRow.byteCount
    /// The number of devices in one row for a scheduled task or a task with `firstAckWins`.
    package static let targetsOfARow = (StoreBounds.valueByteCount - 8) / 16
}

/// The state of a task; raw values are stored.
package enum TaskState: UInt8, Sendable, CaseIterable, Codable {
    /// A list message that accepts targets, or a task that was sent.
    case open = 1
    /// Waits for its time; becomes `running`, `stopping` or `cancelled`.
    case scheduled
    /// Due and being sent by the gateway; becomes `open`.
    case running
    /// Accepts no targets, and shards end its pending messages; becomes `stopped`.
    case stopping
    case stopped
    /// The schedule was deleted before its time.
    case cancelled
    /// An expired broadcast while a scan ends it for the remaining devices; becomes `ended`.
    case ending
    case ended
}

package struct TaskRecord: Sendable, Equatable {
    package var id: TaskID
    package var app: AppKey
    package var state: TaskState
    package var createdAt: GatewayTime
    /// The time after which the task accepts no targets.
    package var validUntil: GatewayTime
    /// The scheduled time; 0: immediately.
    package var scheduleAt: GatewayTime
    /// The time at which a scheduled task was sent; 0: not yet, or not scheduled.
    package var firedAt: GatewayTime = 0
    /// The time of the next retry of a `running` or `stopping` task, or of the next step of a broadcast.
    package var resumeAt: GatewayTime = 0
    package var group: String
    package var content: MessageContent
    /// The audience and progress of a broadcast; `nil` for a task of single messages.
    package var broadcast: BroadcastPlan?

    package init(
        id: TaskID, app: AppKey, state: TaskState, createdAt: GatewayTime, validUntil: GatewayTime,
        scheduleAt: GatewayTime = 0, group: String = "", content: MessageContent
    ) {
        (self.id, self.app, self.state, self.createdAt) = (id, app, state, createdAt)
        (self.validUntil, self.scheduleAt, self.group, self.content) = (validUntil, scheduleAt, group, content)
    }
}

package struct LoopShare: Sendable, Equatable, Codable {
    package var index: Int
    package var count: Int
    /// The number of buckets; simulations use few, so that scans of all of them stay short.
    package var bucketCount: Int
    package init(index: Int, count: Int, bucketCount: Int = Bucket.count) {
        (self.index, self.count, self.bucketCount) = (index, count, bucketCount)
    }

    package var buckets: [Bucket] {
        stride(from: index, to: bucketCount, by: count).map { Bucket(UInt16($0)) }
    }
}

/// A device's ack of a message of a task with `firstAckWins`.
package struct FirstAck: Sendable, Equatable, Codable {
    package var task: TaskID
    package var app: AppKey
    package var message: MessageID
    package init(task: TaskID, app: AppKey, message: MessageID) {
        (self.task, self.app, self.message) = (task, app, message)
    }
}

/// The digest of a request: (app, endpoint, request id); `none` for a request without an id.
package struct CallKey: Hashable, Sendable, Codable {
    package var high: UInt64
    package var low: UInt64
    package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
    package static let none = CallKey(high: 0, low: 0)
    package var bucket: Bucket { Bucket(digest: high) }
}

/// The place of the rows that list a group's tasks.
package struct GroupPlace: Sendable, Hashable, Codable {
    package var bucket: Bucket
    package var high: UInt64
    package var low: UInt64
    package init(bucket: Bucket, owner: (high: UInt64, low: UInt64)) {
        (self.bucket, high, low) = (bucket, owner.high, owner.low)
    }
}

package enum TaskChange: UInt8, Sendable, Codable {
    /// Open, scheduled or running → stopping.
    case stop
    /// Stopping → stopping: the caller has ended the pending messages, and the home completes the stop now.
    case swept
    /// Stopping → stopped.
    case stopped
    /// Scheduled → cancelled; not in the last minute.
    case cancel
    /// Running → open.
    case sent
    /// Ending → ended.
    case ended
}

/// The outcomes of a task's messages, or of some of them, as sums over rows.
package struct TaskTotals: Sendable, Equatable, Codable {
    package struct Channel: Sendable, Equatable, Codable {
        /// Messages sent on the channel.
        package var sent = 0
        /// Messages known to have arrived on the channel.
        package var received = 0
        package var shown = 0
        package var clicked = 0
        package init() {}

        package mutating func add(_ other: Channel) {
            sent += other.sent
            received += other.received
            shown += other.shown
            clicked += other.clicked
        }
    }

    package var accepted = 0
    /// The number of ended messages by `FinalState`, at the index `rawValue` − 1.
    package var finals = [Int](repeating: 0, count: FinalState.allCases.count)
    /// The number of failed messages by reason.
    package var failures: [String: Int] = [:]
    package var live = Channel()
    /// All vendors together.
    package var vendor = Channel()
    /// The figures of `vendor`, by channel.
    package private(set) var byVendor: [VendorChannel: Channel] = [:]
    /// Both channels together, each message once.
    package var all = Channel()
    /// The number of custom actions by the client's action number.
    package var actions: [UInt32: Int] = [:]
    package init() {}

    package subscript(_ state: FinalState) -> Int {
        get { finals[Int(state.rawValue) - 1] }
        set { finals[Int(state.rawValue) - 1] = newValue }
    }

    package var ended: Int { finals.reduce(0, +) }
    package var pending: Int { accepted - ended }

    /// Adds figures of a vendor; figures without a channel are Apple's.
    mutating func add(_ figures: Channel, of channel: VendorChannel?) {
        guard figures != Channel() else { return }
        vendor.add(figures)
        byVendor[channel ?? .apns, default: Channel()].add(figures)
    }

    /// Assigns the vendor figures of a single message to a channel.
    mutating func name(_ channel: VendorChannel?) {
        if vendor != Channel() { byVendor = [channel ?? .apns: vendor] }
    }

    mutating func takeOut(wasSent: Bool, wasAlerted: Bool) {
        live.sent += wasSent ? 1 : 0
        vendor.sent += wasAlerted ? 1 : 0
        all.sent += wasSent || wasAlerted ? 1 : 0
    }

    /// Counts the device's reports on one message, for the vendor's alert or the live channel.
    mutating func takeReported(_ steps: [MessageTrace.Step], isVendor: Bool) {
        let isOpened = steps.contains { $0.event == .opened }
        let isShown = steps.contains { $0.event == .shown }
        if isVendor, isShown || isOpened {
            (vendor.sent, vendor.received, vendor.shown) = (1, 1, 1)
            (all.sent, all.received) = (1, 1)
            if isOpened { vendor.clicked = 1 }
        } else {
            if isShown { live.shown = 1 }
            if isOpened { live.clicked = 1 }
        }
        (all.shown, all.clicked) = (max(live.shown, vendor.shown), max(live.clicked, vendor.clicked))
        for step in steps where step.event == .action {
            if let number = UInt32(step.detail) { actions[number] = 1 }
        }
    }

    package mutating func add(_ other: TaskTotals) {
        accepted += other.accepted
        for index in finals.indices { finals[index] += other.finals[index] }
        failures.merge(other.failures, uniquingKeysWith: +)
        live.add(other.live)
        vendor.add(other.vendor)
        for (channel, figures) in other.byVendor { byVendor[channel, default: Channel()].add(figures) }
        all.add(other.all)
        actions.merge(other.actions, uniquingKeysWith: +)
    }
}

package struct DayTotals: Sendable, Equatable, Codable {
    package var messages = TaskTotals()
    package var registered = 0
    /// The devices that connected on the day, each once.
    package var active = 0
    /// The devices registered up to the end of the day.
    package var accumulated = 0
    package init() {}

    package mutating func add(_ other: DayTotals) {
        messages.add(other.messages)
        registered += other.registered
        active += other.active
        accumulated += other.accumulated
    }
}
