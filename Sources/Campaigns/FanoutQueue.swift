public import Delivery

/// Lists on their way into one loop's shard: dealt in portions, in turn, as far as the store has room.
///
/// A whole list at once would encode megabytes before anybody looks at the store's bound; a list that the bound cuts in
/// half would be refused for the rest of its devices, though a moment later there is room.
public struct FanoutQueue {
    /// Some of one list's devices, to be published now.
    public struct Portion {
        public let fanout: Fanout
        public let part: Range<Int>

        public func forEach(_ body: (PublishCommand) -> Void) { fanout.forEach(in: part, body) }
    }

    /// Devices of one portion: the most that is encoded between two looks at the store's bound.
    public static let portionCount = 32

    private struct Entry {
        let fanout: Fanout
        var next: Int
        let deadline: UInt64
    }

    private let targetLimit: Int
    private var waiting: [Entry] = []
    /// Devices that still wait.
    public private(set) var targetCount = 0

    /// - Parameter targetLimit: devices that may wait; each costs about a hundred bytes.
    public init(targetLimit: Int) { self.targetLimit = targetLimit }

    public var isEmpty: Bool { waiting.isEmpty }

    /// Lets a list wait for its portions until `deadline`; false when too many devices wait.
    public mutating func append(_ fanout: Fanout, deadline: UInt64) -> Bool {
        guard targetCount == 0 || targetCount + fanout.targets.count <= targetLimit else { return false }
        guard !fanout.targets.isEmpty else { return true }
        waiting.append(Entry(fanout: fanout, next: 0, deadline: deadline))
        targetCount += fanout.targets.count
        return true
    }

    /// The next portion; what is left of its list stands behind the other lists from then on.
    public mutating func popPortion() -> Portion? {
        guard !waiting.isEmpty else { return nil }
        var entry = waiting.removeFirst()
        let part = entry.next..<min(entry.next + Self.portionCount, entry.fanout.targets.count)
        entry.next = part.upperBound
        if entry.next < entry.fanout.targets.count { waiting.append(entry) }
        targetCount -= part.count
        return Portion(fanout: entry.fanout, part: part)
    }

    /// Takes out what has waited until its deadline.
    public mutating func popOverdue(now: UInt64) -> [Portion] {
        let overdue = waiting.filter { $0.deadline <= now }
        guard !overdue.isEmpty else { return [] }
        waiting.removeAll { $0.deadline <= now }
        return overdue.map { entry in
            let part = entry.next..<entry.fanout.targets.count
            targetCount -= part.count
            return Portion(fanout: entry.fanout, part: part)
        }
    }
}
