/// The times of the membership, in milliseconds, each with its reason.
package struct ClusterTiming: Hashable, Sendable {
    /// A gateway that has not renewed for this long counts as gone; three renewals may be late before it does.
    package var lease: Int64 = 2_000
    package var renewal: Int64 = 500
    /// Between renewals while a part has no owner or moves; more where many gateways ask one server.
    package var fastRenewal: Int64 = 100
    package var fastRenewalPerMember: Int64 = 2
    /// Before the register is read again because what this node knows of it was wrong.
    package var shortestRenewal: Int64 = 10
    /// A member that is this late with a renewal, and whose address refuses connections, is taken for dead.
    package var lateness: Int64 = 150
    /// How long a new cluster waits for others to join before the first one takes all parts.
    package var settling: Int64 = 500
    /// What each later choice waits for a part's first choice to claim it.
    package var claimDelay: Int64 = 500
    /// How long a part that was given back is kept for its heir.
    package var heirDelay: Int64 = 1_000
    /// How long a giver waits for the heir to serve a part before it gives the next one.
    package var handoverTimeout: Int64 = 2_000
    /// After it lost a part to a successor that the register does not show, a node waits this long for it to show.
    package var lossDelay: Int64 = 1_500
    /// Before a part that could not be opened is opened again: the first delay and the longest.
    package var openRetry: Int64 = 200
    package var longestOpenRetry: Int64 = 2_000
    /// The same for a part whose log is damaged, until an operator has repaired it: each try reads all of the log again.
    package var damagedRetry: Int64 = 2_000
    package var longestDamagedRetry: Int64 = 300_000
    /// A node whose lease ran out gets no part for this long, doubled with each further time.
    package var probation: Int64 = 5_000
    package var longestProbation: Int64 = 300_000
    /// A node that was steady for this long starts again without lapses.
    package var lapseMemory: Int64 = 600_000
    /// A number is not given to another gateway before this is over.
    package var numberRest: Int64 = 86_400_000

    package init() {}

    /// A gateway time that is further ahead of the server's is taken for broken: it would end every message of the cluster.
    package static let clockStep: Int64 = 3_600_000
    /// A time beyond the year 9999 is no time of ours, and sums could overflow.
    package static let latestTime: Int64 = 253_402_300_799_999

    /// Parts that one node gives away at a time, to balance the load and when it leaves.
    package static let handoverCount = 1
    package static let leavingHandoverCount = 4
    /// After this many failures to open a part, another node shall try.
    package static let openTryCount = 3
    /// Lower ranks than this wait no longer.
    package static let lowestRank = 8

    func fastInterval(memberCount: Int) -> Int64 {
        min(renewal, max(fastRenewal, fastRenewalPerMember * Int64(memberCount)))
    }

    func probation(lapseCount: Int) -> Int64 {
        guard lapseCount > 0 else { return 0 }
        return min(longestProbation, probation << Int64(min(lapseCount - 1, 10)))
    }
}
