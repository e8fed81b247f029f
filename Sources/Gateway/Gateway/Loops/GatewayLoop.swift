internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Wire

/// One event loop with everything it owns: a delivery shard, its store, sessions, HTTP exchanges in flight.
///
/// Confined to its loop's thread. Other loops reach it through its mailbox only. The loop calls its shard through
/// `withShard`, which performs the effects of the call at once (ShardOwnership).
final class GatewayLoop {
    let index: Int
    let loop: EventLoop
    /// What all loops share and none changes.
    let context: GatewayContext
    /// The parts on this event loop.
    let seats: LoopPartitions
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
    private var pace = CPUShare()
    /// Senders and lists that have more than their slices wait, until the loop has slept its share.
    private(set) var isPausing = false
    var handshakes = HandshakeQueue()
    var senderHandshakes = HandshakeQueue()
    /// Shared by the listeners of this loop.
    let publicRoom: HTTPConnectionLimit
    let adminRoom: HTTPConnectionLimit
    var listeners: [Listener] = []
    /// Those of `publicHandler`'s servers.
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
    private(set) lazy var publicHandler = PublicHandler(self)
    private(set) lazy var directoryHandler = DirectoryHandler(self)
    private(set) lazy var adminHandler = AdminHandler(self)
    private(set) lazy var campaigns = TaskHandler(self)
    /// What shards counted that are no longer seated here: counters of `/metrics` never fall.
    private(set) var endedFigures = EndedFigures()
    /// On the loop that owns the gateway's own rows.
    private lazy var taskMaintenance = TaskMaintenance(self)
    /// On the loop of bucket 0.
    private(set) var counterMaintenance: CounterMaintenance?
    /// Changes of apps, likewise.
    private(set) lazy var appService = AppService(self)
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
        var seat: ShardOwnership
        /// The shard of this part serves here; otherwise another gateway's does, or none.
        var isOwned: Bool
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
        var requests = PendingRequests()
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

    var welcomes: AcceptQueue { seats.welcomes }

    var clock: ClockMapping { core.pointee.clock }
    /// The largest body of a frame; asked for with each one.
    var frameByteLimit: Int { core.pointee.frameByteLimit }
    var deviceFrameByteLimit: Int { core.pointee.deviceFrameByteLimit }

    /// Messages from devices.
    private(set) lazy var upstream = UpstreamHandler(self)
    /// What apps' business servers follow.
    private(set) lazy var feeds = FeedHandler(self)
    private(set) lazy var events = EventForwarder(self)
    private(set) lazy var webhooks = FeedWebhooks(self)

