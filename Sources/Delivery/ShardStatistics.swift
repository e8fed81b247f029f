public import Wire

/// The figures of one shard for the metrics: counters count since the process started, gauges show the state of now.
public struct ShardStatistics: Sendable {
    // Counters.
    public var accepted: UInt64 = 0
    /// By `FinalState`'s raw value, less one.
    public var finals = InlineArray<9, UInt64>(repeating: 0)
    /// Publishes refused as busy while room was short, of apps that had taken more than their share.
    public var refusedOverShare: UInt64 = 0
    public var repeatedRequests: UInt64 = 0
    public var deliversSent: UInt64 = 0
    public var deliversResent: UInt64 = 0
    /// Delivers of broadcasts, among all.
    ///
    /// Then messages that broadcasts became, live and by the enumerator; and devices passed over by their tags, their
    /// blacklist or their absence.
    public var broadcastDelivers: UInt64 = 0
    public var broadcastMessages: UInt64 = 0
    public var broadcastEnumerated: UInt64 = 0
    public var broadcastPassed: UInt64 = 0
    /// Acks that named a message not sent in their session.
    public var acksIgnored: UInt64 = 0
    public var acksAboveHighest: UInt64 = 0
    /// Feedback that was not recorded: an action's number out of range, too many actions, no such message, or no room.
    public var feedbackIgnored: UInt64 = 0
    public var missedAckDeadlines: UInt64 = 0
    public var heartbeatTimeouts: UInt64 = 0
    public var suspectTimeouts: UInt64 = 0
    public var helloRefused: UInt64 = 0
    public var registrations: UInt64 = 0
    public var storeReadFailures: UInt64 = 0
    /// Rows whose bytes are not what they should be; each is logged.
    public var damagedRows: UInt64 = 0

    // Gauges.
    /// Accepted less ended, by the counters rows that the shard knows.
    public var pending: Int64 = 0
    public var sessions = 0
    public var reachable = 0
    public var loadedDevices = 0
    /// Devices that something in memory belongs to, loaded or not.
    public var deviceSlots = 0
    public var messagesInMemory = 0
    public var jobsInMemory = 0
    public var waitingCommands = 0
    /// Devices with a message queued or in flight, or with a command that waits.
    public var deviceQueues = 0
    public var pendingEffects = 0
    public var liveBroadcasts = 0

    /// Jobs, leases and results, by channel.
    public var vendors = PerChannel { _ in VendorStatistics() }

    public init() {}

    public subscript(channel: VendorChannel) -> VendorStatistics {
        get { vendors[channel] }
        set { vendors[channel] = newValue }
    }

    public func ended(_ state: FinalState) -> UInt64 { finals[Int(state.rawValue) - 1] }
}
