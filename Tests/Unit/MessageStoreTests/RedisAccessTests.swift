import Cryptography
import Delivery
import Platform
import Redis
import TestKit
import Testing
import Wire

@testable import MessageStore

@Suite("Reaching Redis", .enabled(if: RedisServers.executable != nil, "no redis-server"), .serialized)
struct RedisAccessTests {
    private static var configuration: RedisEngine.Configuration {
        var configuration = RedisFixture.configuration()
        configuration.minReplicas = 0
        configuration.rowsMilliseconds = 3_000
        return configuration
    }

    private static func put(_ fixture: RedisFixture, _ item: UInt64) throws {
        let key = StoreKey(Bucket(0), .tag, ownerHigh: 1, ownerLow: 1, item: item)
        fixture.store.beginBatch(key.bucket)
        fixture.store.put(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: 3) { $0.copyBytes(from: [1, 2, 3]) }
        try fixture.sync(fixture.store.endBatch())
    }

    /// Commits, moves rows, reads, and takes the partition over.
    private static func work(_ cluster: RedisCluster, epoch: UInt64) throws {
        var replayed = 0
        for epoch in [epoch, epoch + 1] {
            let fixture = try RedisFixture(cluster, configuration, epoch: epoch)
            defer { fixture.close() }
            replayed = fixture.part.replayedEntryCount
            try put(fixture, 1)
            try fixture.spillAll()
            let reader = ReplyWitness()
            fixture.store.observer = reader
            let token = fixture.store.read([
                .get(StoreKey(Bucket(0), .tag, ownerHigh: 1, ownerLow: 1, item: 1))
            ])
            try fixture.wait("the row") { reader.failures[token] != nil }
            #expect(reader.failures[token] == .some(nil) && reader.texts[token] == ["\u{1}\u{2}\u{3}"])
            try put(fixture, 2)
        }
        #expect(replayed > 0)
    }

    @Test("a user with the documented rights can do everything; a wrong password is reported")
    func users() throws {
        let servers = try RedisServers(replicaCount: 0)
        let rights = [
            "~{lw:*", "~lw:touch:*", "+@read", "+@write", "+@scripting", "-@dangerous", "+wait", "+info", "+config|get",
            "+cluster", "+asking", "+time",
        ]
        func setUser(_ name: String, _ words: [String]) throws {
            var command = RedisCommand("ACL", "SETUSER", name, "on", ">right")
            for word in words { command.append(word) }
            #expect(try servers.run(0, command) == .status("OK"))
        }
        try setUser("longwire", rights)
        func cluster(_ user: String, _ password: String) -> RedisCluster {
            RedisCluster(seeds: servers.addresses, network: RedisSockets(RedisAccess(user: user, password: password)))
        }
        try Self.work(cluster("longwire", "right"), epoch: 1)
        let problems = try RedisSettings.check(cluster("longwire", "right"), name: "test", minReplicas: 0)
        #expect(problems.map(\.name) == ["maxmemory"] && problems[0].kind == .advice)
        // Every missing right is named, with the ACL rule that grants it. Applying the rule is sufficient.
        for right in Set(RedisRights.probes(name: "test", isCluster: false, waitsForDisks: false).map(\.right)) {
            let isOfKeys = right.hasPrefix("~")
            let kept = isOfKeys ? rights.filter { $0 != right } : rights + ["-" + right.dropFirst()]
            try setUser("poor", ["reset"])
            try setUser("poor", kept)
            let found = try RedisSettings.check(cluster("poor", "right"), name: "test", minReplicas: 0)
            let problem = try #require(found.first { $0.kind != .advice }, "\(right)")
            #expect(problem.description.contains("ACL SETUSER <user> \(right)"), "\(problem)")
            try setUser("poor", [right])
            let left = try RedisSettings.check(cluster("poor", "right"), name: "test", minReplicas: 0)
            #expect(!left.contains { $0.kind != .advice }, "\(left)")
        }
        do {
            _ = try RedisFixture(cluster("longwire", "wrong"), Self.configuration, epoch: 9)
            Issue.record("the part was opened")
        } catch let error as StoreError {
            #expect(error.description.contains("WRONGPASS"), "\(error)")
        }
    }

    @Test("a call that lacks a right names the command or key and the rule; replicas are not suspected")
    func poorUsers() throws {
        let servers = try RedisServers()
        let rights = ["~{lw:*", "~lw:touch:*", "+@all"]
        func setUser(_ words: [String]) throws {
            var command = RedisCommand("ACL", "SETUSER", "poor", "reset", "on", ">right")
            for word in words { command.append(word) }
            #expect(try servers.run(0, command) == .status("OK"))
        }
        var configuration = Self.configuration
        configuration.minReplicas = 1
        var epoch: UInt64 = 0
        for (words, remedy) in [
            (rights + ["-wait"], "+wait"), (rights.filter { $0 != "~lw:touch:*" }, "~lw:touch:*"),
            (rights + ["-hset"], "+@write"), (rights.filter { $0 != "~{lw:*" }, "~{lw:*"),
            (rights + ["-evalsha"], "+evalsha"),
        ] {
            try setUser(words)
            let cluster = RedisCluster(
                seeds: servers.addresses, network: RedisSockets(RedisAccess(user: "poor", password: "right")))
            // An earlier attempt may have written its fence.
            epoch += 1
            do {
                let fixture = try RedisFixture(cluster, configuration, epoch: epoch)
                fixture.close()
                Issue.record("the part was opened without \(remedy)")
            } catch let error as StoreError {
                #expect(error.description.contains("ACL SETUSER <user>"), "\(error)")
                #expect(error.description.contains(remedy), "\(error)")
            }
        }
    }

