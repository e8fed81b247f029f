/// The register's entry of one partition: its epoch, and its owner or chosen successor.
///
/// Each epoch is assigned once, by compare-and-set. The partition's log rejects writes of owners with an earlier epoch.
package struct PartEntry: Hashable, Sendable {
    package enum State: Hashable, Sendable {
        case unclaimed
        /// The node may open the partition's log under this epoch.
        case claimed(NodeID)
        /// The node has opened the partition and serves it.
        case open(NodeID)
        /// The previous owner released the partition, for the successor `heir` if one was chosen.
        case released(heir: NodeID?)
        /// The node released the partition because it could not open the log.
        case failed(by: NodeID)
    }

    package var epoch: UInt64
    package var state: State

    package init(epoch: UInt64 = 0, state: State = .unclaimed) { (self.epoch, self.state) = (epoch, state) }

    package var owner: NodeID? {
        switch state {
        case .claimed(let node), .open(let node): node
        case .unclaimed, .released, .failed: nil
        }
    }

    package var isOpen: Bool { if case .open = state { true } else { false } }

    /// The register's text form `epoch:state:node`; empty for a partition without an entry.
    package var text: String {
        switch state {
        case .unclaimed: ""
        case .claimed(let node): "\(epoch):claimed:\(node)"
        case .open(let node): "\(epoch):open:\(node)"
        case .released(let heir): "\(epoch):released:\(heir?.number ?? 0)"
        case .failed(let node): "\(epoch):failed:\(node)"
        }
    }

    package init?(text: some StringProtocol) {
        guard !text.isEmpty else {
            self.init()
            return
        }
        let fields = text.split(separator: ":", omittingEmptySubsequences: false)
        guard fields.count == 3, let epoch = UInt64(fields[0]), epoch > 0, epoch < Self.highestEpoch,
            let number = UInt16(fields[2])
        else { return nil }
        let node = NodeID(number)
        switch (fields[1], node) {
        case ("claimed", let node?): self.init(epoch: epoch, state: .claimed(node))
        case ("open", let node?): self.init(epoch: epoch, state: .open(node))
        case ("failed", let node?): self.init(epoch: epoch, state: .failed(by: node))
        case ("released", _) where number == 0 || node != nil: self.init(epoch: epoch, state: .released(heir: node))
        default: return nil
        }
    }

    /// The exclusive upper bound of epochs: far above any reachable epoch, and exact in the floating-point numbers of Redis
    /// scripts.
    package static let highestEpoch: UInt64 = 1 << 52
}

package struct PartChange: Hashable, Sendable {
    package var part: Int
    package var from: PartEntry
    package var to: PartEntry
    package init(part: Int, from: PartEntry, to: PartEntry) { (self.part, self.from, self.to) = (part, from, to) }
}
