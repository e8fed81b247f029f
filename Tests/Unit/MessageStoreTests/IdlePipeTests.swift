import Delivery
import Platform
import Redis
import SimulatedRedis
import Testing
import Wire

@testable import MessageStore

/// A network that records which commit connections are open, that is, had a call.
private final class CountingNetwork: RedisNetwork {
    private let real: any RedisNetwork
    private let pipes = Lock<[ObjectIdentifier: RedisAddress]>([:])

    init(_ real: any RedisNetwork) { self.real = real }

    func pipeCount(to address: RedisAddress) -> Int { pipes.withLock { $0.values.count { $0 == address } } }
    var addresses: Set<RedisAddress> { pipes.withLock { Set($0.values) } }

    private final class Connection: RedisConnection {
        let network: CountingNetwork
        let address: RedisAddress
        let real: any RedisConnection
        init(_ network: CountingNetwork, _ address: RedisAddress, _ real: any RedisConnection) {
            (self.network, self.address, self.real) = (network, address, real)
        }

        func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
            try real.run(commands, timeoutMilliseconds: timeoutMilliseconds)
        }
        func begin(_ commands: [RedisCommand]) throws(RedisError) {
            network.pipes.withLock { $0[ObjectIdentifier(self)] = address }
            try real.begin(commands)
        }
        func proceed() throws(RedisError) -> [RedisReply]? { try real.proceed() }
        var interest: RedisInterest? { real.interest }
        func close() {
            network.pipes.withLock { $0[ObjectIdentifier(self)] = nil }
            real.close()
        }
    }

    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        Connection(self, address, try real.connect(to: address, timeoutMilliseconds: timeoutMilliseconds))
    }
    var monotonicMilliseconds: UInt64 { real.monotonicMilliseconds }
    func sleep(milliseconds: Int) { real.sleep(milliseconds: milliseconds) }
}

@Suite("Idle connections of commits")
struct IdlePipeTests {
    private func put(_ store: any LoopStore, _ bucket: Bucket) throws -> Ticket {
        let store = try #require(store as? EmbeddedShardStore)
        store.beginBatch(bucket)
        store.put(
            StoreKey(bucket, .tag, ownerHigh: 1, ownerLow: 1, item: 1), wakeAt: 0, prior: .maybe(wakeAt: 0),
            byteCount: 1
        ) { $0[0] = 1 }
        defer { store.turnEnded() }
        return store.endBatch()
    }

    @Test(
        "the server's close is detected without a request",
        .enabled(if: RedisServers.executable != nil, "no redis-server"))
    func ended() throws {
        let servers = try RedisServers()
        let network = CountingNetwork(RedisSockets())
        let fixture = try RedisFixture(
            RedisCluster(seeds: servers.addresses, network: network), RedisFixture.configuration(), epoch: 1)
        defer { fixture.close() }
        let ticket = try put(fixture.store, Bucket(0))
        try fixture.wait("the commit") { fixture.store.committedTicket >= ticket }
        #expect(network.pipeCount(to: servers.addresses[0]) > 0)
        servers.kill(0)
        try fixture.wait("the end of its connections") { network.pipeCount(to: servers.addresses[0]) == 0 }
    }

    @Test("connections to a former primary are closed after some seconds, and the new primary's stay")
    func withoutSlots() throws {
        let cluster = SimulatedCluster(seed: 1)
        let network = CountingNetwork(SimulatedNetwork(cluster))
        var configuration = RedisEngine.Configuration()
        configuration.name = "idle"
        (configuration.isStepped, configuration.flushMilliseconds) = (true, 0)
        configuration.now = { 1_000_000_000 }
        let engine = try RedisEngine(
            RedisCluster(seeds: SimulatedNetwork(cluster).seeds, network: network), configuration)
        defer { engine.close() }
        let loop = ProcessLoop()
        let open = try engine.openPart(0, of: 1, epoch: 1, post: loop.post) { _ in }
        defer {
            open.store.close()
            engine.closePart(0)
            loop.end()
        }
        func commit() throws {
            let ticket = try put(open.store, Bucket(0))
            let store = try #require(open.store as? EmbeddedShardStore)
            for _ in 0..<200 where store.committedTicket < ticket {
                _ = engine.step(.commit)
                loop.turn()
                cluster.advance(milliseconds: 20)
            }
            #expect(store.committedTicket >= ticket)
        }
        try commit()
        let former = try #require(network.addresses.first)
        #expect(network.addresses.count == 1)
        let log = String(decoding: GroupKeys.log("idle", part: 0), as: UTF8.self)
        #expect(cluster.failOver(cluster.shard(of: log), isGraceful: true))
        try commit()
        // The former primary refused it, and its connections are valid.
        #expect(network.pipeCount(to: former) > 0 && network.addresses.count == 2)
        _ = engine.step(.watch)
        cluster.advance(milliseconds: Int(Limits.idlePipeMilliseconds))
        _ = engine.step(.commit)
        #expect(network.pipeCount(to: former) == 0 && network.addresses.count == 1)
    }
}
