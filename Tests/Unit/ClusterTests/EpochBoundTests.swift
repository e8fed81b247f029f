import Cluster
import Testing

@Suite("Epochs that no gateway assigned")
struct EpochBoundTests {
    @Test(
        "a log with an impossible epoch is retried later, and never claimed",
        arguments: [
            UInt64.max, PartEntry.highestEpoch, PartEntry.highestEpoch - 1,
        ])
    func impossible(top: UInt64) throws {
        let node = try #require(NodeID(1))
        var snapshot = RegisterSnapshot(version: 1, serverTime: 0, clockFloor: 0, partCount: 1)
        snapshot.members[node] = Member(info: MemberInfo(), instance: 7, since: 0, leaseEnd: 1 << 40)
        snapshot.entries[0] = PartEntry(epoch: 1, state: .claimed(node))
        let constants = ClusterConstants(format: 1, partCount: 1, tokenKey: [], queueEpoch: 1)
        var membership = Membership(
            JoinReply(node: node, constants: constants, snapshot: snapshot), instance: 7, info: MemberInfo(), sentAt: 0,
            now: 0)
        var now: Int64 = 0
        var seats: [UInt64] = []
        func note(_ actions: [MembershipAction]) {
            for case .seat(0, let epoch) in actions { seats.append(epoch) }
        }
        note(membership.take(.snapshot(snapshot, isRecreated: false, sentAt: now), now: now))
        note(membership.take(.tick, now: now))
        #expect(seats == [1])
        note(membership.take(.epochTaken(part: 0, epoch: 1, top: top), now: now))
        for _ in 0..<200 where seats.count < 2 {
            now += 100
            let reply = MembershipInput.unchanged(serverTime: now, sentAt: now)
            note(membership.take(reply, now: now))
            note(membership.take(.tick, now: now))
        }
        #expect(seats == [1, 1])
    }

    @Test("a damaged partition is retried with backoff, because each attempt reads the whole log")
    func damaged() throws {
        let node = try #require(NodeID(1))
        var snapshot = RegisterSnapshot(version: 1, serverTime: 0, clockFloor: 0, partCount: 1)
        snapshot.members[node] = Member(info: MemberInfo(), instance: 7, since: 0, leaseEnd: 1 << 40)
        snapshot.entries[0] = PartEntry(epoch: 1, state: .claimed(node))
        let constants = ClusterConstants(format: 1, partCount: 1, tokenKey: [], queueEpoch: 1)
        var membership = Membership(
            JoinReply(node: node, constants: constants, snapshot: snapshot), instance: 7, info: MemberInfo(), sentAt: 0,
            now: 0)
        var (now, tries): (Int64, [Int64]) = (0, [])
        func note(_ actions: [MembershipAction]) {
            for case .seat in actions { tries.append(now) }
        }
        note(membership.take(.snapshot(snapshot, isRecreated: false, sentAt: now), now: now))
        note(membership.take(.tick, now: now))
        var failed = 0
        while now < 3_600_000 {
            if tries.count > failed {
                failed = tries.count
                note(membership.take(.openFailed(part: 0, epoch: 1, isDamaged: true), now: now))
            }
            now += 100
            note(membership.take(.unchanged(serverTime: now, sentAt: now), now: now))
            note(membership.take(.tick, now: now))
        }
        // 2 + 4 + ... + 256 seconds, and then one every five minutes. An attempt every two seconds would be 1,800.
        #expect(tries.count > 10 && tries.count < 25, "\(tries)")
    }
}
