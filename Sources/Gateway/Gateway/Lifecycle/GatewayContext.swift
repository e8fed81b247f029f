internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Synchronization

/// The state shared by all loops, immutable after the start except for the contents of locks and atomics.
final class GatewayContext: Sendable {
    /// The number of partitions; in a cluster, of all gateways together.
    let partitionCount: Int
    let hostCount: Int
    /// The cluster state; `nil` without a shared store.
    let cluster: ClusterContext?
    let log: Log
    let store: any StoreService
    let isFsync: Bool
    let queueEpoch: UInt64
    private let boxedHistory: Lock<StoreHistory>
    private let storedTokenKey: [UInt8]
    /// Revocations known at the start; later ones reach each loop by message.
    let revokedTokens: RevokedTokens
    let startedAt: GatewayTime
    /// The health findings, at most ten seconds old.
    let health = Lock(HealthReport())
    /// The points for the console's plots; the health look adds them.
    let plots = Lock(MetricHistory())
    /// The state shown by `/readyz` and `/metrics`.
    let status = Lock(GatewayStatus())
    let outbound: OutboundCalls
    let connections = ConnectionCounts()
    let spares: SpareBatches
    let activity = SharedActivity()
    let peers: PeerRecords
    let usage = AppUsage()
    let testDevices = SharedTestDevices()
    let apps: SharedApps
    let backups = BackupService()
    let signInLink = SignInLink()
    /// Set while the gateway disconnects its devices on an operator's request.
    let emptying = Lock<Emptying?>(nil)
    private let flags = Flags()
    private let boxedHosts = Lock<[HostHandle]>([])

    /// Atomics instead of locks, because each call reads them.
    private final class Flags: Sendable {
        let empties = Atomic<Bool>(false)
        let ready = Atomic<Bool>(false)
        let stopping = Atomic<Bool>(false)
    }

    init(
        partitionCount: Int, hostCount: Int, cluster: ClusterContext?, log: Log, store: any StoreService, isFsync: Bool,
        queueEpoch: UInt64, history: StoreHistory,
        tokenKey: [UInt8],
        revokedTokens: RevokedTokens, startedAt: GatewayTime, peerBudget: PeerBudget,
        spares: SpareBatches = SpareBatches()
    ) throws {
        outbound = try OutboundCalls()
        // An embedded store reads the apps before the gateway serves; in a cluster, part 0's owner sends them.
        apps = SharedApps(isKnown: cluster == nil)
        peers = PeerRecords(startedAt: startedAt, budget: peerBudget)
        self.startedAt = startedAt
        (self.partitionCount, self.hostCount, self.cluster) = (partitionCount, hostCount, cluster)
        (self.log, self.store, self.isFsync) = (log, store, isFsync)
        (self.queueEpoch, storedTokenKey, self.revokedTokens) = (queueEpoch, tokenKey, revokedTokens)
        (self.spares, boxedHistory) = (spares, Lock(history))
    }

    /// The history of the store, which changes when a cluster's Redis loses durable entries.
    var history: StoreHistory { boxedHistory.withLock { $0 } }

    /// The key that signs tokens of the push API.
    var tokenKey: [UInt8] { history.tokenKey(storedTokenKey) }

    /// Begins another history; can be called from any thread.
    func begin(_ history: StoreHistory) {
        boxedHistory.withLock { $0 = history }
        tellAll { $0.begin(history) }
    }

    /// This gateway's number in its cluster; 0 without a cluster.
    var node: Int { cluster?.node ?? 0 }

    /// The handles of all hosts, in order; set once before the loops run.
    var hosts: [HostHandle] { boxedHosts.withLock { $0 } }
    /// Returns the host of a partition's number, whether or not this gateway owns the partition.
    func host(of partition: Int) -> HostHandle { hosts[partition % hostCount] }
    /// Runs `work` on a partition if this gateway still owns it then; can be called from any thread.
    func submit(to number: Int, _ work: @escaping @Sendable (Partition) -> Void) {
        host(of: number).submit { host in
            if let partition = host.partition(number) { work(partition) }
        }
    }
    func setHosts(_ hosts: [HostHandle]) {
        boxedHosts.withLock { $0 = hosts }
        guard let cluster, let first = hosts.first else { return }
        usage.rates.setGatewayCount(cluster.gatewayCount)
        usage.quotas.setGatewayCount(cluster.gatewayCount)
        usage.rates.onExchangeDue { first.submit { $0.exchangeRates() } }
    }

