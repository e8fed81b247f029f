internal import Delivery
internal import MessageStore

/// The store of a new partition, and the rows that were read before its first write.
struct PartitionStart {
    let store: any LoopStore
    var counters: CounterStart
    var broadcasts: BroadcastStart
    /// The folded counters, on the partition of bucket 0.
    var fold: CounterFold?

    /// Reads the counters' rows.
    ///
    /// - Parameters:
    ///   - store: The store, before its first write.
    ///   - share: The partition's share.
    ///   - broadcasts: The known broadcast logs of all apps.
    ///   - hasOwnOnly: Whether `broadcasts` lacks the logs of other partitions.
    ///   - fold: The folded days; `nil` if they are not known yet.
    ///   - now: Gateway time.
    /// - Throws: The store's error if a row cannot be read.
    init(
        _ store: any LoopStore, _ share: LoopShare, broadcasts: BroadcastStart, hasOwnOnly: Bool = false,
        fold: CounterFold?, now: GatewayTime
    ) throws(StoreError) {
        self.store = store
        var counters = CounterStart(now: now, fold: fold, countsFold: share.index == 0)
        try store.loadAll(table: .counters) { counters.take($0) }
        self.counters = counters
        self.broadcasts = broadcasts.of(share, hasOwnOnly: hasOwnOnly)
        self.fold = share.index == 0 ? fold : nil
    }
}
