internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Quotas
internal import Wire

/// A share of the devices that this gateway owns: a delivery shard, its store, its sessions, and what is done for it.
///
/// It exists while the gateway owns it, on one event loop, and belongs to that loop's thread. `EventLoopHost.open` puts it in
/// service, `release` takes it out of service and ends it; a later owner, here or elsewhere, has another object.
/// Calls of the shard go through `withShard`, which performs their effects at once (`PartitionShard`).
final class Partition {
    /// Among all of the cluster.
    let number: Int
    // The host outlives its partitions.
    unowned(unsafe) let host: EventLoopHost
    /// The host's, without a reference to the host for each access.
    let hostCore: UnsafeMutablePointer<EventLoopHost.Core>
    let store: any LoopStore
    let core: UnsafeMutablePointer<Core>
    /// False until the partition knows the broadcasts of the others' apps, or has waited long enough.
    var welcomesDevices: Bool

    // Work that effects of this turn ask for, done after the effects.
    var dueTasks: [TaskRecord] = []
    var launches: [TaskRecord] = []
    var tokenNews: [TokenNews] = []
    var firstAcks: [FirstAck] = []

    private var isWorking = false
    private var hasEnded = false
    /// Lists whose devices wait for room in the store.
    var lists = FanoutQueue(targetLimit: Partition.waitingListTargetLimit)
    /// Whether this call publishes devices of lists, and whether a later turn continues.
    var dealing = (isUnderWay: false, isLater: false)
    /// Connected devices that are to be refused because their app has too many (`isSurplus`).
    var surplusDevices: [AppKey: Int] = [:]
    /// The account of quotas has what this partition has.
    var isHoldingNoted = false
    /// The gateway's own rows that are not durable yet.
    var metaWaiters: [MetaWaiter] = []
    /// Partitions that are asked for their apps' broadcasts, and whether to ask again when they have answered.
    var learning: [Int: Bool] = [:]
    /// The partition that broadcasts were compared with last.
    var compared = 0
    /// How far a drain has come in the sessions, and the drain's number.
    var drain: (number: Int64, cursor: UInt32) = (0, 0)
    /// How long the store has stood still.
    var stuckSeconds = 0
    /// The work on the gateway's own rows; `nil` where those are another partition's.
    private(set) var ownRows: OwnRows?
    /// Messages from devices.
    private(set) lazy var upstream = UpstreamHandler(self)
    private(set) lazy var events = EventForwarder(self)
    private(set) lazy var webhooks = FeedWebhooks(self)

    /// The fields that every message changes.
    ///
    /// It stands behind a pointer, because each access to a class's own variable is checked at run time for overlaps
    /// with others: at some 90 instructions an access those checks were a sixth of what a message cost.
    struct Core: ~Copyable {
        var shard: PartitionShard
        /// False once the partition is being released: it finishes what it has and takes nothing.
        var isServing = true
        /// Channels with due jobs where there were none, in this turn.
        var jobNews: ChannelSet = []
        /// Set once, as soon as its partition is there.
        var sessions: DeviceSessions?
    }

    /// - Parameters:
    ///   - number: among all of the cluster.
    ///   - start: what was read of the store; the store is the partition's from now on.
    ///   - host: the one of the partition's event loop.
    ///   - now: gateway time.
    ///   - welcomesDevices: false where others' broadcasts are still to be learnt.
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

    /// The share of all devices.
    var share: LoopShare { LoopShare(index: number, count: context.partitionCount) }
    var isServing: Bool { core.pointee.isServing }
    var sessions: DeviceSessions {
        guard let sessions = core.pointee.sessions else {
            preconditionFailure("asked for before the partition was made")
        }
        return sessions
    }
    var statistics: ShardStatistics { core.pointee.shard.statistics }

