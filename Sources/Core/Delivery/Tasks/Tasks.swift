// Tasks as shards see them: a task's row in its home bucket, the commands about tasks and the answers.
// See docs/build/Tasks.md.

package import Wire

/// Bounds of calls that reach many devices, from what a row holds.
package enum TaskBounds {
    /// Getui: a group's name.
    package static let groupByteCount = 100
    /// Devices of one call whose outcomes fit one row.
    ///
    /// A larger call, of many aliases, is safe to repeat, too: its devices' ledger rows show whether they have the
    /// task.
    package static let callTargets = StoreBounds.valueByteCount / RequestRow.byteCount
    /// Devices in one row of those that wait for a scheduled task, or whose first ack wins.
    package static let targetsOfARow = (StoreBounds.valueByteCount - 8) / 16
}

/// Where a task stands.
///
/// Raw values are stored.
package enum TaskState: UInt8, Sendable, CaseIterable, Codable {
    /// A list message that takes targets, or a task that has gone out.
    case open = 1
    /// Waits for its time; may become `running` or `cancelled`.
    case scheduled
    /// Due, and the desk is sending it; becomes `open`.
    case running
    /// It takes no targets any more, and shards end its pending messages; becomes `stopped`.
    case stopping
    case stopped
    /// Its schedule was deleted before its time.
    case cancelled
    /// A broadcast whose time is over, while a scan ends it for devices that never had it; becomes `ended`.
    case ending
    case ended
}

/// One task's row.
package struct TaskRecord: Sendable, Equatable {
    package var id: TaskID
    package var app: AppKey
    package var state: TaskState
    package var createdAt: GatewayTime
    /// The task takes no targets after this.
    package var validUntil: GatewayTime
    /// 0: at once.
    package var scheduleAt: GatewayTime
    /// When it went out; 0: not yet, or not scheduled at all.
    package var firedAt: GatewayTime = 0
    /// The retry time while it is `running` or `stopping`.
    package var resumeAt: GatewayTime = 0
    package var group: String
    package var content: MessageContent
    /// The devices that a broadcast is for and how far it is; `nil` for a task of single messages.
    package var broadcast: BroadcastPlan?

    package init(
        id: TaskID, app: AppKey, state: TaskState, createdAt: GatewayTime, validUntil: GatewayTime,
        scheduleAt: GatewayTime = 0, group: String = "", content: MessageContent
    ) {
        (self.id, self.app, self.state, self.createdAt) = (id, app, state, createdAt)
        (self.validUntil, self.scheduleAt, self.group, self.content) = (validUntil, scheduleAt, group, content)
    }
}

/// The buckets of one loop.
package struct LoopShare: Sendable, Equatable, Codable {
    package var index: Int
    package var count: Int
    /// A simulated world has few buckets, so that scans of all of them stay short.
    package var bucketCount: Int
    package init(index: Int, count: Int, bucketCount: Int = Bucket.count) {
        (self.index, self.count, self.bucketCount) = (index, count, bucketCount)
    }

    package var buckets: [Bucket] {
        stride(from: index, to: bucketCount, by: count).map { Bucket(UInt16($0)) }
    }
}

/// A command to the shard that owns a task's home bucket, or to all shards.
package enum TaskCommand: Sendable {
    /// Writes a new task, once for each request key ((0, 0): always).
    case create(TaskRecord, requestKey: (UInt64, UInt64), requestDigest: UInt64)
    case load(TaskID, AppKey)
    /// Moves a task to its next state; the answer to an impossible change is the state that forbids it.
    case change(TaskID, AppKey, TaskChange)
    /// Keeps devices for a scheduled task.
    case park(TaskID, AppKey, [DeviceID])
    /// A page of a scheduled task's devices, from a place on.
    case targets(TaskID, from: UInt64)
    /// Scans of a broadcast's devices in some buckets.
    case scan(BroadcastScan)
    /// A broadcast's scan has come to this bucket; at `Bucket.count` it is over.
    case advance(TaskID, AppKey, position: Int, during: TaskState)
    /// Ends every pending message of a task in these buckets, and refuses later ones.
    case sweep(TaskID, AppKey, LoopShare)
    case totals(TaskID, AppKey, LoopShare)
    /// What this shard counted for an app on a day.
    case day(AppKey, day: UInt32)
    /// What this shard counted on days that may be folded; `busy` while the caller's day has not begun here.
    ///
    /// Such a shard may still count for a day that the caller would fold.
    case foldable(today: UInt32)
    /// Removes the counters rows of folded days from these buckets.
    ///
    /// `isCounted`: the keeper's shard counts these days whole from now on, so no other one counts them any more. In a cluster
    /// a shard may start at any time, with the folded sums or without; without this days would count twice or not at all.
    case removeCounters([CounterDay], LoopShare, isCounted: Bool)
    /// How many devices of each app are connected.
    case online
    /// Ends the one message of a single push, if it is pending.
    case stopSingle(TaskID, AppKey)
    /// Keeps the devices of a task of which the first ack wins; `targets` answers with them.
    case keepSiblings(TaskID, [DeviceID])
    /// Ends the task's message for one device if it is pending: another device acked first.
    case endSibling(TaskID, AppKey, cid: DeviceID, bucket: Bucket, digest: UInt64)
    /// The siblings of this message have ended.
    case settleFirstAck(FirstAck)
    /// Begins a call that reaches several devices: durably, once, with the same ids for its repetitions.
    case begin(CallKey, digest: UInt64, TaskID, [DeviceID])
    /// The call's outcomes are known, or it did not finish (`nil`): its repetitions get the answer.
    case end(CallKey, [PublishOutcome]?)
    case joinGroup(TaskID, bucket: Bucket, owner: (UInt64, UInt64))
    case group(bucket: Bucket, owner: (UInt64, UInt64))
    /// An operator's question or order, which need not be about a task.
    case inspect(Inspection)
    /// What an app's devices send, what happened, and its consumer's reads and acks, in the app's home bucket.
    case feed(FeedCommand)
    /// The live broadcasts of the apps whose logs are in these buckets, for a shard that starts elsewhere: a piece of them, or
    /// all at once.
    case liveBroadcasts(LoopShare, BroadcastPiece)
    /// The same without the broadcasts: how far each log goes; answered as `liveBroadcasts` with heads alone.
    case broadcastHeads(LoopShare)
}

