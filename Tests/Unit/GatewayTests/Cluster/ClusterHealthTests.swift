import Cluster
import Redis
import Testing

@testable import Gateway

@Suite("The health of a gateway in a cluster")
struct ClusterHealthTests {
    private func judge(
        _ membership: Membership.Health = .serves, owners: [Int] = [1, 2, 3, 1],
        links: [(address: String, isUp: Bool)] = [("a:1", true), ("b:1", true)], holders: Set<String> = [],
        leaseAge: Int64 = 4_000, hasWorkingPart: Bool = false
    ) -> ClusterHealth {
        ClusterHealth.judge(
            membership: membership, owners: owners, node: 1,
            peers: links.map {
                ClusterHealth.Peer(address: $0.address, isUp: $0.isUp, holdsLease: holders.contains($0.address))
            },
            renewedAt: 5_000, leaseAge: leaseAge, hasWorkingPart: hasWorkingPart)
    }

    @Test("a healthy gateway reports no reason")
    func well() {
        let health = judge()
        #expect(health.fault == nil && health.reason == nil)
        #expect(health.ownedParts == 2 && health.partsWithoutOwner.isEmpty)
    }

    @Test("one partition without an owner is reported but keeps the gateway ready; all of them make it unready")
    func owners() {
        let some = judge(owners: [1, 0, 3, 0])
        #expect(some.fault == nil && some.reason == "no owner for parts 1, 3" && some.partsWithoutOwner == [1, 3])
        #expect(judge(owners: [1, 0]).reason == "no owner for part 1")
        let none = judge(owners: [0, 0])
        #expect(none.fault == .noOwner && none.reason == "no owner for parts 0, 1")
    }

    @Test("an expired lease is reported with the time of its expiry")
    func redisAway() {
        let health = judge(.registerUnreachable)
        #expect(health.fault == .redisAway && health.redisAwaySince == 5_000)
        #expect(health.reason == "the register in Redis cannot be reached: the lease has run out")
    }

    @Test("without the register, a gateway with writable partitions stays ready and reports the reason")
    func registerAwayAlone() {
        let health = judge(.registerUnreachable, hasWorkingPart: true)
        #expect(health.fault == nil && health.redisAwaySince == 5_000)
        #expect(health.reason == "the register in Redis cannot be reached: the lease has run out")
    }

    @Test("a gateway that reaches none of several peers is cut off; with two gateways neither is")
    func cut() {
        let cut = judge(links: [("b:1", false), ("a:1", false)])
        #expect(cut.fault == .clusterCut && cut.linksDown == ["a:1", "b:1"])
        #expect(cut.reason == "this gateway reaches no other one")
        let half = judge(links: [("b:1", false), ("a:1", true)])
        #expect(half.fault == nil && half.reason == "no link to b:1")
        #expect(judge(links: [("b:1", false)]).fault == nil)
        #expect(judge(links: []).fault == nil)
    }

    @Test("a gateway is cut off if another one holds its lease or it reaches no peer, but not if Redis fails for all")
    func cutOff() {
        func isCutOff(_ links: [(address: String, isUp: Bool)], holders: Set<String> = [], age: Int64 = 10_001) -> Bool
        {
            judge(.registerUnreachable, links: links, holders: holders, leaseAge: age).isCutOff
        }
        let both = [(address: "a:1", isUp: true), (address: "b:1", isUp: true)]
        #expect(isCutOff(both, holders: ["b:1"]))
        #expect(!isCutOff(both))
        #expect(isCutOff([("a:1", false), ("b:1", false)]))
        #expect(!isCutOff([("a:1", false), ("b:1", true)]))
        // The others need a moment to take over. A single gateway has no peer for its devices.
        #expect(!isCutOff(both, holders: ["b:1"], age: 10_000))
        #expect(!isCutOff([]))
        // A gateway with a lease or with writable partitions is not cut off.
        #expect(!judge(.serves, holders: ["a:1"], leaseAge: 60_000).isCutOff)
        #expect(
            !judge(.registerUnreachable, holders: ["a:1"], leaseAge: 60_000, hasWorkingPart: true).isCutOff)
    }

    @Test("a gateway that hands over its partitions reports that above all other reasons")
    func draining() {
        #expect(judge(.drains, links: [("a:1", false), ("b:1", false)]).fault == .draining)
        #expect(judge(.ownsNothing).fault == nil)
    }

    @Test("a clock offset is only the part that no moment of the round trip explains")
    func offset() {
        #expect(ClockCheck.offset(before: 1_000, after: 1_010, server: 1_005) == 0)
        #expect(ClockCheck.offset(before: 1_000, after: 1_010, server: 990) == 10)
        #expect(ClockCheck.offset(before: 1_000, after: 5_000, server: 6_500) == -1_500)
        // A slow answer may hide an offset, but never creates one.
        #expect(ClockCheck.offset(before: 1_000, after: 9_000, server: 2_000) == 0)
    }

    @Test("events are counted by their meaning")
    func counts() throws {
        let node = try #require(NodeID(3 as UInt16))
        var counts = ClusterFigures.Counts()
        counts.note(.partTaken(part: 1, epoch: 2, from: node, wasPlanned: true))
        counts.note(.partTaken(part: 1, epoch: 3, from: node, wasPlanned: false))
        counts.note(.partTaken(part: 2, epoch: 3, from: nil, wasPlanned: false))
        counts.note(.partGiven(part: 1, epoch: 2, to: node))
        counts.note(.partLost(part: 1, epoch: 2))
        counts.note(.leaseLapsed(count: 1))
        counts.note(.openFailed(part: 1, epoch: 2))
        #expect(counts.received == 1 && counts.takenOver == 2 && counts.given == 1 && counts.lost == 1)
        #expect(counts.lapsedLeases == 1 && counts.openFailures == 1)
    }

    @Test("each link has its samples, and without a cluster its metrics are absent")
    func page() {
        var figures = MetricFigures()
        var text = String(decoding: MetricsPage.render(figures), as: UTF8.self)
        #expect(!text.contains("longwire_cluster") && !text.contains("longwire_redis"))
        var cluster = ClusterFigures()
        var link = ClusterFigures.Link(peer: "10.0.0.2:7100")
        link.isUp = true
        link.sentBytes = 42
        cluster.links = [link, ClusterFigures.Link(peer: "10.0.0.3:7100")]
        cluster.partsWithoutOwner = 2
        cluster.leaseAge = 1_500
        figures.cluster = cluster
        text = String(decoding: MetricsPage.render(figures), as: UTF8.self)
        for line in [
            "longwire_cluster_link_up{peer=\"10.0.0.2:7100\"} 1", "longwire_cluster_link_up{peer=\"10.0.0.3:7100\"} 0",
            "longwire_cluster_link_sent_bytes_total{peer=\"10.0.0.2:7100\"} 42",
            "longwire_cluster_parts{state=\"unowned\"} 2", "longwire_cluster_lease_age_seconds 1.5",
        ] {
            #expect(text.split(separator: "\n").contains(line[...]), "\(line)")
        }
    }
}
