internal import Cluster

/// A sequence of events in a large cluster, with the cost of each.
package struct ClusterScale {
    package struct Row: Sendable {
        package var what: String
        /// The milliseconds until each partition was served and all gateways agreed on its owner; `nil` if that never happened.
        package var settled: Int64?
        /// The milliseconds until the last device was served again.
        package var lastDevice: Int64?
        package var partsMoved: Int
        package var reconnected: Int
        package var turnedAway: Int
        package var calls: Int
        package var mostCallsASecond: Int
        package var snapshots: Int
        package var snapshotBytes: Int
        /// The longest time that a call queued at the register's server, in milliseconds.
        package var longestWait: Int64
        /// The share of time in which the register's server was busy, from the event until the cluster was settled.
        package var registerBusy: Double
        package var lapses: Int
    }

    package let world: ClusterWorld
    private let gatewayCount: Int
    package private(set) var rows: [Row] = []

    package init(seed: UInt64, gateways: Int, parts: Int, devices: Int) {
        var settings = ClusterWorld.Settings()
        settings.partCount = parts
        settings.deviceCount = devices
        // The cost of a renewal on redis-server 7.0, rounded up (`make bench-cluster`, row register).
        (settings.callCost, settings.snapshotCost) = (25, 1)
        gatewayCount = gateways
        world = ClusterWorld(seed: seed, gatewayCount: gateways + 1, settings)
    }

    /// Runs all events; returns the violation, or `nil`.
    package mutating func run() -> String? {
        let (world, count) = (self.world, gatewayCount)
        observe("all \(count) start within two seconds") {
            for gateway in 0..<count {
                world.at(world.now + Int64(gateway) * 2_000 / Int64(count)) { world.start(gateway) }
            }
        }
        world.connectAllDevices()
        observe("a minute without events", quiet: 60_000) {}
        observe("SIGKILL of one") { world.kill(0) }
        observe("one joins") { world.start(0) }
        observe("power cut of one host") { world.killHost(1) }
        observe("it joins again") { world.start(1) }
        let tenth = max(1, count / 10)
        observe("SIGKILL of \(tenth) at once") { for gateway in 2..<2 + tenth { world.kill(gateway) } }
        observe("they join again") { for gateway in 2..<2 + tenth { world.start(gateway) } }
        observe("planned stop of one") { world.leave(count - 1) }
        observe("one more than before joins") {
            world.start(count - 1)
            world.start(count)
        }
        if let node = world.gateways[0].membership?.node {
            observe("drain of one") { world.wish(.drain(node)) }
            observe("drain undone") { world.wish(.undrain(node)) }
        }
        observe("register away for 6 s, loses its last change") { world.failRegister(for: 6_000, losesChange: true) }
        if let violation = world.violation { return violation }
        if let row = rows.first(where: { $0.settled == nil }) {
            return "\(row.what): \(world.unsettledReason ?? "devices are not served: \(world.servedCount)")"
        }
        return nil
    }

    private mutating func observe(_ what: String, quiet: Int64 = 0, _ event: () -> Void) {
        let world = self.world
        let before = (
            world.registerCallCount, world.snapshotCount, world.snapshotBytes, world.registerWork, world.now
        )
        world.resetTally()
        (world.mostCalls, world.longestWait) = (0, 0)
        event()
        // An event takes a moment to have an effect. Before that the cluster only seems settled.
        world.run(for: max(quiet, 2_500))
        let devices = rows.isEmpty ? 0 : world.settings.deviceCount
        // A check of the whole cluster after each event would cost more than the events.
        let limit = world.now + 120_000
        while world.violation == nil, world.now < limit, !(world.servedCount >= devices && world.isSettled) {
            world.run(for: 50)
        }
        let isSettled = world.violation == nil && world.now < limit
        let settledAt = world.tally.lastChange > before.4 ? world.tally.lastChange - before.4 : 0
        rows.append(
            Row(
                what: what, settled: isSettled ? settledAt : nil,
                lastDevice: world.tally.reconnected > 0 ? world.tally.lastServed - before.4 : nil,
                partsMoved: world.tally.takenByFailure + world.tally.handedOver, reconnected: world.tally.reconnected,
                turnedAway: world.tally.refusedAttempts, calls: world.registerCallCount - before.0,
                mostCallsASecond: world.mostCalls * 10, snapshots: world.snapshotCount - before.1,
                snapshotBytes: world.snapshotBytes - before.2, longestWait: world.longestWait,
                registerBusy: Double(world.registerWork - before.3) / Double((world.now - before.4) * 1_000),
                lapses: world.tally.lapses))
    }

    /// The table for docs/use/Cluster.md.
    package var table: String {
        var lines = [
            "| what happens | last part served | last device served | parts that moved | devices that came back, turned away "
                + "| register calls, most a second | snapshots | longest wait at the register | register busy |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for row in rows {
            let settled = row.settled.map { "\(Double($0 / 10) / 100) s" } ?? "never"
            let device = row.lastDevice.map { "\(Double($0 / 10) / 100) s" } ?? "–"
            let mebibytes = Double(row.snapshotBytes * 10 / (1 << 20)) / 10
            lines.append(
                "| \(row.what) | \(settled) | \(device) | \(row.partsMoved) | \(row.reconnected), \(row.turnedAway) "
                    + "| \(row.calls), \(row.mostCallsASecond)/s | \(row.snapshots), \(mebibytes) MiB "
                    + "| \(row.longestWait) ms | \(Int(row.registerBusy * 100 + 0.5)) % |")
        }
        return lines.joined(separator: "\n")
    }
}
