internal import Cryptography

// The bytes that a loop's streams hold for their peers, and the streams that end when these are too many.
extension StreamTable {
    /// The bytes of the loop's streams now: blocks of unread and unsent bytes, and OpenSSL's memory for handshakes.
    ///
    /// Without those on their way to another gateway of the cluster: links have bounds of their own.
    private var heldBytes: PeerBudget.StreamBytes {
        let handshakes = handshakeCount * Limits.handshakeByteCount
        let links = links.reduce(0) { $0 + $1.outboxByteCount }
        return PeerBudget.StreamBytes(
            all: max(0, pool.usedByteCount - links) + handshakes, strangers: strangerByteCount + handshakes)
    }

    /// Reports what the streams hold, once a turn, and closes some when the process holds too much.
    static func settleBudget(on loop: EventLoop) {
        let table = loop.streams
        guard let budget = table.pointee.budget else { return }
        let (held, told) = (table.pointee.heldBytes, table.pointee.toldBytes)
        let change = max(abs(held.all - told.all), abs(held.strangers - told.strangers))
        if change >= Limits.budgetStepByteCount || (change > 0 && held.all == 0) {
            table.pointee.links.removeAll { !$0.isOpen }
            report(held, to: budget, on: loop)
        }
        let excess = budget.excess(of: table.pointee.toldBytes)
        if excess.strangers > 0 {
            makeRoom(max(excess.strangers, held.strangers / 8), among: .strangers, budget, on: loop)
        }
        if excess.all > excess.strangers { makeRoom(max(excess.all, held.all / 8), among: .all, budget, on: loop) }
    }

    /// The loop ends: its streams hold nothing any more.
    static func endBudget(on loop: EventLoop) {
        guard let budget = loop.streams.pointee.budget else { return }
        report(PeerBudget.StreamBytes(), to: budget, on: loop)
        loop.streams.pointee.budget = nil
    }

    private static func report(_ held: PeerBudget.StreamBytes, to budget: PeerBudget, on loop: EventLoop) {
        budget.report(held, before: loop.streams.pointee.toldBytes)
        loop.streams.pointee.toldBytes = held
    }

    private enum Crowd { case strangers, all }

    private struct Candidate {
        let stream: ByteStream
        let network: UInt64
        let byteCount: Int
    }

    /// Closes streams until `wanted` bytes are free: those of the address that holds most, its largest first.
    ///
    /// It frees some more than is needed, since it looks at every stream. An address that no guard counts, such as loopback, is
    /// as many addresses as it has streams.
    private static func makeRoom(_ wanted: Int, among crowd: Crowd, _ budget: PeerBudget, on loop: EventLoop) {
        let table = loop.streams
        var candidates: [Candidate] = []
        var sums: [UInt64: Int] = [:]
        let links = Set(table.pointee.links.map(\.place))
        table.pointee.forEachTaken { slot, network in
            guard !links.contains(slot) else { return }
            var byteCount = slot.pointee.isServersHandshake ? Limits.handshakeByteCount : 0
            if crowd == .all || slot.pointee.newcomer != .no {
                byteCount += slot.pointee.unconsumed.map { Int($0.pointee.capacity) } ?? 0
            }
            if crowd == .all { byteCount += slot.pointee.outbox.capacity }
            guard byteCount > 0 else { return }
            let owner = network != 0 ? network : 1 << 63 | UInt64(slot.pointee.number)
            sums[owner, default: 0] += byteCount
            candidates.append(Candidate(stream: ByteStream(slot), network: owner, byteCount: byteCount))
        }
        candidates.sort { left, right in
            let (leftSum, rightSum) = (sums[left.network, default: 0], sums[right.network, default: 0])
            if leftSum != rightSum { return leftSum > rightSum }
            if left.network != right.network { return left.network < right.network }
            return left.byteCount > right.byteCount
        }
        var (freed, count) = (0, 0)
        for candidate in candidates {
            guard freed < wanted else { break }
            freed += candidate.byteCount
            count += 1
            candidate.stream.finish(.budgetSpent)
        }
        budget.noteClosed(count)
        report(table.pointee.heldBytes, to: budget, on: loop)
    }
}

extension StreamSlot {
    /// Whether a TLS handshake is under way that a client began here.
    fileprivate var isServersHandshake: Bool { flags.contains(.isHandshaking) && tls?.isServing ?? false }
}

extension EventLoop {
    /// The budget that the loop's streams count to.
    package var peerBudget: PeerBudget? {
        get {
            preconditionInLoop()
            return streams.pointee.budget
        }
        set {
            preconditionInLoop()
            StreamTable.endBudget(on: self)
            streams.pointee.budget = newValue
        }
    }
}

extension ByteStream {
    /// The address that a guard counts the stream to; 0: it is not counted, or is over.
    package var countedNetwork: UInt64 { slot.map { table.pointee.countedNetwork(of: $0) } ?? 0 }

    /// The other end is a gateway of the same cluster: what waits for it counts to no peer, and it is not closed to make room.
    package func isLink() {
        guard let slot else { return }
        table.pointee.links.append(ByteStream(slot))
    }
}
