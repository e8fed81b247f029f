internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Wire

/// One event loop and what serves there: listeners, connections before their Hello, HTTP, senders, and the mail to others.
///
/// Confined to its loop's thread; other threads reach it through `HostHandle` and its mailbox. The devices, their sessions
/// and their store are with the partitions that it hosts: those whose numbers are its own modulo the number of hosts.
final class EventLoopHost {
    let index: Int
    let loop: EventLoop
    /// Shared by all hosts; changed by none.
    let context: GatewayContext
    private(set) var snapshot: GatewaySnapshot
    let core: UnsafeMutablePointer<Core>
    private(set) var mailboxes: [Mailbox<Mail>] = []
    private var lastSecond: UInt64 = 0
    /// The time of the next exchange of queue counts between gateways.
    var nextQueueExchange: UInt64 = 0
    private var pace = CPUShare()
    /// Senders and lists that have more than their slices wait, until the loop has slept its share.
    private(set) var isPausing = false
    var handshakes = HandshakeQueue()
    var senderHandshakes = HandshakeQueue()
    /// Shared by the listeners of this loop.
    let publicRoom: HTTPConnectionLimit
    let adminRoom: HTTPConnectionLimit
    var listeners = HostListeners()
    let publisher = NativePublisher()
    private(set) lazy var handoff = HandoffCoordinator(
        first: index, partitions: self,
        knownApps: { [unowned self] in .init(isComplete: registry.isComplete, keys: registry.keys) },
        clock: { [loop] in Int64(loop.now) })
    private(set) lazy var welcomes = AcceptQueue(self)
    private(set) lazy var publicHandler = PublicHandler(self)
    private(set) lazy var directoryHandler = DirectoryHandler(self)
    private(set) lazy var adminHandler = AdminHandler(self)
    private(set) lazy var campaigns = TaskHandler(self)
    /// Requests of business servers about feeds.
    private(set) lazy var feeds = FeedHandler(self)
    private(set) lazy var appInquiry = AppInquiry(self)
    /// The counters of shards that are no longer here: counters of `/metrics` never fall.
    private(set) var endedFigures = EndedFigures()

    /// Messages of this turn for one partition.
    struct Outgoing {
        var publishes: CommandBatch?
        var messages: [LoopMessage] = []
        var isEmpty: Bool { publishes == nil && messages.isEmpty }
    }

    /// Mail of this turn for one host of this gateway.
    struct HostMail {
        var answers: AnswerBatch?
        var items: [Mail] = []
    }

    /// The fields that every message changes.
    ///
    /// It stands behind a pointer, because each access to a class's own variable is checked at run time for overlaps
    /// with others: at some 90 instructions an access those checks were a sixth of what a message cost.
    struct Core: ~Copyable {
        /// The partitions that this host has, by number; the places of others are empty.
        var partitions: [Partition?]
        var deferred: [LoopAnswer] = []
        var round: [LoopAnswer] = []
        var isAnswering = false
        /// By partition.
        var outgoing: [Outgoing]
        /// Partitions with something in `outgoing`.
        var addressed: [Int] = []
        /// By host.
        var mail: [HostMail]
        /// For each of this host's partitions, those that news of its broadcasts did not reach.
        var untold: [Int: Set<Int>] = [:]
        /// Answers to other gateways, by their numbers.
        var remoteAnswers: [Int: AnswerBatch] = [:]
        var shares = AppShares()
        var clock: ClockMapping
        var cachedNow: GatewayTime = 0
        var metrics = LoopMetrics()
        var requests = PendingRequests()
        // `admit` keeps the configured limit, which is for all loops together and may change.
        var senders = StampedTable<SenderConnection>(limit: Route.slotLimit)
        var frameByteLimit: Int
        /// Of what a device sends.
        var deviceFrameByteLimit: Int

        /// Gateway time, read once a turn.
        var now: GatewayTime {
            mutating get {
                if cachedNow == 0 { cachedNow = clock.time(atBoot: ClockReader.boot()) }
                return cachedNow
            }
        }
    }

    var metrics: LoopMetrics {
        _read { yield core.pointee.metrics }
        _modify { yield &core.pointee.metrics }
    }

    var senders: StampedTable<SenderConnection> {
        _read { yield core.pointee.senders }
        _modify { yield &core.pointee.senders }
    }

    var clock: ClockMapping { core.pointee.clock }
    /// The largest body of a frame; asked for with each one.
    var frameByteLimit: Int { core.pointee.frameByteLimit }
    var deviceFrameByteLimit: Int { core.pointee.deviceFrameByteLimit }

