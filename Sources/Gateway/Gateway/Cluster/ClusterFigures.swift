package import Cluster
internal import Platform

package struct ClusterFigures: Sendable {
    /// The number of membership events since the start.
    package struct Counts: Sendable {
        package var takenOver = 0
        package var received = 0
        package var given = 0
        package var lost = 0
        package var openFailures = 0
        package var lapsedLeases = 0

        package init() {}

        package mutating func note(_ event: MembershipEvent) {
            switch event {
            case .partTaken(_, _, _, let wasPlanned): if wasPlanned { received += 1 } else { takenOver += 1 }
            case .partGiven: given += 1
            case .partLost: lost += 1
            case .openFailed, .epochTaken: openFailures += 1
            case .leaseLapsed: lapsedLeases += 1
            case .memberJoined, .memberLeft, .memberExpired, .registerCorrected, .left: break
            }
        }
    }

    package struct Link: Sendable {
        /// The peer's link address, which stays the same across restarts; the peer's node number changes.
        package var peer: String
        package var isUp = false
        package var sentBytes: UInt64 = 0
        package var receivedBytes: UInt64 = 0
        package var refusedBatches: UInt64 = 0
        package init(peer: String) { self.peer = peer }
    }

    package var members = 0
    package var ownedParts = 0
    package var otherParts = 0
    package var partsWithoutOwner = 0
    package var counts = Counts()
    package var leaseAge: Int64 = 0
    package var registerTimes = MetricHistogram()
    package var registerFailures = 0
    package var clockOffset: Int64 = 0
    package var links: [Link] = []
    var traffic = LinkStatistics()

    package init() {}
}

/// The gateway's ability to serve in the cluster, for `/readyz`.
package struct ClusterHealth: Sendable, Equatable {
    /// The reason the gateway is not ready; the raw value appears in `/readyz`.
    package enum Fault: String, Sendable {
        case draining
        /// The lease has expired and no partition here can take writes.
        case redisAway
        /// All links are down, and the cluster has at least two other gateways.
        case clusterCut
        /// No partition has a known owner.
        case noOwner
    }

    package var fault: Fault?
    package var node = 0
    package var ownedParts = 0
    package var partsWithoutOwner: [Int] = []
    /// The last lease renewal, in milliseconds since 1970, while the register is unreachable; otherwise `nil`.
    package var redisAwaySince: Int64?
    package var linksDown: [String] = []
    /// Whether only this gateway has lost the register; the others then own its partitions and can serve its devices.
    package var isCutOff = false

    package init() {}

    package struct Peer: Sendable {
        package var address: String
        package var isUp: Bool
        /// Whether the peer's last heartbeat reported a valid lease.
        package var holdsLease: Bool

        package init(address: String, isUp: Bool, holdsLease: Bool = false) {
            (self.address, self.isUp, self.holdsLease) = (address, isUp, holdsLease)
        }
    }

    /// The lease age, in milliseconds, at which the other gateways have taken over; a takeover needs at most three seconds.
    package static let cutOffMilliseconds: Int64 = 10_000

    /// Derives the health of this gateway.
    ///
    /// A gateway is not ready if another one would serve devices better. Partitions without an owner affect all gateways equally.
    /// They are reported, but they make the gateway not ready only if all partitions lack an owner. With two gateways, a broken
    /// link does not show which side is better.
    ///
    /// Without the register, all leases expire and takeovers stop. A gateway whose partitions still take writes therefore stays
    /// ready. A gateway that cannot write is cut off if a peer still holds its lease, or if all links are down. A Redis outage
    /// that affects all gateways is no reason to disconnect devices.
    ///
    /// - Parameters:
    ///   - membership: This gateway's state in the register.
    ///   - owners: The owner's number for each partition; 0 without an owner.
    ///   - node: This gateway's number.
    ///   - peers: The other gateways.
    ///   - renewedAt: The last renewal of the lease, in milliseconds since 1970.
    ///   - leaseAge: The time since the last renewal, in milliseconds.
    ///   - hasWorkingPart: Whether the log of at least one partition here is known to take writes.
    /// - Returns: The fault that makes the gateway not ready, if any, and the missing partitions and links.
    package static func judge(
        membership: Membership.Health, owners: [Int], node: Int, peers: [Peer],
        renewedAt: Int64, leaseAge: Int64, hasWorkingPart: Bool
    ) -> ClusterHealth {
        var health = ClusterHealth()
        health.node = node
        health.ownedParts = owners.count { $0 == node }
        health.partsWithoutOwner = owners.indices.filter { owners[$0] == 0 }
        health.linksDown = peers.filter { !$0.isUp }.map(\.address).sorted()
        switch membership {
        case .registerUnreachable:
            if !hasWorkingPart { health.fault = .redisAway }
            health.redisAwaySince = renewedAt
            let isAlone = !peers.isEmpty && health.linksDown.count == peers.count
            health.isCutOff =
                !hasWorkingPart && leaseAge > cutOffMilliseconds && (isAlone || peers.contains(where: \.holdsLease))
        case .drains: health.fault = .draining
        case .serves, .ownsNothing:
            if peers.count > 1, health.linksDown.count == peers.count {
                health.fault = .clusterCut
            } else if health.partsWithoutOwner.count == owners.count {
                health.fault = .noOwner
            }
        }
        return health
    }

    /// The reason the gateway is not ready, or the problems of a ready gateway; `nil` without problems.
    package var reason: String? {
        var words: [String] = []
        switch fault {
        case .draining: words.append("this gateway gives its parts to the others")
        case .clusterCut: words.append("this gateway reaches no other one")
        case .redisAway, .noOwner, nil: break
        }
        if redisAwaySince != nil { words.append("the register in Redis cannot be reached: the lease has run out") }
        if isCutOff { words.append("the other gateways have its parts: its devices are disconnected and go to them") }
        if !partsWithoutOwner.isEmpty {
            let list = partsWithoutOwner.map { "\($0)" }.joined(separator: ", ")
            words.append(partsWithoutOwner.count == 1 ? "no owner for part \(list)" : "no owner for parts \(list)")
        }
        if fault != .clusterCut, !linksDown.isEmpty { words.append("no link to \(linksDown.joined(separator: ", "))") }
        return words.isEmpty ? nil : words.joined(separator: "; ")
    }
}

