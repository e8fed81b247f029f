// The whole engine on Redis, from one seed, on one thread. Processes take a partition over from each other, stall, and end at any
// call, while the simulated servers inject faults. A model has the expected rows.
//
// The promise: a process that opens the partition finds its predecessor's rows after some number of batches. That number is at
// least the number reported durable to the predecessor, and no later batch is ever reported to it. A process that lost the
// partition changes nothing with its remaining calls.

import Delivery
import Redis
import SimulatedRedis
import Wire

@testable import MessageStore

final class RedisWorld {
    /// A partition has four groups, and an opening reads each of them.
    private static let partCount = 64
    private static let part = 3
    private static let name = "world"

    let seed: UInt64
    private var chance: Chance
    private let cluster: SimulatedCluster
    private let fault: WorldFault?
    private let configuration: RedisEngine.Configuration
    /// The last process is the owner if its opening has succeeded.
    private var processes: [WorldProcess] = []
    private var ended: [WorldProcess] = []
    private var owner: WorldProcess?
    private var lastEpoch: UInt64 = 0
    private var lastNumber = 0
    /// Whether a process is opening the partition, perhaps during another one's call.
    private var isOpening = false
    private var isActing = false
    private var isHealing = false
    private let keys: [StoreKey]
    private let marks: [StoreKey]
    private let baseRates: FaultRates
    private let weather: WorldWeather
    /// Whether writes are delayed, slots of groups move often, and replicas die.
    private var isRough: Bool { weather == .rough }
    /// The kind of fault in foul weather.
    private let focus: WorldWeather.Focus?
    private let heldShare: Double
    private let isMoving: Bool
    private(set) var violation: String?
    private(set) var counts: [String: Int] = [:]
    private var log: [String] = []

    init(seed: UInt64, fault: WorldFault? = nil, weather: WorldWeather = .fair) {
        (self.seed, self.fault, self.weather) = (seed, fault, weather)
        focus = weather == .foul ? .of(seed) : nil
        var chance = Chance(seed: seed)
        var layout = SimulatedCluster.Layout()
        layout.isCluster = seed % 4 != 0
        layout.replicas = 1 + Int(seed / 2 % 2)
        layout.waitsForWritesOnly = seed % 3 == 0
        focus?.arrange(&layout)
        cluster = SimulatedCluster(seed: seed, layout: layout)
        var configuration = RedisEngine.Configuration()
        configuration.name = Self.name
        configuration.isStepped = true
        configuration.youngMilliseconds = [0, 300, 5_000][chance.below(3)]
        configuration.entryByteLimit = [300, 3_000][chance.below(2)]
        configuration.uncommittedByteLimit = 1 << 20
        configuration.flushMilliseconds = 0
        (configuration.rowsMilliseconds, configuration.readMilliseconds) = (30_000, 3_000)
        configuration.now = { [cluster] in SimulatedCluster.startOfTime + cluster.milliseconds }
        self.configuration = configuration
        let groups = RedisGroups.groups(part: Self.part, of: Self.partCount).prefix(3)
        let buckets = groups.map { Bucket(UInt16($0)) }
        keys = buckets.flatMap { bucket in
            (0..<4).map { StoreKey(bucket, .tag, ownerHigh: 1, ownerLow: 1, item: $0) }
                + (0..<2).map { StoreKey(bucket, .job, ownerHigh: 2, ownerLow: $0) }
        }
        marks = buckets.map { StoreKey($0, .alias, ownerHigh: 9, ownerLow: 9) }
        heldShare = weather == .rough ? [0.002, 0.01, 0.04][Int(seed % 3)] : 0
        isMoving = weather == .rough && seed % 5 == 1
        let rates = chance.happens(0.2) ? FaultRates.none : .all(oneIn: Double(30 + chance.below(300)))
        baseRates = focus?.rates ?? rates
        self.chance = chance
        cluster.rates = baseRates
    }

    deinit {
        for process in ended + processes {
            process.network.beforeCall = {}
            process.network.isHeld = { _ in false }
            process.network.arrives = { true }
        }
    }

