/// Which gateway should have which part: the same answer on every gateway that sees the same register.
///
/// Each gateway keeps what it has, up to its share; what nobody has, and what is above a share, goes by rendezvous hashing
/// to gateways with room. So shares differ by one at most, and no part moves without need.
package enum Placement {
    package struct Candidate: Hashable, Sendable {
        package var node: NodeID
        /// False: it keeps what it has and gets nothing more.
        package var mayGain: Bool
        package init(_ node: NodeID, mayGain: Bool = true) { (self.node, self.mayGain) = (node, mayGain) }
    }

    /// - Parameters:
    ///   - holders: who has each part now; `nil`, and a node that is no candidate, counts as nobody.
    ///   - pins: parts that an operator placed; a pin to a node that is no candidate does not count.
    ///   - avoided: the node that could not open a part; it gets the part only if there is no other.
    ///   - candidates: each node once.
    /// - Returns: a node for each part; `nil` only without candidates.
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
            // Nobody may gain and parts are left over: better on an unsteady gateway than on none.
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
                // A node that failed comes behind all others.
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

    /// How many parts each candidate shall have.
    ///
    /// Equal shares; the ones that have more now get the remainder, so that it does not wander. A candidate with more
    /// pinned parts than its share has those; one that may not gain has no more than it has. The others share the rest.
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

    /// How much a part belongs to a node: a number that has nothing to do with any other pair's.
    package static func weight(_ node: NodeID, _ part: Int) -> UInt64 {
        var word = UInt64(node.number) << 32 | UInt64(truncatingIfNeeded: part)
        word &+= 0x9E37_79B9_7F4A_7C15
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }

    /// The place of a node among all candidates for a part, 0 for the first choice.
    package static func rank(of node: NodeID, for part: Int, among candidates: [Candidate]) -> Int {
        let own = weight(node, part)
        return candidates.count { $0.node != node && weight($0.node, part) > own }
    }
}
