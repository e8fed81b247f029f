import Platform
import Testing

@testable import Redis

/// Servers with scripted answers.
private final class ScriptedNetwork: RedisNetwork, @unchecked Sendable {
    // `@unchecked Sendable` is sound because only one thread uses it.
    /// The answers by server; `nil` breaks the connection.
    var answers: [RedisAddress: ([[String]]) -> [RedisReply]?] = [:]
    var log: [String] = []
    var now: UInt64 = 1_000

    final class Connection: RedisConnection {
        let network: ScriptedNetwork
        let address: RedisAddress
        init(_ network: ScriptedNetwork, _ address: RedisAddress) { (self.network, self.address) = (network, address) }
        func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
            let words = commands.map { $0.arguments.map { String(decoding: $0, as: UTF8.self) } }
            if words[0].first != "INFO" {
                network.log.append("\(address.port) \(words.map { $0.joined(separator: " ") }.joined(separator: "; "))")
            }
            guard let replies = network.answers[address]?(words) else { throw .broken(address, "gone") }
            return replies
        }
        private var begun: [RedisCommand] = []
        func begin(_ commands: [RedisCommand]) { begun = commands }
        func proceed() throws(RedisError) -> [RedisReply]? { try run(begun, timeoutMilliseconds: 1_000) }
        var interest: RedisInterest? { nil }
        func close() {}
    }

    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        guard answers[address] != nil else { throw .unreachable(address, "nothing listens") }
        return Connection(self, address)
    }
    var monotonicMilliseconds: UInt64 { now }
    func sleep(milliseconds: Int) { now += UInt64(milliseconds) }
}

@Suite("Redirects of a Redis Cluster")
struct RedirectTests {
    private static let first = RedisAddress(host: "h", port: 1)
    private static let second = RedisAddress(host: "h", port: 2)

    /// Returns a map with all slots at `owner`, which has a replica.
    private static func map(_ owner: RedisAddress) -> [RedisReply] {
        func node(_ address: RedisAddress) -> RedisReply {
            .array([.bytes(Array(address.host.utf8)), .integer(Int64(address.port)), .bytes([120])])
        }
        return [
            .bytes(Array("redis_version:7.0.15\r\n".utf8)),
            .array([
                .array([
                    .integer(0), .integer(16_383), node(owner), node(RedisAddress(host: "", port: 9)),
                ])
            ]), .bytes(Array("role:master\r\n".utf8)),
            .bytes(Array("cluster_state:ok\r\ncluster_current_epoch:1\r\n".utf8)),
        ]
    }

    private func make(_ network: ScriptedNetwork) -> RedisClient {
        RedisClient(RedisCluster(seeds: [Self.first, Self.second], network: network))
    }

    private func get(_ key: String) -> RedisRequest {
        RedisRequest(RedisCommand("GET", key), slot: RedisSlot.of(key))
    }

