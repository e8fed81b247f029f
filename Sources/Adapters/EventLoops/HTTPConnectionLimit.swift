internal import Platform

/// Room for the HTTP connections of one loop, of all servers that share it; full, it makes room for a newcomer.
///
/// Strangers may connect as they like and say nothing, or send half a request. So that they do not keep others out, a
/// newcomer to a full room takes the place of the connection that has waited longest. An address that has most connections,
/// and more than the newcomer's own, makes room first. A connection whose request is under way stays.
package final class HTTPConnectionLimit {
    /// What a connection is doing, as far as making room is concerned.
    enum Place {
        /// Has its last answer and waits for the peer's end.
        case over
        /// Between requests.
        case idle
        /// Sends a request that nothing vouches for yet.
        case unproven
        /// Sends or waits for what the API has let in: stays.
        case working
    }

    /// Connections at once.
    package let limit: Int
    package private(set) var count = 0
    /// Connections closed to make room.
    package private(set) var displacedCount: UInt64 = 0
    /// Newcomers turned away because nobody could make room.
    package private(set) var refusedCount: UInt64 = 0

    /// Connections by `SocketAddress.network`, and the network that has most of them, give or take those that left.
    private var counts: [UInt64: Int] = [:]
    private var crowd: UInt64 = 0

    private var over = HTTPConnectionList()
    private var idle = HTTPConnectionList()
    private var unproven = HTTPConnectionList()

    /// - Parameter limit: at least 1.
    package init(limit: Int) { self.limit = max(1, limit) }

    /// Counts a newcomer in, in another's place if need be; false when it must be turned away.
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

    /// Remembers what a connection does from now on.
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

    /// The connection that makes room for a newcomer.
    private func disposable(for network: UInt64, now: UInt64) -> HTTPConnection? {
        let aWhileAgo = now &- min(now, Limits.unprovenMilliseconds)
        let crowdCount = counts[crowd, default: 0]
        if let gone = over.longest(network, since: now &- min(now, Limits.farewellMilliseconds)) { return gone }
        guard crowdCount > counts[network, default: 0] else {
            // The newcomer's own connections go first, and others only after a second.
            return idle.longest(network, since: now, isBound: true) ?? over.longest(network, since: now, isBound: true)
                ?? unproven.longest(network, since: aWhileAgo, isBound: true)
                ?? idle.longest(network, since: aWhileAgo) ?? over.longest(network, since: now)
                ?? unproven.longest(network, since: aWhileAgo)
        }
        // With a large part of the room, a crowd has no time to send its requests in, nor are they all read.
        let isLarge = crowdCount > limit / 4
        return idle.longest(crowd, since: now, isBound: true) ?? over.longest(crowd, since: now, isBound: true)
            ?? unproven.longest(crowd, since: isLarge ? now : aWhileAgo, isBound: true)
            ?? (isLarge ? idle.longest(crowd, since: now, isBound: true, evenUnread: true) : nil)
            ?? idle.longest(network, since: aWhileAgo)
            ?? over.longest(network, since: now) ?? unproven.longest(network, since: aWhileAgo)
    }
}

/// Connections in the order in which they came to where they are; the links are in the connections.
///
/// Not retained: a server holds its connections until they are taken out of here.
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

    /// The one that has been here longest, at least since `moment`, and can be closed without harm.
    ///
    /// Among the first few one of the network goes first; with `isBound` no other goes, and with `evenUnread` one whose bytes wait, unless its
    /// address is exempt.
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
