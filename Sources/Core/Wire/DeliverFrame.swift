/// A complete Deliver frame, encoded in place from borrowed bytes without allocation.
///
/// The caller reserves `byteCount` bytes in the outbox and then calls `encode(into:)`.
///
/// It is unsafe because it stores pointers: the bytes must stay alive and unchanged until the last call. Texts must be valid
/// UTF-8, as texts from this codec and from the HTTP front end are.
@unsafe public struct DeliverFrame {
    public var stream: UInt32
    public var sequence: UInt64
    public var messageID: MessageID
    public var taskID: TaskID
    public var payload: UnsafeRawBufferPointer
    public var isOffline: Bool
    /// The gateway's time in milliseconds.
    public var acceptedAt: UInt64
    /// The gateway's time in milliseconds, or 0 if no alert was sent.
    public var alertedAt: UInt64
    public var attempt: UInt32
    public var collapseKey: UnsafeRawBufferPointer
    /// The frame has no alert if title and body are both empty.
    public var alertTitle: UnsafeRawBufferPointer
    public var alertBody: UnsafeRawBufferPointer
    public var isCarriedByVendor: Bool

    public init(
        stream: UInt32 = 0, sequence: UInt64, messageID: MessageID, taskID: TaskID, payload: UnsafeRawBufferPointer,
        isOffline: Bool, acceptedAt: UInt64, alertedAt: UInt64 = 0, attempt: UInt32,
        collapseKey: UnsafeRawBufferPointer = unsafe UnsafeRawBufferPointer(start: nil, count: 0),
        alertTitle: UnsafeRawBufferPointer = unsafe UnsafeRawBufferPointer(start: nil, count: 0),
        alertBody: UnsafeRawBufferPointer = unsafe UnsafeRawBufferPointer(start: nil, count: 0),
        isCarriedByVendor: Bool = false
    ) {
        unsafe self.stream = stream
        unsafe self.sequence = sequence
        unsafe self.messageID = messageID
        unsafe self.taskID = taskID
        unsafe self.payload = payload
        unsafe self.isOffline = isOffline
        unsafe self.acceptedAt = acceptedAt
        unsafe self.alertedAt = alertedAt
        unsafe self.attempt = attempt
        unsafe self.collapseKey = collapseKey
        unsafe self.alertTitle = alertTitle
        unsafe self.alertBody = alertBody
        unsafe self.isCarriedByVendor = isCarriedByVendor
    }

    public var bodyByteCount: Int {
        var counter = ByteCounter()
        unsafe write(to: &counter)
        return counter.byteCount
    }

    public var byteCount: Int { unsafe FrameHeader.byteCount + bodyByteCount }

    /// The offset of the msgId's sixteen bytes in the frame; the msgId must not be `.none`.
    public var messageIDOffset: Int {
        var counter = ByteCounter()
        unsafe writePlace(to: &counter)
        return FrameHeader.byteCount + counter.byteCount - MessageID.byteCount
    }

    /// Writes the frame at the start of `buffer`.
    ///
    /// - Parameter buffer: at least `byteCount` bytes. A smaller buffer traps.
    /// - Returns: the number of bytes written, `byteCount`.
    @discardableResult
    public func encode(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        var filler = unsafe BufferFiller(buffer)
        unsafe FrameHeader(type: .deliver, bodyByteCount: bodyByteCount).write(to: &filler)
        unsafe write(to: &filler)
        return unsafe filler.byteCount
    }

    @inline(__always)
    private func write(to sink: inout some ByteSink) {
        typealias Field = Deliver.Field
        unsafe writePlace(to: &sink)
        unsafe sink.identifier(taskID, Field.taskId)
        unsafe sink.bytes(payload, Field.payload)
        unsafe sink.flag(isOffline, Field.offline)
        unsafe sink.number(acceptedAt, Field.acceptedAt)
        unsafe sink.number(alertedAt, Field.alertedAt)
        unsafe sink.number(attempt, Field.attempt)
        unsafe sink.bytes(collapseKey, Field.collapseKey)
        if unsafe !alertTitle.isEmpty || !alertBody.isEmpty {
            var counter = ByteCounter()
            unsafe writeAlert(to: &counter)
            sink.put(varint: Field.alert.tag)
            sink.put(varint: UInt64(counter.byteCount))
            unsafe writeAlert(to: &sink)
        }
        unsafe sink.flag(isCarriedByVendor, Field.carriedByVendor)
    }

    /// Writes the stream, the sequence and the msgId; `messageIDOffset` relies on the msgId being last.
    @inline(__always)
    private func writePlace(to sink: inout some ByteSink) {
        unsafe sink.number(stream, Deliver.Field.stream)
        unsafe sink.number(sequence, Deliver.Field.sequence)
        unsafe sink.identifier(messageID, Deliver.Field.msgId)
    }

    @inline(__always)
    private func writeAlert(to sink: inout some ByteSink) {
        unsafe sink.bytes(alertTitle, Alert.Field.title)
        unsafe sink.bytes(alertBody, Alert.Field.body)
    }
}
