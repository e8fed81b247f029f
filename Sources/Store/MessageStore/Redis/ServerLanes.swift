internal import Platform
internal import Redis

protocol ServerLane: AnyObject, Sendable {
    func run()
    func close()
    /// Releases the lane's resources, as `run` does at its end; for a lane without a thread.
    func finish()
}

/// A lane for each server, created on first use, and a common lane for work without a single server.
///
/// A blocked server thus delays only its own lane.
final class ServerLanes<Lane: ServerLane>: @unchecked Sendable {
    // Sound because `state` is a lock and all other properties are constants.

    private struct State: ~Copyable {
        /// The lanes by server; `nil` is the key of the common lane.
        var lanes: [RedisAddress?: Lane] = [:]
        var order: [Lane] = []
        var threads: [JoinableThread] = []
        var isOpen = true
    }

    private let name: String
    private let threadCount: Int
    private let isStepped: Bool
    private let make: @Sendable (RedisAddress?) throws(SystemError) -> Lane
    private let state = Lock(State())

    /// Creates the table of lanes.
    ///
    /// - Parameters:
    ///   - name: The prefix of the threads' names.
    ///   - threadCount: The number of threads per lane.
    ///   - isStepped: Whether there are no threads.
    ///   - make: Creates the lane of a server.
    init(
        named name: String, threadCount: Int, isStepped: Bool,
        make: @escaping @Sendable (RedisAddress?) throws(SystemError) -> Lane
    ) {
        (self.name, self.threadCount, self.isStepped, self.make) = (name, threadCount, isStepped, make)
    }

    /// Starts the common lane.
    func start() throws(SystemError) {
        try state.withLock { state throws(SystemError) in
            let lane = try make(nil)
            try start(lane, &state)
            state.lanes[nil] = lane
            state.order.append(lane)
        }
    }

    private func start(_ lane: Lane, _ state: inout State) throws(SystemError) {
        guard !isStepped else { return }
        for _ in 0..<max(1, threadCount) {
            state.threads.append(try JoinableThread(named: "\(name) \(state.order.count)") { lane.run() })
        }
    }

    func lane(of server: RedisAddress?) -> Lane {
        state.withLock { state in
            if let lane = state.lanes[server] { return lane }
            guard let common = state.lanes[nil] else { preconditionFailure("lanes are used after start()") }
            // Lanes of removed servers remain. Servers beyond the limit share the common lane.
            guard state.isOpen, state.order.count < Limits.laneCount else { return common }
            // Use the common lane if memory or descriptors are exhausted. Threads of a half-started lane stay idle.
            var made: Lane?
            do throws(SystemError) {
                let lane = try make(server)
                made = lane
                try start(lane, &state)
            } catch {
                if let made { state.order.append(made) }
                state.lanes[server] = common
                return common
            }
            guard let lane = made else { return common }
            state.lanes[server] = lane
            state.order.append(lane)
            return lane
        }
    }

    var all: [Lane] { state.withLock { $0.order } }

    func close() {
        let lanes = state.withLock { state in
            state.isOpen = false
            return state.order
        }
        for lane in lanes { lane.close() }
        if isStepped { for lane in lanes { lane.finish() } }
        let threads = state.withLock { state in
            defer { state.threads.removeAll() }
            return state.threads
        }
        for thread in threads { thread.join() }
    }
}
