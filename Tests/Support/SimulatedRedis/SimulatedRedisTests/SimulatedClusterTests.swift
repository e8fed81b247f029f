import Redis
import SimulatedRedis
import Testing

@Suite("The simulated cluster")
struct SimulatedClusterTests {
    private static func command(_ words: String...) -> RedisCommand {
        var command = RedisCommand()
        for word in words { command.append(word) }
        return command
    }

    private struct Rig {
        let cluster: SimulatedCluster
        let client: RedisClient
        init(seed: UInt64 = 1, _ layout: SimulatedCluster.Layout = .init(), _ mutation: Mutation = .init()) {
            cluster = SimulatedCluster(seed: seed, layout: layout)
            let network = SimulatedNetwork(cluster)
            client = RedisClient(RedisCluster(seeds: network.seeds, network: MutatingNetwork(network, mutation)))
        }
        var deadline: UInt64 { client.cluster.network.monotonicMilliseconds + 60_000 }
        func run(_ words: String..., isDurable: Bool = false) throws -> RedisReply {
            var command = RedisCommand()
            for word in words { command.append(word) }
            let request = RedisRequest(command, slot: SimulatedCluster.slot(of: words[1]))
            return try client.run([request], isDurable: isDurable, minReplicas: isDurable ? 1 : 0, deadline: deadline)[
                0]
        }
    }

    @Test("an election loses entries that no replica had, and keeps those that WAIT counted")
    func elections() throws {
        let rig = Rig()
        let shard = rig.cluster.shard(of: "key")
        let replica = shard + rig.cluster.shardCount
        #expect(try rig.run("SET", "key", "waited for", isDurable: true) == .status("OK"))
        rig.cluster.setCutOff(replica, true)
        #expect(try rig.run("SET", "key", "lost") == .status("OK"))
        rig.cluster.kill(shard)
        #expect(rig.cluster.failOver(shard))
        #expect(try rig.run("GET", "key") == .bytes(Array("waited for".utf8)))
        rig.cluster.mend()
        #expect(rig.cluster.copiesAgree && rig.cluster.primary(of: shard) == replica)
    }

    @Test("a primary that does not know its successor accepts writes without acknowledgements")
    func twoPrimaries() throws {
        let rig = Rig()
        let shard = rig.cluster.shard(of: "key")
        let address = rig.cluster.addresses[shard]
        let old = RedisAddress(host: address.host, port: UInt16(address.port))
        #expect(try rig.run("SET", "key", "1", isDurable: true) == .status("OK"))
        rig.cluster.failOver(shard, forgetsOld: true)
        let replies = try rig.client.exchange(
            [Self.command("SET", "key", "2"), Self.command("WAIT", "1", "100")], at: old
        ).replies
        #expect(replies == [.status("OK"), .integer(0)])
        rig.cluster.mend()
        let moved = try rig.client.exchange([Self.command("GET", "key")], at: old).replies[0]
        #expect(moved.fault?.code == "MOVED")
        #expect(try rig.run("GET", "key") == .bytes(Array("1".utf8)))
    }

    @Test(
        "WAIT counts up to the connection's last write, or before 7.2 up to the server's offset at its last command",
        arguments: [false, true])
    func waiting(forWritesOnly: Bool) throws {
        var layout = SimulatedCluster.Layout()
        (layout.isCluster, layout.waitsForWritesOnly) = (false, forWritesOnly)
        let rig = Rig(layout)
        rig.cluster.setCutOff(1, true)
        let address = rig.cluster.addresses[0]
        let server = RedisAddress(host: address.host, port: UInt16(address.port))
        let wait = Self.command("WAIT", "1", "10")
        #expect(try rig.client.exchange([Self.command("SET", "k", "v"), wait], at: server).replies[1] == .integer(0))
        rig.cluster.setCutOff(1, false)
        rig.cluster.stall(1, for: 50)
        rig.client.close()
        // WAIT of 7.2 does not wait for the writes of other connections. It does not count a cut-off replica.
        #expect(try rig.client.exchange([Self.command("GET", "k"), wait], at: server).replies[1] == .integer(0))
        rig.cluster.advance(milliseconds: 100)
        #expect(try rig.client.exchange([Self.command("GET", "k"), wait], at: server).replies[1] == .integer(1))
    }

