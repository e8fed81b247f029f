internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Wire

/// One event loop and the work on it: listeners, connections before their Hello, HTTP, senders, and messages to other hosts.
///
/// Confined to its loop's thread. Other threads reach it through `HostHandle` and its mailbox. The partitions it hosts own the
/// devices, sessions and stores. A host has the partitions whose number modulo the number of hosts is its index.
final class EventLoopHost {
    let index: Int
    let loop: EventLoop
    let context: GatewayContext
    private(set) var snapshot: GatewaySnapshot
    let core: UnsafeMutablePointer<Core>
    private(set) var mailboxes: [Mailbox<Mail>] = []
    private var lastSecond: UInt64 = 0
    /// The loop time of the next exchange of queue counts between gateways.
    var nextQueueExchange: UInt64 = 0
    private var pace = CPUShare()
    /// Whether senders and lists beyond their apps' slices are paused to limit the loop's CPU time.
    private(set) var isPausing = false
    var handshakes = HandshakeQueue()
    var senderHandshakes = HandshakeQueue()
    /// The limits on HTTP connections, shared by the listeners of this loop.
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
    private(set) lazy var feeds = FeedHandler(self)
    private(set) lazy var appInquiry = AppInquiry(self)
    /// The counters of partitions that this host has released, so that counters in `/metrics` never decrease.
    private(set) var endedFigures = EndedFigures()

    struct Outgoing {
        var publishes: CommandBatch?
        var messages: [LoopMessage] = []
        var isEmpty: Bool { publishes == nil && messages.isEmpty }
    }

    struct HostMail {
        var answers: AnswerBatch?
        var items: [Mail] = []
    }

    /// The fields that change with every message.
    ///
    /// They are behind a pointer because Swift checks each access to a class's stored variable for exclusivity at run time. The
    /// checks cost about 90 instructions an access, a sixth of the cost of a message.
    struct Core: ~Copyable {
        /// The partitions of this host, indexed by number; other entries are `nil`.
        var partitions: [Partition?]
        var deferred: [LoopAnswer] = []
        var round: [LoopAnswer] = []
        var isAnswering = false
        /// Indexed by partition.
        var outgoing: [Outgoing]
        /// The partitions with messages in `outgoing`.
        var addressed: [Int] = []
        /// Indexed by host.
        var mail: [HostMail]
        /// For each of this host's partitions, the partitions that an announcement of its broadcasts did not reach.
        var untold: [Int: Set<Int>] = [:]
        /// Answers to other gateways, by gateway number.
        var remoteAnswers: [Int: AnswerBatch] = [:]
        var shares = AppShares()
        var clock: ClockMapping
        var cachedNow: GatewayTime = 0
        var metrics = LoopMetrics()
        var requests = PendingRequests()
        // The table is not limited here. `admit` enforces the configured limit, which covers all loops and may change.
        var senders = StampedTable<SenderConnection>(limit: Route.slotLimit)
        var frameByteLimit: Int
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
    /// The largest body of a frame; read for each frame.
    var frameByteLimit: Int { core.pointee.frameByteLimit }
    var deviceFrameByteLimit: Int { core.pointee.deviceFrameByteLimit }

    /// Called on the thread that starts the gateway, before the loop runs.
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
            // The last turn's writes must reach the committer before the shards end.
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

    /// Returns a partition of this host; `nil` if another host or gateway has it, or if it has no owner.
    @inline(__always)
    func partition(_ number: Int) -> Partition? { core.pointee.partitions[number] }

    /// Returns a partition of this host that accepts new work; `nil` also while the partition is being released.
    @inline(__always)
    func servingPartition(_ number: Int) -> Partition? {
        guard let partition = core.pointee.partitions[number], partition.isServing else { return nil }
        return partition
    }

    /// Visits the host's partitions in the order of their numbers.
    func forEachPartition(_ body: (Partition) -> Void) {
        for number in stride(from: index, to: context.partitionCount, by: context.hostCount) {
            if let partition = core.pointee.partitions[number] { body(partition) }
        }
    }

    /// Opens a partition.
    ///
    /// - Parameters:
    ///   - number: The number of a partition that belongs to this host and is not open.
    ///   - start: The store and the rows read from it.
    ///   - welcomesDevices: `false` if the broadcasts of other partitions must be fetched first.
    /// - Returns: The partition.
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

    /// Removes a partition whose store is closed.
    func remove(_ partition: Partition) {
        let apps = snapshot.settings.map(\.key)
        endedFigures.add(partition.statistics, apps, partition.core.pointee.shard.statistics(of: apps))
        partition.ended()
        core.pointee.partitions[partition.number] = nil
        shareOut()
    }

