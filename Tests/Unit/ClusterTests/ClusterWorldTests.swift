import Cluster
import ClusterSimulation
import TestKit
import Testing

@Suite("Membership in a simulated cluster")
struct ClusterWorldTests {
    /// Returns a cluster whose gateways have all started and share the partitions.
    private func world(
        seed: UInt64 = 1, gateways: Int, parts: Int, lostReplies: Int = 0, devices: Int = 0
    ) throws -> ClusterWorld {
        var settings = ClusterWorld.Settings()
        (settings.partCount, settings.lostReplies, settings.deviceCount) = (parts, lostReplies, devices)
        let world = ClusterWorld(seed: seed, gatewayCount: gateways, settings)
        for index in 0..<gateways { world.at(world.now + Int64(index) * 50) { world.start(index) } }
        world.run(for: 3_000)
        let time = world.run(atMost: 30_000) { world.isSettled }
        try #require(time != nil, "\(world.violation ?? world.unsettledReason ?? "")")
        world.resetTally()
        return world
    }

    private func expectSettled(
        _ world: ClusterWorld, within milliseconds: Int64, _ what: @autoclosure () -> String = "",
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let time = world.run(atMost: milliseconds) { world.isSettled }
        #expect(
            time != nil && world.violation == nil, "\(what()): \(world.violation ?? world.unsettledReason ?? "")",
            sourceLocation: sourceLocation)
    }

    @Test("a starting cluster shares the partitions", arguments: [1, 2, 3, 5, 8, 16, 20])
    func start(count: Int) throws {
        let world = try world(gateways: count, parts: 16)
        #expect(world.gateways.map(\.open.count).reduce(0, +) == 16)
        // Gateways that joined in time waited for each other, so no partition was handed over.
        if count <= 3 { #expect(world.tally.handedOver == 0) }
        world.run(for: 60_000)
        #expect(world.isSettled && world.tally.lost == 0 && world.tally.handedOver == 0)
    }

    @Test("a killed gateway's partitions have owners again before its lease ends, and no others move")
    func kill() throws {
        for seed in 1...20 as ClosedRange<UInt64> {
            let world = try world(seed: seed, gateways: 3, parts: 16)
            let parts = world.gateways[1].open.count
            world.kill(1)
            expectSettled(world, within: 1_500, "seed \(seed)")
            #expect(world.tally.takenByFailure == parts && world.tally.handedOver == 0 && world.tally.lost == 0)
        }
    }

    @Test("a host without power is replaced when its lease ends")
    func killHost() throws {
        for seed in 1...20 as ClosedRange<UInt64> {
            let world = try world(seed: seed, gateways: 3, parts: 16)
            world.killHost(2)
            expectSettled(world, within: 3_000, "seed \(seed)")
            #expect(world.tally.handedOver == 0)
        }
    }

    @Test(
        "a leaving gateway hands over every partition first, each without an owner for one handover at most")
    func leave() throws {
        for seed in 1...20 as ClosedRange<UInt64> {
            let world = try world(seed: seed, gateways: 3, parts: 16)
            let parts = world.gateways[0].open.count
            world.leave(0)
            let time = try #require(world.run(atMost: 5_000) { !world.gateways[0].isRunning })
            #expect(time < 1_000, "seed \(seed): \(time) ms")
            #expect(world.tally.handedOver >= parts - 4 && world.tally.takenByFailure == 0)
            #expect(world.tally.longestGift <= ClusterTiming.leavingHandoverCount)
            expectSettled(world, within: 2_000, "seed \(seed)")
            #expect(world.tally.handedOver == parts)
        }
    }

    @Test("a joining gateway gets its share, one partition at a time from each giver")
    func join() throws {
        for seed in 1...20 as ClosedRange<UInt64> {
            let world = try world(seed: seed, gateways: 3, parts: 16)
            world.kill(2)
            world.run(for: 5_000)
            world.resetTally()
            world.start(2)
            world.run(for: 200)
            expectSettled(world, within: 4_000, "seed \(seed)")
            #expect(world.tally.handedOver == 5 && world.tally.longestGift == 1 && world.tally.takenByFailure == 0)
            #expect(world.gateways[2].membership?.node.number == 4)
        }
    }

    @Test("an intermittently slow gateway loses its partitions once, and gets none while it is unsteady")
    func slow() throws {
        let world = try world(gateways: 3, parts: 16)
        for _ in 0..<10 {
            world.pause(1)
            world.run(for: 2_600)
            world.unpause(1)
            world.run(for: 3_000)
        }
        // Ten pauses longer than a lease: after the first one no partition moves.
        #expect(world.gateways[1].open.isEmpty)
        #expect(world.tally.takenByFailure <= 8 && world.tally.handedOver <= 8, "\(world.tally)")
        world.run(for: 320_000)
        expectSettled(world, within: 5_000)
        #expect(world.gateways[1].open.count >= 5)
    }

    @Test("a gateway cut off from everything keeps its seats until it reconnects, and then obeys its successors")
    func cut() throws {
        for seed in 1...20 as ClosedRange<UInt64> {
            let world = try world(seed: seed, gateways: 3, parts: 16)
            let parts = Set(world.gateways[1].open.keys)
            world.cut(1)
            world.run(for: 10_000)
            #expect(Set(world.gateways[1].open.keys) == parts)
            #expect(world.gateways[1].membership?.health(now: world.now) == .registerUnreachable)
            let others = [0, 2].flatMap { Array(world.gateways[$0].open.keys) }
            #expect(others.count == 16)
            world.heal(1)
            world.run(for: 12_000)
            expectSettled(world, within: 10_000, "seed \(seed)")
        }
    }

    @Test("a firewall between gateways that both renew moves no partition")
    func refusedLinks() throws {
        let world = try world(gateways: 3, parts: 16)
        world.refuseLinks(0, 1)
        world.run(for: 20_000)
        #expect(world.isSettled && world.tally.takenByFailure == 0 && world.tally.handedOver == 0)
        #expect(world.tally.expired == 0)
        world.allowLinks(0, 1)
        world.run(for: 1_000)
        #expect(world.isSettled)
    }

    @Test(
        "an unavailable register moves no partition, and its return causes no takeover",
        arguments: [false, true])
    func registerAway(losesChange: Bool) throws {
        for seed in 1...10 as ClosedRange<UInt64> {
            let world = try world(seed: seed, gateways: 3, parts: 16)
            world.failRegister(for: 8_000, losesChange: losesChange)
            world.run(for: 7_000)
            #expect(world.tally.takenByFailure == 0 && world.gateways.allSatisfy { $0.open.count >= 5 })
            world.run(for: 4_000)
            expectSettled(world, within: 5_000, "seed \(seed)")
            #expect(world.tally.takenByFailure == 0 && world.tally.lost == 0, "seed \(seed): \(world.tally)")
        }
    }

    @Test("a drained gateway stays without partitions; after an undrain it gets its share again")
    func drain() throws {
        let world = try world(gateways: 3, parts: 16)
        let node = try #require(world.gateways[1].membership?.node)
        world.wish(.drain(node))
        expectSettled(world, within: 3_000)
        #expect(world.gateways[1].open.isEmpty && world.gateways[1].isRunning)
        #expect(world.gateways[1].membership?.health(now: world.now) == .drains)
        world.wish(.undrain(node))
        world.run(for: 600)
        expectSettled(world, within: 3_000)
        #expect(world.gateways[1].open.count >= 5)
    }

    @Test("a moved partition stays where an operator put it, and is placed again when that gateway leaves")
    func move() throws {
        let world = try world(gateways: 3, parts: 16)
        let part = try #require(world.gateways[0].open.keys.min())
        let target = try #require(world.gateways[2].membership?.node)
        world.wish(.move(part: part, to: target))
        let time = world.run(atMost: 3_000) { world.gateways[2].open[part] != nil }
        #expect(time != nil)
        world.run(for: 30_000)
        #expect(world.gateways[2].open[part] != nil && world.isSettled)
        world.kill(2)
        expectSettled(world, within: 3_000)
    }

    @Test(
        "a fault after any step of a start, a join or a leave: all partitions are served again in bounded time"
    )
    func everyStep() {
        // A small world in which the fault happens after the first event, then after the second, and so on.
        enum Fault: CaseIterable { case kill, killHost, pause, cut, registerAway, registerLoses, lostReply }
        var count = 0
        for fault in Fault.allCases {
            for victim in 0..<3 {
                var step = 1
                while true {
                    var settings = ClusterWorld.Settings()
                    settings.partCount = 4
                    settings.latency = 0...3
                    if fault == .lostReply { settings.lostReplies = 60 }
                    let world = ClusterWorld(seed: UInt64(step), gatewayCount: 3, settings)
                    world.at(world.now) { world.start(0) }
                    world.at(world.now + 20) { world.start(1) }
                    world.at(world.now + 1_500) { world.start(2) }
                    world.at(world.now + 2_400) { world.leave(1) }
                    let end = world.now + 3_200
                    let isInside = world.run(events: step, until: end)
                    switch fault {
                    case .kill: world.kill(victim)
                    case .killHost: world.killHost(victim)
                    case .pause: world.pause(victim)
                    case .cut: world.cut(victim)
                    case .registerAway: world.failRegister(for: 3_000, losesChange: false)
                    case .registerLoses: world.failRegister(for: 1_500, losesChange: true)
                    case .lostReply: break
                    }
                    world.run(until: end)
                    world.run(for: 3_000)
                    world.unpause(victim)
                    world.heal(victim)
                    for index in 0..<3 { world.start(index) }
                    count += 1
                    let time = world.run(atMost: 30_000) { world.isSettled }
                    guard time != nil, world.violation == nil else {
                        Issue.record(
                            "\(fault) of \(victim) after event \(step): \(world.violation ?? world.unsettledReason ?? "")"
                        )
                        return
                    }
                    guard isInside else { break }
                    step += 1
                }
            }
        }
        #expect(count > 1_000, "\(count) runs")
    }

    @Test("seeded faults: one seat per epoch at most, and all partitions are served again afterwards")
    func seeds() {
        for seed in 1...12 as ClosedRange<UInt64> {
            var chaos = ClusterChaos(seed: seed)
            if let failure = chaos.run(milliseconds: 60_000) {
                Issue.record("seed \(seed): \(failure)")
                return
            }
        }
    }
}