    private func fail(_ what: @autoclosure () -> String) {
        guard violation == nil else { return }
        violation = "seed \(seed): \(what())\n" + log.suffix(60).joined(separator: "\n")
    }

    private func note(_ what: String, _ detail: @autoclosure () -> String = "") {
        counts[what, default: 0] += 1
        log.append("\(cluster.milliseconds) \(what) \(detail())")
    }

    // MARK: Running

    func run(steps: Int) {
        takeOver()
        for _ in 0..<steps where violation == nil { step() }
        if violation == nil { heal() }
        for process in processes { process.end(part: Self.part) }
        processes.removeAll()
    }

    private func step() {
        if owner == nil { takeOver() }
        if chance.happens(0.06) { disturb() }
        if chance.happens(focus == .fences ? 0.06 : 0.012) { takeOver() }
        if isRough || focus == .copies, chance.happens(0.02) { cluster.release() }
        if chance.happens(0.006), let owner {
            note("crash", "\(owner.number)")
            end(owner)
        }
        for process in processes where !process.isStopped || chance.happens(0.2) { act(process) }
        cluster.advance(milliseconds: chance.below(20))
        reap()
    }

    private func act(_ process: WorldProcess) {
        guard !isActing, let store = process.store, !process.network.isDead else { return }
        isActing = true
        defer { isActing = false }
        switch chance.below(10) {
        case 0...2: write(process, store)
        case 3...5:
            _ = process.engine.step(.commit)
            if focus == .losses, !isHealing, chance.happens(0.15) { elect() }
        case 6: ask(process, store)
        case 7: _ = process.engine.step(.read)
        case 8: _ = process.engine.step(.moveRows)
        default:
            if chance.happens(0.3) { process.engine.requestSpill() }
            if chance.happens(0.2) { _ = process.engine.step(.watch) }
        }
        turn(process)
    }

    private func turn(_ process: WorldProcess) {
        guard let store = process.store, !process.network.isDead else { return }
        process.loop.turn()
        if let found = process.found, store.committedTicket > found {
            fail(
                "process \(process.number) was told that batch \(store.committedTicket) is durable; its successor found "
                    + "\(found)")
        }
        if process.witness.losses.count > 1 { fail("process \(process.number) lost the part twice") }
        check(process)
    }

    // MARK: Writing and reading

    private func write(_ process: WorldProcess, _ store: EmbeddedShardStore) {
        guard store.acceptsWrites || chance.happens(0.1) else { return }
        for _ in 0...chance.below(3) {
            let ticket = process.batches.count + 1
            let mark = marks[chance.below(marks.count)]
            let mine = keys.filter { $0.bucket == mark.bucket }
            var batch: [(key: StoreKey, value: [UInt8]?)] = []
            for _ in 0...chance.below(3) {
                let key = mine[chance.below(mine.count)]
                guard !batch.contains(where: { $0.key == key }) else { continue }
                let text = "\(process.epoch):\(ticket) " + String(repeating: "x", count: chance.below(200))
                batch.append((key, chance.happens(0.25) ? nil : Array(text.utf8)))
            }
            batch.append((mark, Array("\(process.epoch):\(ticket)".utf8)))
            batch.append(
                (
                    StoreKey(mark.bucket, .request, ownerHigh: process.epoch, ownerLow: UInt64(ticket)),
                    Array("r\(process.epoch):\(ticket)".utf8)
                ))
            store.beginBatch(mark.bucket)
            for (key, value) in batch {
                if let value {
                    let prior: PriorRow = key.table == .request ? .none : .maybe(wakeAt: 0)
                    store.put(key, wakeAt: 0, prior: prior, byteCount: value.count) { $0.copyBytes(from: value) }
                } else {
                    store.delete(key, prior: .maybe(wakeAt: 0))
                }
            }
            process.batches.append(batch)
            if store.endBatch() != Ticket(ticket) { fail("a ticket is not the number of its batch") }
        }
        store.turnEnded()
    }

