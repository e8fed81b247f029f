internal import Delivery
internal import EventLoops
internal import Wire

/// Takes what became of this loop's messages and devices to the homes of their apps' feeds: one batch of an app at a time, so
/// that each device's events keep their order.
final class EventForwarder {
    private unowned let owner: GatewayLoop

    init(_ owner: GatewayLoop) { self.owner = owner }

    /// Sends off what is durable; called every tick of the loop.
    func tick() {
        guard owner.context.isReady, owner.isHere(owner.index) else { return }
        let share = LoopShare(index: owner.index, count: owner.loopCount)
        owner.withShard { $0.watchFeeds(share, now: owner.now) }
        guard owner.snapshot.hasEvents else { return }
        var batches: [EventBatch] = []
        owner.withShard { batches = $0.takeEvents(share, now: owner.now) }
        let seat = owner.seatNumber
        for batch in batches {
            let feed = FeedName(batch.app, .events)
            owner.feeds.ask(.append(feed, batch.items, lost: batch.lost)) { [weak self] answer in
                self?.told(batch, answer, seat)
            }
        }
    }

    private func told(_ batch: EventBatch, _ answer: FeedAnswer?, _ seat: Int) {
        // Where the part has left meanwhile, its next owner finds the rows.
        guard owner.seatNumber == seat, owner.isHere(owner.index) else { return }
        switch answer {
        case .taken?:
            owner.withShard { $0.eventsTold(batch, isTold: true, now: owner.now) }
            // There are more, most likely.
            if batch.items.count == FeedBounds.pageItems { tick() }
        default:
            // A home that refuses has not heard of the app yet, or of its feed: this loop has, and asks again.
            owner.campaigns.coordinator.later(Self.retryMilliseconds) { [weak self] in
                guard let self, owner.seatNumber == seat, owner.isHere(owner.index) else { return }
                owner.withShard { $0.eventsTold(batch, isTold: false, now: owner.now) }
            }
        }
    }

    private static let retryMilliseconds: Int64 = 1_000
}
