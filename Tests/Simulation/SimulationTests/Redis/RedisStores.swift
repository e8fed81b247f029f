// The rows of the delivery simulation in the engine on Redis, over simulated servers with seeded faults.
//
// Each start of the gateway is a takeover: another process opens all partitions with higher epochs, while the previous one may be
// unaware and still write. The engines have no threads: the world steps them. Calls advance the servers' clock, and the world
// catches up before the next call.

import Delivery
import Platform
import Redis
import SimulatedRedis
import Wire

@testable import MessageStore
@testable import Simulation

final class RedisStores: WorldEngine {
    private static let name = "world"

    let seed: UInt64
    private unowned var world: World!
    private var chance: SimulatedRedis.Chance
    private let cluster: SimulatedCluster
    private let change: EngineFault?
    private let partCount: Int
    private let configuration: RedisEngine.Configuration
    private let gatewayTime: Lock<Int64>
    private let rates: FaultRates
    /// The average number of operations between two server faults.
    private let calm: Int
    private var process: Process?
    /// The previous process, which may not know that it has a successor.
    private var former: Process?
    /// Whether the partitions of this start are open.
    private var isReady = false
    private var isHealing = false
    private var isInCall = false
    private var lastEpoch: UInt64 = 0
    private var movingSlots: Set<Int> = []
    private var writer: ForeignWriter
    /// The gateways' messages about entries that they did not write.
    private let advice: Lock<[String]>
    /// The highest claimed epoch of each partition, as in the register.
    private let claims: Lock<[Int: UInt64]>
    /// Whether another program's entry ended the ownership of a partition, or may be in a log that no process has opened since.
    private(set) var hasLostParts = false
    private var isForeignPossible = false
    private(set) var violations: [String] = []
    private(set) var counts: [String: Int] = [:]

    /// A gateway's engine with its partitions.
    private final class Process {
        let network: ProcessNetwork
        let engine: RedisEngine
        var stores: [WatchedStore] = []
        let losses = Lock<[RedisEngine.Loss]>([])

        init(_ network: ProcessNetwork, _ seeds: [RedisAddress], _ configuration: RedisEngine.Configuration) throws {
            self.network = network
            engine = try RedisEngine(RedisCluster(seeds: seeds, network: network), configuration)
        }

        func end() {
            network.beforeCall = {}
            network.isDead = true
            for store in stores {
                store.close()
                engine.closePart(store.part)
            }
            stores.removeAll()
            engine.close()
        }
    }

    init(seed: UInt64, fault: EngineFault? = nil) {
        (self.seed, change) = (seed, fault)
        var chance = SimulatedRedis.Chance(seed: seed ^ 0x5EED)
        var layout = SimulatedCluster.Layout()
        layout.isCluster = seed % 4 != 0
        layout.replicas = 1 + Int(seed / 2 % 2)
        layout.waitsForWritesOnly = seed % 3 == 0
        cluster = SimulatedCluster(seed: seed, layout: layout)
        partCount = [1, 2, 4][chance.below(3)]
        let gatewayTime = Lock<Int64>(World.gatewayStart)
        self.gatewayTime = gatewayTime
        var configuration = RedisEngine.Configuration()
        configuration.name = Self.name
        configuration.isStepped = true
        configuration.youngMilliseconds = [0, 2_000, 60_000][chance.below(3)]
        configuration.entryByteLimit = [500, 4_000, 1 << 20][chance.below(3)]
        configuration.flushMilliseconds = 0
        (configuration.rowsMilliseconds, configuration.readMilliseconds) = (8_000, 1_000)
        configuration.now = { gatewayTime.withLock { $0 } }
        let (advice, claims) = (Lock<[String]>([]), Lock<[Int: UInt64]>([:]))
        (self.advice, self.claims) = (advice, claims)
        configuration.claimedEpoch = { part in claims.withLock { $0[part] } }
        configuration.report = { event in
            guard case .foreignEntry(_, _, _, let mending) = event else { return }
            advice.withLock { $0.append(mending) }
        }
        writer = ForeignWriter(seed: seed)
        self.configuration = configuration
        rates = chance.happens(0.2) ? .none : .all(oneIn: Double(50 + chance.below(600)))
        calm = [15, 60, 300][chance.below(3)]
        self.chance = chance
        cluster.rates = rates
    }

    deinit {
        process?.end()
        former?.end()
    }

    func fail(_ what: String) { violations.append(what) }
    func note(_ what: String) { counts[what, default: 0] += 1 }

    // MARK: The world's starts and crashes

    var loopCount: Int? { partCount }
    var hasReadFailures: Bool { false }
    var lead: Int64 { max(0, cluster.milliseconds - (world?.now ?? 0)) }

