// The figures that a shard keeps by app, for an operator who has several.

internal import Wire

/// The figures of one app in one shard: counters count since the process started, gauges show the state of now.
package struct AppStatistics: Sendable {
    // Counters.
    package var accepted: UInt64 = 0
    /// Publishes refused as busy, because room was short and the app had taken more than its share.
    package var refusedOverShare: UInt64 = 0
    /// Messages that ended in a state which says that the device did not get them.
    package var expired: UInt64 = 0
    package var overflowed: UInt64 = 0
    package var failed: UInt64 = 0

    // Gauges.
    package var connectedDevices = 0
    /// Accepted and not ended; of a part without bucket 0 less what was accepted before yesterday.
    package var queuedMessages: Int64 = 0
    /// Their sizes in whole blocks, in the same way (`QueuedBlocks`).
    package private(set) var queuedBytes: Int64 = 0
    /// What the app has on disk besides its queues, in the same way (`RetainedBytes`).
    package var retainedBytes: Int64 = 0
    package var dueJobs = PerChannel { _ in 0 }
    /// What waits for an ack of the app's server, and for how many milliseconds the oldest has.
    package var upstreamItems = 0
    package var eventItems = 0
    package var upstreamWait: GatewayTime = 0
    package var eventWait: GatewayTime = 0

    package init() {}

    /// Adds what an earlier shard of the same part counted here, without what is true of a moment.
    package mutating func addCounters(of earlier: AppStatistics) {
        accepted &+= earlier.accepted
        refusedOverShare &+= earlier.refusedOverShare
        expired &+= earlier.expired
        overflowed &+= earlier.overflowed
        failed &+= earlier.failed
    }

    mutating func addBlocks(_ count: Int64) { queuedBytes += count * Int64(QueuedBlocks.blockByteCount) }
    mutating func forgetBytes() { queuedBytes = 0 }

    mutating func add(_ holdings: CountedHoldings) {
        queuedMessages += holdings.messages
        addBlocks(holdings.blocks)
    }

    mutating func count(_ state: FinalState) {
        switch state {
        case .expired: expired &+= 1
        case .overflowed: overflowed &+= 1
        case .failed: failed &+= 1
        case .delivered, .deliveredOffline, .opened, .handedOff, .collapsed, .revoked: break
        }
    }
}