    private func ask(_ process: WorldProcess, _ store: EmbeddedShardStore) {
        guard process.reads.count < 8 else { return }
        let key = keys[chance.below(keys.count)]
        process.reads[store.read([.get(key)])] = (key, process.batches.count)
    }

    /// Checks the received replies; rows written since the request are not compared, and a former owner's reads are its own.
    private func check(_ process: WorldProcess) {
        for (token, failure) in process.reader.failures.sorted(by: { $0.key < $1.key }) {
            guard let (key, count) = process.reads.removeValue(forKey: token) else { continue }
            guard failure == nil, process.found == nil, process === owner else { continue }
            let isChanged = process.batches[count...].contains { $0.contains { $0.key == key } }
            guard !isChanged else { continue }
            let expected = process.rows(after: count)[key].map { String(decoding: $0, as: UTF8.self) }
            let told = process.reader.texts[token]?.first
            counts["read", default: 0] += 1
            if told != expected {
                fail("process \(process.number) read \(told ?? "nothing") in \(key), not \(expected ?? "nothing")")
            }
        }
        process.reader.failures.removeAll()
        process.reader.texts.removeAll()
    }

    // MARK: Taking over

    private func makeProcess() -> WorldProcess? {
        let network = ProcessNetwork(cluster, change: fault.map { WorldFault.Planted($0, cluster) })
        let seeds = SimulatedNetwork(cluster).seeds
        lastNumber += 1
        guard let process = try? WorldProcess(lastNumber, network, seeds: seeds, configuration) else { return nil }
        network.beforeCall = { [unowned self, unowned process] in meanwhile(process) }
        network.arrives = { [unowned self] in isHealing || chance.happens(0.6) }
        network.isHeld = { [unowned self] commands in
            guard !isHealing else { return false }
            if let focus {
                guard chance.happens(focus.heldShare(commands)) else { return false }
                note("held")
                return true
            }
            guard heldShare > 0, chance.happens(heldShare) else { return false }
            guard commands.contains(where: { ["EVAL", "EVALSHA", "XADD"].contains($0.name) }) else { return false }
            note("held")
            return true
        }
        return process
    }

    /// Runs other events between any two calls of a process.
    private func meanwhile(_ process: WorldProcess) {
        guard violation == nil, !isHealing else { return }
        if chance.happens(0.008) { disturb() }
        if process === owner || process.found != nil {
            if !isOpening, chance.happens(0.006) { takeOver() }
            if chance.happens(0.002) {
                note("crash within", "\(process.number)")
                end(process)
            }
        } else {
            // The process takes over. Former owners do not know it yet, and their calls are still in flight.
            if isRough, chance.happens(0.1) { cluster.release() }
            if chance.happens(0.2), let former = processes.last(where: { $0 !== process && !$0.isStopped }) {
                act(former)
            }
            if chance.happens(0.002) {
                note("crash of a successor", "\(process.number)")
                end(process)
            }
        }
    }

    private func takeOver() {
        guard !isOpening, violation == nil else { return }
        isOpening = true
        defer { isOpening = false }
        for attempt in 1... {
            guard let process = makeProcess() else { return fail("no process") }
            lastEpoch += 1
            if attempt > 6 {
                cluster.mend()
                cluster.setOutOfMemory(false)
            }
            if attempt > 12 { cluster.rates = .none }
            do throws(StoreError) {
                try process.open(part: Self.part, of: Self.partCount, epoch: lastEpoch)
            } catch {
                process.network.isDead = true
                process.engine.close()
                note("opening failed", "\(process.number) \(lastEpoch) \(error)")
                if case .redis = error, attempt < 30 { continue }
                fail("the part was not opened: \(error)")
                break
            }
            note("opened", "\(process.number) with epoch \(lastEpoch)")
            examine(process)
            // Delayed calls arrive with the new owner's first call, or later.
            if focus == .fences, chance.happens(0.5) { cluster.release() }
            // The former owners end, stop or continue for a while.
            for former in processes {
                if chance.happens(0.4) { end(former) } else { former.isStopped = chance.happens(0.4) }
            }
            processes.append(process)
            owner = process
            break
        }
        cluster.rates = isHealing ? .none : baseRates
    }

