internal import Platform
internal import Synchronization

/// The bytes that peers make the process hold, over all loops and listeners.
///
/// Three uses have parts of their own, so that none takes another's room:
///
/// - **Requests**: bodies and heads of HTTP requests under way. What a request announces is reserved before a byte of it is
///   kept, and given back with its answer. Requests that nothing vouches for have half of the part. Small ones are free: as
///   many of them as there are connections cost little.
/// - **Upstream**: messages of devices on their way to their app's home, by app and by address.
/// - **Streams**: received bytes that are no whole frame yet, output that a peer does not take, TLS handshakes. A loop reports
///   the sum of its streams. Beyond the part the loop closes streams (`StreamTable.settleBudget`). Streams before their Hello
///   and handshakes have half of this part.
package final class PeerBudget: Sendable {
    /// The parts, in bytes.
    package struct Rules: Sendable, Equatable {
        package var requests: Int
        /// Of requests of one address.
        package var requestsOfNetwork: Int
        /// Of requests that nothing vouches for.
        package var strangersRequests: Int
        package var upstream: Int
        /// Of upstream messages of one app, and of those from one address.
        package var upstreamOfOne: Int
        package var streams: Int
        /// Of streams before their Hello, and of TLS handshakes.
        package var strangersStreams: Int

        /// - Parameters:
        ///   - requests: of all requests; one holds at least the largest body.
        ///   - requestsOfNetwork: of those from one address; one holds at least the largest body, too.
        ///   - others: of upstream messages and streams together.
        package init(requests: Int, requestsOfNetwork: Int, others: Int) {
            (self.requests, self.requestsOfNetwork) = (requests, requestsOfNetwork)
            strangersRequests = requests / 2
            (upstream, upstreamOfOne) = (others / 2, others / 4)
            (streams, strangersStreams) = (others / 2, others / 4)
        }

        /// Every byte that the budget grants.
        package var byteCount: Int { requests + upstream + streams }
    }

    /// The reservation of one request.
    struct Share {
        fileprivate(set) var byteCount = 0
        /// Something vouches for the request.
        fileprivate(set) var isProven = false
    }

    /// The reservation of one upstream message.
    package struct UpstreamShare: Sendable {
        fileprivate let byteCount: Int
        fileprivate let app: UInt64
        fileprivate let network: UInt64
    }

    /// Bytes that a loop's streams hold.
    struct StreamBytes: Equatable {
        var all = 0
        /// Of streams before their Hello, and of TLS handshakes.
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
    /// By `SocketAddress.network`; of what is beyond a packet or two, so that usual requests take no lock.
    private let networks = Lock<[UInt64: Int]>([:])
    private let upstreamSums = Lock(UpstreamSums())

    /// The sums by app and by `SocketAddress.network`.
    private struct UpstreamSums {
        var apps: [UInt64: Int] = [:]
        var networks: [UInt64: Int] = [:]
    }

    package init(_ rules: Rules) { self.rules = rules }

    /// Bytes reserved for requests now.
    package var requestByteCount: Int { requests.load(ordering: .relaxed) }
    /// Bytes of upstream messages on their way.
    package var upstreamByteCount: Int { upstream.load(ordering: .relaxed) }
    /// Bytes that streams hold, as the loops last reported.
    package var streamByteCount: Int { streams.load(ordering: .relaxed) }
    /// Requests and upstream messages refused since the start.
    package var refusedCount: Int { refusals.load(ordering: .relaxed) }
    /// Streams closed to make room since the start.
    package var closedCount: Int { closings.load(ordering: .relaxed) }

    // MARK: Requests

    /// Grows a share to `byteCount`; false when a bound is in the way, and the share is as before.
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

    /// Something vouches for the request from now on.
    func prove(_ share: inout Share) {
        guard !share.isProven else { return }
        strangersRequests.subtract(share.byteCount, ordering: .relaxed)
        share.isProven = true
    }

    /// Gives everything back.
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

    /// Reserves room for an upstream message.
    ///
    /// - Parameters:
    ///   - byteCount: what it takes.
    ///   - app: whose message it is.
    ///   - network: as `ByteStream.countedNetwork`; 0 is bounded by its app alone.
    /// - Returns: what is to be given back; `nil` when there is no room.
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

    /// A loop's streams hold other amounts than it reported last.
    func report(_ bytes: StreamBytes, before: StreamBytes) {
        streams.add(bytes.all - before.all, ordering: .relaxed)
        strangersStreams.add(bytes.strangers - before.strangers, ordering: .relaxed)
    }

    /// How much of what a loop's streams hold is too much; each loop has its part of the excess.
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
    /// Adds `count` unless the sum would exceed `limit`.
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
