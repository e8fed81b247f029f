internal import EventLoops
internal import Platform
internal import Wire

/// One connection between two gateways on the link loop: frames in, frames out, heartbeats.
///
/// Confined to the link loop, as its subclasses are.
class LinkConnection: StreamDelegate {
    // `peerConnections` outlives its connections: it ends them before its own end.
    unowned let peerConnections: PeerConnections
    private(set) var stream: ByteStream?
    private let reader = LinkFrameReader()
    /// Frames that the stream has not taken yet.
    private var queue: [LinkBlock] = []
    private var firstQueued = 0
    /// Bytes of the first queued block that the stream has.
    private var offset = 0
    private var lastHeardAt: UInt64 = 0
    private var lastHeartbeatAt: UInt64 = 0
    /// What ended the connection, if this side did.
    private(set) var closing: LinkClose?
    /// The peer is known: heartbeats run, and frames may be long.
    private(set) var isIdentified = false

    init(_ peerConnections: PeerConnections) { self.peerConnections = peerConnections }

    func attach(_ connection: DetachedConnection, serverName: String?) {
        let now = peerConnections.loop.now
        (lastHeardAt, lastHeartbeatAt) = (now, now)
        stream = ByteStream(
            attaching: connection, on: peerConnections.loop, delegate: self,
            outboxByteLimit: LinkLimits.outboxByteCount,
            tls: peerConnections.settings.tls, serverName: serverName)
        stream?.isLink()
        stream?.setTimeout(afterMilliseconds: peerConnections.settings.times.identificationMilliseconds)
    }

    /// The peer said who it is.
    func identified() {
        isIdentified = true
        reader.bodyLimit = LinkLimits.frameByteCount
        stream?.clearTimeout()
    }

    // MARK: What subclasses say

    /// Where the bytes are counted, once the peer is known.
    var countingPort: PeerState? { nil }

    /// Takes a frame; false stops the reading of what follows it.
    func take(_ frame: LinkFrame) throws(LinkFault) -> Bool { preconditionFailure("override take(_:)") }

    /// The connection is over, once.
    func ended(_ reason: CloseReason) { preconditionFailure("override ended(_:)") }

    /// This side ends the connection: what its owner expects of it, it does not do any more.
    func closes() {}

    /// The peer said nothing for the bound of silence; its host is gone, stands still or is cut off.
    func wentSilent() {}

    /// A block went to the stream, or will not go any more.
    func released(_ block: LinkBlock) { peerConnections.spares.keep(block) }

    // MARK: Input

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        lastHeardAt = peerConnections.loop.now
        peerConnections.counters.received(bytes.count)
        countingPort?.countReceived(bytes.count)
        do throws(LinkFault) {
            let count = try reader.read(bytes) { (frame) throws(LinkFault) in
                // After a Close nothing more is of interest.
                guard self.stream != nil, self.closing == nil else { return true }
                return try self.take(frame)
            }
            if count < bytes.count { stopped(with: UnsafeRawBufferPointer(rebasing: bytes[count...])) }
        } catch {
            close(.malformed, "the peer's bytes are no frames of this link: \(error)")
        }
        return bytes.count
    }

    /// `take` stopped the reading; `rest` came behind its frame.
    func stopped(with rest: UnsafeRawBufferPointer) {}

    /// Gives the connection away, with bytes that its next owner sees first.
    func detach(_ rest: UnsafeRawBufferPointer) -> DetachedConnection? {
        defer { stream = nil }
        return stream?.detach(unconsumed: rest)
    }

    func pauseReading() { stream?.pauseReading() }

    func resumeReading() {
        // The silence was this side's own.
        lastHeardAt = peerConnections.loop.now
        stream?.resumeReading()
    }

    // MARK: Output

    func send(_ block: LinkBlock) {
        queue.append(block)
        pump()
    }

    /// Writes a frame of its own.
    func send(_ kind: LinkFrame.Kind, _ body: [UInt8] = [], lease: LinkFrame.Lease = .unstated) {
        let block = peerConnections.spares.take()
        let start = block.beginFrame(kind, lease: lease)
        block.put(body)
        block.endFrame(start)
        send(block)
    }

    /// Gives the stream what it takes.
    private func pump() {
        guard let stream else { return }
        while firstQueued < queue.count {
            let block = queue[firstQueued]
            while offset < block.byteCount {
                let end = min(block.byteCount, offset + LinkLimits.pieceByteCount)
                let isTaken = block.withBytes { stream.write(UnsafeRawBufferPointer(rebasing: $0[offset..<end])) }
                guard isTaken else { return forgetReleased() }
                peerConnections.counters.sent(end - offset)
                countingPort?.countSent(end - offset)
                offset = end
            }
            offset = 0
            firstQueued += 1
            released(block)
        }
        queue.removeAll(keepingCapacity: true)
        firstQueued = 0
    }

    /// A stream that is never empty must not keep what went through it.
    private func forgetReleased() {
        guard firstQueued >= LinkLimits.releasedBlockCount else { return }
        queue.removeFirst(firstQueued)
        firstQueued = 0
    }

    override func outboxFilled(_ stream: ByteStream) {}
    override func outboxDrained(_ stream: ByteStream) { pump() }

    // MARK: Time

    func tick(_ now: UInt64) {
        guard isIdentified, closing == nil, let stream else { return }
        if now >= lastHeardAt + peerConnections.settings.times.silenceMilliseconds, !stream.isReadingPaused {
            wentSilent()
            close(.unavailable, "the peer said nothing for \(now - lastHeardAt) ms")
            self.stream?.close(.timedOut)
        } else if firstQueued == queue.count,
            now >= lastHeartbeatAt + peerConnections.settings.times.heartbeatMilliseconds
        {
            lastHeartbeatAt = now
            send(.heartbeat, lease: peerConnections.ports.lease)
        }
    }

    override func timedOut(_ stream: ByteStream) {
        close(.unavailable, "the peer did not say who it is in time")
    }

    /// Whether the peer has said something within the bound of silence.
    var isLively: Bool { peerConnections.loop.now < lastHeardAt + peerConnections.settings.times.silenceMilliseconds }

    // MARK: End

    /// Says why and ends the connection.
    func close(_ code: LinkClose.Code, _ reason: String) {
        guard closing == nil, let stream else { return }
        let close = LinkClose(code: code, reason: reason)
        closing = close
        let block = peerConnections.spares.take()
        let start = block.beginFrame(.close)
        block.put(close.bytes)
        block.endFrame(start)
        // Behind half a frame it would be read as a part of that.
        if firstQueued == queue.count || offset == 0 { _ = block.withBytes { stream.write($0) } }
        peerConnections.spares.keep(block)
        stream.closeAfterFlush()
        closes()
    }

    override func closed(_ stream: ByteStream, _ reason: CloseReason) {
        guard self.stream != nil else { return }
        self.stream = nil
        for block in queue[firstQueued...] { released(block) }
        (queue, firstQueued, offset) = ([], 0, 0)
        ended(reason)
    }
}