    @Test("a server at its client limit is retried, with a password, too")
    func clients() throws {
        let servers = try RedisServers()
        var held: [any RedisConnection] = []
        defer { for connection in held { connection.close() } }
        func bound(_ server: Int, _ count: Int) throws {
            if held.count <= server {
                held.append(try RedisSockets().connect(to: servers.addresses[server], timeoutMilliseconds: 5_000))
            }
            let reply = try held[server].run(
                [RedisCommand("CONFIG", "SET", "maxclients", "\(count)")], timeoutMilliseconds: 5_000)
            #expect(reply == [.status("OK")])
        }
        for server in 0...1 {
            try servers.run(["ACL", "SETUSER", "gateway", "on", ">right", "~*", "&*", "+@all"], on: server)
            try bound(server, 100)
        }
        func check() throws -> [RedisProblem] {
            // A new client each time, because a client does not request the map again within a short time.
            let access = RedisAccess(user: "gateway", password: "right")
            let cluster = RedisCluster(seeds: [servers.addresses[0]], network: RedisSockets(access))
            return try RedisSettings.check(cluster, name: "test", minReplicas: 1).filter { $0.kind != .advice }
        }
        #expect(try check() == [])
        try bound(1, 1)
        let found = try check()
        #expect(found.map(\.kind) == [.passing] && found.map(\.server) == [servers.addresses[1]], "\(found)")
        #expect(found.first?.found.contains("max number of clients") == true, "\(found)")
        try bound(0, 1)
        do {
            let found = try check()
            Issue.record("a map: \(found)")
        } catch let error as RedisError {
            #expect(error.isPassing && error.description.contains("max number of clients"), "\(error)")
        }
        for server in 0...1 { try bound(server, 100) }
        #expect(try check() == [])
    }

    @Test("TLS: only a certificate of the trusted authority for the right name is accepted")
    func security() throws {
        let folder = try TemporaryFolder(isInMemory: true)
        func path(_ name: String) -> String { "\(folder.path)/\(name)" }
        for name in ["server", "stranger"] {
            try SelfSignedCertificate.write(
                names: "IP:127.0.0.1,DNS:redis.example", days: 2, certificatePath: path("\(name).pem"),
                keyPath: path("\(name).key"))
        }
        let port = try FreePorts.take()
        let servers = try RedisServers(
            replicaCount: 0,
            settings: [
                "--tls-port", "\(port)", "--tls-cert-file", path("server.pem"), "--tls-key-file", path("server.key"),
                "--tls-ca-cert-file", path("server.pem"), "--tls-auth-clients", "no",
            ])
        let address = RedisAddress(host: "127.0.0.1", port: port)
        func cluster(_ authority: String, _ name: String?) throws -> RedisCluster {
            let security = try RedisAccess.Security(caFile: path(authority), serverName: name)
            return RedisCluster(seeds: [address], network: RedisSockets(RedisAccess(security: security)))
        }
        try Self.work(try cluster("server.pem", nil), epoch: 1)
        try Self.work(try cluster("server.pem", "redis.example"), epoch: 11)
        for (authority, name) in [("stranger.pem", nil), ("server.pem", "other.example")] as [(String, String?)] {
            let other = try cluster(authority, name)
            #expect(throws: StoreError.self) { _ = try RedisFixture(other, Self.configuration, epoch: 21) }
        }
        // A server without TLS is distinguished from an unreachable one.
        let plain = RedisCluster(seeds: [address], network: RedisSockets())
        #expect(throws: StoreError.self) { _ = try RedisFixture(plain, Self.configuration, epoch: 21) }
        #expect(try servers.command(0, "PING") == .status("PONG"))
    }

    @Test("servers that lose their scripts, or have those of another release, change nothing")
    func scripts() throws {
        let servers = try RedisServers()
        var configuration = Self.configuration
        configuration.minReplicas = 1
        let fixture = try RedisFixture(servers.makeCluster(), configuration, epoch: 1)
        // Another release's script for the same purpose.
        let other = RedisScripts.batch.source.replacing("return 1", with: "return 2")
        try servers.command(0, "SCRIPT", "LOAD", other)
        for item in UInt64(1)...4 {
            try Self.put(fixture, item)
            try servers.command(0, "SCRIPT", "FLUSH")
            try fixture.spillAll()
        }
        try servers.command(0, "SCRIPT", "LOAD", other)
        try Self.put(fixture, 5)
        fixture.close()
        try servers.command(0, "SCRIPT", "FLUSH")
        let second = try RedisFixture(servers.makeCluster(), configuration, epoch: 2)
        defer { second.close() }
        #expect(second.part.replayedEntryCount > 0)
        #expect(try servers.command(0, "HLEN", "{lw:test:g0}:r") == .integer(5))
    }
}
