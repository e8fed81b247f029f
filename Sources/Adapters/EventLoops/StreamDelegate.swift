public import Platform

/// Why a stream ended; told once.
public enum CloseReason: Equatable, Sendable {
    /// We closed it.
    case closedHere
    /// The peer closed its half.
    case endOfStream
    /// The connection broke: reset by the peer, timed out in the kernel, and the like.
    case failed(SystemError)
    /// The TLS handshake or a record was bad.
    case tlsFailed(String)
    /// The client broke the rules of a WebSocket.
    case webSocketFailed(String)
    /// Its timeout fired.
    case timedOut
    /// The peer reads too slowly for what is sent to it.
    case outboxFull
    /// The delegate left more received bytes unconsumed than may be kept.
    case unconsumedOverflow
    /// Peers make the process hold more than it may, and the stream's address holds most (`PeerBudget`).
    case budgetSpent
    /// The loop stopped.
    case loopStopped
}

/// What a byte stream calls on its loop; a class with overridable methods, so that a call costs no existential.
///
/// The stream holds its delegate from attach until `closed` has returned.
open class StreamDelegate {
    public init() {}

    /// Takes received bytes; returns how many from the front are done with.
    ///
    /// The rest comes again, with what follows it; at most `Limits.unconsumedByteCount` may be left. The bytes are the
    /// loop's scratch memory and mean nothing after the return. Everything on the stream is allowed here: writing,
    /// closing, pausing, detaching. After a detach or a close the result does not matter.
    open func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        preconditionFailure("override received(_:on:)")
    }

    /// A WebSocket's client sent `frameCount` frames that carry nothing for `received`: control frames, and empty ones.
    ///
    /// Told before the bytes that came with them. Pings are answered already.
    open func receivedEmpty(_ frameCount: Int, on stream: ByteStream) {}

    /// The outbox was over its limit since it was last empty, so something was refused; by default the stream is closed.
    open func outboxFilled(_ stream: ByteStream) { stream.close(.outboxFull) }

    /// The outbox is empty again after something had to wait or was refused; in a later turn than the last write.
    open func outboxDrained(_ stream: ByteStream) {}

    /// The TLS handshake is done; not called on a plain stream.
    open func handshakeFinished(_ stream: ByteStream) {}

    /// The peer sends no more, and everything that it sent was delivered; it may still read (TCP half-close, `close_notify`).
    ///
    /// With true the stream stays open for output, until the delegate closes it (`closeAfterFlush`) or its timeout fires: the
    /// delegate sets one. With false, the default, the stream ends. Called again when reading is resumed.
    open func peerEnded(_ stream: ByteStream) -> Bool { false }

    /// The stream's timeout fired; by default it is closed.
    open func timedOut(_ stream: ByteStream) { stream.close(.timedOut) }

    /// The stream is over: exactly one call, in a later turn than the cause, unless it was detached.
    open func closed(_ stream: ByteStream, _ reason: CloseReason) {}

    /// As `closed`, with the stream's tag, for a delegate of many streams; by default calls `closed`.
    open func ended(_ stream: ByteStream, tag: UInt32, _ reason: CloseReason) { closed(stream, reason) }

    /// Something is about to be read from the stream with this tag: a delegate of many may ask for its memory.
    open func foresee(_ tag: UInt32) {}
}