extension ClusterContext {
    /// The known owner of each partition; 0 without an owner.
    var allOwners: [Int] { (0..<partCount).map { owner(of: $0) } }
}

extension MembershipRunner.View {
    private func others(_ links: ClusterLinks) -> [(node: Int, peer: ClusterHealth.Peer)] {
        snapshot.members.filter { $0.key != node && !$0.value.info.address.isEmpty }.map { member in
            let number = Int(member.key.number)
            let peer = ClusterHealth.Peer(
                address: member.value.info.address, isUp: links.hub?.isUp(number) ?? false,
                holdsLease: links.hub?.holdsLease(number) ?? false)
            return (number, peer)
        }
    }

    func health(_ context: ClusterContext, _ links: ClusterLinks, hasWorkingPart: Bool) -> ClusterHealth {
        let now = SystemClock.monotonicTime
        let others = others(links)
        return ClusterHealth.judge(
            membership: membership.health(now: now), owners: context.allOwners, node: context.node,
            peers: others.map(\.peer), renewedAt: ClockCheck.now() - (now - membership.renewedAt),
            leaseAge: now - membership.renewedAt, hasWorkingPart: hasWorkingPart)
    }

    func figures(_ context: ClusterContext, _ links: ClusterLinks, _ counts: ClusterFigures.Counts) -> ClusterFigures {
        var figures = ClusterFigures()
        let owners = context.allOwners
        figures.members = snapshot.members.count
        figures.ownedParts = owners.count { $0 == context.node }
        figures.partsWithoutOwner = owners.count { $0 == 0 }
        figures.otherParts = owners.count - figures.ownedParts - figures.partsWithoutOwner
        figures.counts = counts
        figures.leaseAge = max(0, SystemClock.monotonicTime - membership.renewedAt)
        (figures.registerTimes, figures.registerFailures) = (registerTimes, registerFailures)
        figures.clockOffset = clockOffset
        // A restarted gateway has two members with the same address until the lease of the old member ends.
        var byAddress: [String: ClusterFigures.Link] = [:]
        for other in others(links) {
            var link = byAddress[other.peer.address] ?? ClusterFigures.Link(peer: other.peer.address)
            let bytes = links.hub?.figures(of: other.node) ?? LinkFigures()
            link.isUp = link.isUp || other.peer.isUp
            link.sentBytes += bytes.sentBytes
            link.receivedBytes += bytes.receivedBytes
            link.refusedBatches += bytes.refusedBatches
            byAddress[other.peer.address] = link
        }
        figures.links = byAddress.values.sorted { $0.peer < $1.peer }
        figures.traffic = links.hub?.statistics ?? LinkStatistics()
        return figures
    }
}
