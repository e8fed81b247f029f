import Delivery
import Redis
import SimulatedRedis
import Testing
import Wire

@testable import MessageStore

/// Faults that need two or three events at the right moments, which random runs rarely combine.
@Suite("Planted faults of the engine on Redis, each at its moment")
struct DirectedFaultTests {
    static let faults: [WorldFault] = [.trimUnchecked, .doneIgnored, .coverUnwritten]

    private static let partCount = 64
    private static let part = 3
    private static let name = "world"

    /// Two successive processes, and one row that the first one writes repeatedly.
    private final class Bench {
        let cluster: SimulatedCluster
        private let fault: WorldFault?
        private let configuration: RedisEngine.Configuration
        private var processes: [WorldProcess] = []
        private let bucket = Bucket(UInt16(RedisGroups.groups(part: part, of: partCount)[0]))
        private var key: StoreKey { StoreKey(bucket, .tag, ownerHigh: 1, ownerLow: 1, item: 1) }

        init(_ fault: WorldFault?) {
            self.fault = fault
            var layout = SimulatedCluster.Layout()
            layout.waitsForWritesOnly = true
            cluster = SimulatedCluster(seed: 1, layout: layout)
            // A replica has only the entries that a WAIT covered.
            cluster.rates.eagerReplica = 0
            var configuration = RedisEngine.Configuration()
            configuration.name = name
            configuration.isStepped = true
            configuration.flushMilliseconds = 0
            // Each batch is a separate entry.
            configuration.entryByteLimit = 1
            configuration.now = { 1_000_000_000 }
            self.configuration = configuration
        }

        deinit {
            for process in processes {
                process.network.isHeld = { _ in false }
                process.end(part: part)
            }
        }

        /// Returns a process that is about to open the partition.
        func process() throws -> WorldProcess {
            let network = ProcessNetwork(cluster, change: fault.map { WorldFault.Planted($0, cluster) })
            let process = try WorldProcess(
                processes.count + 1, network, seeds: SimulatedNetwork(cluster).seeds, configuration)
            processes.append(process)
            return process
        }

        func open(_ process: WorldProcess) throws {
            try process.open(part: part, of: partCount, epoch: UInt64(process.number))
        }

        func put(_ number: Int, by process: WorldProcess) throws {
            let store = try #require(process.store)
            store.beginBatch(bucket)
            let value = Array("\(number)".utf8)
            store.put(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: value.count) { $0.copyBytes(from: value) }
            _ = store.endBatch()
            store.turnEnded()
        }

        func commit(_ process: WorldProcess, upTo ticket: Ticket) throws {
            for _ in 0..<400 where process.store?.committedTicket ?? 0 < ticket {
                _ = process.engine.step(.commit)
                process.loop.turn()
                cluster.advance(milliseconds: 50)
            }
            #expect(process.store?.committedTicket ?? 0 >= ticket)
        }

        /// Moves rows out of memory as far as the servers allow.
        func spill(_ process: WorldProcess) {
            process.engine.requestSpill()
            for _ in 0..<12 {
                for step in RedisEngine.Step.allCases { _ = process.engine.step(step) }
                process.loop.turn()
                cluster.advance(milliseconds: 200)
            }
        }

        var stored: String? {
            let words = [Array("HGET".utf8), GroupKeys(name, group: Int(bucket.index)).rows, KeyCoding.bytes(key)]
            guard case .bulk(let bytes) = cluster.look(words), bytes.count >= KeyCoding.rowPrefixByteCount else {
                return nil
            }
            return String(decoding: bytes[KeyCoding.rowPrefixByteCount...], as: UTF8.self)
        }
    }

    @Test("a former owner's late trim between two pages of its successor's replay removes nothing")
    func trim() throws {
        for fault in [nil, WorldFault.trimUnchecked] {
            let bench = Bench(fault)
            let first = try bench.process()
            try bench.open(first)
            for number in 1...40 { try bench.put(number, by: first) }
            try bench.commit(first, upTo: 40)
            var heldCount = 0
            first.network.isHeld = { commands in
                guard commands.contains(where: { WorldFault.isCall($0, of: RedisScripts.trim) }) else { return false }
                heldCount += 1
                return true
            }
            bench.spill(first)
            #expect(heldCount > 0 && bench.stored == "40")

            let second = try bench.process()
            var pageCount = 0
            second.network.isHeld = { commands in
                if commands.contains(where: { $0.name == "XRANGE" }) {
                    pageCount += 1
                    if pageCount == 2 { bench.cluster.release() }
                }
                return false
            }
            try bench.open(second)
            second.network.isHeld = { _ in false }
            #expect(pageCount > 1, "the log was one page")
            #expect((bench.stored == "40") == (fault == nil), "the row is \(bench.stored ?? "gone")")
        }
    }

    @Test("a batch of rows that arrives after a later one changes nothing")
    func batch() throws {
        for fault in [nil, WorldFault.doneIgnored] {
            let bench = Bench(fault)
            let process = try bench.process()
            try bench.open(process)
            try bench.put(1, by: process)
            try bench.commit(process, upTo: 1)
            var isFirst = true
            process.network.isHeld = { commands in
                guard isFirst, commands.contains(where: { WorldFault.isCall($0, of: RedisScripts.batch) }) else {
                    return false
                }
                isFirst = false
                return true
            }
            bench.spill(process)
            #expect(!isFirst && bench.stored == "1", "the batch was sent again")
            try bench.put(2, by: process)
            try bench.commit(process, upTo: 2)
            bench.spill(process)
            #expect(bench.stored == "2")
            bench.cluster.release()
            // It runs before the next call of its server.
            _ = process.engine.step(.watch)
            #expect((bench.stored == "2") == (fault == nil), "the row is \(bench.stored ?? "gone")")
        }
    }

    @Test("a WAIT on a new connection covers another one's entry only after a write of its own connection")
    func cover() throws {
        for fault in [nil, WorldFault.coverUnwritten] {
            let bench = Bench(fault)
            let first = try bench.process()
            try bench.open(first)
            try bench.put(1, by: first)
            try bench.commit(first, upTo: 1)
            let log = GroupKeys.log(Self.name, part: Self.part)
            func entryCount() -> Int64? {
                if case .integer(let count) = bench.cluster.look([Array("XLEN".utf8), log]) { count } else { nil }
            }
            let before = try #require(entryCount())
            // The connection breaks after the entry, before the WAIT.
            try bench.put(2, by: first)
            bench.cluster.rates.cutWithin = 1
            for _ in 0..<400 where entryCount() == before {
                _ = first.engine.step(.commit)
                bench.cluster.advance(milliseconds: 50)
            }
            #expect(entryCount() == before + 1)
            bench.cluster.rates.cutWithin = 0
            try bench.commit(first, upTo: 2)
            #expect(bench.cluster.failOver(bench.cluster.shard(of: String(decoding: log, as: UTF8.self))))
            bench.cluster.mend()

            let second = try bench.process()
            try bench.open(second)
            #expect((bench.stored == "2") == (fault == nil), "the row is \(bench.stored ?? "gone")")
        }
    }
}
