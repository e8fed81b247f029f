internal import Campaigns
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Wire

/// One event loop with everything it owns: a delivery shard, its store, sessions, HTTP exchanges in flight.
///
/// Confined to its loop's thread. Other loops reach it through its mailbox only. The loop calls its shard through
/// `withShard`, which performs the effects of the call at once (ShardSeat).
final class GatewayLoop {
    let index: Int
    let loop: EventLoop
    /// What all loops share and none changes.
    let context: GatewayContext
    /// The parts on this event loop.
    let seats: LoopSeats
    private(set) var store: any LoopStore
    /// False while the part is taken over and does not know all broadcasts yet.
    var welcomesDevices = true

    private(set) var snapshot: GatewaySnapshot
    let core: UnsafeMutablePointer<Core>
    var mailboxes: [Mailbox<LoopMessage>] = []
    var dueTasks: [TaskRecord] = []
    /// Broadcasts that this turn's effects told of.
    var launches: [TaskRecord] = []
    /// Changes of devices' tokens among this turn's effects.
    var tokenNews: [TokenNews] = []
    private var isWorking = false
    /// Acks whose siblings are to be ended, likewise.
    var firstAcks: [FirstAck] = []
    /// Lists whose devices wait for room in the store.
    var lists = FanoutQueue(targetLimit: GatewayLoop.waitingListTargetLimit)
    var isDealing = false
    var isDealingLater = false
    private var lastSecond: UInt64 = 0
    /// When the gateways tell each other again what apps have queued.
    var nextQueueExchange: UInt64 = 0
    /// Devices that are connected and about to be told that their app has too many (`isSurplus`).
    var surplusDevices: [AppKey: Int] = [:]
    /// The book of quotas has what this part has.
    var isHoldingNoted = false
    private var pace = LoopPace()
    /// Senders and lists that have more than their slices wait, until the loop has slept its share.
    private(set) var isPausing = false
    var handshakes = HandshakeQueue()
    var senderHandshakes = HandshakeQueue()
    /// Shared by the listeners of this loop.
    let publicRoom: HTTPRoom
    let adminRoom: HTTPRoom
    var listeners: [Listener] = []
    /// Those of `publicFront`'s servers.
    var publicListeners: [Listener] = []
    var reportedAcceptFailures: UInt64 = 0
    var reportedHeaders: UInt64 = 0
    var reportedProbes: UInt64 = 0
    /// Which drain this loop goes through its sessions for, and how far it has come.
    var emptyingNumber: Int64 = 0
    var emptyingCursor: UInt32 = 0
    var stuckSeconds = 0
    let publisher = NativePublisher()
    let handoff: HandoffCoordinator
    private(set) lazy var publicFront = PublicFront(self)
    private(set) lazy var directoryFront = DirectoryFront(self)
    private(set) lazy var adminFront = AdminFront(self)
    private(set) lazy var campaigns = CampaignFront(self)
    /// What shards counted that are no longer seated here: counters of `/metrics` never fall.
    private(set) var endedFigures = EndedFigures()
    /// On the loop that owns the gateway's own rows.
    private lazy var campaignKeeper = CampaignKeeper(self)
    /// On the loop of bucket 0.
    private(set) var counterKeeper: CounterKeeper?
    /// Changes of apps, likewise.
    private(set) lazy var appKeeper = AppKeeper(self)
    private(set) lazy var appInquiry = AppInquiry(self)
    /// Rows of the gateway's own that wait to be durable.
    var metaWaiters: [MetaWaiter] = []
    /// Rises whenever the part's shard here is another one: what an earlier one began goes on no more.
    private(set) var seatNumber = 0
    /// Parts that are asked for their apps' broadcasts, and whether to ask again when they have answered.
    var learning: [Int: Bool] = [:]
    /// The part that broadcasts were compared with last.
    var compared = 0

    /// Of a part's mailbox: the least that `mailboxItems` may be.
    private static let leastMailboxItems = 64

