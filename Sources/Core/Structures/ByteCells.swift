/// Small texts in memory, each with its length: short ones in cells of one size, without an allocator's header each.
///
/// A longer text has memory of its own, with its length in front.
public struct ByteCells: ~Copyable {
    /// Where a text is, until it is freed.
    @safe public struct Place {
        fileprivate let pointer: UnsafeMutableRawPointer
    }

    private static let chunkCellCount = 512

    /// One byte of it says how much is used.
    private let cellByteCount: Int
    private var chunks: [UnsafeMutableRawPointer] = []
    private var free: [UnsafeMutableRawPointer] = []
    private var fresh = 0

    /// - Parameter capacity: the bytes of a text that has a cell, up to 255.
    public init(capacity: Int) {
        precondition(capacity <= 255, "one byte has the length")
        cellByteCount = capacity + 1
    }

    deinit { for chunk in chunks { chunk.deallocate() } }

    /// Stores a copy of `bytes`, in a cell if they fit into one.
    public mutating func put(_ bytes: UnsafeRawBufferPointer) -> (place: Place, isCell: Bool) {
        guard bytes.count < cellByteCount else {
            let header = MemoryLayout<UInt32>.size
            let memory = UnsafeMutableRawPointer.allocate(byteCount: header + bytes.count, alignment: header)
            memory.storeBytes(of: UInt32(bytes.count), as: UInt32.self)
            UnsafeMutableRawBufferPointer(start: memory + header, count: bytes.count).copyMemory(from: bytes)
            return (Place(pointer: memory), false)
        }
        let cell = takeCell()
        cell.storeBytes(of: UInt8(bytes.count), as: UInt8.self)
        UnsafeMutableRawBufferPointer(start: cell + 1, count: bytes.count).copyMemory(from: bytes)
        return (Place(pointer: cell), true)
    }

    public mutating func free(_ place: Place, isCell: Bool) {
        if isCell { free.append(place.pointer) } else { place.pointer.deallocate() }
    }

    /// Frees a text that has no cell when the cells go, too.
    public static func freeLong(_ place: Place) { place.pointer.deallocate() }

    /// Valid until the text is freed.
    public static func bytes(_ place: Place, isCell: Bool) -> UnsafeRawBufferPointer {
        let header = isCell ? 1 : MemoryLayout<UInt32>.size
        let count = isCell ? Int(place.pointer.load(as: UInt8.self)) : Int(place.pointer.load(as: UInt32.self))
        return UnsafeRawBufferPointer(start: place.pointer + header, count: count)
    }

    private mutating func takeCell() -> UnsafeMutableRawPointer {
        if let cell = free.popLast() { return cell }
        if fresh == chunks.count * Self.chunkCellCount {
            chunks.append(.allocate(byteCount: cellByteCount * Self.chunkCellCount, alignment: 16))
        }
        defer { fresh += 1 }
        return chunks[chunks.count - 1] + fresh % Self.chunkCellCount * cellByteCount
    }
}
