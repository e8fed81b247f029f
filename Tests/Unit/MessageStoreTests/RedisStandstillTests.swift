import Delivery
import Platform
import Redis
import TestKit
import Testing
import Wire

@testable import MessageStore

/// One of two primaries accepts connections and answers nothing; the partition has rows on both.
@Suite("An unresponsive primary", .enabled(if: RedisServers.executable != nil, "no redis-server"), .serialized)
struct RedisStandstillTests {
    private static let count = 16
    /// The timeout of a cold read, in milliseconds.
    private static let readMilliseconds: UInt64 = 1_000

    /// The partition's log is on the second server, which keeps running; rows of `buckets[0]` are on the first.
    private final class Bench {
        let pair: RedisPair
        let fixture: RedisFixture
        let buckets: [Bucket]
        let reader = AlarmWitness()

        init() throws {
            pair = try RedisPair()
            var configuration = RedisFixture.configuration()
            configuration.minReplicas = 0
            configuration.readMilliseconds = Int(RedisStandstillTests.readMilliseconds)
            configuration.watchMilliseconds = 100
            let part = RedisPair.part(1, of: RedisStandstillTests.count)
            fixture = try RedisFixture(
                pair.makeCluster(), configuration, part: part, of: RedisStandstillTests.count, epoch: 1)
            buckets = (0...1).map { RedisPair.bucket($0, part: part, of: RedisStandstillTests.count) }
            fixture.store.observer = reader
        }

        var store: EmbeddedShardStore { fixture.store }

        func key(_ side: Int, _ number: UInt64) -> StoreKey {
            StoreKey(buckets[side], .job, ownerHigh: 1, ownerLow: number)
        }

        func put(_ side: Int, _ number: UInt64, wakeAt: Int64 = 0) throws {
            let bytes = Array("row \(number)".utf8)
            store.beginBatch(buckets[side])
            store.put(key(side, number), wakeAt: wakeAt, prior: .maybe(wakeAt: 0), byteCount: bytes.count) {
                $0.copyBytes(from: bytes)
            }
            try fixture.sync(store.endBatch())
        }

        /// Reads a row; returns the duration and the result.
        func read(_ sides: [Int], _ number: UInt64) throws -> (milliseconds: UInt64, failure: String?, text: String?) {
            let began = SystemClock.monotonicMilliseconds
            let token = store.read(sides.map { .get(key($0, number)) })
            try fixture.wait("a read") { reader.ends[token] != nil }
            let (end, failure) = reader.ends[token] ?? (began, nil)
            return (end - began, failure, reader.texts[token]?.last)
        }

        /// Requests alarms once; returns the duration and the owners of the reported rows.
        func alarms(upTo time: Int64) throws -> (milliseconds: UInt64, owners: [UInt64]) {
            let began = SystemClock.monotonicMilliseconds
            let token = store.requestAlarms(AlarmRequest(upTo: time, limit: 64))
            try fixture.wait("alarms") { reader.ends[token] != nil }
            return ((reader.ends[token]?.at ?? began) - began, reader.owners[token] ?? [])
        }

        func isYoung(_ side: Int, _ number: UInt64) -> Bool { store.young(key(side, number)) != .unknown }
    }

    @Test("reads of it wait for their own time, however many they are, and no other read waits with them")
    func reads() throws {
        let bench = try Bench()
        for side in 0...1 { try bench.put(side, 1) }
        try bench.fixture.spillAll()
        bench.pair.servers[0].pause(0)
        // More than all its threads take at once, and some of both servers.
        let began = SystemClock.monotonicMilliseconds
        let tokens = (0..<1_000).map { number in
            bench.store.read((number % 10 == 0 ? [1, 0] : [0]).map { .get(bench.key($0, 1)) })
        }
        for _ in 0..<20 {
            let other = try bench.read([1], 1)
            #expect(other.failure == nil && other.text == "row 1")
            #expect(other.milliseconds < Self.readMilliseconds / 2, "a read of the other server waited")
        }
        #expect(bench.reader.ends[tokens[0]] == nil, "the server that stands still has answered")
        try bench.fixture.wait("the reads") { tokens.allSatisfy { bench.reader.ends[$0] != nil } }
        let last = tokens.compactMap { bench.reader.ends[$0]?.at }.max() ?? 0
        #expect(tokens.allSatisfy { bench.reader.ends[$0]?.failure != nil })
        #expect(last - began >= Self.readMilliseconds)
        #expect(last - began < 2 * Self.readMilliseconds, "a read waited for others of its server: \(last - began) ms")
        bench.pair.servers[0].resume(0)
        let healed = try bench.read([0, 1], 1)
        #expect(healed.failure == nil && healed.text == "row 1")
    }

    @Test("while a log waits for it, the reason names the server and the partition")
    func reason() throws {
        let bench = try Bench()
        #expect(bench.fixture.engine.statistics.refusalReason == nil)
        bench.pair.servers[1].pause(0)
        bench.store.beginBatch(bench.buckets[1])
        bench.store.put(bench.key(1, 1), wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: 1) { $0.copyBytes(from: [1]) }
        let ticket = bench.store.endBatch()
        bench.store.turnEnded()
        try bench.fixture.wait("publishes refused") { !bench.store.acceptsWrites }
        let reason = try #require(bench.fixture.engine.statistics.refusalReason)
        #expect(reason.contains("Redis at \(bench.pair.servers[1].addresses[0]) "), "\(reason)")
        #expect(reason.hasSuffix("no writes for parts \(bench.fixture.part.part)"), "\(reason)")
        bench.pair.servers[1].resume(0)
        try bench.fixture.sync(ticket)
        #expect(bench.fixture.engine.statistics.refusalReason == nil)
    }

