import Delivery
import Redis
import SimulatedRedis
import Testing
import Wire

@testable import MessageStore

/// A simulated network that holds the calls of commits until the test lets their servers run them.
private final class GatedNetwork: RedisNetwork, @unchecked Sendable {
    // `@unchecked Sendable` is sound because an engine without threads uses it on the test's thread.

    /// A started call without replies yet.
    final class Call {
        let commands: [RedisCommand]
        fileprivate let connection: Connection
        fileprivate var outcome: Result<[RedisReply], RedisError>?

        fileprivate init(_ commands: [RedisCommand], on connection: Connection) {
            (self.commands, self.connection) = (commands, connection)
        }

        var names: [String] { commands.map(\.name) }
        func id(_ place: Int) -> String {
            let words = commands[place].arguments.map { String(decoding: $0, as: UTF8.self) }
            return words[words.count - 3]
        }
        /// The error codes of the replies that have arrived.
        var faultCodes: [String] { ((try? outcome?.get()) ?? []).compactMap { $0.fault.map { String($0.code) } } }
        /// The number of replicas that WAIT requests.
        var wanted: String {
            let words = commands[commands.count - 1].arguments.map { String(decoding: $0, as: UTF8.self) }
            return words[words.count - 2]
        }

        /// Runs the call at its server and delivers its replies; WAIT's may be replaced.
        func answer(wait: RedisReply? = nil) throws {
            try connection.real.begin(commands)
            var replies = try #require(try connection.real.proceed())
            if let wait { replies[replies.count - 1] = wait }
            outcome = .success(replies)
        }

        /// Ends the connection before the server runs the call.
        func lose() { outcome = .failure(.broken(connection.address, "the connection ended")) }
    }

    fileprivate final class Connection: RedisConnection {
        let network: GatedNetwork
        let address: RedisAddress
        let real: any RedisConnection
        var call: Call?
        var hasCalled = false

        init(_ network: GatedNetwork, _ address: RedisAddress, _ real: any RedisConnection) {
            (self.network, self.address, self.real) = (network, address, real)
        }

        func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
            let replies = try real.run(commands, timeoutMilliseconds: timeoutMilliseconds)
            guard network.saysEnough else { return replies }
            return zip(commands, replies).map { $0.name == "WAIT" ? .integer(9) : $1 }
        }
        func begin(_ commands: [RedisCommand]) throws(RedisError) {
            if !hasCalled { network.pipeCount += 1 }
            hasCalled = true
            let call = Call(commands, on: self)
            self.call = call
            network.calls.append(call)
        }
        func proceed() throws(RedisError) -> [RedisReply]? {
            guard let outcome = call?.outcome else { return nil }
            network.calls.removeAll { $0 === call }
            call = nil
            return try outcome.get()
        }
        var interest: RedisInterest? { nil }
        func close() { real.close() }
    }

    private let real: SimulatedNetwork
    /// The calls in flight, in start order.
    fileprivate(set) var calls: [Call] = []
    /// The number of connections that had a call.
    fileprivate(set) var pipeCount = 0
    /// Whether waits outside of lanes succeed at once.
    var saysEnough = false

    init(_ cluster: SimulatedCluster) { real = SimulatedNetwork(cluster) }

    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        Connection(self, address, try real.connect(to: address, timeoutMilliseconds: timeoutMilliseconds))
    }
    var monotonicMilliseconds: UInt64 { real.monotonicMilliseconds }
    func sleep(milliseconds: Int) { real.sleep(milliseconds: milliseconds) }
}

@Suite("The lane of a server")
struct CommitLaneTests {
    private final class Bench {
        let cluster: SimulatedCluster
        let network: GatedNetwork
        let engine: RedisEngine
        let loop = ProcessLoop()
        let witness = RedisWitness()
        private(set) var stores: [EmbeddedShardStore] = []
        private let partCount: Int

