internal import Cryptography
internal import Platform

/// A thread that runs one worker.
///
/// Sound although unchecked: `plan` and `coordinator` are Sendable. The thread writes `tally` before it ends, and `join` returns
/// it after that.
final class WorkerThread: @unchecked Sendable {
    private let plan: WorkerPlan
    private let coordinator: Coordinator
    private var tally = WorkerTally()
    private var thread: Thread?

    init(_ plan: WorkerPlan, _ coordinator: Coordinator) {
        (self.plan, self.coordinator) = (plan, coordinator)
    }

    /// - Throws: when the system has no thread.
    func start() throws(SystemError) { thread = try Thread(named: "worker-\(plan.index)") { self.main() } }

    func join() -> WorkerTally {
        thread.take()?.join()
        return tally
    }

    private func main() {
        do {
            if plan.hasOwnDescriptors { try DescriptorTable.makePrivate(keepingSockets: []) }
            var worker = try Worker(plan, coordinator)
            worker.run()
            tally = worker.tally
        } catch {
            tally.devices = plan.devices
            tally.fatal =
                switch error {
                case let failure as Poller.Failure: "epoll cannot be used: \(errorText(failure.errorNumber))"
                case let failure as TLSFailure: failure.description
                default: "\(error)"
                }
        }
        coordinator.finish()
    }
}
