/// An array of values of one type with a free list, addressed by slots.
///
/// A value never moves until it is removed. Its slot is reused afterwards. Memory grows in chunks and is never returned, so
/// steady work allocates nothing.
public struct Slab<Element>: ~Copyable {
    @inlinable static var chunkShift: UInt32 { 9 }
    @inlinable static var chunkCount: Int { 1 << Int(chunkShift) }

    @usableFromInline var chunks: UnsafeMutablePointer<UnsafeMutablePointer<Element>>
    @usableFromInline var chunkCapacity: Int
    @usableFromInline var allocatedChunks = 0
    /// One bit per slot, set while the slot is occupied; its capacity is `chunkCapacity` chunks.
    @usableFromInline var occupied: UnsafeMutablePointer<UInt64>
    @usableFromInline var free: [Slot<Element>] = []

    @inlinable public var count: Int { usedCount }
    @usableFromInline var usedCount: Int = 0

    /// The highest slot ever used, plus one.
    @usableFromInline var usedSlots: UInt32 = 0

    @inlinable public var nextSlot: Slot<Element> { free.last ?? Slot(number: usedSlots) }

    @inlinable public init() {
        chunkCapacity = 16
        chunks = .allocate(capacity: chunkCapacity)
        occupied = .allocate(capacity: chunkCapacity * Self.chunkCount / 64)
    }

    deinit {
        for slot in slots() where isOccupied(slot) { pointer(slot).deinitialize(count: 1) }
        for index in 0..<allocatedChunks { UnsafeMutableRawPointer(chunks[index]).deallocate() }
        chunks.deallocate()
        occupied.deallocate()
    }

    /// Stores a value in O(1), apart from one chunk allocation every 512 new slots.
    @inlinable public mutating func insert(_ value: consuming Element) -> Slot<Element> {
        let slot: Slot<Element>
        if let recycled = free.popLast() {
            slot = recycled
        } else {
            slot = Slot(number: usedSlots)
            precondition(usedSlots < UInt32.max - 1, "slab is full")
            if Int(usedSlots >> Self.chunkShift) == allocatedChunks { addChunk() }
            usedSlots += 1
        }
        address(slot).initialize(to: value)
        occupied[Int(slot.number >> 6)] |= 1 << UInt64(slot.number & 63)
        usedCount += 1
        return slot
    }

    /// Removes and returns a value.
    ///
    /// Its slot may be reused immediately. A debug build overwrites the bytes of a value with references, as described in
    /// `Place`.
    @discardableResult
    @inlinable public mutating func remove(_ slot: Slot<Element>) -> Element {
        precondition(isOccupied(slot), "empty slot")
        #if DEBUG
        defer { if !_isPOD(Element.self) { overwrite(slot) } }
        #endif
        occupied[Int(slot.number >> 6)] &= ~(1 << UInt64(slot.number & 63))
        free.append(slot)
        usedCount -= 1
        return address(slot).move()
    }

    @inlinable public func isOccupied(_ slot: Slot<Element>) -> Bool {
        slot.number < usedSlots && occupied[Int(slot.number >> 6)] & 1 << UInt64(slot.number & 63) != 0
    }

    /// Returns at most `limit` slots from `first` on, occupied or not.
    public func slots(from first: Slot<Element> = .first, limit: UInt32 = .max) -> SlotRange<Element> {
        SlotRange(first: first.number, end: min(usedSlots, limit > .max - first.number ? .max : first.number + limit))
    }

    /// Returns the next slot and wraps around after the highest one ever used.
    @inlinable public func slot(after slot: Slot<Element>) -> Slot<Element> {
        slot.number + 1 < usedSlots ? Slot(number: slot.number + 1) : .first
    }

    /// Returns the value's place, valid until the value is removed.
    @inlinable public func at(_ slot: Slot<Element>) -> Place<Element> { unsafe Place(pointer(slot)) }

    @inlinable public func pointer(_ slot: Slot<Element>) -> UnsafeMutablePointer<Element> {
        precondition(isOccupied(slot), "empty slot")
        return address(slot)
    }

    @inlinable public subscript(slot: Slot<Element>) -> Element {
        get { pointer(slot).pointee }
        nonmutating _modify { yield &pointer(slot).pointee }
    }

    /// Returns the address of any slot ever used, occupied or not; it is for prefetching and for callers that track occupancy.
    @inlinable public func unchecked(_ slot: Slot<Element>) -> Place<Element> { unsafe Place(address(slot)) }

    @inlinable func address(_ slot: Slot<Element>) -> UnsafeMutablePointer<Element> {
        chunks[Int(slot.number >> Self.chunkShift)] + (Int(slot.number) & (Self.chunkCount - 1))
    }

    #if DEBUG
    @usableFromInline func overwrite(_ slot: Slot<Element>) {
        let bytes = UnsafeMutableRawBufferPointer(start: address(slot), count: MemoryLayout<Element>.stride)
        for index in bytes.indices { bytes[index] = 0xDB }
    }
    #endif

    @inlinable mutating func addChunk() {
        if allocatedChunks == chunkCapacity {
            let wider = UnsafeMutablePointer<UnsafeMutablePointer<Element>>.allocate(capacity: chunkCapacity * 2)
            wider.moveInitialize(from: chunks, count: allocatedChunks)
            chunks.deallocate()
            chunks = wider
            let words = Self.chunkCount / 64
            let longer = UnsafeMutablePointer<UInt64>.allocate(capacity: chunkCapacity * 2 * words)
            longer.moveInitialize(from: occupied, count: allocatedChunks * words)
            occupied.deallocate()
            occupied = longer
            chunkCapacity *= 2
        }
        // Values whose size is a multiple of a cache line (64 bytes) are aligned to it.
        let isAligned = MemoryLayout<Element>.stride % 64 == 0
        let memory = UnsafeMutableRawPointer.allocate(
            byteCount: MemoryLayout<Element>.stride * Self.chunkCount,
            alignment: isAligned ? 64 : MemoryLayout<Element>.alignment)
        (chunks + allocatedChunks).initialize(to: memory.bindMemory(to: Element.self, capacity: Self.chunkCount))
        (occupied + allocatedChunks * Self.chunkCount / 64).initialize(repeating: 0, count: Self.chunkCount / 64)
        allocatedChunks += 1
    }
}
