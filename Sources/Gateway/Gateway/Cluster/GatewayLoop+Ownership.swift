internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Wire

// How a part stops being served here.
extension GatewayLoop {
    /// How long a part that is given away may take to finish what it has accepted.
    private static let leaveMilliseconds: UInt64 = 2_000

    /// Stops serving the part: devices go, what was accepted is committed and answered, then `done`.
    ///
    /// With `isLost` another gateway has the part already: nothing commits any more, so nothing is waited for.
    func releaseOwnership(isLost: Bool, done: @escaping () -> Void) {
        guard core.pointee.isOwned else { return done() }
        if index == 0, !isLost { writeRates() }
        stopOwnership()
        sessions.closeAll(.moved, reason: "another gateway takes this device over; come back")
        // What they wait for is not known to be durable: they send it again, to the new owner.
        if isLost {
            for sender in openSenders where sender.isOwedAnswers {
                sender.close(.moved, reason: "another gateway has the part; send again what was not answered")
            }
        }
        finishLeaving(until: loop.now + (isLost ? 0 : Self.leaveMilliseconds), done: done)
    }

    private func finishLeaving(until deadline: UInt64, done: @escaping () -> Void) {
        let figures = statistics
        let isDone = figures.pendingEffects == 0 && figures.waitingCommands == 0 && metaWaiters.isEmpty && lists.isEmpty
        guard isDone || loop.now >= deadline else {
            return campaigns.coordinator.later(5) { [unowned self] in finishLeaving(until: deadline, done: done) }
        }
        answerAll()
        store.turnEnded()
        store.close()
        seat(ShardStart(vacant: now, LoopShare(index: index, count: loopCount)))
        answerDeferredSoon()
        done()
    }

    /// Answers as busy whatever still waits for this part's shard or store: its callers ask the next owner.
    ///
    /// Some of it may be durable. A caller that repeats its request under the same id learns which.
    private func answerAll() {
        campaigns.coordinator.seatLeft()
        withShard { $0.abandon(now: now) }
        for portion in lists.popOverdue(now: .max) { portion.forEach { answerBusy($0) } }
        let waiters = metaWaiters
        metaWaiters = []
        for waiter in waiters { waiter.failed() }
    }
}
