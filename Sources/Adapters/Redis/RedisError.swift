/// Why a command has no reply, or why its reply cannot be used.
package enum RedisError: Error, Equatable, Sendable, CustomStringConvertible {
    /// No connection: nothing was sent.
    case unreachable(RedisAddress, String)
    /// The connection ended: what was sent may or may not have run.
    case broken(RedisAddress, String)
    /// No reply in time, and the connection was closed: what was sent may or may not have run, or run later.
    case timedOut(RedisAddress, milliseconds: Int)
    /// The server's bytes are no protocol, or beyond the bounds of a reply; the connection was closed.
    case malformed(RedisAddress, String)
    /// The server answered with an error.
    case refused(RedisAddress, RedisFault)
    /// No server is known for the slot.
    case noOwner(slot: Int, String)
    /// A reply of another form than the command's.
    case unexpected(RedisAddress, command: String, String)

    package var description: String {
        switch self {
        case .unreachable(let address, let reason): "Redis at \(address) cannot be reached: \(reason)"
        case .broken(let address, let reason): "the connection to Redis at \(address) ended: \(reason)"
        case .timedOut(let address, let milliseconds):
            "Redis at \(address) did not answer within \(milliseconds) ms"
        case .malformed(let address, let what): "Redis at \(address) sent bytes that are no reply: \(what)"
        case .refused(let address, let fault): "Redis at \(address) answered: \(fault)"
        case .noOwner(let slot, let reason): "no Redis server serves slot \(slot): \(reason)"
        case .unexpected(let address, let command, let what):
            "Redis at \(address) answered \(command) in another form than it should: \(what)"
        }
    }

    /// Whether trying again in a moment may help.
    package var isPassing: Bool {
        switch self {
        case .unreachable, .broken, .timedOut, .malformed, .noOwner: true
        case .refused(_, let fault): fault.isPassing
        case .unexpected: false
        }
    }
}