    @Test("its alarms come late, and no others do")
    func alarms() throws {
        let bench = try Bench()
        let now: Int64 = 1_000_000_000
        for side in 0...1 { for number in UInt64(1)...20 { try bench.put(side, number, wakeAt: now - 100) } }
        try bench.fixture.spillAll()
        bench.pair.servers[0].pause(0)
        // The first request may detect the failure. Later requests do not wait.
        var found: [UInt64] = []
        var times: [UInt64] = []
        for round in Int64(0)..<6 {
            let (milliseconds, owners) = try bench.alarms(upTo: now + round)
            (found, times) = (found + owners, times + [milliseconds])
        }
        #expect(found.sorted() == Array(1...20), "of the other server: each once")
        #expect(times[0] < 2 * Self.readMilliseconds)
        #expect(times.dropFirst().allSatisfy { $0 < Self.readMilliseconds / 4 }, "\(times)")
        // Alarms that become due on the other server are reported at once.
        try bench.put(1, 30, wakeAt: now + 100)
        bench.fixture.engine.requestSpill()
        try bench.fixture.wait("the row's way out") { !bench.isYoung(1, 30) }
        let fresh = try bench.alarms(upTo: now + 100)
        #expect(fresh.owners == [30] && fresh.milliseconds < Self.readMilliseconds / 4, "\(fresh)")
        bench.pair.servers[0].resume(0)
        found = []
        // The omitted alarms are requested again a second later.
        try bench.fixture.wait("the alarms of the server that goes on again") {
            Pause.milliseconds(50)
            found += (try? bench.alarms(upTo: now + 2_000))?.owners ?? []
            return found.count >= 20
        }
        #expect(found.sorted() == Array(1...20))
    }

    @Test("rows of other primaries leave memory; the log keeps everything until the primary answers")
    func rows() throws {
        let bench = try Bench()
        for side in 0...1 { try bench.put(side, 1) }
        try bench.fixture.spillAll()
        bench.pair.servers[0].pause(0)
        for number in UInt64(2)...5 {
            for side in 0...1 { try bench.put(side, number) }
            bench.fixture.engine.requestSpill()
            try bench.fixture.wait("the way out of row \(number)") { !bench.isYoung(1, number) }
        }
        // Overwritten while its former version waits.
        try bench.put(0, 5)
        #expect((2...5).allSatisfy { bench.isYoung(0, $0) })
        let log = "{lw:test:p\(bench.fixture.part.part)}:log"
        func entryCount() throws -> Int {
            try bench.pair.servers[1].command(0, "XRANGE", log, "-", "+").array?
                .count { $0.array?.last?.array?.first?.text == "b" } ?? 0
        }
        #expect(try entryCount() == 9, "an entry has left the log whose row is in no group")
        #expect(bench.fixture.engine.statistics.segmentCount > 0)
        bench.pair.servers[0].resume(0)
        try bench.fixture.spillAll()
        #expect(try entryCount() == 0)
        for number in UInt64(1)...5 {
            for side in 0...1 { #expect(try bench.read([side], number).text == "row \(number)") }
        }
        #expect(bench.fixture.witness.losses.isEmpty)
    }

    @Test("a successor finds what waited for it")
    func takeover() throws {
        let bench = try Bench()
        for side in 0...1 { try bench.put(side, 1) }
        try bench.fixture.spillAll()
        bench.pair.servers[0].pause(0)
        for side in 0...1 { for number in UInt64(2)...4 { try bench.put(side, number) } }
        bench.fixture.engine.requestSpill()
        try bench.fixture.wait("the way out") { !bench.isYoung(1, 4) }
        bench.fixture.close()
        bench.pair.servers[0].resume(0)
        var configuration = RedisFixture.configuration()
        configuration.minReplicas = 0
        let next = try RedisFixture(
            bench.pair.makeCluster(), configuration, part: bench.fixture.part.part, of: Self.count, epoch: 2)
        defer { next.close() }
        let reader = AlarmWitness()
        next.store.observer = reader
        for number in UInt64(1)...4 {
            let token = next.store.read((0...1).map { .get(bench.key($0, number)) })
            try next.wait("a read") { reader.ends[token] != nil }
            #expect(reader.texts[token] == ["row \(number)", "row \(number)"])
        }
    }
}

/// The results and times of reads and alarm requests.
private final class AlarmWitness: ShardStoreObserver {
    var ends: [ReadToken: (at: UInt64, failure: String?)] = [:]
    var texts: [ReadToken: [String]] = [:]
    var owners: [ReadToken: [UInt64]] = [:]
    func storeCommitted(upTo ticket: Ticket) {}
    func storeCooled(_ key: StoreKey) {}
    func storeReplied(_ reply: StoreReply) {
        ends[reply.token] = (SystemClock.monotonicMilliseconds, reply.failure)
        for result in reply.results {
            switch result {
            case .row(let row?): texts[reply.token, default: []].append(String(decoding: row.value, as: UTF8.self))
            case .rows(let rows, _): owners[reply.token] = rows.map(\.key.ownerLow)
            default: break
            }
        }
    }
}
