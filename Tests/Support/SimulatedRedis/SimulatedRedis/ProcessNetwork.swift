internal import Platform
package import Redis

/// A deliberate fault that changes the commands and replies between a client and the servers.
package protocol CallChange: AnyObject {
    /// Returns the command to send in place of a command of a call.
    func sent(_ command: RedisCommand, among all: [RedisCommand]) -> RedisCommand
    /// Returns the reply to hand to the client in place of the real one.
    func told(_ command: RedisCommand, _ reply: RedisReply, among all: [RedisCommand]) -> RedisReply
}

/// The network of one process; it ends with the process, and other processes may act before each call.
package final class ProcessNetwork: RedisNetwork, @unchecked Sendable {
    // `@unchecked Sendable` is sound because a world and its processes run on one thread.
    private let simulated: SimulatedNetwork
    private let cluster: SimulatedCluster
    package var isDead = false
    package var beforeCall: () -> Void = {}
    /// Whether a call is delayed until long after its client has timed out.
    package var isHeld: ([RedisCommand]) -> Bool = { _ in false }
    /// Whether the replies of a call that runs are lost.
    package var isReplyLost: ([RedisCommand]) -> Bool = { _ in false }
    /// Whether an asynchronous call reaches its server now, and whether its replies reach the client now.
    ///
    /// A call for which this returns false is checked again later, so replies arrive in any order.
    package var arrives: () -> Bool = { true }
    private let change: (any CallChange)?

    package init(_ cluster: SimulatedCluster, change: (any CallChange)? = nil) {
        self.cluster = cluster
        simulated = SimulatedNetwork(cluster)
        self.change = change
    }

    package func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        if isDead { throw .unreachable(address, "the process has ended") }
        return Connection(self, address, try simulated.connect(to: address, timeoutMilliseconds: timeoutMilliseconds))
    }

    package var monotonicMilliseconds: UInt64 { simulated.monotonicMilliseconds }
    package func sleep(milliseconds: Int) { cluster.advance(milliseconds: max(1, milliseconds)) }

    fileprivate func hold(_ commands: [RedisCommand], to address: RedisAddress, timeoutMilliseconds: Int) {
        cluster.hold(commands.map(\.arguments), to: address.host, port: Int(address.port))
        cluster.advance(milliseconds: timeoutMilliseconds)
    }

    private final class Connection: RedisConnection {
        private let network: ProcessNetwork
        private let address: RedisAddress
        private let real: any RedisConnection

        init(_ network: ProcessNetwork, _ address: RedisAddress, _ real: any RedisConnection) {
            (self.network, self.address, self.real) = (network, address, real)
        }

        func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
            if !network.isDead { network.beforeCall() }
            if network.isDead { throw .broken(address, "the process has ended") }
            let sent = network.change.map { change in commands.map { change.sent($0, among: commands) } } ?? commands
            if network.isHeld(commands) {
                network.hold(sent, to: address, timeoutMilliseconds: timeoutMilliseconds)
                real.close()
                throw .timedOut(address, milliseconds: timeoutMilliseconds)
            }
            let replies = try real.run(sent, timeoutMilliseconds: timeoutMilliseconds)
            if network.isReplyLost(commands) { throw .broken(address, "the connection ended") }
            guard let change = network.change else { return replies }
            return zip(commands, replies).map { change.told($0, $1, among: commands) }
        }

        /// The call in flight: the commands that the client meant, and those that are sent.
        private var begun: (meant: [RedisCommand], sent: [RedisCommand]) = ([], [])
        private var isSent = false
        /// Whether the call is held back, so that no reply arrives any more.
        private var isStuck = false
        private var outcome: Result<[RedisReply], RedisError>?

        func begin(_ commands: [RedisCommand]) throws(RedisError) {
            if !network.isDead { network.beforeCall() }
            if network.isDead { throw .broken(address, "the process has ended") }
            begun = (
                commands, network.change.map { change in commands.map { change.sent($0, among: commands) } } ?? commands
            )
            (isSent, outcome) = (false, nil)
            isStuck = network.isHeld(commands)
            if isStuck {
                network.cluster.hold(begun.sent.map(\.arguments), to: address.host, port: Int(address.port))
            } else if network.arrives() {
                deliver()
            }
        }

        /// Sends the call to its server.
        private func deliver() {
            isSent = true
            do throws(RedisError) {
                try real.begin(begun.sent)
                let replies = try real.proceed() ?? []
                outcome = .success(
                    network.change.map { change in
                        zip(begun.meant, replies).map { change.told($0, $1, among: begun.meant) }
                    } ?? replies)
            } catch { outcome = .failure(error) }
        }

        func proceed() throws(RedisError) -> [RedisReply]? {
            if !network.isDead, !isSent { network.beforeCall() }
            if network.isDead { throw .broken(address, "the process has ended") }
            if isStuck {
                network.cluster.advance(milliseconds: 250)
                return nil
            }
            if !isSent {
                guard network.arrives() else { return nil }
                deliver()
            }
            guard let outcome, network.arrives() else { return nil }
            switch outcome {
            case .success(let replies): return replies
            case .failure(let error): throw error
            }
        }

        var interest: RedisInterest? { nil }
        func close() { real.close() }
    }
}

package final class ProcessLoop: Sendable {
    private let tasks = Lock<[@Sendable () -> Void]>([])
    package init() {}
    package func post(_ task: @escaping @Sendable () -> Void) { tasks.withLock { $0.append(task) } }
    /// Runs the tasks posted so far; returns whether any task ran.
    @discardableResult
    package func turn() -> Bool {
        let now = tasks.withLock { tasks in
            defer { tasks.removeAll() }
            return tasks
        }
        for task in now { task() }
        return !now.isEmpty
    }
    package func end() { tasks.withLock { $0.removeAll() } }
}
