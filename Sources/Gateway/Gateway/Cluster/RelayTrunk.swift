internal import Cryptography
internal import EventLoops
internal import Platform
internal import Wire

/// A connection between two gateways that relays many devices from the accepting gateway to their owner.
///
/// All devices of a loop with the same owner share one TLS handshake. With a connection per device, handshakes dominated a
/// takeover. After the first frame, each frame's body begins with the device's number, which the connecting side assigns. Reading
/// never stops, because each device's bytes have room (`Relay`). Confined to a loop.
final class RelayTrunk: StreamDelegate {
    /// The owner's callbacks for relayed devices.
    struct Arrival: Sendable {
        let node: @Sendable () -> Int
        /// The number of open inner ends of the relays' socket pairs.
        let ends: SharedCount
        let take: @Sendable (DetachedConnection, RelayPreamble) -> Void
        let fault: @Sendable (String) -> Void
    }

    private let loop: EventLoop
    private let openingLimit: Int
    private let arrival: Arrival?
    private let ended: () -> Void
    private let reader = LinkFrameReader()
    private var stream: ByteStream?
    private var relays: [UInt64: Relay] = [:]
    private var waiting: [Relay] = []
    private var last: UInt64 = 0
    private var openingCount = 0
    private var isUp = false
    private var lastHeardAt: UInt64

    private init(on loop: EventLoop, openingLimit: Int, arrival: Arrival?, ended: @escaping () -> Void) {
        (self.loop, self.openingLimit, self.arrival, self.ended) = (loop, openingLimit, arrival, ended)
        lastHeardAt = loop.now
    }

    /// Connects to the owner of devices; `ended` is called once, on the loop.
    convenience init(
        connectingTo address: RemoteAddress, _ hello: LinkHello, _ settings: LinkSettings, on loop: EventLoop,
        ended: @escaping () -> Void
    ) throws(SystemError) {
        let connection = try DetachedConnection(connectingTo: address)
        self.init(on: loop, openingLimit: settings.openingRelayCount, arrival: nil, ended: ended)
        stream = ByteStream(
            attaching: connection, on: loop, delegate: self, outboxByteLimit: LinkLimits.trunkOutboxByteCount,
            tls: settings.tls, serverName: PeerConnections.serverName)
        stream?.isLink()
        let block = LinkBlock()
        let start = block.beginFrame(.trunk)
        block.put(hello.bytes)
        block.endFrame(start)
        // The frame stays in the outbox until the TLS handshake is finished.
        _ = block.withBytes { stream?.write($0) }
    }

    /// Accepts a trunk whose first frame has been read.
    convenience init(accepting connection: DetachedConnection, on loop: EventLoop, _ arrival: Arrival) {
        self.init(on: loop, openingLimit: 0, arrival: arrival, ended: {})
        isUp = true
        stream = ByteStream(
            attaching: connection, on: loop, delegate: self, outboxByteLimit: LinkLimits.trunkOutboxByteCount)
        stream?.isLink()
        awaitDevices()
    }

    // MARK: Devices from here

    func open(
        _ connection: DetachedConnection, _ preamble: RelayPreamble, part: Int, farewell: [UInt8],
        timeoutMilliseconds: UInt64, ended: @escaping () -> Void
    ) {
        last += 1
        let relay = Relay(last, part: part, on: self, farewell: farewell, ended: ended)
        relay.attach(connection, on: loop)
        guard openingCount < openingLimit, let body = try? preamble.encoded(),
            body.count <= LinkLimits.firstFrameByteCount - Self.numberByteCount,
            hasRoom(below: LinkLimits.trunkOpeningByteCount),
            body.withUnsafeBytes({ write(.relay, relay.number, $0) })
        else { return relay.end() }
        relays[relay.number] = relay
        openingCount += 1
        relay.setTimeout(afterMilliseconds: timeoutMilliseconds)
        if isUp { stream?.clearTimeout() }
    }

    /// Ends the relays of a partition; the devices reconnect and find its new owner.
    func close(part: Int) {
        for relay in relays.values where relay.part == part {
            leave(relay)
            relay.end()
        }
    }

