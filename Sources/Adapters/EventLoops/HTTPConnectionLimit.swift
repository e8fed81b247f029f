internal import Platform

/// The maximum number of HTTP connections of a loop's servers.
///
/// A new connection above the limit replaces another one. Unauthenticated clients may open connections and send nothing or half a
/// request. To keep them from blocking others, a new connection replaces the longest waiting one. Connections of the address with
/// the most connections are replaced first, if it has more than the new connection's address. A connection with a request in
/// progress is never replaced.
package final class HTTPConnectionLimit {
    /// The state of a connection, which determines whether it can be replaced.
    enum Place {
        /// The last response was sent, and the connection waits for the peer's end.
        case over
        case idle
        /// The client sends a request that is not yet authenticated.
        case unproven
        /// An accepted request is received or processed; the connection is never replaced.
        case working
    }

    package let limit: Int
    package private(set) var count = 0
    package private(set) var displacedCount: UInt64 = 0
    /// The number of new connections refused because none could be replaced.
    package private(set) var refusedCount: UInt64 = 0

    /// The number of connections by `SocketAddress.network`, and the network with the most of them, which may be stale.
    private var counts: [UInt64: Int] = [:]
    private var crowd: UInt64 = 0

    private var over = HTTPConnectionList()
    private var idle = HTTPConnectionList()
    private var unproven = HTTPConnectionList()

    /// - Parameter limit: at least 1.
    package init(limit: Int) { self.limit = max(1, limit) }

    /// Counts a new connection and replaces another one if needed; returns `false` when it must be refused.
    func enter(_ network: UInt64, now: UInt64) -> Bool {
        if count >= limit {
            guard let displaced = disposable(for: network, now: now) else {
                refusedCount += 1
                return false
            }
            displacedCount += 1
            displaced.displace()
        }
        count += 1
        let own = counts[network, default: 0] + 1
        counts[network] = own
        if own > counts[crowd, default: 0] { crowd = network }
        return true
    }

    func leave(_ connection: HTTPConnection) {
        move(connection, to: .working, now: 0)
        count -= 1
        let rest = counts[connection.network, default: 0] - 1
        counts[connection.network] = rest > 0 ? rest : nil
    }

    func move(_ connection: HTTPConnection, to place: Place, now: UInt64) {
        switch connection.place {
        case .over: over.remove(connection)
        case .idle: idle.remove(connection)
        case .unproven: unproven.remove(connection)
        case .working: break
        }
        connection.place = place
        connection.placedAt = now
        switch place {
        case .over: over.append(connection)
        case .idle: idle.append(connection)
        case .unproven: unproven.append(connection)
        case .working: break
        }
    }

    private func disposable(for network: UInt64, now: UInt64) -> HTTPConnection? {
        let aWhileAgo = now &- min(now, Limits.unprovenMilliseconds)
        let crowdCount = counts[crowd, default: 0]
        if let gone = over.longest(network, since: now &- min(now, Limits.farewellMilliseconds)) { return gone }
        guard crowdCount > counts[network, default: 0] else {
            // Connections of the same network are replaced first. Idle and unauthenticated connections of other networks are
            // replaced only after a second.
            return idle.longest(network, since: now, isBound: true) ?? over.longest(network, since: now, isBound: true)
                ?? unproven.longest(network, since: aWhileAgo, isBound: true)
                ?? idle.longest(network, since: aWhileAgo) ?? over.longest(network, since: now)
                ?? unproven.longest(network, since: aWhileAgo)
        }
        // A network with more than a quarter of the places gets no time to complete requests.
        let isLarge = crowdCount > limit / 4
        return idle.longest(crowd, since: now, isBound: true) ?? over.longest(crowd, since: now, isBound: true)
            ?? unproven.longest(crowd, since: isLarge ? now : aWhileAgo, isBound: true)
            ?? (isLarge ? idle.longest(crowd, since: now, isBound: true, evenUnread: true) : nil)
            ?? idle.longest(network, since: aWhileAgo)
            ?? over.longest(network, since: now) ?? unproven.longest(network, since: aWhileAgo)
    }
}

/// Connections in the order in which they entered a state, not retained: the server keeps them alive until their removal.
private struct HTTPConnectionList {
    private unowned(unsafe) var first: HTTPConnection?
    private unowned(unsafe) var last: HTTPConnection?

    mutating func append(_ connection: HTTPConnection) {
        connection.before = last
        connection.after = nil
        if let last { last.after = connection } else { first = connection }
        last = connection
    }

    mutating func remove(_ connection: HTTPConnection) {
        if let before = connection.before { before.after = connection.after } else { first = connection.after }
        if let after = connection.after { after.before = connection.before } else { last = connection.before }
        connection.before = nil
        connection.after = nil
    }

    /// Returns the connection that has been in the list longest, at least since `moment`, and can be closed without loss.
    ///
    /// Among the first few, a connection of `network` is preferred. With `isBound`, only connections of `network` are considered.
    /// With `evenUnread` unread input does not protect a connection, unless its address is exempt.
    func longest(
        _ network: UInt64, since moment: UInt64, isBound: Bool = false, evenUnread: Bool = false
    ) -> HTTPConnection? {
        var found: HTTPConnection?
        var next = first
        var looks = Limits.displacementLookCount
        while let connection = next, looks > 0, connection.placedAt <= moment {
            looks -= 1
            next = connection.after
            guard evenUnread ? connection.isSilent && !connection.isExempt : connection.isDisposable else { continue }
            if connection.network == network { return connection }
            if found == nil, !isBound { found = connection }
        }
        return found
    }
}
