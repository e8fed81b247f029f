internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore

// Lists for the partition's devices: published in portions, while the store has room for more than single publishes.
extension Partition {
    /// Devices of lists that may wait in one partition: a hundred megabytes of addresses.
    static let waitingListTargetLimit = 1_000_000
    /// Devices that one turn publishes for lists.
    private static let listSliceCount = 512
    /// How long a list waits for room before the rest of it is refused as busy; below the timeouts of most HTTP clients.
    private static let listTimeoutMilliseconds: UInt64 = 8_000

    /// Takes the part of a list that is for this partition's devices.
    func take(_ fanout: Fanout) {
        guard lists.append(fanout, deadline: loop.now + Self.listTimeoutMilliseconds) else {
            fanout.forEach { answerBusy($0) }
            return host.answerDeferredSoon()
        }
        dealLists()
    }

    /// The next portion for which there is room: a list waits where its app's single publishes would be refused.
    private func nextPortion() -> FanoutQueue.Portion? {
        guard store.hasRoomForLists else { return nil }
        return lists.popPortion { core.pointee.shard.mayAccept($0) }
    }

    /// Publishes what the store has room for; goes on in the next turn, or when something was committed.
    func dealLists() {
        // What goes on later waits for the end of a pause, whatever is committed meanwhile.
        guard !dealing.isUnderWay, !(host.isPausing && dealing.isLater) else { return }
        dealing.isUnderWay = true
        let slice = host.core.pointee.shares.isContended ? AppShares.publishesPerTurn : Self.listSliceCount
        var count = 0
        while count < slice, let portion = nextPortion() {
            count += portion.part.count
            portion.forEach { publish($0) }
        }
        dealing.isUnderWay = false
        // Short of the slice, there was no room: the next commit or tick goes on.
        guard !lists.isEmpty, count >= slice, !dealing.isLater else { return }
        dealing.isLater = true
        dealLater()
    }

    private func dealLater() {
        inNextTurn { partition in
            // The turn that ends the pause goes on.
            guard !partition.host.isPausing else { return }
            partition.dealing.isLater = false
            partition.dealLists()
        }
    }

    /// A pause is over.
    func dealAfterPause() {
        if dealing.isLater { dealLater() }
    }

    /// Refuses what has waited too long, and looks again whether there is room: the journal may have shrunk.
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
