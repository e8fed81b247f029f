// Shard memory for batches and values. A block is filled from the front, and written bytes are not moved. A block is reused once
// it is full, has no live rows, and its batches are durable (until then the committer reads them).

internal import Delivery

struct Block {
    var start: UnsafeMutableRawPointer
    var capacity: Int
    var used: Int
    /// The number of rows in the block, including rows lent to the spiller.
    var liveCount: Int
    var isFull: Bool
    /// Whether the committer may still read the block.
    var isAwaited: Bool
}

struct BlockPool: ~Copyable {
    /// A raw buffer, because each mutation of an array would check whether it is uniquely referenced.
    private var blocks: UnsafeMutablePointer<Block>
    private var blockCount = 0
    private var blockCapacity = 64
    private var freeNumbers: [UInt32] = []
    private var spares: [UnsafeMutableRawPointer] = []
    /// The lowest number of spares since the last call of `dropUnusedSpares`.
    private var unusedSpareCount = 0
    /// Full blocks with their last tickets, in ticket order.
    private var awaited: [(block: UInt32, ticket: Ticket)] = []
    private var awaitedHead = 0
    private(set) var byteCount = 0

    init() { blocks = .allocate(capacity: blockCapacity) }

    deinit {
        for number in 0..<blockCount where blocks[number].capacity > 0 { blocks[number].start.deallocate() }
        blocks.deallocate()
        for spare in spares { spare.deallocate() }
    }

    @inline(__always) func start(_ block: UInt32) -> UnsafeMutableRawPointer { blocks[Int(block)].start }
    @inline(__always) func used(_ block: UInt32) -> Int { blocks[Int(block)].used }
    @inline(__always) func room(_ block: UInt32) -> Int { blocks[Int(block)].capacity - blocks[Int(block)].used }

    /// Takes the next `byteCount` bytes of a block with enough room; returns their offset.
    @inline(__always) mutating func advance(_ block: UInt32, by byteCount: Int) -> Int {
        let offset = blocks[Int(block)].used
        blocks[Int(block)].used += byteCount
        return offset
    }

    @inline(__always) mutating func align(_ block: UInt32) {
        blocks[Int(block)].used = min((blocks[Int(block)].used + 7) & ~7, blocks[Int(block)].capacity)
    }

    mutating func take(atLeast byteCount: Int, isAwaited: Bool) -> UInt32 {
        let capacity = max(Limits.blockByteCount, (byteCount + 7) & ~7)
        let start: UnsafeMutableRawPointer
        if capacity == Limits.blockByteCount, let spare = spares.popLast() {
            start = spare
            unusedSpareCount = min(unusedSpareCount, spares.count)
        } else {
            start = .allocate(byteCount: capacity, alignment: 64)
        }
        self.byteCount += capacity
        let block = Block(
            start: start, capacity: capacity, used: 0, liveCount: 0, isFull: false, isAwaited: isAwaited)
        if let number = freeNumbers.popLast() {
            blocks[Int(number)] = block
            return number
        }
        if blockCount == blockCapacity { grow() }
        (blocks + blockCount).initialize(to: block)
        blockCount += 1
        return UInt32(blockCount - 1)
    }

    private mutating func grow() {
        let wider = UnsafeMutablePointer<Block>.allocate(capacity: blockCapacity * 2)
        wider.moveInitialize(from: blocks, count: blockCount)
        blocks.deallocate()
        blocks = wider
        blockCapacity *= 2
    }

    @inline(__always) mutating func retain(_ block: UInt32) { blocks[Int(block)].liveCount += 1 }

    @inline(__always) mutating func release(_ block: UInt32) {
        blocks[Int(block)].liveCount -= 1
        if blocks[Int(block)].liveCount == 0 { freeIfDone(block) }
    }

    /// Marks a block as full; its bytes are needed until `ticket` is durable.
    mutating func fill(_ block: UInt32, lastTicket ticket: Ticket) {
        blocks[Int(block)].isFull = true
        if blocks[Int(block)].isAwaited { awaited.append((block, ticket)) } else { freeIfDone(block) }
    }

    mutating func committed(upTo ticket: Ticket) {
        while awaitedHead < awaited.count, awaited[awaitedHead].ticket <= ticket {
            let block = awaited[awaitedHead].block
            awaitedHead += 1
            blocks[Int(block)].isAwaited = false
            freeIfDone(block)
        }
        if awaitedHead == awaited.count {
            awaited.removeAll(keepingCapacity: true)
            awaitedHead = 0
        } else if awaitedHead > 1024 {
            awaited.removeFirst(awaitedHead)
            awaitedHead = 0
        }
    }

    /// Frees the spares that were not needed since the last call, such as those of a burst.
    mutating func dropUnusedSpares() {
        for _ in 0..<min(unusedSpareCount, spares.count) { spares.removeLast().deallocate() }
        unusedSpareCount = spares.count
    }

    private mutating func freeIfDone(_ number: UInt32) {
        let block = blocks[Int(number)]
        guard block.isFull, !block.isAwaited, block.liveCount == 0 else { return }
        byteCount -= block.capacity
        if block.capacity == Limits.blockByteCount, spares.count < Limits.spareBlockCount {
            spares.append(block.start)
        } else {
            block.start.deallocate()
        }
        blocks[Int(number)].capacity = 0
        blocks[Int(number)].isFull = false
        freeNumbers.append(number)
    }
}
