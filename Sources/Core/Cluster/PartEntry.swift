/// What the register says of one part: who owns it under which epoch, or who shall take it.
///
/// An epoch is given once, by compare-and-set; the part's log refuses every owner of an earlier one.
package struct PartEntry: Hashable, Sendable {
    package enum State: Hashable, Sendable {
        /// Nobody owned it yet.
        case unclaimed
        /// The node may open the part's log under this epoch.
        case claimed(NodeID)
        /// The node has opened it and serves it.
        case open(NodeID)
        /// Given back: for the heir, if one was chosen.
        case released(heir: NodeID?)
        /// Given back by a node that could not open it.
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

    /// As the register keeps it: `epoch:state:node`, empty for a part without entry.
    package var text: String {
        switch state {
        case .unclaimed: ""
        case .claimed(let node): "\(epoch):claimed:\(node)"
        case .open(let node): "\(epoch):open:\(node)"
        case .released(let heir): "\(epoch):released:\(heir?.number ?? 0)"
        case .failed(let node): "\(epoch):failed:\(node)"
        }
    }

    /// Reads what `text` writes; `nil` for anything else.
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

    /// Every epoch is below it: far above what a part can reach, and what a script's numbers hold exactly.
    package static let highestEpoch: UInt64 = 1 << 52
}

/// One compare-and-set on the map of parts.
package struct PartChange: Hashable, Sendable {
    package var part: Int
    package var from: PartEntry
    package var to: PartEntry
    package init(part: Int, from: PartEntry, to: PartEntry) { (self.part, self.from, self.to) = (part, from, to) }
}
