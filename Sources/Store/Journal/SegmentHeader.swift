internal import Platform

/// The first 64 bytes of a segment, written with its first group.
///
/// It says where the segment before it ended. That closes the one gap that group starts leave: without it the loss of a
/// segment's last records could not be told from a torn tail. `isUnsynced` says that nobody synced what was written, so
/// that what is missing is a loss that was allowed, not damage. `run` names the run of the process that wrote it: tickets
/// count anew in each.
package struct SegmentHeader: Equatable {
    package static let byteCount = 64
    private static let magic: UInt64 = 0x3130_6C6E_726A_776C  // "lwjrnl01"

    var generation: UInt64
    /// The number of its run and the run's first generation.
    var run: UInt64
    /// The file's whole size; a crash cannot change it, since the file is filled and synced before it is used.
    var segmentByteCount: Int
    /// The segment written before this one in the same run of the process; 0 if this is the run's first.
    var previousGeneration: UInt64
    var previousEnd: Int
    /// Written with durability `os`: neither this segment's groups nor the end of the one before were synced.
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

    /// Reads the header of the segment that its name says is `generation`; `nil` if there is none.
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
