// The shard's access to its feeds: it releases their answers and schedules their slices.

internal import Wire

extension Shard {
    mutating func inFeeds(_ work: (inout FeedTable, inout ShardCore) -> Void) {
        work(&feeds, &core)
        finishPart()
    }

    /// Loads heads of feeds without a consumer; see `FeedTable.watch`.
    package mutating func watchFeeds(_ share: LoopShare, now: GatewayTime) {
        guard feeds.watchedApps < apps.count || feeds.isLookDue(at: now) else { return }
        begin(now)
        inFeeds { feeds, core in feeds.watch(share, &core) }
    }

    /// Answers all waiting consumers because the gateway stops.
    package mutating func releaseFeedWaiters(now: GatewayTime) {
        begin(now)
        inFeeds { feeds, core in feeds.releaseWaiters(&core) }
    }

    mutating func advanceFeeds() {
        guard feeds.nextDue <= now else { return }
        inFeeds { feeds, core in feeds.advance(&core) }
    }
}
