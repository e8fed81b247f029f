internal import Platform
internal import Synchronization

/// The memory that peers may occupy in the process, over all loops and listeners.
///
/// It is divided into three parts that cannot use each other's share:
///
/// - **Requests**: bodies and heads of HTTP requests in progress. The announced size is reserved before any byte is stored and
///   released with the response. Unauthenticated requests may use half of the part. Small requests need no reservation, since one
///   per connection costs little.
/// - **Upstream**: devices' messages to their app's owner, limited per app and per address.
/// - **Streams**: incomplete frames, unsent output and TLS handshakes. A loop reports the sum of its streams and closes streams
///   above the limit (`StreamTable.settleBudget`). Streams before their Hello and handshakes may use half of the part.
package final class PeerBudget: Sendable {
    /// The limits in bytes.
    package struct Rules: Sendable, Equatable {
        package var requests: Int
        /// The limit of one address's requests.
        package var requestsOfNetwork: Int
        /// The limit of unauthenticated requests.
        package var strangersRequests: Int
        package var upstream: Int
        /// The limit of upstream messages per app and per address.
        package var upstreamOfOne: Int
        package var streams: Int
        /// The limit of streams before their Hello and of TLS handshakes.
        package var strangersStreams: Int

        /// - Parameters:
        ///   - requests: the limit of all requests, at least the largest body.
        ///   - requestsOfNetwork: the limit of one address's requests, at least the largest body.
        ///   - others: the limit of upstream messages and streams together.
        package init(requests: Int, requestsOfNetwork: Int, others: Int) {
            (self.requests, self.requestsOfNetwork) = (requests, requestsOfNetwork)
            strangersRequests = requests / 2
            (upstream, upstreamOfOne) = (others / 2, others / 4)
            (streams, strangersStreams) = (others / 2, others / 4)
        }

        package var byteCount: Int { requests + upstream + streams }
    }

    struct Share {
        fileprivate(set) var byteCount = 0
        fileprivate(set) var isProven = false
    }

    package struct UpstreamShare: Sendable {
        fileprivate let byteCount: Int
        fileprivate let app: UInt64
        fileprivate let network: UInt64
    }

    /// The memory of a loop's streams in bytes.
    struct StreamBytes: Equatable {
        var all = 0
        /// The part of streams before their Hello and of TLS handshakes.
        var strangers = 0
    }

    package let rules: Rules
    private let requests = Atomic<Int>(0)
    private let strangersRequests = Atomic<Int>(0)
    private let upstream = Atomic<Int>(0)
    private let streams = Atomic<Int>(0)
    private let strangersStreams = Atomic<Int>(0)
    private let refusals = Atomic<Int>(0)
    private let closings = Atomic<Int>(0)
    /// The reservations by `SocketAddress.network`; small requests are not included, so typical requests take no lock.
    private let networks = Lock<[UInt64: Int]>([:])
    private let upstreamSums = Lock(UpstreamSums())

    private struct UpstreamSums {
        var apps: [UInt64: Int] = [:]
        var networks: [UInt64: Int] = [:]
    }

    package init(_ rules: Rules) { self.rules = rules }

    package var requestByteCount: Int { requests.load(ordering: .relaxed) }
    package var upstreamByteCount: Int { upstream.load(ordering: .relaxed) }
    /// The streams' bytes, as last reported by the loops.
    package var streamByteCount: Int { streams.load(ordering: .relaxed) }
    package var refusedCount: Int { refusals.load(ordering: .relaxed) }
    package var closedCount: Int { closings.load(ordering: .relaxed) }

    // MARK: Requests

    /// Extends a reservation to `byteCount`; returns `false` and leaves it unchanged if a limit would be exceeded.
    func grow(_ share: inout Share, to byteCount: Int, network: UInt64) -> Bool {
        guard byteCount > max(share.byteCount, Limits.freeBodyByteCount) else { return true }
        let more = byteCount - share.byteCount
        guard requests.take(more, limit: rules.requests) else { return refuse() }
        guard share.isProven || strangersRequests.take(more, limit: rules.strangersRequests) else {
            requests.subtract(more, ordering: .relaxed)
            return refuse()
        }
        guard networks.withLock({ $0.take(more, of: network, limit: rules.requestsOfNetwork) }) else {
            requests.subtract(more, ordering: .relaxed)
            if !share.isProven { strangersRequests.subtract(more, ordering: .relaxed) }
            return refuse()
        }
        share.byteCount = byteCount
        return true
    }

    func prove(_ share: inout Share) {
        guard !share.isProven else { return }
        strangersRequests.subtract(share.byteCount, ordering: .relaxed)
        share.isProven = true
    }

    func release(_ share: inout Share, network: UInt64) {
        defer { share = Share() }
        guard share.byteCount > 0 else { return }
        requests.subtract(share.byteCount, ordering: .relaxed)
        if !share.isProven { strangersRequests.subtract(share.byteCount, ordering: .relaxed) }
        networks.withLock { $0.giveBack(share.byteCount, of: network) }
    }

    private func refuse() -> Bool {
        refusals.add(1, ordering: .relaxed)
        return false
    }

    // MARK: Upstream

    /// Reserves memory for an upstream message.
    ///
    /// - Parameters:
    ///   - byteCount: the size of the message.
    ///   - app: the app of the message.
    ///   - network: the value of `ByteStream.countedNetwork`. For 0 only the app's limit applies.
    /// - Returns: the reservation, which must be released, or `nil` if a limit would be exceeded.
    package func takeUpstream(_ byteCount: Int, app: UInt64, network: UInt64) -> UpstreamShare? {
        guard upstream.take(byteCount, limit: rules.upstream) else {
            _ = refuse()
            return nil
        }
        let isRoom = upstreamSums.withLock { sums in
            guard sums.apps.take(byteCount, of: app, limit: rules.upstreamOfOne) else { return false }
            guard network == 0 || sums.networks.take(byteCount, of: network, limit: rules.upstreamOfOne) else {
                sums.apps.giveBack(byteCount, of: app)
                return false
            }
            return true
        }
        guard isRoom else {
            upstream.subtract(byteCount, ordering: .relaxed)
            _ = refuse()
            return nil
        }
        return UpstreamShare(byteCount: byteCount, app: app, network: network)
    }

    package func giveBack(_ share: UpstreamShare) {
        upstream.subtract(share.byteCount, ordering: .relaxed)
        upstreamSums.withLock { sums in
            sums.apps.giveBack(share.byteCount, of: share.app)
            if share.network != 0 { sums.networks.giveBack(share.byteCount, of: share.network) }
        }
    }

    // MARK: Streams

    /// Replaces a loop's last reported stream bytes with the current ones.
    func report(_ bytes: StreamBytes, before: StreamBytes) {
        streams.add(bytes.all - before.all, ordering: .relaxed)
        strangersStreams.add(bytes.strangers - before.strangers, ordering: .relaxed)
    }

    /// Returns a loop's proportional part of the bytes above the limits.
    func excess(of bytes: StreamBytes) -> StreamBytes {
        func part(_ own: Int, of all: Int, limit: Int) -> Int {
            guard all > limit, own > 0 else { return 0 }
            return min(own, Int(Double(all - limit) * (Double(own) / Double(max(all, own)))) + 1)
        }
        return StreamBytes(
            all: part(bytes.all, of: streams.load(ordering: .relaxed), limit: rules.streams),
            strangers: part(
                bytes.strangers, of: strangersStreams.load(ordering: .relaxed), limit: rules.strangersStreams))
    }

    func noteClosed(_ count: Int) { closings.add(count, ordering: .relaxed) }
}

extension Atomic<Int> {
    fileprivate func take(_ count: Int, limit: Int) -> Bool {
        if add(count, ordering: .relaxed).newValue <= limit { return true }
        subtract(count, ordering: .relaxed)
        return false
    }
}

extension [UInt64: Int] {
    fileprivate mutating func take(_ count: Int, of key: UInt64, limit: Int) -> Bool {
        let sum = self[key, default: 0] + count
        guard sum <= limit else { return false }
        self[key] = sum
        return true
    }

    fileprivate mutating func giveBack(_ count: Int, of key: UInt64) {
        let rest = self[key, default: 0] - count
        self[key] = rest > 0 ? rest : nil
    }
}
