internal import Platform

/// The first 64 bytes of a segment, written together with its first group of batches.
///
/// The header records where the previous segment ended. Without that offset, recovery could not distinguish lost records at the
/// end of the previous segment from a torn tail. `isUnsynced` marks segments that were written without a sync. Missing bytes of
/// such a segment are an allowed loss, not damage. `run` identifies the process run that wrote the segment, because tickets
/// restart in each run.
package struct SegmentHeader: Equatable {
    package static let byteCount = 64
    private static let magic: UInt64 = 0x3130_6C6E_726A_776C  // "lwjrnl01"

    var generation: UInt64
    /// The number of the process run, which is also the first generation of that run.
    var run: UInt64
    /// The size of the whole file; the file is filled and synced before its first use, so a crash cannot change the size.
    var segmentByteCount: Int
    /// The generation of the previous segment of the same process run; 0 for the first segment of the run.
    var previousGeneration: UInt64
    var previousEnd: Int
    /// Whether the segment was written with durability `os`: neither its groups nor the end of the previous segment were synced.
    var isUnsynced = false

    package func write(to bytes: UnsafeMutableRawBufferPointer) {
        bytes.initializeMemory(as: UInt8.self, repeating: 0)
        bytes.storeBytes(of: Self.magic, as: UInt64.self)
        bytes.storeBytes(of: generation, toByteOffset: 8, as: UInt64.self)
        bytes.storeBytes(of: UInt64(segmentByteCount), toByteOffset: 16, as: UInt64.self)
        bytes.storeBytes(of: previousGeneration, toByteOffset: 24, as: UInt64.self)
        bytes.storeBytes(of: UInt64(previousEnd), toByteOffset: 32, as: UInt64.self)
        bytes.storeBytes(of: isUnsynced ? 1 : 0, toByteOffset: 40, as: UInt64.self)
        bytes.storeBytes(of: run, toByteOffset: 48, as: UInt64.self)
        let checksum = Checksum.crc32c(
            UnsafeRawBufferPointer(rebasing: bytes[..<56]), seed: RecordHeader.seed(generation: generation))
        bytes.storeBytes(of: checksum, toByteOffset: 56, as: UInt32.self)
    }

    /// Reads the header of the segment with this generation; `nil` if the bytes are not a valid header of that generation.
    init?(in bytes: UnsafeRawBufferPointer, generation: UInt64) {
        guard bytes.count >= Self.byteCount, bytes.loadUnaligned(as: UInt64.self) == Self.magic,
            bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self) == generation
        else { return nil }
        let checksum = Checksum.crc32c(
            UnsafeRawBufferPointer(rebasing: bytes[..<56]), seed: RecordHeader.seed(generation: generation))
        guard bytes.loadUnaligned(fromByteOffset: 56, as: UInt32.self) == checksum else { return nil }
        self.generation = generation
        run = bytes.loadUnaligned(fromByteOffset: 48, as: UInt64.self)
        segmentByteCount = Int(truncatingIfNeeded: bytes.loadUnaligned(fromByteOffset: 16, as: UInt64.self))
        previousGeneration = bytes.loadUnaligned(fromByteOffset: 24, as: UInt64.self)
        previousEnd = Int(truncatingIfNeeded: bytes.loadUnaligned(fromByteOffset: 32, as: UInt64.self))
        isUnsynced = bytes.loadUnaligned(fromByteOffset: 40, as: UInt64.self) & 1 != 0
    }

    package init(
        generation: UInt64, run: UInt64, segmentByteCount: Int, previousGeneration: UInt64, previousEnd: Int,
        isUnsynced: Bool = false
    ) {
        (self.generation, self.run, self.segmentByteCount) = (generation, run, segmentByteCount)
        (self.previousGeneration, self.previousEnd) = (previousGeneration, previousEnd)
        self.isUnsynced = isUnsynced
    }
}
