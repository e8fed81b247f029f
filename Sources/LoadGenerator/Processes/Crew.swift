internal import Synchronization

/// The workers of one run, wherever they run.
protocol Crew: AnyObject {
    /// Notices workers that are gone without a word, so that nobody waits for them at a gate.
    func look()
    /// Waits for all and returns what each found, in the order of the plans.
    func join() -> [WorkerTally]
    /// CPU nanoseconds that workers outside of this process have used so far.
    var outsideCPU: Int64 { get }
}

/// Workers as threads of this process.
final class ThreadCrew: Crew {
    private let threads: [WorkerThread]

    /// - Throws: `UsageError` when the system has no thread to spare; none runs then.
    init(_ plans: [WorkerPlan], _ coordinator: Coordinator) throws(UsageError) {
        threads = plans.map { WorkerThread($0, coordinator) }
        for thread in threads where !thread.start() {
            coordinator.abort()
            for thread in threads { _ = thread.join() }
            throw UsageError("the system has no thread to spare")
        }
    }

    func look() {}
    func join() -> [WorkerTally] { threads.map { $0.join() } }
    var outsideCPU: Int64 { 0 }
}
