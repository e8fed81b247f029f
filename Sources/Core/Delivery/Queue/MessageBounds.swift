internal import Wire

/// The size limits of the parts of a message, defined once.
///
/// The push API and the native publish refuse larger parts with their own errors (`PushAPI.Limits`). The bounds of rows and
/// batches are derived from these limits, see `RowBounds`.
package enum MessageBounds {
    /// The live channel's payload, kept verbatim.
    package static let payloadByteCount = 16 << 10
    package static let collapseKeyByteCount = 64
    /// `settings.custom_callback`, which each event of the message repeats.
    package static let customCallbackByteCount = 1_024
    /// Title and body together on the live channel: no more than APNs would show.
    package static let alertByteCount = vendorBodyByteCount
    /// Apple's limits for the body of a notification and of a VoIP push; the first is also the limit for other platforms.
    package static let vendorBodyByteCount = 4_096
    package static let vendorVoIPBodyByteCount = 5_120
    /// Apple's limit for apns-collapse-id.
    package static let vendorCollapseIDByteCount = 64
    /// The content for a follow-up channel: the parameters of a text, not the text's own limit.
    package static let followUpByteCount = 2_048
    /// A message with the content for its device's vendor and the content for a follow-up.
    package static let byteCount =
        payloadByteCount + collapseKeyByteCount + alertByteCount + vendorVoIPBodyByteCount + vendorCollapseIDByteCount
        + followUpByteCount
    /// The contents of a task for further platforms; the content for a follow-up is part of `byteCount`.
    package static let furtherContentsByteCount = (VendorPlatform.allCases.count - 2) * vendorBodyByteCount
}