    /// Accepts work, because the gateway's own rows are durable.
    func setReady() {
        flags.ready.store(true, ordering: .relaxed)
        status.withLock { status in
            if status.phase == .starting { status.phase = .ready }
        }
    }

    /// Whether the gateway accepts work; read without ordering.
    var isReady: Bool { flags.ready.load(ordering: .relaxed) }

    /// Rejects new work and finishes accepted work.
    func setStopping() {
        status.withLock { $0.phase = .stopping }
        flags.stopping.store(true, ordering: .relaxed)
    }

    /// Whether the gateway disconnects its devices; read without ordering.
    var isEmptying: Bool { flags.empties.load(ordering: .relaxed) }

    func setEmptying(_ emptying: Emptying?) {
        self.emptying.withLock { $0 = emptying }
        flags.empties.store(emptying != nil, ordering: .relaxed)
    }

    var isStopping: Bool { flags.stopping.load(ordering: .relaxed) }
}

/// The connections of all hosts, and the callers that wait in `lease`.
struct ConnectionCounts: Sendable {
    let devices = SharedCount()
    /// Device connections before their Hello.
    let handshakes = SharedCount()
    let senders = SharedCount()
    let longPolls = SharedCount()
}

/// Records about peers, behind locks because each connection or request reads them only once.
struct PeerRecords: Sendable {
    /// Connections and requests by network address, on all listeners except admin.
    let addresses = AddressGuard()
    let flaps = Lock(FlapDamping())
    let refusedHellos = Lock(RefusedHellos())
    /// The accepted Hellos of registrations and senders.
    let replays: Lock<ReplayGuard>
    /// The budget for bytes buffered on behalf of peers.
    let budget: PeerBudget

    init(startedAt: GatewayTime, budget: PeerBudget) {
        (replays, self.budget) = (Lock(ReplayGuard(startedAt: startedAt)), budget)
    }
}

/// The threads that call webhooks.
///
/// Their wake-ups are opened before the loops get their own descriptor tables, so every loop can wake a thread started later.
struct OutboundCalls: Sendable {
    let hook = Lock<HookDispatcher?>(nil)
    let hookWakeup: Wakeup
    private let poster = Lock<FeedPoster?>(nil)
    private let feedWakeup: Wakeup

    init() throws { (hookWakeup, feedWakeup) = (try Wakeup(), try Wakeup()) }

    /// The thread that posts to the webhooks of feeds; `nil` until an app has one.
    var feedPoster: FeedPoster? { poster.withLock { $0 } }

    /// Starts the thread that posts to the webhooks of feeds; later calls have no effect.
    func startFeedPoster(_ log: Log) throws {
        guard feedPoster == nil else { return }
        let started = try FeedPoster(log: log, wakeup: feedWakeup)
        poster.withLock { $0 = started }
    }
}

struct AppUsage: Sendable {
    let rates = SharedRates()
    let quotas = SharedQuotas()
    /// The number of revoked tokens per app.
    let revocations = Lock(RevocationLimits())
    /// The history of the number of connected devices per app.
    let online = OnlineHistory()
}

/// The control thread's state, for pages that any loop may serve.
struct GatewayStatus: Sendable {
    enum Phase: Sendable { case starting, ready, stopping }
    var phase = Phase.starting
    /// The limits in use, reduced to the available descriptors.
    var connections = ConnectionLimits(devices: 0, senders: 0, http: 0, admin: 0)
    var startedAtMonotonic: Int64 = ClockReader.monotonic()
    /// The start by the wall clock, for display only.
    var startedAt: Int64 = 0
    /// The process metrics, at most some seconds old.
    var process = ProcessFigures()
    /// The free and total bytes of the store's file system; `nil` with Redis.
    var disk: (free: Int64, all: Int64)?
    /// The expiries of the listeners' certificates and of their client authorities.
    var certificates: [ListenerExpiry] = []
    var configurationVersion: UInt64 = 1
    var reloadsApplied = 0
    var reloadsRefused = 0
    var clockOffset: Int64 = 0
    var isClockStepRefused = false
}