    /// Made on the thread that starts the gateway, before the loop runs.
    init(index: Int, loop: EventLoop, context: GatewayContext, snapshot: GatewaySnapshot, clock: ClockMapping) {
        (self.index, self.loop, self.context, self.snapshot) = (index, loop, context, snapshot)
        publicRoom = HTTPConnectionLimit(limit: snapshot.connections.http / context.hostCount)
        adminRoom = HTTPConnectionLimit(limit: snapshot.connections.admin / context.hostCount)
        core = .allocate(capacity: 1)
        core.initialize(
            to: Core(
                partitions: Array(repeating: nil, count: context.partitionCount),
                outgoing: Array(repeating: Outgoing(), count: context.partitionCount),
                mail: Array(repeating: HostMail(), count: context.hostCount), clock: clock,
                frameByteLimit: snapshot.limits.frameBytes,
                deviceFrameByteLimit: min(snapshot.limits.frameBytes, Wire.Limits.clientBodyByteCount)))
        _ = welcomes
        openHandshakeGate()
        loop.onTurnEnd(.beforeFlush) { [unowned self] in endTurn() }
        loop.onStop { [unowned self] in
            // The last turn's writes go to the committer before the shards end.
            forEachPartition { partition in
                partition.store.turnEnded()
                partition.store.close()
            }
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

    deinit {
        core.deinitialize(count: 1)
        core.deallocate()
    }

    // MARK: Partitions

    /// A partition of this host; `nil`: another gateway's, another host's, or none has it.
    @inline(__always)
    func partition(_ number: Int) -> Partition? { core.pointee.partitions[number] }

    /// The same for work that begins: `nil`, too, for a partition that is being released.
    @inline(__always)
    func servingPartition(_ number: Int) -> Partition? {
        guard let partition = core.pointee.partitions[number], partition.isServing else { return nil }
        return partition
    }

    /// Visits those that are here, in the order of their numbers.
    func forEachPartition(_ body: (Partition) -> Void) {
        for number in stride(from: index, to: context.partitionCount, by: context.hostCount) {
            if let partition = core.pointee.partitions[number] { body(partition) }
        }
    }

    /// Puts a partition in service.
    ///
    /// - Parameters:
    ///   - number: one of this host's, which it does not have.
    ///   - start: what was read of its store.
    ///   - welcomesDevices: false where others' broadcasts are still to be learnt.
    /// - Returns: the partition.
    @discardableResult
    func open(_ number: Int, _ start: PartitionStart, welcomesDevices: Bool = true) -> Partition {
        precondition(number % context.hostCount == index && core.pointee.partitions[number] == nil)
        let now = clock.time(atBoot: ClockReader.boot())
        let partition = Partition(number, start, on: self, now: now, welcomesDevices: welcomesDevices)
        core.pointee.partitions[number] = partition
        shareOut()
        context.cluster?.noteOwnership(of: number, at: now)
        return partition
    }

    /// Drops a partition whose store is closed.
    func remove(_ partition: Partition) {
        let apps = snapshot.settings.map(\.key)
        endedFigures.add(partition.statistics, apps, partition.core.pointee.shard.statistics(of: apps))
        partition.ended()
        core.pointee.partitions[partition.number] = nil
        shareOut()
    }

    /// Another partition came or left: each has another share of what the loop may hold.
    private func shareOut() {
        let limits = shardLimits
        forEachPartition { $0.setLimits(limits) }
    }

    /// A partition's share of what the event loop may hold.
    ///
    /// So a gateway holds no more when it has all partitions, and no less when it has a few.
    var shardLimits: ShardLimits {
        var count = 0
        forEachPartition { _ in count += 1 }
        return snapshot.limits.shardLimits.share(of: max(1, count))
    }

    /// Hellos at partitions whose stores are stalled.
    var standingHelloCount: Int {
        var count = 0
        forEachPartition { if $0.isStandingStill { count += $0.sessions.openingCount } }
        return count
    }

    /// Another history of the store is in force.
    func begin(_ history: StoreHistory) {
        forEachPartition { partition in partition.withShard { $0.begin(history) } }
        publicHandler.historyBegan()
        // The store may have lost changes of apps that this gateway follows.
        if index == 0 { followApps() }
    }

    /// Opens this host's mailbox; to be called before any loop runs.
    func openMailbox() -> Mailbox<Mail> {
        Mailbox(into: loop, capacity: snapshot.limits.mailboxItems) { [unowned self] items in receive(items) }
    }

    func connect(_ mailboxes: [Mailbox<Mail>]) { self.mailboxes = mailboxes }

    /// Gateway time, read once a turn.
    var now: GatewayTime { core.pointee.now }

    var limits: GatewayLimits { snapshot.limits }
    var registry: AppRegistry { snapshot.registry }
    var log: Log { context.log }

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
        forEachPartition { partition in partition.withShard { $0.stoodStill(now: now) } }
        log.write(.warning, .loopStoodStill, [.loop: LogValue(index), .milliseconds: LogValue(milliseconds)])
    }

    private static let standstillMilliseconds: UInt64 = 10_000

    private func tick() {
        forEachPartition { $0.tick() }
        campaigns.coordinator.tick(now: loop.now)
        drainSessions()
        exchangeQueues()
        while let connection = handshakes.popDue(now: loop.now) { connection.handshakeTimedOut() }
        while let connection = senderHandshakes.popDue(now: loop.now) { connection.handshakeTimedOut() }
        guard loop.now >= lastSecond + 1_000 else { return }
        lastSecond = loop.now
        forEachPartition { $0.secondPassed() }
        handoff.tick(now: Int64(loop.now))
        listeners.report(to: self)
        tellAgain()
        exchangeRates()
        publicHandler.forgetExpiredTokens()
        directoryHandler.tick()
    }

    /// Sends off what the turn gathered: batches to the committer, messages to the other hosts and gateways.
    private func endTurn() {
        // News of jobs may lead to leases, which are writes of this turn.
        forEachPartition { $0.passJobNews() }
        forEachPartition { $0.turnEnded() }
        dispatch()
        if !core.pointee.remoteAnswers.isEmpty { dispatchRemoteAnswers() }
        core.pointee.cachedNow = 0
        metrics.count(.turns)
        core.pointee.shares.isContended = context.activity.isContended
        let hasPaused = isPausing
        isPausing = mustPause()
        if hasPaused, !isPausing { forEachPartition { $0.dealAfterPause() } }
        let rested = core.pointee.shares.turnEnded(isPausing: isPausing)
        publicHandler.turnEnded()
        if !rested.isEmpty || publicHandler.mayGoOn { resume(rested) }
    }

    /// Whether what is beyond the apps' slices waits; if so, the loop's timer makes the turn that ends the wait.
    private func mustPause() -> Bool {
        var isDealingLater = false
        if core.pointee.shares.isContended {
            forEachPartition { isDealingLater = isDealingLater || $0.dealing.isLater }
        }
        guard core.pointee.shares.isSliceUsedUp || isDealingLater else { return false }
        let wait = pace.wait(now: loop.preciseNow, work: loop.threadTime)
        guard wait > 0 else { return false }
        if !isPausing { metrics.count(.publishPauses) }
        loop.turnAgain(in: wait)
        return true
    }

    /// Resumes throttled senders and waiting requests, in the next turn.
    private func resume(_ rested: [AppShares.Connection]) {
        inNextTurn { member in
            for connection in rested { member.senders[connection.slot, connection.stamp]?.rested() }
            member.publicHandler.goOn()
        }
    }

    /// A new configuration is in force.
    func reload(_ snapshot: GatewaySnapshot) {
        let disabled = registry.disabled(in: snapshot.registry)
        self.snapshot = snapshot
        core.pointee.frameByteLimit = snapshot.limits.frameBytes
        core.pointee.deviceFrameByteLimit = min(snapshot.limits.frameBytes, Wire.Limits.clientBodyByteCount)
        forEachPartition { $0.reload(disabled) }
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
        var hasEffects = false
        forEachPartition { hasEffects = hasEffects || $0.statistics.pendingEffects > 0 }
        return isSenderOwed || hasEffects || publicHandler.hasWorkUnderWay || directoryHandler.hasWorkUnderWay
            || handoff.hasWorkUnderWay || campaigns.coordinator.hasWorkUnderWay || core.pointee.requests.count > 0
    }

    /// Each may close itself, which changes the table.
    var openSenders: [SenderConnection] {
        var all: [SenderConnection] = []
        senders.forEach { _, _, connection in all.append(connection) }
        return all
    }

    /// Closes every connection because the gateway stops.
    func beginStop() {
        // Every Close frame goes out at once, and each peer has its time to read it.
        loop.closingStreamLimit = .max
        welcomes.dismissAll(.stopping)
        forEachPartition { $0.sessions.closeAll() }
        for sender in openSenders { sender.stop() }
        handoff.drain()
        forEachPartition { partition in partition.withShard { $0.releaseFeedWaiters(now: now) } }
        if let rows = servingPartition(0)?.ownRows { rows.writeRates() } else { exchangeRates() }
    }

    /// Names what waits for an answer on this loop.
    func route(_ kind: Route.Kind, _ slot: UInt32, _ stamp: UInt32) -> Route {
        Route(kind, node: 0, loop: index, slot: slot, stamp: stamp)
    }
}
