internal import Wire

/// What Delivery needs to know of a message to route, end and trace it: everything but its content.
///
/// The same facts are in the message's row, in its job's row and in memory.
struct MessageFacts {
    struct Flags: OptionSet {
        let rawValue: UInt8
        /// The device was not reachable when the message was accepted, or the vendor was tried first and failed.
        static let offline = Flags(rawValue: 1)
        static let bulk = Flags(rawValue: 2)
        static let hasVendorContent = Flags(rawValue: 4)
        static let hasCollapseKey = Flags(rawValue: 8)
        /// `fallbackAt` is the time at which its handoff job is due.
        static let isArmed = Flags(rawValue: 16)
        /// It withdraws an earlier task; its payload is that task's id.
        static let revoke = Flags(rawValue: 32)
        /// Its ack ends its task's messages for other devices.
        static let firstAckWins = Flags(rawValue: 64)
        /// The device was reachable at acceptance, and that batch counted the send.
        static let sendCounted = Flags(rawValue: 128)
    }

    var message: MessageID
    var task: TaskID
    var app: AppKey
    var cid: DeviceID
    var strategy: Strategy
    var flags: Flags
    /// `.message`, `.vendorMessage`, or `.broadcast`: then the message has no row of its own, only its ledger row.
    var table: StoreKey.Table
    /// See `PublishCommand.vendorCarriesAll`.
    var vendorCarriesAll = false
    /// The sequence in its stream, or the msgId's low word in the vendor table.
    var item: UInt64
    var acceptedAt: GatewayTime
    var expiresAt: GatewayTime
    /// The live attempt's deadline, set at acceptance; 0: the device was unreachable.
    var fallbackAt: GatewayTime
    /// The row's alarm.
    var wakeAt: GatewayTime
    /// As asked: 0 one live attempt, −1 no offline storage.
    var timeToLive: Int64
    /// What it counts in its device's queue and window, see `MessageRow.charge`.
    var byteCount: UInt32
    /// The channels that it has a content for.
    var channels: ChannelSet = []

    /// Blocks that it counts among its app's queued bytes.
    ///
    /// A broadcast's content is stored once for all its devices: each of its messages is only a small row.
    var queuedBlocks: UInt16 {
        table == .broadcast ? LedgerRow.queuedBlocks : QueuedBlocks.count(byteCount)
    }

    var bucket: Bucket { message.bucket ?? Bucket(0) }
    var key: StoreKey { StoreKey(bucket, table, cid, item: item) }
    var jobKey: StoreKey { StoreKey(bucket, .job, message) }
    /// 0 without a place in a stream: only the vendor may carry it, or it ended in the batch that accepted it.
    var sequence: UInt64 { table == .vendorMessage ? 0 : item }
    /// One live attempt and no more.
    var isOneShot: Bool { timeToLive <= 0 }

    /// When the job of an armed message is due, as its row says: at its deadline, or from acceptance on.
    var jobDueAt: GatewayTime { fallbackAt > 0 ? fallbackAt : acceptedAt }

    /// An armed message without a job row has a due job from `jobDueAt` on.
    func hasDueJob(at time: GatewayTime) -> Bool { flags.contains(.isArmed) && jobDueAt <= time }

    /// Whether the message's row tells that the message is flagged: a start must flag it again.
    func tellsMissed(at time: GatewayTime) -> Bool {
        table != .broadcast && (flags.contains(.offline) || fallbackAt > 0 && fallbackAt <= time)
    }

    /// The alarm of the message's row: its job, or its end when it has none.
    var firstAlarm: GatewayTime { flags.contains(.isArmed) ? jobDueAt : expiresAt }

    /// What the answer to this message's publish said of its fallback.
    var fallback: (state: PublishOutcome.Fallback, reason: PublishOutcome.FallbackReason) {
        strategy.answered(
            isArmed: flags.contains(.isArmed), wasReachable: fallbackAt > 0, table: table, timeToLive: timeToLive,
            hasContent: flags.contains(.hasVendorContent))
    }
}
