import Delivery
import Simulation
import TestKit
import Testing
import Wire

@Suite("The simulated store keeps the store contract") struct SimulatedStoreTests {
    private final class Harness: ShardStoreHarness {
        var simulated = SimulatedStore()
        var store: any ShardStore { simulated }
        func sync() {
            let ticket = simulated.lastTicket
            simulated.makeDurable(upTo: ticket)
            simulated.complete(upTo: ticket)
        }
        func answerReads() {
            while let token = simulated.waitingTokens.first { simulated.answer(token, failing: false) }
        }
        func cool() { simulated.cool(limit: .max) }
        func breathe() {}
        func reopen() { simulated = simulated.reopened() }
    }

    @Test("the store reports a breach of its bounds and continues")
    func bounds() throws {
        let harness = Harness()
        harness.simulated.batchByteCount = (8 << 20) - 64
        try checkShardStoreBounds(harness, bucket: Bucket(7))
    }

    @Test("a message's alarm is not reported once its job has a row")
    func successors() throws { try checkAlarmSuccessors(Harness()) }

    @Test("the store passes the conformance suite", arguments: 0..<30 as Range<UInt64>)
    func conformance(seed: UInt64) throws {
        try checkShardStoreConformance(
            Harness(), seed: seed, stepCount: 1_500, buckets: [Bucket(0), Bucket(7), Bucket(4_095)])
    }
}
