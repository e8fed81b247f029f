internal import EventLoops
internal import Platform
internal import Wire

/// A connection between two gateways that reads and writes frames and sends heartbeats.
///
/// Confined to the link loop, including its subclasses.
class LinkConnection: StreamDelegate {
    // Sound because `peerConnections` ends all its connections before it is released.
    unowned let peerConnections: PeerConnections
    private(set) var stream: ByteStream?
    private let reader = LinkFrameReader()
    private var queue: [LinkBlock] = []
    private var firstQueued = 0
    /// The number of bytes of the first queued block that the stream has accepted.
    private var offset = 0
    private var lastHeardAt: UInt64 = 0
    private var lastHeartbeatAt: UInt64 = 0
    private(set) var closing: LinkClose?
    /// Whether the peer has identified itself; only then heartbeats run and long frames are allowed.
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

    func identified() {
        isIdentified = true
        reader.bodyLimit = LinkLimits.frameByteCount
        stream?.clearTimeout()
    }

    // MARK: Overrides of subclasses

    var countingPort: PeerState? { nil }

    /// Handles a frame; returns false to stop reading the frames after it.
    func take(_ frame: LinkFrame) throws(LinkFault) -> Bool { preconditionFailure("override take(_:)") }

    /// Handles the end of the connection; called once.
    func ended(_ reason: CloseReason) { preconditionFailure("override ended(_:)") }

    /// Called when this side closes the connection, before `ended`, which waits for the end of the stream.
    func closes() {}

    func wentSilent() {}

    /// Releases a block that was written or can no longer be written.
    func released(_ block: LinkBlock) { peerConnections.spares.keep(block) }

    // MARK: Input

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        lastHeardAt = peerConnections.loop.now
        peerConnections.counters.received(bytes.count)
        countingPort?.countReceived(bytes.count)
        do throws(LinkFault) {
            let count = try reader.read(bytes) { (frame) throws(LinkFault) in
                // Frames after a Close are ignored.
                guard self.stream != nil, self.closing == nil else { return true }
                return try self.take(frame)
            }
            if count < bytes.count { stopped(with: UnsafeRawBufferPointer(rebasing: bytes[count...])) }
        } catch {
            close(.malformed, "the peer's bytes are no frames of this link: \(error)")
        }
        return bytes.count
    }

    /// Handles the unread bytes after the frame at which `take` stopped reading.
    func stopped(with rest: UnsafeRawBufferPointer) {}

    /// Detaches the connection, with the unread bytes that its next owner reads first.
    func detach(_ rest: UnsafeRawBufferPointer) -> DetachedConnection? {
        defer { stream = nil }
        return stream?.detach(unconsumed: rest)
    }

    func pauseReading() { stream?.pauseReading() }

    func resumeReading() {
        // The peer was not silent: this side had paused reading.
        lastHeardAt = peerConnections.loop.now
        stream?.resumeReading()
    }

    // MARK: Output

    func send(_ block: LinkBlock) {
        queue.append(block)
        pump()
    }

    func send(_ kind: LinkFrame.Kind, _ body: [UInt8] = [], lease: LinkFrame.Lease = .unstated) {
        let block = peerConnections.spares.take()
        let start = block.beginFrame(kind, lease: lease)
        block.put(body)
        block.endFrame(start)
        send(block)
    }

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

    /// Drops written blocks from the queue, because `pump` empties the queue only when it has written every block.
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
            close(.unavailable, "the peer sent nothing for \(now - lastHeardAt) ms")
            self.stream?.close(.timedOut)
        } else if firstQueued == queue.count,
            now >= lastHeartbeatAt + peerConnections.settings.times.heartbeatMilliseconds
        {
            lastHeartbeatAt = now
            send(.heartbeat, lease: peerConnections.ports.lease)
        }
    }

    override func timedOut(_ stream: ByteStream) {
        close(.unavailable, "the peer did not identify itself in time")
    }

    var isLively: Bool { peerConnections.loop.now < lastHeardAt + peerConnections.settings.times.silenceMilliseconds }

    // MARK: End

    func close(_ code: LinkClose.Code, _ reason: String) {
        guard closing == nil, let stream else { return }
        let close = LinkClose(code: code, reason: reason)
        closing = close
        let block = peerConnections.spares.take()
        let start = block.beginFrame(.close)
        block.put(close.bytes)
        block.endFrame(start)
        // After a partial frame, the peer would read the Close as part of that frame.
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
