/// The measure in which rows of counts have an app's queued bytes: what a message counts in its device's queue
/// (`MessageRow.charge`), rounded up to whole blocks.
package enum QueuedBlocks {
    package static let blockByteCount = 64

    /// Rows have 32 bits for what came and for what went, which wrap; their difference is read as a signed number.
    ///
    /// So the queued bytes of an app must stay below 128 GiB, or a start reads them as less than nothing.
    package static let byteCountLimit = Int(Int32.max) * blockByteCount

    /// The blocks of a message, by the bytes that it counts in its device's queue.
    package static func count(_ charge: UInt32) -> UInt16 {
        UInt16(truncatingIfNeeded: (Int(charge) + blockByteCount - 1) / blockByteCount)
    }

    /// What came less what went, by a row whose two numbers wrap.
    static func difference(_ came: UInt32, _ went: UInt32) -> Int64 { Int64(Int32(bitPattern: came &- went)) }

    /// The most that one message counts.
    package static let largestMessageByteCount =
        Int(count(MessageRow.charge(StoreBounds.valueByteCount))) * blockByteCount
}
