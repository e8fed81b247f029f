internal import Glibc
internal import Synchronization

/// Workers as processes of their own: the same program, started with a hidden argument, its plans on standard input, its
/// findings on standard output, the coordinator's memory as descriptor 3.
final class ProcessCrew: Crew {
    static let argument = "--worker-process"
    private static let sharedDescriptor: CInt = 3

    private struct Child {
        var process: pid_t
        var input: CInt
        var output: CInt
        var plans: [WorkerPlan]
        var isReaped = false
        var cpu: Int64 = 0
    }

    private var children: [Child] = []
    private let coordinator: Coordinator

    /// Starts a process for each group of plans.
    ///
    /// - Throws: `UsageError` when one cannot be started; those that were are sent home.
    init(_ groups: [[WorkerPlan]], _ coordinator: Coordinator, _ memory: SharedMemory) throws {
        self.coordinator = coordinator
        // A child that dies while it is written to must not end this process too.
        signal(SIGPIPE, SIG_IGN)
        do {
            for plans in groups { children.append(try Self.start(plans, memory.descriptor)) }
            for child in children {
                guard Self.write(try Exchange.encode(child.plans), to: child.input) else {
                    throw UsageError("a worker process ended before it had its plan")
                }
            }
        } catch {
            coordinator.abort()
            for child in children { Self.end(child) }
            throw error
        }
    }

    func look() {
        for index in children.indices where !children[index].isReaped {
            if let used = Self.cpu(children[index].process) { children[index].cpu = used }
            var status: CInt = 0
            guard waitpid(children[index].process, &status, WNOHANG) == children[index].process else { continue }
            children[index].isReaped = true
            coordinator.finish(children[index].plans.count)
        }
    }

    func join() -> [WorkerTally] {
        var tallies: [WorkerTally] = []
        for child in children {
            var source = PipeSource(descriptor: child.output)
            for plan in child.plans {
                do {
                    tallies.append(try Exchange.tally(from: &source, of: plan))
                } catch {
                    var lost = WorkerTally()
                    lost.fatal = "worker process \(child.process) ended without its findings"
                    lost.devices = plan.devices
                    tallies.append(lost)
                }
            }
        }
        for child in children { Self.end(child) }
        children.removeAll()
        return tallies
    }

    var outsideCPU: Int64 { children.reduce(0) { $0 + $1.cpu } }

    private static func cpu(_ process: pid_t) -> Int64? { (try? ProcessMeter(process))?.cpu() }

    private static func start(_ plans: [WorkerPlan], _ shared: CInt) throws(UsageError) -> Child {
        var input: [CInt] = [-1, -1]
        var output: [CInt] = [-1, -1]
        guard pipe(&input) == 0, pipe(&output) == 0 else {
            throw UsageError("no pipe to a worker process: \(errorText(errno))")
        }
        // Nobody else starts programs here, so there is no moment in which these could leak into one.
        for descriptor in input + output { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO)
        posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO)
        posix_spawn_file_actions_adddup2(&actions, shared, sharedDescriptor)
        var process: pid_t = 0
        let words = ["longwire", "bench", argument, String(plans.count)]
        var pointers: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
        let error = posix_spawn(&process, "/proc/self/exe", &actions, nil, &pointers, environ)
        for pointer in pointers { free(pointer) }
        _ = close(input[0])
        _ = close(output[1])
        guard error == 0 else {
            _ = close(input[1])
            _ = close(output[0])
            throw UsageError("a worker process cannot be started: \(errorText(error))")
        }
        return Child(process: process, input: input[1], output: output[0], plans: plans)
    }

    /// Closing its input sends a child home, if it is still there.
    private static func end(_ child: Child) {
        _ = close(child.input)
        _ = close(child.output)
        var status: CInt = 0
        if !child.isReaped { while waitpid(child.process, &status, 0) < 0, errno == EINTR {} }
    }

    private static func write(_ bytes: [UInt8], to descriptor: CInt) -> Bool {
        var written = 0
        while written < bytes.count {
            let count = bytes.withUnsafeBytes {
                Glibc.write(descriptor, $0.baseAddress! + written, bytes.count - written)
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return false }
            written += count
        }
        return true
    }

    /// Runs a worker process from start to end; returns its exit code.
    static func serve(workers: Int) -> Int32 {
        signal(SIGPIPE, SIG_IGN)
        do {
            try FileLimit.raise()
            var source = PipeSource(descriptor: STDIN_FILENO)
            let plans = try Exchange.plans(from: &source)
            guard plans.count == workers,
                let coordinator = Coordinator(workers: workers, sharing: sharedDescriptor, isFirst: false)
            else { return ExitCode.usage }
            let crew = try ThreadCrew(plans, coordinator)
            let guardian = Guardian()
            let tallies = crew.join()
            guardian.dismiss()
            for (tally, plan) in zip(tallies, plans) {
                guard write(try Exchange.encode(tally, of: plan), to: STDOUT_FILENO) else {
                    return ExitCode.internalError
                }
            }
            return ExitCode.done
        } catch {
            return ExitCode.internalError
        }
    }
}

/// Ends a worker process whose parent has gone, so that nothing keeps loading a gateway behind everybody's back.
///
/// Sendable: its one flag is an atomic.
private final class Guardian: Sendable {
    private let isDismissed = Atomic<Bool>(false)

    init() {
        var handle = pthread_t()
        let context = Unmanaged.passRetained(self)
        let result = pthread_create(
            &handle, nil,
            { context in
                guard let context else { return nil }
                Unmanaged<Guardian>.fromOpaque(context).takeRetainedValue().watch()
                return nil
            }, context.toOpaque())
        if result == 0 { pthread_detach(handle) } else { context.release() }
    }

    func dismiss() { isDismissed.store(true, ordering: .sequentiallyConsistent) }

    private func watch() {
        // Nothing more is ever sent: readiness to read means that the parent's end is closed.
        var watched = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
        while !isDismissed.load(ordering: .sequentiallyConsistent) {
            if poll(&watched, 1, 500) > 0 { _exit(ExitCode.internalError) }
        }
    }
}

/// Memory that this process and its workers share, without a name that anybody else could open.
final class SharedMemory {
    let descriptor: CInt

    init(byteCount: Int) throws(UsageError) {
        let name = "/longwire-bench-\(getpid())-\(Clocks.now())"
        descriptor = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw UsageError("no shared memory: \(errorText(errno))") }
        _ = shm_unlink(name)
        guard ftruncate(descriptor, off_t(byteCount)) == 0 else {
            let reason = errorText(errno)
            _ = close(descriptor)
            throw UsageError("no shared memory: \(reason)")
        }
    }

    deinit { _ = close(descriptor) }
}
