internal import Campaigns
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
    func leaveSeat(isLost: Bool, done: @escaping () -> Void) {
        guard core.pointee.isSeated else { return done() }
        if index == 0, !isLost { writeRates() }
        stopSeat()
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

    // MARK: Broadcasts of other parts' apps

    /// Tells a part that is served elsewhere now all that this part has of its apps' broadcasts.
    func announceBroadcasts(to part: Int) {
        guard core.pointee.isSeated else { return }
        campaigns.coordinator.ask(index, .liveBroadcasts(LoopShare(index: index, count: loopCount))) {
            [unowned self] answer in
            guard case .liveBroadcasts(let logs) = answer else { return }
            // No broadcasts are news, too: until then the part takes no registrations of these apps.
            send(.broadcasts(logs, home: index), to: part)
        }
    }

    /// Takes over what another part has of its apps' broadcasts.
    func learn(_ logs: [AppBroadcasts], of home: Int) {
        withShard { $0.learn(logs, of: home, loopCount: loopCount, now: now) }
        continueWork()
    }

    /// Compares what this part knows of broadcasts with other gateways' parts in turn; once a second.
    ///
    /// A word of the last one may be lost, and then nothing else says that there is one. Each part is compared with about
    /// every sixteen seconds, however many there are.
    func compareBroadcasts() {
        guard let cluster = context.cluster, core.pointee.isSeated, loopCount > 1 else { return }
        for _ in 0..<max(1, loopCount / Self.comparisonSeconds) {
            compared = (compared + 1) % loopCount
            // Nothing is lost between the loops of one gateway.
            guard ![0, cluster.node].contains(cluster.owner(of: compared)) else { continue }
            compareBroadcasts(with: compared)
        }
    }

    private static let comparisonSeconds = 16

    /// Asks a part how far its apps' logs go, and for the whole of them where one goes further than is known here.
    func compareBroadcasts(with home: Int) {
        let seat = seatNumber
        campaigns.coordinator.ask(home, .broadcastHeads(LoopShare(index: home, count: loopCount))) {
            [unowned self] answer in
            // A part on its way tells of its broadcasts when it is served again.
            guard isStill(seat), case .liveBroadcasts(let heads) = answer else { return }
            var isBehind = false
            withQuietShard { shard in
                isBehind = heads.contains { $0.head > shard.broadcastHead(of: $0.app) }
                return false
            }
            if isBehind { learnBroadcasts(of: home) }
        }
    }

    /// Asks a part for its apps' broadcasts until it has told of them; `tried` runs after the first answer, whatever it was.
    func learnBroadcasts(of home: Int, tried: @escaping () -> Void = {}) {
        guard learning.updateValue(true, forKey: home) == nil else { return tried() }
        askForBroadcasts(of: home, seat: seatNumber, delay: 20, tried: tried)
    }

    private func askForBroadcasts(of home: Int, seat: Int, delay: Int64, tried: @escaping () -> Void = {}) {
        guard isStill(seat) else { return tried() }
        learning[home] = false
        campaigns.coordinator.ask(home, .liveBroadcasts(LoopShare(index: home, count: loopCount))) {
            [unowned self] answer in
            guard isStill(seat) else { return tried() }
            let isAskedAgain = learning[home] ?? false
            guard case .liveBroadcasts(let logs) = answer else {
                // Nobody has the part, or its owner cannot be reached: it tells when it is served again.
                tried()
                return campaigns.coordinator.later(delay) { [unowned self] in
                    askForBroadcasts(of: home, seat: seat, delay: min(500, delay * 2))
                }
            }
            learn(logs, of: home)
            tried()
            // One came meanwhile that these logs may not have.
            if isAskedAgain { askForBroadcasts(of: home, seat: seat, delay: 20) } else { learning[home] = nil }
        }
    }
}