        init(parts count: Int = 1, of partCount: Int = 16, replicas: Int = 1, minReplicas: Int = 1) throws {
            var layout = SimulatedCluster.Layout()
            (layout.primaries, layout.replicas) = (1, replicas)
            cluster = SimulatedCluster(seed: 1, layout: layout)
            network = GatedNetwork(cluster)
            self.partCount = partCount
            var configuration = RedisEngine.Configuration()
            configuration.name = "lane"
            (configuration.isStepped, configuration.flushMilliseconds) = (true, 0)
            configuration.minReplicas = minReplicas
            configuration.now = { 1_000_000_000 }
            configuration.report = { [witness] in witness.note($0) }
            network.saysEnough = minReplicas > replicas
            engine = try RedisEngine(
                RedisCluster(seeds: SimulatedNetwork(cluster).seeds, network: network), configuration)
            for part in 0..<count {
                let open = try engine.openPart(part, of: partCount, epoch: 1, post: loop.post) { [witness] in
                    witness.note($0)
                }
                stores.append(try #require(open.store as? EmbeddedShardStore))
            }
        }

        deinit {
            for store in stores { store.close() }
            for part in stores.indices { engine.closePart(part) }
            engine.close()
            loop.end()
        }

        @discardableResult
        func put(_ part: Int, byteCount: Int = 10) -> Ticket {
            let store = stores[part]
            let bucket = Bucket(UInt16(part))
            store.beginBatch(bucket)
            store.put(
                StoreKey(bucket, .tag, ownerHigh: 1, ownerLow: 1, item: 1), wakeAt: 0, prior: .maybe(wakeAt: 0),
                byteCount: byteCount
            ) { bytes in for place in bytes.indices { bytes[place] = 1 } }
            defer { store.turnEnded() }
            return store.endBatch()
        }

        func turn() {
            _ = engine.step(.commit)
            loop.turn()
        }

        /// Submits a group, in a separate call if possible.
        @discardableResult
        func send(_ part: Int, byteCount: Int = 10) -> Ticket {
            defer { turn() }
            return put(part, byteCount: byteCount)
        }

        /// Lets servers run all calls until none is in flight.
        func settle() throws {
            for _ in 0..<50 {
                for call in network.calls { try call.answer() }
                turn()
                cluster.advance(milliseconds: 20)
                turn()
                if network.calls.isEmpty { return }
            }
            Issue.record("\(network.calls.count) calls are left")
        }

        private func log(_ part: Int) -> String { String(decoding: GroupKeys.log("lane", part: part), as: UTF8.self) }

        /// Loads the script on the server; the logs do not contain this script's data.
        func loadScript() {
            let script = RedisScripts.appendBehind.source
            let reply = cluster.intrude(["EVAL", script, "1", log(0), "1-9", "1", "x", "1-10", "b", "x"])
            #expect(SimulatedNetwork.reply(reply).fault?.code ?? "" == RedisScripts.apart)
        }

        func entries(_ part: Int) -> [String] {
            guard case .array(let entries) = SimulatedNetwork.reply(cluster.look("XRANGE", log(part), "1-1", "+"))
            else {
                return []
            }
            return entries.compactMap { $0.array?.first?.text }
        }
    }

    private static let large = Limits.callByteCount + 1

    // MARK: Calls

    @Test("groups of several logs share a call up to its size, and one WAIT")
    func shared() throws {
        let bench = try Bench(parts: 4)
        for part in 0..<3 { bench.put(part) }
        bench.turn()
        #expect(bench.network.calls.map(\.names) == [["XADD", "XADD", "XADD", "WAIT"]])
        try bench.settle()
        for part in 0..<4 { bench.put(part, byteCount: Limits.callByteCount / 2 - 500) }
        bench.turn()
        #expect(bench.network.calls.map(\.names) == Array(repeating: ["XADD", "XADD", "WAIT"], count: 2))
        try bench.settle()
        #expect(bench.stores.map(\.committedTicket) == [2, 2, 2, 1])
    }

    @Test("at most two small calls are in flight; a log that waits for one continues when one has ended")
    func placeOfSmall() throws {
        let bench = try Bench(parts: 5)
        for part in 0..<3 { bench.send(part) }
        #expect(bench.network.calls.count == Limits.callsOfLane)
        bench.cluster.advance(milliseconds: Int(Limits.stuckMilliseconds) + 1)
        #expect(bench.stores.map { $0.acceptsWrites } == [false, false, false, true, true])
        #expect(bench.entries(2) == [])
        // Large groups have separate places.
        bench.send(3, byteCount: Self.large)
        #expect(bench.network.calls.count == Limits.callsOfLane + 1)
        bench.send(4)
        try bench.network.calls[1].answer()
        bench.turn()
        #expect(bench.stores.map(\.committedTicket) == [0, 1, 0, 0, 0])
        // Both waiting logs share the place.
        #expect(bench.network.calls.map { $0.names.count } == [2, 2, 3])
        try bench.settle()
        #expect(bench.stores.allSatisfy { $0.committedTicket == 1 && $0.acceptsWrites })
        // Connections are reused.
        let pipeCount = bench.network.pipeCount
        for part in 0..<5 { bench.send(part) }
        try bench.settle()
        #expect(bench.network.pipeCount == pipeCount && pipeCount == 3)
    }

    @Test("at most six large groups are in flight, each in a separate call, without delaying a small one")
    func placesOfLarge() throws {
        let bench = try Bench(parts: Limits.largeCallsOfLane + 2)
        for part in 0...Limits.largeCallsOfLane { bench.send(part, byteCount: Self.large) }
        #expect(bench.network.calls.map { $0.names.count } == Array(repeating: 2, count: Limits.largeCallsOfLane))
        bench.send(Limits.largeCallsOfLane + 1)
        #expect(bench.network.calls.count == Limits.largeCallsOfLane + 1)
        try bench.settle()
        #expect(bench.stores.allSatisfy { $0.committedTicket == 1 })
    }

