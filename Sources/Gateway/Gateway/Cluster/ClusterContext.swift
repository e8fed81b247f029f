internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Synchronization
internal import Wire

/// What the loops of a gateway know of the cluster: its own number, who owns which part, and the links.
final class ClusterContext: Sendable {
    /// This gateway's number; never 0.
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

    /// A number that loops read for each message: relaxed, because a message to the wrong gateway is only refused.
    private final class Owner: Sendable {
        let node = Atomic<Int>(0)
        /// Gateway time at which the part began to be served here; 0: it never was.
        let seatedAt = Atomic<Int64>(0)
    }

    init(node: Int, partCount: Int, links: any GatewayLinks) {
        ownNode = Atomic(node)
        self.links = links
        owners = (0..<partCount).map { _ in Owner() }
    }

    /// What the membership does for the admin API; set once, before the loops run.
    struct Pages: Sendable {
        var status: @Sendable () -> ClusterStatus
        var health: @Sendable (ClusterContext) -> ClusterHealth
        var figures: @Sendable (ClusterContext) -> ClusterFigures
        /// `done` runs on a thread of the membership's.
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

    /// The gateway that serves a part; 0: none, as far as is known here.
    func owner(of part: Int) -> Int { owners[part].node.load(ordering: .relaxed) }

    /// Where a device may go itself; `nil`: it is relayed.
    func deviceAddress(of node: Int, isSecure: Bool) -> String? {
        let addresses = addresses.withLock { $0[node] }
        return isSecure ? addresses?.secure : addresses?.plain
    }

    /// Whether a device is told where its gateway is; false when it was told a moment ago and is here again.
    ///
    /// Some networks let a device reach one gateway and not the other: it is relayed then.
    func maySendAway(_ device: DeviceID, now: UInt64) -> Bool { sentAway.withLock { $0.take(device, now: now) } }

    /// What the other gateways advertise to devices.
    func setDeviceAddresses(_ all: [Int: DeviceAddresses]) { addresses.withLock { $0 = all } }

    /// How many gateways the cluster has, this one included.
    var gatewayCount: Int { memberCount.load(ordering: .relaxed) }
    func setGatewayCount(_ count: Int) { memberCount.store(max(1, count), ordering: .relaxed) }

    /// The gateway joined again, under another number.
    func renumber(_ node: Int) {
        let before = ownNode.exchange(node, ordering: .relaxed)
        for owner in owners where owner.node.load(ordering: .relaxed) == before {
            owner.node.store(node, ordering: .relaxed)
        }
    }

    func setOwner(_ node: Int, of part: Int) { owners[part].node.store(node, ordering: .relaxed) }

    /// Notes when a part began to be served here: what devices said to its owner before, this gateway does not know.
    func noteOwnership(of part: Int, at time: GatewayTime) { owners[part].seatedAt.store(time, ordering: .relaxed) }
    func seatedAt(_ part: Int) -> GatewayTime { owners[part].seatedAt.load(ordering: .relaxed) }
}

/// Devices that were told of another gateway's address a moment ago: as many as a table of fixed size remembers.
struct SentAway {
    /// A device tries an address for some seconds, and then comes back after its own backoff.
    static let milliseconds: UInt64 = 60_000
    private static let capacity = 1 << 14

    private struct Entry {
        var device = DeviceID.none
        var at: UInt64 = 0
    }

    /// Empty until the first device comes.
    private var entries: [Entry] = []

    /// Notes that a device is told now; false when it was told a moment ago.
    mutating func take(_ device: DeviceID, now: UInt64) -> Bool {
        if entries.isEmpty { entries = Array(repeating: Entry(), count: Self.capacity) }
        let place = Int(truncatingIfNeeded: device.low) & (Self.capacity - 1)
        let entry = entries[place]
        if entry.device == device, now < entry.at + Self.milliseconds { return false }
        entries[place] = Entry(device: device, at: now)
        return true
    }
}

/// The addresses at which devices reach a gateway, past any balancer.
struct DeviceAddresses: Sendable, Equatable {
    var plain: String?
    var secure: String?
}

/// The links to the other gateways, as loops use them; from any thread.
protocol GatewayLinks: AnyObject, Sendable {
    /// Takes messages for a part's shard.
    ///
    /// - Returns: false when there is no link to the gateway, or too much waits for it; the caller then answers itself.
    ///   After true each question gets one answer: the other gateway's, or its busy form when the link breaks.
    func send(_ messages: inout [LoopMessage], part: Int, to node: Int) -> Bool

    /// Takes answers for loops of another gateway, each of which its route names; the batch stays the caller's.
    ///
    /// False when there is no link, and nobody waits for them.
    func send(_ answers: AnswerBatch, loop: Int, to node: Int) -> Bool

    /// Answers as busy what a gateway was asked of a part that it does not own any more, and ends the relays of its devices.
    func forget(part: Int, at node: Int)

    /// Tells every other gateway; one that no link reaches now is told later.
    func tell(_ news: GatewayNews)

    /// Descriptors that devices relayed to this gateway take beside their connections.
    var relayEndCount: Int { get }

    /// Relays a device's connection to the gateway that serves it.
    ///
    /// - Parameters:
    ///   - connection: with what was read of it and is still to be understood.
    ///   - hello: what the device said.
    ///   - isSecure: the device speaks TLS.
    ///   - node: the gateway of its part.
    ///   - loop: where the connection was taken; it stays there.
    ///   - ended: runs on that loop when the connection is over.
    func relay(
        _ connection: DetachedConnection, hello: AdoptedHello, isSecure: Bool, to node: Int, on loop: EventLoop,
        ended: @escaping () -> Void)

    /// Ends up to `count` devices of this loop that other gateways own; to be called on `loop`.
    ///
    /// - Returns: how many it ended.
    func endRelays(_ count: Int, on loop: EventLoop) -> Int
}
