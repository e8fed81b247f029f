internal import Structures

/// Connections that have not said Hello yet, oldest first. All wait equally long, so the oldest is always next.
struct HandshakeQueue: ~Copyable {
    private var waiting = Ring<(connection: Weak, deadline: UInt64)>()

    private struct Weak { weak var connection: (any Handshaking)? }

    /// - Parameter deadline: monotonic milliseconds, never smaller than the one before it.
    mutating func append(_ connection: any Handshaking, deadline: UInt64) {
        waiting.append((Weak(connection: connection), deadline))
    }

    /// Ends the handshake of everyone whose time is up.
    mutating func advance(to now: UInt64) {
        while let first = waiting.first, first.deadline <= now || first.connection.connection == nil {
            _ = waiting.popFirst()
            first.connection.connection?.handshakeTimedOut()
        }
    }
}

/// A connection that must say Hello in time; does nothing when it has.
protocol Handshaking: AnyObject {
    func handshakeTimedOut()
}
