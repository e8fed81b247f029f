import Cluster
import Testing

@Suite("A gateway that leaves")
struct LeaveTests {
    @Test("partitions that are being opened do not delay a leave: they are returned unopened")
    func opening() throws {
        let node = try #require(NodeID(1))
        var snapshot = RegisterSnapshot(version: 1, serverTime: 0, clockFloor: 0, partCount: 2)
        snapshot.members[node] = Member(info: MemberInfo(), instance: 7, since: 0, leaseEnd: 1 << 40)
        for part in 0..<2 { snapshot.entries[part] = PartEntry(epoch: 1, state: .claimed(node)) }
        let constants = ClusterConstants(format: 1, partCount: 2, tokenKey: [], queueEpoch: 1)
        var membership = Membership(
            JoinReply(node: node, constants: constants, snapshot: snapshot), instance: 7, info: MemberInfo(), sentAt: 0,
            now: 0)
        func feed(_ input: MembershipInput) {
            var inputs = [input]
            while let input = inputs.popLast() {
                for action in membership.take(input, now: 1) {
                    switch action {
                    case .unseat(let part, let epoch): inputs.append(.closed(part: part, epoch: epoch))
                    case .change(let changes): inputs.append(.changed(changes, changes.map(\.to)))
                    default: break
                    }
                }
            }
        }
        feed(.snapshot(snapshot, isRecreated: false, sentAt: 0))
        feed(.opened(part: 0, epoch: 1))
        #expect(membership.seats[1]?.phase == .opening)
        // The opening of part 1 waits for an owner of part 0, and no owner is left.
        feed(.leave)
        #expect(membership.hasLeft && membership.seats.isEmpty)
        #expect(membership.view.entries.allSatisfy { $0 == PartEntry(epoch: 1, state: .released(heir: nil)) })
    }
}