/// A device acked the message of a task of which the first ack wins.
package struct FirstAck: Sendable, Equatable, Codable {
    package var task: TaskID
    package var app: AppKey
    /// The message that was acked.
    package var message: MessageID
    package init(task: TaskID, app: AppKey, message: MessageID) {
        (self.task, self.app, self.message) = (task, app, message)
    }
}

/// A request's digest: (app, endpoint, request id).
package struct CallKey: Hashable, Sendable, Codable {
    package var high: UInt64
    package var low: UInt64
    package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
    /// Where the call's rows are.
    package var bucket: Bucket { Bucket(digest: high) }
}

package enum TaskChange: UInt8, Sendable, Codable {
    /// Open, scheduled or running → stopping.
    case stop
    /// Stopping → stopping: the caller of the stop has ended the pending messages, and the home does the rest now.
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

package enum TaskAnswer: Sendable, Codable {
    case created(TaskID, isRepeat: Bool)
    /// The request id was used with another body.
    case conflict
    /// No such task in this app.
    case unknown
    /// Nothing changed; the caller repeats the command.
    case busy
    case record(TaskRecord)
    /// The task's state forbids it.
    case refused(TaskState)
    case parked
    /// `next`: where the next page begins; `nil`: there is none.
    case targets([DeviceID], next: UInt64?)
    /// How many messages it ended.
    case swept(Int)
    /// The number of jobs made or messages ended, and the devices that a scan is to fan a broadcast out to.
    case scanned(Int, [DeviceID])
    /// The app has as many live broadcasts as it may.
    case full
    /// Its row would exceed the store's bounds.
    case tooLarge
    case totals(TaskTotals)
    case day(DayTotals)
    case foldable([CountersRow])
    case online([AppKey: Int])
    case begun(TaskID, [DeviceID])
    /// The same call was answered before.
    case ended(TaskID, [PublishOutcome])
    case done
    case group([TaskID])
    /// `next`: where the next piece begins; `nil`: there is none.
    case liveBroadcasts([AppBroadcasts], next: BroadcastPlace? = nil)
    case inspected(InspectionAnswer)
    case feed(FeedAnswer)
}

/// The outcomes of a task's messages, or of some of them: sums over its rows.
package struct TaskTotals: Sendable, Equatable, Codable {
    package struct Channel: Sendable, Equatable, Codable {
        /// Messages that went out on the channel.
        package var sent = 0
        /// Messages known to have arrived by it.
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
    /// By `FinalState`'s raw value, less one.
    package var finals = [Int](repeating: 0, count: FinalState.allCases.count)
    /// Reasons of the messages that failed.
    package var failures: [String: Int] = [:]
    package var live = Channel()
    package var vendor = Channel()
    /// By either channel, each message once.
    package var all = Channel()
    /// By the client's number for it.
    package var actions: [UInt32: Int] = [:]
    package init() {}

    package subscript(_ state: FinalState) -> Int {
        get { finals[Int(state.rawValue) - 1] }
        set { finals[Int(state.rawValue) - 1] = newValue }
    }

    package var ended: Int { finals.reduce(0, +) }
    package var pending: Int { accepted - ended }

    /// Counts, for one message, the channels that it went out on.
    mutating func takeOut(wasSent: Bool, wasAlerted: Bool) {
        live.sent += wasSent ? 1 : 0
        vendor.sent += wasAlerted ? 1 : 0
        all.sent += wasSent || wasAlerted ? 1 : 0
    }

    /// Counts, of one message, what its device reported: by the vendor's alert, or live.
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
        all.add(other.all)
        actions.merge(other.actions, uniquingKeysWith: +)
    }
}

/// What an app's messages and devices did on one day, or a part of it.
package struct DayTotals: Sendable, Equatable, Codable {
    package var messages = TaskTotals()
    package var registered = 0
    /// Devices that connected on the day, each once.
    package var active = 0
    /// Devices registered up to and on the day.
    package var accumulated = 0
    package init() {}

    package mutating func add(_ other: DayTotals) {
        messages.add(other.messages)
        registered += other.registered
        active += other.active
        accumulated += other.accumulated
    }
}
