import Delivery
import FoundationEssentials
import TestKit
import Testing

@testable import Simulation

@Suite("The simulated world keeps every promise on Redis, too") struct RedisSimulationTests {
    private static func environment(_ name: String) -> Int? {
        ProcessInfo.processInfo.environment[name].flatMap { Int($0) }
    }

    private static func run(
        _ seed: UInt64, events: Int, fault: EngineFault? = nil, hasServer: Bool = true, hasBroadcasts: Bool = true,
        adjust: (inout ShardLimits) -> Void = { _ in }
    ) -> (world: World, counts: [String: Int]) {
        let stores = RedisStores(seed: seed, fault: fault)
        let world = World(
            seed: seed, hasServer: hasServer, hasBroadcasts: hasBroadcasts, hasReceipts: hasBroadcasts, engine: stores,
            adjust: adjust)
        world.run(events: events)
        return (world, stores.counts)
    }

    /// `LONGWIRE_REDIS_SEED` is the first seed, `LONGWIRE_REDIS_SEEDS` the number of seeds.
    @Test("fixed seeds run without a violation while each start is a takeover by another process")
    func seeds() {
        let first = UInt64(Self.environment("LONGWIRE_REDIS_SEED") ?? 1)
        let count = UInt64(Self.environment("LONGWIRE_REDIS_SEEDS") ?? 5)
        var (events, counts) = (0, [String: Int]())
        for seed in first..<(first + count) {
            let (world, found) = Self.run(seed, events: 2_000)
            if let report = world.report { Issue.record("\(report)") }
            events += world.eventCount
            counts.merge(found, uniquingKeysWith: +)
        }
        print("\(count) seeds on Redis, \(events) events, \(counts.sorted { $0.key < $1.key })")
        guard count > 4 else { return }
        for name in ["election", "stall", "slot moves", "out of memory", "former owner goes on", "advice followed"] {
            #expect(counts[name] ?? 0 > 0, "\(name) never happened")
        }
    }

    /// Runs a seed without server faults; the tests of planted faults use these runs for comparison.
    private static func runQuietly(_ seed: UInt64, fault: EngineFault? = nil, adjust: (inout ShardLimits) -> Void)
        -> String?
    {
        run(seed, events: 1_500, fault: fault, hasServer: false, hasBroadcasts: false, adjust: adjust).world.report
    }
    private static let cleanSeeds = Set([1, 3, 6].filter { runQuietly($0) { _ in } == nil } as [UInt64])

    /// Seeds that have detected faults; with `LONGWIRE_REDIS_SEED` these seeds instead.
    private static let quietSeeds =
        environment("LONGWIRE_REDIS_SEED").map { first in
            (first..<first + (environment("LONGWIRE_REDIS_SEEDS") ?? 1)).map { UInt64($0) }
        } ?? [17, 20]

    @Test("the comparison runs for planted faults have no violation", arguments: quietSeeds)
    func quietRuns(seed: UInt64) {
        if let report = Self.runQuietly(seed, adjust: { _ in }) { Issue.record("\(report)") }
    }

    private static func search(_ name: String, from seed: UInt64, _ run: (UInt64) -> String?) {
        // A change in the engine's calls moves the faults, so another seed may detect them.
        for (count, seed) in ([seed] + Array(1...200)).enumerated() where run(seed) != nil {
            if let failure = MovedSeed.report(name, "seed \(seed)", tries: count) { Issue.record("\(failure)") }
            guard !cleanSeeds.contains(seed), let report = runQuietly(seed, adjust: { _ in }) else { return }
            Issue.record("seed \(seed) fails without \(name), too: \(report)")
            return
        }
        Issue.record("no seed finds \(name)")
    }

    #if DEBUG
    @Test(
        "a planted fault of delivery is found on Redis, too",
        arguments: [
            (.answerBeforeSync, 1), (.deliverBeforeSync, 4), (.requestForgotten, 1), (.sequenceReused, 1),
            (.expiryUncounted, 1),
        ] as [(PlantedFault, UInt64)])
    func planted(fault: PlantedFault, seed: UInt64) {
        Self.search("\(fault)", from: seed) { seed in Self.runQuietly(seed) { $0.planted = fault } }
    }
    #endif

    @Test(
        "a planted fault between engine and servers is found",
        arguments: [(.waitSkipped, 1), (.lastPageSkipped, 2), (.rowMissed, 3), (.foreignTaken, 62)]
            as [(EngineFault, UInt64)])
    func engineFault(fault: EngineFault, seed: UInt64) {
        Self.search("\(fault)", from: seed) { Self.runQuietly($0, fault: fault) { _ in } }
    }
}
