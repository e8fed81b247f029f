/// What a connection waits for before it can go on: a socket that is to become readable or writable.
package struct RedisInterest: Sendable, Equatable {
    var descriptor: CInt
    /// As `poll` has them.
    var events: Int16
}

/// A connection to one server; one thread at a time uses it.
package protocol RedisConnection: AnyObject {
    /// Sends commands in one write and returns their replies in order.
    ///
    /// - Parameters:
    ///   - commands: at least one.
    ///   - timeoutMilliseconds: for all of them together.
    /// - Returns: a reply for each command, error replies included.
    /// - Throws: when the connection cannot go on. It is closed then, and what was sent may or may not have run.
    func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply]
    /// Sends commands and does not wait for their replies: `proceed` has them.
    ///
    /// - Parameter commands: at least one; the replies to all commands before have been taken.
    /// - Throws: as `run`.
    func begin(_ commands: [RedisCommand]) throws(RedisError)
    /// Goes on with what was begun, as far as it goes without waiting.
    ///
    /// - Returns: a reply for each command, once all are there; `nil` before.
    /// - Throws: as `run`.
    func proceed() throws(RedisError) -> [RedisReply]?
    /// What `proceed` waits for; `nil` where there is no socket.
    var interest: RedisInterest? { get }
    func close()
}

/// Where connections and time come from: the machine's network, or a simulated cluster.
package protocol RedisNetwork: Sendable {
    /// Connects, sets TLS up and authenticates.
    ///
    /// - Throws: `.unreachable`, or `.refused` when the server does not take user and password.
    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection
    var monotonicMilliseconds: UInt64 { get }
    func sleep(milliseconds: Int)
}
