import Delivery
import Testing
import Wire

@testable import Gateway

@Suite("Results of the hook that wait for their partition")
struct KeptResultsTests {
    /// A coordinator whose partitions answer when the test decides.
    private final class Parts {
        private let partitions = FakePartitions(partitionCount: 2)
        private(set) lazy var coordinator = HandoffCoordinator(
            first: 0, partitions: partitions, knownApps: { .init(isComplete: true, keys: []) }, clock: { 0 })

        var asked: [(target: Int, results: [JobResult])] {
            partitions.open.compactMap { question in
                (question.request as? SettleJobs).map { (question.partition, $0.results) }
            }
        }

        /// Answers all open questions with the partitions' `verdict`.
        func answer(_ verdict: (_ target: Int) -> ResultVerdict.Verdict) {
            for question in partitions.takeOpen() {
                let results = (question.request as? SettleJobs)?.results ?? []
                question.answer(
                    results.map { ResultVerdict(job: $0.job, verdict: verdict(question.partition)) })
            }
        }
    }

    private func results() -> [JobResult] {
        (0..<2).map { part in
            JobResult(
                job: MessageID(bucket: Bucket(UInt16(part)), acceptedAt: 1, digest: UInt64(part)), leaseID: (1, 2),
                outcome: .accepted)
        }
    }

    @Test("a refused result is sent again until its partition accepts it, and accepted ones only once")
    func repeats() {
        let parts = Parts()
        let kept = parts.coordinator.kept
        kept.settle(results(), until: 300_000)
        #expect(parts.asked.count == 2 && kept.count == 2)
        parts.answer { $0 == 1 ? .storeFailed : .recorded }
        for second in 1...5 {
            #expect(kept.count == 1 && parts.coordinator.hasWorkUnderWay)
            parts.coordinator.tick(now: Int64(second) * 1_000)
            #expect(parts.asked.map(\.target) == [1] && parts.asked.first?.results.first?.outcome == .accepted)
            // A result is not sent again while its answer is pending.
            parts.coordinator.tick(now: Int64(second) * 1_000 + 500)
            #expect(parts.asked.count == 1)
            parts.answer { _ in second == 5 ? .recorded : .storeFailed }
        }
        #expect(kept.count == 0 && !parts.coordinator.hasWorkUnderWay)
        parts.coordinator.tick(now: 9_000)
        #expect(parts.asked.isEmpty)
    }

    @Test(
        "every verdict of a partition is final",
        arguments: [
            ResultVerdict.Verdict.stale, .cancelled, .unknownJob,
        ])
    func verdicts(verdict: ResultVerdict.Verdict) {
        let parts = Parts()
        parts.coordinator.kept.settle(results(), until: 300_000)
        parts.answer { _ in verdict }
        #expect(parts.coordinator.kept.count == 0)
    }

    @Test("results are dropped and reported when their leases expire")
    func bound() {
        let parts = Parts()
        let kept = parts.coordinator.kept
        var givenUp = 0
        kept.givenUp = { givenUp += $0 }
        kept.settle(results(), until: 3_000, isOfReceiver: true)
        parts.answer { _ in .storeFailed }
        parts.coordinator.tick(now: 2_999)
        parts.answer { _ in .storeFailed }
        #expect(givenUp == 0 && kept.count == 2)
        parts.coordinator.tick(now: 3_000)
        #expect(givenUp == 2 && kept.count == 0 && parts.asked.isEmpty)
    }

    @Test("results above the bound of settlements are sent later")
    func full() {
        let parts = Parts()
        for _ in 0..<HandoffCoordinator.settlementLimit {
            #expect(parts.coordinator.settle(results(), apps: nil) { _ in })
        }
        let kept = parts.coordinator.kept
        kept.settle(results(), until: 300_000)
        #expect(kept.count == 2)
        parts.answer { _ in .recorded }
        parts.coordinator.tick(now: 1_000)
        #expect(parts.asked.count == 2)
        parts.answer { _ in .recorded }
        #expect(kept.count == 0)
    }
}
