internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Quotas
internal import Wire

extension Partition {
    /// The longest time, in milliseconds, in which a released partition completes accepted work.
    private static let leaveMilliseconds: UInt64 = 2_000

    /// Releases the partition: closes its sessions, commits and answers accepted work, then calls `completion`.
    ///
    /// If `isLost`, another gateway already owns the partition. Commits would fail, so pending work is not awaited.
    func release(isLost: Bool, completion: @escaping () -> Void) {
        if !isLost { ownRows?.writeRates() }
        core.pointee.isServing = false
        sessions.closeAll(.moved, reason: "another gateway takes this device over; reconnect")
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

    /// Answers all pending commands as busy, so that callers retry at the next owner.
    ///
    /// Some commands may be durable. A caller that repeats its request under the same id gets the actual result.
    private func answerAll() {
        coordinator.partitionLeft(self)
        withShard { $0.abandon(now: now) }
        for portion in lists.popOverdue(now: .max) { portion.forEach { answerBusy($0) } }
        let waiters = metaWaiters
        metaWaiters = []
        for waiter in waiters { waiter.failed() }
    }
}
