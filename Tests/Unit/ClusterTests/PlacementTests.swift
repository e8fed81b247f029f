import Cluster
import TestKit
import Testing

@Suite("Placement and the forms of the register")
struct PlacementTests {
    private func nodes(_ numbers: Int...) -> [Placement.Candidate] { numbers.map { Placement.Candidate(NodeID($0)!) } }

    private func counts(_ targets: [NodeID?]) -> [Int] {
        Dictionary(grouping: targets.compactMap { $0 }, by: { $0 }).values.map(\.count).sorted()
    }

    @Test("every partition has a node, shares differ by one at most, and no partition moves unnecessarily")
    func shares() {
        var random = SeededGenerator(seed: 7)
        for _ in 0..<500 {
            let partCount = 1 << Int.random(in: 0...8, using: &random)
            let count = Int.random(in: 1...40, using: &random)
            let candidates = (1...count).map { Placement.Candidate(NodeID($0)!) }
            let holders = (0..<partCount).map { _ in NodeID(Int.random(in: 0...count + 3, using: &random)) }
            let targets = Placement.targets(holders: holders, candidates: candidates)
            #expect(targets.allSatisfy { $0 != nil })
            var counts = Array(repeating: 0, count: count + 1), held = counts, kept = counts
            for (holder, target) in zip(holders, targets) {
                counts[Int(target!.number)] += 1
                if let holder, Int(holder.number) <= count { held[Int(holder.number)] += 1 }
                if holder == target { kept[Int(target!.number)] += 1 }
            }
            let least = partCount / count, most = (partCount + count - 1) / count
            for node in 1...count {
                #expect(least...most ~= counts[node])
                // A node with at most its share keeps all of it. The others keep a whole share.
                #expect(kept[node] == min(held[node], counts[node]))
            }
            #expect(Placement.targets(holders: targets, candidates: candidates) == targets)
        }
    }

    @Test("each single move of the plan improves it, in any order")
    func moves() {
        var random = SeededGenerator(seed: 9)
        for _ in 0..<200 {
            let count = Int.random(in: 2...9, using: &random)
            let candidates = (1...count).map { Placement.Candidate(NodeID($0)!) }
            var holders: [NodeID?] = (0..<32).map { _ in NodeID(Int.random(in: 1...max(1, count / 2), using: &random)) }
            var moveCount = 0
            while true {
                let targets = Placement.targets(holders: holders, candidates: candidates)
                let moves = holders.indices.filter { holders[$0] != targets[$0] }
                guard let move = moves.randomElement(using: &random) else { break }
                holders[move] = targets[move]
                moveCount += 1
            }
            #expect(moveCount <= 32)
        }
    }

    @Test("pins have priority, failed owners are avoided, and an unsteady node gets no more")
    func exceptions() {
        let none = Array(repeating: NodeID?.none, count: 8)
        let pinned = Placement.targets(
            holders: none, pins: [0: NodeID(2)!, 1: NodeID(2)!, 2: NodeID(2)!, 3: NodeID(2)!, 4: NodeID(9)!],
            candidates: nodes(1, 2, 3))
        #expect(pinned[0...3].allSatisfy { $0 == NodeID(2)! })
        #expect(counts(pinned) == [2, 2, 4])
        for part in 0..<8 {
            let target = Placement.targets(holders: none, avoided: [part: NodeID(1)!], candidates: nodes(1, 2))
            if part == 0 { #expect(target[part] == NodeID(2)!) }
        }
        #expect(Placement.targets(holders: none, avoided: [0: NodeID(1)!], candidates: nodes(1))[0] == NodeID(1)!)
        let held = (0..<8).map { $0 < 2 ? NodeID(1) : nil }
        var unsteady = nodes(1, 2, 3)
        unsteady[0].mayGain = false
        #expect(counts(Placement.targets(holders: held, candidates: unsteady)) == [2, 3, 3])
        unsteady[1].mayGain = false
        unsteady[2].mayGain = false
        // No node may gain, so an unsteady owner is better than none.
        #expect(Placement.targets(holders: held, candidates: unsteady).allSatisfy { $0 != nil })
        #expect(Placement.targets(holders: held, candidates: []).allSatisfy { $0 == nil })
    }

    @Test("a leaving node's partitions are spread over all others")
    func spread() {
        let all = (1...8).map { Placement.Candidate(NodeID($0)!) }
        let before = Placement.targets(holders: Array(repeating: nil, count: 256), candidates: all)
        let after = Placement.targets(holders: before, candidates: Array(all.dropLast()))
        let gained = before.indices.filter { before[$0] != after[$0] }.map { after[$0]! }
        #expect(gained.count == 32 && Set(gained).count == 7)
    }

    @Test("entries and infos survive parsing, and other texts are refused")
    func forms() {
        let node = NodeID(1_023)!
        let states: [PartEntry.State] = [
            .claimed(node), .open(node), .released(heir: node), .released(heir: nil), .failed(by: node),
        ]
        for state in states {
            let entry = PartEntry(epoch: PartEntry.highestEpoch - 1, state: state)
            #expect(PartEntry(text: entry.text) == entry)
        }
        #expect(PartEntry(text: "") == PartEntry())
        for text in [
            "1", "1:open", "0:open:1", "1:open:0", "1:open:1024", "x:open:1", "1:shut:1", "1:open:1:", "-1:open:1",
        ] {
            #expect(PartEntry(text: text) == nil, "\(text)")
        }
        var info = MemberInfo()
        (info.address, info.release, info.deviceAddress) = ("10.0.0.1:7100", "1.2.3", "gw:7000")
        (info.deviceTLSAddress, info.isLeaving, info.lapseCount) = ("gw:7443", true, 3)
        #expect(MemberInfo(text: info.text) == info)
        #expect(MemberInfo(text: info.text + " later=1 =2 x") == info)
        #expect(MemberInfo(text: "") == MemberInfo())
        #expect(NodeID(0) == nil && NodeID(1_024) == nil && NodeID(-1) == nil)
    }
}
