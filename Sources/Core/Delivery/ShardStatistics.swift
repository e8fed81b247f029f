package import Wire

/// The figures of one shard for the metrics: counters count since the process started, gauges show the state of now.
package struct ShardStatistics: Sendable {
    // Counters.
    package var accepted: UInt64 = 0
    /// By `FinalState`'s raw value, less one.
    package var finals = InlineArray<9, UInt64>(repeating: 0)
    /// Publishes refused as busy while room was short, of apps that had taken more than their share.
    package var refusedOverShare: UInt64 = 0
    package var repeatedRequests: UInt64 = 0
    /// Messages of devices that were accepted, and those that were refused.
    package var upstreamTaken: UInt64 = 0
    package var upstreamRefused: UInt64 = 0
    /// Events that a feed took.
    package var eventsTaken: UInt64 = 0
    /// Events that have no row, since too many others had one.
    package var eventsLost: UInt64 = 0
    /// Items that a feed removed before its consumer had acked them.
    package var feedItemsMissed: UInt64 = 0
    /// Items that wait for an ack, and for how many milliseconds the oldest has.
    package var feedItems = 0
    package var longestFeedWait: GatewayTime = 0
    package var deliversSent: UInt64 = 0
    package var deliversResent: UInt64 = 0
    /// Delivers of broadcasts, among all.
    ///
    /// Then messages that broadcasts became, live and by the enumerator; and devices passed over by their tags, their
    /// blacklist or their absence.
    package var broadcastDelivers: UInt64 = 0
    package var broadcastMessages: UInt64 = 0
    package var broadcastEnumerated: UInt64 = 0
    package var broadcastPassed: UInt64 = 0
    /// Acks that named a message not sent in their session.
    package var acksIgnored: UInt64 = 0
    package var acksAboveHighest: UInt64 = 0
    /// Feedback that was not recorded: an action's number out of range, too many actions, no such message, or no room.
    package var feedbackIgnored: UInt64 = 0
    package var missedAckDeadlines: UInt64 = 0
    package var heartbeatTimeouts: UInt64 = 0
    package var suspectTimeouts: UInt64 = 0
    package var helloRefused: UInt64 = 0
    package var registrations: UInt64 = 0
    package var storeReadFailures: UInt64 = 0
    /// Rows whose bytes are not what they should be; each is logged.
    package var damagedRows: UInt64 = 0

    // Gauges.
    /// Accepted less ended, by the counters rows that the shard knows.
    package var pending: Int64 = 0
    package var sessions = 0
    package var reachable = 0
    package var loadedDevices = 0
    /// Devices that something in memory belongs to, loaded or not.
    package var deviceSlots = 0
    package var messagesInMemory = 0
    package var jobsInMemory = 0
    package var waitingCommands = 0
    /// Devices with a message queued or in flight, or with a command that waits.
    package var deviceQueues = 0
    package var pendingEffects = 0
    package var liveBroadcasts = 0

    /// Jobs, leases and results, by channel.
    package var vendors = PerChannel { _ in VendorStatistics() }

    package init() {}

    package subscript(channel: VendorChannel) -> VendorStatistics {
        get { vendors[channel] }
        set { vendors[channel] = newValue }
    }

    package func ended(_ state: FinalState) -> UInt64 { finals[Int(state.rawValue) - 1] }

    /// Adds what an earlier shard of the same part counted here, without what is true of a moment.
    package mutating func addCounters(of earlier: ShardStatistics) {
        for state in finals.indices { finals[state] &+= earlier.finals[state] }
        for counter in Self.counters { self[keyPath: counter] &+= earlier[keyPath: counter] }
        for channel in VendorChannel.allCases { self[channel].addCounters(of: earlier[channel]) }
    }

    static var counters: [WritableKeyPath<ShardStatistics, UInt64>] {
        [
            \.accepted, \.refusedOverShare, \.repeatedRequests, \.upstreamTaken, \.upstreamRefused, \.eventsTaken,
            \.eventsLost, \.feedItemsMissed, \.deliversSent, \.deliversResent, \.broadcastDelivers,
            \.broadcastMessages, \.broadcastEnumerated, \.broadcastPassed, \.acksIgnored, \.acksAboveHighest,
            \.feedbackIgnored, \.missedAckDeadlines, \.heartbeatTimeouts, \.suspectTimeouts, \.helloRefused,
            \.registrations, \.storeReadFailures, \.damagedRows,
        ]
    }
}
