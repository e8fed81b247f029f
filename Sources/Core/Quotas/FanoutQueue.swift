package import Delivery
package import Wire

/// Lists waiting for one loop's shard.
///
/// They are published in portions while the store has space, round-robin over the apps. A whole list at once would encode
/// megabytes before the store's bound is checked. If the bound were reached in the middle of a list, its remaining devices would
/// be refused, although there is space shortly afterwards.
package struct FanoutQueue {
    /// Some of a list's devices, to be published now.
    package struct Portion {
        package let fanout: Fanout
        package let part: Range<Int>

        package func forEach(_ body: (PublishCommand) -> Void) { fanout.forEach(in: part, body) }
    }

    /// The number of devices in a portion; it limits the bytes encoded between two checks of the store's bound.
    package static let portionCount = 32

    private struct Entry {
        let fanout: Fanout
        var next: Int
        let deadline: UInt64
    }

    private struct AppLists {
        let app: AppKey
        private var entries: [Entry] = []
        /// The index of the first remaining entry; removing entries in batches avoids moving the array for each one.
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

    /// The divisor of the device limit that gives one app's maximum.
    package static let sharesOfLimit = 4

    private let targetLimit: Int
    /// Apps with queued lists, in the order of their turns.
    private var queues: [AppLists] = []
    package private(set) var targetCount = 0

    /// - Parameter targetLimit: The maximum of queued devices, at about a hundred bytes each. The first list is always accepted.
    package init(targetLimit: Int) { self.targetLimit = targetLimit }

    package var isEmpty: Bool { queues.isEmpty }

    /// Queues a list until `deadline`; returns false if the app or all apps together have too many queued devices.
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

    /// Returns the next portion of the first app that `mayTake` accepts.
    ///
    /// The app then moves to the end of the queue. Its partly published list moves behind its other lists.
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

    /// Removes lists whose deadline has passed, and returns their remaining devices.
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
