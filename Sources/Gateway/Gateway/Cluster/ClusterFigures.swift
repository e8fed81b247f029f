package import Cluster
internal import Platform

/// The cluster in numbers, as one of its gateways sees it.
package struct ClusterFigures: Sendable {
    /// What happened to parts since the start.
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

    /// The links with one other gateway, both ways.
    package struct Link: Sendable {
        /// Its address for links: the same after a restart, as its number is not.
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

/// Whether a gateway of a cluster can do its part, for `/readyz`.
package struct ClusterHealth: Sendable, Equatable {
    /// Why it cannot: the word of the page.
    package enum Fault: String, Sendable {
        /// It gives its parts away.
        case draining
        /// Its lease has run out, and no part is left that it can serve.
        case redisAway
        /// It has no link to any of several other gateways.
        case clusterCut
        /// Nobody serves any part, as far as is known here.
        case noOwner
    }

    package var fault: Fault?
    package var node = 0
    package var ownedParts = 0
    package var partsWithoutOwner: [Int] = []
    /// When the lease was renewed last, in milliseconds since 1970.
    package var redisAwaySince: Int64?
    /// Addresses of gateways without a link.
    package var linksDown: [String] = []
    /// Only this gateway has lost the register: the others have its parts, and its devices are served there.
    package var isCutOff = false

    package init() {}

    /// Another gateway of the cluster, as this one's links know it.
    package struct Peer: Sendable {
        package var address: String
        package var isUp: Bool
        /// It said so in its last heartbeat.
        package var holdsLease: Bool

        package init(address: String, isUp: Bool, holdsLease: Bool = false) {
            (self.address, self.isUp, self.holdsLease) = (address, isUp, holdsLease)
        }
    }

    /// A lease that ended so long ago is one that the others have acted upon: parts are taken over within three seconds.
    package static let cutOffMilliseconds: Int64 = 10_000

    /// Judges what is known.
    ///
    /// A gateway is not ready when another one would serve better. Parts without owner are missing at every gateway, so they
    /// are reported and do not take every gateway from its balancer, unless all parts are missing. Of two gateways without a
    /// link neither is better. Without the register no gateway renews its lease and none can take parts over, so a gateway
    /// whose parts still take writes stays ready. It is cut off when another one holds its lease, or when it reaches none of
    /// them: a Redis that is away for all of them is no reason to disconnect devices.
    ///
    /// - Parameters:
    ///   - membership: this gateway's standing in the register.
    ///   - owners: the number of each part's owner; 0 for a part without one.
    ///   - node: this gateway's number.
    ///   - peers: the other gateways.
    ///   - renewedAt: the last renewal of the lease, in milliseconds since 1970.
    ///   - leaseAge: the time since then, in milliseconds.
    ///   - hasWorkingPart: the log of a part here takes writes, as far as is known.
    /// - Returns: the fault that takes the gateway from its balancer, if any, and what is missing.
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

    /// Why the gateway is not ready, or what is missing although it is; `nil`: nothing.
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
    /// Who serves each part, as far as is known here; 0: nobody.
    var allOwners: [Int] { (0..<partCount).map { owner(of: $0) } }
}

extension MembershipRunner.View {
    /// The other gateways and whether there is a link to each.
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
        // A gateway that starts again at its address is another member for as long as its old lease lasts.
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
