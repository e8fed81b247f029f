package import Redis

/// A deliberate fault of a client or an engine, planted between the client and the servers.
///
/// A mutation changes correct calls and replies, so product code needs no hook for it.
package struct Mutation: Sendable {
    /// Returns the commands to send in place of a call's commands; each reply answers the command at the same index.
    package var commands: @Sendable ([RedisCommand]) -> [RedisCommand] = { $0 }
    /// Returns the replies to hand to the client in place of the real ones.
    package var replies: @Sendable ([RedisCommand], [RedisReply]) -> [RedisReply] = { $1 }

    package init() {}

    /// Every WAIT reports that it reached all replicas.
    package static var waitsUnchecked: Mutation {
        var mutation = Mutation()
        mutation.replies = { commands, replies in zip(commands, replies).map { $0.isWait ? $0.satisfied : $1 } }
        return mutation
    }

    /// No WAIT is sent.
    package static var waitsForNobody: Mutation {
        var mutation = Mutation()
        mutation.commands = { $0.map { $0.isWait ? RedisCommand("PING") : $0 } }
        mutation.replies = waitsUnchecked.replies
        return mutation
    }

    /// The write before each WAIT is omitted.
    package static var waitsUntouched: Mutation {
        var mutation = Mutation()
        mutation.commands = { commands in
            commands.map { $0.isTouch ? RedisCommand("PING") : $0 }
        }
        return mutation
    }

    /// A script that is sent as a whole is not followed by a second WAIT.
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
    /// The reply to a WAIT when all replicas are in sync.
    fileprivate var satisfied: RedisReply { name == "WAIT" ? .integer(9) : .array([.integer(1), .integer(9)]) }
}

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