    func makeStores(count: Int, in world: World) -> [any WorldStore] {
        self.world = world
        if !isReady { takeOver() }
        isReady = false
        guard let process else {
            // No store exists to report the violation.
            world.fail(.storeContract, violations.first ?? "no process has the parts")
            return []
        }
        return process.stores
    }

    func crash(in world: World) {
        takeOver()
        isReady = true
    }

    /// Opens all partitions for another process, while the current owner may still run.
    private func takeOver() {
        follow()
        former?.end()
        former = process
        process = nil
        // A killed process may still have calls in flight.
        if chance.happens(0.4) { former?.network.isDead = true } else if former != nil { note("former owner goes on") }
        // The operator reads the log now, or acts when a partition does not open.
        for text in advice.withLock({ $0 }) where writer.chance.happens(0.5) { follow(text) }
        advice.withLock { $0 = [] }
        (hasLostParts, isForeignPossible) = (false, false)
        for attempt in 1... {
            if attempt > 3 { mend() }
            if attempt > 6 { cluster.rates = .none }
            let change = change.map { EngineFault.Planted($0) }
            let network = ProcessNetwork(cluster, change: change)
            guard let next = try? Process(network, SimulatedNetwork(cluster).seeds, configuration) else {
                return fail("no process")
            }
            network.beforeCall = { [unowned self] in meanwhile() }
            do throws(StoreError) {
                for part in 0..<partCount { try open(part, of: next) }
            } catch {
                next.network.isDead = true
                next.end()
                note("opening failed")
                // Another program's entry fails at most two attempts: one by its epoch, one by its content.
                guard attempt < 30 + 2 * writer.count, isMended(error) else {
                    fail("the parts were not opened: \(error)")
                    break
                }
                continue
            }
            process = next
            break
        }
        network(of: process) { [unowned self] in
            if chance.happens(0.002) { happen() }
        }
        cluster.rates = isHealing ? .none : rates
    }

    /// Returns whether another attempt may open the partitions after the operator has followed the error's advice.
    private func isMended(_ error: StoreError) -> Bool {
        switch error {
        case .redis: return true
        case .epochTaken(_, let top) where writer.epochs.contains(top):
            lastEpoch = max(lastEpoch, top)
            return true
        case .foreignEntry(_, _, let mending) where writer.count > 0:
            return follow(mending)
        case .damagedLog(let stream, let entry, _) where writer.ids.contains("\(stream) \(entry)"):
            // "remove the entry with XDEL to continue without its messages"
            return follow("XDEL \(stream) \(entry)")
        default: return false
        }
    }

    /// Runs the commands in an advice text; returns false if it contains none.
    @discardableResult
    private func follow(_ advice: String) -> Bool {
        let commands = OperatorAdvice.commands(in: advice)
        for command in commands {
            _ = cluster.intrude(command)
            note("advice followed")
        }
        return !commands.isEmpty
    }

    private func network(of process: Process?, _ beforeCall: @escaping () -> Void) {
        process?.network.beforeCall = beforeCall
    }

    private func open(_ part: Int, of next: Process) throws(StoreError) {
        lastEpoch += 1
        claims.withLock { $0[part] = lastEpoch }
        let loop = ProcessLoop()
        let losses = next.losses
        let open = try next.engine.openPart(part, of: partCount, epoch: lastEpoch, post: loop.post) { loss in
            losses.withLock { $0.append(loss) }
        }
        // Slot migrations are finished before the rows are compared.
        for slot in movingSlots { cluster.finishMove(slot: slot) }
        movingSlots.removeAll()
        let rows = storedRows(of: part)
        // A failed attempt may have opened the partition. It found the former owner's rows, too.
        let past = former?.stores.first { $0.part == part }
        if let past, past.found == nil {
            past.succeeded(by: rows) { [self] key, value in isStored(key, value) }
        }
        next.stores.append(WatchedStore(open, on: loop, rows: rows, of: self))
        note("opened")
    }

    /// Runs the previous process and server faults while a process opens its partitions.
    private func meanwhile() {
        if chance.happens(0.003) { happen() }
        guard let former, !former.network.isDead, chance.happens(0.3) else { return }
        step(former)
    }

    private func step(_ process: Process) {
        switch chance.below(4) {
        case 0, 1: _ = process.engine.step(.commit)
        case 2: _ = process.engine.step(.moveRows)
        default:
            for store in process.stores {
                store.real.turnEnded()
                store.loop.turn()
            }
        }
    }

    // MARK: Calls of the stores

    private func follow() {
        gatewayTime.withLock { $0 = world.gatewayNow }
        let behind = world.now - cluster.milliseconds
        if behind > 0 { cluster.advance(milliseconds: Int(behind)) }
    }

