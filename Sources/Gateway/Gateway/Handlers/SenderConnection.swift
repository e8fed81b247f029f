internal import Quotas
internal import Configuration
internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// A connection of a trusted sender: a Hello with the app's masterSecret, then pipelined Publish frames.
///
/// The connection stays on the loop that accepted it. Messages are sent to their devices' loops, and the results return here.
final class SenderConnection: StreamDelegate, Handshaking {
    private enum Phase { case awaitingHello, open, closed }

    // SAFETY: the host outlives this object, because its loop closes all streams and servers before the host is released.
    private unowned(unsafe) let owner: EventLoopHost
    private var stream: ByteStream?
    private var phase = Phase.awaitingHello
    private var sender: NativeSender?
    var handshakePlace = HandshakeQueue.none
    private var slot: UInt32 = 0
    private var stamp: UInt32 = 0
    /// The number of unanswered publishes; reading stops above the limit, so a sender cannot exhaust the memory.
    private var unanswered = 0
    /// The unanswered publishes whose APNs body contains only the ids; usually few.
    private var idsOnly: Set<UInt64> = []
    private var isPaused = false
    private var appQuestion = AppQuestion.none
    private var isResting = false
    private var share = 0
    /// The rate limit of Ping and Pong frames; `unansweredLimit` and `AppShares` limit publishes.
    private var budget = FrameBudget()
    /// Whether the gateway is stopping; the connection closes after the last answer.
    private var isStopping = false
    /// Whether the sender has closed its sending side; the connection closes after the last answer.
    private var isEnding = false

    static let unansweredLimit = 16_384

    private init(owner: EventLoopHost) { self.owner = owner }

