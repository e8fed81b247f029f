import Delivery
import Platform
import Redis
import TestKit
import Testing
import Wire

@testable import MessageStore

/// Two primaries of one cluster, each with half of the slots, without replicas.
final class RedisPair {
    let servers: [RedisServers]

    init(settings: [String] = []) throws {
        servers = try (0..<2).map { _ in
            try RedisServers(
                replicaCount: 0,
                settings: [
                    "--cluster-enabled", "yes", "--cluster-port", "\(FreePorts.take())",
                    "--cluster-node-timeout", "60000",
                ] + settings)
        }
        let half = RedisSlot.count / 2
        for (number, server) in servers.enumerated() {
            try server.command(
                0, "CLUSTER", "ADDSLOTSRANGE", "\(number * half)", "\((number + 1) * half - 1)")
        }
        let reply = try servers[1].command(0, "CONFIG", "GET", "cluster-port")
        let port = reply.array?.last?.text ?? ""
        try servers[0].command(0, "CLUSTER", "MEET", "127.0.0.1", "\(addresses[1].port)", port)
        let limit = SystemClock.monotonicMilliseconds + 60_000
        while try !servers.allSatisfy({
            let slots = try $0.command(0, "CLUSTER", "SLOTS").array?.count
            return try slots == 2 && $0.command(0, "CLUSTER", "INFO").text?.contains("cluster_state:ok") == true
        }) {
            guard SystemClock.monotonicMilliseconds < limit else {
                throw WaitFailed(description: "the two servers do not become a cluster")
            }
            Pause.milliseconds(20)
        }
    }

    var addresses: [RedisAddress] { servers.map { $0.addresses[0] } }
    func makeCluster(_ network: any RedisNetwork = RedisSockets()) -> RedisCluster {
        RedisCluster(seeds: addresses, network: network)
    }
    /// Returns the initial owner of a slot.
    static func side(of slot: Int) -> Int { slot * 2 / RedisSlot.count }
    /// Returns the first bucket of the partition whose rows are on one of the servers.
    static func bucket(_ side: Int, part: Int, of count: Int) -> Bucket {
        let group = RedisGroups.groups(part: part, of: count).first {
            Self.side(of: GroupKeys("test", group: $0).slot) == side
        }
        return Bucket(UInt16(group ?? 0))
    }

    static func part(_ side: Int, of count: Int) -> Int {
        (0..<count).first { Self.side(of: RedisSlot.of(GroupKeys.log("test", part: $0))) == side } ?? 0
    }

    /// Returns a server's cluster node id.
    func identity(_ side: Int) throws -> String { try servers[side].command(0, "CLUSTER", "MYID").text ?? "" }
}

@Suite("The store on two primaries", .enabled(if: RedisServers.executable != nil, "no redis-server"), .serialized)
struct RedisPairTests {
    private static var configuration: RedisEngine.Configuration {
        var configuration = RedisFixture.configuration()
        configuration.minReplicas = 0
        return configuration
    }

    private static func key(_ bucket: Bucket, _ item: UInt64) -> StoreKey {
        StoreKey(bucket, .tag, ownerHigh: 1, ownerLow: 1, item: item)
    }

    @discardableResult
    private static func put(_ store: EmbeddedShardStore, _ key: StoreKey, _ text: String) -> Ticket {
        store.beginBatch(key.bucket)
        let bytes = Array(text.utf8)
        store.put(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: bytes.count) { $0.copyBytes(from: bytes) }
        let ticket = store.endBatch()
        store.turnEnded()
        return ticket
    }

    @Test("a hanging primary delays no commit and no read of another one")
    func isolation() throws {
        let pair = try RedisPair()
        let count = 16
        let cluster = pair.makeCluster()
        // One engine with a partition on each server.
        let still = try RedisFixture(
            cluster, Self.configuration, part: RedisPair.part(0, of: count), of: count, epoch: 1)
        defer { still.close() }
        let lively = ManualLoop()
        let other = RedisPair.part(1, of: count)
        let open = try still.engine.openPart(other, of: count, epoch: 1, post: lively.post) { _ in }
        let store = try #require(open.store as? EmbeddedShardStore)
        defer {
            store.close()
            still.engine.closePart(other)
            lively.end()
        }
        func wait(_ what: String, until isDone: () -> Bool) throws {
            try still.wait(what) {
                lively.turn()
                return isDone()
            }
        }
        let buckets = (0...1).map { RedisPair.bucket($0, part: other, of: count) }
        for bucket in buckets { Self.put(store, Self.key(bucket, 1), "row") }
        try wait("the commit") { store.committedTicket >= store.lastTicket }
        still.engine.requestSpill()
        try wait("the spill") { store.youngRowCount == 0 }

        pair.servers[0].pause(0)
        let late = Self.put(still.store, Self.key(RedisPair.bucket(1, part: still.part.part, of: count), 1), "late")
        let reader = ReplyWitness()
        store.observer = reader
        // Requested together: one of the reads cannot be answered now.
        let tokens = buckets.map { store.read([.get(Self.key($0, 1))]) }
        try wait("a read of the other server") { reader.failures[tokens[1]] != nil }
        #expect(reader.failures[tokens[1]] == .some(nil))
        #expect(reader.failures[tokens[0]] == nil, "the server that stands still has answered")
        for number in UInt64(2)...40 {
            let ticket = Self.put(store, Self.key(buckets[1], number), "row")
            try wait("a commit at the other server") { store.committedTicket >= ticket }
        }
        try wait("publishes refused for the part that stands still") { !still.store.acceptsWrites }
        #expect(still.store.committedTicket < late)
        #expect(store.acceptsWrites)
        #expect(!still.engine.acceptsWrites && still.engine.isServing, "one server takes no gateway from its balancer")
        pair.servers[0].resume(0)
        try wait("the late commit") { still.store.committedTicket >= late }
        try wait("publishes taken") { still.store.acceptsWrites }
        try wait("the other read") { reader.failures[tokens[0]] != nil }
    }

