internal import EventLoops
internal import Wire

/// One device on a trunk, at either end of it.
///
/// At the gateway that the device came to, the stream is the device's connection. At its owner the stream is one half of a
/// socket pair, and the owner has the other half as the device's connection. Each end may send a window of bytes, and then as
/// much again as the other end's stream has passed on. So a device that reads late stops itself alone, and what a trunk
/// brings always finds room. Confined to the trunk's loop.
final class Relay: StreamDelegate {
    let number: UInt64
    /// The device's part, at the gateway that it came to.
    let part: Int?
    /// The owner took the device.
    private(set) var isOpen: Bool
    /// It is on the trunk's list of those that wait until that takes bytes.
    var isWaiting = false
    /// What a device is told whose owner cannot be reached; empty at the owner.
    private let farewell: [UInt8]
    private var ended: (() -> Void)?
    /// `nil`: nothing of the device goes over a trunk any more.
    private var trunk: RelayTrunk?
    private var stream: ByteStream?
    private var openedAt: UInt64 = 0
    /// When the device last sent something.
    private var sentAt: UInt64 = 0
    /// The device has closed its half: when this end leaves at the latest.
    private var endsAt: UInt64?
    /// Bytes that the other end still takes.
    private var sendable: Int
    /// Bytes that the other end may still send.
    private var receivable = LinkLimits.relayWindowByteCount
    /// Bytes from the other end since it got its last credit.
    private var owed = 0

    /// At the gateway that the device came to.
    init(_ number: UInt64, part: Int, on trunk: RelayTrunk?, farewell: [UInt8], ended: @escaping () -> Void) {
        (self.number, self.part, self.trunk, self.farewell, self.ended) = (number, part, trunk, farewell, ended)
        (isOpen, sendable) = (false, 0)
    }

    /// At the device's owner.
    init(_ number: UInt64, on trunk: RelayTrunk, ended: @escaping () -> Void) {
        (self.number, part, self.trunk, farewell, self.ended) = (number, nil, trunk, [], ended)
        (isOpen, sendable) = (true, LinkLimits.relayWindowByteCount)
    }

    func attach(_ connection: DetachedConnection, on loop: EventLoop) {
        openedAt = loop.now
        stream = ByteStream(
            attaching: connection, on: loop, delegate: self, outboxByteLimit: LinkLimits.relayOutboxByteCount)
    }

    func setTimeout(afterMilliseconds milliseconds: UInt64) { stream?.setTimeout(afterMilliseconds: milliseconds) }

    // MARK: The stream

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        guard let trunk else { return bytes.count }
        sentAt = stream.loop.now
        var taken = 0
        while taken < bytes.count {
            let count = min(bytes.count - taken, sendable, LinkLimits.relayPieceByteCount)
            guard count > 0 else {
                stream.pauseReading()
                break
            }
            guard trunk.carry(UnsafeRawBufferPointer(rebasing: bytes[taken..<taken + count]), of: self) else {
                stream.pauseReading()
                trunk.wait(self)
                break
            }
            sendable -= count
            taken += count
        }
        return taken
    }

    override func outboxFilled(_ stream: ByteStream) {}

    override func outboxDrained(_ stream: ByteStream) {
        guard owed >= LinkLimits.relayWindowByteCount / 2, let trunk else { return }
        trunk.credit(owed, to: self)
        receivable += owed
        owed = 0
    }

    /// Passes the owner's answers on to a device that has closed its half right behind its frames, until the owner is silent.
    override func peerEnded(_ stream: ByteStream) -> Bool {
        let now = stream.loop.now
        guard part != nil, trunk != nil, endsAt != nil || !isOpen || sentAt + Self.silenceMilliseconds > now else {
            return false
        }
        endsAt = endsAt ?? now + EventLoopHost.halfClosedMilliseconds
        if isOpen { awaitSilence(stream) }
        return true
    }

    private func awaitSilence(_ stream: ByteStream) {
        guard let endsAt else { return }
        let left = endsAt > stream.loop.now ? endsAt - stream.loop.now : 0
        stream.setTimeout(afterMilliseconds: min(left, Self.silenceMilliseconds))
    }

    private static let silenceMilliseconds: UInt64 = 2_000

    override func timedOut(_ stream: ByteStream) {
        guard let trunk, !isOpen else { return stream.close(.timedOut) }
        trunk.leave(self)
        trunk.closeIfSilent(since: openedAt)
        end()
    }

    override func closed(_ stream: ByteStream, _ reason: CloseReason) {
        self.stream = nil
        trunk?.leave(self)
        trunk = nil
        ended?()
        ended = nil
    }

    // MARK: The trunk

    /// The owner has the device's connection.
    func opened() {
        (isOpen, sendable) = (true, LinkLimits.relayWindowByteCount)
        stream?.clearTimeout()
        if let stream { awaitSilence(stream) }
        resume()
    }

    /// Takes what the other end sent; false when it is more than it may send.
    func take(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard isOpen, bytes.count <= receivable else { return false }
        receivable -= bytes.count
        owed += bytes.count
        // A stream that is closing takes nothing; a window finds room in all others.
        guard let stream, stream.write(bytes) else { return true }
        if endsAt != nil { awaitSilence(stream) }
        if owed >= LinkLimits.relayWindowByteCount / 2 { stream.notifyWhenDrained() }
        return true
    }

    /// Takes a credit; false when it is more than the other end owes.
    func credited(_ count: Int) -> Bool {
        guard isOpen, count <= LinkLimits.relayWindowByteCount - sendable else { return false }
        sendable += count
        resume()
        return true
    }

    func resume() { stream?.resumeReading() }

    /// Nothing more comes from the other end: the stream ends behind what has come.
    ///
    /// A device that the owner never took is told to come back.
    func end() {
        trunk = nil
        if !isOpen, !farewell.isEmpty { _ = farewell.withUnsafeBytes { stream?.write($0) } }
        stream?.closeAfterFlush()
    }
}