    /// What this turn gathered for one other loop.
    struct Outgoing {
        var publishes: CommandBatch?
        var answers: AnswerBatch?
        var messages: [LoopMessage] = []
    }

    /// What every message changes.
    ///
    /// It stands behind a pointer, because each access to a class's own variable is checked at run time for overlaps
    /// with others: at some 90 instructions an access those checks were a sixth of what a message cost.
    struct Core: ~Copyable {
        var seat: ShardSeat
        /// The shard of this part serves here; otherwise another gateway's does, or none.
        var isSeated: Bool
        var deferred: [LoopAnswer] = []
        var round: [LoopAnswer] = []
        var isAnswering = false
        var outgoing: [Outgoing]
        /// Parts that were not told of a broadcast of this part's.
        var untold: Set<Int> = []
        /// Answers to other gateways, by their numbers.
        var remoteAnswers: [Int: AnswerBatch] = [:]
        var jobNews: ChannelSet = []
        var shares = AppShares()
        var clock: ClockMapping
        var cachedNow: GatewayTime = 0
        var metrics = LoopMetrics()
        // `admit` keeps the configured limit, which is for all loops together and may change.
        var senders = StampedTable<SenderConnection>(limit: Route.slotLimit)
        /// Set once, as soon as its owner is there.
        var sessions: DeviceSessions?
        var frameByteLimit: Int
        /// Of what a device sends.
        var deviceFrameByteLimit: Int
    }

    var metrics: LoopMetrics {
        _read { yield core.pointee.metrics }
        _modify { yield &core.pointee.metrics }
    }

    var sessions: DeviceSessions {
        guard let sessions = core.pointee.sessions else { preconditionFailure("asked for before the loop was made") }
        return sessions
    }

    var senders: StampedTable<SenderConnection> {
        _read { yield core.pointee.senders }
        _modify { yield &core.pointee.senders }
    }

    var welcomes: WelcomeDesk { seats.welcomes }

    var clock: ClockMapping { core.pointee.clock }
    /// The largest body of a frame; asked for with each one.
    var frameByteLimit: Int { core.pointee.frameByteLimit }
    var deviceFrameByteLimit: Int { core.pointee.deviceFrameByteLimit }

    /// Messages from devices.
    private(set) lazy var upstream = UpstreamDesk(self)
    /// What apps' business servers follow.
    private(set) lazy var feeds = FeedFront(self)
    private(set) lazy var events = EventDesk(self)
    private(set) lazy var webhooks = FeedWebhooks(self)

    /// Made on the thread that starts the gateway, before the loop runs.
    init(
        index: Int, loop: EventLoop, context: GatewayContext, snapshot: GatewaySnapshot, clock: ClockMapping,
        start: ShardStart, seats: LoopSeats
    ) {
        (self.index, self.loop, self.seats, store) = (index, loop, seats, start.store)
        (self.context, self.snapshot) = (context, snapshot)
        handoff = HandoffCoordinator(loop: index, loopCount: context.loopCount)
        publicRoom = HTTPRoom(limit: snapshot.connections.http / context.eventLoopCount)
        adminRoom = HTTPRoom(limit: snapshot.connections.admin / context.eventLoopCount)
        let now = clock.time(atBoot: ClockReader.boot())
        core = .allocate(capacity: 1)
        core.initialize(
            to: Core(
                seat: ShardSeat(Self.shard(start, context, snapshot, snapshot.limits.shardLimits, now)),
                isSeated: start.isSeated,
                outgoing: (0..<context.loopCount).map { _ in Outgoing() }, clock: clock,
                frameByteLimit: snapshot.limits.frameBytes,
                deviceFrameByteLimit: min(snapshot.limits.frameBytes, Wire.Limits.clientBodyByteCount)))
        seats.add(self)
        counterKeeper = start.fold.map { CounterKeeper(self, $0) }
        core.pointee.sessions = DeviceSessions(self)
        store.observer = self
        handoff.outlet = HandoffCoordinator.Outlet(
            lease: { [unowned self] target, command in lease(on: target, command) },
            settle: { [unowned self] target, results, apps, origin in settle(on: target, results, apps, origin) },
            extend: { [unowned self] target, items, milliseconds, apps, origin in
                extend(on: target, items, milliseconds, apps, origin)
            }, route: { [unowned self] slot, stamp in route(.handoff, slot, stamp) })
        loop.onTurnEnd(.beforeFlush) { [unowned self] in endTurn() }
        loop.onStop { [unowned self] in
            // What the last turn wrote goes to the committer before the shard is taken out of service.
            store.turnEnded()
            store.close()
        }
        loop.onTick { [unowned self] _ in tick() }
        loop.onStandstill { [unowned self] milliseconds in stoodStill(for: milliseconds) }
        guard loop.hasOwnTable else { return }
        loop.onArrival { [unowned self] connection, cargo in
            guard let connection, let cargo = cargo as? AdoptedConnection.Cargo else { return endConnection(.device) }
            DeviceHandshake.adopt(
                AdoptedConnection(connection: connection, isSecure: cargo.isSecure, hello: cargo.hello), on: self)
        }
    }

