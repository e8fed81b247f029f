internal import Delivery
internal import MessageStore
internal import PushAPI

/// Folds the counters of past days into daily sums, on the partition of bucket 0; see `CounterFold`.
final class CounterMaintenance {
    private unowned let owner: Partition
    private var fold: CounterFold
    private var nextLookAt: GatewayTime = 0
    private var isUnderWay = false

    private static let lookMilliseconds: Int64 = 600_000
    private static let retryMilliseconds: Int64 = 5_000

    init(_ owner: Partition, _ fold: CounterFold) { (self.owner, self.fold) = (owner, fold) }

    /// The days whose counters exist only as sums.
    var folded: FoldedDays { fold.folded }

    /// Called about once a second.
    func tick() {
        guard owner.context.isReady, !owner.context.isStopping, !isUnderWay, owner.now >= nextLookAt,
            owner.store.acceptsWrites
        else { return }
        isUnderWay = true
        nextLookAt = owner.now + Self.lookMilliseconds
        // Each partition answers once all its counts are durable.
        let today = CountersRow.day(of: owner.now)
        owner.coordinator.collect({ _ in FoldableQuery(today: today) }) { [self, owner] parts in
            guard owner.isServing else { return }
            take(parts, today)
        }
    }

    private func take(_ parts: [[CountersRow]]?, _ today: UInt32) {
        guard let parts else { return end(lookIn: Self.retryMilliseconds) }
        let change = fold.change(parts, today: today, reportDays: UInt32(PushAPI.Limits.reportDays))
        guard !change.isEmpty else { return remove(change) }
        // The rows by bucket are removed only after their sum is durable.
        owner.metaWaiters.append(
            MetaWaiter(ticket: fold.write(change, to: owner.store), done: { [self] in remove(change) }))
    }

    private func remove(_ change: CounterFold.Change) {
        let isFull =
            change.days.count == CounterFold.changedDayCount || change.gone.count == CounterFold.changedDayCount
        let delay = isFull ? Self.retryMilliseconds : Self.lookMilliseconds
        guard !change.removed.isEmpty else { return end(lookIn: delay) }
        let isCluster = owner.context.cluster != nil
        if isCluster { owner.withShard { $0.takeFold(change.days, now: owner.now) } }
        owner.coordinator.askAll({ RemoveCounters(change.removed, $0, isCounted: isCluster) }) {
            [self, owner] answers in
            guard owner.isServing else { return }
            end(lookIn: answers.contains(false) ? Self.retryMilliseconds : delay)
        }
    }

    private func end(lookIn milliseconds: Int64) {
        isUnderWay = false
        nextLookAt = owner.now + milliseconds
    }
}
