import Cluster
import Platform
import Redis
import Testing

@testable import Gateway

/// A primary whose replicas are all unresponsive, with a clock that advances with each wait.
private final class StillReplicas: RedisNetwork, @unchecked Sendable {
    // `@unchecked Sendable` is sound because only one thread uses it.

    static let primary = RedisAddress(host: "10.0.0.1", port: 1)
    static let replicas = (2...9).map { RedisAddress(host: "10.0.0.\($0)", port: 1) }

    private(set) var monotonicMilliseconds: UInt64 = 1_000_000
    /// The number of connections to the primary that are refused.
    var refusals = 0
    /// The names of the commands that reached the primary.
    private(set) var names: [String] = []
    /// Whether the primary closes its connections at the next command.
    var breaksNext = false

    func sleep(milliseconds: Int) { monotonicMilliseconds += UInt64(milliseconds) }

    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        guard address == Self.primary else {
            monotonicMilliseconds += UInt64(timeoutMilliseconds)
            throw .unreachable(address, "no answer in time")
        }
        guard refusals == 0 else {
            refusals -= 1
            throw .unreachable(address, "connection refused")
        }
        return Connection(self)
    }

    private final class Connection: RedisConnection {
        private let network: StillReplicas
        init(_ network: StillReplicas) { self.network = network }

        func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
            if network.breaksNext {
                network.breaksNext = false
                throw .broken(StillReplicas.primary, "closed")
            }
            return commands.map { network.reply(to: $0) }
        }
        private var begun: [RedisCommand] = []
        func begin(_ commands: [RedisCommand]) { begun = commands }
        func proceed() throws(RedisError) -> [RedisReply]? { try run(begun, timeoutMilliseconds: 1_000) }
        var interest: RedisInterest? { nil }
        func close() {}
    }

    private func reply(to command: RedisCommand) -> RedisReply {
        names.append(command.name)
        switch (command.name, command.arguments.dropFirst().first.map { String(decoding: $0, as: UTF8.self) }) {
        case ("INFO", "replication"):
            let replicas = Self.replicas.enumerated().map {
                "slave\($0.offset):ip=\($0.element.host),port=1,state=online"
            }
            return .bytes(Array((["role:master"] + replicas).joined(separator: "\r\n").utf8))
        case ("INFO", _): return .bytes(Array("redis_version:7.0.15".utf8))
        case ("CLUSTER", _): return .error(RedisFault("ERR This instance has cluster support disabled"))
        case ("WAIT", _): return .integer(8)
        default: return .array([.bytes(Array("ok".utf8)), .bytes([])])
        }
    }
}

@Suite("The time bound of the register")
struct RegisterBoundTests {
    @Test("an unavailable cluster map delays a register call by less than a lease")
    func lostMap() throws {
        let network = StillReplicas()
        let register = RedisRegister(
            RedisCluster(seeds: [StillReplicas.primary], network: network), name: "t", minReplicas: 1)
        defer { register.close() }
        let node = NodeID(1)!
        try register.leave(node, instance: 1)
        let lease = UInt64(ClusterTiming().lease)
        // The connection breaks and the server refuses the next one, so the client asks the replicas for the map first.
        (network.breaksNext, network.refusals) = (true, 1)
        let began = network.monotonicMilliseconds
        #expect(throws: RegisterError.self) { try register.leave(node, instance: 1) }
        #expect(throws: RegisterError.self) { try register.leave(node, instance: 1) }
        try register.leave(node, instance: 1)
        #expect(network.monotonicMilliseconds - began < lease)
    }

    @Test("a change is followed by a write for WAIT, because a repeated change may have no effect")
    func touched() throws {
        let network = StillReplicas()
        let register = RedisRegister(
            RedisCluster(seeds: [StillReplicas.primary], network: network), name: "t", minReplicas: 1)
        defer { register.close() }
        try register.leave(NodeID(1)!, instance: 1)
        #expect(network.names.suffix(3) == ["EVALSHA", "SET", "WAIT"])
    }
}
