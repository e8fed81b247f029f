internal import Cryptography

// The loop's part of the peers' memory budget, and the closing of streams above it.
extension StreamTable {
    /// The current memory of the loop's streams, without output to other gateways of the cluster, which has separate limits.
    private var heldBytes: PeerBudget.StreamBytes {
        let handshakes = handshakeCount * Limits.handshakeByteCount
        let links = links.reduce(0) { $0 + $1.outboxByteCount }
        return PeerBudget.StreamBytes(
            all: max(0, pool.usedByteCount - links) + handshakes, strangers: strangerByteCount + handshakes)
    }

    /// Reports the streams' memory once per turn and closes streams if the process exceeds its budget.
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

    /// Closes streams until `wanted` bytes are free: the largest of the address with the most memory first.
    ///
    /// Each stream without a counted address, such as loopback, counts as a separate address.
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
    fileprivate var isServersHandshake: Bool { flags.contains(.isHandshaking) && tls?.isServing ?? false }
}

extension EventLoop {
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
    /// The address under which a guard counts the stream, or 0 if it is not counted or closed.
    package var countedNetwork: UInt64 { slot.map { table.pointee.countedNetwork(of: $0) } ?? 0 }

    /// Marks the stream as a link to a gateway of the same cluster, which the peers' budget neither counts nor closes.
    package func isLink() {
        guard let slot else { return }
        table.pointee.links.append(ByteStream(slot))
    }
}
