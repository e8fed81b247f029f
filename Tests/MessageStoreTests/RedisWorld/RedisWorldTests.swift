import Foundation
import Testing

@Suite("The engine on a simulated Redis, by seed")
struct RedisWorldTests {
    private static let stepCount = 500

    private static func environment(_ name: String) -> Int? {
        ProcessInfo.processInfo.environment[name].flatMap { Int($0) }
    }

    private static func run(
        _ seed: UInt64, _ fault: WorldFault? = nil, weather: WorldWeather = .fair, _ counts: inout [String: Int]
    ) -> String? {
        let world = RedisWorld(seed: seed, fault: fault, weather: weather)
        world.run(steps: stepCount)
        counts.merge(world.counts, uniquingKeysWith: +)
        return world.violation
    }

    /// `LONGWIRE_REDIS_SEED` is the first one, `LONGWIRE_REDIS_SEEDS` their number, `LONGWIRE_REDIS_FAULT` a planted fault.
    @Test("what was durable is there, in order, for each owner of the part")
    func seeds() {
        let first = UInt64(Self.environment("LONGWIRE_REDIS_SEED") ?? 1)
        let count = UInt64(Self.environment("LONGWIRE_REDIS_SEEDS") ?? 5)
        let fault = ProcessInfo.processInfo.environment["LONGWIRE_REDIS_FAULT"].flatMap { WorldFault(rawValue: $0) }
        var counts: [String: Int] = [:]
        for seed in first..<(first + count) {
            for weather in WorldWeather.allCases {
                if let violation = Self.run(seed, fault, weather: weather, &counts) {
                    Issue.record("\(weather) weather, \(violation)")
                }
            }
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
        (.predecessorUnchecked, 1), (.apartIgnored, 1), (.waitReused, 4), (.coverUnchecked, 8),
        (.waitSkipped, 1), (.waitCountIgnored, 2), (.trimBeforeRows, 26), (.fenceUnwaited, 9),
        (.epochUnchecked, 3), (.replyAssumed, 1), (.sentAgainAnew, 1), (.lastPageSkipped, 1), (.readOnlySucceeds, 4),
    ]

    @Test("a planted fault is found", arguments: found.map(\.fault))
    func planted(fault: WorldFault) {
        // Whatever the engine asks for in between moves the faults: then another seed shows it.
        find(fault, .fair, Self.found.filter { $0.fault == fault }.map(\.seed) + Array(1...60))
    }

    /// The same for faults that only held writes, moving slots or dead replicas show.
    private static let foundInRoughWeather: [(fault: WorldFault, seed: UInt64)] = [
        (.movedDropped, 21)
    ]

    @Test("a planted fault is found in rough weather", arguments: foundInRoughWeather.map(\.fault))
    func plantedInRoughWeather(fault: WorldFault) {
        find(fault, .rough, Self.foundInRoughWeather.filter { $0.fault == fault }.map(\.seed) + Array(1...60))
    }

    /// The same for faults that need one kind of trouble again and again.
    private static let foundInFoulWeather: [(fault: WorldFault, focus: WorldWeather.Focus)] = [
        (.fenceRepeats, .fences), (.replicaReads, .laggards),
    ]

    @Test("a planted fault is found in foul weather", arguments: foundInFoulWeather.map(\.fault))
    func plantedInFoulWeather(fault: WorldFault) {
        let focus = Self.foundInFoulWeather.first { $0.fault == fault }?.focus
        find(fault, .foul, (1...80).filter { .of($0) == focus })
    }

    private func find(_ fault: WorldFault, _ weather: WorldWeather, _ seeds: [UInt64]) {
        var counts: [String: Int] = [:]
        for (count, seed) in seeds.enumerated() where Self.run(seed, fault, weather: weather, &counts) != nil {
            #expect(Self.run(seed, nil, weather: weather, &counts) == nil, "seed \(seed) fails without a fault, too")
            if Self.environment("LONGWIRE_REDIS_SEEDS") != nil { print("\(fault): seed \(seed), try \(count + 1)") }
            return
        }
        Issue.record("no seed finds \(fault)")
    }
}
