package import Wire

/// The metrics of one shard.
///
/// Counters count since the process started; gauges show the current state.
package struct ShardStatistics: Sendable {
    // Counters.
    package var accepted: UInt64 = 0
    /// The number of ended messages by `FinalState`, at the index `rawValue` − 1.
    package var finals = InlineArray<9, UInt64>(repeating: 0)
    /// Publishes refused with `busy`: the store or a command queue was nearly full, and their app exceeded its share.
    package var refusedOverShare: UInt64 = 0
    package var repeatedRequests: UInt64 = 0
    /// Upstream messages of devices, accepted and refused.
    package var upstreamTaken: UInt64 = 0
    package var upstreamRefused: UInt64 = 0
    /// Events that were appended to a feed.
    package var eventsTaken: UInt64 = 0
    /// Events that were not stored: too many others waited for the app's feed, or the app's settings were unknown.
    package var eventsLost: UInt64 = 0
    /// Items that a feed removed before its consumer acked them.
    package var feedItemsMissed: UInt64 = 0
    /// The feed items that no consumer has acked, and the age of the oldest in milliseconds.
    package var feedItems = 0
    package var longestFeedWait: GatewayTime = 0
    package var deliversSent: UInt64 = 0
    package var deliversResent: UInt64 = 0
    /// Deliver frames of broadcasts; they also count in `deliversSent`.
    ///
    /// `broadcastMessages` counts the messages of single devices that broadcasts created, and `broadcastEnumerated` those created
    /// by the enumerator. `broadcastPassed` counts devices that a broadcast skipped because of tags, blacklist or long absence.
    package var broadcastDelivers: UInt64 = 0
    package var broadcastMessages: UInt64 = 0
    package var broadcastEnumerated: UInt64 = 0
    package var broadcastPassed: UInt64 = 0
    /// Acks of messages that were not sent in the session.
    package var acksIgnored: UInt64 = 0
    package var acksAboveHighest: UInt64 = 0
    /// Feedback that was not recorded: invalid action number, too many actions, unknown message, or no room.
    package var feedbackIgnored: UInt64 = 0
    package var missedAckDeadlines: UInt64 = 0
    package var heartbeatTimeouts: UInt64 = 0
    package var suspectTimeouts: UInt64 = 0
    package var helloRefused: UInt64 = 0
    package var registrations: UInt64 = 0
    package var storeReadFailures: UInt64 = 0
    /// Rows with invalid bytes; each is logged.
    package var damagedRows: UInt64 = 0

    // Gauges.
    /// The accepted minus the ended messages, from the counters rows that this shard counts.
    package var pending: Int64 = 0
    package var sessions = 0
    package var reachable = 0
    package var loadedDevices = 0
    /// The devices with a slot in memory, loaded or not.
    package var deviceSlots = 0
    package var messagesInMemory = 0
    package var jobsInMemory = 0
    package var waitingCommands = 0
    /// The devices with a queued or in-flight message, or with a waiting command.
    package var deviceQueues = 0
    package var pendingEffects = 0
    package var liveBroadcasts = 0

    package var vendors = PerChannel { _ in VendorStatistics() }

    package init() {}

    package subscript(channel: VendorChannel) -> VendorStatistics {
        get { vendors[channel] }
        set { vendors[channel] = newValue }
    }

    package func ended(_ state: FinalState) -> UInt64 { finals[Int(state.rawValue) - 1] }

    /// Adds the counters of an earlier shard of the same partition, but not its gauges.
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
