/// A hash table of slot numbers with open addressing.
///
/// The keys are stored in the slots. The hash selects one of 64 parts, which grow and shrink independently. No single insertion
/// has to move all entries.
struct OpenTable: ~Copyable {
    private struct Part {
        var entries: UnsafeMutablePointer<UInt64>  // hash in the high half, slot + 1 in the low half; 0 is empty
        var mask: Int
        var count: Int
    }

    private static let partCount = 64
    private static let firstCapacity = 16
    private let parts: UnsafeMutablePointer<Part>

    init() {
        parts = .allocate(capacity: Self.partCount)
        for index in 0..<Self.partCount {
            (parts + index).initialize(
                to: Part(entries: Self.makeEntries(Self.firstCapacity), mask: Self.firstCapacity - 1, count: 0))
        }
    }

    deinit {
        for index in 0..<Self.partCount { parts[index].entries.deallocate() }
        parts.deallocate()
    }

    private static func makeEntries(_ capacity: Int) -> UnsafeMutablePointer<UInt64> {
        let entries = UnsafeMutablePointer<UInt64>.allocate(capacity: capacity)
        entries.initialize(repeating: 0, count: capacity)
        return entries
    }

    /// Returns the slot with this hash for which `matches` returns true.
    @inline(__always) func find(_ hash: UInt64, _ matches: (UInt32) -> Bool) -> UInt32? {
        let part = parts + Int(hash >> 58)
        let tag = hash & 0xFFFF_FFFF
        var position = Int(truncatingIfNeeded: tag) & part.pointee.mask
        while true {
            let entry = part.pointee.entries[position]
            if entry == 0 { return nil }
            if entry >> 32 == tag {
                let slot = UInt32(truncatingIfNeeded: entry) &- 1
                if matches(slot) { return slot }
            }
            position = (position + 1) & part.pointee.mask
        }
    }

    /// Inserts a slot that is not in the table.
    @inline(__always) mutating func insert(_ hash: UInt64, _ slot: UInt32) {
        let part = parts + Int(hash >> 58)
        if (part.pointee.count + 1) * 10 > (part.pointee.mask + 1) * 7 {
            Self.resize(part, to: (part.pointee.mask + 1) * 2)
        }
        Self.place(part, (hash & 0xFFFF_FFFF) << 32 | UInt64(slot &+ 1))
        part.pointee.count += 1
    }

    private static func place(_ part: UnsafeMutablePointer<Part>, _ entry: UInt64) {
        var position = Int(truncatingIfNeeded: entry >> 32) & part.pointee.mask
        while part.pointee.entries[position] != 0 { position = (position + 1) & part.pointee.mask }
        part.pointee.entries[position] = entry
    }

    private static func resize(_ part: UnsafeMutablePointer<Part>, to wanted: Int) {
        let (old, oldCapacity) = (part.pointee.entries, part.pointee.mask + 1)
        let capacity = max(firstCapacity, wanted)
        part.pointee.entries = makeEntries(capacity)
        part.pointee.mask = capacity - 1
        for index in 0..<oldCapacity where old[index] != 0 { place(part, old[index]) }
        old.deallocate()
    }

    /// Removes a slot that is in the table.
    @inline(__always) mutating func remove(_ hash: UInt64, _ slot: UInt32) {
        let part = parts + Int(hash >> 58)
        let (entries, mask) = (part.pointee.entries, part.pointee.mask)
        let wanted = (hash & 0xFFFF_FFFF) << 32 | UInt64(slot &+ 1)
        var hole = Int(truncatingIfNeeded: hash & 0xFFFF_FFFF) & mask
        while entries[hole] != wanted {
            precondition(entries[hole] != 0, "the slot is not in the table")
            hole = (hole + 1) & mask
        }
        // Close the gap by moving entries back toward their home position, so that no tombstones are needed.
        var position = hole
        while true {
            position = (position + 1) & mask
            let entry = entries[position]
            if entry == 0 { break }
            let home = Int(truncatingIfNeeded: entry >> 32) & mask
            if (position &- home) & mask >= (position &- hole) & mask {
                entries[hole] = entry
                hole = position
            }
        }
        entries[hole] = 0
        part.pointee.count -= 1
        if mask >= Self.firstCapacity, part.pointee.count * 16 < mask { Self.resize(part, to: (mask + 1) / 4) }
    }
}