    private static func shard(
        _ start: ShardStart, _ context: GatewayContext, _ snapshot: GatewaySnapshot, _ limits: ShardLimits,
        _ now: GatewayTime
    ) -> Shard {
        Shard(
            limits: limits, apps: snapshot.settings, store: start.store,
            verifier: HelloVerifier(), encoder: BroadcastFrames(), queueEpoch: context.queueEpoch,
            history: context.history, counters: start.counters, broadcasts: start.broadcasts,
            knowsAllApps: snapshot.registry.isComplete, now: now)
    }

    /// Puts another shard in the place of the present one; of a part that begins or ends to be served here.
    ///
    /// The present one's store has been closed, and its callers were answered (`leaveSeat`).
    func seat(_ start: ShardStart) {
        core.pointee.isSeated = start.isSeated
        store = start.store
        let apps = snapshot.settings.map(\.key)
        endedFigures.add(statistics, apps, core.pointee.seat.statistics(of: apps))
        core.pointee.seat.replace(with: Self.shard(start, context, snapshot, shardLimits, now))
        seats.shareOut()
        counterKeeper = start.fold.map { CounterKeeper(self, $0) }
        campaignKeeper = CampaignKeeper(self)
        appKeeper = AppKeeper(self)
        seatNumber += 1
        if start.isSeated { context.cluster?.noteSeat(of: index, at: now) }
        learning = [:]
        store.observer = self
    }

    /// Another history of the store is in force.
    func begin(_ history: StoreHistory) {
        withShard { $0.begin(history) }
        publicFront.historyBegan()
    }

    /// Sends to this part are not for the shard here from now on; the shard finishes what it has.
    func stopSeat() { core.pointee.isSeated = false }

    deinit {
        core.deinitialize(count: 1)
        core.deallocate()
    }

    /// This part's share of what its event loop may hold.
    var shardLimits: ShardLimits { snapshot.limits.shardLimits.share(of: seats.seatCount) }

    /// Opens this loop's mailbox, a part of what the event loop's may hold; to be called before any loop runs.
    func openMailbox() -> Mailbox<LoopMessage> {
        let partCount = (context.loopCount + context.eventLoopCount - 1) / context.eventLoopCount
        let capacity = max(Self.leastMailboxItems, snapshot.limits.mailboxItems / partCount)
        return Mailbox(into: loop, capacity: capacity) { [unowned self] messages in receive(messages) }
    }

    func connect(_ mailboxes: [Mailbox<LoopMessage>]) { self.mailboxes = mailboxes }

    /// True while the shard that is here is still the one of that number.
    func isStill(_ seat: Int) -> Bool { seat == seatNumber && core.pointee.isSeated }

    /// Gateway time, read once a turn.
    var now: GatewayTime {
        if core.pointee.cachedNow == 0 { core.pointee.cachedNow = clock.time(atBoot: ClockReader.boot()) }
        return core.pointee.cachedNow
    }

