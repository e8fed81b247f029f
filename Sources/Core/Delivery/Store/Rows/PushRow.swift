package import Wire

/// The row of a push under its request id: the answer and the message.
///
/// A single push's task id is derived from its request id. This row is therefore found both by the request (for repetitions) and
/// by the task (for reports, stops and revokes).
package struct PushRow {
    /// Must differ from the versions of `RequestRow` and `CallRow`, which use the same table.
    static let version: UInt8 = 3

    package var outcome: PublishOutcome
    var message: MessageID { outcome.message }
    var cid: DeviceID { outcome.cid }
    package var digest: UInt64
    var app: AppKey
    /// The message's table and item at its acceptance.
    var table: StoreKey.Table
    var item: UInt64

    private struct Form: OptionSet {
        let rawValue: UInt16
        static let live = Form(rawValue: 1)
        static let vendorMessage = Form(rawValue: 2)
        static let itemOfID = Form(rawValue: 4)
        /// The row has only the kind and date of the task id, because the key has the id's random bits.
        static let taskOfKey = Form(rawValue: 8)
        static let plainTask = Form(rawValue: 16)
        static let seconds = Form(rawValue: 32)
    }

    init(_ outcome: PublishOutcome, digest: UInt64, app: AppKey, table: StoreKey.Table, item: UInt64) {
        (self.outcome, self.digest, self.app, self.table, self.item) = (outcome, digest, app, table, item)
    }

    package static func key(_ task: TaskID, in bucket: Bucket) -> StoreKey {
        StoreKey(bucket, .request, ownerHigh: task.high & 0xFFFF_FFFF, ownerLow: task.low)
    }

    static func key(of request: (UInt64, UInt64), in bucket: Bucket) -> StoreKey {
        StoreKey(
            bucket, .request, ownerHigh: UInt64(bucket.index) << 20 | request.0 & 0xF_FFFF, ownerLow: request.1)
    }

    /// The maximum size, for `RowBounds`: outcome, digest, message, device, app, task, TTL and item.
    static let byteCountLimit = 5 + 8 + 6 + 8 + 16 + 8 + 16 + 2 * RowWriter.varintByteCount

    private func form(under key: StoreKey) -> Form {
        var form: Form = outcome.isLive ? .live : []
        if table == .vendorMessage { form.insert(.vendorMessage) }
        if item == outcome.message.low { form.insert(.itemOfID) }
        if RowWriter.isPlain(outcome.task) { form.insert(.plainTask) }
        if form.contains(.plainTask), Self.key(outcome.task, in: key.bucket) == key { form.insert(.taskOfKey) }
        if outcome.timeToLive % 1_000 == 0 { form.insert(.seconds) }
        return form
    }

    package func byteCount(under key: StoreKey) -> Int {
        let form = form(under: key)
        var count = 5 + 8 + 6 + 8 + 16 + 8
        count += form.contains(.taskOfKey) ? 2 : form.contains(.plainTask) ? 14 : 16
        count += RowWriter.byteCount(signed: storedTimeToLive(form))
        if !form.contains(.itemOfID) { count += RowWriter.byteCount(varint: item) }
        return count
    }

    /// Fills exactly `byteCount` bytes.
    package func write(under key: StoreKey, into bytes: UnsafeMutableRawBufferPointer) {
        let form = form(under: key)
        var writer = unsafe RowWriter(bytes)
        writer.put(Self.version)
        writer.put(form.rawValue)
        writer.put(outcome.fallback.rawValue | outcome.fallbackReason.rawValue << 4)
        writer.put((outcome.endedAs?.rawValue ?? 0) | VendorChannel.nibble(of: outcome.vendor) << 4)
        writer.put(digest)
        writer.put(UInt32(truncatingIfNeeded: outcome.message.high))
        writer.put(UInt16(truncatingIfNeeded: outcome.message.high >> 32))
        writer.put(outcome.message.low)
        writer.put(outcome.cid.high)
        writer.put(outcome.cid.low)
        writer.put(app.word)
        if form.contains(.taskOfKey) {
            writer.put(RowWriter.plainHead(outcome.task))
        } else {
            writer.put(outcome.task, isPlain: form.contains(.plainTask))
        }
        writer.put(signed: storedTimeToLive(form))
        if !form.contains(.itemOfID) { writer.put(varint: item) }
    }

    private func storedTimeToLive(_ form: Form) -> Int64 {
        form.contains(.seconds) ? outcome.timeToLive / 1_000 : outcome.timeToLive
    }

    /// Reads the row under a key.
    ///
    /// - Returns: `nil` unless the bytes are a push row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer, under key: StoreKey) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let form = reader.next(UInt16.self).map(Form.init),
            let answer = reader.next(UInt8.self), let fallback = PublishOutcome.Fallback(rawValue: answer & 15),
            let reason = PublishOutcome.FallbackReason(rawValue: answer >> 4), let ended = reader.next(UInt8.self),
            let digest = reader.next(UInt64.self), let timeLow = reader.next(UInt32.self),
            let timeHigh = reader.next(UInt16.self), let low = reader.next(UInt64.self),
            let cid = reader.nextIdentifier(DeviceID.self), let app = reader.next(UInt64.self),
            let task = form.contains(.taskOfKey)
                ? reader.nextTask(of: key) : reader.nextTask(isPlain: form.contains(.plainTask)),
            var timeToLive = reader.nextSigned(), let item = form.contains(.itemOfID) ? low : reader.nextVarint(),
            reader.isAtEnd
        else { return nil }
        if form.contains(.seconds) { timeToLive = timeToLive &* 1_000 }
        let high = UInt64(key.bucket.index) << 48 | UInt64(timeHigh) << 32 | UInt64(timeLow)
        let outcome = PublishOutcome(
            code: .accepted, cid: cid, message: MessageID(high: high, low: low), task: task,
            isLive: form.contains(.live), fallback: fallback, fallbackReason: reason, timeToLive: timeToLive,
            isRepeat: true, endedAs: FinalState(rawValue: ended & 15),
            vendor: VendorChannel.channel(ofNibble: ended >> 4))
        self.init(
            outcome, digest: digest, app: AppKey(app),
            table: form.contains(.vendorMessage) ? .vendorMessage : .message, item: item)
    }
}

extension TaskID {
    /// Creates the id of a single push from its request's digest, its device's bucket and the day.
    package init(kind: Kind, month: Int, day: Int, home: Bucket, request key: (UInt64, UInt64)) {
        self.init(
            kind: kind, month: month, day: day, home: home, random: (UInt32(truncatingIfNeeded: key.0), key.1))
    }

    /// Returns whether the id is derived from the digest of a request for a device of this bucket.
    func follows(from key: (UInt64, UInt64), in bucket: Bucket) -> Bool {
        key != (0, 0) && kind == .single
            && self == TaskID(high: high & ~0xFFFF_FFFF | UInt64(bucket.index) << 20 | key.0 & 0xF_FFFF, low: key.1)
    }
}

extension RowReader {
    fileprivate mutating func nextTask(of key: StoreKey) -> TaskID? {
        guard let head = next(UInt16.self), key.ownerHigh >> 32 == 0 else { return nil }
        return Self.task(head, random: key.ownerHigh, key.ownerLow)
    }
}
