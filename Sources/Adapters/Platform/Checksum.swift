internal import CSystem

/// CRC32C (Castagnoli), with the processor's instruction if available.
package enum Checksum {
    /// Returns the checksum of `bytes`, continued from `seed`.
    ///
    /// `crc32c(b, seed: crc32c(a))` equals the checksum of a followed by b. Any other seed, such as a segment's generation, makes
    /// the result differ from the unseeded checksum.
    package static func crc32c(_ bytes: UnsafeRawBufferPointer, seed: UInt32 = 0) -> UInt32 {
        longwire_crc32c(seed, bytes.baseAddress, bytes.count)
    }

    package static func crc32c(_ bytes: RawSpan, seed: UInt32 = 0) -> UInt32 {
        bytes.withUnsafeBytes { crc32c($0, seed: seed) }
    }
}
