/// The assignment of partitions to gateways.
///
/// Every gateway that reads the same register computes the same result. Each gateway keeps its partitions, up to its share.
/// Partitions without an owner, and those above a share, are placed by rendezvous hashing on gateways with room. Without pins,
/// shares differ by at most one, and no partition moves unless needed.
package enum Placement {
    package struct Candidate: Hashable, Sendable {
        package var node: NodeID
        /// Whether the node may get more partitions; otherwise it only keeps its own.
        package var mayGain: Bool
        package init(_ node: NodeID, mayGain: Bool = true) { (self.node, self.mayGain) = (node, mayGain) }
    }

    /// Computes the owner of each partition.
    ///
    /// - Parameters:
    ///   - holders: The current owner of each partition. `nil` and nodes that are not candidates count as no owner.
    ///   - pins: The partitions placed by an operator. A pin to a node that is not a candidate is ignored.
    ///   - avoided: The node that failed to open a partition. It gets the partition only if no other node has room.
    ///   - candidates: The available nodes, each one once.
    /// - Returns: A node for each partition; `nil` only without candidates.
    package static func targets(
        holders: [NodeID?], pins: [Int: NodeID] = [:], avoided: [Int: NodeID] = [:], candidates: [Candidate]
    ) -> [NodeID?] {
        guard !candidates.isEmpty else { return holders.map { _ in nil } }
        let candidates = candidates.sorted { $0.node < $1.node }
        var indices: [NodeID: Int] = [:]
        for (index, candidate) in candidates.enumerated() { indices[candidate.node] = index }
        var held: [[Int]] = Array(repeating: [], count: candidates.count)
        var pinnedCounts = Array(repeating: 0, count: candidates.count)
        var targets: [NodeID?] = Array(repeating: nil, count: holders.count)
        for (part, holder) in holders.enumerated() {
            if let pin = pins[part], let index = indices[pin] {
                pinnedCounts[index] += 1
                targets[part] = pin
            } else if let holder, let index = indices[holder] {
                held[index].append(part)
            }
        }
        let loads = zip(held, pinnedCounts).map { $0.count + $1 }
        var shares = self.shares(
            partCount: holders.count, loads: loads, pinnedCounts: pinnedCounts, mayGain: candidates.map(\.mayGain))
        if shares.reduce(0, +) < holders.count {
            // No candidate may gain, and partitions remain. An owner on probation is better than no owner.
            shares = self.shares(
                partCount: holders.count, loads: loads, pinnedCounts: pinnedCounts,
                mayGain: candidates.map { _ in true })
        }
        var room = zip(shares, pinnedCounts).map { $0 - $1 }
        for (index, candidate) in candidates.enumerated() where !held[index].isEmpty {
            if held[index].count > room[index] {
                held[index].sort { weight(candidate.node, $0) > weight(candidate.node, $1) }
            }
            for part in held[index].prefix(max(0, room[index])) { targets[part] = candidate.node }
            room[index] -= min(held[index].count, max(0, room[index]))
        }
        for part in holders.indices where targets[part] == nil {
            var best: (index: Int, weight: UInt64)?
            for (index, candidate) in candidates.enumerated() where room[index] > 0 {
                // The avoided node gets the lowest weight.
                let weight =
                    avoided[part] == candidate.node ? 0 : weight(candidate.node, part) | 1
                if best.map({ weight > $0.weight }) ?? true { best = (index, weight) }
            }
            guard let best else { continue }
            room[best.index] -= 1
            targets[part] = candidates[best.index].node
        }
        return targets
    }

    /// Computes the number of partitions for each candidate.
    ///
    /// Shares are equal. The remainder goes to the nodes that have the most partitions now, so that fewer partitions move. A
    /// candidate keeps its pinned partitions even above its share. A candidate that may not gain gets at most its current count.
    /// The other candidates divide the remaining partitions.
    private static func shares(partCount: Int, loads: [Int], pinnedCounts: [Int], mayGain: [Bool]) -> [Int] {
        var shares = Array(repeating: 0, count: loads.count)
        var isFixed = Array(repeating: false, count: loads.count)
        var rest = partCount
        while true {
            let free = loads.indices.filter { !isFixed[$0] }.sorted { (loads[$1], $0) < (loads[$0], $1) }
            guard !free.isEmpty else { return shares }
            let (share, remainder) = rest.quotientAndRemainder(dividingBy: free.count)
            var isDone = true
            for (rank, index) in free.enumerated() {
                shares[index] = share + (rank < remainder ? 1 : 0)
                let fixed: Int
                if pinnedCounts[index] > shares[index] {
                    fixed = pinnedCounts[index]
                } else if !mayGain[index], loads[index] < shares[index] {
                    fixed = loads[index]
                } else {
                    continue
                }
                shares[index] = fixed
                isFixed[index] = true
                rest -= fixed
                isDone = false
            }
            if isDone { return shares }
        }
    }

    /// Returns the rendezvous hash of a node and a partition; the hashes of different pairs are independent.
    package static func weight(_ node: NodeID, _ part: Int) -> UInt64 {
        var word = UInt64(node.number) << 32 | UInt64(truncatingIfNeeded: part)
        word &+= 0x9E37_79B9_7F4A_7C15
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }

    /// Returns a node's rank among all candidates for a partition; 0 is the first choice.
    package static func rank(of node: NodeID, for part: Int, among candidates: [Candidate]) -> Int {
        let own = weight(node, part)
        return candidates.count { $0.node != node && weight($0.node, part) > own }
    }
}
