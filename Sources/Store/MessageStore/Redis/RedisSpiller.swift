internal import Platform
internal import Redis

/// The worker threads that move rows out of the overlays of all partitions; one thread at a time serves a partition.
final class RedisSpiller: @unchecked Sendable {
    // Sound because `queue` is a monitor and all other properties are constants; `stepper` is used only without threads.

    private struct Queue: ~Copyable {
        var parts: [RedisPart] = []
        var isOpen = true
    }

    private let context: LogContext
    private let queue = Monitor(Queue())
    private let parts: @Sendable () -> [RedisPart]

    /// Creates a spiller.
    ///
    /// - Parameters:
    ///   - context: The engine's shared state.
    ///   - parts: Returns the open partitions.
    init(_ context: LogContext, parts: @escaping @Sendable () -> [RedisPart]) {
        (self.context, self.parts) = (context, parts)
    }

    func enqueue(_ part: RedisPart) {
        let isNew = part.state.withLock { state in
            guard !state.isQueued, !state.isClosing else { return false }
            state.isQueued = true
            return true
        }
        if isNew { queue.signal { $0.parts.append(part) } }
    }

    func close() {
        queue.broadcast { queue in
            queue.isOpen = false
            queue.parts.removeAll()
        }
    }

    func run() {
        let client = RedisClient(context.cluster)
        while turn(client, atMostMilliseconds: context.configuration.tickMilliseconds) != nil {}
        client.close()
    }

    func step() -> Bool {
        var hasWorked = false
        _ = turn(stepper, atMostMilliseconds: 0)
        while turn(stepper, atMostMilliseconds: 0, isLooking: false) == true { hasWorked = true }
        return hasWorked
    }

    func finish() { stepper.close() }

    private lazy var stepper = RedisClient(context.cluster)

    /// Serves the next queued partition, or else checks all partitions for work.
    ///
    /// Returns whether a partition was served; `nil` after the end.
    private func turn(_ client: RedisClient, atMostMilliseconds milliseconds: UInt64, isLooking: Bool = true) -> Bool? {
        let (part, isOpen): (RedisPart?, Bool) = queue.wait(
            atMostMilliseconds: milliseconds, while: { $0.parts.isEmpty && $0.isOpen }
        ) { ($0.parts.isEmpty ? nil : $0.parts.removeFirst(), $0.isOpen) }
        guard isOpen else { return nil }
        guard let part else {
            guard isLooking else { return false }
            let now = context.now
            for part in parts() where part.hasWork(now) { enqueue(part) }
            return false
        }
        let isTaken = part.state.withLock { state in
            state.isQueued = false
            guard !state.isBusy, !state.isClosing, context.now >= state.retryAt else { return false }
            state.isBusy = true
            return true
        }
        guard isTaken else { return true }
        part.work(by: client)
        part.state.broadcast { $0.isBusy = false }
        return true
    }
}
