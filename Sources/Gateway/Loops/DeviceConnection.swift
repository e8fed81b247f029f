internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// One connection on the device listener: first a handshake, then a session.
///
/// Everything that can be decided without the device's record is decided here, on whichever loop accepted it; then the
/// connection moves to the device's loop, which checks the proof against the stored secret.
final class DeviceConnection: StreamDelegate, Handshaking {
    private enum Phase {
        /// Nothing but a Hello may come, and soon.
        case awaitingHello
        /// The shard has the Hello; the device may not speak before the Welcome.
        case awaitingWelcome
        case open
        /// Close was sent, or the peer said it; nothing is read any more.
        case closed
    }

    // The loop outlives whatever lives on it: it ends its streams and servers before it goes.
    private unowned(unsafe) let owner: GatewayLoop
    private var stream: ByteStream?
    private var session = SessionRef.none
    private var phase = Phase.awaitingHello
    private let isSecure: Bool
    var handshakePlace = HandshakeQueue.none
    /// Pings, updates and feedback since a moment (monotonic ms): each costs an answer, a write or a read of the store.
    private var requestCount: UInt16 = 0
    private var feedbackCount: UInt16 = 0
    private var requestsSince: UInt64 = 0
    /// A client that pings every second and tells each change of state makes some twenty in this time.
    private static let requestLimit: UInt16 = 1_000
    private static let requestMilliseconds: UInt64 = 10_000
    /// A client that tells of every message that it showed has as much to say as it may be sent.
    private static let feedbackLimit: UInt16 = 10_000
    /// The shard knows the session and must hear of its end.
    private var isKnownToShard = false
    /// The peer's end is not of our making and was announced by a Close of its own.
    private var isAnnounced = false

    private init(owner: GatewayLoop, isSecure: Bool) {
        (self.owner, self.isSecure) = (owner, isSecure)
    }

    /// Takes a fresh connection from a listener.
    static func accept(_ connection: DetachedConnection, tls: TLSContext?, on owner: GatewayLoop) {
        let device = DeviceConnection(owner: owner, isSecure: tls != nil)
        owner.metrics.count(.deviceAccepted)
        device.stream = ByteStream(
            attaching: connection, on: owner.loop, delegate: device, outboxByteLimit: owner.limits.outboxBytes,
            tls: tls)
        guard owner.beginHandshake(device) else {
            return device.close(.overloaded, reason: "the gateway holds as many connections as it may; come back later")
        }
    }

    /// Takes a connection whose Hello was read on another loop.
    static func adopt(_ adopted: AdoptedConnection, on owner: GatewayLoop) {
        let device = DeviceConnection(owner: owner, isSecure: adopted.isSecure)
        device.phase = .awaitingWelcome
        device.stream = ByteStream(
            attaching: adopted.connection, on: owner.loop, delegate: device,
            outboxByteLimit: owner.limits.outboxBytes)
        device.enter(adopted.hello)
    }