    var loopCount: Int { context.loopCount }
    var limits: GatewayLimits { snapshot.limits }
    var registry: AppRegistry { snapshot.registry }
    var log: Log { context.log }
    var statistics: ShardStatistics { core.pointee.seat.statistics }

    /// The control thread moved the clock's mapping; the machine's clock stands so far ahead of it.
    func setClock(_ mapping: ClockMapping, offset: Int64 = 0) {
        core.pointee.clock = mapping
        core.pointee.cachedNow = 0
        publicFront.api.clockOffset = offset
        publicFront.api.isClockDoubted = offset > ClockLimits.forwardStep
    }

    // MARK: Turn

    /// Gives sessions a fresh period after the process or its machine was stopped.
    private func stoodStill(for milliseconds: UInt64) {
        // A shorter one is within the slack of each heartbeat.
        guard milliseconds >= Self.standstillMilliseconds else { return }
        withShard { $0.stoodStill(now: now) }
        guard loop.index == index else { return }
        log.write(.warning, .loopStoodStill, [.loop: LogValue(loop.index), .milliseconds: LogValue(milliseconds)])
    }

    private static let standstillMilliseconds: UInt64 = 10_000

    private func tick() {
        withShard { $0.advance(to: now) }
        continueWork()
        campaigns.coordinator.tick(now: loop.now)
        events.tick()
        emptyABit()
        noteHoldings()
        exchangeQueues()
        tickLists()
        while let connection = handshakes.popDue(now: loop.now) { connection.handshakeTimedOut() }
        while let connection = senderHandshakes.popDue(now: loop.now) { connection.handshakeTimedOut() }
        if loop.now >= lastSecond + 1_000 {
            lastSecond = loop.now
            context.activity.note(core.pointee.seat.publishingApps, now: loop.now)
            handoff.tick(now: Int64(loop.now))
            reportAcceptFailures()
            reportRefusedHeaders()
            excuseIfStuck()
            store.secondPassed()
            tellAgain()
            compareBroadcasts()
            exchangeRates()
            webhooks.tick()
            publicFront.forgetExpiredTokens()
            directoryFront.tick()
            if isHere(0) {
                campaignKeeper.tick()
                counterKeeper?.tick()
            }
        }
    }

    /// Callers do not wait for a log that stands still: they ask again, and other parts' work of theirs goes on.
    private func excuseIfStuck() {
        stuckSeconds = store.isStuck ? stuckSeconds + 1 : 0
        if stuckSeconds >= Self.patienceSeconds { withShard { $0.excuseWaiting(now: now) } }
        sendStandingAway()
    }

    /// Devices whose Hellos would keep those of other parts waiting come back later: their part has no Welcome for them now.
    func sendStandingAway() {
        guard isStandingStill else { return }
        // What is too many is several parts' doing: each has its share of it.
        let (surplus, standing) = (-welcomes.standingRoom, seats.standingHelloCount)
        guard surplus > 0, standing > 0 else { return }
        sessions.sendOpeningsAway((surplus * sessions.openingCount + standing - 1) / standing)
    }

    /// Whether the store stood still when a second was last over.
    var isStandingStill: Bool { stuckSeconds > 0 }

    private static let patienceSeconds = 3

    /// Sends off what the turn gathered: batches to the committer, messages to the other loops.
    private func endTurn() {
        let jobNews = core.pointee.jobNews
        if !jobNews.isEmpty {
            core.pointee.jobNews = []
            handoff.jobsAvailable(jobNews, now: Int64(loop.now))
        }
        // The gateway's own rows are few, and the writer of each waits for it.
        store.turnEnded(awaited: metaWaiters.isEmpty ? core.pointee.seat.awaitedTicket : .max)
        for target in core.pointee.outgoing.indices { dispatch(to: target) }
        if !core.pointee.remoteAnswers.isEmpty { dispatchRemoteAnswers() }
        core.pointee.cachedNow = 0
        metrics.count(.turns)
        core.pointee.shares.isContended = context.activity.isContended
        let hasPaused = isPausing
        isPausing = mustPause()
        if hasPaused, !isPausing { dealAfterPause() }
        let rested = core.pointee.shares.turnEnded(isPausing: isPausing)
        publicFront.turnEnded()
        if !rested.isEmpty || publicFront.mayGoOn { resume(rested) }
    }

