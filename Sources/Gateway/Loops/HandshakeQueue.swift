internal import Structures

/// Connections that have not said Hello yet, oldest first.
///
/// All wait equally long, so the oldest is always next. An entry holds its connection until the handshake is over: a weak
/// reference would cost each connection 48 bytes for life, and each of its retains the slow path.
struct HandshakeQueue: ~Copyable {
    /// No place in the queue.
    static let none = UInt32.max

    private var waiting = Ring<WaitingHandshake>()
    /// The place of the oldest entry; places count up and wrap around.
    private var first: UInt32 = 0

    /// Lets a connection wait until `deadline`: monotonic milliseconds, never smaller than the one before it.
    ///
    /// - Returns: its place, for `remove(_:)`.
    mutating func append(_ connection: any Handshaking, deadline: UInt64) -> UInt32 {
        waiting.append(WaitingHandshake(connection: connection, deadline: deadline))
        return first &+ UInt32(waiting.count - 1)
    }

    /// Forgets a connection whose handshake is over; does nothing for one that was forgotten before.
    mutating func remove(_ place: UInt32) {
        let offset = Int(place &- first)
        guard place != Self.none, offset < waiting.count else { return }
        waiting[offset].connection = nil
        while let oldest = waiting.first, oldest.connection == nil { dropFirst() }
    }

    /// Takes out the oldest connection whose time is up; `nil` when there is none.
    mutating func popDue(now: UInt64) -> (any Handshaking)? {
        while let oldest = waiting.first, oldest.deadline <= now || oldest.connection == nil {
            dropFirst()
            if let connection = oldest.connection { return connection }
        }
        return nil
    }

    private mutating func dropFirst() {
        _ = waiting.popFirst()
        first &+= 1
    }
}

/// One connection in the queue; `nil` once its handshake is over.
struct WaitingHandshake {
    var connection: (any Handshaking)?
    var deadline: UInt64
}

/// A connection that must say Hello in time; does nothing when it has.
protocol Handshaking: AnyObject {
    /// Its place in the queue.
    var handshakePlace: UInt32 { get set }
    func handshakeTimedOut()
}