    /// Divides the loop's limits among its partitions again, after a partition was opened or removed.
    private func shareOut() {
        let limits = shardLimits
        forEachPartition { $0.setLimits(limits) }
    }

    /// One partition's share of the loop's limits; the limits are divided, so a gateway's memory bound does not depend on its
    /// number of partitions.
    var shardLimits: ShardLimits {
        var count = 0
        forEachPartition { _ in count += 1 }
        return snapshot.limits.shardLimits.share(of: max(1, count))
    }

    /// The number of pending Hellos in partitions whose stores are stalled.
    var standingHelloCount: Int {
        var count = 0
        forEachPartition { if $0.isStandingStill { count += $0.sessions.openingCount } }
        return count
    }

    /// Applies a new store history, which a store gets when its content was reset to an older state.
    func begin(_ history: StoreHistory) {
        forEachPartition { partition in partition.withShard { $0.begin(history) } }
        publicHandler.historyBegan()
        // The store may have lost changes of apps that this gateway already applied.
        if index == 0 { followApps() }
    }

    /// Opens this host's mailbox; must be called before any loop runs.
    func openMailbox() -> Mailbox<Mail> {
        Mailbox(into: loop, capacity: snapshot.limits.mailboxItems) { [unowned self] items in receive(items) }
    }

    func connect(_ mailboxes: [Mailbox<Mail>]) { self.mailboxes = mailboxes }

    var now: GatewayTime { core.pointee.now }

    var limits: GatewayLimits { snapshot.limits }
    var registry: AppRegistry { snapshot.registry }
    var log: Log { context.log }

    /// Applies a new clock mapping from the control thread; `offset` is how far the machine's clock is ahead of gateway time.
    func setClock(_ mapping: ClockMapping, offset: Int64 = 0) {
        core.pointee.clock = mapping
        core.pointee.cachedNow = 0
        publicHandler.api.clockOffset = offset
        publicHandler.api.isClockDoubted = offset > ClockLimits.forwardStep
    }

    // MARK: Turn

    /// Restarts the session timeouts after the process or its machine was suspended.
    private func stoodStill(for milliseconds: UInt64) {
        // Heartbeat timeouts have enough slack for shorter suspensions.
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

    /// Flushes the turn's work: batches to the committer, messages to other hosts and gateways.
    private func endTurn() {
        // This comes first, because the announced jobs may be leased at once, and the leases are writes of this turn.
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

    /// Returns whether work beyond the apps' slices is paused; if so, the loop's timer starts the turn that ends the pause.
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

    /// Resumes throttled senders and waiting requests in the next turn.
    private func resume(_ rested: [AppShares.Connection]) {
        inNextTurn { member in
            for connection in rested { member.senders[connection.slot, connection.stamp]?.rested() }
            member.publicHandler.goOn()
        }
    }

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

    /// Whether a caller waits for an answer that was not sent yet.
    var hasWorkUnderWay: Bool {
        var isSenderOwed = false
        senders.forEach { _, _, sender in isSenderOwed = isSenderOwed || sender.isOwedAnswers }
        var hasEffects = false
        forEachPartition { hasEffects = hasEffects || $0.statistics.pendingEffects > 0 }
        return isSenderOwed || hasEffects || publicHandler.hasWorkUnderWay || directoryHandler.hasWorkUnderWay
            || handoff.hasWorkUnderWay || campaigns.coordinator.hasWorkUnderWay || core.pointee.requests.count > 0
    }

    /// The open senders, as a copy: a sender that closes itself changes the table.
    var openSenders: [SenderConnection] {
        var all: [SenderConnection] = []
        senders.forEach { _, _, connection in all.append(connection) }
        return all
    }

    /// Closes every connection because the gateway stops.
    func beginStop() {
        // All Close frames are sent at once, so that each peer has the full time to read its frame.
        loop.closingStreamLimit = .max
        welcomes.dismissAll(.stopping)
        forEachPartition { $0.sessions.closeAll() }
        for sender in openSenders { sender.stop() }
        handoff.drain()
        forEachPartition { partition in partition.withShard { $0.releaseFeedWaiters(now: now) } }
        if let rows = servingPartition(0)?.ownRows { rows.writeRates() } else { exchangeRates() }
    }

    func route(_ kind: Route.Kind, _ slot: UInt32, _ stamp: UInt32) -> Route {
        Route(kind, node: 0, loop: index, slot: slot, stamp: stamp)
    }
}