    private func goOn() {
        guard let former, !isInCall else { return }
        guard !former.network.isDead, !chance.happens(0.02) else {
            former.end()
            self.former = nil
            return
        }
        if chance.happens(0.2) { step(former) }
    }

    private func call(_ step: RedisEngine.Step) -> Bool {
        guard let process, !isInCall else { return false }
        isInCall = true
        defer { isInCall = false }
        let hasWorked = process.engine.step(step)
        switch process.losses.withLock({ $0.first }) {
        case nil: break
        case .foreignEntry where writer.count > 0: hasLostParts = true
        // A server that did not answer prevented the owner from checking the entry's author.
        case .fenced(_, _, let successor) where writer.epochs.contains(successor): hasLostParts = true
        case let loss?: fail("the owner lost a part: \(loss)")
        }
        return hasWorked
    }

    func commit() {
        follow()
        goOn()
        _ = call(.commit)
        if chance.happens(0.1) { moveRows() }
    }

    func read() {
        follow()
        _ = call(.read)
    }

    private func moveRows() {
        _ = call(.moveRows)
        for store in process?.stores ?? [] { store.loop.turn() }
    }

    /// Moves old rows, or all durable rows, out of memory and log.
    func spill(isWhole: Bool) {
        guard !isInCall, let process else { return }
        follow()
        process.engine.requestSpill()
        for _ in 0..<(isWhole ? 40 : 3) {
            if isWhole { _ = call(.commit) }
            moveRows()
            // Servers with faults may need minutes.
            guard lead < 2_000, process.stores.contains(where: { $0.real.youngRowCount > 0 }) else { break }
        }
    }

    // MARK: Rows in the servers

    private func look(_ words: [UInt8]...) -> Reply? { cluster.look(words) }

    private func storedRows(of part: Int) -> WatchedStore.Rows {
        var rows: WatchedStore.Rows = [:]
        for group in RedisGroups.groups(part: part, of: partCount) {
            let keys = GroupKeys(Self.name, group: group)
            guard case .array(let fields)? = look(Array("HGETALL".utf8), keys.rows) else { continue }
            for place in stride(from: 0, to: fields.count - 1, by: 2) {
                guard case .bulk(let name) = fields[place], case .bulk(let stored) = fields[place + 1],
                    let key = name.withUnsafeBytes({ KeyCoding.readKey($0) })
                else { continue }
                rows[key] = stored.withUnsafeBytes { stored in
                    if key.table == .counters {
                        return SimulatedStore.Value(copying: CountStamp.read(stored).value, wakeAt: 0)
                    }
                    return SimulatedStore.Value(
                        copying: UnsafeRawBufferPointer(rebasing: stored[KeyCoding.rowPrefixByteCount...]),
                        wakeAt: stored.loadUnaligned(as: Int64.self))
                }
            }
        }
        return rows
    }

    /// Returns whether an ephemeral row is in one of its group's periods.
    private func isStored(_ key: StoreKey, _ value: SimulatedStore.Value) -> Bool {
        let keys = GroupKeys(Self.name, group: RedisGroups.group(of: key.bucket))
        guard case .array(let names)? = look(Array("HKEYS".utf8), keys.marks) else { return false }
        for case .bulk(let name) in names {
            guard let period = RedisPeriod(field: String(decoding: name, as: UTF8.self)),
                case .bulk(let stored)? = look(Array("HGET".utf8), keys.ephemeral(period), KeyCoding.bytes(key))
            else { continue }
            if stored.dropFirst(KeyCoding.rowPrefixByteCount).elementsEqual(value.bytes) { return true }
        }
        return false
    }

    // MARK: Trouble

    func disturb() {
        guard !isHealing, chance.below(calm) == 0 else { return }
        follow()
        // The world limits the wait for calls without an answer.
        if lead > 20_000 { mend() }
        happen()
    }

