package import Wire

/// The events of this shard's devices that their feed does not have yet.
///
/// Each event has a row in its device's bucket, written in the batch of the change. The row is deleted when the feed's home has
/// the event. A *sweep* finds rows of an earlier process, bucket after bucket. In a bucket that is not swept yet, a new event
/// stays on disk, so that it does not overtake older ones. The sweep also finds events beyond the memory limit.
struct EventTable {
    struct Entry {
        var bucket: Bucket
        var number: UInt64
        var item: FeedItem
    }

    struct AppEvents {
        /// The events in order; entries from index `stamped` on may not be on disk.
        var waiting: [Entry] = []
        /// The number of events of `waiting` in batches up to `stamp`.
        var stamped = 0
        var stamp: Ticket = 0
        /// The first unswept bucket, and the position in it.
        var sweptBelow = 0
        var sweepFrom: UInt64 = 0
        var isSweeping = false
        /// The backoff after a failed read of the sweep.
        var sweepRest = FeedBackoff()
        /// The backoff after a failed read of custom callbacks.
        var callbackRest = FeedBackoff()
        /// Whether the gateway has a batch in flight, or custom callbacks for a batch are being read.
        var isTelling = false
        /// The number of times `waiting` was cleared.
        var edition = 0
        var rowCount = 0
        /// The number of events that got no row because the app has too many rows of events.
        var lost: UInt64 = 0
        /// Events counted while it was unknown whether the app has the feed; they have no rows.
        var unsure: UInt64 = 0

        mutating func note(_ entry: Entry) {
            rowCount += 1
            guard Int(entry.bucket.index) < sweptBelow else { return }
            if waiting.count < EventTable.waitingLimit { return waiting.append(entry) }
            // The home is too slow or unreachable. All events have rows, so memory is cleared and the sweep starts again.
            (waiting, stamped, sweptBelow, sweepFrom) = ([], 0, 0, 0)
            edition += 1
        }
    }

    /// The maximum number of events of one app in memory.
    static let waitingLimit = 16_384
    static let sweptBuckets = 16
    static let sweptRows = 256

    private(set) var lastNumber: UInt64
    /// The first event number of this process; lower numbers are from earlier processes.
    let firstNumber: UInt64
    var apps: [AppKey: AppEvents] = [:]
    /// The one app whose sweep continues after each read; the others continue once per tick.
    var swiftApp: AppKey?

    init(now: GatewayTime) {
        firstNumber = UInt64(max(0, now)) << 20
        lastNumber = firstNumber
    }

    /// Returns the next number; numbers increase across restarts.
    mutating func nextNumber(_ now: GatewayTime) -> UInt64 {
        lastNumber = max(lastNumber + 1, UInt64(max(0, now)) << 20)
        return lastNumber
    }
}

/// A batch of events from a shard to the feed's home.
package struct EventBatch: Sendable {
    package var app: AppKey
    package var items: [FeedItem] = []
    /// The number of lost events, which have no rows, before these items.
    package var lost: UInt64 = 0
    var rows: [StoreKey] = []
    var edition = 0

    init(app: AppKey) { self.app = app }
}
