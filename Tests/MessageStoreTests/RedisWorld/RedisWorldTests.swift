import Foundation
import Testing

@Suite("The engine on a simulated Redis, by seed")
struct RedisWorldTests {
    private static let stepCount = 500

    private static func environment(_ name: String) -> Int? {
        ProcessInfo.processInfo.environment[name].flatMap { Int($0) }
    }

    private static func run(
        _ seed: UInt64, _ fault: WorldFault? = nil, isRough: Bool = false, _ counts: inout [String: Int]
    ) -> String? {
        let world = RedisWorld(seed: seed, fault: fault, isRough: isRough)
        world.run(steps: stepCount)
        counts.merge(world.counts, uniquingKeysWith: +)
        return world.violation
    }

    /// `LONGWIRE_REDIS_SEED` is the first one, `LONGWIRE_REDIS_SEEDS` their number.
    @Test("what was durable is there, in order, for each owner of the part")
    func seeds() {
        let first = UInt64(Self.environment("LONGWIRE_REDIS_SEED") ?? 1)
        let count = UInt64(Self.environment("LONGWIRE_REDIS_SEEDS") ?? 5)
        var counts: [String: Int] = [:]
        for seed in first..<(first + count) {
            if let violation = Self.run(seed, nil, &counts) { Issue.record("\(violation)") }
            if let violation = Self.run(seed, nil, isRough: true, &counts) { Issue.record("rough, \(violation)") }
        }
        if count > 1 {
            for name in ["election", "stall", "crash within", "read", "found", "out of memory"] {
                #expect(counts[name] ?? 0 > 0, "\(name) never happened")
            }
        }
        if Self.environment("LONGWIRE_REDIS_SEEDS") != nil { print(counts.sorted { $0.key < $1.key }) }
    }

    /// Faults that the world finds, each with a seed that shows it.
    private static let found: [(fault: WorldFault, seed: UInt64)] = [
        (.waitSkipped, 1), (.waitCountIgnored, 1), (.trimBeforeRows, 3), (.fenceUnwaited, 16), (.raiseOmitted, 25),
        (.epochUnchecked, 3), (.replyAssumed, 1), (.sentAgainAnew, 1), (.lastPageSkipped, 1), (.readOnlySucceeds, 4),
    ]

    @Test("a planted fault is found", arguments: found.map(\.fault))
    func planted(fault: WorldFault) {
        var counts: [String: Int] = [:]
        // Whatever the engine asks for in between moves the faults: then another seed shows it.
        let seeds = Self.found.filter { $0.fault == fault }.map(\.seed) + Array(1...60)
        for seed in seeds where Self.run(seed, fault, &counts) != nil {
            #expect(Self.run(seed, nil, &counts) == nil, "seed \(seed) fails without a fault, too")
            return
        }
        Issue.record("no seed finds \(fault)")
    }

    /// The same for faults that only held writes, moving slots or dead replicas show.
    private static let foundInRoughWeather: [(fault: WorldFault, seed: UInt64)] = [
        (.trimUnchecked, 4), (.movedDropped, 21),
    ]

    @Test("a planted fault is found in rough weather", arguments: foundInRoughWeather.map(\.fault))
    func plantedInRoughWeather(fault: WorldFault) {
        var counts: [String: Int] = [:]
        let seeds = Self.foundInRoughWeather.filter { $0.fault == fault }.map(\.seed) + Array(1...60)
        for seed in seeds where Self.run(seed, fault, isRough: true, &counts) != nil {
            #expect(Self.run(seed, nil, isRough: true, &counts) == nil, "seed \(seed) fails without a fault, too")
            return
        }
        Issue.record("no seed finds \(fault)")
    }
}
