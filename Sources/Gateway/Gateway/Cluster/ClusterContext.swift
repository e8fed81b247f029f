internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Synchronization
internal import Wire

/// The cluster state that event loops read: this gateway's number, the owner of each partition, and the links.
final class ClusterContext: Sendable {
    /// This gateway's number, never 0.
    var node: Int { ownNode.load(ordering: .relaxed) }
    private let ownNode: Atomic<Int>
    let links: any GatewayLinks
    let broadcastTurns = BroadcastTurns()
    private let owners: [Owner]
    var partCount: Int { owners.count }
    private let memberCount = Atomic<Int>(1)
    private let pages = Lock<Pages?>(nil)
    private let addresses = Lock<[Int: DeviceAddresses]>([:])
    private let sentAway = Lock(SentAway())

    /// The owner of a partition.
    ///
    /// Loops load the number for each message. Relaxed loads suffice: after a stale load, the former owner answers as busy.
    private final class Owner: Sendable {
        let node = Atomic<Int>(0)
        /// The gateway time at which this gateway became the owner; 0 if it never was.
        let seatedAt = Atomic<Int64>(0)
    }

    init(node: Int, partCount: Int, links: any GatewayLinks) {
        ownNode = Atomic(node)
        self.links = links
        owners = (0..<partCount).map { _ in Owner() }
    }

    /// The callbacks of the admin API, set once before the loops run.
    struct Pages: Sendable {
        var status: @Sendable () -> ClusterStatus
        var health: @Sendable (ClusterContext) -> ClusterHealth
        var figures: @Sendable (ClusterContext) -> ClusterFigures
        /// Changes the register as an operator requested; calls `done` on a membership thread.
        var wish: @Sendable (ClusterRequest, _ done: @escaping @Sendable (APIResponse) -> Void) -> Void
    }

    func setPages(_ pages: Pages) { self.pages.withLock { $0 = pages } }
    func status() -> ClusterStatus? { pages.withLock { $0 }?.status() }
    func health() -> ClusterHealth? { pages.withLock { $0 }?.health(self) }
    func figures() -> ClusterFigures? { pages.withLock { $0 }?.figures(self) }

    func wish(_ request: ClusterRequest, done: @escaping @Sendable (APIResponse) -> Void) {
        guard let pages = pages.withLock({ $0 }) else { return done(ClusterAnswer.none) }
        pages.wish(request, done)
    }

    /// Returns the number of the gateway that owns a partition, or 0 without a known owner.
    func owner(of part: Int) -> Int { owners[part].node.load(ordering: .relaxed) }

    /// Returns the address a device can be redirected to, or `nil` if the device must be relayed.
    func deviceAddress(of node: Int, isSecure: Bool) -> String? {
        let addresses = addresses.withLock { $0[node] }
        return isSecure ? addresses?.secure : addresses?.plain
    }

    /// Returns whether to redirect a device to its owner, at most once a minute, and records the redirect.
    ///
    /// A device that returns within the minute is relayed, because its network may block connections to the owner.
    func maySendAway(_ device: DeviceID, now: UInt64) -> Bool { sentAway.withLock { $0.take(device, now: now) } }

    func setDeviceAddresses(_ all: [Int: DeviceAddresses]) { addresses.withLock { $0 = all } }

    /// The number of gateways in the cluster, including this one.
    var gatewayCount: Int { memberCount.load(ordering: .relaxed) }
    func setGatewayCount(_ count: Int) { memberCount.store(max(1, count), ordering: .relaxed) }

    /// Changes this gateway's number after it joined again.
    func renumber(_ node: Int) {
        let before = ownNode.exchange(node, ordering: .relaxed)
        for owner in owners where owner.node.load(ordering: .relaxed) == before {
            owner.node.store(node, ordering: .relaxed)
        }
    }

    func setOwner(_ node: Int, of part: Int) { owners[part].node.store(node, ordering: .relaxed) }

    /// Records when this gateway became the owner; `ReplayGuard` refuses earlier registrations, which may be replays.
    func noteOwnership(of part: Int, at time: GatewayTime) { owners[part].seatedAt.store(time, ordering: .relaxed) }
    func seatedAt(_ part: Int) -> GatewayTime { owners[part].seatedAt.load(ordering: .relaxed) }
}

/// Recent redirects of devices, in a hash table of fixed size without collision handling.
struct SentAway {
    /// The minimum time between two redirects of a device, longer than a failed connection attempt and the backoff after it.
    static let milliseconds: UInt64 = 60_000
    private static let capacity = 1 << 14

    private struct Entry {
        var device = DeviceID.none
        var at: UInt64 = 0
    }

    private var entries: [Entry] = []

    /// Records a redirect; returns false if the device was redirected less than `milliseconds` ago.
    mutating func take(_ device: DeviceID, now: UInt64) -> Bool {
        if entries.isEmpty { entries = Array(repeating: Entry(), count: Self.capacity) }
        let place = Int(truncatingIfNeeded: device.low) & (Self.capacity - 1)
        let entry = entries[place]
        if entry.device == device, now < entry.at + Self.milliseconds { return false }
        entries[place] = Entry(device: device, at: now)
        return true
    }
}

/// The addresses at which devices reach a gateway directly, without a load balancer.
struct DeviceAddresses: Sendable, Equatable {
    var plain: String?
    var secure: String?
}

/// The links to the other gateways; methods can be called from any thread unless they name a loop.
protocol GatewayLinks: AnyObject, Sendable {
    /// Queues messages for a partition and empties the array.
    ///
    /// - Returns: false if the link is down or its backlog is full; the caller then answers the messages itself. After true, each
    ///   question gets exactly one answer: the other gateway's, or a busy answer if the link breaks.
    func send(_ messages: inout [LoopMessage], part: Int, to node: Int) -> Bool

    /// Queues answers for another gateway; the caller keeps the batch.
    ///
    /// The route of each answer names the loop that asked.
    ///
    /// - Returns: false if the link is down or full; the other gateway then answers its questions as busy itself.
    func send(_ answers: AnswerBatch, loop: Int, to node: Int) -> Bool

    /// Answers pending questions to a partition's former owner as busy, and ends the relays of its devices.
    func forget(part: Int, at node: Int)

    /// Queues news for every other gateway, and sends it over the links that are up.
    func tell(_ news: GatewayNews)

    /// The number of additional descriptors that devices relayed to this gateway use, beside their connections.
    var relayEndCount: Int { get }

    /// Relays a device's connection to the gateway that owns the device.
    ///
    /// - Parameters:
    ///   - connection: The connection, with its unparsed received bytes.
    ///   - hello: The device's Hello.
    ///   - isSecure: Whether the device uses TLS.
    ///   - node: The owner of the device's partition.
    ///   - loop: The loop that accepted the connection. The connection stays on it.
    ///   - ended: Runs on `loop` when the connection is closed.
    func relay(
        _ connection: DetachedConnection, hello: AdoptedHello, isSecure: Bool, to node: Int, on loop: EventLoop,
        ended: @escaping () -> Void)

    /// Ends up to `count` relays of devices on this loop and returns their number; must be called on `loop`.
    func endRelays(_ count: Int, on loop: EventLoop) -> Int
}
