internal import Delivery
internal import Wire

final class SimulatedBroadcast {
    let index: Int
    let app: Int
    let task: TaskRecord
    /// The number of the tag that a device must have or must lack; `nil` targets all devices.
    let tag: (number: Int, isWanted: Bool)?
    let collapse: UInt8
    /// The broadcast's message for each device that the gateway has considered.
    var records: [DeviceID: Record] = [:]
    /// The gateway's announcement, sent when the broadcast was durable.
    var launched: TaskRecord?
    var launchedAt: Int64 = 0
    /// The time of the first request.
    var madeAt: Int64 = 0
    var isCreated = false
    var isStopped = false
    /// Whether the caller of the stop has swept and the home shard was notified to continue.
    var isStopTold = false
    /// The number of loops in which the caller's sweep is in progress, whether a sweep failed, and the process run.
    var callersSweepMissing = 0
    var hasCallersSweepFailed = false
    var callersRun = 0
    /// Whether every shard has swept the broadcast since its stop, in one run of the process; nothing of it is sent afterwards.
    var isSwept = false
    var isOver = false
    /// Whether the strategy is 2 or 4, so that the scan creates a separate message for each device.
    var isDealt: Bool { task.content.strategy == .vendorOnly || task.content.strategy == .vendorElseLive }
    /// Whether the scan has visited all its devices.
    var isDealtOut = false
    /// The devices that refused the message, for example because their queue was full.
    var refusedBy: Set<DeviceID> = []
    /// Whether a restart found the launch, which may have happened earlier.
    var wasFound = false
    /// The scan in progress; at most one, as in the gateway's coordinator.
    var scan: SimulatedScan?
    /// The number of the scan, to ignore answers to the previous one.
    var scanStamp = 0
    var scanRequest: Int { index | scanStamp << 32 }
    var totals = TaskTotals()

    init(index: Int, app: Int, task: TaskRecord, tag: (number: Int, isWanted: Bool)?, collapse: UInt8) {
        (self.index, self.app, self.task, self.tag, self.collapse) = (index, app, task, tag, collapse)
    }

    var byteCount: Int { 128 + task.content.lengths.sum }
    var payload: [UInt8] { World.payload(index | 1 << 24, 60) }
}

/// The coordinator's state for one broadcast.
final class SimulatedScan {
    let record: TaskRecord
    let life: Int
    var position: Int
    var isSweeping = false
    /// Whether the scan's position, or its last record, is being written.
    var isAdvancing = false
    var isFinishing = false
    /// Whether messages to the devices found in this step are being sent.
    var isDealing = false
    var isStopped = false
    var found: [DeviceID] = []
    var askedAt: Int64 = 0
    /// The milliseconds until the next step, derived from `speed`.
    var pause: Int64 = 0
    var missing = 0
    var hasFailed = false

    init(_ record: TaskRecord, life: Int) {
        (self.record, self.life) = (record, life)
        position = record.broadcast?.position ?? 0
    }
}
