enum Limits {
    /// The pieces in one `pwritev`: the kernel's IOV_MAX, above which the call fails.
    static let gatheredPieceCount = 1024
    /// The zeros written per call when a file is prepared, enough to make the overhead of the call negligible.
    static let zeroingByteCount = 1 << 20
    /// The longest pause of `fillWithZeros(isGentle:)`, so that a slow disk does not delay the next file.
    static let restNanoseconds: UInt64 = 10_000_000
    /// The allocation size from which malloc uses mmap, such as a slab's chunk or a block of the journal's memory.
    static let mappedByteCount = 64 << 10
    /// The free memory that malloc may keep at the end of an arena.
    static let keptTopByteCount = 1 << 20
    /// The maximum size of a small file (configuration, token, certificate) that is read into memory.
    static let wholeFileByteCount = 16 << 20
}
