internal import Platform

/// A contiguous buffer of frames for a link, filled by the sending loop.
///
/// Sound because one loop fills the block, passes it on and never accesses it again.
final class LinkBlock: @unchecked Sendable {
    private var memory: UnsafeMutableRawPointer
    private var capacity: Int
    private(set) var byteCount = 0
    /// The bytes that `PeerState` added to the backlog of the link; it subtracts them when the block is released.
    var chargedByteCount = 0

    init(capacity: Int = 4 << 10) {
        self.capacity = capacity
        memory = .allocate(byteCount: capacity, alignment: 16)
    }

    deinit { memory.deallocate() }

    /// Calls `body` with the bytes, which are valid only until `body` returns.
    @inline(__always)
    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try withExtendedLifetime(self) { try body(UnsafeRawBufferPointer(start: memory, count: byteCount)) }
    }

    var copy: [UInt8] { withBytes { Array($0) } }

    /// Clears the block but keeps its memory; returns false if the memory is too large to keep.
    func empty() -> Bool {
        byteCount = 0
        return capacity <= LinkLimits.keptBlockByteCount
    }

    /// Appends `count` uninitialized bytes and returns their address.
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

    func patch<Number: FixedWidthInteger>(_ number: Number, at offset: Int) {
        precondition(offset >= 0 && offset + MemoryLayout<Number>.size <= byteCount, "a patch outside the block")
        (memory + offset).storeBytes(of: number.littleEndian, as: Number.self)
    }

    func truncate(to count: Int) {
        precondition(0...byteCount ~= count, "a block cannot be truncated to more than it has")
        byteCount = count
    }

    // MARK: Frames

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

/// A free list of blocks, so that a turn allocates nothing.
final class SpareBlocks: Sendable {
    private let blocks = Lock<[LinkBlock]>([])

    func take() -> LinkBlock { blocks.withLock { $0.popLast() } ?? LinkBlock() }

    func keep(_ block: LinkBlock) {
        guard block.empty() else { return }
        blocks.withLock { if $0.count < LinkLimits.keptBlockCount { $0.append(block) } }
    }
}
