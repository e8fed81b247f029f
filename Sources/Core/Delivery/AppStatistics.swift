internal import Wire

/// The figures of one app in one shard.
///
/// Counters count since the process started; gauges show the current state.
package struct AppStatistics: Sendable {
    // Counters.
    package var accepted: UInt64 = 0
    /// Publishes refused with `busy`: the store or a command queue was nearly full, and the app exceeded its share.
    package var refusedOverShare: UInt64 = 0
    /// Messages that ended without being delivered, by final state.
    package var expired: UInt64 = 0
    package var overflowed: UInt64 = 0
    package var failed: UInt64 = 0

    // Gauges.
    package var connectedDevices = 0
    /// Pending messages; the sum over all shards is exact.
    ///
    /// The shard of bucket 0 counts folded days for all shards (`CounterFold`), so the value of another shard may be too low.
    package var queuedMessages: Int64 = 0
    /// The sizes of the pending messages in whole blocks (`QueuedBlocks`); one shard's value may be too low, as for
    /// `queuedMessages`.
    package private(set) var queuedBytes: Int64 = 0
    /// The app's bytes on disk besides its queues (`RetainedBytes`); one shard's value may be too low, as for `queuedMessages`.
    package var retainedBytes: Int64 = 0
    package var dueJobs = PerChannel { _ in 0 }
    /// The items of both feeds that the app's server has not acked, and the age of each feed's oldest item in milliseconds.
    package var upstreamItems = 0
    package var eventItems = 0
    package var upstreamWait: GatewayTime = 0
    package var eventWait: GatewayTime = 0

    package init() {}

    /// Adds the counters of an earlier shard of the same partition, but not its gauges.
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
