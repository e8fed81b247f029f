internal import EventLoops
internal import Wire

/// One device on a trunk, at either end.
///
/// At the gateway that accepted the device, the stream is the device's connection. At the owner, the stream is one half of a
/// socket pair; the other half acts as the device's connection.
///
/// Flow control is per device: each end may send a window of bytes, plus the bytes that the other end's stream has passed on. A
/// slow device therefore blocks only itself, and received bytes always find room. Confined to the trunk's loop.
final class Relay: StreamDelegate {
    let number: UInt64
    /// The device's partition; `nil` at the owner.
    let part: Int?
    /// Whether the owner has accepted the device.
    private(set) var isOpen: Bool
    /// Whether the relay is in the trunk's list of relays that wait for room.
    var isWaiting = false
    /// The Close frame for a device whose owner is unreachable; empty at the owner.
    private let farewell: [UInt8]
    private var ended: (() -> Void)?
    /// The trunk; `nil` after the relay has ended.
    private var trunk: RelayTrunk?
    private var stream: ByteStream?
    private var openedAt: UInt64 = 0
    private var sentAt: UInt64 = 0
    /// The deadline for closing the relay after the device has closed its sending half; `nil` before.
    private var endsAt: UInt64?
    /// The bytes that may still be sent to the other end.
    private var sendable: Int
    /// The bytes that the other end may still send.
    private var receivable = LinkLimits.relayWindowByteCount
    /// The bytes received since the last credit was sent.
    private var owed = 0

    /// Creates the relay at the gateway that accepted the device.
    init(_ number: UInt64, part: Int, on trunk: RelayTrunk?, farewell: [UInt8], ended: @escaping () -> Void) {
        (self.number, self.part, self.trunk, self.farewell, self.ended) = (number, part, trunk, farewell, ended)
        (isOpen, sendable) = (false, 0)
    }

    /// Creates the relay at the device's owner.
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

    /// Keeps passing the owner's answers on to a device that closed its sending half, until the owner is silent.
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

    func opened() {
        (isOpen, sendable) = (true, LinkLimits.relayWindowByteCount)
        stream?.clearTimeout()
        if let stream { awaitSilence(stream) }
        resume()
    }

    /// Takes bytes from the other end; returns false if they exceed the window.
    func take(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard isOpen, bytes.count <= receivable else { return false }
        receivable -= bytes.count
        owed += bytes.count
        // A closing stream takes no bytes; otherwise a window always fits.
        guard let stream, stream.write(bytes) else { return true }
        if endsAt != nil { awaitSilence(stream) }
        if owed >= LinkLimits.relayWindowByteCount / 2 { stream.notifyWhenDrained() }
        return true
    }

    /// Takes a credit; returns false if the credit exceeds the bytes in flight.
    func credited(_ count: Int) -> Bool {
        guard isOpen, count <= LinkLimits.relayWindowByteCount - sendable else { return false }
        sendable += count
        resume()
        return true
    }

    func resume() { stream?.resumeReading() }

    /// Ends the stream after the received bytes are written.
    ///
    /// A device that the owner has not accepted receives a Close with a retry window.
    func end() {
        trunk = nil
        if !isOpen, !farewell.isEmpty { _ = farewell.withUnsafeBytes { stream?.write($0) } }
        stream?.closeAfterFlush()
    }
}
