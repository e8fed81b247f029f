/// A hash table from a 128-bit key to the slot of the record that holds the key, at 4 bytes an entry.
///
/// The table uses extendible hashing: a full segment of 1,024 entries is split in two, so growth never copies the whole table.
/// Each entry stores six bits of the hash beside the slot, so few records are read whose key differs. The caller compares the
/// keys of the slots that a `Probe` returns.
public struct SlotIndex: ~Copyable {
    @inlinable public static var slotLimit: UInt32 { 1 << 26 }

    /// The state of one lookup, which returns the candidate slots; changes to the table invalidate it.
    public struct Probe {
        @usableFromInline var segment: UnsafeMutablePointer<UInt32>
        @usableFromInline var index: Int
        @usableFromInline var tag: UInt32

        @inlinable init(segment: UnsafeMutablePointer<UInt32>, index: Int, tag: UInt32) {
            (self.segment, self.index, self.tag) = (segment, index, tag)
        }
    }

    @inlinable static var placeBits: Int { 10 }
    @inlinable static var placeCount: Int { 1 << placeBits }
    private static let fullCount = placeCount * 13 / 16
    @inlinable static var empty: UInt32 { .max }

    /// The segments by the hash's upper bits; a segment of lower depth than the directory appears in it several times.
    @usableFromInline var directory: UnsafeMutablePointer<UnsafeMutablePointer<UInt32>>
    @usableFromInline var depth = 0

    @inlinable public var count: Int { usedCount }
    @usableFromInline var usedCount = 0

    /// A random secret; without it, a few thousand colliding keys of a peer would split one segment until memory is exhausted.
    @usableFromInline let seed: (UInt64, UInt64)

    /// - Parameter seed: random, or fixed in tests.
    public init(seed: (UInt64, UInt64) = (.random(in: 0...(.max)), .random(in: 0...(.max)))) {
        self.seed = seed
        directory = .allocate(capacity: 1)
        directory.initialize(to: Self.makeSegment(depth: 0))
    }

    deinit {
        var index = 0
        while index < 1 << depth {
            let segment = directory[index]
            index += 1 << (depth - Int(Self.depth(segment).pointee))
            segment.deallocate()
        }
        directory.deallocate()
    }

    // MARK: Looking up

    @inlinable public func probe(_ high: UInt64, _ low: UInt64) -> Probe {
        let hash = self.hash(high, low)
        return Probe(segment: segment(hash), index: Self.home(hash), tag: Self.tag(hash))
    }

    /// Returns the next candidate slot, or `nil` if no candidate is left.
    @inlinable public func next(_ probe: inout Probe) -> UInt32? {
        while true {
            let place = probe.segment[probe.index]
            if place == Self.empty { return nil }
            probe.index = (probe.index + 1) & (Self.placeCount - 1)
            if place >> 26 == probe.tag { return place & (Self.slotLimit - 1) }
        }
    }

    // MARK: Changes

    /// Adds a slot whose key is not in the table; a split calls `key` for the keys of the slots it moves.
    public mutating func insert(
        _ slot: UInt32, _ high: UInt64, _ low: UInt64, key: (UInt32) -> (high: UInt64, low: UInt64)
    ) {
        precondition(slot < Self.slotLimit, "more records than the index has numbers for")
        let hash = self.hash(high, low)
        while Self.used(segment(hash)).pointee >= Self.fullCount { split(segment(hash), hash, key: key) }
        Self.put(slot, hash, into: segment(hash))
        usedCount += 1
    }

    @discardableResult
    public mutating func remove(
        _ slot: UInt32, _ high: UInt64, _ low: UInt64, key: (UInt32) -> (high: UInt64, low: UInt64)
    ) -> Bool {
        let hash = self.hash(high, low)
        let segment = segment(hash)
        let mask = Self.placeCount - 1
        var gap = Self.home(hash)
        while segment[gap] == Self.empty || segment[gap] & (Self.slotLimit - 1) != slot {
            if segment[gap] == Self.empty { return false }
            gap = (gap + 1) & mask
        }
        // Deletion without tombstones: later entries of the run move into the gap if their home position allows it.
        var next = (gap + 1) & mask
        while segment[next] != Self.empty {
            let (itsHigh, itsLow) = key(segment[next] & (Self.slotLimit - 1))
            let wanted = Self.home(self.hash(itsHigh, itsLow))
            if (next - wanted) & mask >= (next - gap) & mask {
                segment[gap] = segment[next]
                gap = next
            }
            next = (next + 1) & mask
        }
        segment[gap] = Self.empty
        Self.used(segment).pointee -= 1
        usedCount -= 1
        return true
    }

