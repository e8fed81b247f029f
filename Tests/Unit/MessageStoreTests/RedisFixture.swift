import Delivery
import Platform
import Redis
import Synchronization
import TestKit
import Wire

@testable import MessageStore

final class RedisWitness: Sendable {
    private let found = Lock<(events: [RedisEngine.Event], losses: [RedisEngine.Loss])>(([], []))
    func note(_ event: RedisEngine.Event) { found.withLock { $0.events.append(event) } }
    func note(_ loss: RedisEngine.Loss) { found.withLock { $0.losses.append(loss) } }
    var events: [RedisEngine.Event] { found.withLock { $0.events } }
    var losses: [RedisEngine.Loss] { found.withLock { $0.losses } }
}

/// An engine with one open partition on a loop that the test runs.
final class RedisFixture {
    let loop = ManualLoop()
    let witness: RedisWitness
    let engine: RedisEngine
    private(set) var shard: EmbeddedShardStore?
    let part: RedisEngine.OpenPart

    static func configuration(_ name: String = "test", witness: RedisWitness = RedisWitness())
        -> RedisEngine.Configuration
    {
        var configuration = RedisEngine.Configuration()
        configuration.name = name
        configuration.tickMilliseconds = 5
        configuration.now = { 1_000_000_000 }
        return configuration
    }

    /// - Parameters:
    ///   - cluster: the servers.
    ///   - configuration: the engine's configuration.
    ///   - part: the partition's number.
    ///   - count: the number of partitions.
    ///   - epoch: the owner's epoch.
    ///   - witness: records losses.
    /// - Throws: the engine's errors.
    init(
        _ cluster: RedisCluster, _ configuration: RedisEngine.Configuration, part: Int = 0, of count: Int = 1,
        epoch: UInt64, witness: RedisWitness = RedisWitness()
    ) throws {
        self.witness = witness
        var configuration = configuration
        configuration.report = { witness.note($0) }
        engine = try RedisEngine(cluster, configuration)
        do {
            self.part = try engine.openPart(part, of: count, epoch: epoch, post: loop.post) { witness.note($0) }
        } catch {
            engine.close()
            throw error
        }
        shard = self.part.store as? EmbeddedShardStore
    }

    var store: EmbeddedShardStore {
        guard let shard else { preconditionFailure("the fixture is closed") }
        return shard
    }

    /// Runs the loop until `isDone`.
    func wait(_ what: String, until isDone: () -> Bool) throws {
        let limit = SystemClock.monotonicMilliseconds + 60_000
        while !isDone() {
            guard SystemClock.monotonicMilliseconds < limit else {
                throw WaitFailed(description: "waited in vain for \(what); \(witness.events) \(witness.losses)")
            }
            loop.turn(waitingAtMost: 0.05)
        }
    }

    func sync(_ ticket: Ticket) throws {
        store.turnEnded()
        try wait("the commit") { store.committedTicket >= ticket }
    }

    func spillAll() throws {
        engine.requestSpill()
        try wait("the spill") { engine.statistics.segmentCount == 0 && store.youngRowCount == 0 }
    }

    func close() {
        guard let shard else { return }
        shard.close()
        self.shard = nil
        engine.closePart(part.part)
        engine.close()
        loop.end()
    }

    deinit { close() }
}

extension RedisFixture: ShowsNothing {}
extension RedisEngine: ShowsNothing {}

/// The store on Redis for the conformance suite; each start is a takeover with the next epoch.
final class RedisStoreHarness: ShardStoreHarness {
    private let cluster: RedisCluster
    private let configuration: RedisEngine.Configuration
    private var fixture: RedisFixture
    private let counting = CountingStore()
    private var epoch: UInt64 = 1
    private let isSpilling: Bool
    /// Runs after each commit that the suite waits for, and before each start.
    var trouble: () -> Void = {}

    init(_ cluster: RedisCluster, _ configuration: RedisEngine.Configuration, isSpilling: Bool = true) throws {
        (self.cluster, self.configuration, self.isSpilling) = (cluster, configuration, isSpilling)
        fixture = try RedisFixture(cluster, configuration, epoch: 1)
        counting.store = fixture.store
    }

    var store: any ShardStore { counting }
    func sync() throws {
        try fixture.sync(counting.lastTicket)
        trouble()
    }
    func answerReads() throws { try fixture.wait("replies") { counting.waitingReads == 0 } }
    func cool() throws { if isSpilling { try fixture.spillAll() } }
    func breathe() { fixture.loop.turn(waitingAtMost: 0.002) }

    func reopen() throws {
        fixture.close()
        trouble()
        for attempt in 0..<20 {
            epoch += 1
            do {
                fixture = try RedisFixture(cluster, configuration, epoch: epoch)
                break
            } catch let error as StoreError {
                // An interrupted takeover is repeated with the next epoch.
                guard case .redis = error, attempt < 19 else { throw error }
            }
        }
        counting.reset(fixture.store)
    }

    func close() { fixture.close() }

    var spilledRowCount: Int { fixture.engine.statistics.spilledRowCount }
}
