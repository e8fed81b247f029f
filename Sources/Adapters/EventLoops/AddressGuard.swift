internal import Platform

/// Limits per network address, shared by loops and listeners.
///
/// The address of a connection is determined when it is accepted. The connection is counted until its descriptor is closed, even
/// if it moves between loops. Loopback is always exempt.
package final class AddressGuard: Sendable {
    private struct State: ~Copyable {
        var limiter: AddressLimiter
        var rules = AddressRules()
        var exempt: [AddressRange] = []
        var forwarded = ForwardedClients()
        var counts = Array(repeating: 0, count: AddressRefusal.Kind.allCases.count)
        var told = Array(repeating: 0, count: AddressRefusal.Kind.allCases.count)
        var lastRefused = ""
    }

    package struct Report {
        package let counts: [(kind: AddressRefusal.Kind, count: Int)]
        package let address: String
    }

    private let state = Lock(State(limiter: AddressLimiter()))

    package init() {}

    /// Sets the rules, the exempt ranges and the HTTP proxies.
    ///
    /// The rules apply to open connections, too. An open connection stays exempt or counted, as decided when it was accepted. A
    /// proxy's HTTP connections are exempt, because its requests are counted by client.
    package func set(
        _ rules: AddressRules, exempt: [AddressRange], forwarded: ForwardedClients = ForwardedClients()
    ) {
        state.withLock { ($0.rules, $0.exempt, $0.forwarded) = (rules, exempt, forwarded) }
    }

    /// Returns the rules for reading a client's address from a proxy's requests; `nil` if the peer is no HTTP proxy.
    func forwarding(of peer: SocketAddress) -> ForwardedClients? {
        let forwarded = state.withLock { $0.forwarded }
        return forwarded.isProxy(peer) ? forwarded : nil
    }

    /// Returns the key under which a client behind a proxy is counted; 0 for an exempt client.
    func countedNetwork(of client: SocketAddress) -> UInt64 {
        guard !client.isLoopback else { return 0 }
        let exempt = state.withLock { $0.exempt }
        return exempt.contains { $0.contains(client) } ? 0 : client.network
    }

    package enum Admission {
        case exempt
        case counted(UInt64)
        case refused(AddressRefusal)
    }

    /// Counts an accepted connection or refuses it; `now` is in the loop's milliseconds.
    func admit(_ peer: SocketAddress, isHTTP: Bool = false, now: UInt64) -> Admission {
        guard !peer.isLoopback, peer.network != 0 else { return .exempt }
        let (exempt, forwarded) = state.withLock { ($0.exempt, $0.forwarded) }
        guard !exempt.contains(where: { $0.contains(peer) }), !(isHTTP && forwarded.isProxy(peer)) else {
            return .exempt
        }
        return state.withLock { state in
            guard let refusal = state.limiter.arrive(peer.network, state.rules, isHTTP: isHTTP, now: now) else {
                return .counted(peer.network)
            }
            state.counts[refusal.kind.rawValue] += 1
            state.lastRefused = peer.host
            return .refused(refusal)
        }
    }

    func leave(_ network: UInt64) { state.withLock { $0.limiter.leave(network) } }

    /// Counts a request on a counted connection; a refusal has the time of the next allowed request.
    package func request(
        _ network: UInt64, byteCount: Int, of host: @autoclosure () -> String, now: UInt64
    ) -> AddressRefusal? {
        guard network != 0 else { return nil }
        return state.withLock { state in
            guard let refusal = state.limiter.request(network, byteCount: byteCount, state.rules, now: now) else {
                return nil
            }
            return Self.note(refusal, of: host(), &state)
        }
    }

    /// Returns a refusal of a request before its body arrives if the client's address is over its byte rate.
    package func bodyRefusal(
        _ network: UInt64, of host: @autoclosure () -> String, now: UInt64
    ) -> AddressRefusal? {
        guard network != 0 else { return nil }
        return state.withLock { state in
            guard let refusal = state.limiter.bodyRefusal(network, state.rules, now: now) else { return nil }
            return Self.note(refusal, of: host(), &state)
        }
    }

    private static func note(_ refusal: AddressRefusal, of host: String, _ state: inout State) -> AddressRefusal {
        state.counts[refusal.kind.rawValue] += 1
        state.lastRefused = host
        return refusal
    }

    package func connectionCount(of network: UInt64) -> Int {
        state.withLock { $0.limiter.connectionCount(of: network) }
    }

    package var counts: [AddressRefusal.Kind: Int] {
        let counts = state.withLock { $0.counts }
        return Dictionary(uniqueKeysWithValues: AddressRefusal.Kind.allCases.map { ($0, counts[$0.rawValue]) })
    }

    /// Returns the refusals since the last call, or `nil` if there were none.
    package func takeReport() -> Report? {
        state.withLock { state in
            guard state.counts != state.told else { return nil }
            let counts = AddressRefusal.Kind.allCases.map {
                (kind: $0, count: state.counts[$0.rawValue] - state.told[$0.rawValue])
            }
            state.told = state.counts
            return Report(counts: counts.filter { $0.count > 0 }, address: state.lastRefused)
        }
    }
}

struct CountedAddress: Sendable {
    let addressGuard: AddressGuard
    let network: UInt64

    func leave() { addressGuard.leave(network) }
}
