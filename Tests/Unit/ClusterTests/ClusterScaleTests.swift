import ClusterSimulation
import Testing

/// A short form of `make simulate-cluster`.
@Suite("A larger cluster in simulated time")
struct ClusterScaleTests {
    @Test("after each join and leave every partition and device is served again in bounded time")
    func comeAndGo() throws {
        var scale = ClusterScale(seed: 3, gateways: 24, parts: 64, devices: 12_000)
        let failure = scale.run()
        #expect(failure == nil, "\(failure ?? "")\n\(scale.table)")
        let quiet = try #require(scale.rows.first { $0.what == "a minute without events" })
        // The register sends only changes: two short calls a second from each gateway, whatever the size.
        #expect(quiet.snapshots <= 24 && quiet.calls <= 24 * 130 && quiet.partsMoved == 0)
        for row in scale.rows.dropFirst(2) where row.reconnected > 0 {
            let last = try #require(row.lastDevice)
            #expect(last <= 5_000, "\(row.what): the last device was served after \(last) ms")
            // A refused device waits at least a second.
            #expect(row.turnedAway <= 5 * row.reconnected, "\(row.what): \(row.turnedAway) times turned away")
        }
        #expect(scale.rows.allSatisfy { $0.longestWait < 100 && $0.registerBusy < 0.5 }, "\(scale.table)")
        let failover = try #require(scale.rows.last)
        #expect(failover.partsMoved == 0 && failover.reconnected == 0)
    }
}
