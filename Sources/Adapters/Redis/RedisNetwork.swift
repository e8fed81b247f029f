/// A socket and the readiness that a connection waits for.
package struct RedisInterest: Sendable, Equatable {
    var descriptor: CInt
    var events: Int16
}

/// A connection to one server, used by one thread at a time.
package protocol RedisConnection: AnyObject {
    /// Sends commands in one write and returns their replies in order.
    ///
    /// - Parameters:
    ///   - commands: at least one.
    ///   - timeoutMilliseconds: the timeout for all of them together.
    /// - Returns: a reply for each command, including error replies.
    /// - Throws: when the connection fails and is closed. The commands may have run.
    func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply]
    /// Sends commands without waiting for their replies, which `proceed` returns.
    ///
    /// - Parameter commands: at least one. The replies to all earlier commands must have been returned.
    /// - Throws: the errors of `run`.
    func begin(_ commands: [RedisCommand]) throws(RedisError)
    /// Continues the commands of `begin` without blocking.
    ///
    /// - Returns: a reply for each command once all have arrived, `nil` before.
    /// - Throws: the errors of `run`.
    func proceed() throws(RedisError) -> [RedisReply]?
    /// The readiness that `proceed` waits for, or `nil` without a socket.
    var interest: RedisInterest? { get }
    func close()
}

/// The source of connections and time: the machine's network, or a simulated cluster.
package protocol RedisNetwork: Sendable {
    /// Connects, sets up TLS and authenticates.
    ///
    /// - Throws: `.unreachable`, or `.refused` when the server rejects the user or password.
    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection
    var monotonicMilliseconds: UInt64 { get }
    func sleep(milliseconds: Int)
}
