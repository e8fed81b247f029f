public import Wire

/// The place of a row: ordered by bucket, then table, then owner, then item.
///
/// A *partition* is everything with the same bucket, table and owner; scans run within one partition, in item order.
public struct StoreKey: Hashable, Comparable, Sendable {
    /// The tables.
    ///
    /// Raw values are part of the stored format: never reuse one.
    public enum Table: UInt8, Sendable, CaseIterable {
        /// Owner: cid; item 0.
        ///
        /// The device's record.
        case device = 1
        /// Owner: cid; item: the sequence in stream 0.
        ///
        /// A message that may travel the live channel; never rewritten.
        case message = 2
        /// Owner: cid; item: low word of the msgId.
        ///
        /// A message that only the vendor may carry so far (strategies 2, 4).
        case vendorMessage = 3
        /// Owner: msgId; item 0.
        ///
        /// Where a queued message is, its job's state, its steps so far.
        case job = 4
        /// Owner: (app key, day); item 0.
        ///
        /// Absolute counts of one bucket, app and UTC day.
        case counters = 5
        /// Owner: digest of (app, endpoint, request id); item 0.
        ///
        /// Ephemeral.
        case request = 6
        /// Owner: msgId; item 0.
        ///
        /// How a message ended. Ephemeral.
        case trace = 7
        /// Owner and item as the caller likes: revoked tokens and other small facts of the gateway.
        ///
        /// Bucket 0 only.
        case meta = 8
        /// Owner: the alias's digest, whose first 12 bits are the bucket; item 0.
        ///
        /// Which devices may have the alias.
        case alias = 9
        /// Owner: (app key, tag digest or 0 for the roster); item: low word of the cid.
        ///
        /// A device of this bucket has the tag.
        case tag = 10
        /// Owner: taskId; item 0; in the task's home bucket.
        ///
        /// A list message, its state, its schedule.
        case task = 16
        /// Owner: taskId; item: low word of the msgId; in the device's bucket.
        ///
        /// What became of one message of a task.
        case taskMessage = 17
        /// Owner: taskId; item: 48 bits of the msgId's low word and an event's number.
        ///
        /// What a user did with a message.
        case taskEvent = 18
        /// Owner: taskId; item: a number that grows; in the task's home bucket.
        ///
        /// Devices that wait for a scheduled task.
        case taskTargets = 19
        /// Owner: digest of (app, group name); item: low word of the taskId.
        ///
        /// The tasks of a group.
        case taskGroup = 20
        /// Owner: (app key, 0); item: a broadcast's number; in the app's home bucket.
        ///
        /// The app's log: a task's row, kept while the broadcast is live; item 0: the highest number given.
        case broadcast = 21
        /// Owner: (app key, `FeedKind`); item: the number of a row's last item, 0 for the feed's head; in the app's home
        /// bucket.
        ///
        /// What the app's business server follows: its devices' messages, or events.
        case feed = 22
        /// Owner: cid; item 0; in the app's home bucket.
        ///
        /// The numbers of a device's latest messages.
        case upstream = 23
        /// Owner: (app key, 0); item: a number that grows; in the device's bucket.
        ///
        /// An event that its feed does not have yet.
        case event = 24

        /// The store keeps ephemeral rows for a day (within a size budget), then drops them.
        ///
        /// Delivery writes them once and never deletes them by name; they have no alarm.
        public var isEphemeral: Bool { self == .request || self == .trace }

        /// Few and small: a start reads every row of these tables, so the store keeps them apart from those of
        /// messages.
        public var isReadAtStart: Bool { self == .counters || self == .meta || self == .broadcast }

        /// Only these tables have partitions of several rows; in the others the item is 0.
        @inlinable public var hasItems: Bool {
            switch self {
            case .message, .vendorMessage, .meta, .tag, .taskMessage, .taskEvent, .taskTargets, .taskGroup,
                .broadcast, .feed, .event:
                true
            case .device, .job, .counters, .request, .trace, .alias, .task, .upstream: false
            }
        }

        /// Rows whose alarm may be that of a job: a job's own, and a message's that implies a due one.
        public var mayHaveJob: Bool { self == .job || self == .message || self == .vendorMessage }

        /// Rows that may have an alarm; the store tells their owner when they turn cold.
        @inlinable public var hasAlarms: Bool {
            switch self {
            case .device, .message, .vendorMessage, .job, .task, .taskMessage, .taskEvent, .taskTargets, .taskGroup,
                .upstream:
                true
            case .counters, .request, .trace, .meta, .alias, .tag, .broadcast, .feed, .event: false
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

    /// The stored form: 2 bytes bucket, 1 table, 16 owner, 8 item, all in network order, so that bytes sort as keys do.
    public static let encodedByteCount = 27
}
