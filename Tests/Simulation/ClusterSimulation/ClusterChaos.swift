internal import Cluster
internal import TestKit

/// Random faults on a cluster of random size, and the check that the cluster recovers from them.
package struct ClusterChaos {
    package let world: ClusterWorld
    private var random: SeededGenerator
    private let seed: UInt64
    package private(set) var faults: [String] = []

    package init(seed: UInt64) {
        self.seed = seed
        random = SeededGenerator(seed: seed &* 0x9E37_79B9 | 1)
        var settings = ClusterWorld.Settings()
        settings.partCount = 1 << Int.random(in: 0...5, using: &random)
        settings.lostReplies = [0, 0, 10, 50].randomElement(using: &random)!
        settings.latency = [0...1, 0...5, 0...30].randomElement(using: &random)!
        settings.opening = [10...40, 20...400, 100...2_000].randomElement(using: &random)!
        world = ClusterWorld(seed: seed, gatewayCount: Int.random(in: 1...7, using: &random), settings)
    }

    /// - Returns: the violation, or `nil`.
    package mutating func run(milliseconds: Int64) -> String? {
        let world = self.world
        let end = world.now + milliseconds
        for index in world.gateways.indices {
            world.at(world.now + Int64.random(in: 0...2_000, using: &random)) { world.start(index) }
        }
        while world.now < end, world.violation == nil {
            world.run(for: Int64.random(in: 10...4_000, using: &random))
            strike()
        }
        for first in world.gateways.indices {
            world.unpause(first)
            world.heal(first)
            for second in 0..<first { world.allowLinks(first, second) }
        }
        // A register failover may have restored a request that had been withdrawn.
        for part in world.register.pinnedParts.keys.sorted() { world.wish(.move(part: part, to: nil)) }
        for node in world.register.drainedNodes.sorted() { world.wish(.undrain(node)) }
        // Gateways that leave must have ended before they can start again.
        world.run(for: 10_000)
        for index in world.gateways.indices { world.start(index) }
        // Probation ends within five minutes.
        let time = world.run(atMost: 700_000) { world.isSettled }
        if let violation = world.violation { return violation + " after \(faults.suffix(8))" }
        if time == nil { return "\(world.unsettledReason ?? "") after \(faults.suffix(8))" }
        world.resetTally()
        world.run(for: 30_000)
        guard world.isSettled, world.tally.handedOver == 0, world.tally.takenByFailure == 0 else {
            return "it does not stay settled: \(world.tally)"
        }
        return world.violation
    }

    private mutating func strike() {
        let world = self.world
        let victim = Int.random(in: 0..<world.gateways.count, using: &random)
        let other = Int.random(in: 0..<world.gateways.count, using: &random)
        let node = world.gateways[victim].membership?.node
        switch Int.random(in: 0..<15, using: &random) {
        case 0: note("kill \(victim)") { world.kill(victim) }
        case 1: note("kill host \(victim)") { world.killHost(victim) }
        case 2, 3: note("pause \(victim)") { world.pause(victim) }
        case 4, 5: note("unpause \(victim)") { world.unpause(victim) }
        case 6: note("cut \(victim)") { world.cut(victim) }
        case 7: note("heal \(victim)") { world.heal(victim) }
        case 8: note("leave \(victim)") { world.leave(victim) }
        case 9, 10: note("start \(victim)") { world.start(victim) }
        case 11:
            let time = Int64.random(in: 100...6_000, using: &random)
            let loses = Bool.random(using: &random)
            note("register away for \(time), loses \(loses)") { world.failRegister(for: time, losesChange: loses) }
        case 12: note("refuse \(victim) \(other)") { world.refuseLinks(victim, other) }
        case 13:
            guard let node else { return }
            note("drain \(victim)") { world.wish(.drain(node)) }
            world.at(world.now + 5_000) { world.wish(.undrain(node)) }
        default:
            guard let node else { return }
            let part = Int.random(in: 0..<world.settings.partCount, using: &random)
            note("move \(part) to \(victim)") { world.wish(.move(part: part, to: node)) }
            world.at(world.now + 5_000) { world.wish(.move(part: part, to: nil)) }
        }
    }

    private mutating func note(_ text: String, _ action: () -> Void) {
        faults.append("\(world.now): \(text)")
        action()
    }
}
