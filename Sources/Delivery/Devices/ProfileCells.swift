/// The memory of the profiles of devices: a device's secret, and its tokens and names if it has any.
///
/// Without tokens and names a profile has 34 bytes. Such profiles are in cells of one size, without an allocator's
/// header each. A longer profile has memory of its own, with its length in front.
struct ProfileCells: ~Copyable {
    /// One byte says how much of the cell is used.
    private static let cellByteCount = 36
    private static let chunkCellCount = 512
    static let cellCapacity = cellByteCount - 1

    private var chunks: [UnsafeMutableRawPointer] = []
    private var free: [UnsafeMutableRawPointer] = []
    private var fresh = 0

    deinit { for chunk in chunks { chunk.deallocate() } }

    /// Stores a copy of `bytes`, in a cell if they fit into one.
    mutating func put(_ bytes: UnsafeRawBufferPointer) -> (place: UnsafeMutableRawPointer, isCell: Bool) {
        guard bytes.count <= Self.cellCapacity else {
            let header = MemoryLayout<UInt32>.size
            let memory = UnsafeMutableRawPointer.allocate(byteCount: header + bytes.count, alignment: header)
            memory.storeBytes(of: UInt32(bytes.count), as: UInt32.self)
            UnsafeMutableRawBufferPointer(start: memory + header, count: bytes.count).copyMemory(from: bytes)
            return (memory, false)
        }
        let cell = takeCell()
        cell.storeBytes(of: UInt8(bytes.count), as: UInt8.self)
        UnsafeMutableRawBufferPointer(start: cell + 1, count: bytes.count).copyMemory(from: bytes)
        return (cell, true)
    }

    mutating func free(_ place: UnsafeMutableRawPointer, isCell: Bool) {
        if isCell { free.append(place) } else { place.deallocate() }
    }

    static func bytes(_ place: UnsafeMutableRawPointer, isCell: Bool) -> UnsafeRawBufferPointer {
        let header = isCell ? 1 : MemoryLayout<UInt32>.size
        let count = isCell ? Int(place.load(as: UInt8.self)) : Int(place.load(as: UInt32.self))
        return UnsafeRawBufferPointer(start: place + header, count: count)
    }

    private mutating func takeCell() -> UnsafeMutableRawPointer {
        if let cell = free.popLast() { return cell }
        if fresh == chunks.count * Self.chunkCellCount {
            chunks.append(.allocate(byteCount: Self.cellByteCount * Self.chunkCellCount, alignment: 16))
        }
        defer { fresh += 1 }
        return chunks[chunks.count - 1] + fresh % Self.chunkCellCount * Self.cellByteCount
    }
}