    // The host's.
    var loop: EventLoop { host.loop }
    var context: GatewayContext { host.context }
    var snapshot: GatewaySnapshot { host.snapshot }
    var registry: AppRegistry { host.snapshot.registry }
    var limits: GatewayLimits { host.snapshot.limits }
    var coordinator: TaskCoordinator { host.campaigns.coordinator }
    /// Gateway time, read once a turn.
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

    /// Answers waiting callers as busy while the log is stalled, so that their work with other partitions continues.
    private func excuseIfStuck() {
        stuckSeconds = store.isStuck ? stuckSeconds + 1 : 0
        if stuckSeconds >= Self.patienceSeconds { withShard { $0.excuseWaiting(now: now) } }
        sendStandingAway()
    }

    private static let patienceSeconds = 3

    /// Whether the store stood still when a second was last over.
    var isStandingStill: Bool { stuckSeconds > 0 }

    /// Sends devices away whose Hellos keep those of other partitions waiting: there is no Welcome for them now.
    func sendStandingAway() {
        guard isStandingStill else { return }
        // The surplus is of several partitions: each sends its share of it away.
        let (surplus, standing) = (-host.welcomes.standingRoom, host.standingHelloCount)
        guard surplus > 0, standing > 0 else { return }
        sessions.sendOpeningsAway((surplus * sessions.openingCount + standing - 1) / standing)
    }

    /// Has callers of this host ask for the jobs that became due in this turn.
    func passJobNews() {
        let jobNews = core.pointee.jobNews
        guard !jobNews.isEmpty else { return }
        core.pointee.jobNews = []
        host.handoff.jobsAvailable(jobNews, in: number, now: Int64(loop.now))
    }

    /// Sends off what the turn gathered.
    func turnEnded() {
        // The gateway's own rows are few, and the writer of each waits for it.
        store.turnEnded(awaited: metaWaiters.isEmpty ? core.pointee.shard.awaitedTicket : .max)
    }

    /// Continues the shard's longer work, a slice a turn.
    func continueWork() {
        guard !isWorking, core.pointee.shard.hasWorkAtHand else { return }
        isWorking = true
        inNextTurn { partition in
            partition.isWorking = false
            partition.withShard { $0.continueWork(now: partition.now) }
            partition.continueWork()
        }
    }

    /// Runs `work` in the event loop's next turn, also while the partition is being released; not once it has ended.
    func inNextTurn(_ work: @escaping (Partition) -> Void) {
        host.inNextTurn { [weak self] _ in
            if let self, !hasEnded { work(self) }
        }
    }

    // MARK: Changes

    /// A new configuration is in force; `disabled`: apps that it serves no more.
    func reload(_ disabled: [AppKey]) {
        withShard {
            $0.reload(
                apps: snapshot.settings, knowsAllApps: snapshot.registry.isComplete, limits: host.shardLimits)
        }
        for app in disabled {
            withShard { $0.endSessions(of: app, .appDisabled, reason: Refusal.appDisabled.reason, now: now) }
        }
    }

    /// Takes the partition out of every later turn: its store is closed.
    func ended() {
        hasEnded = true
        sessions.end()
        webhooks.stop()
        if isHoldingNoted { context.usage.quotas.forget(part: number) }
    }

    func setLimits(_ limits: ShardLimits) { core.pointee.shard.setLimits(limits) }

    /// Begins a broadcast that is out: the partition's devices meet it.
    func launch(_ record: TaskRecord) {
        var isTaken = true
        withShard { isTaken = $0.launch(record, loopCount: context.partitionCount, now: now) }
        // The shard refuses a broadcast behind one that it missed: a link was down, or the partition was moving to this gateway.
        if !isTaken { learnBroadcasts(of: record.app.home.loop(of: context.partitionCount)) }
        continueWork()
    }

    // MARK: Answers

    /// Answers a question that no shard answers.
    func reply(_ answer: any Codable & Sendable, to origin: Origin) { host.reply(answer, to: origin) }
    /// Answers a question of which nothing was done.
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
    /// Carries out changes of apps.
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
