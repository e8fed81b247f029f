package import Delivery
package import Wire

/// Lists on their way into one loop's shard: dealt in portions, as far as the store has room.
///
/// The apps take turns.
/// A whole list at once would encode megabytes before anybody looks at the store's bound; a list that the bound cuts in
/// half would be refused for the rest of its devices, though a moment later there is room.
package struct FanoutQueue {
    /// Some of one list's devices, to be published now.
    package struct Portion {
        package let fanout: Fanout
        package let part: Range<Int>

        package func forEach(_ body: (PublishCommand) -> Void) { fanout.forEach(in: part, body) }
    }

    /// Devices of one portion: the most that is encoded between two looks at the store's bound.
    package static let portionCount = 32

    private struct Entry {
        let fanout: Fanout
        var next: Int
        let deadline: UInt64
    }

    /// One app's lists, which take turns among themselves.
    private struct AppLists {
        let app: AppKey
        private var entries: [Entry] = []
        /// Those before it are gone: taking one moves the others only now and then.
        private var head = 0
        var targetCount = 0

        init(app: AppKey) { self.app = app }

        var isEmpty: Bool { head == entries.count }
        mutating func append(_ entry: Entry) { entries.append(entry) }

        mutating func popFirst() -> Entry {
            let entry = entries[head]
            head += 1
            if head * 2 >= entries.count {
                entries.removeFirst(head)
                head = 0
            }
            return entry
        }

        mutating func removeOverdue(now: UInt64) -> [Entry] {
            let overdue = entries[head...].filter { $0.deadline <= now }
            guard !overdue.isEmpty else { return [] }
            entries = entries[head...].filter { $0.deadline > now }
            head = 0
            return overdue
        }
    }

    /// Of the devices that may wait, an app has at most this part.
    package static let sharesOfLimit = 4

    private let targetLimit: Int
    /// Apps with lists that wait, in the order of their turns.
    private var queues: [AppLists] = []
    /// Devices that still wait.
    package private(set) var targetCount = 0

    /// - Parameter targetLimit: devices that may wait; each costs about a hundred bytes. One list is always taken.
    package init(targetLimit: Int) { self.targetLimit = targetLimit }

    package var isEmpty: Bool { queues.isEmpty }

    /// Lets a list wait for its portions until `deadline`; false when too many devices wait, of its app or of all.
    package mutating func append(_ fanout: Fanout, deadline: UInt64) -> Bool {
        let count = fanout.targets.count
        let place = queues.firstIndex { $0.app == fanout.app }
        let own = place.map { queues[$0].targetCount } ?? 0
        guard own == 0 || own + count <= targetLimit / Self.sharesOfLimit,
            targetCount == 0 || targetCount + count <= targetLimit
        else { return false }
        guard count > 0 else { return true }
        if place == nil { queues.append(AppLists(app: fanout.app)) }
        let last = place ?? queues.count - 1
        queues[last].append(Entry(fanout: fanout, next: 0, deadline: deadline))
        queues[last].targetCount += count
        targetCount += count
        return true
    }

    /// The next portion of the first app that `mayTake` lets: the app stands behind the others from then on, and what is
    /// left of the list behind the app's other lists.
    package mutating func popPortion(where mayTake: (AppKey) -> Bool = { _ in true }) -> Portion? {
        guard let place = queues.firstIndex(where: { mayTake($0.app) }) else { return nil }
        var queue = queues.remove(at: place)
        var entry = queue.popFirst()
        let part = entry.next..<min(entry.next + Self.portionCount, entry.fanout.targets.count)
        entry.next = part.upperBound
        if entry.next < entry.fanout.targets.count { queue.append(entry) }
        queue.targetCount -= part.count
        targetCount -= part.count
        if !queue.isEmpty { queues.append(queue) }
        return Portion(fanout: entry.fanout, part: part)
    }

    /// Takes out what has waited until its deadline.
    package mutating func popOverdue(now: UInt64) -> [Portion] {
        var overdue: [Portion] = []
        for place in queues.indices {
            for entry in queues[place].removeOverdue(now: now) {
                let part = entry.next..<entry.fanout.targets.count
                queues[place].targetCount -= part.count
                targetCount -= part.count
                overdue.append(Portion(fanout: entry.fanout, part: part))
            }
        }
        queues.removeAll { $0.isEmpty }
        return overdue
    }
}
