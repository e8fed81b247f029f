/// The intervals and timeouts of the cluster membership, in milliseconds.
package struct ClusterTiming: Hashable, Sendable {
    /// The lease of a gateway; three renewals may be late before it expires.
    package var lease: Int64 = 2_000
    package var renewal: Int64 = 500
    /// The renewal interval while a partition has no owner or moves, and its increase for each member, which limits the load of
    /// one register server.
    package var fastRenewal: Int64 = 100
    package var fastRenewalPerMember: Int64 = 2
    /// The delay before the register is read again after a failed or conflicting change.
    package var shortestRenewal: Int64 = 10
    /// The lateness of a renewal after which a member is removed early, if its address also refuses connections.
    package var lateness: Int64 = 150
    /// The time that a new cluster waits for further gateways before the first one takes all partitions.
    package var settling: Int64 = 500
    /// The delay, per rank, before a candidate claims a partition in place of the node that the placement names.
    package var claimDelay: Int64 = 500
    /// The time for which a released partition is reserved for its successor.
    package var heirDelay: Int64 = 1_000
    /// The time that the previous owner waits for the successor to open a partition before it hands over the next one.
    package var handoverTimeout: Int64 = 2_000
    /// The time that a node does not claim a partition after it was fenced by a successor that the register does not show yet.
    package var lossDelay: Int64 = 1_500
    /// The first and the longest delay before a failed open of a partition is retried.
    package var openRetry: Int64 = 200
    package var longestOpenRetry: Int64 = 2_000
    /// The first and the longest retry delay for a partition with a damaged log.
    ///
    /// An operator must repair the log, and each try reads the whole log again.
    package var damagedRetry: Int64 = 2_000
    package var longestDamagedRetry: Int64 = 300_000
    /// The time for which a node gains no partition after its lease expired, doubled with each further expiry, and the maximum.
    package var probation: Int64 = 5_000
    package var longestProbation: Int64 = 300_000
    /// The time without expiry after which a node's count of expiries is reset.
    package var lapseMemory: Int64 = 600_000
    /// The time since the last lease renewal under a node number before the number is assigned again.
    package var numberRest: Int64 = 86_400_000

    package init() {}

    /// The largest accepted lead of a gateway's time over the server's time; a clock further ahead would expire every message of
    /// the cluster.
    package static let clockStep: Int64 = 3_600_000
    /// The end of the year 9999; later times are invalid, and sums of them could overflow.
    package static let latestTime: Int64 = 253_402_300_799_999

    /// The number of partitions that one node hands over concurrently, to balance the load and when it leaves.
    package static let handoverCount = 1
    package static let leavingHandoverCount = 4
    /// The number of failed opens of a partition after which another node should try.
    package static let openTryCount = 3
    /// The rank up to which the claim delay grows.
    package static let lowestRank = 8

    func fastInterval(memberCount: Int) -> Int64 {
        min(renewal, max(fastRenewal, fastRenewalPerMember * Int64(memberCount)))
    }

    func probation(lapseCount: Int) -> Int64 {
        guard lapseCount > 0 else { return 0 }
        return min(longestProbation, probation << Int64(min(lapseCount - 1, 10)))
    }
}
