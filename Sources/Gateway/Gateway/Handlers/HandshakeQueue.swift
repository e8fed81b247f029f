internal import Structures

/// Connections that have not sent their Hello yet, oldest first.
///
/// All have the same timeout, so the oldest expires first. An entry holds a strong reference until the handshake is over. A weak
/// reference would cost 48 bytes per connection and slow down each retain.
struct HandshakeQueue: ~Copyable {
    static let none = UInt32.max

    private var waiting = Ring<WaitingHandshake>()
    /// The place of the oldest entry; places count up and wrap around.
    private var first: UInt32 = 0
    private(set) var count = 0

    /// Adds a connection with a deadline in monotonic milliseconds; deadlines must not decrease.
    ///
    /// - Returns: The connection's place, for `remove(_:)`.
    mutating func append(_ connection: any Handshaking, network: UInt64, deadline: UInt64) -> UInt32 {
        count += 1
        waiting.append(WaitingHandshake(connection: connection, network: network, deadline: deadline))
        return first &+ UInt32(waiting.count - 1)
    }

    /// Moves a waiting connection to the end of the queue with a new deadline.
    ///
    /// - Returns: The new place, or `none` if the connection is not waiting.
    mutating func renew(_ place: UInt32, deadline: UInt64) -> UInt32 {
        let offset = Int(place &- first)
        guard place != Self.none, offset < waiting.count, let connection = waiting[offset].connection else {
            return Self.none
        }
        let network = waiting[offset].network
        remove(place)
        return append(connection, network: network, deadline: deadline)
    }

    /// Removes a connection whose handshake is over; does nothing if it was removed before.
    mutating func remove(_ place: UInt32) {
        let offset = Int(place &- first)
        guard place != Self.none, offset < waiting.count, waiting[offset].connection != nil else { return }
        count -= 1
        waiting[offset].connection = nil
        while let oldest = waiting.first, oldest.connection == nil { dropFirst() }
    }

    /// Removes and returns the oldest connection whose deadline has passed; `nil` if there is none.
    mutating func popDue(now: UInt64) -> (any Handshaking)? {
        while let oldest = waiting.first, oldest.deadline <= now || oldest.connection == nil {
            dropFirst()
            if let connection = oldest.connection {
                count -= 1
                return connection
            }
        }
        return nil
    }

    /// Returns the oldest connection, or an early one of the given network; a flood from one network thereby displaces itself.
    func longestWaiting(preferring network: UInt64?) -> (any Handshaking)? {
        for offset in 0..<min(waiting.count, Self.lookCount)
        where waiting[offset].connection != nil && waiting[offset].network == network {
            return waiting[offset].connection
        }
        return waiting.first?.connection
    }

    private static let lookCount = 32

    private mutating func dropFirst() {
        _ = waiting.popFirst()
        first &+= 1
    }
}

/// A connection in the queue; `nil` once its handshake is over.
struct WaitingHandshake {
    var connection: (any Handshaking)?
    var network: UInt64
    var deadline: UInt64
}

/// A connection with a Hello timeout; the calls have no effect after its Hello.
protocol Handshaking: AnyObject {
    var handshakePlace: UInt32 { get set }
    var kind: ConnectionKind { get }
    func handshakeTimedOut()
    /// Closes the connection in favor of another one.
    func handshakeDisplaced()
}

/// The kind of client; each kind has its own limits.
enum ConnectionKind {
    case device, sender
}