    /// Ends up to `count` relays of any partition; the devices reconnect, possibly to another gateway.
    ///
    /// The devices get no Close frame, because it could land inside a partly relayed frame of the owner.
    func end(_ count: Int) -> Int {
        let chosen = relays.values.prefix(count)
        for relay in chosen {
            leave(relay)
            relay.end()
        }
        return chosen.count
    }

    func close() { stream?.close() }

    /// Closes the trunk if the peer has sent nothing since an unanswered device was opened.
    func closeIfSilent(since time: UInt64) {
        if lastHeardAt <= time { stream?.close(.timedOut) }
    }

    // MARK: Calls of relays

    /// Sends a device's bytes; returns false if the trunk has no room.
    func carry(_ bytes: UnsafeRawBufferPointer, of relay: Relay) -> Bool {
        hasRoom(below: LinkLimits.trunkBytesByteCount) && write(.relayBytes, relay.number, bytes)
    }

    /// Resumes the relay's reading when the trunk has room again.
    func wait(_ relay: Relay) {
        guard !relay.isWaiting else { return }
        relay.isWaiting = true
        waiting.append(relay)
        stream?.notifyWhenDrained()
    }

    func credit(_ count: Int, to relay: Relay) {
        withUnsafeBytes(of: UInt32(count).littleEndian) { mustWrite(.relayCredit, relay.number, $0) }
    }

    /// Reports the end of a relay to the other end, after the device's bytes.
    func leave(_ relay: Relay) {
        guard forget(relay) else { return }
        mustWrite(.relayEnd, relay.number)
    }

    private func forget(_ relay: Relay) -> Bool {
        guard relays.removeValue(forKey: relay.number) != nil else { return false }
        if !relay.isOpen { openingCount -= 1 }
        if relays.isEmpty { awaitDevices() }
        return true
    }

    private func awaitDevices() {
        if isUp { stream?.setTimeout(afterMilliseconds: LinkLimits.idleTrunkMilliseconds) }
    }

    // MARK: Output

    private static let numberByteCount = MemoryLayout<UInt64>.size

    private func hasRoom(below count: Int) -> Bool { stream.map { $0.outboxByteCount < count } ?? false }

    private func write(
        _ kind: LinkFrame.Kind, _ number: UInt64, _ body: UnsafeRawBufferPointer = .init(start: nil, count: 0)
    ) -> Bool {
        let headByteCount = LinkFrame.headerByteCount + Self.numberByteCount
        return stream?.write(byteCount: headByteCount + body.count) { room in
            room.storeBytes(of: UInt32(Self.numberByteCount + body.count).littleEndian, as: UInt32.self)
            room.storeBytes(of: UInt32(kind.rawValue).littleEndian, toByteOffset: 4, as: UInt32.self)
            room.storeBytes(of: number.littleEndian, toByteOffset: LinkFrame.headerByteCount, as: UInt64.self)
            UnsafeMutableRawBufferPointer(rebasing: room[headByteCount...]).copyMemory(from: body)
        } ?? false
    }

    /// Writes a short frame that must not be lost; without room for it the trunk closes, and its devices reconnect.
    private func mustWrite(
        _ kind: LinkFrame.Kind, _ number: UInt64, _ body: UnsafeRawBufferPointer = .init(start: nil, count: 0)
    ) {
        if !write(kind, number, body) { stream?.close(.outboxFull) }
    }

    override func outboxFilled(_ stream: ByteStream) {}

    override func outboxDrained(_ stream: ByteStream) {
        var resumed: [Relay] = []
        swap(&resumed, &waiting)
        for relay in resumed {
            relay.isWaiting = false
            relay.resume()
        }
    }

    // MARK: Input