    @Test("MOVED is followed and remembered")
    func moved() throws {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            commands[0][0] == "INFO"
                ? Self.map(Self.first) : commands.map { _ in .error(RedisFault("MOVED 12182 h:2")) }
        }
        network.answers[Self.second] = { commands in
            commands[0][0] == "INFO" ? Self.map(Self.second) : commands.map { .status($0[1]) }
        }
        let client = make(network)
        #expect(try client.run([get("foo")], deadline: network.now + 1_000) == [.status("foo")])
        #expect(client.cluster.primary(of: 12_182) == Self.second)
        #expect(try client.attempt([get("foo").command], slot: 12_182).replies == [.status("foo")])
        #expect(network.log == ["1 GET foo", "2 GET foo", "2 GET foo"])
    }

    @Test("ASK is followed for one command and not remembered")
    func ask() throws {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            if commands[0][0] == "INFO" { return Self.map(Self.first) }
            return commands.map { $0[1] == "{a}1" ? .error(RedisFault("ASK 15495 :2")) : .status($0[1]) }
        }
        network.answers[Self.second] = { commands in
            commands.map { $0[0] == "ASKING" ? .status("OK") : .status("asked \($0[1])") }
        }
        let client = make(network)
        let replies = try client.run([get("{a}1"), get("{a}2")], deadline: network.now + 1_000)
        #expect(replies == [.status("asked {a}1"), .status("{a}2")])
        #expect(client.cluster.primary(of: RedisSlot.of("{a}1")) == Self.first)
        let attempt = try client.attempt([get("{a}1").command], slot: RedisSlot.of("{a}1"))
        #expect(attempt.replies == [.status("asked {a}1")])
    }

    @Test(
        "temporary errors are retried until they have passed",
        arguments: ["TRYAGAIN x", "CLUSTERDOWN x", "LOADING x", "READONLY x", "BUSY x", "OOM x", "MISCONF x"])
    func passing(text: String) throws {
        let network = ScriptedNetwork()
        var count = 0
        network.answers[Self.first] = { commands in
            if commands[0][0] == "INFO" { return Self.map(Self.first) }
            count += 1
            return commands.map { _ in count < 4 ? .error(RedisFault(text)) : .status("done") }
        }
        let client = make(network)
        #expect(try client.run([get("foo")], deadline: network.now + 10_000) == [.status("done")])
        #expect(count == 4)
        // Retries are limited.
        count = -1_000_000
        #expect(throws: RedisError.refused(Self.first, RedisFault(text))) {
            _ = try client.run([get("foo")], deadline: network.now + 3_000)
        }
    }

    @Test("a permanent error is the reply")
    func lasting() throws {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            commands[0][0] == "INFO"
                ? Self.map(Self.first) : commands.map { _ in .error(RedisFault("WRONGTYPE x")) }
        }
        #expect(
            try make(network).run([get("foo")], deadline: network.now + 1_000) == [.error(RedisFault("WRONGTYPE x"))])
    }

    @Test("a broken connection is replaced, and the map is requested again")
    func broken() throws {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            if commands[0][0] == "INFO" { return Self.map(Self.first) }
            network.answers[Self.first] = nil
            network.answers[Self.second] = { commands in
                commands[0][0] == "INFO" ? Self.map(Self.second) : commands.map { .status($0[1]) }
            }
            return nil
        }
        let client = make(network)
        #expect(try client.run([get("foo")], deadline: network.now + 10_000) == [.status("foo")])
    }

    @Test("while another thread requests the first map, no slot counts as without a server")
    func firstMapAskedFor() throws {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            commands[0][0] == "INFO" ? Self.map(Self.first) : commands.map { .status($0[1]) }
        }
        let impatient = make(network)
        // Another thread's map request that never gets an answer.
        #expect(impatient.cluster.mayAsk(now: network.now))
        let replies = try impatient.run([get("foo")], deadline: network.now + 10_000, isImpatient: true)
        #expect(replies == [.status("foo")])
        let single = make(network)
        #expect(single.cluster.mayAsk(now: network.now))
        #expect(try single.attempt([get("foo").command], slot: 12_182).replies == [.status("foo")])
        // Without a reachable seed an impatient call fails long before its deadline.
        network.answers = [:]
        let (nobody, start) = (make(network), network.now)
        #expect(throws: RedisError.self) {
            _ = try nobody.run([get("foo")], deadline: start + 600_000, isImpatient: true)
        }
        #expect(network.now < start + 2_000)
    }

    @Test("a durable write is sent again until enough replicas have it")
    func waiting() throws {
        let network = ScriptedNetwork()
        var acknowledged: Int64 = -1
        network.answers[Self.first] = { commands in
            if commands[0][0] == "INFO" { return Self.map(Self.first) }
            acknowledged += 1
            return commands.map { $0[0] == "WAIT" ? .integer(acknowledged) : .status("OK") }
        }
        let client = make(network)
        #expect(
            try client.run([get("foo")], isDurable: true, minReplicas: 2, deadline: network.now + 10_000) == [
                .status("OK")
            ])
        #expect(acknowledged == 2)
    }

    @Test("a script that a server does not have is sent as a whole")
    func scripts() throws {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            if commands[0][0] == "INFO" { return Self.map(Self.first) }
            return commands.map {
                $0[0] == "EVALSHA" ? .error(RedisFault("NOSCRIPT No matching script")) : .status($0[1])
            }
        }
        let command = RedisCommand(RedisScript("return 2"), keys: [Array("foo".utf8)])
        #expect(
            try make(network).run([RedisRequest(command, slot: RedisSlot.of("foo"))], deadline: network.now + 1_000)
                == [.status("return 2")])
    }

    @Test("a script that is sent as a whole is followed by another WAIT")
    func scriptsWaitedFor() throws {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            if commands[0][0] == "INFO" { return Self.map(Self.first) }
            return commands.map {
                switch $0[0] {
                case "EVALSHA": .error(RedisFault("NOSCRIPT No matching script"))
                case "WAIT": .integer(1)
                default: .status("ran")
                }
            }
        }
        let request = RedisRequest(
            RedisCommand(RedisScript("return 2"), keys: [Array("foo".utf8)]), slot: RedisSlot.of("foo"))
        let deadline = network.now + 1_000
        #expect(
            try make(network).run([request], isDurable: true, minReplicas: 1, deadline: deadline) == [.status("ran")])
        #expect(network.log.count == 2 && network.log.allSatisfy { $0.contains("; WAIT 1 ") })
    }

    /// The first server redirects to the second, which accepts commands after ASKING and has no cached script.
    private func migrating() -> ScriptedNetwork {
        let network = ScriptedNetwork()
        network.answers[Self.first] = { commands in
            if commands[0][0] == "INFO" { return Self.map(Self.first) }
            return commands.map { $0[0] == "WAIT" ? .integer(1) : .error(RedisFault("ASK 12182 h:2")) }
        }
        network.answers[Self.second] = { commands in
            var isAsking = false
            return commands.map { words -> RedisReply in
                defer { isAsking = words[0] == "ASKING" }
                return switch words[0] {
                case "ASKING": .status("OK")
                case "WAIT": .integer(1)
                case _ where !isAsking: .error(RedisFault("MOVED 12182 h:1"))
                case "EVALSHA": .error(RedisFault("NOSCRIPT No matching script"))
                default: .status(words[0])
                }
            }
        }
        return network
    }

    @Test("a script whose slot is being moved is sent as a whole to the server with the keys")
    func scriptsOfMigratingSlots() throws {
        let network = migrating()
        let command = RedisCommand(RedisScript("return 2"), keys: [Array("foo".utf8)])
        let request = RedisRequest(command, slot: 12_182)
        let deadline = network.now + 1_000
        #expect(
            try make(network).run([request], isDurable: true, minReplicas: 1, deadline: deadline) == [.status("EVAL")])
        let wait = RedisCommand("WAIT", "1", "10")
        let attempt = try make(network).attempt([command, wait, get("foo").command], slot: 12_182)
        #expect(attempt.replies == [.status("EVAL"), .integer(1), .status("GET")])
    }

    @Test("a server without cluster mode leads to its primary")
    func plain() throws {
        let network = ScriptedNetwork()
        func answer(_ role: String) -> ([[String]]) -> [RedisReply]? {
            { commands in
                commands[0][0] == "INFO"
                    ? [
                        .bytes(Array("redis_version:7.2.4\r\n".utf8)),
                        .error(RedisFault("ERR This instance has cluster support disabled")),
                        .bytes(Array(role.utf8)),
                        .error(RedisFault("ERR This instance has cluster support disabled")),
                    ] : commands.map { .status($0[1]) }
            }
        }
        network.answers[Self.first] = answer("role:slave\r\nmaster_host:h\r\nmaster_port:2\r\n")
        network.answers[Self.second] = answer(
            "role:master\r\nslave0:ip=h,port=1,state=online,offset=1,lag=0\r\nslave1:ip=h,port=3,state=wait_bgsave\r\n")
        let client = make(network)
        #expect(try client.run([get("foo")], deadline: network.now + 1_000) == [.status("foo")])
        #expect(client.cluster.primaries == [RedisCluster.Primary(address: Self.second, replicas: [Self.first])])
        #expect(!client.cluster.isCluster && client.cluster.waitsForDisks(at: Self.second))
    }

    @Test("invalid maps are refused")
    func badMaps() {
        let node = RedisReply.array([.bytes([104]), .integer(1)])
        let bad: [RedisReply] = [
            .none, .array([.integer(1)]), .array([.array([.integer(5), .integer(1), node])]),
            .array([.array([.integer(0), .integer(16_384), node])]),
            .array([.array([.integer(-1), .integer(3), node])]), .array([.array([.integer(0), .integer(-1), node])]),
            .array([.array([.integer(.max), .integer(.min), node])]),
            .array([.array([.integer(0), .integer(3), .array([.bytes([104]), .integer(0)])])]),
            .array([.array([.integer(0), .integer(3), .array([.bytes([104]), .integer(70_000)])])]),
        ]
        for reply in bad { #expect(SlotRange.parse(reply, askedAt: Self.first) == nil) }
    }
}
