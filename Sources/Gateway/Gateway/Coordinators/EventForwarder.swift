internal import Delivery
internal import EventLoops
internal import Wire

/// Takes what became of this partition's messages and devices to the homes of their apps' feeds: one batch of an app at a time, so
/// that each device's events keep their order.
final class EventForwarder {
    private unowned let owner: Partition

    init(_ owner: Partition) { self.owner = owner }

    /// Sends off what is durable; called every tick of the loop.
    func tick() {
        guard owner.context.isReady, owner.isServing else { return }
        owner.withShard { $0.watchFeeds(owner.share, now: owner.now) }
        guard owner.snapshot.hasEvents else { return }
        var batches: [EventBatch] = []
        owner.withShard { batches = $0.takeEvents(owner.share, now: owner.now) }
        for batch in batches {
            let feed = FeedName(batch.app, .events)
            owner.host.feeds.ask(.append(feed, batch.items, lost: batch.lost)) { [owner] answer in
                owner.events.told(batch, answer)
            }
        }
    }

    private func told(_ batch: EventBatch, _ answer: FeedAnswer?) {
        // The next owner of a partition that has left finds the rows.
        guard owner.isServing else { return }
        switch answer {
        case .taken?:
            owner.withShard { $0.eventsTold(batch, isTold: true, now: owner.now) }
            // There are more, most likely.
            if batch.items.count == FeedBounds.pageItems { tick() }
        default:
            // A home that refuses does not know the app yet, or its feed: it is asked again.
            owner.coordinator.later(Self.retryMilliseconds) { [owner] in
                guard owner.isServing else { return }
                owner.withShard { $0.eventsTold(batch, isTold: false, now: owner.now) }
            }
        }
    }

    private static let retryMilliseconds: Int64 = 1_000
}
