internal import Wire

/// The `custom_callback` of a task, stored once in each bucket whose devices the task reached.
///
/// The rows of its messages only say that it exists (`MessageFacts.hasCallback`). An event of a message gets the text on the way
/// to its feed, so that messages without one cost nothing, and a broadcast to many devices stores few copies.
package enum CallbackRow {
    static let version: UInt8 = 1
    static let headByteCount = 1
    package static let byteCountLimit = headByteCount + MessageBounds.customCallbackByteCount

    static func key(_ task: TaskID, in bucket: Bucket) -> StoreKey { StoreKey(bucket, .taskCallback, task) }

    static func byteCount(_ text: [UInt8]) -> Int { headByteCount + text.count }

    static func write(_ text: [UInt8], into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(text)
    }

    /// - Returns: `nil` unless the bytes are such a row of a known version.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> [UInt8]? {
        var reader = unsafe RowReader(bytes)
        guard bytes.count <= byteCountLimit, reader.next(UInt8.self) == version else { return nil }
        return reader.next(byteCount: bytes.count - headByteCount)?.array
    }
}