    @Test("a slot moves key by key: ASK, TRYAGAIN, MOVED")
    func moving() throws {
        let rig = Rig()
        let slot = SimulatedCluster.slot(of: "{t}1")
        for number in 1...4 { _ = try rig.run("SET", "{t}\(number)", "v") }
        let (source, target) = (rig.cluster.shard(of: "{t}1"), (rig.cluster.shard(of: "{t}1") + 1) % 3)
        func address(_ shard: Int) -> RedisAddress {
            let address = rig.cluster.addresses[rig.cluster.primary(of: shard)]
            return RedisAddress(host: address.host, port: UInt16(address.port))
        }
        func at(_ shard: Int, _ words: [String]...) throws -> [String] {
            let commands = words.map { words in
                var command = RedisCommand()
                for word in words { command.append(word) }
                return command
            }
            return try rig.client.exchange(commands, at: address(shard)).replies.map {
                $0.fault.map { String($0.code) } ?? $0.text ?? "\($0)"
            }
        }
        rig.cluster.beginMove(slot: slot, to: target)
        rig.cluster.moveKeys(slot: slot, count: 2)
        #expect(
            try at(source, ["GET", "{t}1"], ["GET", "{t}3"], ["EXISTS", "{t}1", "{t}3"]) == ["ASK", "v", "TRYAGAIN"])
        #expect(
            try at(target, ["GET", "{t}1"], ["ASKING"], ["GET", "{t}1"], ["GET", "{t}1"]) == [
                "MOVED", "OK", "v", "MOVED",
            ])
        for number in 1...4 { #expect(try rig.run("GET", "{t}\(number)") == .bytes([118])) }
        rig.cluster.finishMove(slot: slot)
        #expect(try at(source, ["GET", "{t}3"]) == ["MOVED"] && at(target, ["GET", "{t}3"]) == ["v"])
        #expect(try rig.run("GET", "{t}4") == .bytes([118]) && rig.cluster.copiesAgree)
    }

    @Test("the server runs commands after their client has timed out")
    func late() throws {
        var layout = SimulatedCluster.Layout()
        layout.isCluster = false
        let rig = Rig(layout)
        let address = rig.cluster.addresses[0]
        let server = RedisAddress(host: address.host, port: UInt16(address.port))
        rig.cluster.stall(0, for: 5_000)
        #expect(throws: RedisError.self) {
            _ = try rig.client.exchange([Self.command("SET", "k", "late")], at: server, timeoutMilliseconds: 100)
        }
        #expect(rig.cluster.look("GET", "k") == .null)
        rig.cluster.advance(milliseconds: 6_000)
        #expect(try rig.client.exchange([Self.command("GET", "k")], at: server).replies == [.bytes(Array("late".utf8))])
    }

    @Test("the client remembers an unresponsive server until it answers")
    func silence() throws {
        let rig = Rig()
        _ = try rig.run("SET", "k", "v")
        let cluster = rig.client.cluster
        let shard = rig.cluster.shard(of: "k")
        let server = try #require(cluster.primary(of: SimulatedCluster.slot(of: "k")))
        #expect(!cluster.isSilent(server) && cluster.silentPrimaries.isEmpty)
        rig.cluster.stall(rig.cluster.primary(of: shard), for: 60_000)
        #expect(throws: RedisError.self) {
            _ = try rig.client.exchange([Self.command("GET", "k")], at: server, timeoutMilliseconds: 100)
        }
        #expect(cluster.isSilent(server) && cluster.silentPrimaries == [server])
        // A patient request waits for the server. Others fail at once.
        let began = rig.client.cluster.network.monotonicMilliseconds
        let request = RedisRequest(Self.command("GET", "k"), slot: SimulatedCluster.slot(of: "k"))
        #expect(throws: RedisError.self) {
            _ = try rig.client.run([request], deadline: began + 30_000, isImpatient: true)
        }
        #expect(rig.client.cluster.network.monotonicMilliseconds < began + 8_000)
        rig.cluster.mend()
        _ = try rig.client.exchange([Self.command("GET", "k")], at: server)
        #expect(!cluster.isSilent(server) && cluster.silentPrimaries.isEmpty)
    }

    @Test("a full server refuses commands that may need memory, and a script before its first change")
    func outOfMemory() throws {
        let rig = Rig()
        _ = try rig.run("HSET", "h", "a", "1")
        rig.cluster.setOutOfMemory(true)
        let server = rig.client.cluster.primary(of: SimulatedCluster.slot(of: "h"))!
        func reply(_ words: String...) throws -> RedisReply {
            var command = RedisCommand()
            for word in words { command.append(word) }
            return try rig.client.exchange([command], at: server).replies[0]
        }
        #expect(try reply("HSET", "h", "b", "1").fault?.kind == .outOfMemory)
        #expect(try reply("EVAL", "return redis.call('HSET', KEYS[1], 'b', '1')", "1", "h").fault?.kind == .outOfMemory)
        let both = "redis.call('HDEL', KEYS[1], 'a') return redis.call('HSET', KEYS[1], 'b', '1')"
        #expect(try reply("EVAL", both, "1", "h") == .integer(1))
        #expect(try reply("HGET", "h", "b") == .bytes([49]))
    }

    /// Goal: a client's durable writes survive every fault.
    ///
    /// Method: increasing counters, each set to its next number by a write that is repeated until it is durable, while servers
    /// crash, stall, lose their links and fail over.
    @Test("durable writes survive every fault", arguments: Array(1...40) + [162, 192] as [UInt64])
    func durableWrites(seed: UInt64) throws {
        #expect(try Self.lost(seed: seed, Mutation()) == [])
    }

    @Test("a planted fault loses durable writes", arguments: PlantedFault.all)
    private func planted(fault: PlantedFault) throws {
        // A change in the client's calls shifts the faults, so a failing seed may become another one.
        for seed in [fault.seed] + Array(1...250) where try Self.lost(seed: seed, fault.mutation) != [] {
            #expect(try Self.lost(seed: seed, Mutation()) == [])
            return
        }
        Issue.record("no seed shows it")
    }

    private struct PlantedFault: CustomTestStringConvertible {
        var name: String
        var mutation: Mutation
        var seed: UInt64
        var testDescription: String { name }

        static let all = [
            PlantedFault(name: "waits unchecked", mutation: .waitsUnchecked, seed: 4),
            PlantedFault(name: "waits for nobody", mutation: .waitsForNobody, seed: 4),
            PlantedFault(name: "no write before a wait", mutation: .waitsUntouched, seed: 15),
            PlantedFault(name: "no wait behind a script sent whole", mutation: .scriptsUnwaited, seed: 14),
        ]
    }

    /// Returns the durable writes that are missing at the end.
    private static func lost(seed: UInt64, _ mutation: Mutation) throws -> [String] {
        var layout = SimulatedCluster.Layout()
        layout.isCluster = seed % 4 != 0
        layout.replicas = 1 + Int(seed % 2)
        layout.waitsForWritesOnly = seed % 3 == 0
        let rig = Rig(seed: seed, layout, mutation)
        rig.cluster.rates = .all(oneIn: 40)
        // In these seeds a replica applies entries only during a WAIT, replies are lost, and the primary fails after them.
        let isLossy = seed % 5 == 0
        if isLossy { (rig.cluster.rates.eagerReplica, rig.cluster.rates.replyLost) = (0, 0.15) }
        var chance = Chance(seed: seed)
        var durable: [String: Int] = [:]
        // A command that runs late must not restore an older number.
        let script = RedisScript(
            """
            if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return 0 end
            redis.call('SET', KEYS[1], ARGV[1])
            return redis.call('HSET', KEYS[2], 'v', ARGV[1])
            """)
        for number in 1...150 {
            let name = "{c\(chance.below(5))}"
            let shard = chance.below(rig.cluster.shardCount)
            switch chance.below(24) {
            case 0: rig.cluster.failOver(shard, isGraceful: true)
            case 1: rig.cluster.failOver(shard, forgetsOld: chance.happens(0.5))
            case 2:
                rig.cluster.kill(rig.cluster.primary(of: shard))
                if !rig.cluster.failOver(shard) { rig.cluster.mend() }
            case 3: rig.cluster.stall(chance.below(rig.cluster.serverCount), for: chance.below(8_000))
            case 4: rig.cluster.beginMove(slot: SimulatedCluster.slot(of: name), to: shard)
            case 5: rig.cluster.moveKeys(slot: SimulatedCluster.slot(of: name), count: 1)
            case 6...9: rig.cluster.mend()
            default: break
            }
            var command = RedisCommand(script, keys: [Array("\(name)s".utf8), Array("\(name)h".utf8)])
            command.append(number)
            let request = RedisRequest(command, slot: SimulatedCluster.slot(of: name))
            do {
                let reply = try rig.client.run([request], isDurable: true, minReplicas: 1, deadline: rig.deadline)[0]
                if reply.fault == nil { durable[name] = number }
                if isLossy, chance.happens(0.2) { rig.cluster.failOver(rig.cluster.shard(of: "\(name)s")) }
            } catch {
                // The write may be lost, but the counter must not decrease.
                rig.cluster.mend()
            }
        }
        rig.cluster.rates = .none
        rig.cluster.mend()
        return durable.sorted { $0.key < $1.key }.flatMap { name, number in
            [["GET", "\(name)s"], ["HGET", "\(name)h", "v"]].compactMap { words in
                let reply = rig.cluster.look(words)
                if case .bulk(let bytes) = reply, let found = Int(String(decoding: bytes, as: UTF8.self)),
                    found >= number
                {
                    return nil
                }
                return "\(name) is \(reply), and \(number) was durable"
            }
        }
    }
}
