internal import Platform

/// Holds every network address to what it may do at a gateway, over all loops and listeners that share the guard.
///
/// Which connection is whose address's is decided when it is accepted; it stays counted until its descriptor is closed, whichever
/// loops it moves to. Loopback is always exempt.
package final class AddressGuard: Sendable {
    private struct State: ~Copyable {
        var limiter: AddressLimiter
        var rules = AddressRules()
        var exempt: [AddressRange] = []
        var counts = Array(repeating: 0, count: AddressRefusal.Kind.allCases.count)
        var told = Array(repeating: 0, count: AddressRefusal.Kind.allCases.count)
        var lastRefused = ""
    }

    /// What happened since the last report.
    package struct Report {
        package let counts: [(kind: AddressRefusal.Kind, count: Int)]
        /// The address that was refused last.
        package let address: String
    }

    private let state = Lock(State(limiter: AddressLimiter()))

    package init() {}

    /// What counts from now on; addresses that have become exempt are no longer held with their next connection.
    package func set(_ rules: AddressRules, exempt: [AddressRange]) {
        state.withLock { ($0.rules, $0.exempt) = (rules, exempt) }
    }

    package enum Admission {
        /// Nobody counts it.
        case exempt
        case counted(UInt64)
        case refused(AddressRefusal)
    }

    /// Counts in a connection that was just accepted; a loop's milliseconds are `now`.
    func admit(_ peer: SocketAddress, isHTTP: Bool = false, now: UInt64) -> Admission {
        guard !peer.isLoopback, peer.network != 0 else { return .exempt }
        let exempt = state.withLock { $0.exempt }
        guard !exempt.contains(where: { $0.contains(peer) }) else { return .exempt }
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

    /// Counts a request of a connection that is counted; says when the next one is welcome.
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

    /// Whether a body that is still to come is worth reading: not from an address that pays for earlier ones.
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

    /// Connections of an address that are open now.
    package func connectionCount(of network: UInt64) -> Int {
        state.withLock { $0.limiter.connectionCount(of: network) }
    }

    /// Refusals of each kind since the start.
    package var counts: [AddressRefusal.Kind: Int] {
        let counts = state.withLock { $0.counts }
        return Dictionary(uniqueKeysWithValues: AddressRefusal.Kind.allCases.map { ($0, counts[$0.rawValue]) })
    }

    /// What was refused since the last call; `nil`: nothing.
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

/// A connection that its address's guard counts, until `leave`.
struct CountedAddress: Sendable {
    let addressGuard: AddressGuard
    let network: UInt64

    func leave() { addressGuard.leave(network) }
}
