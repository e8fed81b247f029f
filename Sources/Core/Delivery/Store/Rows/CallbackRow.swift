internal import Wire

/// The `custom_callback` of a task, stored once in each bucket whose devices the task reached.
///
/// Message rows contain a flag (`MessageFacts.hasCallback`) instead of the text. The shard adds the text to each event
/// before it sends the event to the feed. Messages without a callback therefore cost nothing. A broadcast stores one
/// copy per bucket instead of one per device.
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

    /// - Returns: `nil` unless the bytes are a callback row of a known version.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> [UInt8]? {
        var reader = unsafe RowReader(bytes)
        guard bytes.count <= byteCountLimit, reader.next(UInt8.self) == version else { return nil }
        return reader.next(byteCount: bytes.count - headByteCount)?.array
    }
}
