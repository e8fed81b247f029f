internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore

// Lists for this loop's devices: published in portions, while the store has room for more than single publishes.
extension GatewayLoop {
    /// Devices of lists that may wait on one loop: a hundred megabytes of addresses.
    static let waitingListTargetLimit = 1_000_000
    /// Devices that one turn publishes for lists.
    private static let listSliceCount = 512
    /// How long a list waits for room before the rest of it is refused as busy; below the timeouts of most HTTP clients.
    private static let listTimeoutMilliseconds: UInt64 = 8_000

    func publish(_ fanout: Fanout, on target: Int, _ permit: PublishPermit) {
        guard isHere(target) else { return send(.list(fanout), to: target) }
        take(fanout)
    }

    /// Takes the part of a list that is for this loop's devices.
    func take(_ fanout: Fanout) {
        guard lists.append(fanout, deadline: loop.now + Self.listTimeoutMilliseconds) else {
            fanout.forEach { answerBusy($0) }
            return answerDeferredSoon()
        }
        dealLists()
    }

    /// The next portion for which there is room: a list waits where its app's single publishes would be refused.
    private func nextPortion() -> FanoutQueue.Portion? {
        guard store.hasRoomForLists else { return nil }
        return lists.popPortion { core.pointee.seat.mayAccept($0) }
    }

    /// Publishes what the store has room for; goes on in the next turn, or when something was committed.
    func dealLists() {
        // What goes on later waits for the end of a pause, whatever is committed meanwhile.
        guard !isDealing, !(isPausing && isDealingLater) else { return }
        isDealing = true
        let slice = core.pointee.shares.isContended ? AppShares.publishesPerTurn : Self.listSliceCount
        var count = 0
        while count < slice, let portion = nextPortion() {
            count += portion.part.count
            portion.forEach { publishHere($0) }
        }
        isDealing = false
        // Short of the slice, there was no room: the next commit or tick goes on.
        guard !lists.isEmpty, count >= slice, !isDealingLater else { return }
        isDealingLater = true
        dealLater()
    }

    private func dealLater() {
        inNextTurn { member in
            // The turn that ends the pause goes on.
            guard !member.isPausing else { return }
            member.isDealingLater = false
            member.dealLists()
        }
    }

    /// A pause is over.
    func dealAfterPause() {
        if isDealingLater { dealLater() }
    }

    /// Refuses what has waited too long, and looks again whether there is room: the journal may have shrunk.
    func tickLists() {
        guard !lists.isEmpty else { return }
        for portion in lists.popOverdue(now: loop.now) { portion.forEach { answerBusy($0) } }
        answerDeferred()
        dealLists()
    }

    func answerBusy(_ command: PublishCommand) {
        answer(.published(command.origin, PublishOutcome(code: .busy, cid: command.cid, task: command.task)))
    }

    /// Takes answers to this loop itself once the caller has returned.
    func answerDeferredSoon() {
        guard !core.pointee.deferred.isEmpty else { return }
        inNextTurn { $0.answerDeferred() }
    }
}
