/// How large the parts of a message may be: written here once.
///
/// The push API and the native publish refuse what is larger, each with its own error (`PushAPI.Limits` has these numbers
/// under its names). What a row or a batch may take at most follows from them, see `RowBounds`.
public enum MessageBounds {
    /// What the app gets on the live channel (design: kept verbatim, up to 16 KiB).
    public static let payloadByteCount = 16 << 10
    /// A key names something; it is no payload.
    public static let collapseKeyByteCount = 64
    /// Title and body together, as the live channel carries them: no more than APNs would show.
    public static let alertByteCount = vendorBodyByteCount
    /// Apple's bound for a notification's body, and for that of a VoIP push.
    public static let vendorBodyByteCount = 4_096
    public static let vendorVoIPBodyByteCount = 5_120
    /// Apple's bound for apns-collapse-id.
    public static let vendorCollapseIDByteCount = 64
    /// The bytes of all parts of the largest message.
    public static let byteCount =
        payloadByteCount + collapseKeyByteCount + alertByteCount + vendorVoIPBodyByteCount + vendorCollapseIDByteCount
}

/// The largest row of each table, from the bounds of what stands in it.
///
/// A start holds them against the store's bounds (`GatewayLimits.brokenBounds`), and a test does so for the largest values that
/// the configuration allows.
public enum RowBounds {
    /// Of a name that the configuration bounds in characters: up to four bytes each, and a text in a row is cut at 255.
    static func textByteCount(characters: Int) -> Int { 1 + min(255, 4 * characters) }

    /// Bytes of a step's detail: what a vendor said is cut at 64, our own words are shorter.
    static let stepDetailByteCount = 64
    /// Steps of a message's life, each with its detail.
    static let stepsByteCount = 2 + JobRow.stepLimit * (9 + 1 + stepDetailByteCount)
    /// The leases that a job remembers.
    static let leasesByteCount = 1 + LeaseBytes.leaseByteCount * JobRow.leaseLimit
    /// Why a message ended: a client's reason, and our words before it.
    static let reasonByteCount = 1 + Limits.reasonByteCount + 32

    /// The largest value of a table's rows; `nil` for the gateway's own small facts, which have no common shape.
    public static func byteCount(of table: StoreKey.Table, _ limits: ShardLimits) -> Int? {
        let group = 1 + TaskBounds.groupByteCount
        let content = MessageContent.headerByteCount + MessageBounds.byteCount
        let audience = TagExpression.byteCountLimit(tagByteCount: 4 * limits.tagCharacters)
        let task = 80 + group + content + BroadcastPlan.fixedByteCount + audience
        switch table {
        case .device: return deviceByteCount(limits)
        case .message, .vendorMessage: return MessageRow.headerByteCount + MessageBounds.byteCount
        case .job: return JobRow.fixedByteCount + stepsByteCount + leasesByteCount
        case .counters: return CountersRow.byteCount
        case .request:
            return max(
                RequestRow.byteCount, CallRow.byteCount(targetCount: TaskBounds.callTargets),
                RequestRow.byteCount * TaskBounds.callTargets)
        case .trace:
            return TraceRow.fixedByteCount + reasonByteCount + stepsByteCount + 3 * 10 + 2 + leasesByteCount
        case .meta: return nil
        case .alias:
            return 1 + 8 + textByteCount(characters: limits.aliasCharacters) + 2 + limits.devicesPerAlias * 26
        case .tag: return 8
        case .task, .broadcast: return task
        case .taskMessage: return LedgerRow.fixedByteCount + reasonByteCount
        case .taskEvent: return TaskEventRow.byteCount
        case .taskTargets: return TargetsRow.byteCount(count: TaskBounds.targetsOfARow)
        case .taskGroup: return 16
        case .singleTask: return SingleTaskRow.byteCount
        }
    }

    private static func deviceByteCount(_ limits: ShardLimits) -> Int {
        let token = 11 + 1 + 255 + 2 + Limits.tokenByteCount
        let aliases = Limits.aliasesPerDevice * (32 + textByteCount(characters: limits.aliasCharacters))
        let tags =
            limits.tagsPerDevice * (8 + 1)
            + min(
                4 * limits.tagCharactersPerDevice, limits.tagsPerDevice * min(255, 4 * limits.tagCharacters))
        let names = 1 + 1 + aliases + 8 + 1 + (DeviceNames.givenUpLimit + 1) * 16 + 4 + 2 + 2 + tags
        return DeviceRow.headerByteCount + 2 + 255 + Limits.tokensPerDevice * token + names
    }

    /// What a batch may take at most, in operations and in bytes with their headers: the device's record, its counters and its
    /// place in the roster, and the largest of the changes that are written as one.
    public static func largestBatch(_ limits: ShardLimits) -> (operations: Int, byteCount: Int) {
        func bytes(_ table: StoreKey.Table) -> Int {
            Self.operationByteCount + (byteCount(of: table, limits) ?? 0)
        }
        // A message's end: its row and its job's go, trace and ledger row come.
        let end = (operations: 4, byteCount: 2 * Self.operationByteCount + bytes(.trace) + bytes(.taskMessage))
        // The counters of today, and of yesterday for what was accepted then.
        let always = (operations: 4, byteCount: bytes(.device) + 2 * bytes(.counters) + bytes(.tag))
        // A message displaces as many of the smallest as its own row is large (`Shard.accept`); more end before it.
        let displaced = 1 + (byteCount(of: .message, limits) ?? 0) / (MessageRow.headerByteCount + 1)
        let publish = (
            // Its own rows, and one under its collapse key that is marked or ended.
            operations: always.operations + displaced * end.operations + end.operations + 1 + 4,
            byteCount: always.byteCount + (displaced + 1) * end.byteCount + 2 * bytes(.job) + bytes(.message)
                + bytes(.taskMessage) + bytes(.request)
        )
        // A long batch is broken before the next change when it has so many rows.
        let ends = OpenBatch.rowLimit / 3 + 1
        let ending = (
            operations: always.operations + ends * end.operations, byteCount: always.byteCount + ends * end.byteCount
        )
        let tags = (
            operations: always.operations + 2 * limits.tagsPerDevice,
            byteCount: always.byteCount + 2 * limits.tagsPerDevice * bytes(.tag)
        )
        let task = (operations: 4, byteCount: bytes(.task) + bytes(.broadcast) + bytes(.tag) + bytes(.request))
        let all = [publish, ending, tags, task]
        return (all.map(\.operations).max() ?? 0, all.map(\.byteCount).max() ?? 0)
    }

    /// A change's header in a batch.
    private static let operationByteCount = 48
}
