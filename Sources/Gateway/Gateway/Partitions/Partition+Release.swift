internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Quotas
internal import Wire

// The end of a partition's time on this gateway.
extension Partition {
    /// The longest time in which a partition that is given away finishes what it has accepted.
    private static let leaveMilliseconds: UInt64 = 2_000

    /// Ends the partition: devices go, what was accepted is committed and answered, then `completion`.
    ///
    /// With `isLost` another gateway has the partition already: nothing commits any more, so nothing is waited for.
    func release(isLost: Bool, completion: @escaping () -> Void) {
        if !isLost { ownRows?.writeRates() }
        core.pointee.isServing = false
        sessions.closeAll(.moved, reason: "another gateway takes this device over; come back")
        finishLeaving(until: loop.now + (isLost ? 0 : Self.leaveMilliseconds), completion: completion)
    }

    private func finishLeaving(until deadline: UInt64, completion: @escaping () -> Void) {
        let figures = statistics
        let isDone = figures.pendingEffects == 0 && figures.waitingCommands == 0 && metaWaiters.isEmpty && lists.isEmpty
        guard isDone || loop.now >= deadline else {
            return coordinator.later(5) { self.finishLeaving(until: deadline, completion: completion) }
        }
        answerAll()
        store.turnEnded()
        store.close()
        host.remove(self)
        host.answerDeferredSoon()
        completion()
    }

    /// Answers as busy whatever still waits for the shard or the store: its callers ask the next owner.
    ///
    /// Some of it may be durable. A caller that repeats its request under the same id learns which.
    private func answerAll() {
        coordinator.partitionLeft(self)
        withShard { $0.abandon(now: now) }
        for portion in lists.popOverdue(now: .max) { portion.forEach { answerBusy($0) } }
        let waiters = metaWaiters
        metaWaiters = []
        for waiter in waiters { waiter.failed() }
    }
}
