internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore

// Delivery of lists to the partition's devices. A list is published in portions, and only while the store has room to spare for
// single publishes.
extension Partition {
    /// The most list entries that may wait in one partition: about 100 MB of addresses.
    static let waitingListTargetLimit = 1_000_000
    private static let listSliceCount = 512
    /// The time a list waits for room before its remaining devices are answered as busy; it is below the timeout of most HTTP
    /// clients.
    private static let listTimeoutMilliseconds: UInt64 = 8_000

    /// Queues the part of a list that belongs to this partition.
    func take(_ fanout: Fanout) {
        guard lists.append(fanout, deadline: loop.now + Self.listTimeoutMilliseconds) else {
            fanout.forEach { answerBusy($0) }
            return host.answerDeferredSoon()
        }
        dealLists()
    }

    /// Returns the next portion, or `nil` without room; a list waits in cases where single publishes of its app would be refused.
    private func nextPortion() -> FanoutQueue.Portion? {
        guard store.hasRoomForLists else { return nil }
        return lists.popPortion { core.pointee.shard.mayAccept($0) }
    }

    /// Publishes as much as the store has room for; continues in the next turn or after a commit.
    func dealLists() {
        // Delayed portions wait for the end of a pause, even if a commit makes room earlier.
        guard !dealing.isUnderWay, !(host.isPausing && dealing.isLater) else { return }
        dealing.isUnderWay = true
        let slice = host.core.pointee.shares.isContended ? AppShares.publishesPerTurn : Self.listSliceCount
        var count = 0
        while count < slice, let portion = nextPortion() {
            count += portion.part.count
            portion.forEach { publish($0) }
        }
        dealing.isUnderWay = false
        // A count below the slice means that the store is full. The next commit or tick continues.
        guard !lists.isEmpty, count >= slice, !dealing.isLater else { return }
        dealing.isLater = true
        dealLater()
    }

    private func dealLater() {
        inNextTurn { partition in
            // `dealAfterPause` continues in the turn that ends the pause.
            guard !partition.host.isPausing else { return }
            partition.dealing.isLater = false
            partition.dealLists()
        }
    }

    func dealAfterPause() {
        if dealing.isLater { dealLater() }
    }

    /// Refuses entries that have waited too long, and retries the others, because the store may have room again.
    func tickLists() {
        guard !lists.isEmpty else { return }
        for portion in lists.popOverdue(now: loop.now) { portion.forEach { answerBusy($0) } }
        host.answerDeferred()
        dealLists()
    }

    func answerBusy(_ command: PublishCommand) {
        host.answer(.published(command.origin, PublishOutcome(code: .busy, cid: command.cid, task: command.task)))
    }
}