    @Test("a slot that moves under load loses nothing: MOVED, ASK and TRYAGAIN of real servers")
    func migration() throws {
        let pair = try RedisPair()
        let count = 16
        let part = RedisPair.part(0, of: count)
        let log = RedisSlot.of(GroupKeys.log("test", part: part))
        let bucket = RedisPair.bucket(0, part: part, of: count)
        let group = GroupKeys("test", group: RedisGroups.group(of: bucket))
        let fixture = try RedisFixture(pair.makeCluster(), Self.configuration, part: part, of: count, epoch: 1)
        defer { fixture.close() }
        let identities = try (0...1).map { try pair.identity($0) }
        var number: UInt64 = 0
        func work() throws {
            for _ in 0..<3 {
                number += 1
                try fixture.sync(Self.put(fixture.store, Self.key(bucket, number), "row \(number)"))
            }
        }
        for round in 0..<2 {
            let (from, to) = (round, 1 - round)
            for slot in [log, group.slot] {
                try work()
                // The group's rows must exist when its slot moves.
                try fixture.spillAll()
                try pair.servers[to].command(0, "CLUSTER", "SETSLOT", "\(slot)", "IMPORTING", identities[from])
                try pair.servers[from].command(0, "CLUSTER", "SETSLOT", "\(slot)", "MIGRATING", identities[to])
                // Some keys are still there, others do not exist yet: ASK, and TRYAGAIN once they are split.
                try work()
                fixture.engine.requestSpill()
                for _ in 0..<20 { fixture.loop.turn(waitingAtMost: 0.001) }
                let keys = try pair.servers[from].command(0, "CLUSTER", "GETKEYSINSLOT", "\(slot)", "100").array ?? []
                for key in keys.compactMap(\.text) {
                    let reply = try pair.servers[from].command(
                        0, "MIGRATE", "127.0.0.1", "\(pair.addresses[to].port)", key, "0", "5000")
                    guard ["OK", "NOKEY"].contains(reply.text) else { throw WaitFailed(description: "\(reply)") }
                    try work()
                }
                while let left = try pair.servers[from].command(0, "CLUSTER", "GETKEYSINSLOT", "\(slot)", "100").array,
                    !left.isEmpty
                {
                    for key in left.compactMap(\.text) {
                        try pair.servers[from].command(
                            0, "MIGRATE", "127.0.0.1", "\(pair.addresses[to].port)", key, "0", "5000")
                    }
                }
                for side in [to, from] {
                    try pair.servers[side].command(0, "CLUSTER", "SETSLOT", "\(slot)", "NODE", identities[to])
                }
                try work()
            }
        }
        try fixture.spillAll()
        let reader = ReplyWitness()
        fixture.store.observer = reader
        let token = fixture.store.read([
            .scan(partition: Self.key(bucket, 0), rowLimit: 10_000, byteLimit: 1 << 20)
        ])
        try fixture.wait("the rows") { reader.failures[token] != nil }
        #expect(reader.failures[token] == .some(nil))
        #expect(reader.texts[token] == (1...number).map { "row \($0)" })
        #expect(fixture.witness.losses.isEmpty)
    }
}

final class ReplyWitness: ShardStoreObserver {
    var failures: [ReadToken: String?] = [:]
    var texts: [ReadToken: [String]] = [:]
    var keys: [ReadToken: [StoreKey]] = [:]
    /// The numbers of rows of single-key reads.
    var rowCounts: [ReadToken: Int] = [:]
    func storeCommitted(upTo ticket: Ticket) {}
    func storeCooled(_ key: StoreKey) {}
    func storeReplied(_ reply: StoreReply) {
        failures[reply.token] = .some(reply.failure)
        for result in reply.results {
            switch result {
            case .row(let row?):
                texts[reply.token] = [String(decoding: row.value, as: UTF8.self)]
                rowCounts[reply.token, default: 0] += 1
            case .rows(let rows, _):
                texts[reply.token] = rows.map { String(decoding: $0.value, as: UTF8.self) }
                keys[reply.token] = rows.map(\.key)
            default: break
            }
        }
    }
}