/// The largest row of each table, derived from the bounds of its fields.
///
/// A start compares them with the store's bounds (`GatewayLimits.brokenStoreBounds`). A test checks the largest values that the
/// configuration allows.
package enum RowBounds {
    /// Returns the bytes of a name with a configured maximum length: up to four bytes per character, cut at 255.
    static func textByteCount(characters: Int) -> Int { 1 + min(255, 4 * characters) }

    /// The bytes of a step's detail: the vendor's text is cut at 64, and the gateway's own texts are shorter.
    static let stepDetailByteCount = 64
    static let denseStepsByteCount =
        RowWriter.varintByteCount + JobRow.stepLimit * (1 + RowWriter.varintByteCount + 1 + stepDetailByteCount)
    static let leasesByteCount = 1 + LeaseBytes.leaseByteCount * JobRow.leaseLimit
    static let reasonByteCount = 1 + Limits.reasonByteCount + 32

    /// Returns the largest value of a table's rows; `nil` for `meta`, whose rows have no common form.
    package static func byteCount(of table: StoreKey.Table, _ limits: ShardLimits) -> Int? {
        let group = 1 + TaskBounds.groupByteCount
        let furtherCount = VendorPlatform.allCases.count - 1
        let further = furtherCount == 0 ? 0 : 1 + furtherCount * MessageContent.furtherByteCount
        let content =
            MessageContent.headerByteCount + MessageBounds.byteCount + MessageBounds.furtherContentsByteCount
            + MessageContent.activityByteCount
            + MessageContent.strategiesByteCount + further + 2 + MessageBounds.customCallbackByteCount
        let audience = TagExpression.byteCountLimit(tagByteCount: 4 * limits.tagCharacters)
        let task = 80 + group + content + BroadcastPlan.fixedByteCount + audience
        switch table {
        case .device: return deviceByteCount(limits)
        case .message, .vendorMessage: return MessageRow.overheadByteCount + MessageBounds.byteCount
        case .job: return JobRow.fixedByteCount + denseStepsByteCount + leasesByteCount
        case .counters: return CountersRow.byteCount
        case .request:
            return max(
                PushRow.byteCountLimit, CallRow.byteCount(targetCount: TaskBounds.callTargets),
                RequestRow.byteCount * TaskBounds.callTargets)
        case .trace:
            return TraceRow.fixedByteCount + reasonByteCount + denseStepsByteCount + leasesByteCount
        case .meta: return nil
        case .alias:
            return 1 + 8 + textByteCount(characters: limits.aliasCharacters) + 2 + limits.devicesPerAlias * 26
        case .tag: return 8
        case .task, .broadcast: return task
        case .taskMessage: return LedgerRow.fixedByteCount + reasonByteCount
        case .taskEvent: return TaskEventRow.byteCount
        case .taskTargets: return TargetsRow.byteCount(count: TaskBounds.targetsOfARow)
        case .taskGroup: return 16
        case .feed: return FeedRow.byteCountLimit
        case .event: return FeedRow.headByteCount + FeedRow.itemByteCount + reasonByteCount + FeedRow.callbackByteCount
        case .taskCallback: return CallbackRow.byteCountLimit
        case .attributes: return AttributesRow.byteCountLimit
        case .upstream: return UpstreamRow.headByteCount + UpstreamRow.entryByteCount * UpstreamRow.entryLimit
        }
    }

    private static func deviceByteCount(_ limits: ShardLimits) -> Int {
        let aliases = Limits.aliasesPerDevice * (32 + textByteCount(characters: limits.aliasCharacters))
        let tags =
            limits.tagsPerDevice * (8 + 1)
            + min(
                4 * limits.tagCharactersPerDevice, limits.tagsPerDevice * min(255, 4 * limits.tagCharacters))
        let names = 1 + 1 + aliases + 8 + 1 + (DeviceNames.givenUpLimit + 1) * 16 + 4 + 2 + 2 + tags
        return DeviceRow.headerByteCount + 2 + 255 + Limits.tokensPerDevice * DeviceToken.largestByteCount
            + VendorFailure.largestByteCount + AttributesMark.byteCount + names
    }

    /// Returns the bounds of a batch, in operations and in bytes with their headers.
    ///
    /// A batch contains the device's record, its counters, its roster row, and the largest change that must be one batch.
    package static func largestBatch(_ limits: ShardLimits) -> (operations: Int, byteCount: Int) {
        func bytes(_ table: StoreKey.Table) -> Int {
            Self.operationByteCount + (byteCount(of: table, limits) ?? 0)
        }
        // The end of a message deletes the rows of the message and its job, and writes a trace, a ledger row and an event.
        let end = (
            operations: 5,
            byteCount: 2 * Self.operationByteCount + bytes(.trace) + bytes(.taskMessage) + bytes(.event)
        )
        // The counters of today, and of yesterday for messages accepted then; for each day one row, and one per vendor besides
        // Apple.
        let counters = 2 * VendorChannel.allCases.count
        let always = (
            operations: 3 + counters,
            byteCount: bytes(.device) + counters * bytes(.counters) + bytes(.tag) + bytes(.event)
        )
        // A message displaces at most as many smallest messages as fit into its size (`Shard.accept`). A larger excess ends in
        // earlier batches.
        let largest = MessageRow.chargeBesideRow + (byteCount(of: .message, limits) ?? 0)
        let displaced = 1 + largest / (MessageRow.chargeBesideRow + MessageRow.smallestByteCount)
        let publish = (
            // The message's own rows, and one message under its collapse key that is marked or ended.
            operations: always.operations + displaced * end.operations + end.operations + 1 + 5,
            byteCount: always.byteCount + (displaced + 1) * end.byteCount + 2 * bytes(.job) + bytes(.message)
                + bytes(.taskMessage) + bytes(.request) + bytes(.taskCallback)
        )
        // A series continues in a new batch at this number of rows.
        let ends = OpenBatch.rowLimit / 3 + 1
        let ending = (
            operations: always.operations + ends * end.operations, byteCount: always.byteCount + ends * end.byteCount
        )
        let tags = (
            operations: always.operations + 2 * limits.tagsPerDevice,
            byteCount: always.byteCount + 2 * limits.tagsPerDevice * bytes(.tag)
        )
        let task = (operations: 4, byteCount: bytes(.task) + bytes(.broadcast) + bytes(.tag) + bytes(.request))
        // An upstream message with its row and the head, or the rows that one step of a feed deletes.
        let feed = (
            operations: FeedBounds.trimmedRows + 3,
            byteCount: bytes(.feed) + bytes(.upstream) + (FeedBounds.trimmedRows + 1) * Self.operationByteCount
                + FeedHeadRow.byteCount
        )
        let all = [publish, ending, tags, task, feed]
        return (all.map(\.operations).max() ?? 0, all.map(\.byteCount).max() ?? 0)
    }

    private static let operationByteCount = StoreBounds.operationByteCount
}
