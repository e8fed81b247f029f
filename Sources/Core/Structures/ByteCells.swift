/// Storage for short byte strings, each with its length.
///
/// Short strings share cells of one size, which saves an allocator header for each. A longer string has a separate allocation,
/// with the length in front.
public struct ByteCells: ~Copyable {
    /// The address of a stored byte string, valid until it is freed.
    @safe public struct Place {
        fileprivate let pointer: UnsafeMutableRawPointer
    }

    private static let chunkCellCount = 512

    /// The capacity of a cell plus the length byte.
    private let cellByteCount: Int
    private var chunks: [UnsafeMutableRawPointer] = []
    private var free: [UnsafeMutableRawPointer] = []
    private var fresh = 0

    /// - Parameter capacity: the longest byte string that is stored in a cell, up to 255 bytes.
    public init(capacity: Int) {
        precondition(capacity <= 255, "one byte has the length")
        cellByteCount = capacity + 1
    }

    deinit { for chunk in chunks { chunk.deallocate() } }

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

    /// Frees a byte string that is not in a cell; cells are freed with their `ByteCells`.
    public static func freeLong(_ place: Place) { place.pointer.deallocate() }

    /// Returns the bytes, valid until they are freed.
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
