internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// A connection on the device listener from its acceptance to its Welcome; `DeviceSessions` serves it afterwards.
///
/// The accepting loop makes all checks that need no device record. The connection then moves to the device's loop, which checks
/// the proof against the stored secret.
final class DeviceHandshake: StreamDelegate, Handshaking {
    private enum Phase {
        /// Only a Hello is accepted, within the timeout.
        case awaitingHello
        /// The shard has the Hello; further frames stay unread until the Welcome.
        case awaitingWelcome
        /// A Close was sent, or the session is open; no input is processed.
        case closed
    }

    // SAFETY: the host outlives this object, because its loop closes all streams and servers before the host is released.
    private unowned(unsafe) let owner: EventLoopHost
    /// The device's partition, while the session belongs to this handshake.
    private var partition: Partition?
    private var stream: ByteStream?
    private var session = SessionRef.none
    private(set) var cid = DeviceID(high: 0, low: 0)
    /// The cid that the client claims, before any proof; none for a registration.
    private var namedCID = DeviceID(high: 0, low: 0)
    private var phase = Phase.awaitingHello
    private let isSecure: Bool
    /// The app whose device quota is checked again before the Welcome; `nil` if no quota applies.
    private(set) var countedApp: AppKey?
    var handshakePlace = HandshakeQueue.none
    /// Whether the shard must be notified of the session's end.
    private var isKnownToShard = false
    /// Whether the gateway itself refuses the device after the shard has received the Hello.
    private var isRefused = false
    /// Whether the Hello timeout was restarted because the loop was too busy to read the Hello.
    private var hasWaitedLonger = false
    /// The state of the app's lookup; the Hello stays in the stream until the lookup ends.
    private var appQuestion = AppQuestion.none
    /// The number of empty WebSocket frames received before the Hello.
    private var emptyFrameCount = 0

    private init(owner: EventLoopHost, isSecure: Bool) {
        (self.owner, self.isSecure) = (owner, isSecure)
    }

    static func accept(_ connection: DetachedConnection, tls: TLSContext?, on owner: EventLoopHost) {
        owner.metrics.count(.deviceAccepted)
        owner.welcomes.arrive(connection, tls: tls)
    }

    static func begin(_ connection: DetachedConnection, tls: TLSContext?, on owner: EventLoopHost) {
        let device = DeviceHandshake(owner: owner, isSecure: tls != nil)
        device.stream = ByteStream(
            attaching: connection, on: owner.loop, delegate: device, outboxByteLimit: owner.limits.outboxBytes,
            tls: tls, isNewcomer: true)
        owner.beginHandshake(device, from: connection.peer)
    }

    /// Takes a connection whose Hello was read on another loop.
    static func adopt(_ adopted: AdoptedConnection, on owner: EventLoopHost) {
        owner.welcomes.charge { take(adopted, on: owner) }
    }

    private static func take(_ adopted: AdoptedConnection, on owner: EventLoopHost) {
        if adopted.isRelayed {
            owner.metrics.count(.deviceAccepted)
            if let window = owner.welcomes.windowForRelayed() {
                return owner.turnAway(adopted.connection, isSecure: false, .storm(window))
            }
            guard owner.admitRelayed() else { return owner.turnAway(adopted.connection, isSecure: true) }
        }
        let device = DeviceHandshake(owner: owner, isSecure: adopted.isSecure)
        device.phase = .awaitingWelcome
        device.stream = ByteStream(
            attaching: adopted.connection, on: owner.loop, delegate: device,
            outboxByteLimit: owner.limits.outboxBytes)
        device.enter(adopted.hello, isOfOther: adopted.isRelayed)
    }

