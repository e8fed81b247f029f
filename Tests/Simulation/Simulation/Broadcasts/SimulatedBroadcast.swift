internal import Delivery
internal import Wire

/// A broadcast as the simulator knows it.
final class SimulatedBroadcast {
    let index: Int
    let app: Int
    let task: TaskRecord
    /// The number of the tag that a device must have, or must not have; `nil`: everybody.
    let tag: (number: Int, isWanted: Bool)?
    let collapse: UInt8
    /// Its message for each device that the gateway has thought of.
    var records: [DeviceID: Record] = [:]
    /// As the gateway told of it when it was durable.
    var launched: TaskRecord?
    var launchedAt: Int64 = 0
    /// When it was asked for first.
    var madeAt: Int64 = 0
    var isCreated = false
    var isStopped = false
    /// The caller of the stop has swept, and the home was told to go on.
    var isStopTold = false
    /// Loops whose part of the caller's sweep is under way, whether one failed, and in which run that is.
    var callersSweepMissing = 0
    var hasCallersSweepFailed = false
    var callersRun = 0
    /// Every shard has swept it since it was stopped, in one run of the process: nothing of it goes out any more.
    var isSwept = false
    var isOver = false
    /// Strategies 2 and 4: dealt out as messages of each device's own.
    var isDealt: Bool { task.content.strategy == .vendorOnly || task.content.strategy == .vendorElseLive }
    /// The scan has been to all its devices.
    var isDealtOut = false
    /// Devices whose queue was full, say.
    var refusedBy: Set<DeviceID> = []
    /// Its launch was found out by a start: it may have been earlier.
    var wasFound = false
    /// The scan that is under way: its state and where it is; one at a time, as on the gateway's coordinator.
    var scan: SimulatedScan?
    /// Tells the answers of one scan from those of the one before.
    var scanStamp = 0
    var scanRequest: Int { index | scanStamp << 32 }
    var totals = TaskTotals()

    init(index: Int, app: Int, task: TaskRecord, tag: (number: Int, isWanted: Bool)?, collapse: UInt8) {
        (self.index, self.app, self.task, self.tag, self.collapse) = (index, app, task, tag, collapse)
    }

    var byteCount: Int { 128 + task.content.lengths.sum }
    var payload: [UInt8] { World.payload(index | 1 << 24, 60) }
}

/// What the coordinator does for a broadcast, step by step.
final class SimulatedScan {
    let record: TaskRecord
    let life: Int
    var position: Int
    var isSweeping = false
    /// Its place is being written down; the last word is.
    var isAdvancing = false
    var isFinishing = false
    /// What the step has found is being sent to.
    var isDealing = false
    var isStopped = false
    var found: [DeviceID] = []
    var askedAt: Int64 = 0
    /// `speed`: so long until the next step.
    var pause: Int64 = 0
    var missing = 0
    var hasFailed = false

    init(_ record: TaskRecord, life: Int) {
        (self.record, self.life) = (record, life)
        position = record.broadcast?.position ?? 0
    }
}