    private mutating func split(
        _ old: UnsafeMutablePointer<UInt32>, _ hash: UInt64, key: (UInt32) -> (high: UInt64, low: UInt64)
    ) {
        let oldDepth = Int(Self.depth(old).pointee)
        precondition(oldDepth < 40, "keys that are all alike")
        if oldDepth == depth {
            let wider = UnsafeMutablePointer<UnsafeMutablePointer<UInt32>>.allocate(capacity: 2 << depth)
            for index in 0..<1 << depth { (wider + 2 * index).initialize(repeating: directory[index], count: 2) }
            directory.deallocate()
            directory = wider
            depth += 1
        }
        let (lower, upper) = (Self.makeSegment(depth: oldDepth + 1), Self.makeSegment(depth: oldDepth + 1))
        for index in 0..<Self.placeCount where old[index] != Self.empty {
            let slot = old[index] & (Self.slotLimit - 1)
            let (high, low) = key(slot)
            let itsHash = self.hash(high, low)
            Self.put(slot, itsHash, into: (itsHash << UInt64(oldDepth)) >> 63 == 0 ? lower : upper)
        }
        // All directory entries of the old segment are adjacent.
        let span = 1 << (depth - oldDepth)
        let first = directoryIndex(hash) & ~(span - 1)
        for index in first..<first + span { directory[index] = index < first + span / 2 ? lower : upper }
        old.deallocate()
    }

    // MARK: Hashes and places

    @inlinable func hash(_ high: UInt64, _ low: UInt64) -> UInt64 {
        // A folded full-width product of both words, each combined with its secret. A peer without the secrets cannot choose
        // collisions.
        let product = (low ^ seed.0).multipliedFullWidth(by: high ^ seed.1)
        var mixed = product.high ^ product.low
        mixed = (mixed ^ mixed >> 32) &* 0xD6E8_FEB8_6659_FD93
        return mixed ^ mixed >> 32
    }

    /// Returns the first position to probe; the lowest hash bits give the position, the next six the tag, the highest the
    /// segment.
    @inlinable static func home(_ hash: UInt64) -> Int { Int(truncatingIfNeeded: hash) & (placeCount - 1) }
    /// Returns the tag; a tag of 63 would make the entry of the last slot equal `empty`, so the tag is at most 62.
    @inlinable static func tag(_ hash: UInt64) -> UInt32 {
        min(UInt32(truncatingIfNeeded: hash >> UInt64(placeBits)) & 63, 62)
    }

    @inlinable func directoryIndex(_ hash: UInt64) -> Int {
        depth == 0 ? 0 : Int(truncatingIfNeeded: hash >> UInt64(64 - depth))
    }

    @inlinable func segment(_ hash: UInt64) -> UnsafeMutablePointer<UInt32> { directory[directoryIndex(hash)] }

    private static func put(_ slot: UInt32, _ hash: UInt64, into segment: UnsafeMutablePointer<UInt32>) {
        var index = home(hash)
        while segment[index] != empty { index = (index + 1) & (placeCount - 1) }
        segment[index] = slot | tag(hash) << 26
        used(segment).pointee += 1
    }

    /// Returns the address of the segment's entry count, stored after its entries; the depth follows it.
    private static func used(_ segment: UnsafeMutablePointer<UInt32>) -> UnsafeMutablePointer<UInt32> {
        segment + placeCount
    }

    private static func depth(_ segment: UnsafeMutablePointer<UInt32>) -> UnsafeMutablePointer<UInt32> {
        segment + placeCount + 1
    }

    private static func makeSegment(depth: Int) -> UnsafeMutablePointer<UInt32> {
        let segment = UnsafeMutablePointer<UInt32>.allocate(capacity: placeCount + 2)
        segment.initialize(repeating: empty, count: placeCount)
        (segment + placeCount).initialize(to: 0)
        (segment + placeCount + 1).initialize(to: UInt32(depth))
        return segment
    }
}
