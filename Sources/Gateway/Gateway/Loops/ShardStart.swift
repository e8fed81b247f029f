internal import Delivery
internal import MessageStore

/// What a loop's shard starts with: its store, and what was read of it before the first write.
struct ShardStart {
    let store: any LoopStore
    var counters: CounterStart
    var broadcasts: BroadcastStart
    /// On the loop of bucket 0.
    var fold: CounterFold?
    /// False for a part that another gateway owns, or none yet.
    let isOwned: Bool

    /// Reads the counters' rows.
    ///
    /// - Parameters:
    ///   - store: before its first write.
    ///   - share: which of all loops the shard is on.
    ///   - broadcasts: the logs of all apps, as far as they are known.
    ///   - hasOwnOnly: those of other shards are not among them.
    ///   - fold: the folded days; `nil`: they are not known yet.
    ///   - now: gateway time.
    /// - Throws: the store's error when a row cannot be read.
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
        isOwned = true
    }

    /// A part that is not here.
    init(vacant now: GatewayTime, _ share: LoopShare) {
        store = VacantStore()
        counters = CounterStart(now: now)
        broadcasts = BroadcastStart().of(share)
        isOwned = false
    }
}
