/// What an operator may want to know, as it happens.
package enum MembershipEvent: Hashable, Sendable {
    case memberJoined(NodeID, address: String, release: String)
    case memberLeft(NodeID, address: String)
    /// This gateway opened a part; `from`: who had it, `wasPlanned`: that one gave it.
    case partTaken(part: Int, epoch: UInt64, from: NodeID?, wasPlanned: Bool)
    case partGiven(part: Int, epoch: UInt64, to: NodeID?)
    /// A successor has fenced this gateway, or the register says so.
    case partLost(part: Int, epoch: UInt64)
    /// A part's log could not be opened; it is tried again.
    case openFailed(part: Int, epoch: UInt64)
    /// Another owner had opened the log under this epoch or a later one: the register had lost a change.
    case epochTaken(part: Int, epoch: UInt64, top: UInt64)
    /// The register had another owner than the one that the log obeys, this gateway, and was set right.
    case registerCorrected(part: Int, epoch: UInt64)
    /// A member that refuses connections and is late with its renewal was struck off.
    case memberExpired(NodeID)
    /// This gateway's lease had run out.
    case leaseLapsed(count: Int)
    /// All parts are given away.
    case left
}

/// What the caller is to do, in this order.
package enum MembershipAction: Hashable, Sendable {
    /// Open the part's log under this epoch and serve it; then `.opened`, `.epochTaken` or `.openFailed`.
    case seat(part: Int, epoch: UInt64)
    /// Stop serving it and make durable what was accepted; then `.closed`.
    case unseat(part: Int, epoch: UInt64)
    /// Send what is for the part to this node; `nil`: nobody has it now.
    case route(part: Int, to: NodeID?)
    /// Keep links to these addresses, and to no others.
    case link([NodeID: String])
    /// Compare and set in the register; then `.changed` or `.changeFailed`.
    case change([PartChange])
    /// Strike a member off, if it did not renew meanwhile.
    case expire(NodeID, leaseEnd: Int64)
    /// Tell a node to look at the register now; losing it costs time only.
    case nudge(NodeID)
    /// End this gateway's membership: it has given everything away.
    case leave
    case tell(MembershipEvent)
}

/// What the caller reports.
package enum MembershipInput: Hashable, Sendable {
    /// The register changed; `sentAt`: own monotonic time before the call that brought it.
    case snapshot(RegisterSnapshot, isRecreated: Bool, sentAt: Int64)
    /// The register is as it was, and the lease is renewed.
    case unchanged(serverTime: Int64, sentAt: Int64)
    case linkUp(NodeID)
    /// The link broke, or its peer does not answer.
    case linkDown(NodeID)
    /// The peer's host said that nothing listens there.
    case linkRefused(NodeID)
    /// The entries after a change, in its order.
    case changed([PartChange], [PartEntry])
    /// Unknown whether the change was made.
    case changeFailed([PartChange])
    case opened(part: Int, epoch: UInt64)
    /// The log has an entry of epoch `top`, at least as high as `epoch`.
    case epochTaken(part: Int, epoch: UInt64, top: UInt64)
    /// `isDamaged`: what the part has stored cannot be read, and another try finds the same.
    case openFailed(part: Int, epoch: UInt64, isDamaged: Bool = false)
    /// The open part's log obeys a successor.
    case lost(part: Int, epoch: UInt64)
    case closed(part: Int, epoch: UInt64)
    /// Give everything away and leave.
    case leave
    /// Time has passed.
    case tick
}
