import Delivery
import Redis
import SimulatedRedis
import Testing
import Wire

@testable import MessageStore

/// An owner of a partition that receives invalid replies: another type, a huge number, a truncated row.
@Suite("Invalid replies")
struct RedisHostileTests {
    private final class Lie: CallChange {
        let name: String
        let reply: RedisReply
        var count = 0
        init(_ name: String, _ reply: RedisReply) { (self.name, self.reply) = (name, reply) }
        func sent(_ command: RedisCommand, among all: [RedisCommand]) -> RedisCommand { command }
        func told(_ command: RedisCommand, _ reply: RedisReply, among all: [RedisCommand]) -> RedisReply {
            guard command.name == name else { return reply }
            count += 1
            return self.reply
        }
    }

    static let nonsense: [RedisReply] = [
        .integer(.max), .integer(.min), .array([.integer(1), .none]), .array([.bytes([1]), .bytes([2])]),
        .array([.array([]), .array([.array([])])]), .error(RedisFault("ERR nonsense")), .status("QUEUED"),
    ]
    /// Excludes commands whose only valid reply the engine cannot verify.
    static let names = [
        "HGET", "HMGET", "HSTRLEN", "HSCAN", "HLEN", "ZCARD", "HGETALL", "ZRANGEBYLEX", "XRANGE", "XINFO", "EVALSHA",
        "INFO", "CLUSTER",
    ]

    private static let (part, partCount) = (3, 16)
    private static let bucket = Bucket(UInt16(RedisGroups.groups(part: part, of: partCount)[0]))
    private static let rowCount: UInt64 = 5

    private static func configuration() -> RedisEngine.Configuration {
        var configuration = RedisEngine.Configuration()
        configuration.name = "world"
        configuration.isStepped = true
        configuration.flushMilliseconds = 0
        (configuration.rowsMilliseconds, configuration.readMilliseconds) = (500, 500)
        configuration.now = { 1_000_000_000 }
        return configuration
    }

    private static func key(_ table: StoreKey.Table, _ number: UInt64) -> StoreKey {
        table.hasItems
            ? StoreKey(bucket, table, ownerHigh: 1, ownerLow: 1, item: number)
            : StoreKey(bucket, table, ownerHigh: 1, ownerLow: number)
    }

    private static let tables: [StoreKey.Table] = [.tag, .job, .meta, .request, .trace]

    private static func write(_ process: WorldProcess, from first: UInt64) {
        guard let store = process.store else { return }
        var sum: [UInt8]?
        for number in first..<first + rowCount {
            store.beginBatch(bucket)
            for table in tables {
                store.put(
                    key(table, number), wakeAt: table.hasAlarms ? 1_000 : 0,
                    prior: table.isEphemeral ? .none : .maybe(wakeAt: 0), byteCount: 3
                ) { $0.copyBytes(from: [1, 2, UInt8(number)]) }
            }
            if let change = [UInt8(1), 0, 0, 1].withUnsafeBytes({ CounterChange($0) }) {
                let next = change.added(to: sum, key(.counters, 1))
                store.add(key(.counters, 1), change) { $0.copyBytes(from: next) }
                sum = next
            }
            _ = store.endBatch()
        }
        store.turnEnded()
    }

    private static func turn(_ process: WorldProcess, _ cluster: SimulatedCluster, _ count: Int = 6) {
        for _ in 0..<count {
            for step in RedisEngine.Step.allCases { _ = process.engine.step(step) }
            process.loop.turn()
            cluster.advance(milliseconds: 600)
        }
    }

