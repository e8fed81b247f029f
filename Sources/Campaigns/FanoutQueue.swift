public import Delivery
public import Wire

/// Lists on their way into one loop's shard: dealt in portions, as far as the store has room.
///
/// The apps take turns.
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

    /// One app's lists, which take turns among themselves.
    private struct Ring {
        let app: AppKey
        var entries: [Entry] = []
        var targetCount = 0
    }

    /// Of the devices that may wait, an app has at most this part.
    public static let sharesOfLimit = 4

    private let targetLimit: Int
    /// Apps with lists that wait, in the order of their turns.
    private var rings: [Ring] = []
    /// Devices that still wait.
    public private(set) var targetCount = 0

    /// - Parameter targetLimit: devices that may wait; each costs about a hundred bytes. One list is always taken.
    public init(targetLimit: Int) { self.targetLimit = targetLimit }

    public var isEmpty: Bool { rings.isEmpty }

    /// Lets a list wait for its portions until `deadline`; false when too many devices wait, of its app or of all.
    public mutating func append(_ fanout: Fanout, deadline: UInt64) -> Bool {
        let count = fanout.targets.count
        let place = rings.firstIndex { $0.app == fanout.app }
        let own = place.map { rings[$0].targetCount } ?? 0
        guard own == 0 || own + count <= targetLimit / Self.sharesOfLimit,
            targetCount == 0 || targetCount + count <= targetLimit
        else { return false }
        guard count > 0 else { return true }
        if place == nil { rings.append(Ring(app: fanout.app)) }
        let ring = place ?? rings.count - 1
        rings[ring].entries.append(Entry(fanout: fanout, next: 0, deadline: deadline))
        rings[ring].targetCount += count
        targetCount += count
        return true
    }

    /// The next portion of the first app that `mayTake` lets: the app stands behind the others from then on, and what is
    /// left of the list behind the app's other lists.
    public mutating func popPortion(where mayTake: (AppKey) -> Bool = { _ in true }) -> Portion? {
        guard let place = rings.firstIndex(where: { mayTake($0.app) }) else { return nil }
        var ring = rings.remove(at: place)
        var entry = ring.entries.removeFirst()
        let part = entry.next..<min(entry.next + Self.portionCount, entry.fanout.targets.count)
        entry.next = part.upperBound
        if entry.next < entry.fanout.targets.count { ring.entries.append(entry) }
        ring.targetCount -= part.count
        targetCount -= part.count
        if !ring.entries.isEmpty { rings.append(ring) }
        return Portion(fanout: entry.fanout, part: part)
    }

    /// Takes out what has waited until its deadline.
    public mutating func popOverdue(now: UInt64) -> [Portion] {
        var overdue: [Portion] = []
        for place in rings.indices {
            for entry in rings[place].entries where entry.deadline <= now {
                let part = entry.next..<entry.fanout.targets.count
                rings[place].targetCount -= part.count
                targetCount -= part.count
                overdue.append(Portion(fanout: entry.fanout, part: part))
            }
            rings[place].entries.removeAll { $0.deadline <= now }
        }
        rings.removeAll { $0.entries.isEmpty }
        return overdue
    }
}
