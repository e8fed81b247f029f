package import Redis

/// A deliberate fault of a client or an engine, planted between it and the servers.
///
/// What it would do wrong is made of what it does right, so no product code has a hook for it.
package struct Mutation: Sendable {
    /// What is sent in place of a call's commands; each one's reply answers the command of the same place.
    package var commands: @Sendable ([RedisCommand]) -> [RedisCommand] = { $0 }
    /// What is told in place of the replies.
    package var replies: @Sendable ([RedisCommand], [RedisReply]) -> [RedisReply] = { $1 }

    package init() {}

    /// Every wait is told to have reached all replicas.
    package static var waitsUnchecked: Mutation {
        var mutation = Mutation()
        mutation.replies = { commands, replies in zip(commands, replies).map { $0.isWait ? $0.satisfied : $1 } }
        return mutation
    }

    /// Waits ask for no replica.
    package static var waitsForNobody: Mutation {
        var mutation = Mutation()
        mutation.commands = { $0.map { $0.isWait ? RedisCommand("PING") : $0 } }
        mutation.replies = waitsUnchecked.replies
        return mutation
    }

    /// No write stands before a wait.
    package static var waitsUntouched: Mutation {
        var mutation = Mutation()
        mutation.commands = { commands in
            commands.map { $0.isTouch ? RedisCommand("PING") : $0 }
        }
        return mutation
    }

    /// A script that is sent whole is not waited for again.
    package static var scriptsUnwaited: Mutation {
        var mutation = Mutation()
        mutation.replies = { commands, replies in
            guard commands.contains(where: { $0.name == "EVAL" }) else { return replies }
            return zip(commands, replies).map { $0.isWait ? $0.satisfied : $1 }
        }
        return mutation
    }
}

extension RedisCommand {
    fileprivate var isWait: Bool { name == "WAIT" || name == "WAITAOF" }
    fileprivate var isTouch: Bool {
        name == "SET" && arguments.count > 1 && arguments[1].starts(with: Array("lw:touch:".utf8))
    }
    /// What servers answer to a wait when all replicas are in step.
    fileprivate var satisfied: RedisReply { name == "WAIT" ? .integer(9) : .array([.integer(1), .integer(9)]) }
}

/// A network with a planted fault.
package struct MutatingNetwork: RedisNetwork {
    private let network: SimulatedNetwork
    private let mutation: Mutation

    package init(_ network: SimulatedNetwork, _ mutation: Mutation) {
        (self.network, self.mutation) = (network, mutation)
    }

    package func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        MutatingConnection(try network.connect(to: address, timeoutMilliseconds: timeoutMilliseconds), mutation)
    }
    package var monotonicMilliseconds: UInt64 { network.monotonicMilliseconds }
    package func sleep(milliseconds: Int) { network.sleep(milliseconds: milliseconds) }
}

private final class MutatingConnection: RedisConnection {
    private let connection: any RedisConnection
    private let mutation: Mutation
    init(_ connection: any RedisConnection, _ mutation: Mutation) {
        (self.connection, self.mutation) = (connection, mutation)
    }

    func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
        mutation.replies(
            commands, try connection.run(mutation.commands(commands), timeoutMilliseconds: timeoutMilliseconds))
    }

    private var begun: [RedisCommand] = []

    func begin(_ commands: [RedisCommand]) throws(RedisError) {
        begun = commands
        try connection.begin(mutation.commands(commands))
    }

    func proceed() throws(RedisError) -> [RedisReply]? {
        try connection.proceed().map { mutation.replies(begun, $0) }
    }

    var interest: RedisInterest? { connection.interest }
    func close() { connection.close() }
}
