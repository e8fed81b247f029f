// Threads by server: what a server that stands still holds up is what only it can do.

internal import Platform
internal import Redis

/// What one server's threads share.
protocol ServerLane: AnyObject, Sendable {
    /// A thread's body, until `close`.
    func run()
    func close()
    /// Ends what `run` would end, where there is no thread.
    func finish()
}

/// A lane for each server, made when it is first asked for, and one for what has no single server.
final class ServerLanes<Lane: ServerLane>: @unchecked Sendable {
    // Sound because `state` is a lock and the rest are constants.

    private struct State: ~Copyable {
        /// `nil`: the one of no server.
        var lanes: [RedisAddress?: Lane] = [:]
        /// In the order in which they were made.
        var order: [Lane] = []
        var threads: [JoinableThread] = []
        var isOpen = true
    }

    private let name: String
    private let threadCount: Int
    private let isStepped: Bool
    private let make: @Sendable (RedisAddress?) throws(SystemError) -> Lane
    private let state = Lock(State())

    /// - Parameters:
    ///   - name: of the threads.
    ///   - threadCount: of each lane.
    ///   - isStepped: without threads.
    ///   - make: makes the lane of a server.
    init(
        named name: String, threadCount: Int, isStepped: Bool,
        make: @escaping @Sendable (RedisAddress?) throws(SystemError) -> Lane
    ) {
        (self.name, self.threadCount, self.isStepped, self.make) = (name, threadCount, isStepped, make)
    }

    /// Makes the lane of no server.
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
            // Servers that came and went leave their lanes behind; more than a cluster has share the common one.
            guard state.isOpen, state.order.count < Limits.laneCount else { return common }
            // Without memory or a descriptor the common lane does it; other threads of this lane may run, and find nothing.
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