    // MARK: Order

    @Test(
        "a group is appended only after the previous one, and no group is sent after a refusal before all results",
        arguments: [false, true])
    func order(isFirstLost: Bool) throws {
        let bench = try Bench()
        for _ in 0..<3 { bench.send(0) }
        #expect(bench.network.calls.map { $0.id(0) } == ["1-1", "1-2"])
        #expect(bench.network.calls[0].names == ["XADD", "WAIT"])
        #expect(bench.network.calls[1].names == ["EVALSHA", "WAIT"])
        bench.loadScript()
        let (first, second) = (bench.network.calls[0], bench.network.calls[1])
        try second.answer()
        #expect(second.faultCodes == [RedisScripts.apart])
        bench.turn()
        #expect(bench.entries(0) == [] && bench.stores[0].committedTicket == 0)
        #expect(bench.network.calls.count == 1 && bench.network.calls[0] === first)
        for _ in 0..<5 {
            bench.cluster.advance(milliseconds: 200)
            bench.turn()
        }
        #expect(bench.network.calls.count == 1, "what the first one became is not known")
        if isFirstLost { first.lose() } else { try first.answer() }
        bench.turn()
        #expect(bench.stores[0].committedTicket == (isFirstLost ? 0 : 1))
        try bench.settle()
        #expect(bench.stores[0].committedTicket == 3 && bench.entries(0) == ["1-1", "1-2", "1-3"])
    }

    @Test("a later group's WAIT confirms the previous one, whose reply is lost")
    func laterSpeaks() throws {
        let bench = try Bench()
        bench.loadScript()
        for _ in 0..<2 { bench.send(0) }
        let calls = bench.network.calls
        try calls[0].answer()
        try calls[1].answer()
        calls[0].lose()
        bench.turn()
        #expect(bench.stores[0].committedTicket == 2)
        try bench.settle()
        #expect(bench.stores[0].committedTicket == 2 && bench.entries(0) == ["1-1", "1-2"])
    }

    // MARK: Waits

    @Test(
        "as many replicas are awaited as the map has or the configuration requires, and fewer are not enough",
        arguments: [(1, 0, 1), (2, 1, 2), (1, 2, 2), (0, 0, 0)])
    func replicas(of server: Int, minReplicas: Int, wanted: Int) throws {
        let bench = try Bench(replicas: server, minReplicas: minReplicas)
        bench.send(0)
        let call = try #require(bench.network.calls.first)
        #expect(call.names == ["XADD", "WAIT"] && call.wanted == "\(wanted)")
        guard wanted > 0 else { return try bench.settle() }
        for reply in [RedisReply.integer(Int64(wanted - 1)), .none, .integer(Int64(wanted - 1))] {
            try bench.network.calls[0].answer(wait: reply)
            bench.turn()
            #expect(bench.stores[0].committedTicket == 0, "after \(reply)")
            // It is in the stream: a read, a write and the same WAIT.
            let cover = try #require(bench.network.calls.first)
            #expect(cover.names == ["XRANGE", "SET", "WAIT"] && cover.wanted == "\(wanted)")
        }
        let told = bench.witness.events.compactMap { event -> (count: Int, replicas: [String])? in
            if case .waitingForReplicas(_, let count, let replicas) = event { (count, replicas) } else { nil }
        }
        #expect(told.map(\.count) == [wanted] && told.map(\.replicas.count) == [server], "\(told)")
        try bench.network.calls[0].answer(wait: .integer(Int64(wanted)))
        bench.turn()
        #expect(bench.stores[0].committedTicket == 1 && bench.entries(0) == ["1-1"])
    }

    @Test("a refused WAIT confirms nothing: the stream is read, and the group is covered by a new WAIT")
    func refusedWait() throws {
        let bench = try Bench()
        bench.send(0)
        let fault = RedisFault("ERR WAIT cannot be used with replica instances")
        try bench.network.calls[0].answer(wait: .error(fault))
        bench.turn()
        #expect(bench.stores[0].committedTicket == 0 && bench.network.calls.isEmpty)
        #expect(bench.witness.events.contains { if case .commitFailed = $0 { true } else { false } })
        for _ in 0..<10 where bench.network.calls.isEmpty {
            bench.cluster.advance(milliseconds: 200)
            bench.turn()
        }
        #expect(bench.network.calls.first?.names == ["XRANGE", "SET", "WAIT"])
        #expect(bench.stores[0].committedTicket == 0)
        try bench.settle()
        #expect(bench.stores[0].committedTicket == 1 && bench.entries(0) == ["1-1"])
    }
}
