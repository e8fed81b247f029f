import Delivery
import Platform
import Redis
import SimulatedRedis
import Testing
import Wire

@testable import MessageStore

@Suite("Periods of request ids and traces on a takeover")
struct RedisPeriodTests {
    private static let (part, partCount) = (3, 16)
    private static let hours: Int64 = 3_600_000

    /// Successive owners of one partition, with one clock.
    private final class Bench {
        let cluster: SimulatedCluster
        let clock = Lock<Int64>(1_000 * 24 * RedisPeriodTests.hours)
        private(set) var owners: [WorldProcess] = []
        var configuration = RedisEngine.Configuration()
        let bucket = Bucket(UInt16(RedisGroups.groups(part: RedisPeriodTests.part, of: 16)[0]))

        init() {
            var layout = SimulatedCluster.Layout()
            layout.isCluster = false
            cluster = SimulatedCluster(seed: 1, layout: layout)
            configuration.name = "world"
            configuration.isStepped = true
            configuration.flushMilliseconds = 0
            configuration.now = { [clock] in clock.withLock { $0 } }
        }

        deinit { for owner in owners { owner.end(part: RedisPeriodTests.part) } }

        var now: Int64 { clock.withLock { $0 } }
        func wait(hours: Int64) { clock.withLock { $0 += hours * RedisPeriodTests.hours } }

        /// Opens the next owner; the previous one does not know of it.
        @discardableResult
        func open() throws -> WorldProcess {
            let number = owners.count + 1
            let process = try WorldProcess(
                number, ProcessNetwork(cluster), seeds: SimulatedNetwork(cluster).seeds, configuration)
            owners.append(process)
            try process.open(part: RedisPeriodTests.part, of: RedisPeriodTests.partCount, epoch: UInt64(number))
            return process
        }

        /// Opens an owner that dies before the given call; returns whether the opening reached that call.
        func openCut(beforeCall number: Int) throws -> Bool {
            let process = try WorldProcess(
                owners.count + 1, ProcessNetwork(cluster), seeds: SimulatedNetwork(cluster).seeds, configuration)
            owners.append(process)
            var count = 0
            process.network.beforeCall = { [unowned network = process.network] in
                count += 1
                if count == number { network.isDead = true }
            }
            defer { process.network.beforeCall = {} }
            do throws(StoreError) {
                try process.open(
                    part: RedisPeriodTests.part, of: RedisPeriodTests.partCount, epoch: UInt64(owners.count))
                return false
            } catch { return true }
        }

        func key(_ table: StoreKey.Table, _ number: UInt64) -> StoreKey {
            StoreKey(bucket, table, ownerHigh: 7, ownerLow: number)
        }

        func put(_ owner: WorldProcess, _ table: StoreKey.Table, _ number: UInt64, byteCount: Int = 10) {
            owner.store?.beginBatch(bucket)
            owner.store?.put(key(table, number), wakeAt: 0, prior: .none, byteCount: byteCount) { bytes in
                for place in bytes.indices { bytes[place] = UInt8(ascii: "a") }
            }
            _ = owner.store?.endBatch()
            owner.store?.turnEnded()
            _ = owner.engine.step(.commit)
            owner.loop.turn()
        }

        /// Moves rows out of memory and ends expired periods.
        func keepHouse(_ owner: WorldProcess) {
            owner.engine.requestSpill()
            for _ in 0..<4 {
                // Owners check periods only at intervals.
                cluster.advance(milliseconds: Int(Limits.housekeepingMilliseconds))
                _ = owner.engine.step(.commit)
                _ = owner.engine.step(.moveRows)
                owner.loop.turn()
            }
        }

        func has(_ owner: WorldProcess, _ table: StoreKey.Table, _ number: UInt64) -> Bool {
            guard let store = owner.store, !store.isCertainlyAbsent(key(table, number)) else { return false }
            let token = store.read([.get(key(table, number))])
            while owner.engine.step(.read) {}
            owner.loop.turn()
            return owner.reader.texts[token] != nil
        }

        /// The periods on the servers, regardless of owners: those with marks, and those with rows.
        var marked: Set<String> { periods("HKEYS").filter { RedisPeriod(field: $0) != nil } }
        private func periods(_ command: String) -> Set<String> {
            let marks = GroupKeys("world", group: RedisGroups.group(of: bucket)).marks
            guard case .array(let names) = cluster.look([Array(command.utf8), marks]) else { return [] }
            return Set(
                names.compactMap { if case .bulk(let name) = $0 { String(decoding: name, as: UTF8.self) } else { nil } }
            )
        }