    private func end(_ process: WorldProcess) {
        process.network.isDead = true
        if process === owner { owner = nil }
    }

    /// Removes dead processes that are not inside a call.
    private func reap() {
        for process in processes where process.network.isDead { process.end(part: Self.part) }
        processes.removeAll { $0.network.isDead && $0 !== lastOpened }
        while processes.count > 4, let oldest = processes.first, oldest !== owner, oldest !== lastOpened {
            oldest.end(part: Self.part)
            processes.removeFirst()
        }
    }

    /// The process whose rows the next owner must find.
    private var lastOpened: WorldProcess?

    private func stored(_ key: StoreKey) -> [UInt8]? {
        let group = GroupKeys(Self.name, group: RedisGroups.group(of: key.bucket))
        func value(_ hash: [UInt8]) -> [UInt8]? {
            let words = [Array("HGET".utf8), hash, KeyCoding.bytes(key)]
            guard case .bulk(let bytes) = cluster.look(words), bytes.count >= 8 else { return nil }
            return Array(bytes[8...])
        }
        guard key.table.isEphemeral else { return value(group.rows) }
        guard case .array(let names) = cluster.look([Array("HKEYS".utf8), group.marks]) else { return nil }
        for case .bulk(let name) in names {
            if let period = RedisPeriod(field: String(decoding: name, as: UTF8.self)),
                let found = value(group.ephemeral(period))
            {
                return found
            }
        }
        return nil
    }

    /// Checks that a process found its predecessor's rows.
    private func examine(_ process: WorldProcess) {
        var rows: [StoreKey: [UInt8]] = [:]
        for key in keys + marks { if let value = stored(key) { rows[key] = value } }
        defer {
            process.base = rows
            lastOpened = process
        }
        guard let former = lastOpened else {
            if !rows.isEmpty { fail("rows in an empty store") }
            return
        }
        var count = 0
        for mark in marks {
            let words = rows[mark].map { String(decoding: $0, as: UTF8.self).split(separator: ":") } ?? []
            if words.count == 2, UInt64(words[0]) == former.epoch { count = max(count, Int(words[1]) ?? 0) }
        }
        former.found = count
        let told = Int(former.store?.committedTicket ?? former.committed)
        note("found", "\(count) of \(former.batches.count) batches of process \(former.number), \(told) durable")
        if count < told { return fail("\(told) batches of process \(former.number) were durable, \(count) are there") }
        let expected = former.rows(after: count)
        for key in keys + marks where rows[key] != expected[key] {
            func text(_ value: [UInt8]?) -> String {
                value.map { String(decoding: $0.prefix(20), as: UTF8.self) } ?? "nothing"
            }
            return fail(
                "after \(count) batches of process \(former.number), \(key) has \(text(rows[key])), not \(text(expected[key]))"
            )
        }
        for batch in former.batches.prefix(count).suffix(40) {
            for (key, value) in batch where key.table == .request && stored(key) != value {
                return fail("a request id is not there: \(key)")
            }
        }
    }

    // MARK: Trouble

