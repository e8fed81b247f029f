import Delivery
import TestKit
import Testing
import Wire

/// Failures found by the simulation and the crash rounds, each in its shortest form.
@Suite("Races of jobs with the disk and the clock") struct JobRaceTests {
    private func leasedVendorFirst(_ harness: DeliveryHarness) throws -> (Phone, MessageID, Job) {
        let phone = harness.register(state: .background, token: "aa")
        let outcome = harness.publish(phone, strategy: .vendorElseLive)
        let job = try #require(harness.lease().first)
        harness.store.cool()
        return (phone, outcome.message, job)
    }

    private func rejected(_ job: Job) -> [JobResult] {
        [JobResult(job: job.message, leaseID: job.leaseID, outcome: .rejected, reason: "BadTopic")]
    }

    @Test("a verdict that moves a message to the live stream is reported only once the move is on disk")
    func verdictAfterMove() throws {
        let harness = DeliveryHarness()
        let (_, message, job) = try leasedVendorFirst(harness)
        harness.shard.settle(rejected(job), apps: nil, origin: .none, now: harness.now)
        harness.drain()
        while harness.store.waitingReadCount > 0 { harness.store.deliverReplies() }
        #expect(harness.verdicts.isEmpty)
        harness.flush()
        #expect(harness.verdicts.map { $0.map(\.verdict) } == [[.recorded]])
        harness.crash()
        #expect(harness.rowCount(.message) == 1)
        #expect(harness.rowCount(.vendorMessage) == 0)
        #expect(harness.finalState(message) == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("a verdict for an unreadable message is refused without effect, and its retry counts")
    func unreadableMove() throws {
        let harness = DeliveryHarness()
        let (_, message, job) = try leasedVendorFirst(harness)
        harness.store.readsFailFrom = harness.store.readCount + 1
        #expect(harness.settle(job, .rejected) == .storeFailed)
        harness.store.readsFailFrom = .max
        #expect(harness.rowCount(.vendorMessage) == 1)
        #expect(harness.settle(job, .rejected) == .recorded)
        #expect(harness.rowCount(.message) == 1)
        #expect(harness.finalState(message) == nil)
    }

    @Test("a lease that becomes durable only after its message's end is not returned")
    func leaseOvertakenByEnd() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        _ = harness.publish(phone, timeToLive: 5_000)
        harness.shard.lease(
            LeaseCommand(
                origin: .none, channel: .apns, apps: nil, limit: 5, leaseMilliseconds: 60_000, leaseID: (1, 1)),
            now: harness.now)
        harness.drain()
        harness.letTimePass(5_000)
        harness.flush()
        #expect(harness.leases.map(\.count) == [0])
        harness.advance(60_000)
        #expect(harness.imbalance() == nil)
        #expect(harness.rowCount(.message) == 0)
    }

    @Test("a device that connects between a job's alarm and its expiry does not prevent the expiry")
    func helloAtTheEnd() throws {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        let message = harness.publish(phone, timeToLive: 60_000).message
        harness.disconnect(phone)
        harness.settle(try #require(harness.lease().first), .accepted)
        harness.store.cool()
        // The message's own alarm was its fallback. Only the job's alarm is left.
        harness.advance(20_000)
        // The job's alarm is reported and the job is loaded, but its timer has not run yet.
        harness.letTimePass(40_000)
        harness.shard.advance(to: harness.now)
        harness.drain()
        harness.store.deliverReplies()
        harness.connect(&phone, state: .background) { $0.positions = [StreamPosition(sequence: 1)] }
        harness.advance(2_000)
        #expect(harness.finalState(message) == .handedOff)
        #expect(harness.rowCount(.job) == 0)
        #expect(harness.imbalance() == nil)
    }
}
