internal import Platform
internal import Synchronization

/// One bound for the request bodies that the process holds, over all loops and servers, and one for each network.
///
/// What a request announces is reserved before a byte of it is kept, and given back with its answer. Small bodies are free:
/// as many of them as there are connections cost little.
package final class HTTPBodyBudget: Sendable {
    /// What one request has reserved.
    struct Share {
        fileprivate(set) var byteCount = 0
    }

    package let byteLimit: Int
    package let networkByteLimit: Int
    private let total = Atomic<Int>(0)
    /// By `SocketAddress.network`; of what is beyond a packet or two, so that usual requests take no lock.
    private let networks = Lock<[UInt64: Int]>([:])

    /// - Parameters:
    ///   - byteLimit: of all bodies under way.
    ///   - networkByteLimit: of those from one address; both hold at least one of the largest bodies.
    package init(byteLimit: Int, networkByteLimit: Int) {
        (self.byteLimit, self.networkByteLimit) = (byteLimit, networkByteLimit)
    }

    /// Bytes reserved now.
    package var byteCount: Int { total.load(ordering: .relaxed) }

    /// Grows a share to `byteCount`; false when a bound is in the way, and the share is as before.
    func grow(_ share: inout Share, to byteCount: Int, network: UInt64) -> Bool {
        guard byteCount > max(share.byteCount, Limits.freeBodyByteCount) else { return true }
        let more = byteCount - share.byteCount
        guard total.add(more, ordering: .relaxed).newValue <= byteLimit else {
            total.subtract(more, ordering: .relaxed)
            return false
        }
        let isRoom = networks.withLock { networks in
            let sum = networks[network, default: 0] + more
            guard sum <= networkByteLimit else { return false }
            networks[network] = sum
            return true
        }
        guard isRoom else {
            total.subtract(more, ordering: .relaxed)
            return false
        }
        share.byteCount = byteCount
        return true
    }

    /// Gives everything back.
    func release(_ share: inout Share, network: UInt64) {
        guard share.byteCount > 0 else { return }
        total.subtract(share.byteCount, ordering: .relaxed)
        networks.withLock { networks in
            let rest = networks[network, default: 0] - share.byteCount
            networks[network] = rest > 0 ? rest : nil
        }
        share = Share()
    }
}