    /// Whether what is beyond the apps' slices waits; if so, the loop's timer makes the turn that ends the wait.
    private func mustPause() -> Bool {
        guard core.pointee.shares.isSliceUsedUp || isDealingLater && core.pointee.shares.isContended else {
            return false
        }
        let wait = pace.wait(now: loop.preciseNow, work: loop.threadTime)
        guard wait > 0 else { return false }
        if !isPausing { metrics.count(.publishPauses) }
        loop.turnAgain(in: wait)
        return true
    }

    /// Senders that have rested read on, and requests that waited go on, in a turn of its own.
    private func resume(_ rested: [AppShares.Connection]) {
        inNextTurn { member in
            for connection in rested { member.senders[connection.slot, connection.stamp]?.rested() }
            member.publicFront.goOn()
        }
    }

    /// Goes on with the shard's longer work, a slice a turn.
    func continueWork() {
        guard !isWorking, core.pointee.seat.hasWorkAtHand else { return }
        isWorking = true
        inNextTurn { member in
            member.isWorking = false
            member.withShard { $0.continueWork(now: member.now) }
            member.continueWork()
        }
    }

    /// A new configuration is in force.
    func reload(_ snapshot: GatewaySnapshot) {
        let disabled = registry.disabled(in: snapshot.registry)
        self.snapshot = snapshot
        core.pointee.frameByteLimit = snapshot.limits.frameBytes
        core.pointee.deviceFrameByteLimit = min(snapshot.limits.frameBytes, Wire.Limits.clientBodyByteCount)
        withShard {
            $0.reload(apps: snapshot.settings, knowsAllApps: snapshot.registry.isComplete, limits: shardLimits)
        }
        for app in disabled {
            withShard { $0.endSessions(of: app, .appDisabled, reason: Self.disabledReason, now: now) }
        }
        for sender in openSenders { sender.reload(registry) }
        welcomes.reload()
        reloadHandshakeGate()
        publicFront.reload(snapshot)
        adminFront.reload(snapshot)
    }

    /// A caller waits for an answer that is not out yet.
    var hasWorkUnderWay: Bool {
        var isSenderOwed = false
        senders.forEach { _, _, sender in isSenderOwed = isSenderOwed || sender.isOwedAnswers }
        return isSenderOwed || publicFront.hasWorkUnderWay || directoryFront.hasWorkUnderWay
            || handoff.hasWorkUnderWay || campaigns.coordinator.hasWorkUnderWay
            || statistics.pendingEffects > 0
    }

    /// Each may close itself, which changes the table.
    var openSenders: [SenderConnection] {
        var all: [SenderConnection] = []
        senders.forEach { _, _, connection in all.append(connection) }
        return all
    }

    /// Tells every connection that the gateway stops.
    func beginStop() {
        // Every peer is told at once, and each has its time to read it.
        loop.closingStreamLimit = .max
        welcomes.dismissAll(.shuttingDown, reason: "the gateway is stopping")
        sessions.closeAll()
        for sender in openSenders { sender.stop() }
        handoff.drain()
        if isHere(index) { withShard { $0.releaseFeedWaiters(now: now) } }
        if isHere(0) { campaignKeeper.writeRates() } else { exchangeRates() }
    }

    func writeRates() { campaignKeeper.writeRates() }

    /// Names what waits for an answer on this loop.
    func route(_ kind: Route.Kind, _ slot: UInt32, _ stamp: UInt32) -> Route {
        Route(kind, node: 0, loop: index, slot: slot, stamp: stamp)
    }

    /// Whether the shard of a part is this loop's; otherwise what is for it is sent.
    @inline(__always)
    func isHere(_ target: Int) -> Bool { target == index && core.pointee.isSeated }
}
