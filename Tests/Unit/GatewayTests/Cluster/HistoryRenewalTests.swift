import Cluster
import Platform
import Testing

@testable import Gateway

@Suite("The renewal of the store's history")
struct HistoryRenewalTests {
    /// A register with a history that fails as often as the test requires.
    private final class HistoryRegister: ClusterRegister, Sendable {
        struct State {
            var snapshot = RegisterSnapshot(version: 1, serverTime: 0, clockFloor: 0, partCount: 1)
            /// The number of failed renewals before one succeeds.
            var failures = 0
            var isAway = false
        }
        let state = Lock(State())

        var joined: JoinReply {
            JoinReply(
                node: NodeID(1)!, constants: ClusterConstants(format: 1, partCount: 1, tokenKey: [], queueEpoch: 1),
                snapshot: state.withLock { $0.snapshot })
        }
        func join(_ request: JoinRequest) throws(RegisterError) -> JoinReply {
            joined
        }
        func renew(_ node: NodeID, instance: UInt64, info: MemberInfo, clock: Int64, seen: UInt64)
            throws(RegisterError) -> RenewReply
        {
            state.withLock { state in
                seen == state.snapshot.version
                    ? .unchanged(serverTime: 0, clockFloor: 0) : .changed(state.snapshot, isRecreated: false)
            }
        }
        func change(_ node: NodeID, instance: UInt64, _ changes: [PartChange]) throws(RegisterError) -> [PartEntry] {
            changes.map(\.to)
        }
        func expire(_ node: NodeID, leaseEnd: Int64) throws(RegisterError) {}
        func leave(_ node: NodeID, instance: UInt64) throws(RegisterError) {}
        func wish(_ wish: RegisterRequest) throws(RegisterError) {}
        func renewHistory(id: UInt64) throws(RegisterError) {
            try state.withLock { state throws(RegisterError) in
                guard state.failures == 0, !state.isAway else {
                    state.failures = max(0, state.failures - 1)
                    throw .unavailable("planned")
                }
                state.snapshot.version += 1
                state.snapshot.history = ClusterHistory(id: id, began: 5)
            }
        }
    }

    private let register = HistoryRegister()
    private let told = Monitor<ClusterHistory?>(nil)

    private func makeRunner() -> MembershipRunner {
        let outlet = MembershipRunner.Outlet(
            seat: { _, _ in }, unseat: { _, _ in }, route: { _, _ in }, link: { _ in }, renumber: { _ in },
            members: { _ in }, history: { [told] history in told.broadcast { $0 = history } }, nudge: { _ in },
            tell: { _ in }, failed: { _ in }, clock: { 0 })
        return MembershipRunner(
            register, joined: register.joined, instance: 7, info: MemberInfo(), sentAt: SystemClock.monotonicTime,
            outlet: outlet)
    }

    @Test("a caller that waits for another history continues once the register and all loops have it")
    func renewed() throws {
        register.state.withLock { $0.failures = 2 }
        let runner = makeRunner()
        try runner.start()
        defer { runner.stop() }
        /// The histories of the register and of the loops when a caller continues.
        let found = Monitor<[(isRenewed: Bool, kept: ClusterHistory, told: ClusterHistory?)]>([])
        for _ in 0..<2 {
            runner.renewHistory { [register, told] isRenewed in
                let finding = (isRenewed, register.state.withLock { $0.snapshot.history }, told.withLock { $0 })
                found.broadcast { $0.append(finding) }
            }
        }
        // The bound only ends a test that fails anyway.
        let findings = found.wait(atMostMilliseconds: 60_000, while: { $0.count < 2 }) { $0 }
        #expect(findings.count == 2)
        for finding in findings {
            #expect(finding.isRenewed && finding.kept.began == 5 && finding.told == finding.kept)
        }
    }

    @Test("a caller that waits for an unreachable register is notified when the gateway stops")
    func stops() throws {
        register.state.withLock { $0.isAway = true }
        let runner = makeRunner()
        try runner.start()
        let answers = Lock<[Bool]>([])
        runner.renewHistory { isRenewed in answers.withLock { $0.append(isRenewed) } }
        runner.stop()
        #expect(answers.withLock { $0 } == [false])
        runner.renewHistory { isRenewed in answers.withLock { $0.append(isRenewed) } }
        #expect(answers.withLock { $0 } == [false, false])
    }
}