    private func happen() {
        guard !isHealing else { return }
        if writer.isDue(), let what = writer.write(writer.chance.below(partCount), cluster) {
            isForeignPossible = true
            note("foreign entry, \(what)")
        }
        let shard = chance.below(cluster.shardCount)
        let bucket = Bucket(UInt16(chance.below(World.bucketCount)))
        let slot =
            chance.happens(0.4)
            ? RedisSlot.of(GroupKeys.log(Self.name, part: bucket.loop(of: partCount)))
            : GroupKeys(Self.name, group: RedisGroups.group(of: bucket)).slot
        switch chance.below(22) {
        case 0...1:
            note("failover by command")
            cluster.failOver(shard, isGraceful: true)
        case 2...4:
            note("election")
            cluster.failOver(shard, forgetsOld: chance.happens(0.4))
        case 5:
            note("server killed")
            cluster.kill(cluster.primary(of: shard))
            if !cluster.failOver(shard) { mend() }
        case 6:
            note("restart")
            let server = chance.below(cluster.serverCount)
            cluster.kill(server)
            cluster.start(server, loadingFor: chance.below(400))
        case 7...8:
            note("stall")
            cluster.stall(chance.below(cluster.serverCount), for: chance.below(4_000))
        case 9:
            note("replica cut off")
            cluster.setCutOff(shard + cluster.shardCount, true)
        case 10: cluster.setDown(for: chance.below(500))
        case 11...12:
            note("slot moves")
            movingSlots.insert(slot)
            cluster.beginMove(slot: slot, to: shard)
        case 13: for slot in movingSlots { cluster.moveKeys(slot: slot, count: 1) }
        case 14...15: for slot in movingSlots { cluster.finishMove(slot: slot) }
        case 16:
            note("out of memory")
            cluster.setOutOfMemory(true)
        case 17: cluster.setOutOfMemory(false)
        case 18: cluster.forgetScripts()
        default: mend()
        }
    }

    private func mend() {
        cluster.setOutOfMemory(false)
        cluster.mend()
    }

    // MARK: The end

    func heal() {
        isHealing = true
        // A partition's next open reveals entries that no process has found yet.
        if isForeignPossible { hasLostParts = true }
        cluster.rates = .none
        mend()
    }

    func checkEnd() -> String? {
        spill(isWhole: true)
        for store in process?.stores ?? [] {
            if store.waitingBatchCount > 0 {
                return "part \(store.part): \(store.waitingBatchCount) batches do not commit"
            }
            if store.real.youngRowCount > 0 { return "part \(store.part): \(store.real.youngRowCount) rows stay young" }
        }
        takeOver()
        if !cluster.copiesAgree { fail("copies differ in the end") }
        return violations.first
    }
}

enum EngineFault: String, CaseIterable, Sendable {
    /// The engine waits for no replica.
    case waitSkipped
    /// The last page of the log is not replayed.
    case lastPageSkipped
    /// A read returns no row although it exists.
    case rowMissed
    /// An entry with a group's number is accepted as the group's, whatever its bytes are.
    case foreignTaken

    final class Planted: CallChange {
        private let fault: EngineFault
        private var count = 0
        /// The entries sent to each log: id and bytes.
        private var groups: [[UInt8]: [(id: LogID, body: [UInt8])]] = [:]
        init(_ fault: EngineFault) { self.fault = fault }

        func sent(_ command: RedisCommand, among all: [RedisCommand]) -> RedisCommand {
            if fault == .foreignTaken { note(command) }
            return fault == .waitSkipped && ["WAIT", "WAITAOF"].contains(command.name) ? RedisCommand("PING") : command
        }

        private func note(_ command: RedisCommand) {
            let words = command.arguments
            guard words.count > 4, words[words.count - 2] == [UInt8(ascii: "b")], let body = words.last,
                let id = LogID(String(decoding: words[words.count - 3], as: UTF8.self))
            else { return }
            let log = words[command.name == "XADD" ? 1 : 3]
            groups[log] = ((groups[log] ?? []).filter { $0.id != id } + [(id, body)]).suffix(2 * Limits.groupsOfLog)
        }

        /// Returns the requested entries, but with the bytes that were sent instead of the stored ones.
        private func groupsInPlace(of reply: RedisReply, _ command: RedisCommand) -> RedisReply {
            let sent = groups[command.arguments[1]] ?? []
            return .array(
                (reply.array ?? []).map { entry in
                    let id = entry.array?.first?.text.flatMap { LogID($0) }
                    guard let id, let group = sent.first(where: { $0.id == id }) else { return entry }
                    return .array([
                        .bytes(Array(id.description.utf8)), .array([.bytes([UInt8(ascii: "b")]), .bytes(group.body)]),
                    ])
                })
        }

        func told(_ command: RedisCommand, _ reply: RedisReply, among all: [RedisCommand]) -> RedisReply {
            switch fault {
            case .foreignTaken:
                let isLook = command.name == "XRANGE" && command.argumentCount == 4 && reply.array != nil
                return isLook ? groupsInPlace(of: reply, command) : reply
            case .waitSkipped:
                switch command.name {
                case "WAIT": return .integer(9)
                case "WAITAOF": return .array([.integer(1), .integer(9)])
                default: return reply
                }
            case .lastPageSkipped:
                // A read of a single entry has no COUNT.
                let isPage = command.name == "XRANGE" && command.argumentCount > 4 && reply.array != nil
                return isPage ? .array([]) : reply
            case .rowMissed:
                guard command.name == "HGET", reply.bytes != nil else { return reply }
                count += 1
                return count % 20 == 0 ? .none : reply
            }
        }
    }
}
