/// The unit of an app's queued bytes in counters rows: `MessageRow.charge`, rounded up to whole blocks.
package enum QueuedBlocks {
    package static let blockByteCount = 64

    /// The limit of an app's queued bytes.
    ///
    /// Counters rows have 32-bit sums for additions and removals, which wrap around, and their difference is read as a signed
    /// number.
    ///
    /// Above 128 GiB the difference would become negative.
    package static let byteCountLimit = Int(Int32.max) * blockByteCount

    package static func count(_ charge: UInt32) -> UInt16 {
        UInt16(truncatingIfNeeded: (Int(charge) + blockByteCount - 1) / blockByteCount)
    }

    /// Returns additions minus removals for a row whose sums wrap around.
    static func difference(_ came: UInt32, _ went: UInt32) -> Int64 { Int64(Int32(bitPattern: came &- went)) }

    package static let largestMessageByteCount =
        Int(count(MessageRow.charge(StoreBounds.valueByteCount))) * blockByteCount
}
