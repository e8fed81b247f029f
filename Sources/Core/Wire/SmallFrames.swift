/// A PublishResult frame whose texts are literals, encoded in place; other texts need a `PublishResult`.
public struct PublishResultFrame: Sendable {
    public var request: UInt64
    public var code: UInt32
    public var reason: StaticString
    public var messageID: MessageID
    public var taskID: TaskID
    public var isLive: Bool
    /// The state of the fallback: 0 none, 1 armed, 2 due now.
    public var fallback: UInt32
    public var fallbackReason: StaticString
    public var isFsync: Bool
    public var isIDsOnly: Bool

    public init(
        request: UInt64, code: UInt32 = 0, reason: StaticString = "", messageID: MessageID = .none,
        taskID: TaskID = .none, isLive: Bool = false, fallback: UInt32 = 0, fallbackReason: StaticString = "",
        isFsync: Bool = false, isIDsOnly: Bool = false
    ) {
        (self.request, self.code, self.reason, self.messageID) = (request, code, reason, messageID)
        (self.taskID, self.isLive, self.fallback) = (taskID, isLive, fallback)
        (self.fallbackReason, self.isFsync, self.isIDsOnly) = (fallbackReason, isFsync, isIDsOnly)
    }

    public var byteCount: Int { FrameHeader.byteCount + bodyByteCount }

    /// Writes the frame at the start of `buffer`.
    ///
    /// - Parameter buffer: at least `byteCount` bytes. A smaller buffer traps.
    /// - Returns: the number of bytes written, `byteCount`.
    @discardableResult
    public func encode(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        var filler = unsafe BufferFiller(buffer)
        unsafe FrameHeader(type: .publishResult, bodyByteCount: bodyByteCount).write(to: &filler)
        unsafe write(to: &filler)
        return unsafe filler.byteCount
    }

    private var bodyByteCount: Int {
        var counter = ByteCounter()
        write(to: &counter)
        return counter.byteCount
    }

    @inline(__always)
    private func write(to sink: inout some ByteSink) {
        typealias Field = PublishResult.Field
        sink.number(request, Field.request)
        sink.number(code, Field.code)
        sink.text(reason, Field.reason)
        sink.identifier(messageID, Field.msgId)
        sink.identifier(taskID, Field.taskId)
        sink.flag(isLive, Field.live)
        sink.number(fallback, Field.fallback)
        sink.text(fallbackReason, Field.fallbackReason)
        sink.flag(isFsync, Field.fsync)
        sink.flag(isIDsOnly, Field.idsOnly)
    }
}

public struct HeartbeatFrame: Sendable {
    /// The maximum size of a heartbeat frame: a header, a tag and a varint.
    public static let largestByteCount = FrameHeader.byteCount + 11

    private let type: FrameType
    private let nonce: UInt64

    public static func ping(nonce: UInt64) -> Self { Self(type: .ping, nonce: nonce) }
    public static func pong(nonce: UInt64) -> Self { Self(type: .pong, nonce: nonce) }

    private var bodyByteCount: Int {
        var counter = ByteCounter()
        counter.number(nonce, Ping.Field.nonce)
        return counter.byteCount
    }

    public var byteCount: Int { FrameHeader.byteCount + bodyByteCount }

    /// Writes the frame at the start of `buffer`.
    ///
    /// - Parameter buffer: at least `byteCount` bytes. A smaller buffer traps.
    /// - Returns: the number of bytes written, `byteCount`.
    @discardableResult
    public func encode(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        var filler = unsafe BufferFiller(buffer)
        unsafe FrameHeader(type: type, bodyByteCount: bodyByteCount).write(to: &filler)
        unsafe filler.number(nonce, Ping.Field.nonce)
        return unsafe filler.byteCount
    }
}

extension ByteSink {
    mutating func text(_ value: StaticString, _ field: some MessageField) {
        // Safe: a literal's bytes are never freed. `withUTF8Buffer` also handles a literal of a single scalar, which may have no
        // pointer.
        value.withUTF8Buffer { unsafe bytes(UnsafeRawBufferPointer($0), field) }
    }
}
