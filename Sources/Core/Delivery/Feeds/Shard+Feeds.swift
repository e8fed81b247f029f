// The shard's door to its feeds: what they answered goes out, and their work of later turns is noted.

internal import Wire

extension Shard {
    mutating func inFeeds(_ work: (inout FeedTable, inout ShardCore) -> Void) {
        work(&feeds, &core)
        finishPart()
    }

    /// Looks for heads of feeds without a reader; see `FeedTable.watch`.
    package mutating func watchFeeds(_ share: LoopShare, now: GatewayTime) {
        guard feeds.watchedApps < apps.count || feeds.isLookDue(at: now) else { return }
        begin(now)
        inFeeds { feeds, core in feeds.watch(share, &core) }
    }

    /// Answers every consumer that waits, since the gateway stops.
    package mutating func releaseFeedWaiters(now: GatewayTime) {
        begin(now)
        inFeeds { feeds, core in feeds.releaseWaiters(&core) }
    }

    mutating func advanceFeeds() {
        guard feeds.nextDue <= now else { return }
        inFeeds { feeds, core in feeds.advance(&core) }
    }
}
