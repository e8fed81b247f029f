public import Wire

/// The key of a row, ordered by bucket, table, owner and item.
///
/// A *partition* is all rows with the same bucket, table and owner. Scans run within one partition, in item order.
public struct StoreKey: Hashable, Comparable, Sendable {
    /// The tables; raw values are part of the stored format and must never be reused.
    public enum Table: UInt8, Sendable, CaseIterable {
        /// The device's record (owner: cid; item 0).
        case device = 1
        /// A message that may travel on the live channel; never rewritten (owner: cid; item: the sequence in stream 0).
        case message = 2
        /// A message that only the vendor may carry so far (owner: cid; item: a number from the msgId, see `Shard.vendorItem`).
        case vendorMessage = 3
        /// A queued message's job: its state and its steps (owner: msgId; item 0).
        case job = 4
        /// Absolute counts of one bucket, app and UTC day (owner: (app key, day); item 0).
        case counters = 5
        /// The answer to a request id, ephemeral (owner: digest of (app, endpoint, request id); item 0).
        case request = 6
        /// The trace of an ended message, ephemeral (owner: msgId; item 0).
        case trace = 7
        /// Small facts of the gateway, such as revoked tokens, in bucket 0 only (owner and item are free).
        case meta = 8
        /// The devices that may have an alias (owner: the alias's digest, whose first 12 bits are the bucket; item 0).
        case alias = 9
        /// A device's tag (owner: (app key, tag digest, or 0 for the app's roster of all devices); item: low word of the cid).
        case tag = 10
        /// A list message with its state and schedule, in the task's home bucket (owner: taskId; item 0).
        case task = 16
        /// The outcome of one message of a task, in the device's bucket (owner: taskId; item: low word of the msgId).
        case taskMessage = 17
        /// An event of a task's message (owner: taskId; item: 48 bits of the msgId's low word and an event's number).
        case taskEvent = 18
        /// The devices of a scheduled task, in the task's home bucket (owner: taskId; item: an increasing number).
        case taskTargets = 19
        /// The tasks of a group (owner: digest of (app, group name); item: low word of the taskId).
        case taskGroup = 20
        /// An app's log of live broadcasts, in the app's home bucket (owner: (app key, 0); item: a broadcast's number).
        ///
        /// Each row is a task's row. The row at item 0 holds the highest assigned number.
        case broadcast = 21
        /// A feed, in the app's home bucket (owner: (app key, `FeedKind`); item: the number of a row's last item, 0 for the
        /// head).
        case feed = 22
        /// The numbers of a device's latest upstream messages, in the app's home bucket (owner: cid; item 0).
        case upstream = 23
        /// An event that its feed does not have yet, in the device's bucket (owner: (app key, 0); item: an increasing number).
        case event = 24
        /// The custom callback of a task, in the bucket of devices that it reached (owner: taskId; item 0).
        ///
        /// The text is stored once per bucket, not with each message; most tasks have none.
        case taskCallback = 25
        /// The attributes of a device from its Hello, apart from its record because few calls need them (owner: cid; item 0).
        case attributes = 26

        /// Whether the store drops the rows after a day, or earlier if they exceed a size budget.
        ///
        /// Delivery never deletes such rows and rewrites only a message's action row (`LateEventRow`). They have no alarm.
        public var isEphemeral: Bool { self == .request || self == .trace }

        /// Whether a start reads every row of the table; the rows are few and small, and stored apart from message rows.
        public var isReadAtStart: Bool { self == .counters || self == .meta || self == .broadcast }

        /// Whether partitions have several rows; in the other tables the item is 0.
        @inlinable public var hasItems: Bool {
            switch self {
            case .message, .vendorMessage, .meta, .tag, .taskMessage, .taskEvent, .taskTargets, .taskGroup,
                .broadcast, .feed, .event:
                true
            case .device, .job, .counters, .request, .trace, .alias, .task, .upstream, .taskCallback, .attributes:
                false
            }
        }

        /// Whether a row's alarm may be that of a job: the job's own row, or a message's row that implies a due job.
        public var mayHaveJob: Bool { self == .job || self == .message || self == .vendorMessage }

        /// Whether rows may have an alarm; the store also calls `storeCooled` for the rows of these tables.
        @inlinable public var hasAlarms: Bool {
            switch self {
            case .device, .message, .vendorMessage, .job, .task, .taskMessage, .taskEvent, .taskTargets, .taskGroup,
                .upstream, .taskCallback:
                true
            case .counters, .request, .trace, .meta, .alias, .tag, .broadcast, .feed, .event, .attributes:
                false
            }
        }
    }

    public var bucket: Bucket
    public var table: Table
    public var ownerHigh: UInt64
    public var ownerLow: UInt64
    public var item: UInt64

    @inlinable public init(_ bucket: Bucket, _ table: Table, ownerHigh: UInt64, ownerLow: UInt64, item: UInt64 = 0) {
        (self.bucket, self.table, self.ownerHigh, self.ownerLow, self.item) = (bucket, table, ownerHigh, ownerLow, item)
    }

    @inlinable public init(_ bucket: Bucket, _ table: Table, _ owner: some WideIdentifier, item: UInt64 = 0) {
        self.init(bucket, table, ownerHigh: owner.high, ownerLow: owner.low, item: item)
    }

    @inlinable public static func < (left: StoreKey, right: StoreKey) -> Bool {
        if left.bucket != right.bucket { return left.bucket < right.bucket }
        if left.table != right.table { return left.table.rawValue < right.table.rawValue }
        if left.ownerHigh != right.ownerHigh { return left.ownerHigh < right.ownerHigh }
        if left.ownerLow != right.ownerLow { return left.ownerLow < right.ownerLow }
        return left.item < right.item
    }

    /// The stored form: 2 bytes bucket, 1 table, 16 owner, 8 item, all in network order, so that bytes sort like keys.
    public static let encodedByteCount = 27
}
