import Delivery
import Platform
import Redis
import SimulatedRedis
import Wire

@testable import MessageStore

/// A process that owns a part, or believes so: an engine without threads over a network of its own.
final class WorldProcess {
    let number: Int
    let network: WorldNetwork
    let engine: RedisEngine
    let loop = WorldLoop()
    let witness = RedisWitness()
    let reader = ReplyWitness()
    private(set) var store: EmbeddedShardStore?
    private(set) var epoch: UInt64 = 0

    /// The rows that it found when it opened the part.
    var base: [StoreKey: [UInt8]] = [:]
    /// What it wrote since, one batch a ticket.
    var batches: [[(key: StoreKey, value: [UInt8]?)]] = []
    /// How many of them the next owner has found; `nil` while there is none.
    var found: Int?
    /// Reads under way: the key, and how many batches there were.
    var reads: [ReadToken: (key: StoreKey, batchCount: Int)] = [:]
    /// What it had been told was durable when it ended.
    private(set) var committed: Ticket = 0
    /// It does nothing for a while.
    var isStopped = false

    init(_ number: Int, _ network: WorldNetwork, seeds: [RedisAddress], _ configuration: RedisEngine.Configuration)
        throws
    {
        (self.number, self.network) = (number, network)
        var configuration = configuration
        configuration.report = { [witness] in witness.note($0) }
        engine = try RedisEngine(RedisCluster(seeds: seeds, network: network), configuration)
    }

    func open(part: Int, of count: Int, epoch: UInt64) throws(StoreError) {
        let open = try engine.openPart(part, of: count, epoch: epoch, post: loop.post) { [witness] in witness.note($0) }
        self.epoch = epoch
        store = open.store as? EmbeddedShardStore
        store?.observer = reader
    }

    /// The rows as they were after the first `count` of its batches.
    func rows(after count: Int) -> [StoreKey: [UInt8]] {
        var rows = base
        for batch in batches.prefix(count) { for (key, value) in batch { rows[key] = value } }
        return rows
    }

    /// The process ends: nothing that it has under way reaches a server.
    func end(part: Int) {
        network.isDead = true
        if let store {
            committed = store.committedTicket
            store.close()
            self.store = nil
            engine.closePart(part)
        }
        engine.close()
        loop.end()
    }
}

/// The loop of a process, turned by the world.
final class WorldLoop: Sendable {
    private let tasks = Lock<[@Sendable () -> Void]>([])
    func post(_ task: @escaping @Sendable () -> Void) { tasks.withLock { $0.append(task) } }
    func turn() {
        let now = tasks.withLock { tasks in
            defer { tasks.removeAll() }
            return tasks
        }
        for task in now { task() }
    }
    func end() { tasks.withLock { $0.removeAll() } }
}

/// The network of one process: it ends with the process, its calls are moments at which others act, and a planted fault
/// changes what is sent and told.
final class WorldNetwork: RedisNetwork, @unchecked Sendable {
    // Sound because the world and its processes run on one thread.
    private let simulated: SimulatedNetwork
    private let cluster: SimulatedCluster
    var isDead = false
    /// Runs before each call.
    var beforeCall: () -> Void = {}
    let fault: WorldFault.Planted?

    init(_ cluster: SimulatedCluster, _ fault: WorldFault?) {
        self.cluster = cluster
        simulated = SimulatedNetwork(cluster)
        self.fault = fault.map { WorldFault.Planted($0, cluster) }
    }

    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        if isDead { throw .unreachable(address, "the process has ended") }
        return Connection(self, address, try simulated.connect(to: address, timeoutMilliseconds: timeoutMilliseconds))
    }

    var monotonicMilliseconds: UInt64 { simulated.monotonicMilliseconds }
    func sleep(milliseconds: Int) { cluster.advance(milliseconds: max(1, milliseconds)) }

    private final class Connection: RedisConnection {
        private let network: WorldNetwork
        private let address: RedisAddress
        private let real: any RedisConnection

        init(_ network: WorldNetwork, _ address: RedisAddress, _ real: any RedisConnection) {
            (self.network, self.address, self.real) = (network, address, real)
        }

        func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
            if !network.isDead { network.beforeCall() }
            if network.isDead { throw .broken(address, "the process has ended") }
            guard let fault = network.fault else {
                return try real.run(commands, timeoutMilliseconds: timeoutMilliseconds)
            }
            let sent = commands.map { fault.sent($0, among: commands) }
            let replies = try real.run(sent, timeoutMilliseconds: timeoutMilliseconds)
            return zip(commands, replies).map { fault.told($0, $1, among: commands) }
        }

        func close() { real.close() }
    }
}
