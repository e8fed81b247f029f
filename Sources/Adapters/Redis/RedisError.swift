/// A command without a reply, or with an unusable one.
package enum RedisError: Error, Equatable, Sendable, CustomStringConvertible {
    /// No connection was made and nothing was sent.
    case unreachable(RedisAddress, String)
    /// The connection ended; the commands may have run.
    case broken(RedisAddress, String)
    /// The reply timed out and the connection was closed; the commands may have run or may still run.
    case timedOut(RedisAddress, milliseconds: Int)
    /// The server violated the protocol or exceeded the bounds of a reply; the connection was closed.
    case malformed(RedisAddress, String)
    /// The server replied with an error.
    case refused(RedisAddress, RedisFault)
    /// No server is known for the slot.
    case noOwner(slot: Int, String)
    /// The reply has a form that the command never returns.
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

    /// Whether a retry may succeed.
    package var isPassing: Bool {
        switch self {
        case .unreachable, .broken, .timedOut, .malformed, .noOwner: true
        case .refused(_, let fault): fault.isPassing
        case .unexpected: false
        }
    }
}
