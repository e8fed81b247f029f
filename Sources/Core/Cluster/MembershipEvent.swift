/// A change of the membership that is reported to the operator.
package enum MembershipEvent: Hashable, Sendable {
    case memberJoined(NodeID, address: String, release: String)
    case memberLeft(NodeID, address: String)
    /// This gateway opened a partition.
    ///
    /// `from` is the previous owner; `wasPlanned` is true for a handover by that owner.
    case partTaken(part: Int, epoch: UInt64, from: NodeID?, wasPlanned: Bool)
    case partGiven(part: Int, epoch: UInt64, to: NodeID?)
    /// A successor fenced this gateway, or the register shows another owner.
    case partLost(part: Int, epoch: UInt64)
    /// The partition's log could not be opened; the open will be retried.
    case openFailed(part: Int, epoch: UInt64)
    /// Another owner opened the log under this or a later epoch, because the register lost a change.
    case epochTaken(part: Int, epoch: UInt64, top: UInt64)
    /// The register named another owner although the log accepts this gateway; this gateway corrects the entry.
    case registerCorrected(part: Int, epoch: UInt64)
    /// A member was removed because it refuses connections and its renewal is late.
    case memberExpired(NodeID)
    case leaseLapsed(count: Int)
    /// All partitions are handed over.
    case left
}

/// A command for the caller; commands must be executed in order.
package enum MembershipAction: Hashable, Sendable {
    /// Open the partition's log under this epoch and serve it; report `.opened`, `.epochTaken` or `.openFailed`.
    case seat(part: Int, epoch: UInt64)
    /// Stop serving the partition and commit accepted writes; report `.closed`.
    case unseat(part: Int, epoch: UInt64)
    /// Route the partition's traffic to this node; `nil` if no node owns the partition.
    case route(part: Int, to: NodeID?)
    case link([NodeID: String])
    /// Compare and set the entries in the register; report `.changed` or `.changeFailed`.
    case change([PartChange])
    /// Remove a member, unless it has renewed its lease since `leaseEnd` was read.
    case expire(NodeID, leaseEnd: Int64)
    /// Ask a node to read the register now; a lost request only delays the handover.
    case nudge(NodeID)
    /// End this gateway's membership; it owns no partition any more.
    case leave
    case tell(MembershipEvent)
}

package enum MembershipInput: Hashable, Sendable {
    /// The register changed; `sentAt` is this node's monotonic time before the call that returned the snapshot.
    case snapshot(RegisterSnapshot, isRecreated: Bool, sentAt: Int64)
    case unchanged(serverTime: Int64, sentAt: Int64)
    case linkUp(NodeID)
    /// The link failed, or the peer does not answer.
    case linkDown(NodeID)
    /// The peer's host refused the connection because nothing listens there.
    case linkRefused(NodeID)
    /// The entries after a compare-and-set, in the order of the changes.
    case changed([PartChange], [PartEntry])
    /// The result of the compare-and-set is unknown.
    case changeFailed([PartChange])
    case opened(part: Int, epoch: UInt64)
    /// The log contains an entry of epoch `top`, which is at least `epoch`.
    case epochTaken(part: Int, epoch: UInt64, top: UInt64)
    /// The log could not be opened; `isDamaged` is true if stored data is unreadable and a retry will fail the same way.
    case openFailed(part: Int, epoch: UInt64, isDamaged: Bool = false)
    /// The log of an open partition accepted a successor.
    case lost(part: Int, epoch: UInt64)
    case closed(part: Int, epoch: UInt64)
    case leave
    case tick
}
