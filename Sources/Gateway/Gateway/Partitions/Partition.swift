internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Quotas
internal import Wire

/// A share of the devices that this gateway owns: a delivery shard, its store, its sessions and the work for them.
///
/// A partition is confined to the thread of its event loop. `EventLoopHost.open` creates it when the gateway becomes its owner,
/// and `release` ends it. A later ownership uses a new object. `withShard` calls the shard and performs the resulting effects at
/// once (`PartitionShard`).
final class Partition {
    let number: Int
    // The host outlives its partitions.
    unowned(unsafe) let host: EventLoopHost
    /// The host's core; a direct pointer avoids reference counting of the host at each access.
    let hostCore: UnsafeMutablePointer<EventLoopHost.Core>
    let store: any LoopStore
    let core: UnsafeMutablePointer<Core>
    /// `false` until the broadcast logs of the other partitions are known or a timeout has passed.
    var welcomesDevices: Bool

    // Work requested by effects of this turn, done after the effects.
    var dueTasks: [TaskRecord] = []
    var launches: [TaskRecord] = []
    var tokenNews: [TokenNews] = []
    var firstAcks: [FirstAck] = []

    private var isWorking = false
    private var hasEnded = false
    /// Lists whose devices wait for room in the store.
    var lists = FanoutQueue(targetLimit: Partition.waitingListTargetLimit)
    /// Whether a call is publishing list entries, and whether a later turn continues.
    var dealing = (isUnderWay: false, isLater: false)
    /// Connected devices above the app's device quota, to be refused (`isSurplus`).
    var surplusDevices: [AppKey: Int] = [:]
    /// Whether the quota accounting includes this partition.
    var isHoldingNoted = false
    /// Callers that wait for a write of the gateway's own rows.
    var metaWaiters: [MetaWaiter] = []
    /// Partitions from which broadcast logs are requested, and whether to request them again afterwards.
    var learning: [Int: Bool] = [:]
    /// The partition whose broadcasts were compared last.
    var compared = 0
    /// The number of the current drain, and the session slot at which it continues.
    var drain: (number: Int64, cursor: UInt32) = (0, 0)
    /// The number of seconds for which the store has been stalled.
    var stuckSeconds = 0
    /// The work on the gateway's own rows; `nil` except on the partition of bucket 0.
    private(set) var ownRows: OwnRows?
    private(set) lazy var upstream = UpstreamHandler(self)
    private(set) lazy var names = DeviceNamesHandler(self)
    private(set) lazy var events = EventForwarder(self)
    private(set) lazy var webhooks = FeedWebhooks(self)

    /// The fields that change with every message.
    ///
    /// They are behind a pointer because Swift checks each access to a class's stored variable for exclusivity at run time. The
    /// checks cost about 90 instructions an access, a sixth of the cost of a message.
    struct Core: ~Copyable {
        var shard: PartitionShard
        /// `false` once the partition is being released; it then completes accepted work and takes no new work.
        var isServing = true
        /// Channels that got due jobs in this turn and had none before.
        var jobNews: ChannelSet = []
        /// Set once, directly after the partition is initialized.
        var sessions: DeviceSessions?
    }

    /// - Parameters:
    ///   - number: The partition's number in the cluster.
    ///   - start: The store and the rows read from it. The partition takes over the store.
    ///   - host: The host of the partition's event loop.
    ///   - now: Gateway time.
    ///   - welcomesDevices: `false` if the broadcasts of other partitions must be fetched first.
    init(
        _ number: Int, _ start: PartitionStart, on host: EventLoopHost, now: GatewayTime, welcomesDevices: Bool
    ) {
        (self.number, self.host, hostCore, self.welcomesDevices) = (number, host, host.core, welcomesDevices)
        store = start.store
        let snapshot = host.snapshot
        core = .allocate(capacity: 1)
        core.initialize(
            to: Core(
                shard: PartitionShard(
                    Shard(
                        limits: host.shardLimits, apps: snapshot.settings, store: start.store,
                        verifier: HelloVerifier(), encoder: BroadcastFrames(), queueEpoch: host.context.queueEpoch,
                        history: host.context.history, counters: start.counters, broadcasts: start.broadcasts,
                        knowsAllApps: snapshot.registry.isComplete, now: now))))
        core.pointee.sessions = DeviceSessions(self)
        ownRows = start.fold.map { OwnRows(self, $0) }
        store.observer = self
    }

    deinit {
        core.deinitialize(count: 1)
        core.deallocate()
    }

    var share: LoopShare { LoopShare(index: number, count: context.partitionCount) }
    var isServing: Bool { core.pointee.isServing }
    var sessions: DeviceSessions {
        guard let sessions = core.pointee.sessions else {
            preconditionFailure("asked for before the partition was made")
        }
        return sessions
    }
    var statistics: ShardStatistics { core.pointee.shard.statistics }

    var loop: EventLoop { host.loop }
    var context: GatewayContext { host.context }
    var snapshot: GatewaySnapshot { host.snapshot }
    var registry: AppRegistry { host.snapshot.registry }
    var limits: GatewayLimits { host.snapshot.limits }
    var coordinator: TaskCoordinator { host.campaigns.coordinator }
    var now: GatewayTime { hostCore.pointee.now }
    var metrics: LoopMetrics {
        _read { yield hostCore.pointee.metrics }
        _modify { yield &hostCore.pointee.metrics }
    }

    // MARK: Time

    func tick() {
        withShard { $0.advance(to: now) }
        continueWork()
        events.tick()
        noteHoldings()
        tickLists()
    }

    func secondPassed() {
        context.activity.note(core.pointee.shard.publishingApps, now: loop.now)
        excuseIfStuck()
        store.secondPassed()
        compareBroadcasts()
        webhooks.tick()
        ownRows?.tick()
    }

