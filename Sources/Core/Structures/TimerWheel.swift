/// A hierarchical timer wheel with one deadline per id: O(1) to set, move and cancel, amortized O(1) to expire.
///
/// An id is a small number, such as a slab slot. A deadline is in the level of the highest 6-bit digit in which it differs from
/// the current tick. Entries of a lower level are therefore always due before those of a higher level, and no slot wraps around.
public struct TimerWheel: ~Copyable {
    /// A deadline in 16 bytes; a tick has 48 bits, the range of eight levels of 6 bits.
    struct Node: BitwiseCopyable {
        private var lowTick: UInt32 = 0
        private var highTick: UInt16 = 0
        var list: UInt16 = .max
        var next: UInt32 = .max
        var previous: UInt32 = .max

        var tick: Int64 {
            get { Int64(highTick) << 32 | Int64(lowTick) }
            set {
                let kept = min(max(0, newValue), 1 << 48 - 1)
                (lowTick, highTick) = (UInt32(truncatingIfNeeded: kept), UInt16(truncatingIfNeeded: kept >> 32))
            }
        }
    }

    private static let levelCount = 8
    private static let overdueList = UInt16(levelCount * 64)

    private let resolution: Int64
    private var current: Int64
    private var nodes = PagedArray(repeating: Node())
    // `var` because the compiler, when it instruments for the thread sanitizer, emits invalid code for `|=` through a `let`
    // pointer of a ~Copyable structure.
    private var heads: UnsafeMutablePointer<UInt32>
    /// One word per level with one bit per slot, set while the slot has entries.
    private var occupancy: UnsafeMutablePointer<UInt64>

    public private(set) var count = 0

    /// - Parameters:
    ///   - resolution: the length of a tick, in the unit of all times passed to the wheel (usually milliseconds).
    ///   - now: the start time.
    public init(resolution: Int64, now: Int64) {
        precondition(resolution > 0, "a tick takes time")
        self.resolution = resolution
        current = now / resolution
        heads = .allocate(capacity: Int(Self.overdueList) + 1)
        heads.initialize(repeating: .max, count: Int(Self.overdueList) + 1)
        occupancy = .allocate(capacity: Self.levelCount)
        occupancy.initialize(repeating: 0, count: Self.levelCount)
    }

    deinit {
        heads.deallocate()
        occupancy.deallocate()
    }

    /// Sets or moves the id's deadline; a deadline in the past expires at the next `advance`.
    public mutating func schedule(_ id: UInt32, at time: Int64) {
        let node = nodes.pointer(id)
        if node.pointee.list != .max { unlink(node) } else { count += 1 }
        // Rounded up, so that no deadline expires early.
        let whole = time / resolution
        node.pointee.tick = time > whole * resolution ? whole + 1 : whole
        link(id, node)
    }

    public mutating func cancel(_ id: UInt32) {
        guard let node = nodes.existing(id), node.pointee.list != .max else { return }
        unlink(node)
        count -= 1
    }

    public func isScheduled(_ id: UInt32) -> Bool { nodes[id].list != .max }

    /// Returns the id's deadline, rounded up to a tick, or `nil` if it has none.
    public func deadline(of id: UInt32) -> Int64? {
        isScheduled(id) ? nodes[id].tick * resolution : nil
    }

    /// A lower bound of all deadlines, or `Int64.max` without any.
    public var earliest: Int64 {
        if heads[Int(Self.overdueList)] != .max { return current * resolution }
        guard let level = lowestLevel else { return .max }
        return slotStart(level: level) * resolution
    }

    /// Advances the clock, appends the ids that are due and removes their deadlines.
    public mutating func advance(to time: Int64, expired: inout [UInt32]) {
        let target = max(current, time / resolution)
        drainOverdue(&expired)
        while let level = lowestLevel {
            let start = slotStart(level: level)
            guard start <= target else { break }
            current = start
            let slot = occupancy[level].trailingZeroBitCount
            let list = level * 64 + slot
            var id = heads[list]
            heads[list] = .max
            occupancy[level] &= ~(1 << UInt64(slot))
            while id != .max {
                let node = nodes.known(id)
                let next = node.pointee.next
                node.pointee.list = .max
                if node.pointee.tick <= current {
                    count -= 1
                    expired.append(id)
                } else {
                    link(id, node)
                }
                id = next
            }
        }
        current = target
    }

    private mutating func drainOverdue(_ expired: inout [UInt32]) {
        var id = heads[Int(Self.overdueList)]
        heads[Int(Self.overdueList)] = .max
        while id != .max {
            let node = nodes.known(id)
            node.pointee.list = .max
            count -= 1
            expired.append(id)
            id = node.pointee.next
        }
    }

    private var lowestLevel: Int? {
        for level in 0..<Self.levelCount where occupancy[level] != 0 { return level }
        return nil
    }

    private func slotStart(level: Int) -> Int64 {
        let shift = Int64(6 * level)
        let prefix = level + 1 == Self.levelCount ? 0 : (current >> (shift + 6)) << (shift + 6)
        return prefix | Int64(occupancy[level].trailingZeroBitCount) << shift
    }

    private mutating func link(_ id: UInt32, _ node: UnsafeMutablePointer<Node>) {
        // A deadline beyond the range of the levels is stored at the end of the range and placed again from there.
        let farthest = (Int64(1) << Int64(6 * Self.levelCount)) - 1
        let tick = min(node.pointee.tick, farthest)
        let list: UInt16
        if tick <= current {
            list = Self.overdueList
        } else {
            let level = (63 - (UInt64(bitPattern: tick ^ current) | 63).leadingZeroBitCount) / 6
            let slot = Int(tick >> Int64(6 * level)) & 63
            list = UInt16(level * 64 + slot)
            occupancy[level] |= 1 << UInt64(slot)
        }
        let head = heads[Int(list)]
        node.pointee.next = head
        node.pointee.previous = .max
        node.pointee.list = list
        if head != .max { nodes.known(head).pointee.previous = id }
        heads[Int(list)] = id
    }

    private mutating func unlink(_ node: UnsafeMutablePointer<Node>) {
        let (next, previous, list) = (node.pointee.next, node.pointee.previous, Int(node.pointee.list))
        if next != .max { nodes.known(next).pointee.previous = previous }
        if previous != .max {
            nodes.known(previous).pointee.next = next
        } else {
            heads[list] = next
            if next == .max, list != Int(Self.overdueList) {
                occupancy[list >> 6] &= ~(1 << UInt64(list & 63))
            }
        }
        node.pointee.list = .max
    }
}