    // MARK: Input

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        if phase == .open { owner.heard(session) }
        owner.metrics.count(.bytesReceived, bytes.count)
        var offset = 0
        while offset < bytes.count {
            // After a Close, ours or theirs, what still comes is of no interest.
            guard phase != .closed else { return bytes.count }
            // Frames that came behind the Hello wait until the Welcome is out.
            guard phase != .awaitingWelcome else {
                stream.pauseReading()
                return offset
            }
            let type: FrameType
            let body: UnsafeRawBufferPointer
            switch FrameCut(
                bytes, from: offset, bodyLimit: owner.frameByteLimit, mustBeHello: phase == .awaitingHello)
            {
            case .incomplete: return offset
            case .refused(let code, let reason):
                close(code, reason: reason)
                return bytes.count
            case .frame(let itsType, let itsBody, let byteCount):
                (type, body) = (itsType, itsBody)
                offset += byteCount
            }
            if phase == .awaitingHello {
                hello(body, after: UnsafeRawBufferPointer(rebasing: bytes[offset...]))
                // Moved away: the leftover went along.
                if self.stream == nil { return bytes.count }
                continue
            }
            do throws(WireError) {
                try take(type, body)
            } catch {
                close(.malformed, reason: "a frame's body is no message of its type")
            }
        }
        return offset
    }

    /// Counts a ping, an update, an upstream message or feedback; false when there were far too many.
    private func isWithinBounds(feedback: Bool = false) -> Bool {
        let now = owner.loop.now
        if now >= requestsSince + Self.requestMilliseconds {
            (requestsSince, requestCount, feedbackCount) = (now, 0, 0)
        }
        if feedback { feedbackCount += 1 } else { requestCount += 1 }
        guard requestCount > Self.requestLimit || feedbackCount > Self.feedbackLimit else { return true }
        close(.floods, reason: "more pings, updates or feedback than any client has use for")
        return false
    }

    /// A token becomes part of a request to the vendor: nothing in it may break a line or a path there.
    private func hasPlainTokens(_ tokens: [VendorToken]) -> Bool {
        func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { (0x21...0x7E).contains($0) } }
        guard !tokens.allSatisfy({ isPlain($0.token) && isPlain($0.topic) }) else { return true }
        close(.malformed, reason: "a vendor token or topic has characters other than visible ASCII")
        return false
    }

    private func take(_ type: FrameType, _ body: UnsafeRawBufferPointer) throws(WireError) {
        switch type {
        case .ack:
            owner.acknowledge(session, try AckView(decoding: body.bytes))
        case .ping:
            let nonce = try Ping(decoding: body.bytes).nonce
            guard isWithinBounds() else { return }
            let pong = HeartbeatFrame.pong(nonce: nonce)
            _ = stream?.write(byteCount: pong.byteCount) { pong.encode(into: $0) }
        case .pong:
            // That it came was all that mattered.
            _ = try Pong(decoding: body.bytes)
        case .deviceUpdate:
            let update = try DeviceUpdate(decoding: body.bytes)
            guard isWithinBounds(), hasPlainTokens(update.tokens) else { return }
            owner.update(session, update)
        case .feedback:
            let feedback = try Feedback(decoding: body.bytes)
            guard isWithinBounds(feedback: true) else { return }
            owner.feedback(session, feedback)
        case .upstream:
            var result = UpstreamResult()
            result.request = try Upstream(decoding: body.bytes).request
            guard isWithinBounds() else { return }
            result.code = 1
            result.reason = "no consumer takes upstream messages of this app"
            send(result)
        case .close:
            _ = try Close(decoding: body.bytes)
            isAnnounced = true
            finish(.goodbye)
        default:
            close(.unexpectedFrame, reason: "a device does not send this type of frame")
        }
    }

    // MARK: Handshake

    /// Decides on a Hello and sends the connection where its device lives.
    private func hello(_ body: UnsafeRawBufferPointer, after rest: UnsafeRawBufferPointer) {
        let hello: Hello
        let transcript: HelloTranscript
        do throws(WireError) {
            hello = try Hello(decoding: body.bytes)
            transcript = try HelloTranscript(body: body.bytes)
        } catch {
            return close(.malformed, reason: "the Hello cannot be read")
        }
        guard hasPlainTokens(hello.tokens) else { return }
        guard hello.role == .device else {
            return close(.wrongListener, reason: "this listener is for devices; senders have their own")
        }
        guard let app = owner.registry[hello.appID] else {
            return close(.unknownApp, reason: "no app of this id is configured here")
        }
        var adopted = AdoptedHello(
            app: app.key, bucket: Bucket(0), cid: hello.cid, newSecret: nil, transcript: transcript.bytes,
            hello: hello)
        if hello.registration {
            guard isSecure || stream?.peer?.isLoopback == true || owner.snapshot.allowsPlaintextRegistration else {
                return close(.plaintextRegistration, reason: "register over TLS: the answer holds the device's secret")
            }
            var isProven = false
            for secret in app.appSecrets
            where HMACSHA256.isCode(hello.proof, of: transcript.bytes, key: Array(secret.utf8)) { isProven = true }
            guard isProven else { return close(.badProof, reason: "the proof does not match the app's secret") }
            let (high, low) = SecureRandom.words()
            adopted.cid = DeviceID(high: high, low: low)
            adopted.newSecret = SecureRandom.bytes(32)
        } else if hello.cid.isNone {
            return close(.malformed, reason: "a Hello names a cid or asks for a registration")
        }
        adopted.bucket = app.bucket(of: adopted.cid)
        owner.endHandshake(self)
        phase = .awaitingWelcome
        let target = adopted.bucket.loop(of: owner.loopCount)
        if target == owner.index { return enter(adopted) }
        guard let connection = stream?.detach(unconsumed: rest) else {
            return close(.internalError, reason: "the connection could not be moved")
        }
        stream = nil
        owner.move(AdoptedConnection(connection: connection, isSecure: isSecure, hello: adopted), to: target)
    }

    /// Gives the session its slot and the shard its Hello.
    ///
    /// The connection is on its device's loop now.
    private func enter(_ adopted: AdoptedHello) {
        guard !owner.context.isStopping else {
            return close(.shuttingDown, reason: "the gateway is stopping")
        }
        guard let (slot, stamp) = owner.sessions.insert(self) else {
            return close(.overloaded, reason: "the gateway holds as many connections as it may; come back later")
        }
        session = SessionRef(slot: slot, stamp: stamp)
        isKnownToShard = true
        owner.hello(adopted.command(session: session))
    }

    func handshakeTimedOut() {
        guard phase == .awaitingHello else { return }
        close(.helloTimeout, reason: "no Hello came in time")
    }

    var isShakingHands: Bool { phase == .awaitingHello && stream != nil }

    // MARK: Output

    func welcome(_ effect: WelcomeEffect) {
        guard phase == .awaitingWelcome else { return }
        phase = .open
        send(effect.welcome)
        stream?.setHint(owner.core.pointee.shard.place(of: session)?.baseAddress)
        // What came behind the Hello has waited; it is looked at in the next turn.
        stream?.resumeReading()
    }

    /// Fetches what a send will use.
    func foresee() { stream?.foresee() }

    func send(_ effect: DeliverEffect) {
        guard phase == .open, let row = MessageRow(effect.row) else { return }
        if let revoked = row.revokedTask {
            var revoke = Revoke()
            (revoke.sequence, revoke.messageID, revoke.taskID) = (effect.sequence, row.messageID, row.taskID)
            revoke.revokedTaskID = revoked
            owner.metrics.count(.deliversSent)
            return send(revoke)
        }
        let frame = DeliverFrame(
            sequence: effect.sequence, messageID: row.messageID, taskID: row.taskID, payload: row.payload,
            isOffline: effect.isOffline, acceptedAt: UInt64(row.acceptedAt), alertedAt: UInt64(effect.alertedAt),
            attempt: effect.attempt, collapseKey: row.collapseKey, alertTitle: row.alertTitle,
            alertBody: row.alertBody)
        let byteCount = frame.byteCount
        _ = stream?.write(byteCount: byteCount) { frame.encode(into: $0) }
        owner.metrics.count(.bytesSent, byteCount)
        owner.metrics.count(.deliversSent)
    }

    func send(_ effect: BroadcastEffect) {
        guard phase == .open else { return }
        _ = stream?.write(byteCount: effect.frame.count) { effect.write(into: $0) }
        owner.metrics.count(.bytesSent, effect.frame.count)
        owner.metrics.count(.deliversSent)
    }

    func ping() {
        let frame = HeartbeatFrame.ping(nonce: UInt64(bitPattern: owner.now))
        let byteCount = frame.byteCount
        _ = stream?.write(byteCount: byteCount) { frame.encode(into: $0) }
        owner.metrics.count(.bytesSent, byteCount)
    }

    func send(_ message: some WireMessage) {
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        _ = bytes.withUnsafeBytes { stream?.write($0) }
        owner.metrics.count(.bytesSent, bytes.count)
    }

    // MARK: End

    /// Says why and hangs up.
    ///
    /// With `isForgotten` the shard itself wants the session closed and need not hear of its end.
    func close(_ code: CloseCode, reason: StaticString, isForgotten: Bool = false) {
        guard phase != .closed else { return }
        if isForgotten { isKnownToShard = false }
        if let stream {
            var close = Close()
            close.code = code.rawValue
            close.reason = "\(reason)"
            close.serverTime = UInt64(owner.now)
            (close.retryAfterMinimum, close.retryAfterMaximum) = owner.retryWindow(for: code)
            var bytes: [UInt8] = []
            close.appendFrame(to: &bytes)
            _ = bytes.withUnsafeBytes { stream.write($0) }
        }
        owner.log.write(.debug, .connectionClosed, [.code: LogValue(code.rawValue), .reason: .text("\(reason)")])
        finish(code)
    }

    private func finish(_ code: CloseCode) {
        let wasShakingHands = phase == .awaitingHello
        phase = .closed
        owner.metrics.count(.closed(code))
        if wasShakingHands { owner.endHandshake(self) }
        leave()
        owner.endConnection()
        stream?.closeAfterFlush()
    }

    /// Gives the slot back and tells the shard, once.
    private func leave() {
        guard session != .none else { return }
        owner.sessions.remove(session.slot, session.stamp)
        if isKnownToShard { owner.sessionEnded(session, announced: isAnnounced) }
        isKnownToShard = false
        session = .none
    }

    override func outboxFilled(_ stream: ByteStream) {
        guard phase != .closed else { return stream.close(.outboxFull) }
        // There is no room for a Close frame, and a client that does not read would not see it.
        let wasShakingHands = phase == .awaitingHello
        phase = .closed
        owner.metrics.count(.closedForSlowReader)
        if wasShakingHands { owner.endHandshake(self) }
        leave()
        owner.endConnection()
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
        owner.endConnection()
    }
}
