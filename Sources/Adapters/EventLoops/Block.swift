/// A buffer of a stream's outbox or of its unconsumed input; the bytes follow this header.
struct Block {
    typealias Pointer = UnsafeMutablePointer<Block>

    var next: Pointer?
    /// The offsets of the first unread byte and of the end of the filled bytes.
    var start: UInt32
    var end: UInt32
    var capacity: UInt32
    /// The chain's total bytes and last block, valid only in the first block.
    var chainByteCount: UInt32 = 0
    var tail: Pointer?
}

extension UnsafeMutablePointer<Block> {
    var bytes: UnsafeMutableRawPointer { UnsafeMutableRawPointer(self + 1) }
    var filledByteCount: Int { Int(pointee.end - pointee.start) }
    var freeByteCount: Int { Int(pointee.capacity - pointee.end) }
}

/// A loop's free list of blocks of one size; larger blocks are allocated and freed as needed.
struct BlockPool {
    private var free: Block.Pointer?
    private var freeCount = 0
    /// The capacity of all blocks in use.
    private(set) var usedByteCount = 0

    private static let pooledCapacity = Limits.blockByteCount - MemoryLayout<Block>.stride

    mutating func take(byteCount: Int) -> Block.Pointer {
        if byteCount <= Self.pooledCapacity, let block = free {
            free = block.pointee.next
            freeCount -= 1
            block.pointee.next = nil
            usedByteCount += Self.pooledCapacity
            return block
        }
        let capacity = max(byteCount, Self.pooledCapacity)
        let memory = UnsafeMutableRawPointer.allocate(
            byteCount: MemoryLayout<Block>.stride + capacity, alignment: MemoryLayout<Block>.alignment)
        let block = memory.bindMemory(to: Block.self, capacity: 1)
        block.initialize(to: Block(next: nil, start: 0, end: 0, capacity: UInt32(capacity)))
        usedByteCount += capacity
        return block
    }

    mutating func put(_ block: Block.Pointer) {
        usedByteCount -= Int(block.pointee.capacity)
        guard Int(block.pointee.capacity) == Self.pooledCapacity, freeCount < Limits.pooledBlockCount else {
            UnsafeMutableRawPointer(block).deallocate()
            return
        }
        (block.pointee.start, block.pointee.end) = (0, 0)
        block.pointee.next = free
        free = block
        freeCount += 1
    }

    mutating func deallocate() {
        while let block = free {
            free = block.pointee.next
            UnsafeMutableRawPointer(block).deallocate()
        }
        freeCount = 0
    }
}

/// A stream's unsent output: a chain of blocks, empty while nothing is pending.
struct Outbox {
    private(set) var head: Block.Pointer?

    var byteCount: UInt32 { head?.pointee.chainByteCount ?? 0 }

    /// The allocated memory in bytes; computing it visits every block.
    var capacity: Int {
        var (sum, next) = (0, head)
        while let block = next {
            sum += Int(block.pointee.capacity)
            next = block.pointee.next
        }
        return sum
    }

    /// Returns contiguous space for `byteCount` bytes at the end, or `nil` if the limit would be exceeded.
    mutating func reserve(
        byteCount wanted: Int, limit: Int, from pool: inout BlockPool
    ) -> UnsafeMutableRawBufferPointer? {
        guard wanted >= 0, Int(byteCount) + wanted <= limit else { return nil }
        if let tail = head?.pointee.tail, tail.freeByteCount >= wanted {
            return UnsafeMutableRawBufferPointer(start: tail.bytes + Int(tail.pointee.end), count: wanted)
        }
        let block = pool.take(byteCount: wanted)
        if let head {
            head.pointee.tail?.pointee.next = block
        } else {
            block.pointee.chainByteCount = 0
            head = block
        }
        head?.pointee.tail = block
        return UnsafeMutableRawBufferPointer(start: block.bytes, count: wanted)
    }

    mutating func commit(byteCount count: Int) {
        guard count > 0 else { return }
        guard let head, let tail = head.pointee.tail, tail.freeByteCount >= count else {
            preconditionFailure("committed more than was reserved")
        }
        tail.pointee.end += UInt32(count)
        head.pointee.chainByteCount += UInt32(count)
    }

    mutating func remove(byteCount count: Int, into pool: inout BlockPool) {
        guard let first = head else { return }
        let (left, tail) = (first.pointee.chainByteCount - UInt32(count), first.pointee.tail)
        var rest = count
        while let block = head {
            let filled = block.filledByteCount
            if rest < filled {
                block.pointee.start += UInt32(rest)
                (block.pointee.chainByteCount, block.pointee.tail) = (left, tail)
                return
            }
            rest -= filled
            // A reservation without a commit leaves an empty block, which is removed here, too.
            head = block.pointee.next
            pool.put(block)
        }
    }

    mutating func removeAll(into pool: inout BlockPool) {
        while let block = head {
            head = block.pointee.next
            pool.put(block)
        }
    }
}
