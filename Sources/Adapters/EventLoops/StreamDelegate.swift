public import Platform

public enum CloseReason: Equatable, Sendable {
    /// This side closed the stream.
    case closedHere
    /// The peer closed its sending side.
    case endOfStream
    /// The connection failed, for example by a reset or a timeout in the kernel.
    case failed(SystemError)
    /// The TLS handshake or a record was invalid.
    case tlsFailed(String)
    /// The client violated the WebSocket protocol.
    case webSocketFailed(String)
    case timedOut
    /// The peer reads its data too slowly.
    case outboxFull
    /// The delegate left too many received bytes unconsumed.
    case unconsumedOverflow
    /// The memory budget of peers is exceeded, and the stream's address uses the most (`PeerBudget`).
    case budgetSpent
    case loopStopped
}

/// The callbacks of a byte stream, on its loop; the stream retains its delegate until `closed` has returned.
open class StreamDelegate {
    public init() {}

    /// Handles received bytes and returns the number of bytes consumed.
    ///
    /// Unconsumed bytes are passed again with those that follow. At most `Limits.unconsumedByteCount` bytes may be left. The
    /// bytes are in the loop's scratch memory and become invalid after the return. The stream may be written to, closed, paused
    /// or detached in this call. After a detach or a close the result is ignored.
    open func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        preconditionFailure("override received(_:on:)")
    }

    /// Reports frames of a WebSocket client without payload, before the bytes received with them; pings are already answered.
    open func receivedEmpty(_ frameCount: Int, on stream: ByteStream) {}

    /// Reports that output was refused because the outbox reached its limit; by default the stream is closed.
    open func outboxFilled(_ stream: ByteStream) { stream.close(.outboxFull) }

    /// Reports that the outbox is empty after output was delayed or refused, in a later turn than the last write.
    open func outboxDrained(_ stream: ByteStream) {}

    /// Reports the end of the TLS handshake; not called on a stream without TLS.
    open func handshakeFinished(_ stream: ByteStream) {}

    /// Reports that the peer has ended its output and all of it was delivered.
    ///
    /// The peer may still read (TCP half-close, `close_notify`). If the result is `true`, the stream stays open for output until
    /// `closeAfterFlush` or its timeout, which the delegate must set; reading is then paused, and each `resumeReading` causes
    /// another call. If the result is `false`, the default, the stream ends.
    open func peerEnded(_ stream: ByteStream) -> Bool { false }

    /// Reports the stream's timeout; by default the stream is closed.
    open func timedOut(_ stream: ByteStream) { stream.close(.timedOut) }

    /// Reports the end of the stream exactly once, in a later turn than the cause; not called after a detach.
    open func closed(_ stream: ByteStream, _ reason: CloseReason) {}

    /// Reports the end with the stream's tag, for a delegate of many streams; by default it calls `closed`.
    open func ended(_ stream: ByteStream, tag: UInt32, _ reason: CloseReason) { closed(stream, reason) }

    /// Announces a read from the stream with this tag, so that a delegate of many streams can prefetch its memory.
    open func foresee(_ tag: UInt32) {}
}
