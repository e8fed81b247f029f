internal import Platform

/// Frames on their way to a link: bytes in one piece, filled by the loop that sends them.
///
/// Sound to send because one loop fills it, gives it away whole and never looks again.
final class LinkBlock: @unchecked Sendable {
    private var memory: UnsafeMutableRawPointer
    private var capacity: Int
    private(set) var byteCount = 0
    /// What its sender counted it as; the link gives that back.
    var chargedByteCount = 0

    init(capacity: Int = 4 << 10) {
        self.capacity = capacity
        memory = .allocate(byteCount: capacity, alignment: 16)
    }

    deinit { memory.deallocate() }

    /// Lends the bytes; they are the block's, which is kept until `body` has returned.
    @inline(__always)
    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try withExtendedLifetime(self) { try body(UnsafeRawBufferPointer(start: memory, count: byteCount)) }
    }

    var copy: [UInt8] { withBytes { Array($0) } }

    /// Forgets the bytes and keeps the memory; false when that is too much to keep.
    func empty() -> Bool {
        byteCount = 0
        return capacity <= LinkLimits.keptBlockByteCount
    }

    /// Room for `count` bytes at the end, which belong to the block from now on.
    @inline(__always)
    func extend(by count: Int) -> UnsafeMutableRawPointer {
        if byteCount + count > capacity { grow(to: byteCount + count) }
        defer { byteCount += count }
        return memory + byteCount
    }

    private func grow(to needed: Int) {
        capacity = max(capacity * 2, needed)
        let larger = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 16)
        larger.copyMemory(from: memory, byteCount: byteCount)
        memory.deallocate()
        memory = larger
    }

    @inline(__always)
    func put<Number: FixedWidthInteger>(_ number: Number) {
        extend(by: MemoryLayout<Number>.size).storeBytes(of: number.littleEndian, as: Number.self)
    }

    func put(_ bytes: UnsafeRawBufferPointer) {
        guard let start = bytes.baseAddress, !bytes.isEmpty else { return }
        extend(by: bytes.count).copyMemory(from: start, byteCount: bytes.count)
    }

    func put(_ bytes: [UInt8]) { bytes.withUnsafeBytes { put($0) } }

    /// Overwrites a number that was put down before its value was known.
    func patch<Number: FixedWidthInteger>(_ number: Number, at offset: Int) {
        precondition(offset >= 0 && offset + MemoryLayout<Number>.size <= byteCount, "a patch outside the block")
        (memory + offset).storeBytes(of: number.littleEndian, as: Number.self)
    }

    /// Takes back what was put down from a place on.
    func truncate(to count: Int) {
        precondition(0...byteCount ~= count, "a block cannot be truncated to more than it has")
        byteCount = count
    }

    // MARK: Frames

    /// Begins a frame; its place is what `endFrame` wants.
    func beginFrame(_ kind: LinkFrame.Kind, part: Int = 0, lease: LinkFrame.Lease = .unstated) -> Int {
        let start = byteCount
        put(UInt32(0))
        put(kind.rawValue)
        put(lease.rawValue)
        put(UInt16(truncatingIfNeeded: part))
        return start
    }

    func endFrame(_ start: Int) { patch(UInt32(bodyByteCount(from: start)), at: start) }

    func bodyByteCount(from start: Int) -> Int { byteCount - start - LinkFrame.headerByteCount }
}

/// Emptied blocks for the next sender: a turn takes the lock once or twice, and allocates nothing.
final class SpareBlocks: Sendable {
    private let blocks = Lock<[LinkBlock]>([])

    func take() -> LinkBlock { blocks.withLock { $0.popLast() } ?? LinkBlock() }

    func keep(_ block: LinkBlock) {
        guard block.empty() else { return }
        blocks.withLock { if $0.count < LinkLimits.keptBlockCount { $0.append(block) } }
    }
}
