internal import Cryptography
internal import Glibc
internal import Platform
internal import Synchronization

/// A POSIX thread that runs one worker.
///
/// Sendable: `plan` and `coordinator` are; `tally` is written by the thread before it ends and read after the join.
final class WorkerThread: @unchecked Sendable {
    private let plan: WorkerPlan
    private let coordinator: Coordinator
    private var tally = WorkerTally()
    private var handle = pthread_t()
    private var isStarted = false

    init(_ plan: WorkerPlan, _ coordinator: Coordinator) {
        (self.plan, self.coordinator) = (plan, coordinator)
    }

    /// - Returns: false when the system has no thread to spare.
    func start() -> Bool {
        let context = Unmanaged.passRetained(self)
        let result = pthread_create(
            &handle, nil,
            { context in
                guard let context else { return nil }
                Unmanaged<WorkerThread>.fromOpaque(context).takeRetainedValue().main()
                return nil
            }, context.toOpaque())
        isStarted = result == 0
        if !isStarted { context.release() }
        return isStarted
    }

    /// Waits for the thread's end.
    func join() -> WorkerTally {
        if isStarted { pthread_join(handle, nil) }
        isStarted = false
        return tally
    }

    private func main() {
        do {
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
