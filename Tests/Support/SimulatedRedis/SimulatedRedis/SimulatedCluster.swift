// Several primaries and their replicas in one process, driven by one simulated clock and one seed.
//
// A call is one use of a connection: the client sends some commands in one write and waits for all replies. The cluster runs the
// commands at once or injects a fault. Time advances only through calls and `sleep`.
//
// Replication: a primary appends each command's effects to its history, and a replica has applied a prefix of it. WAIT makes the
// replicas apply the remaining entries, unless they are slow, cut off, stalled or down. A failover promotes a replica with the
// entries it has; later entries are lost. A former primary may accept writes for a while before it learns of its successor.
//
// Chance: each hash tag has its own generator, so the faults of one thread's calls do not depend on another thread's calls.

internal import Glibc
internal import Platform

package final class SimulatedCluster: Sendable {
    package struct Layout: Sendable {
        package var primaries = 3
        package var replicas = 1
        /// False for one primary with its replicas and no slots.
        package var isCluster = true
        /// Whether WAIT waits only for this connection's writes, as in Redis 7.2 and later.
        ///
        /// Earlier versions wait for the server's offset at the connection's last command of any kind.
        package var waitsForWritesOnly = false
        package init() {}
    }

    struct Connection {
        var server: Int
        var life: Int
        var isAsking = false
        var isOpen = true
        /// The history offset that WAIT waits for.
        var offset = 0
    }

    struct Shard {
        var members: [Int]
        var primary: Int
        var epoch: Int
    }

    /// The whole state, guarded by one lock.
    struct World {
        var layout: Layout
        var servers: [Server] = []
        var shards: [Shard] = []
        var slots: [Int] { didSet { spans = Self.spans(of: slots) } }
        /// Ranges of consecutive slots with the same owner.
        private(set) var spans: [Span] = []
        /// The slots in migration, with source and target.
        var moving: [Int: (source: Int, target: Int)] = [:]
        var connections: [Int: Connection] = [:]
        var lastConnection = 0
        var now: Int64 = 0
        var rates = FaultRates.none
        var seed: UInt64
        var chances: [Bytes: Chance] = [:]
        var downUntil: Int64 = 0
        /// The number of calls by the name of their first command.
        var callCounts: [String: Int] = [:]
        /// The number of injected faults by name.
        var faultCounts: [String: Int] = [:]

        struct Span {
            var first: Int
            var last: Int
            var shard: Int
        }

        init(layout: Layout, seed: UInt64) { (self.layout, self.seed, slots) = (layout, seed, []) }

        private static func spans(of slots: [Int]) -> [Span] {
            var spans: [Span] = []
            for (slot, shard) in slots.enumerated() {
                if let last = spans.indices.last, spans[last].shard == shard {
                    spans[last].last = slot
                } else {
                    spans.append(Span(first: slot, last: slot, shard: shard))
                }
            }
            return spans
        }
    }

    private let world: Lock<World>
    /// The timeout of an asynchronous call, in milliseconds.
    static let begunMilliseconds = 2_500
    /// The server clock at the start, in Unix milliseconds.
    package static let startOfTime: Int64 = 1_790_000_000_000

    package init(seed: UInt64, layout: Layout = Layout()) {
        var world = World(layout: layout, seed: seed)
        let primaries = layout.isCluster ? layout.primaries : 1
        for number in 0..<primaries * (1 + layout.replicas) {
            let shard = number % primaries
            world.servers.append(
                Server(
                    number: number, shard: shard, primary: number < primaries ? nil : shard,
                    settings: [
                        "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction",
                        "maxmemory": "0",
                        "cluster-enabled": layout.isCluster ? "yes" : "no", "save": "",
                        "min-replicas-to-write": "0", "proto-max-bulk-len": "536870912",
                        "client-query-buffer-limit": "1073741824", "lua-time-limit": "5000", "timeout": "0",
                        "no-appendfsync-on-rewrite": "no", "aof-load-truncated": "yes",
                    ]))
        }
        world.shards = (0..<primaries).map { shard in
            Shard(members: world.servers.filter { $0.shard == shard }.map(\.number), primary: shard, epoch: shard + 1)
        }
        world.slots = (0..<Slots.count).map { $0 * primaries / Slots.count }
        self.world = Lock(world)
    }

    func withWorld<Result>(_ body: (inout World) -> Result) -> Result { world.withLock { body(&$0) } }

    // MARK: Calls of clients

    package var milliseconds: Int64 { world.withLock { $0.now } }

    package func sleep(milliseconds: Int) {
        world.withLock { $0.now += Int64(max(milliseconds, 0)) }
        // Lets other threads run, because this thread may only wait for one of them.
        usleep(20)
    }

    package func connect(host: String, port: Int, timeout: Int) throws(CallFailure) -> Int {
        try world.withLock { world throws(CallFailure) in try world.connect(host: host, port: port, timeout: timeout) }
    }

    package func close(_ connection: Int) { world.withLock { $0.connections[connection] = nil } }

    /// Runs commands in one write and returns their replies.
    package func run(_ connection: Int, _ commands: [[Bytes]], timeout: Int) throws(CallFailure) -> [Reply] {
        try world.withLock { world throws(CallFailure) in try world.call(connection, commands, timeout: timeout) }
    }

    // MARK: Calls of tests

    package var rates: FaultRates {
        get { world.withLock { $0.rates } }
        set { world.withLock { $0.rates = newValue } }
    }
    package var addresses: [(host: String, port: Int)] { world.withLock { $0.servers.map { ($0.host, $0.port) } } }
    package var serverCount: Int { world.withLock { $0.servers.count } }
    package var faultCounts: [String: Int] { world.withLock { $0.faultCounts } }
    package var callCounts: [String: Int] { world.withLock { $0.callCounts } }
    package var shardCount: Int { world.withLock { $0.shards.count } }
    package func primary(of shard: Int) -> Int { world.withLock { $0.shards[shard].primary } }
    package func shard(of key: String) -> Int {
        world.withLock { $0.layout.isCluster ? $0.slots[Slots.slot(of: Bytes(key.utf8))] : 0 }
    }
    package static func slot(of key: String) -> Int { Slots.slot(of: Bytes(key.utf8)) }

    /// Runs one read on the key's current primary, without faults.
    package func look(_ words: String...) -> Reply { look(words) }

    package func look(_ words: [String]) -> Reply {
        world.withLock { world in
            let words = words.map { Bytes($0.utf8) }
            guard let key = Keyspace.keys(of: words).first else { return .null }
            let shard = world.layout.isCluster ? world.slots[Slots.slot(of: key)] : 0
            var data = world.servers[world.shards[shard].primary].data
            return data.run(words, at: Self.startOfTime + world.now)
        }
    }

    /// Runs one read on the key's current primary or on one of its replicas, without faults; returns `nil` if no replica exists.
    package func look(_ words: [Bytes], onReplica isOnReplica: Bool = false) -> Reply? {
        world.withLock { world in
            guard let key = Keyspace.keys(of: words).first else { return nil }
            let shard = world.shards[world.layout.isCluster ? world.slots[Slots.slot(of: key)] : 0]
            let replica = shard.members.first {
                $0 != shard.primary && world.servers[$0].primary == shard.primary && world.servers[$0].applied >= 0
            }
            guard let server = isOnReplica ? replica : shard.primary else { return nil }
            var data = world.servers[server].data
            data.refusesWrites = false
            return data.run(words, at: Self.startOfTime + world.now)
        }
    }

    /// Runs a command of another program or an operator on the key's primary, without network faults.
    package func intrude(_ words: [String]) -> Reply {
        world.withLock { $0.intrude(words.map { Bytes($0.utf8) }) }
    }

    package func setSetting(_ name: String, _ value: String, on server: Int? = nil) {
        world.withLock { world in
            for number in world.servers.indices where server == nil || server == number {
                world.servers[number].settings[name] = value
            }
        }
    }

    package func setOutOfMemory(_ isOut: Bool, on server: Int? = nil) {
        world.withLock { world in
            for number in world.servers.indices where server == nil || server == number {
                world.servers[number].data.isOutOfMemory = isOut
            }
        }
    }

    package func forgetScripts() {
        world.withLock { world in
            for number in world.servers.indices { world.servers[number].data.forgetScripts() }
        }
    }

    package func advance(milliseconds: Int) { world.withLock { $0.now += Int64(milliseconds) } }

    /// Ends a server as SIGKILL does: every connection breaks; the data stays, because the server syncs before it replies.
    package func kill(_ server: Int) { world.withLock { $0.servers[server].crash() } }

    /// Starts a server, which then answers `-LOADING` for a while.
    package func start(_ server: Int, loadingFor milliseconds: Int = 0) {
        world.withLock { world in
            world.servers[server].isUp = true
            world.servers[server].loadingUntil = world.now + Int64(milliseconds)
            world.rejoin(server)
        }
    }

    /// Stops a server as SIGSTOP does; commands that arrive in this period run afterwards.
    package func stall(_ server: Int, for milliseconds: Int) {
        world.withLock { $0.servers[server].stalledUntil = $0.now + Int64(milliseconds) }
    }

    /// Delays commands to a server until `release`, after their client has timed out.
    package func hold(_ commands: [[Bytes]], to host: String, port: Int) {
        world.withLock { world in
            guard let number = world.servers.firstIndex(where: { $0.host == host && $0.port == port }) else { return }
            world.note("held")
            world.servers[number].waiting.append((.max, commands))
        }
    }

    /// Delivers the delayed commands; they run before the server's next call.
    package func release() {
        world.withLock { world in
            for number in world.servers.indices {
                for place in world.servers[number].waiting.indices {
                    world.servers[number].waiting[place].time = world.now
                }
            }
        }
    }

    package func setCutOff(_ replica: Int, _ isCutOff: Bool) {
        world.withLock { $0.servers[replica].isCutOff = isCutOff }
    }

    package func setDown(for milliseconds: Int) { world.withLock { $0.downUntil = $0.now + Int64(milliseconds) } }

    /// Promotes a replica of the shard to primary.
    ///
    /// - Parameters:
    ///   - shard: the shard's number.
    ///   - replica: the replica's number; by default the one with the most entries, as an election prefers it.
    ///   - isGraceful: whether the replica applies all entries first, as CLUSTER FAILOVER does.
    ///   - forgetsOld: whether the old primary, if it runs, does not learn of the failover before `mend`.
    /// - Returns: whether the shard had a replica to promote.
    @discardableResult
    package func failOver(_ shard: Int, to replica: Int? = nil, isGraceful: Bool = false, forgetsOld: Bool = false)
        -> Bool
    {
        world.withLock { $0.failOver(shard, to: replica, isGraceful: isGraceful, forgetsOld: forgetsOld) }
    }

    /// Ends all faults: every server runs, is linked and has the current map.
    package func mend() { world.withLock { $0.mend() } }

    /// Starts the migration of a slot; `moveKeys` and `finishMove` complete it.
    package func beginMove(slot: Int, to shard: Int) {
        world.withLock { world in
            guard world.layout.isCluster, world.slots[slot] != shard, world.moving[slot] == nil else { return }
            world.moving[slot] = (world.slots[slot], shard)
        }
    }

    /// Moves some of the slot's keys and returns how many are left.
    @discardableResult
    package func moveKeys(slot: Int, count: Int = .max) -> Int {
        world.withLock { $0.moveKeys(slot: slot, count: count) }
    }

    package func finishMove(slot: Int) {
        world.withLock { world in
            _ = world.moveKeys(slot: slot, count: .max)
            if let move = world.moving.removeValue(forKey: slot) { world.slots[slot] = move.target }
        }
    }

    /// Whether all replicas of each shard hold the primary's data.
    package var copiesAgree: Bool {
        world.withLock { world in
            world.shards.allSatisfy { shard in
                shard.members.allSatisfy { world.servers[$0].data == world.servers[shard.primary].data }
            }
        }
    }
}
