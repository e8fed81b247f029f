/// The bounds of this module, each with its reason.
enum Limits {
    /// Pieces in one `pwritev`: the kernel's IOV_MAX; one more is refused.
    static let gatheredPieceCount = 1024
    /// Zeros written at a time when a file is prepared: large enough that the call's cost vanishes.
    static let zeroingByteCount = 1 << 20
    /// A whole small file (configuration, token, certificate) read into memory; larger ones are a mistake.
    static let wholeFileByteCount = 16 << 20
}
