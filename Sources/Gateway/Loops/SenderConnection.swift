internal import Cryptography
internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// One connection of a trusted sender: a Hello with the app's masterSecret, then pipelined Publish frames.
///
/// It stays on the loop that accepted it; its messages travel to their devices' loops and the results come back here.
final class SenderConnection: StreamDelegate, Handshaking {
    private enum Phase { case awaitingHello, open, closed }

    // The loop outlives whatever lives on it: it ends its streams and servers before it goes.
    private unowned(unsafe) let owner: GatewayLoop
    private var stream: ByteStream?
    private var phase = Phase.awaitingHello
    private var sender: NativeSender?
    var handshakePlace = HandshakeQueue.none
    private var slot: UInt32 = 0
    private var stamp: UInt32 = 0
    /// Publishes taken and not answered; reading rests above the limit, so a sender cannot fill our memory.
    private var unanswered = 0
    private var isPaused = false
    /// The gateway stops: the connection ends when everything taken was answered.
    private var isStopping = false

    static let unansweredLimit = 16_384

    private init(owner: GatewayLoop) { self.owner = owner }

    static func accept(_ connection: DetachedConnection, on owner: GatewayLoop) {
        let sender = SenderConnection(owner: owner)
        owner.metrics.count(.senderAccepted)
        sender.stream = ByteStream(
            attaching: connection, on: owner.loop, delegate: sender, outboxByteLimit: 8 << 20)
        guard owner.beginHandshake(sender) else { return sender.close(.overloaded, reason: "too many connections") }
    }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        owner.metrics.count(.bytesReceived, bytes.count)
        var offset = 0
        while offset < bytes.count {
            guard phase != .closed else { return bytes.count }
            guard !isPaused else { return offset }
            switch FrameCut(
                bytes, from: offset, bodyLimit: owner.frameByteLimit, mustBeHello: phase == .awaitingHello)
            {
            case .incomplete: return offset
            case .refused(let code, let reason):
                close(code, reason: reason)
                return bytes.count
            case .frame(let type, let body, let byteCount):
                offset += byteCount
                do throws(WireError) {
                    try take(type, body)
                } catch {
                    close(.malformed, reason: "a frame's body is no message of its type")
                }
            }
        }
        return offset
    }

    private func take(_ type: FrameType, _ body: UnsafeRawBufferPointer) throws(WireError) {
        switch type {
        case .publish where phase == .open:
            publish(try PublishView(decoding: body.bytes), body)
        case .hello where phase == .awaitingHello:
            hello(try Hello(decoding: body.bytes), try HelloTranscript(body: body.bytes))
        case .ping where phase == .open:
            let pong = HeartbeatFrame.pong(nonce: try Ping(decoding: body.bytes).nonce)
            _ = stream?.write(byteCount: pong.byteCount) { pong.encode(into: $0) }
        case .pong:
            _ = try Pong(decoding: body.bytes)
        case .close:
            _ = try Close(decoding: body.bytes)
            finish(.goodbye)
        default:
            close(.unexpectedFrame, reason: "a sender does not send this type of frame")
        }
    }

    private func hello(_ hello: Hello, _ transcript: HelloTranscript) {
        guard !owner.context.isStopping else {
            return close(.shuttingDown, reason: "the gateway is stopping")
        }
        guard hello.role == .sender else {
            return close(.wrongListener, reason: "this listener is for senders; devices have their own")
        }
        guard let app = owner.registry[hello.appID] else {
            return close(.unknownApp, reason: "no app of this id is configured here")
        }
        var isProven = false
        for secret in app.masterSecrets
        where HMACSHA256.isCode(hello.proof, of: transcript.bytes, key: Array(secret.utf8)) { isProven = true }
        guard isProven else { return close(.badProof, reason: "the proof does not match the app's masterSecret") }
        let now = owner.now
        guard abs(Int64(clamping: hello.timestamp) - now) <= owner.limits.shardLimits.clockTolerance else {
            return close(.clockSkew, reason: "the timestamp is too far from the gateway's clock")
        }
        guard let place = owner.senders.insert(self) else {
            return close(.overloaded, reason: "the gateway holds as many connections as it may")
        }
        (slot, stamp) = place
        sender = NativeSender(app)
        phase = .open
        owner.endHandshake(self)
        var welcome = Welcome()
        welcome.serverTime = UInt64(now)
        send(welcome)
    }

    // MARK: Publish

    private func publish(_ view: PublishView, _ body: UnsafeRawBufferPointer) {
        guard let sender else { return }
        let origin = Route(.sender, loop: owner.index, slot: slot, stamp: stamp).origin(view.request)
        unanswered += 1
        // Its digests are computed meanwhile.
        owner.foresee(view.cid)
        let publish = NativePublish(
            cid: view.cid, payload: view.payload.bytes(of: body), timeToLive: view.timeToLive,
            hasTimeToLive: view.hasTimeToLive, strategy: view.strategy, collapseKey: view.collapseKey.bytes(of: body),
            requestID: view.requestID.bytes(of: body), alertTitle: view.alertTitle.bytes(of: body),
            alertBody: view.alertBody.bytes(of: body), apns: view.apns.bytes(of: body))
        do throws(NativePublishFault) {
            try owner.publisher.withCommand(publish, sender: sender, origin: origin, now: owner.now) {
                owner.publish($0)
            }
        } catch {
            unanswered -= 1
            owner.metrics.count(.refusedInvalid)
            var result = PublishResult()
            result.request = view.request
            result.code = error.code.rawValue
            result.reason = error.reason
            send(result)
        }
        if unanswered >= Self.unansweredLimit, !isPaused {
            isPaused = true
            stream?.pauseReading()
        }
    }

    /// A publish's outcome, durable if it says so.
    func answer(_ request: UInt64, _ outcome: PublishOutcome) {
        unanswered -= 1
        guard phase == .open else { return }
        defer { if isStopping { stop() } }
        let code = PublishResultCode(outcome.code)
        let frame = PublishResultFrame(
            request: request, code: code.rawValue, reason: code.reason,
            messageID: outcome.message, taskID: outcome.message.isNone ? .none : outcome.task, isLive: outcome.isLive,
            fallback: UInt32(outcome.fallback.rawValue),
            fallbackReason: outcome.fallbackReason.name, isFsync: owner.context.isFsync)
        let byteCount = frame.byteCount
        _ = stream?.write(byteCount: byteCount) { frame.encode(into: $0) }
        owner.metrics.count(.bytesSent, byteCount)
        if isPaused && !isStopping && unanswered < Self.unansweredLimit / 2 {
            isPaused = false
            stream?.resumeReading()
        }
    }

    private func send(_ message: some WireMessage) {
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        _ = bytes.withUnsafeBytes { stream?.write($0) }
        owner.metrics.count(.bytesSent, bytes.count)
    }

    // MARK: End

    /// Publishes that were taken and not answered yet.
    var isOwedAnswers: Bool { unanswered > 0 }

    /// Takes nothing more and says goodbye once nothing is owed.
    func stop() {
        isStopping = true
        guard unanswered == 0 else {
            isPaused = true
            stream?.pauseReading()
            return
        }
        close(.shuttingDown, reason: "the gateway is stopping")
    }

    func handshakeTimedOut() {
        guard phase == .awaitingHello else { return }
        close(.helloTimeout, reason: "no Hello came in time")
    }

    var isShakingHands: Bool { phase == .awaitingHello && stream != nil }

    func close(_ code: CloseCode, reason: StaticString) {
        guard phase != .closed else { return }
        var close = Close()
        close.code = code.rawValue
        close.reason = "\(reason)"
        close.serverTime = UInt64(owner.now)
        (close.retryAfterMinimum, close.retryAfterMaximum) = owner.retryWindow(for: code)
        send(close)
        owner.log.write(.info, .connectionClosed, [.listener: "senders", .code: LogValue(code.rawValue)])
        finish(code)
    }

    private func finish(_ code: CloseCode) {
        guard leave() else { return }
        owner.metrics.count(.closed(code))
        stream?.closeAfterFlush()
    }

    override func closed(_ stream: ByteStream, _ reason: CloseReason) {
        self.stream = nil
        if leave() { owner.metrics.count(reason == .outboxFull ? .closedForSlowReader : .closedByPeer) }
    }

    /// Ends the connection's part in the loop's books; false if that was done before.
    private func leave() -> Bool {
        guard phase != .closed else { return false }
        if phase == .awaitingHello { owner.endHandshake(self) } else { owner.senders.remove(slot, stamp) }
        phase = .closed
        owner.endConnection()
        return true
    }
}
