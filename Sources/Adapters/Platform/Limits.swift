/// The bounds of this module, each with its reason.
enum Limits {
    /// Pieces in one `pwritev`: the kernel's IOV_MAX; one more is refused.
    static let gatheredPieceCount = 1024
    /// Zeros written at a time when a file is prepared: large enough that the call's cost vanishes.
    static let zeroingByteCount = 1 << 20
    /// The longest rest between two pieces of a file that is prepared gently: a slow disk must not keep the next file waiting.
    static let restNanoseconds: UInt64 = 10_000_000
    /// Allocations from here on are mapped by themselves: a chunk of a slab, a block of the journal's memory.
    static let mappedByteCount = 64 << 10
    /// What an arena may keep free at its end.
    static let keptTopByteCount = 1 << 20
    /// A whole small file (configuration, token, certificate) read into memory; larger ones are a mistake.
    static let wholeFileByteCount = 16 << 20
}