    /// Made on the thread that starts the gateway, before the loop runs.
    init(
        index: Int, loop: EventLoop, context: GatewayContext, snapshot: GatewaySnapshot, clock: ClockMapping,
        start: ShardStart, seats: LoopPartitions
    ) {
        (self.index, self.loop, self.seats, store) = (index, loop, seats, start.store)
        (self.context, self.snapshot) = (context, snapshot)
        handoff = HandoffCoordinator(loop: index, loopCount: context.loopCount)
        publicRoom = HTTPConnectionLimit(limit: snapshot.connections.http / context.eventLoopCount)
        adminRoom = HTTPConnectionLimit(limit: snapshot.connections.admin / context.eventLoopCount)
        let now = clock.time(atBoot: ClockReader.boot())
        core = .allocate(capacity: 1)
        core.initialize(
            to: Core(
                seat: ShardOwnership(Self.shard(start, context, snapshot, snapshot.limits.shardLimits, now)),
                isOwned: start.isOwned,
                outgoing: (0..<context.loopCount).map { _ in Outgoing() }, clock: clock,
                frameByteLimit: snapshot.limits.frameBytes,
                deviceFrameByteLimit: min(snapshot.limits.frameBytes, Wire.Limits.clientBodyByteCount)))
        seats.add(self)
        counterMaintenance = start.fold.map { CounterMaintenance(self, $0) }
        core.pointee.sessions = DeviceSessions(self)
        store.observer = self
        handoff.outlet = HandoffCoordinator.Outlet(
            lease: { [unowned self] target, command in
                ask(command, of: target) { [unowned self] answer in
                    handoff.leased(command.origin, answer, now: Int64(self.loop.now))
                }
            },
            settle: { [unowned self] target, results, apps, origin in
                ask(SettleJobs(results: results, apps: apps), of: target) { [unowned self] verdicts in
                    handoff.settled(origin, verdicts)
                }
            },
            extend: { [unowned self] target, items, milliseconds, apps, origin in
                ask(ExtendLeases(items: items, milliseconds: milliseconds, apps: apps), of: target) {
                    [unowned self] verdicts in
                    handoff.settled(origin, verdicts)
                }
            }, knowsAllApps: { [unowned self] in registry.isComplete },
            knownApps: { [unowned self] in registry.keys },
            route: { [unowned self] slot, stamp in route(.request, slot, stamp) })
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
    /// The store of the present shard has been closed, and its callers were answered (`releaseOwnership`).
    func seat(_ start: ShardStart) {
        core.pointee.isOwned = start.isOwned
        store = start.store
        let apps = snapshot.settings.map(\.key)
        endedFigures.add(statistics, apps, core.pointee.seat.statistics(of: apps))
        core.pointee.seat.replace(with: Self.shard(start, context, snapshot, shardLimits, now))
        seats.shareOut()
        counterMaintenance = start.fold.map { CounterMaintenance(self, $0) }
        taskMaintenance = TaskMaintenance(self)
        appService = AppService(self)
        seatNumber += 1
        if start.isOwned { context.cluster?.noteOwnership(of: index, at: now) }
        learning = [:]
        store.observer = self
    }

    /// Another history of the store is in force.
    func begin(_ history: StoreHistory) {
        withShard { $0.begin(history) }
        publicHandler.historyBegan()
        // The store may have lost changes of apps that this gateway follows.
        if index == 0 { followApps() }
    }

    /// Sends to this part are not for the shard here from now on; the shard finishes what it has.
    func stopOwnership() { core.pointee.isOwned = false }

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
    func isStill(_ seat: Int) -> Bool { seat == seatNumber && core.pointee.isOwned }

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
        publicHandler.api.clockOffset = offset
        publicHandler.api.isClockDoubted = offset > ClockLimits.forwardStep
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
            publicHandler.forgetExpiredTokens()
            directoryHandler.tick()
            if isHere(0) {
                taskMaintenance.tick()
                counterMaintenance?.tick()
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
            handoff.jobsAvailable(jobNews, in: index, now: Int64(loop.now))
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
        publicHandler.turnEnded()
        if !rested.isEmpty || publicHandler.mayGoOn { resume(rested) }
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
            member.publicHandler.goOn()
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
        publicHandler.reload(snapshot)
        adminHandler.reload(snapshot)
    }

    /// A caller waits for an answer that is not out yet.
    var hasWorkUnderWay: Bool {
        var isSenderOwed = false
        senders.forEach { _, _, sender in isSenderOwed = isSenderOwed || sender.isOwedAnswers }
        return isSenderOwed || publicHandler.hasWorkUnderWay || directoryHandler.hasWorkUnderWay
            || handoff.hasWorkUnderWay || campaigns.coordinator.hasWorkUnderWay || core.pointee.requests.count > 0
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
        if isHere(0) { taskMaintenance.writeRates() } else { exchangeRates() }
    }

    func writeRates() { taskMaintenance.writeRates() }

    /// Names what waits for an answer on this loop.
    func route(_ kind: Route.Kind, _ slot: UInt32, _ stamp: UInt32) -> Route {
        Route(kind, node: 0, loop: index, slot: slot, stamp: stamp)
    }

    /// Whether the shard of a part is this loop's; otherwise what is for it is sent.
    @inline(__always)
    func isHere(_ target: Int) -> Bool { target == index && core.pointee.isOwned }
}
