internal import Structures

/// Connections that have not said Hello yet, oldest first.
///
/// All wait equally long, so the oldest is always next.
struct HandshakeQueue: ~Copyable {
    private var waiting = Ring<Waiting>()

    /// Lets a connection wait until `deadline`: monotonic milliseconds, never smaller than the one before it.
    mutating func append(_ connection: any Handshaking, deadline: UInt64) {
        waiting.append(Waiting(connection: connection, deadline: deadline))
    }

    /// Ends the handshake of everyone whose time is up.
    mutating func advance(to now: UInt64) {
        while let first = waiting.first, first.deadline <= now {
            _ = waiting.popFirst()
            first.connection.handshakeTimedOut()
        }
    }
}

/// A connection that must say Hello in time; does nothing when it has.
protocol Handshaking: AnyObject {
    func handshakeTimedOut()
}

/// One connection in the queue, which keeps its object until the deadline, though not its socket.
///
/// A weak reference would cost each connection 48 bytes for life, and each of its retains the slow path.
struct Waiting {
    var connection: any Handshaking
    var deadline: UInt64
}
