import Delivery
import Redis
import SimulatedRedis
import Testing
import Wire

@testable import MessageStore

/// Decides by form, bytes and register whether an entry above an owner's is a successor's.
@Suite("The last entry of a log")
struct LogReadingTests {
    private static let log = Array("{lw:world:p3}:log".utf8)

    /// The way in which an entry gets into the log and is removed again.
    enum Entry: CaseIterable {
        case group, groupOfOtherNumber, groupOfOtherEpoch, groupUnderOtherField, otherBytes, noBytes
        case fence, mark, unknown, twoFields, gone

        /// Whether the entry counts as foreign if the register does not answer.
        var isForeignAlone: Bool {
            switch self {
            case .group, .fence, .mark, .gone: false
            default: true
            }
        }
    }

    /// A client, and a log whose last entry is the group `77-1`.
    private final class Bench {
        let cluster: SimulatedCluster
        let client: RedisClient
        let body: [UInt8]

        init() throws {
            var layout = SimulatedCluster.Layout()
            layout.isCluster = false
            cluster = SimulatedCluster(seed: 1, layout: layout)
            let seeds = SimulatedNetwork(cluster).seeds
            client = RedisClient(RedisCluster(seeds: seeds, network: SimulatedNetwork(cluster)))
            var configuration = RedisEngine.Configuration()
            configuration.name = "world"
            (configuration.isStepped, configuration.flushMilliseconds) = (true, 0)
            configuration.now = { 1_000_000_000 }
            let owner = try WorldProcess(1, ProcessNetwork(cluster), seeds: seeds, configuration)
            defer { owner.end(part: 3) }
            try owner.open(part: 3, of: 16, epoch: 77)
            let store = try #require(owner.store)
            store.beginBatch(Bucket(3))
            store.put(
                StoreKey(Bucket(3), .tag, ownerHigh: 1, ownerLow: 1, item: 1), wakeAt: 0, prior: .none, byteCount: 40
            ) { bytes in for place in bytes.indices { bytes[place] = 1 } }
            let ticket = store.endBatch()
            store.turnEnded()
            for _ in 0..<50 where store.committedTicket < ticket {
                _ = owner.engine.step(.commit)
                owner.loop.turn()
            }
            let name = String(decoding: LogReadingTests.log, as: UTF8.self)
            let entries = SimulatedNetwork.reply(cluster.look("XRANGE", name, "77-1", "77-1")).array
            body = try #require(entries?.first?.array?[1].array?[1].bytes)
        }

        deinit { client.close() }

        func add(_ entry: Entry, _ id: LogID) throws {
            var command = RedisCommand("XADD", String(decoding: LogReadingTests.log, as: UTF8.self), "\(id)")
            switch entry {
            case .group, .groupOfOtherNumber, .groupOfOtherEpoch:
                command.append("b")
                command.append(body)
            case .groupUnderOtherField:
                command.append("x")
                command.append(body)
            case .otherBytes:
                command.append("b")
                command.append([UInt8](repeating: 7, count: 200))
            case .noBytes:
                command.append("b")
                command.append("")
            case .fence, .gone:
                command.append("f")
                command.append("123456")
            case .mark:
                command.append("w")
                command.append("")
            case .unknown:
                command.append("z")
                command.append("1")
            case .twoFields:
                for word in ["b", "1", "f", "2"] { command.append(word) }
            }
            #expect(try run(command).fault == nil)
            guard entry == .gone else { return }
            var removal = RedisCommand("XDEL")
            removal.append(LogReadingTests.log)
            removal.append("\(id)")
            #expect(try run(removal) == .integer(1))
        }

        private func run(_ command: RedisCommand) throws -> RedisReply {
            try client.attempt([command], slot: RedisSlot.of(LogReadingTests.log)).replies[0]
        }

        /// Returns the verdict and the number of register lookups.
        func judge(_ id: LogID, claimed: UInt64?) throws -> (isForeign: Bool, askCount: Int) {
            var count = 0
            let key = LogReadingTests.log
            let isForeign = try LogReading.isForeign(
                id, of: key, slot: RedisSlot.of(key),
                claimed: {
                    count += 1
                    return claimed
                }, by: client)
            return (isForeign, count)
        }
    }

    @Test("each form of an entry is judged with each answer of the register", arguments: Entry.allCases)
    func forms(_ entry: Entry) throws {
        let bench = try Bench()
        let id =
            switch entry {
            case .group: LogID(epoch: 77, number: 1)
            case .groupOfOtherNumber: LogID(epoch: 77, number: 2)
            default: LogID(epoch: 78, number: 1)
            }
        if entry != .group { try bench.add(entry, id) }
        let alone = try bench.judge(id, claimed: nil)
        #expect(alone.isForeign == entry.isForeignAlone)
        if entry == .group {
            // A group must never be removed, whatever happened to the register.
            for claimed in [1, 76] as [UInt64] {
                let found = try bench.judge(id, claimed: claimed)
                #expect(!found.isForeign && found.askCount == 0)
            }
            return
        }
        #expect(alone.askCount == 1)
        for (claimed, isForeign) in [(1, true), (id.epoch - 1, true), (id.epoch, false), (id.epoch + 1, false)] {
            let found = try bench.judge(id, claimed: UInt64(claimed))
            #expect(found.isForeign == isForeign && found.askCount == 1, "claimed \(claimed)")
        }
    }

    @Test("an epoch without a possible successor is foreign, whatever the register answers")
    func beyond() throws {
        let bench = try Bench()
        for epoch in [RedisEngine.epochLimit - 1, RedisEngine.epochLimit, .max] {
            let found = try bench.judge(LogID(epoch: epoch, number: 0), claimed: .max)
            #expect(found.isForeign && found.askCount == 0)
        }
        let found = try bench.judge(LogID(epoch: RedisEngine.epochLimit - 2, number: 0), claimed: .max)
        #expect(!found.isForeign)
    }

    @Test("an unreadable log yields no verdict")
    func unreadable() throws {
        let bench = try Bench()
        _ = bench.cluster.intrude(["DEL", String(decoding: Self.log, as: UTF8.self)])
        _ = bench.cluster.intrude(["SET", String(decoding: Self.log, as: UTF8.self), "x"])
        #expect(throws: RedisError.self) { try bench.judge(LogID(epoch: 78, number: 1), claimed: 1) }
    }
}