        func sum(of period: RedisPeriod) -> Int64 {
            let marks = GroupKeys("world", group: RedisGroups.group(of: bucket)).marks
            guard case .bulk(let text) = cluster.look([Array("HGET".utf8), marks, Array(period.field.utf8)]) else {
                return -1
            }
            return Int64(String(decoding: text, as: UTF8.self)) ?? -1
        }

        func set(_ period: RedisPeriod, to text: String) {
            let marks = GroupKeys("world", group: RedisGroups.group(of: bucket)).marks
            _ = cluster.intrude(["HSET", String(decoding: marks, as: UTF8.self), period.field, text])
        }

        func rowCount(_ kind: Period.Kind, at time: Int64) -> Int64 {
            let key = GroupKeys("world", group: RedisGroups.group(of: bucket)).ephemeral(RedisPeriod(kind, at: time))
            guard case .integer(let count) = cluster.look([Array("HLEN".utf8), key]) else { return -1 }
            return count
        }
    }

    @Test("the next owner finds the rows of its predecessor's periods, and continues them")
    func found() throws {
        let bench = Bench()
        let first = try bench.open()
        for table in [StoreKey.Table.request, .trace] { bench.put(first, table, 1) }
        bench.keepHouse(first)
        #expect(first.store?.youngRowCount == 0)
        bench.wait(hours: 4)
        // Only in the log when its owner ends.
        for table in [StoreKey.Table.request, .trace] { bench.put(first, table, 2) }
        let second = try bench.open()
        for table in [StoreKey.Table.request, .trace] {
            for number in UInt64(1)...2 { #expect(bench.has(second, table, number), "\(table) \(number)") }
            #expect(!bench.has(second, table, 3))
        }
        #expect(bench.marked.count == 4, "\(bench.marked)")
        // Stored in the period that the first owner started and the replay continued.
        bench.put(second, .request, 4)
        bench.keepHouse(second)
        #expect(bench.rowCount(.requests, at: bench.now) == 2)
        #expect(bench.marked.count == 4, "\(bench.marked)")
        let third = try bench.open()
        for number in [UInt64(1), 2, 4] { #expect(bench.has(third, .request, number)) }
        #expect(third.engine.statistics.requests.byteCount == second.engine.statistics.requests.byteCount)
    }

    @Test("the next owner treats no unchecked request id as new")
    func unknown() throws {
        let bench = Bench()
        let first = try bench.open()
        bench.put(first, .request, 1)
        bench.keepHouse(first)
        let second = try bench.open()
        let store = try #require(second.store)
        #expect(!store.isCertainlyAbsent(bench.key(.request, 1)))
        #expect(
            !store.isCertainlyAbsent(bench.key(.request, 99)), "the filter knows what this owner wrote, and no more")
        // The filter is complete once all found periods have ended.
        bench.wait(hours: 29)
        bench.put(second, .request, 2)
        bench.keepHouse(second)
        #expect(store.isCertainlyAbsent(bench.key(.request, 99)))
        #expect(!store.isCertainlyAbsent(bench.key(.request, 2)))
    }

    @Test("a period that one owner ended does not reappear, whatever arrives late")
    func ended() throws {
        let bench = Bench()
        let first = try bench.open()
        let began = bench.now
        bench.put(first, .request, 1)
        bench.keepHouse(first)
        #expect(bench.rowCount(.requests, at: began) == 1)
        // The first owner's delayed writes for this period arrive at the end.
        bench.put(first, .request, 2)
        first.network.isHeld = { commands in commands.contains { WorldFault.isCall($0, of: RedisScripts.batch) } }
        bench.keepHouse(first)
        let second = try bench.open()
        bench.wait(hours: 29)
        bench.keepHouse(second)
        #expect(bench.rowCount(.requests, at: began) == 0)
        #expect(bench.marked.isEmpty, "\(bench.marked)")
        bench.cluster.release()
        bench.put(second, .request, 3)
        bench.keepHouse(second)
        #expect(bench.rowCount(.requests, at: began) == 0, "a late batch brought the period back")
        #expect(bench.marked == [RedisPeriod(.requests, at: bench.now).field])
        let third = try bench.open()
        for number in UInt64(1)...3 { #expect(bench.has(third, .request, number) == (number == 3)) }
    }

    @Test("a former owner ends no period")
    func fenced() throws {
        let bench = Bench()
        bench.configuration.requestByteLimit = 0
        let first = try bench.open()
        bench.put(first, .request, 1)
        bench.keepHouse(first)
        bench.configuration.requestByteLimit = 1 << 30
        let second = try bench.open()
        // The first owner would end it for lack of space as soon as another one is written.
        bench.wait(hours: 4)
        bench.keepHouse(first)
        #expect(first.witness.losses == [.fenced(part: Self.part, epoch: 1, successor: 2)])
        #expect(bench.has(second, .request, 1))
        let third = try bench.open()
        #expect(bench.has(third, .request, 1))
    }

    @Test("the budget counts former owners' rows, and the oldest period is removed first")
    func budget() throws {
        let bench = Bench()
        // A partition's share is a sixteenth.
        bench.configuration.requestByteLimit = 16 * 20_000
        let began = bench.now
        let first = try bench.open()
        for number in UInt64(1)...10 { bench.put(first, .request, number, byteCount: 1_000) }
        bench.keepHouse(first)
        let used = first.engine.statistics.requests
        #expect(used.byteCount > 10_000 && used.byteCount < 20_000 && used.byteLimit == 20_000, "\(used)")

        bench.wait(hours: 4)
        let second = try bench.open()
        #expect(second.engine.statistics.requests.byteCount == used.byteCount, "the marks tell what there is")
        #expect(second.engine.statistics.requests.milliseconds == 4 * Self.hours + bench.now % (4 * Self.hours))
        for number in UInt64(11)...14 { bench.put(second, .request, number, byteCount: 1_000) }
        bench.keepHouse(second)
        #expect(bench.has(second, .request, 1), "there is room for both")
        #expect(second.engine.statistics.requests.cutCount == 0)

        bench.wait(hours: 4)
        let third = try bench.open()
        for number in UInt64(15)...20 { bench.put(third, .request, number, byteCount: 1_000) }
        bench.keepHouse(third)
        #expect(!bench.has(third, .request, 1) && bench.rowCount(.requests, at: began) == 0, "the oldest goes")
        for number in UInt64(11)...20 { #expect(bench.has(third, .request, number)) }
        let left = third.engine.statistics.requests
        #expect(left.byteCount < 20_000 && left.cutCount == 1, "\(left)")
        // No removed row was younger than this.
        #expect(left.cutMilliseconds >= 4 * Self.hours - 1 && left.cutMilliseconds <= 8 * Self.hours, "\(left)")
        // The next owner starts with the remaining rows.
        let fourth = try bench.open()
        #expect(fourth.engine.statistics.requests.byteCount == left.byteCount)
    }

    @Test("a request id that only the log had is kept for a day in the period of its replay")
    func replayedLate() throws {
        let bench = Bench()
        let first = try bench.open()
        let began = bench.now
        bench.put(first, .request, 1)
        bench.wait(hours: 5)
        let second = try bench.open()
        #expect(bench.rowCount(.requests, at: began) == 0 && bench.rowCount(.requests, at: bench.now) == 1)
        // A full day after the publish, plus one period at most.
        bench.wait(hours: 19)
        bench.keepHouse(second)
        let third = try bench.open()
        #expect(bench.has(third, .request, 1))
        bench.wait(hours: 10)
        bench.keepHouse(third)
        #expect(!bench.has(third, .request, 1) && bench.marked.isEmpty, "\(bench.marked)")
    }

    @Test("an owner with a slower clock keeps its predecessor's periods, and ends them in time")
    func clockBehind() throws {
        let bench = Bench()
        let first = try bench.open()
        bench.put(first, .request, 1)
        bench.keepHouse(first)
        bench.put(first, .request, 2)
        bench.wait(hours: -9)
        let second = try bench.open()
        #expect(bench.has(second, .request, 1) && bench.has(second, .request, 2))
        // An unchecked request id may be in a period that is in the future.
        #expect(second.store?.isCertainlyAbsent(bench.key(.request, 99)) == false)
        bench.put(second, .request, 3)
        bench.keepHouse(second)
        bench.wait(hours: 9)
        bench.keepHouse(second)
        let third = try bench.open()
        for number in UInt64(1)...3 { #expect(bench.has(third, .request, number), "\(number)") }
        bench.wait(hours: 29)
        bench.keepHouse(third)
        for number in UInt64(1)...3 { #expect(!bench.has(third, .request, number), "\(number)") }
        #expect(bench.marked.isEmpty, "\(bench.marked)")
    }

    @Test("an owner without gateway time replays with the server's time, and ends no period")
    func clockUnknown() throws {
        let bench = Bench()
        let first = try bench.open()
        let began = bench.now
        bench.put(first, .request, 1)
        bench.keepHouse(first)
        bench.put(first, .request, 2)
        bench.configuration.now = { nil }
        let second = try bench.open()
        let serverTime = SimulatedCluster.startOfTime + bench.cluster.milliseconds
        #expect(bench.rowCount(.requests, at: serverTime) == 1 && bench.rowCount(.requests, at: began) == 1)
        bench.wait(hours: 40)
        bench.keepHouse(second)
        #expect(bench.has(second, .request, 1) && bench.has(second, .request, 2))
    }

    @Test("openings interrupted at every call keep each request id in its period")
    func openingCutOff() throws {
        let bench = Bench()
        let first = try bench.open()
        for number in UInt64(1)...3 { bench.put(first, .request, number, byteCount: 1_000) }
        bench.keepHouse(first)
        for number in UInt64(4)...6 { bench.put(first, .request, number, byteCount: 1_000) }
        let used = first.engine.statistics.requests.byteCount
        var count = 1
        while try bench.openCut(beforeCall: count) { count += 1 }
        #expect(count > 5, "\(count) calls")
        let last = try #require(bench.owners.last)
        for number in UInt64(1)...6 { #expect(bench.has(last, .request, number), "\(number)") }
        #expect(bench.rowCount(.requests, at: bench.now) == 6 && bench.marked.count == 1)
        // Bytes that were replayed and not trimmed are replayed again, and count once.
        #expect(last.engine.statistics.requests.byteCount == 2 * used)
    }

    @Test("each request id and trace counts once per period, wherever an opening is interrupted")
    func countedOnce() throws {
        let bench = Bench()
        let first = try bench.open()
        for number in UInt64(1)...3 { bench.put(first, .request, number, byteCount: 1_000) }
        bench.keepHouse(first)
        let rowByteCount = first.engine.statistics.requests.byteCount / 3
        // More than one batch of a group.
        for number in UInt64(1)...1_500 { bench.put(first, .request, number, byteCount: 1_000) }
        for number in UInt64(1)...5 { bench.put(first, .trace, number, byteCount: 1_000) }
        func check(_ what: String) {
            for period in bench.marked.compactMap({ RedisPeriod(field: $0) }) {
                let rows = bench.rowCount(period.kind, at: period.number * Limits.redisPeriodMilliseconds)
                #expect(bench.sum(of: period) == rows * Int64(rowByteCount), "\(period) after \(what)")
            }
        }
        var count = 1
        while try bench.openCut(beforeCall: count) {
            check("call \(count)")
            count += 1
            if count % 4 == 0 { bench.wait(hours: 2) }
        }
        check("the opening")
        let last = try #require(bench.owners.last)
        let sums = bench.marked.compactMap { RedisPeriod(field: $0) }.filter { $0.kind == .requests }.map(bench.sum)
        #expect(sums.count > 1 && Int64(last.engine.statistics.requests.byteCount) == sums.reduce(0, +))
        bench.put(last, .request, 9_999, byteCount: 1_000)
        bench.keepHouse(last)
        check("the next spill")
    }

    @Test("a batch whose reply was lost counts once, and an invalid sum is recomputed")
    func replyLost() throws {
        let bench = Bench()
        let first = try bench.open()
        bench.put(first, .request, 1, byteCount: 1_000)
        bench.keepHouse(first)
        let rowByteCount = first.engine.statistics.requests.byteCount
        bench.put(first, .request, 2, byteCount: 1_000)
        first.network.isReplyLost = { commands in commands.contains { WorldFault.isCall($0, of: RedisScripts.batch) } }
        bench.keepHouse(first)
        first.network.isReplyLost = { _ in false }
        #expect(bench.rowCount(.requests, at: bench.now) == 2, "the batch ran")
        bench.keepHouse(first)
        let period = RedisPeriod(.requests, at: bench.now)
        #expect(bench.sum(of: period) == 2 * Int64(rowByteCount))
        #expect(first.engine.statistics.requests.byteCount == 2 * rowByteCount)
        for junk in ["x", "-7", "nan", "1e300"] {
            bench.set(period, to: junk)
            bench.put(first, .request, UInt64(bench.rowCount(.requests, at: bench.now)) + 1, byteCount: 1_000)
            bench.keepHouse(first)
            #expect(first.engine.statistics.requests.byteCount == rowByteCount, "after \(junk)")
        }
    }

    @Test("a period that no owner ends expires")
    func expiry() throws {
        let bench = Bench()
        let first = try bench.open()
        let began = bench.now
        bench.put(first, .trace, 1)
        bench.keepHouse(first)
        #expect(bench.rowCount(.traces, at: began) == 1)
        first.end(part: Self.part)
        bench.cluster.advance(milliseconds: Int(40 * Self.hours))
        #expect(bench.rowCount(.traces, at: began) == 0)
        bench.wait(hours: 40)
        let second = try bench.open()
        #expect(!bench.has(second, .trace, 1))
        bench.keepHouse(second)
        #expect(bench.marked.isEmpty, "\(bench.marked)")
    }
}
