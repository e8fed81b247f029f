import Cluster
import Platform
import Testing

@testable import Gateway

@Suite("A gateway whose number is taken")
struct RejoinTests {
    /// A register that reports a taken number and refuses every join.
    private final class FullRegister: ClusterRegister, Sendable {
        let joins = Lock(0)
        func join(_ request: JoinRequest) throws(RegisterError) -> JoinReply {
            joins.withLock { $0 += 1 }
            throw .isFull
        }
        func renew(_ node: NodeID, instance: UInt64, info: MemberInfo, clock: Int64, seen: UInt64)
            throws(RegisterError) -> RenewReply
        { throw .replaced }
        func change(_ node: NodeID, instance: UInt64, _ changes: [PartChange]) throws(RegisterError) -> [PartEntry] {
            throw .replaced
        }
        func expire(_ node: NodeID, leaseEnd: Int64) throws(RegisterError) {}
        func leave(_ node: NodeID, instance: UInt64) throws(RegisterError) {}
        func wish(_ wish: RegisterRequest) throws(RegisterError) {}
        func renewHistory(id: UInt64) throws(RegisterError) {}
    }

    @Test("a refused join is followed by a pause")
    func pauses() throws {
        let register = FullRegister()
        let node = try #require(NodeID(1))
        let constants = ClusterConstants(format: 1, partCount: 1, tokenKey: [], queueEpoch: 1)
        let snapshot = RegisterSnapshot(version: 1, serverTime: 0, clockFloor: 0, partCount: 1)
        let outlet = MembershipRunner.Outlet(
            seat: { _, _ in }, unseat: { _, _ in }, route: { _, _ in }, link: { _ in }, renumber: { _ in },
            members: { _ in }, history: { _ in }, nudge: { _ in }, tell: { _ in }, failed: { _ in }, clock: { 0 })
        let pauses = Monitor(0)
        let runner = MembershipRunner(
            register, joined: JoinReply(node: node, constants: constants, snapshot: snapshot), instance: 7,
            info: MemberInfo(), sentAt: SystemClock.monotonicTime, outlet: outlet,
            pause: { milliseconds in
                Pause.milliseconds(milliseconds)
                pauses.broadcast { $0 += 1 }
            })
        try runner.start()
        // The bound only ends a test that fails anyway.
        let count = pauses.wait(atMostMilliseconds: 60_000, while: { $0 < 3 }) { $0 }
        runner.stop()
        #expect(count >= 3)
        #expect(register.joins.withLock { $0 } <= pauses.withLock { $0 } + 1)
    }
}
