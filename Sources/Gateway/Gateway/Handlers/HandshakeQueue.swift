internal import Structures

/// Connections that have not said Hello yet, oldest first.
///
/// All wait equally long, so the oldest is always next. An entry holds its connection until the handshake is over: a weak
/// reference would cost each connection 48 bytes until it ends, and each of its retains the slow path.
struct HandshakeQueue: ~Copyable {
    /// No place in the queue.
    static let none = UInt32.max

    private var waiting = Ring<WaitingHandshake>()
    /// The place of the oldest entry; places count up and wrap around.
    private var first: UInt32 = 0
    /// Connections that wait.
    private(set) var count = 0

    /// Lets a connection wait until `deadline`: monotonic milliseconds, never smaller than the one before it.
    ///
    /// - Returns: its place, for `remove(_:)`.
    mutating func append(_ connection: any Handshaking, network: UInt64, deadline: UInt64) -> UInt32 {
        count += 1
        waiting.append(WaitingHandshake(connection: connection, network: network, deadline: deadline))
        return first &+ UInt32(waiting.count - 1)
    }

    /// Lets a connection that waits do so anew, until `deadline`.
    ///
    /// - Returns: its new place; `none` where it waits no more.
    mutating func renew(_ place: UInt32, deadline: UInt64) -> UInt32 {
        let offset = Int(place &- first)
        guard place != Self.none, offset < waiting.count, let connection = waiting[offset].connection else {
            return Self.none
        }
        let network = waiting[offset].network
        remove(place)
        return append(connection, network: network, deadline: deadline)
    }

    /// Forgets a connection whose handshake is over; does nothing for one that was forgotten before.
    mutating func remove(_ place: UInt32) {
        let offset = Int(place &- first)
        guard place != Self.none, offset < waiting.count, waiting[offset].connection != nil else { return }
        count -= 1
        waiting[offset].connection = nil
        while let oldest = waiting.first, oldest.connection == nil { dropFirst() }
    }

    /// Takes out the oldest connection whose time is up; `nil` when there is none.
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

    /// The connection that has waited longest; among the first few one of the newcomer's own network, so that a crowd from
    /// one place displaces itself.
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

/// One connection in the queue; `nil` once its handshake is over.
struct WaitingHandshake {
    var connection: (any Handshaking)?
    /// `SocketAddress.network` of its other end.
    var network: UInt64
    var deadline: UInt64
}

/// A connection that must say Hello in time; does nothing when it has.
protocol Handshaking: AnyObject {
    /// Its place in the queue.
    var handshakePlace: UInt32 { get set }
    var kind: ConnectionKind { get }
    func handshakeTimedOut()
    /// Another connection takes its place.
    func handshakeDisplaced()
}

/// Whose connection it is: each kind has limits of its own.
enum ConnectionKind {
    case device, sender
}