    static func accept(_ connection: DetachedConnection, tls: TLSContext?, on owner: EventLoopHost) {
        owner.metrics.count(.senderAccepted)
        guard owner.admit(.sender, from: connection.peer) else {
            return owner.turnAway(connection, isSecure: tls != nil)
        }
        let sender = SenderConnection(owner: owner)
        sender.stream = ByteStream(
            attaching: connection, on: owner.loop, delegate: sender, outboxByteLimit: 8 << 20, tls: tls,
            isGated: true)
        owner.beginHandshake(sender, from: connection.peer)
    }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        var offset = 0
        // Unconsumed bytes are passed again with the next input.
        defer { owner.metrics.count(.bytesReceived, offset) }
        while offset < bytes.count {
            guard phase != .closed, !isEnding else { return bytes.count }
            guard !isPaused, !isResting, mayTake() else { return offset }
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
                // The Hello is read again when the lookup of its app has ended.
                guard appQuestion != .asked else {
                    offset -= byteCount
                    return offset
                }
            }
        }
        return offset
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

    private func take(_ type: FrameType, _ body: UnsafeRawBufferPointer) throws(WireError) {
        switch type {
        case .publish where phase == .open:
            publish(try PublishView(decoding: body.bytes), body)
        case .hello where phase == .awaitingHello:
            hello(try Hello(decoding: body.bytes), try HelloTranscript(body: body.bytes))
        case .ping where phase == .open:
            guard isWithinBudget(.ping, body.count) else { return }
            let pong = HeartbeatFrame.pong(nonce: try Ping(decoding: body.bytes).nonce)
            _ = stream?.write(byteCount: pong.byteCount) { pong.encode(into: $0) }
        case .pong:
            guard isWithinBudget(.pong, body.count) else { return }
            _ = try Pong(decoding: body.bytes)
        case .close:
            _ = try Close(decoding: body.bytes)
            if !awaitAnswers() { finish(.goodbye) }
        default:
            close(.unexpectedFrame, reason: "a sender does not send this type of frame")
        }
    }

    private func isWithinBudget(_ type: FrameType, _ byteCount: Int) -> Bool {
        let cost = FrameBudget.cost(of: type)
        if budget.take(cost, byteCount: byteCount, second: owner.loop.now / 1_000) { return true }
        close(.floods, reason: "far more frames than any client has use for")
        return false
    }

    private func hello(_ hello: Hello, _ transcript: HelloTranscript) {
        guard !owner.context.isStopping else {
            return close(.shuttingDown, reason: "the gateway is stopping")
        }
        guard hello.role == .sender else {
            return close(.wrongListener, reason: "this listener is for senders; devices have their own")
        }
        guard let app = owner.registry[hello.appID] else {
            if appQuestion == .none, owner.registry.known(hello.appID) == nil { return askForApp() }
            let refusal = owner.refusal(ofApp: hello.appID, isConfirmed: appQuestion == .confirmed)
            return close(refusal.code, reason: refusal.reason)
        }
        var isProven = false
        for secret in app.masterSecrets
        where HMACSHA256.isCode(hello.proof, of: transcript.bytes, key: Array(secret.utf8)) { isProven = true }
        guard isProven else { return close(.badProof, reason: "the proof does not match the app's masterSecret") }
        let now = owner.now
        let tolerance = owner.limits.shardLimits.clockTolerance
        let verdict = owner.context.peers.replays.withLock {
            $0.take(hello.proof, timestamp: hello.timestamp, now: now, tolerance: tolerance)
        }
        switch verdict {
        case .fresh: break
        case .stale: return close(.clockSkew, reason: ReplayGuard.staleReason)
        case .full: return close(.overloaded, reason: ReplayGuard.fullReason)
        }
        guard let place = owner.senders.insert(self) else {
            return close(.overloaded, reason: "the gateway holds as many connections as it may")
        }
        (slot, stamp) = place
        sender = NativeSender(app)
        share = owner.core.pointee.shares.place(of: app.key)
        phase = .open
        owner.endHandshake(self)
        var welcome = Welcome()
        welcome.serverTime = UInt64(now)
        send(welcome)
    }

    // MARK: Publish

    private func publish(_ view: PublishView, _ body: UnsafeRawBufferPointer) {
        guard let sender else { return }
        let permit: PublishPermit
        do throws(QuotaRefusal) {
            permit = try owner.permit(of: sender.appKey, publishes: 1, byteCount: body.count)
        } catch {
            owner.metrics.count(.refusedBusy)
            var result = PublishResult()
            result.request = view.request
            result.code = PublishResultCode.busy.rawValue
            result.reason = "\(error.reason); nothing was accepted"
            return send(result)
        }
        let origin = owner.route(.sender, slot, stamp).origin(view.request)
        unanswered += 1
        if let app = owner.core.pointee.shares.took(share, now: owner.loop.now) {
            owner.context.activity.note([app], now: owner.loop.now)
        }
        // The prefetch runs while the digests are computed.
        owner.foresee(view.cid)
        let publish = NativePublish(
            cid: view.cid, payload: view.payload.bytes(of: body), timeToLive: view.timeToLive,
            hasTimeToLive: view.hasTimeToLive, strategy: view.strategy, collapseKey: view.collapseKey.bytes(of: body),
            requestID: view.requestID.bytes(of: body), alertTitle: view.alertTitle.bytes(of: body),
            alertBody: view.alertBody.bytes(of: body), apns: view.apns.bytes(of: body))
        do throws(NativePublishFault) {
            try owner.publisher.withCommand(publish, sender: sender, origin: origin, now: owner.now) {
                if $1 { idsOnly.insert(view.request) }
                owner.publish($0, permit)
            }
        } catch {
            unanswered -= 1
            owner.core.pointee.shares.answered(share)
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

    func answer(_ request: UInt64, _ outcome: PublishOutcome) {
        guard phase == .open else { return }
        unanswered -= 1
        owner.core.pointee.shares.answered(share)
        defer {
            if isStopping { stop() }
            if isEnding { endIfAnswered() }
        }
        let code = PublishResultCode(outcome.code)
        let isIDsOnly = !idsOnly.isEmpty && idsOnly.remove(request) != nil
        let frame = PublishResultFrame(
            request: request, code: code.rawValue, reason: code.reason,
            messageID: outcome.message, taskID: outcome.message.isNone ? .none : outcome.task, isLive: outcome.isLive,
            fallback: UInt32(outcome.fallback.rawValue),
            fallbackReason: outcome.fallbackReason.name, isFsync: owner.context.isFsync,
            // Without a job, APNs receives no body.
            isIDsOnly: isIDsOnly && outcome.code == .accepted && outcome.fallback != .none)
        let byteCount = frame.byteCount
        _ = stream?.write(byteCount: byteCount) { frame.encode(into: $0) }
        owner.metrics.count(.bytesSent, byteCount)
        if isPaused && !isStopping && unanswered < Self.unansweredLimit / 2 {
            isPaused = false
            if !isResting { stream?.resumeReading() }
        }
    }

    /// Returns `false` if the app has used up its slice; further frames then stay in the socket.
    private func mayTake() -> Bool {
        if phase != .open || owner.core.pointee.shares.mayTake(share) { return true }
        isResting = true
        stream?.pauseReading()
        owner.core.pointee.shares.rest(share, AppShares.Connection(slot: slot, stamp: stamp))
        return false
    }

    func reload(_ registry: AppRegistry) {
        guard phase == .open, let known = sender else { return }
        guard let app = registry[known.appKey] else {
            let isDisabled = registry.known(known.appKey) != nil
            return isDisabled
                ? close(.appDisabled, reason: "the app was disabled")
                : close(.unknownApp, reason: "the app was removed from the configuration")
        }
        sender = NativeSender(app)
    }

    func rested() {
        guard isResting else { return }
        isResting = false
        if !isPaused { stream?.resumeReading() }
    }

    private func send(_ message: some WireMessage) {
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        _ = bytes.withUnsafeBytes { stream?.write($0) }
        owner.metrics.count(.bytesSent, bytes.count)
    }

    // MARK: End

    /// Keeps a half-closed connection open, because the sender still reads its results.
    override func peerEnded(_ stream: ByteStream) -> Bool { awaitAnswers() }

    /// Keeps the connection open after the sender's last frame until all results are sent.
    ///
    /// - Returns: `false` if no results are pending.
    private func awaitAnswers() -> Bool {
        guard phase == .open, unanswered > 0 else { return false }
        if !isEnding {
            isEnding = true
            stream?.setTimeout(afterMilliseconds: EventLoopHost.halfClosedMilliseconds)
        }
        return true
    }

    private func endIfAnswered() {
        guard phase == .open, unanswered == 0, let stream, leave() else { return }
        owner.metrics.count(.closedByPeer)
        stream.closeAfterFlush()
    }

    override func timedOut(_ stream: ByteStream) { stream.close(.endOfStream) }

    var isOwedAnswers: Bool { unanswered > 0 }

    /// Stops reading, and closes the connection after the last answer.
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

    func handshakeDisplaced() {
        guard phase == .awaitingHello else { return }
        close(.overloaded, reason: Refusal.noRoom.reason)
    }

    var kind: ConnectionKind { .sender }
    var isShakingHands: Bool { phase == .awaitingHello && stream != nil }

    func close(_ code: CloseCode, reason: StaticString) {
        guard phase != .closed else { return }
        let bytes = owner.closeFrame(Refusal(code, reason))
        _ = bytes.withUnsafeBytes { stream?.write($0) }
        owner.metrics.count(.bytesSent, bytes.count)
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

    /// Removes the connection from the loop's tables; returns `false` if it was removed before.
    private func leave() -> Bool {
        guard phase != .closed else { return false }
        if phase == .awaitingHello {
            owner.endHandshake(self)
        } else {
            owner.senders.remove(slot, stamp)
            // Later answers to this connection are dropped, so its publishes no longer count as in flight.
            owner.core.pointee.shares.answered(share, count: unanswered)
        }
        phase = .closed
        owner.endConnection(.sender)
        return true
    }
}