    private static func read(_ process: WorldProcess) -> [ReadToken] {
        guard let store = process.store else { return [] }
        var tokens = tables.map { store.read([.get(key($0, 1))]) }
        tokens.append(store.read([.scan(partition: key(.tag, 0), rowLimit: 100, byteLimit: 1 << 20)]))
        tokens.append(store.read([.measure(partition: key(.tag, 0), rowLimit: 100)]))
        tokens.append(store.read([.search(bucket: bucket, table: .job) { $0.count == 3 && $0[2] == 4 }]))
        tokens.append(store.read([.search(bucket: bucket, table: .tag) { $0.count == 3 && $0[2] == 4 }]))
        tokens.append(store.read([.traces(bucket: bucket, limit: 10) { _, _ in true }]))
        tokens.append(store.requestAlarms(AlarmRequest(upTo: 2_000, limit: 10)))
        return tokens
    }

    @Test("invalid replies neither end the process nor hide existing rows", arguments: names)
    func nonsense(name: String) throws {
        for reply in Self.nonsense {
            let cluster = SimulatedCluster(seed: 1)
            let seeds = SimulatedNetwork(cluster).seeds
            let first = try WorldProcess(1, ProcessNetwork(cluster), seeds: seeds, Self.configuration())
            try first.open(part: Self.part, of: Self.partCount, epoch: 1)
            Self.write(first, from: 1)
            Self.turn(first, cluster, 2)
            first.engine.requestSpill()
            Self.turn(first, cluster)
            #expect(first.store?.youngRowCount == 0)
            // These rows are in the log when the next owner opens the partition.
            Self.write(first, from: 11)
            Self.turn(first, cluster, 2)
            first.end(part: Self.part)

            let lie = Lie(name, reply)
            let second = try WorldProcess(
                2, ProcessNetwork(cluster, change: lie), seeds: seeds, Self.configuration())
            var isOpen = true
            do throws(StoreError) { try second.open(part: Self.part, of: Self.partCount, epoch: 2) } catch {
                isOpen = false
            }
            if isOpen {
                try? second.store?.loadAll(table: .counters) { _ in }
                let tokens = Self.read(second)
                Self.turn(second, cluster)
                #expect(
                    tokens.allSatisfy { second.reader.failures[$0] != nil }, "\(name) \(reply): a read does not end")
                Self.write(second, from: 21)
                second.engine.requestSpill()
                Self.turn(second, cluster)
            }
            #expect(lie.count > 0, "\(name) was never asked")
            second.end(part: Self.part)

            // An owner with correct replies finds all rows.
            let third = try WorldProcess(3, ProcessNetwork(cluster), seeds: seeds, Self.configuration())
            try third.open(part: Self.part, of: Self.partCount, epoch: 3)
            let numbers = Array(1...Self.rowCount) + Array(11..<11 + Self.rowCount)
            let tokens = numbers.map { number in third.store?.read(Self.tables.map { .get(Self.key($0, number)) }) ?? 0
            }
            var due: Set<UInt64> = []
            for _ in 0..<8 {
                let token = third.store?.requestAlarms(AlarmRequest(upTo: 2_000, limit: 100)) ?? 0
                while third.engine.step(.read) {}
                third.loop.turn()
                due.formUnion((third.reader.keys[token] ?? []).map(\.ownerLow))
            }
            for (number, token) in zip(numbers, tokens) {
                #expect(third.reader.failures[token] == .some(nil), "\(name) \(reply)")
                #expect(third.reader.rowCounts[token] == Self.tables.count, "\(name) \(reply): rows \(number)")
                #expect(due.contains(number), "\(name) \(reply): the alarm of row \(number)")
            }
            third.end(part: Self.part)
        }
    }

    @Test("an alarm of a later version does not delay others")
    func unreadableAlarm() throws {
        let cluster = SimulatedCluster(seed: 1)
        let network = ProcessNetwork(cluster)
        let process = try WorldProcess(1, network, seeds: SimulatedNetwork(cluster).seeds, Self.configuration())
        try process.open(part: Self.part, of: Self.partCount, epoch: 1)
        Self.write(process, from: 1)
        Self.turn(process, cluster, 2)
        process.engine.requestSpill()
        Self.turn(process, cluster)
        process.end(part: Self.part)
        // Before all others of its bucket.
        let group = GroupKeys("world", group: RedisGroups.group(of: Self.bucket))
        var command = RedisCommand("ZADD")
        command.append(group.alarms)
        command.append("0")
        command.append(KeyCoding.bytes(Alarm(wakeAt: 1, key: Self.key(.job, 1))).dropLast())
        let client = RedisClient(RedisCluster(seeds: SimulatedNetwork(cluster).seeds, network: ProcessNetwork(cluster)))
        defer { client.close() }
        _ = try client.run([RedisRequest(command, slot: group.slot)], deadline: 1 << 40)

        let next = try WorldProcess(
            2, ProcessNetwork(cluster), seeds: SimulatedNetwork(cluster).seeds, Self.configuration())
        defer { next.end(part: Self.part) }
        try next.open(part: Self.part, of: Self.partCount, epoch: 2)
        var due: Set<UInt64> = []
        for _ in 0..<8 {
            let token = next.store?.requestAlarms(AlarmRequest(upTo: 2_000, limit: 100)) ?? 0
            while next.engine.step(.read) {}
            next.loop.turn()
            due.formUnion((next.reader.keys[token] ?? []).map(\.ownerLow))
        }
        #expect(due == Set(1...Self.rowCount))
    }

    @Test("a batch that fails midway on another program's key is written completely when repeated")
    func foreignKey() {
        let cluster = SimulatedCluster(seed: 1)
        func run() -> RedisReply {
            let rows = ["HSET", "2", "2", "field", "value"]
            let alarms = ["ZADD", "3", "2", "1", "alarm"]
            return SimulatedNetwork.reply(
                cluster.intrude(
                    ["EVAL", RedisScripts.batch.source, "3", "{g}marks", "{g}rows", "{g}alarms", "1", "7", "0"] + rows
                        + alarms))
        }
        _ = cluster.intrude(["SET", "{g}alarms", "foreign"])
        #expect(run().fault != nil)
        _ = cluster.intrude(["DEL", "{g}alarms"])
        #expect(run().fault == nil)
        #expect(SimulatedNetwork.reply(cluster.look("ZSCORE", "{g}alarms", "alarm")).text == "1")
        #expect(SimulatedNetwork.reply(cluster.look("HGET", "{g}marks", "done")).text == "1-7")
        // A repetition changes nothing.
        _ = cluster.intrude(["DEL", "{g}alarms"])
        #expect(run().fault == nil)
        #expect(SimulatedNetwork.reply(cluster.look("EXISTS", "{g}alarms")).text ?? "0" == "0")
    }

    @Test("marks with huge numbers still add up")
    func hugeMarks() throws {
        let cluster = SimulatedCluster(seed: 1)
        let client = RedisClient(RedisCluster(seeds: SimulatedNetwork(cluster).seeds, network: ProcessNetwork(cluster)))
        defer { client.close() }
        for group in RedisGroups.groups(part: Self.part, of: Self.partCount) {
            let keys = GroupKeys("world", group: group)
            for (field, value) in [("pr1", "\(Int.max)"), ("pr2", "\(Int.max)"), ("pt1", "\(Int.min)"), ("pr9", "x")] {
                var command = RedisCommand("HSET")
                command.append(keys.marks)
                command.append(field)
                command.append(value)
                _ = try client.run([RedisRequest(command, slot: keys.slot)], deadline: 1 << 40)
            }
        }
        let process = try WorldProcess(
            1, ProcessNetwork(cluster), seeds: SimulatedNetwork(cluster).seeds, Self.configuration())
        defer { process.end(part: Self.part) }
        try process.open(part: Self.part, of: Self.partCount, epoch: 1)
        #expect(process.engine.statistics.requests.byteCount > 0)
        Self.turn(process, cluster)
        #expect(process.witness.losses.isEmpty)
    }
}
