internal import Wire

/// The first answer to a request id, for repetitions.
package struct RequestRow {
    static let version: UInt8 = 1
    package static let byteCount = 16 + 48 + 8

    package static func write(_ outcome: PublishOutcome, digest: UInt64, into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(outcome.code.rawValue)
        writer.put(UInt8(outcome.isLive ? 1 : 0))
        writer.put(outcome.fallback.rawValue)
        writer.put(outcome.fallbackReason.rawValue)
        writer.put(outcome.endedAs?.rawValue ?? 0)
        writer.put(UInt16(VendorChannel.nibble(of: outcome.vendor)))
        writer.put(digest)
        writer.put(outcome.message.high)
        writer.put(outcome.message.low)
        writer.put(outcome.task.high)
        writer.put(outcome.task.low)
        writer.put(outcome.cid.high)
        writer.put(outcome.cid.low)
        writer.put(outcome.timeToLive)
    }

    package static func read(_ bytes: UnsafeRawBufferPointer) -> (outcome: PublishOutcome, digest: UInt64)? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version, let code = PublishOutcome.Code(rawValue: reader.next() ?? .max),
            let live = reader.next(UInt8.self), let fallback = PublishOutcome.Fallback(rawValue: reader.next() ?? .max),
            let reason = PublishOutcome.FallbackReason(rawValue: reader.next() ?? .max),
            let ended = reader.next(UInt8.self), let vendor = reader.next(UInt16.self),
            let digest = reader.next(UInt64.self),
            let message = reader.nextIdentifier(MessageID.self), let task = reader.nextIdentifier(TaskID.self),
            let cid = reader.nextIdentifier(DeviceID.self), let timeToLive = reader.next(Int64.self)
        else { return nil }
        let outcome = PublishOutcome(
            code: code, cid: cid, message: message, task: task, isLive: live != 0, fallback: fallback,
            fallbackReason: reason, timeToLive: timeToLive, isRepeat: true, endedAs: FinalState(rawValue: ended),
            vendor: VendorChannel.channel(ofNibble: UInt8(truncatingIfNeeded: vendor)))
        return (outcome, digest)
    }
}
