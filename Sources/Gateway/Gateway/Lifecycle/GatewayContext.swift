internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Synchronization

/// What all loops share.
///
/// Nothing here changes after the start, but for what is a lock itself.
final class GatewayContext: Sendable {
    /// Partitions, in a cluster those of all gateways together.
    let partitionCount: Int
    /// Event loops of this gateway, each with its `EventLoopHost`.
    let hostCount: Int
    /// Set where the store is shared with other gateways.
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
    /// What `/readyz` and `/metrics` say of the process.
    let status = Lock(GatewayStatus())
    let outbound: OutboundCalls
    let connections = ConnectionCounts()
    let spares: SpareBatches
    let activity = SharedActivity()
    let peers: PeerRecords
    let usage = AppUsage()
    let testDevices = SharedTestDevices()
    /// The apps of the file and of the admin API.
    let apps: SharedApps
    let backups = BackupService()
    /// Set while the gateway empties itself of its devices.
    let emptying = Lock<Emptying?>(nil)
    private let flags = Flags()
    private let boxedHosts = Lock<[HostHandle]>([])

    /// Looked at once a call, so no locks.
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
        // On a store of its own the gateway reads them before it serves; otherwise their owner tells.
        apps = SharedApps(isKnown: cluster == nil)
        peers = PeerRecords(startedAt: startedAt, budget: peerBudget)
        self.startedAt = startedAt
        (self.partitionCount, self.hostCount, self.cluster) = (partitionCount, hostCount, cluster)
        (self.log, self.store, self.isFsync) = (log, store, isFsync)
        (self.queueEpoch, storedTokenKey, self.revokedTokens) = (queueEpoch, tokenKey, revokedTokens)
        (self.spares, boxedHistory) = (spares, Lock(history))
    }

    /// The history of the store; in a cluster another one when Redis has lost what was durable.
    var history: StoreHistory { boxedHistory.withLock { $0 } }

    /// Signs tokens of the push API.
    var tokenKey: [UInt8] { history.tokenKey(storedTokenKey) }

    /// Begins another history, from any thread.
    func begin(_ history: StoreHistory) {
        boxedHistory.withLock { $0 = history }
        tellAll { $0.begin(history) }
    }

    /// This gateway's number in its cluster; 0 where there is none.
    var node: Int { cluster?.node ?? 0 }

    /// Every host's handle, in order; set once before the loops run.
    var hosts: [HostHandle] { boxedHosts.withLock { $0 } }
    /// The host that has a partition, or would.
    func host(of partition: Int) -> HostHandle { hosts[partition % hostCount] }
    /// Runs `work` on a partition, if this gateway has it by then; from any thread.
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

    /// The gateway's own rows are durable: it takes work from now on.
    func setReady() {
        flags.ready.store(true, ordering: .relaxed)
        status.withLock { status in
            if status.phase == .starting { status.phase = .ready }
        }
    }

    /// Looked at for each push, so no lock; nothing is ordered by it.
    var isReady: Bool { flags.ready.load(ordering: .relaxed) }

    /// The stop has begun: what is under way is finished, nothing new is taken.
    func setStopping() {
        status.withLock { $0.phase = .stopping }
        flags.stopping.store(true, ordering: .relaxed)
    }

    /// Looked at for each device that comes, so no lock; nothing is ordered by it.
    var isEmptying: Bool { flags.empties.load(ordering: .relaxed) }

    func setEmptying(_ emptying: Emptying?) {
        self.emptying.withLock { $0 = emptying }
        flags.empties.store(emptying != nil, ordering: .relaxed)
    }

    var isStopping: Bool { flags.stopping.load(ordering: .relaxed) }
}

/// Connections of all hosts, and callers that wait in `lease`.
struct ConnectionCounts: Sendable {
    let devices = SharedCount()
    /// Those of the devices that have not said Hello.
    let handshakes = SharedCount()
    let senders = SharedCount()
    let longPolls = SharedCount()
}

/// Records about peers; asked once a connection or request, so locks suffice.
struct PeerRecords: Sendable {
    /// Connections and requests by network address, on all listeners but admin.
    let addresses = AddressGuard()
    /// Devices that connect and leave over and over.
    let flaps = Lock(FlapDamping())
    /// Hellos of registrations and senders that were taken.
    let replays: Lock<ReplayGuard>
    /// The budget of the bytes that peers make the process hold.
    let budget: PeerBudget

    init(startedAt: GatewayTime, budget: PeerBudget) {
        (replays, self.budget) = (Lock(ReplayGuard(startedAt: startedAt)), budget)
    }
}

/// The threads that call webhooks.
///
/// Their wake-up descriptors are opened before the event loops get descriptor tables of their own. So every loop can wake a
/// thread that a reload starts later.
struct OutboundCalls: Sendable {
    let hook = Lock<HookDispatcher?>(nil)
    let hookWakeup: Wakeup
    private let poster = Lock<FeedPoster?>(nil)
    private let feedWakeup: Wakeup

    init() throws { (hookWakeup, feedWakeup) = (try Wakeup(), try Wakeup()) }

    /// Posts to the webhooks of feeds; `nil` while no app has had any.
    var feedPoster: FeedPoster? { poster.withLock { $0 } }

    /// Starts the thread that posts to the webhooks of feeds, once.
    func startFeedPoster(_ log: Log) throws {
        guard feedPoster == nil else { return }
        let started = try FeedPoster(log: log, wakeup: feedWakeup)
        poster.withLock { $0 = started }
    }
}

/// Uses of apps' quotas and rates.
struct AppUsage: Sendable {
    let rates = SharedRates()
    let quotas = SharedQuotas()
    /// How many tokens of each app are void.
    let revocations = Lock(RevocationLimits())
    /// How many of their devices were connected.
    let online = OnlineHistory()
}

/// What the control thread knows, for the pages that any loop may be asked for.
struct GatewayStatus: Sendable {
    enum Phase: Sendable { case starting, ready, stopping }
    var phase = Phase.starting
    /// The limits in force, as far as there are descriptors.
    var connections = ConnectionLimits(devices: 0, senders: 0, http: 0, admin: 0)
    var startedAtMonotonic: Int64 = ClockReader.monotonic()
    /// By the wall clock, for people alone.
    var startedAt: Int64 = 0
    /// Of the last look, some seconds ago at most.
    var process = ProcessFigures()
    /// Free and all bytes of the file system that has the store; `nil` where none was asked.
    var disk: (free: Int64, all: Int64)?
    /// When the certificate of a listener ends, in seconds since 1970.
    var certificates: [(listener: String, end: Int64)] = []
    var configurationVersion: UInt64 = 1
    var reloadsApplied = 0
    var reloadsRefused = 0
    var clockOffset: Int64 = 0
    var isClockStepRefused = false
}