    /// Upgrades a connection of the console to a WebSocket.
    ///
    /// - Returns: The status of the HTTP response.
    static func accept(upgrading exchange: HTTPExchange, on owner: EventLoopHost) -> Int {
        let peer = exchange.peer
        owner.metrics.count(.deviceAccepted)
        guard owner.admit(.device, from: peer) else {
            owner.metrics.count(.closed(.overloaded))
            return exchange.upgrade { _ in .refuse(status: 503, Refusal.noRoom.reason) }.status
        }
        let (status, upgraded) = exchange.upgrade { request in
            request.isSameOrigin ? .accept : .refuse(status: 403, "only the console's own page may be a device here")
        }
        guard let upgraded else {
            owner.context.connections.handshakes.leave()
            owner.metrics.count(.closedByPeer)
            owner.endConnection(.device)
            return status
        }
        let device = DeviceHandshake(owner: owner, isSecure: upgraded.isTLS)
        let stream = ByteStream(
            attaching: upgraded, on: owner.loop, delegate: device, outboxByteLimit: owner.limits.outboxBytes)
        stream.beginWebSocket()
        device.stream = stream
        owner.beginHandshake(device, from: peer)
        return status
    }

    // MARK: Input

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        owner.welcomes.charge { take(bytes, on: stream) }
    }

    private func take(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        var offset = 0
        // Unconsumed bytes are passed again with the next input.
        defer { owner.metrics.count(.bytesReceived, offset) }
        while offset < bytes.count {
            // Input after a Close of either side is discarded.
            guard phase != .closed else { return bytes.count }
            // Frames after the Hello wait until the Welcome is sent.
            guard phase != .awaitingWelcome else {
                stream.pauseReading()
                return offset
            }
            // A WebSocket request begins with "G", which is no frame type.
            if offset == 0, bytes[0] == UInt8(ascii: "G"), !stream.isWebSocket, owner.snapshot.webSockets.isEnabled {
                offset = becomeWebSocket(bytes, stream)
                return offset
            }
            let type: FrameType
            let body: UnsafeRawBufferPointer
            switch FrameCut(
                bytes, from: offset, bodyLimit: owner.frameByteLimit, mustBeHello: true)
            {
            case .incomplete: return offset
            case .refused(let code, let reason):
                close(Refusal(code, reason))
                return bytes.count
            case .frame(let itsType, let itsBody, let byteCount):
                (type, body) = (itsType, itsBody)
                offset += byteCount
            }
            guard type == .hello else {
                close(Refusal(.unexpectedFrame, "a device does not send this type of frame"))
                return bytes.count
            }
            hello(body, after: UnsafeRawBufferPointer(rebasing: bytes[offset...]))
            // The Hello is read again when the lookup of its app has ended.
            guard appQuestion != .asked else {
                offset -= FrameHeader.byteCount + body.count
                return offset
            }
            // The connection was moved together with the unread bytes.
            if self.stream == nil { return bytes.count }
        }
        return offset
    }

    /// Answers a WebSocket request once it is complete; returns the number of consumed bytes.
    private func becomeWebSocket(_ bytes: UnsafeRawBufferPointer, _ stream: ByteStream) -> Int {
        switch owner.answer(toUpgrade: bytes) {
        case .incomplete: return 0
        case .accepted(let text):
            guard text.withUnsafeBytes({ stream.writeRaw($0) }) else { return bytes.count }
            stream.beginWebSocket()
            stepEnded()
        case .refused(_, let text):
            _ = text.withUnsafeBytes { stream.writeRaw($0) }
            owner.note(Refusal(.unexpectedFrame, "a request for a WebSocket was refused"))
            finish(.unexpectedFrame)
        }
        return bytes.count
    }

    override func handshakeFinished(_ stream: ByteStream) { stepEnded() }

    /// Restarts the timeout after the TLS handshake or the WebSocket request, so that the Hello gets the full time.
    private func stepEnded() {
        guard phase == .awaitingHello else { return }
        hasWaitedLonger = false
        owner.renewHandshake(self)
    }

    override func receivedEmpty(_ frameCount: Int, on stream: ByteStream) {
        emptyFrameCount += frameCount
        guard emptyFrameCount > Self.emptyFrameLimit else { return }
        close(Refusal(.floods, "far more frames than any client has use for"))
    }

    /// The most empty frames before the Hello; a client that measures its connection sends a few.
    private static let emptyFrameLimit = 64

    // MARK: Handshake

    private func hello(_ body: UnsafeRawBufferPointer, after rest: UnsafeRawBufferPointer) {
        do throws(Refusal) {
            let isPrivate = isSecure || stream?.peer?.isLoopback == true
            guard let adopted = try owner.judge(body, isPrivate: isPrivate, appQuestion, named: &namedCID) else {
                return askForApp()
            }
            let target = adopted.bucket.loop(of: owner.partitionCount)
            let isHere = owner.servingPartition(target) != nil
            var other = isHere ? nil : owner.context.cluster
            if let cluster = other, cluster.owner(of: target) == cluster.node { other = nil }
            // Only the gateway that owns the device checks the proof for replay.
            if other == nil { try owner.takeOnce(adopted) }
            owner.endHandshake(self)
            phase = .awaitingWelcome
            stream?.isNewcomer = false
            if isHere { return enter(adopted) }
            if let other { return leave(adopted, for: other.owner(of: target), of: other, after: rest) }
            guard let connection = stream?.detach(unconsumed: rest) else { throw .unmovable }
            stream = nil
            owner.move(AdoptedConnection(connection: connection, isSecure: isSecure, hello: adopted), to: target)
        } catch {
            close(error)
        }
    }

    /// Asks for an app that is unknown here, because another gateway may have just created it.
    private func askForApp() {
        appQuestion = .asked
        stream?.pauseReading()
        owner.appInquiry.confirm { [self] isConfirmed in
            appQuestion = isConfirmed ? .confirmed : .unanswered
            stream?.resumeReading()
        }
    }

    /// Relays the connection to the gateway that owns the device, or closes it with that gateway's address.
    private func leave(
        _ adopted: AdoptedHello, for node: Int, of cluster: ClusterContext, after rest: UnsafeRawBufferPointer
    ) {
        guard node != 0 else { return close(Refusal(.moved, "no gateway serves this device now; reconnect")) }
        if let address = cluster.deviceAddress(of: node, isSecure: isSecure), adopted.newSecret == nil,
            cluster.maySendAway(adopted.cid, now: owner.loop.now)
        {
            return close(Refusal(.moved, "this gateway serves the device", alternate: address))
        }
        guard let connection = stream?.detach(unconsumed: rest) else { return close(.unmovable) }
        stream = nil
        let owner = owner
        owner.metrics.count(.devicesRelayed)
        cluster.links.relay(connection, hello: adopted, isSecure: isSecure, to: node, on: owner.loop) {
            owner.endConnection(.device)
        }
    }

    /// Creates the session and passes the Hello to the shard, on the host of the device's partition.
    ///
    /// `isOfOther` means that another gateway has read the Hello and did not check its proof for replay.
    private func enter(_ adopted: AdoptedHello, isOfOther: Bool = false) {
        do throws(Refusal) {
            if isOfOther { try owner.takeOnce(adopted) }
            cid = adopted.cid
            if adopted.newSecret == nil { namedCID = cid }
            let (partition, counted) = try owner.admission(of: adopted)
            countedApp = counted
            guard let admitted = partition.sessions.admit(self) else { throw .noRoom }
            (session, self.partition) = (admitted, partition)
            isKnownToShard = true
            partition.hello(adopted.command(session: session))
        } catch {
            close(error)
        }
    }

    /// Refuses a device that has not received its Welcome.
    func withdraw(_ refusal: Refusal) {
        guard phase == .awaitingWelcome else { return }
        isRefused = true
        close(refusal)
    }

    /// Keeps a half-closed connection open, because the device may still read its Welcome and messages.
    override func peerEnded(_ stream: ByteStream) -> Bool {
        guard phase == .awaitingWelcome else { return false }
        stream.setTimeout(afterMilliseconds: EventLoopHost.halfClosedMilliseconds)
        return true
    }

    func handshakeTimedOut() {
        guard phase == .awaitingHello else { return }
        if let stream, stream.waitsToBeRead {
            guard hasWaitedLonger else {
                // The Hello has arrived, but the loop has not read it yet.
                hasWaitedLonger = true
                return owner.beginHandshake(self, from: stream.peer)
            }
            return close(.storm())
        }
        close(Refusal(.helloTimeout, "no Hello came in time"))
    }

    func handshakeDisplaced() {
        guard phase == .awaitingHello else { return }
        close(.noRoom)
    }

    var kind: ConnectionKind { .device }
    var isShakingHands: Bool { phase == .awaitingHello && stream != nil }

    /// Returns the stream for the opened session, or `nil` if the stream is closed; in that case `closed` follows.
    func handOver() -> ByteStream? {
        guard phase == .awaitingWelcome, let stream, stream.isOpen else { return nil }
        stream.clearTimeout()
        phase = .closed
        (isKnownToShard, session, partition) = (false, .none, nil)
        return stream
    }

    // MARK: End

    /// Sends a Close frame and closes the connection; `isForgotten` means that the shard requested the close and needs no
    /// notification.
    func close(_ refusal: Refusal, isForgotten: Bool = false) {
        guard phase != .closed else { return }
        if isForgotten { isKnownToShard = false }
        if let stream { owner.write(refusal, to: stream, beforeWelcome: true) } else { owner.note(refusal) }
        if !namedCID.isNone {
            let refused = DeviceStatus.RefusedHello(
                time: owner.now, code: refusal.code.rawValue, reason: "\(refusal.reason)")
            owner.context.peers.refusedHellos.withLock { $0.note(namedCID, refused) }
        }
        finish(refusal.code)
    }

    private func finish(_ code: CloseCode) {
        let wasShakingHands = phase == .awaitingHello
        phase = .closed
        owner.metrics.count(.closed(code))
        if wasShakingHands { owner.endHandshake(self) }
        leave()
        owner.endConnection(.device)
        // A stream that only waits for the peer's close is not limited as a newcomer, unless its TLS handshake is unfinished.
        if let stream, !stream.isInHandshake { stream.isNewcomer = false }
        stream?.closeAfterFlush(code: WebSocketCode(code))
    }

    /// Frees the session's slot and notifies the shard, once.
    private func leave() {
        guard session != .none, let partition else { return }
        partition.sessions.remove(session)
        if isKnownToShard {
            if isRefused {
                partition.sessionRefused(session)
            } else {
                partition.sessionEnded(session, announced: false)
            }
        }
        (isKnownToShard, session, self.partition) = (false, .none, nil)
    }

    override func outboxFilled(_ stream: ByteStream) {
        guard phase != .closed else { return stream.close(.outboxFull) }
        // The outbox has no room for a Close frame, and a client that does not read would not see it.
        let wasShakingHands = phase == .awaitingHello
        phase = .closed
        owner.metrics.count(.closedForSlowReader)
        if wasShakingHands { owner.endHandshake(self) }
        leave()
        owner.endConnection(.device)
        stream.close(.outboxFull)
    }

    override func closed(_ stream: ByteStream, _ reason: CloseReason) {
        self.stream = nil
        guard phase != .closed else { return }
        let wasShakingHands = phase == .awaitingHello
        phase = .closed
        owner.metrics.count(.closedByPeer)
        if wasShakingHands { owner.endHandshake(self) }
        leave()
        owner.endConnection(.device)
    }
}

extension WebSocketCode {
    /// The WebSocket close code of a Close frame, in the range that RFC 6455 reserves for private use.
    init(_ code: CloseCode) { self.init(rawValue: UInt16(4_000 + code.rawValue)) }
}