    /// Answers waiting callers as busy while the store is stalled, so that their work with other partitions continues.
    private func excuseIfStuck() {
        stuckSeconds = store.isStuck ? stuckSeconds + 1 : 0
        if stuckSeconds >= Self.patienceSeconds { withShard { $0.excuseWaiting(now: now) } }
        sendStandingAway()
    }

    private static let patienceSeconds = 3

    /// Whether the store was stalled at the last check; the check runs once a second.
    var isStandingStill: Bool { stuckSeconds > 0 }

    /// Closes connections whose Hellos wait for this stalled store, if the waiting Hellos exceed the host's limit for them.
    func sendStandingAway() {
        guard isStandingStill else { return }
        // Several partitions may be stalled. Each closes its share of the surplus.
        let (surplus, standing) = (-host.welcomes.standingRoom, host.standingHelloCount)
        guard surplus > 0, standing > 0 else { return }
        sessions.sendOpeningsAway((surplus * sessions.openingCount + standing - 1) / standing)
    }

    /// Notifies waiting lease calls on this host of the jobs that became due in this turn.
    func passJobNews() {
        let jobNews = core.pointee.jobNews
        guard !jobNews.isEmpty else { return }
        core.pointee.jobNews = []
        host.handoff.jobsAvailable(jobNews, in: number, now: Int64(loop.now))
    }

    func turnEnded() {
        // While writers of the gateway's own rows wait, the turn's batches are committed without delay. Such writes are rare.
        store.turnEnded(awaited: metaWaiters.isEmpty ? core.pointee.shard.awaitedTicket : .max)
    }

    func continueWork() {
        guard !isWorking, core.pointee.shard.hasWorkAtHand else { return }
        isWorking = true
        inNextTurn { partition in
            partition.isWorking = false
            partition.withShard { $0.continueWork(now: partition.now) }
            partition.continueWork()
        }
    }

    /// Runs `work` in the event loop's next turn, also during a release, but not after the partition has ended.
    func inNextTurn(_ work: @escaping (Partition) -> Void) {
        host.inNextTurn { [weak self] _ in
            if let self, !hasEnded { work(self) }
        }
    }

    // MARK: Changes

    func reload(_ disabled: [AppKey]) {
        withShard {
            $0.reload(
                apps: snapshot.settings, knowsAllApps: snapshot.registry.isComplete, limits: host.shardLimits)
        }
        for app in disabled {
            withShard { $0.endSessions(of: app, .appDisabled, reason: Refusal.appDisabled.reason, now: now) }
        }
    }

    func ended() {
        hasEnded = true
        sessions.end()
        webhooks.stop()
        if isHoldingNoted { context.usage.quotas.forget(part: number) }
    }

    func setLimits(_ limits: ShardLimits) { core.pointee.shard.setLimits(limits) }

    /// Starts to deliver a broadcast to the partition's devices.
    func launch(_ record: TaskRecord) {
        var isTaken = true
        withShard { isTaken = $0.launch(record, loopCount: context.partitionCount, now: now) }
        // The shard refuses a broadcast if an earlier one is missing, for example after a move. The log is then fetched.
        if !isTaken { learnBroadcasts(of: record.app.home.loop(of: context.partitionCount)) }
        continueWork()
    }

    // MARK: Answers

    func reply(_ answer: any Codable & Sendable, to origin: Origin) { host.reply(answer, to: origin) }
    func replyBusy(to origin: Origin) { host.replyBusy(to: origin) }

    // MARK: Frames of a session

    func hello(_ command: HelloCommand) {
        withShard { $0.hello(command, now: now) }
    }

    func heard(_ session: SessionRef) {
        withQuietShard { $0.heard(session, now: now) }
    }

    func acknowledge(_ session: SessionRef, _ ack: borrowing AckView) {
        withShard { shard in
            ack.withRanges { shard.acknowledge(session, cumulative: ack.sequence, ranges: $0, now: now) }
        }
        if ack.hasBroadcasts {
            withShard {
                $0.acknowledgeBroadcasts(
                    session, cumulative: ack.broadcastSequence, ranges: ack.broadcastRanges, now: now)
            }
        }
        for rejected in ack.rejected where rejected.stream <= 1 {
            withShard {
                $0.reject(
                    session, stream: rejected.stream, sequence: rejected.sequence, reason: rejected.reason, now: now)
            }
        }
    }

    func update(_ session: SessionRef, _ update: DeviceUpdate) {
        withShard { $0.update(session, update, now: now) }
    }

    func feedback(_ session: SessionRef, _ feedback: Feedback) {
        withShard { $0.feedback(session, feedback, now: now) }
    }

    func ping(_ session: SessionRef, nonce: UInt64) {
        withShard { $0.ping(session, nonce: nonce, now: now) }
    }

    func finish(_ session: SessionRef) {
        withShard { $0.finish(session, now: now) }
    }

    func sessionRefused(_ session: SessionRef) {
        withShard { $0.sessionRefused(session, now: now) }
    }

    func sessionEnded(_ session: SessionRef, announced: Bool) {
        withShard { $0.sessionEnded(session, announced: announced, now: now) }
    }
}

/// The work on the gateway's own rows, on the partition of bucket 0.
final class OwnRows {
    private let tasks: TaskMaintenance
    let counters: CounterMaintenance
    let apps: AppService

    init(_ partition: Partition, _ fold: CounterFold) {
        (tasks, counters) = (TaskMaintenance(partition), CounterMaintenance(partition, fold))
        apps = AppService(partition)
    }

    func tick() {
        tasks.tick()
        counters.tick()
    }

    func writeRates() { tasks.writeRates() }
}
