package import Wire

/// Events of this shard's devices that their feed does not have yet.
///
/// Each has a row in its device's bucket, written in the batch of what happened. The row goes when the feed's home has the
/// event. A *sweep* finds the rows that an earlier process left: it reads bucket after bucket, and until it has passed a bucket,
/// a new event there is only a row, so that none overtakes an older one. What memory has no room for is swept up later, too.
struct EventTable {
    struct Entry {
        var bucket: Bucket
        var number: UInt64
        var item: FeedItem
    }

    struct AppEvents {
        /// In order; those from `stamped` on may not be on disk yet.
        var waiting: [Entry] = []
        /// How many of `waiting` are in batches up to `stamp`.
        var stamped = 0
        var stamp: Ticket = 0
        /// The index of the first bucket that the sweep has not passed, and the place in it.
        var sweptBelow = 0
        var sweepFrom: UInt64 = 0
        var isSweeping = false
        /// After a read that failed.
        var sweepRest = FeedBackoff()
        /// Taken out by the gateway and not told yet.
        var isTelling = false
        /// Rises when memory is cleared.
        var edition = 0
        var rowCount = 0
        /// Events without a row, since too many had one.
        var lost: UInt64 = 0
        /// Events of a time when it was not known whether the app has the feed; none of them has a row.
        var unsure: UInt64 = 0

        /// Takes an event whose row is in the open batch.
        mutating func note(_ entry: Entry) {
            rowCount += 1
            guard Int(entry.bucket.index) < sweptBelow else { return }
            if waiting.count < EventTable.waitingLimit { return waiting.append(entry) }
            // Its home does not keep up, or is out of reach: the rows have all of it.
            (waiting, stamped, sweptBelow, sweepFrom) = ([], 0, 0, 0)
            edition += 1
        }
    }

    /// Events of one app in memory.
    static let waitingLimit = 16_384
    static let sweptBuckets = 16
    static let sweptRows = 256

    private(set) var lastNumber: UInt64
    /// Rows below it are of an earlier process.
    let firstNumber: UInt64
    var apps: [AppKey: AppEvents] = [:]
    /// The app whose sweep continues with each read's answer; the other sweeps continue once a tick.
    var swiftApp: AppKey?

    init(now: GatewayTime) {
        firstNumber = UInt64(max(0, now)) << 20
        lastNumber = firstNumber
    }

    /// Grows across restarts, too.
    mutating func nextNumber(_ now: GatewayTime) -> UInt64 {
        lastNumber = max(lastNumber + 1, UInt64(max(0, now)) << 20)
        return lastNumber
    }
}

/// Events that the gateway takes to the feed's home.
package struct EventBatch: Sendable {
    package var app: AppKey
    package var items: [FeedItem] = []
    /// Events that have no row and are missing before these.
    package var lost: UInt64 = 0
    var rows: [StoreKey] = []
    var edition = 0

    init(app: AppKey) { self.app = app }
}
