internal import Wire

/// The facts that routing, ending and tracing a message require: everything except its content.
///
/// The same facts are in the message's row, in its job's row and in memory.
struct MessageFacts {
    struct Flags: OptionSet {
        let rawValue: UInt8
        /// The device was unreachable at acceptance, or the vendor was tried first and failed.
        static let offline = Flags(rawValue: 1)
        static let bulk = Flags(rawValue: 2)
        static let hasVendorContent = Flags(rawValue: 4)
        static let hasCollapseKey = Flags(rawValue: 8)
        /// The message has a handoff job, due at `jobDueAt`.
        static let isArmed = Flags(rawValue: 16)
        /// The message revokes an earlier task; its payload is that task's id.
        static let revoke = Flags(rawValue: 32)
        /// The ack ends the task's messages for other devices.
        static let firstAckWins = Flags(rawValue: 64)
        /// The device was reachable at acceptance, and the accepting batch counted the send.
        static let sendCounted = Flags(rawValue: 128)
    }

    var message: MessageID
    var task: TaskID
    var app: AppKey
    var cid: DeviceID
    var strategy: Strategy
    var flags: Flags
    /// The table: `.message`, `.vendorMessage`, or `.broadcast` for a message with only a ledger row.
    var table: StoreKey.Table
    /// See `PublishCommand.vendorCarriesAll`.
    var vendorCarriesAll = false
    /// Whether the task has a custom callback, in a `CallbackRow` of the message's bucket.
    var hasCallback = false
    /// The sequence in the stream, or in the vendor table a number from the msgId (`Shard.vendorItem`).
    var item: UInt64
    var acceptedAt: GatewayTime
    var expiresAt: GatewayTime
    /// The deadline of the live attempt; 0 without a live attempt at acceptance.
    var fallbackAt: GatewayTime
    /// The row's alarm.
    var wakeAt: GatewayTime
    /// The TTL in ms as requested: 0 one live attempt, −1 no offline storage.
    var timeToLive: Int64
    /// The charge against the device's queue and window, see `MessageRow.charge`.
    var byteCount: UInt32
    var channels: ChannelSet = []
    /// The time from which the follow-up channel's job is due; 0: no follow-up.
    var followUpAt: GatewayTime = 0

    /// The charge against the app's queued bytes, in blocks.
    ///
    /// A broadcast's content is stored once for all devices, so each of its messages counts only as a small row.
    var queuedBlocks: UInt16 {
        table == .broadcast ? LedgerRow.queuedBlocks : QueuedBlocks.count(byteCount)
    }

    var bucket: Bucket { message.bucket ?? Bucket(0) }
    var key: StoreKey { StoreKey(bucket, table, cid, item: item) }
    var jobKey: StoreKey { StoreKey(bucket, .job, message) }
    /// The sequence; 0 without a place in a stream.
    var sequence: UInt64 { table == .vendorMessage ? 0 : item }
    var isOneShot: Bool { timeToLive <= 0 }

    /// The time from which an armed message's job is due: the live deadline or the acceptance; without a vendor, a later
    /// `followUpAt`.
    var jobDueAt: GatewayTime {
        let due = fallbackAt > 0 ? fallbackAt : acceptedAt
        return followUpAt > due && channels.first?.isFollowUp == true ? followUpAt : due
    }

    /// Returns whether an armed message without a job row has a due job.
    func hasDueJob(at time: GatewayTime) -> Bool { flags.contains(.isArmed) && jobDueAt <= time }

    /// Returns whether the message's row shows that the message is flagged, so a restart flags it again.
    func tellsMissed(at time: GatewayTime) -> Bool {
        table != .broadcast && (flags.contains(.offline) || fallbackAt > 0 && fallbackAt <= time)
    }

    /// The first alarm of the message's row: the due time of its job, or its expiry without a job.
    var firstAlarm: GatewayTime { flags.contains(.isArmed) ? jobDueAt : expiresAt }

    var fallback: (state: PublishOutcome.Fallback, reason: PublishOutcome.FallbackReason) {
        strategy.answered(
            isArmed: flags.contains(.isArmed), wasReachable: fallbackAt > 0, table: table, timeToLive: timeToLive,
            hasContent: flags.contains(.hasVendorContent))
    }
}