    private func disturb() {
        if let focus, !focus.isOfAllKinds { return disturb(focus) }
        let shard = chance.below(cluster.shardCount)
        let slots =
            [RedisSlot.of(GroupKeys.log(Self.name, part: Self.part))]
            + marks.map {
                GroupKeys(Self.name, group: RedisGroups.group(of: $0.bucket)).slot
            }
        let slot = slots[chance.below(slots.count)]
        switch isMoving && chance.happens(0.5) ? 14 : chance.below(isRough ? 23 : 22) {
        case 22:
            let replica = shard + cluster.shardCount * (1 + chance.below(cluster.serverCount / cluster.shardCount - 1))
            guard cluster.primary(of: shard) != replica else { return }
            note("replica killed")
            cluster.kill(replica)
        case 14 where isMoving:
            note("slot moved")
            cluster.beginMove(slot: slots[1 + chance.below(slots.count - 1)], to: shard)
            for slot in slots { cluster.finishMove(slot: slot) }
        case 0...1:
            note("failover by command")
            cluster.failOver(shard, isGraceful: true)
        case 2...4:
            note("election")
            cluster.failOver(shard, forgetsOld: chance.happens(0.4))
        case 5:
            note("server killed")
            cluster.kill(cluster.primary(of: shard))
            if !cluster.failOver(shard) { cluster.mend() }
        case 6:
            let server = chance.below(cluster.serverCount)
            note("restart", "\(server)")
            cluster.kill(server)
            cluster.start(server, loadingFor: chance.below(400))
        case 7...8:
            note("stall")
            cluster.stall(chance.below(cluster.serverCount), for: chance.below(6_000))
        case 9:
            note("replica cut off")
            cluster.setCutOff(shard + cluster.shardCount, true)
        case 10: cluster.setDown(for: chance.below(500))
        case 11...12: cluster.beginMove(slot: slot, to: shard)
        case 13: cluster.moveKeys(slot: slot, count: 1)
        case 14...15: cluster.finishMove(slot: slot)
        case 16:
            note("out of memory")
            cluster.setOutOfMemory(true)
        case 17: cluster.setOutOfMemory(false)
        case 18: cluster.forgetScripts()
        default:
            cluster.setOutOfMemory(false)
            cluster.mend()
        }
    }

    /// Injects faults of one kind.
    private func disturb(_ focus: WorldWeather.Focus) {
        switch (focus, chance.below(4)) {
        case (.laggards, 0...1):
            note("replica cut off")
            cluster.setCutOff(cluster.shardCount, true)
        case (.laggards, 2):
            note("stall")
            cluster.stall(0, for: chance.below(3_000))
        default: cluster.mend()
        }
    }

    /// The log's primary fails, and its best replica takes over.
    private func elect() {
        note("election")
        let log = GroupKeys.log(Self.name, part: Self.part)
        cluster.failOver(cluster.shard(of: String(decoding: log, as: UTF8.self)))
        cluster.mend()
    }

    // MARK: The end

    private func heal() {
        isHealing = true
        cluster.rates = .none
        cluster.setOutOfMemory(false)
        cluster.mend()
        reap()
        if owner == nil { takeOver() }
        // A process that had ended when its successor opened.
        reap()
        // All work in flight completes, and all rows leave memory.
        guard let owner, let store = owner.store else { return fail("no owner in the end") }
        for round in 0..<400 {
            if round == 30 { owner.engine.requestSpill() }
            for process in processes {
                // The servers' memory is checked once a second, as in a gateway.
                for step in RedisEngine.Step.allCases where step != .watch || round % 10 == 0 {
                    _ = process.engine.step(step)
                }
                turn(process)
            }
            cluster.advance(milliseconds: 100)
            if round > 40, unsettled(owner, store) == nil { break }
        }
        guard violation == nil else { return }
        if let what = unsettled(owner, store) { fail(what) }
        takeOver()
        if !cluster.copiesAgree { fail("copies differ in the end") }
    }

    /// Returns the unfinished work, or `nil`.
    private func unsettled(_ owner: WorldProcess, _ store: EmbeddedShardStore) -> String? {
        if !owner.witness.losses.isEmpty { return "the last owner lost the part" }
        if store.committedTicket < Ticket(owner.batches.count) {
            return "\(owner.batches.count) batches, \(store.committedTicket) durable in the end"
        }
        if store.youngRowCount > 0 { return "\(store.youngRowCount) rows are still young in the end" }
        for former in processes where former !== owner && former.witness.losses.isEmpty && !former.batches.isEmpty {
            if former.store?.committedTicket ?? 0 < Ticket(former.batches.count) {
                return "process \(former.number) does not know that it lost the part"
            }
        }
        return nil
    }
}
