import Testing
import TextForms

@testable import LoadGenerator

@Suite("Merging workers")
struct MergeTests {
    private struct Generator: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state ^ state >> 29
        }
    }

    private func durations(_ count: Int, seed: UInt64) -> [Int64] {
        var generator = Generator(state: seed)
        return (0..<count).map { _ in
            Int64(generator.next() >> 1) >> Int64.random(in: 20...60, using: &generator)
        }
    }

    @Test("histograms of parts, merged, equal the histogram of all", arguments: [1, 2, 7])
    func histograms(parts: Int) {
        let values = durations(5_000, seed: UInt64(parts))
        var whole = Histogram()
        var pieces = [Histogram](repeating: Histogram(), count: parts)
        for (index, value) in values.enumerated() {
            whole.record(value)
            pieces[index % parts].record(value)
        }
        var merged = Histogram()
        for piece in pieces { merged.merge(piece) }
        #expect(merged.count == whole.count && merged.minimum == whole.minimum && merged.maximum == whole.maximum)
        for percent in [0, 1, 50, 90, 99, 99.9, 99.99, 100] {
            #expect(merged.percentile(percent) == whole.percentile(percent))
        }
        // Only floating-point sums depend on their order.
        #expect(abs(merged.mean - whole.mean) <= whole.mean * 1e-9)
    }

    @Test("sets of jobs count common ones once")
    func jobs() {
        var one = JobSet()
        var two = JobSet()
        let first = (0..<100).map { one.insert(publisher: 0, number: UInt64($0)) }
        let again = one.insert(publisher: 0, number: 64)
        #expect(first.allSatisfy { $0 } && !again)
        for number in UInt64(90)..<300 { _ = two.insert(publisher: 0, number: number) }
        _ = two.insert(publisher: 5, number: 7)
        let common = one.merge(two)
        #expect(common == 10 && one.count == 301)
        let none = one.merge(JobSet())
        #expect(none == 0)
    }

    @Test("tallies add every count, and jobs of two workers become repeats")
    func tallies() {
        var one = WorkerTally()
        (one.accepted, one.delivered, one.stalls, one.busiest, one.totalCPU) = (5, 4, 1, 0.5, 10)
        one.remainder.undelivered = 1
        one.failures = ["a": 1]
        _ = one.jobs.insert(publisher: 1, number: 1)
        var two = WorkerTally()
        (two.accepted, two.delivered, two.repeats, two.busiest, two.totalCPU) = (7, 7, 2, 0.25, 20)
        two.failures = ["a": 2, "b": 1]
        two.fatal = "x"
        _ = two.jobs.insert(publisher: 1, number: 1)
        one.merge(two)
        #expect(one.accepted == 12 && one.delivered == 11 && one.stalls == 1 && one.repeats == 3)
        #expect(one.busiest == 0.5 && one.totalCPU == 30 && one.remainder.undelivered == 1)
        #expect(one.failures == ["a": 3, "b": 1] && one.fatal == "x")
    }

    @Test("connections are spread over as few threads as the limit of open files allows")
    func threads() throws {
        let files = 1_000 + Limits.spareDescriptorCount
        func threads(_ connections: Int, _ wish: Int? = nil) throws(CommandFailure) -> (Int, Bool) {
            try Run.threads(for: connections, wish: wish, files: files)
        }
        #expect(try threads(1_000) == (1, false) && threads(1_001) == (2, true) && threads(0) == (1, false))
        #expect(try threads(10, 4) == (4, false) && threads(1_001, 4) == (4, true))
        let error = #expect(throws: CommandFailure.self) { try threads(3_500, 2) }
        #expect(error?.description.contains("--threads 4") == true)
        #expect(throws: CommandFailure.self) { try threads(1_000_000) }
    }

    @Test("workers wait for each other at gates")
    func gates() {
        let coordinator = Coordinator(workers: 2)
        coordinator.arrive(.ready)
        #expect(!coordinator.isComplete(.ready) && coordinator.gate(.ready) == .closed)
        coordinator.arrive(.ready)
        #expect(coordinator.isComplete(.ready) && !coordinator.isComplete(.second))
        coordinator.open(.ready, at: 42)
        coordinator.add(5, to: .delivered)
        #expect(coordinator.count(.delivered) == 5 && coordinator.count(.accepted) == 0)
        coordinator.abort()
        #expect(coordinator.gate(.ready) == .open(42) && coordinator.gate(.second) == .aborted)
        #expect(!coordinator.hasFinished)
        coordinator.finish()
        #expect(coordinator.hasFinished)
    }
}
