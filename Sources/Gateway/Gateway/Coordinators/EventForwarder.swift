internal import Delivery
internal import EventLoops
internal import Wire

/// Forwards events about this partition's messages and devices to the feeds of their apps.
///
/// Each app has one batch in flight, so each device's events stay in order.
final class EventForwarder {
    private unowned let owner: Partition

    init(_ owner: Partition) { self.owner = owner }

    /// Sends durable events; called in every tick of the loop.
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
        // After a release, the partition's next owner sends the stored events.
        guard owner.isServing else { return }
        switch answer {
        case .taken?:
            owner.withShard { $0.eventsTold(batch, isTold: true, now: owner.now) }
            // A full batch suggests that more events are waiting.
            if batch.items.count == FeedBounds.pageItems { tick() }
        default:
            // The batch is retried even after a refusal, because the home may not know the app or its feed yet.
            owner.coordinator.later(Self.retryMilliseconds) { [owner] in
                guard owner.isServing else { return }
                owner.withShard { $0.eventsTold(batch, isTold: false, now: owner.now) }
            }
        }
    }

    private static let retryMilliseconds: Int64 = 1_000
}
