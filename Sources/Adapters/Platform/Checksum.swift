internal import CSystem

/// CRC32C (Castagnoli), with the processor's instruction where it has one.
package enum Checksum {
    /// The checksum of `bytes`, continued from `seed`.
    ///
    /// `crc32c(b, seed: crc32c(a))` equals the checksum of a followed by b; a seed that is not a checksum of earlier
    /// bytes (a segment's generation) makes the result differ from the unseeded one.
    package static func crc32c(_ bytes: UnsafeRawBufferPointer, seed: UInt32 = 0) -> UInt32 {
        longwire_crc32c(seed, bytes.baseAddress, bytes.count)
    }

    package static func crc32c(_ bytes: RawSpan, seed: UInt32 = 0) -> UInt32 {
        bytes.withUnsafeBytes { crc32c($0, seed: seed) }
    }
}