    override func handshakeFinished(_ stream: ByteStream) {
        isUp = true
        if relays.isEmpty { awaitDevices() }
    }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        lastHeardAt = loop.now
        do throws(LinkFault) {
            _ = try reader.read(bytes) { (frame) throws(LinkFault) in
                try self.take(frame)
                return true
            }
        } catch {
            arrival?.fault("a trunk's bytes are no frames of it: \(error)")
            stream.close()
        }
        return bytes.count
    }

    private func take(_ frame: LinkFrame) throws(LinkFault) {
        guard stream?.isOpen ?? false else { return }
        // The owner rejected the trunk.
        if frame.kind == .close {
            stream?.close(.endOfStream)
            return
        }
        var cursor = LinkCursor(frame.body)
        guard let number: UInt64 = cursor.next() else { throw .malformed("a number is missing") }
        if frame.kind == .relay, arrival != nil { return try arrived(number, cursor.rest) }
        switch frame.kind {
        case .relayed, .relayBytes, .relayCredit, .relayEnd: break
        default: throw .malformed("a frame of kind \(frame.kind) does not belong here")
        }
        // Frames in flight when this side ended the device are ignored.
        guard let relay = relays[number] else { return }
        switch frame.kind {
        case .relayed:
            guard arrival == nil, !relay.isOpen else { throw .malformed("a device is taken twice") }
            openingCount -= 1
            relay.opened()
        case .relayBytes:
            guard relay.take(cursor.rest) else { throw .malformed("more bytes than a device's window") }
        case .relayCredit:
            guard let count: UInt32 = cursor.next(), relay.credited(Int(count)) else {
                throw .malformed("a credit for bytes that were not sent")
            }
        default:
            _ = forget(relay)
            relay.end()
        }
    }

    private func arrived(_ number: UInt64, _ body: UnsafeRawBufferPointer) throws(LinkFault) {
        guard let arrival, number > last else { throw .malformed("a device's number comes again") }
        guard let preamble = try? RelayPreamble(body) else { throw .malformed("the preamble cannot be read") }
        last = number
        // Either the peer wants an earlier process at this address, or this process has no free descriptors.
        guard preamble.hello.wanted == arrival.node(), let (here, there) = try? DetachedConnection.pair() else {
            return mustWrite(.relayEnd, number)
        }
        _ = arrival.ends.enter(limit: .max)
        let relay = Relay(number, on: self) { arrival.ends.leave() }
        relay.attach(here, on: loop)
        relays[number] = relay
        stream?.clearTimeout()
        mustWrite(.relayed, number)
        arrival.take(there, preamble)
    }

    // MARK: End

    override func timedOut(_ stream: ByteStream) {
        if relays.isEmpty { stream.close(.timedOut) }
    }

    override func closed(_ stream: ByteStream, _ reason: CloseReason) {
        self.stream = nil
        var relays: [UInt64: Relay] = [:]
        swap(&relays, &self.relays)
        (waiting, openingCount) = ([], 0)
        ended()
        for relay in relays.values { relay.end() }
    }
}

/// The trunks from this gateway's loops to other gateways.
final class RelayTable: Sendable {
    private struct Key: Hashable {
        let loop: ObjectIdentifier
        let node: Int
    }

    private struct Entry: Sendable {
        let loop: EventLoop
        let trunk: LoopBound<RelayTrunk>
    }

    private let entries = Lock<[Key: Entry]>([:])

    /// Returns the loop's trunk to a node, connecting with `make` if needed; must be called on the loop.
    func trunk(
        to node: Int, on loop: EventLoop, make: (_ ended: @escaping () -> Void) -> RelayTrunk?
    ) -> RelayTrunk? {
        let key = Key(loop: ObjectIdentifier(loop), node: node)
        if let entry = entries.withLock({ $0[key] }) { return entry.trunk.wrapped }
        guard let trunk = make({ [self] in entries.withLock { $0[key] = nil } }) else { return nil }
        let entry = Entry(loop: loop, trunk: LoopBound(trunk, on: loop))
        entries.withLock { $0[key] = entry }
        return trunk
    }

    /// Ends up to `count` relays of a loop; must be called on the loop.
    func end(_ count: Int, on loop: EventLoop) -> Int {
        var left = count
        for (key, entry) in entries.withLock({ $0 }) where key.loop == ObjectIdentifier(loop) && left > 0 {
            left -= entry.trunk.wrapped.end(left)
        }
        return count - left
    }

    /// Ends the relays to a node, or only those of one partition; the devices reconnect and find the new owner.
    func close(_ node: Int, part: Int? = nil) {
        let entries = entries.withLock { $0.filter { $0.key.node == node } }
        for entry in entries.values {
            entry.loop.submit {
                let trunk = entry.trunk.wrapped
                if let part { trunk.close(part: part) } else { trunk.close() }
            }
        }
    }
}
