internal import Configuration
internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// One connection on the device listener until its Welcome; then `DeviceSessions` has it.
///
/// Everything that can be decided without the device's record is decided here, on whichever loop accepted it; then the
/// connection moves to the device's loop, which checks the proof against the stored secret.
final class DeviceHandshake: StreamDelegate, Handshaking {
    private enum Phase {
        /// Nothing but a Hello may come, and soon.
        case awaitingHello
        /// The shard has the Hello; the device may not speak before the Welcome.
        case awaitingWelcome
        /// Close was sent, or the session is open; nothing is read here any more.
        case closed
    }

    // The host outlives all that belongs to it: it ends its streams and servers before it goes.
    private unowned(unsafe) let owner: EventLoopHost
    /// The device's, while the session belongs to this handshake.
    private var partition: Partition?
    private var stream: ByteStream?
    private var session = SessionRef.none
    /// The device, once its Hello was read.
    private(set) var cid = DeviceID(high: 0, low: 0)
    private var phase = Phase.awaitingHello
    private let isSecure: Bool
    /// The app whose quota of devices counts this one as new.
    private(set) var countedApp: AppKey?
    var handshakePlace = HandshakeQueue.none
    /// The shard knows the session and must be told of its end.
    private var isKnownToShard = false
    /// The gateway sends it away although its shard had taken it.
    private var isRefused = false
    /// Its time for the Hello began anew, since the loop had no time to read it.
    private var hasWaitedLonger = false
    /// While its app is asked for, the Hello waits in the stream.
    private var appQuestion = AppQuestion.none
    /// Frames of a WebSocket that carried nothing, before the Hello.
    private var emptyFrameCount = 0

    private init(owner: EventLoopHost, isSecure: Bool) {
        (self.owner, self.isSecure) = (owner, isSecure)
    }

    /// Takes a fresh connection from a listener, which may have to wait for its turn.
    static func accept(_ connection: DetachedConnection, tls: TLSContext?, on owner: EventLoopHost) {
        owner.metrics.count(.deviceAccepted)
        owner.welcomes.arrive(connection, tls: tls)
    }

    /// It is the turn of a connection that was admitted.
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
                return owner.turnAway(adopted.connection, isSecure: false, window: window, reason: EventLoopHost.storm)
            }
            guard owner.admitRelayed() else { return owner.turnAway(adopted.connection, isSecure: true) }
        }
        let device = DeviceHandshake(owner: owner, isSecure: adopted.isSecure)
        device.phase = .awaitingWelcome
        device.stream = ByteStream(
            attaching: adopted.connection, on: owner.loop, delegate: device,
            outboxByteLimit: owner.limits.outboxBytes)
        guard !adopted.isRelayed || device.isOnce(adopted.hello) else { return }
        device.enter(adopted.hello, owner.servingPartition(adopted.hello.bucket.loop(of: owner.partitionCount)))
    }

    /// Takes a connection of the console's, which becomes a WebSocket with this answer.
    ///
    /// - Returns: the status that was answered.
    static func accept(upgrading exchange: HTTPExchange, on owner: EventLoopHost) -> Int {
        let peer = exchange.peer
        owner.metrics.count(.deviceAccepted)
        guard owner.admit(.device, from: peer) else {
            owner.metrics.count(.closed(.overloaded))
            return exchange.upgrade { _ in .refuse(status: 503, EventLoopHost.noRoom) }.status
        }
        let (status, upgraded) = exchange.upgrade { request in
            request.isSameOrigin ? .accept : .refuse(status: 403, "only the console's own page may be a device here")
        }
        guard let upgraded else {
            owner.context.handshakes.leave()
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
        // What is left of them comes again with what follows.
        defer { owner.metrics.count(.bytesReceived, offset) }
        while offset < bytes.count {
            // After a Close, ours or theirs, what still comes is of no interest.
            guard phase != .closed else { return bytes.count }
            // Frames that came behind the Hello wait until the Welcome is out.
            guard phase != .awaitingWelcome else {
                stream.pauseReading()
                return offset
            }
            // No frame has this type, and a request for a WebSocket begins with it.
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
                close(code, reason: reason)
                return bytes.count
            case .frame(let itsType, let itsBody, let byteCount):
                (type, body) = (itsType, itsBody)
                offset += byteCount
            }
            guard type == .hello else {
                close(.unexpectedFrame, reason: "a device does not send this type of frame")
                return bytes.count
            }
            hello(body, after: UnsafeRawBufferPointer(rebasing: bytes[offset...]))
            // It comes again when it is known whether there is its app.
            guard appQuestion != .asked else {
                offset -= FrameHeader.byteCount + body.count
                return offset
            }
            // Moved away: the leftover went along.
            if self.stream == nil { return bytes.count }
        }
        return offset
    }

    /// Answers a request for a WebSocket once it is whole; says how many bytes are done with.
    private func becomeWebSocket(_ bytes: UnsafeRawBufferPointer, _ stream: ByteStream) -> Int {
        let origins = owner.snapshot.webSockets.origins
        let answer = WebSocketGreeting.answer(bytes) { request in
            // A query is the client's own, and slashes are read as in the push API's paths.
            guard RequestPath(request.target).isMade(of: "v1", "device") else {
                return .refuse(status: 404, "devices find their WebSocket at /v1/device")
            }
            // A program that is no browser sends no origin, and no page of a foreign site can make it.
            guard let text = request.origin else { return .accept }
            return WebOrigin(text).map { origins.contains($0) } ?? false
                ? .accept : .refuse(status: 403, "device.webSocket.origins does not list this page's origin")
        }
        switch answer {
        case .incomplete: return 0
        case .accepted(let text):
            guard text.withUnsafeBytes({ stream.writeRaw($0) }) else { return bytes.count }
            stream.beginWebSocket()
            stepEnded()
        case .refused(_, let text):
            _ = text.withUnsafeBytes { stream.writeRaw($0) }
            Self.note(.unexpectedFrame, "a request for a WebSocket was refused", owner)
            finish(.unexpectedFrame)
        }
        return bytes.count
    }

    override func handshakeFinished(_ stream: ByteStream) { stepEnded() }

    /// TLS, or the request for a WebSocket, is through: the Hello behind it has the whole time for itself.
    private func stepEnded() {
        guard phase == .awaitingHello else { return }
        hasWaitedLonger = false
        owner.renewHandshake(self)
    }

    override func receivedEmpty(_ frameCount: Int, on stream: ByteStream) {
        emptyFrameCount += frameCount
        guard emptyFrameCount > Self.emptyFrameLimit else { return }
        close(.floods, reason: "far more frames than any client has use for")
    }

    /// Before the Hello; a client that measures its connection sends a few.
    private static let emptyFrameLimit = 64

    // MARK: Handshake

    /// Decides on a Hello and sends the connection to the loop that owns its device.
    private func hello(_ body: UnsafeRawBufferPointer, after rest: UnsafeRawBufferPointer) {
        var hello: Hello
        let transcript: HelloTranscript
        do throws(WireError) {
            hello = try Hello(decoding: body.bytes)
            transcript = try HelloTranscript(body: body.bytes)
        } catch {
            return close(.malformed, reason: "the Hello cannot be read")
        }
        hello.tokens.clean(&hello.refusedTokens)
        guard hello.role == .device else {
            return close(.wrongListener, reason: "this listener is for devices; senders have their own")
        }
        guard let app = owner.registry[hello.appID] else {
            if appQuestion == .none, owner.registry.known(hello.appID) == nil { return askForApp() }
            let (code, reason) = owner.refusal(ofApp: hello.appID, isConfirmed: appQuestion == .confirmed)
            return close(code, reason: reason)
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
            adopted.cid = owner.mintDevice(of: app, for: hello.proof)
            adopted.newSecret = SecureRandom.bytes(32)
        } else if hello.cid.isNone {
            return close(.malformed, reason: "a Hello names a cid or asks for a registration")
        }
        adopted.bucket = app.bucket(of: adopted.cid)
        // A registration's or a known device's alike: it is told where to go before anything is done for it.
        if owner.context.isEmptying { return sendAway() }
        let target = adopted.bucket.loop(of: owner.partitionCount)
        let here = owner.servingPartition(target)
        var otherCluster = here == nil ? owner.context.cluster : nil
        if let cluster = otherCluster, cluster.owner(of: target) == cluster.node { otherCluster = nil }
        // Another gateway judges what is for it, wherever the Hello comes from.
        guard otherCluster != nil || isOnce(adopted) else { return }
        owner.endHandshake(self)
        phase = .awaitingWelcome
        stream?.isNewcomer = false
        if let here { return enter(adopted, here) }
        if let cluster = otherCluster {
            return leave(adopted, for: cluster.owner(of: target), of: cluster, after: rest)
        }
        guard let connection = stream?.detach(unconsumed: rest) else {
            return close(.internalError, reason: "the connection could not be moved")
        }
        stream = nil
        owner.move(AdoptedConnection(connection: connection, isSecure: isSecure, hello: adopted), to: target)
    }

    /// Another gateway may have just made the app.
    private func askForApp() {
        appQuestion = .asked
        stream?.pauseReading()
        owner.appInquiry.confirm { [weak self] isConfirmed in
            self?.appQuestion = isConfirmed ? .confirmed : .unanswered
            self?.stream?.resumeReading()
        }
    }

    /// The gateway empties itself: tells the device where to go.
    private func sendAway() {
        guard let stream else { return }
        let alternate = owner.context.emptying.withLock { $0?.alternate } ?? ""
        let frame = owner.closeFrame(
            .shuttingDown, reason: Emptying.reason, alternate: alternate,
            window: alternate.isEmpty ? owner.retryWindow(for: .shuttingDown) : Emptying.window)
        _ = frame.withUnsafeBytes { stream.write($0) }
        Self.note(.shuttingDown, Emptying.reason, owner)
        finish(.shuttingDown)
    }

    /// Takes a registration's proof once; says why not.
    private func isOnce(_ adopted: AdoptedHello) -> Bool {
        guard adopted.newSecret != nil else { return true }
        let (now, tolerance) = (owner.now, owner.limits.shardLimits.clockTolerance)
        // Which registrations an earlier owner of the part has taken, this gateway does not know.
        let seatedAt = owner.context.cluster?.seatedAt(adopted.bucket.loop(of: owner.partitionCount)) ?? 0
        let verdict = owner.context.replays.withLock {
            $0.take(
                adopted.hello.proof, timestamp: adopted.hello.timestamp, now: now, tolerance: tolerance,
                servedSince: seatedAt)
        }
        switch verdict {
        case .fresh: return true
        case .stale: close(.clockSkew, reason: ReplayGuard.staleReason)
        case .full: close(.overloaded, reason: ReplayGuard.fullReason)
        }
        return false
    }

    /// The device is another gateway's: relays the connection there, or says where that is.
    private func leave(
        _ adopted: AdoptedHello, for node: Int, of cluster: ClusterContext, after rest: UnsafeRawBufferPointer
    ) {
        guard node != 0 else { return close(.moved, reason: "no gateway serves this device now; come back") }
        if let address = cluster.deviceAddress(of: node, isSecure: isSecure), adopted.newSecret == nil,
            cluster.maySendAway(adopted.cid, now: owner.loop.now)
        {
            guard let stream else { return }
            let frame = owner.closeFrame(.moved, reason: "this gateway serves the device", alternate: address)
            _ = frame.withUnsafeBytes { stream.write($0) }
            return finish(.moved)
        }
        guard let connection = stream?.detach(unconsumed: rest) else {
            return close(.internalError, reason: "the connection could not be moved")
        }
        stream = nil
        let owner = owner
        owner.metrics.count(.devicesRelayed)
        cluster.links.relay(connection, hello: adopted, isSecure: isSecure, to: node, on: owner.loop) {
            owner.endConnection(.device)
        }
    }

    /// Gives the session its slot and the shard its Hello.
    ///
    /// The connection is on its device's loop now.
    private func enter(_ adopted: AdoptedHello, _ target: Partition?) {
        guard !owner.context.isStopping else {
            return close(.shuttingDown, reason: "the gateway is stopping")
        }
        guard let partition = target, partition.welcomesDevices else {
            return close(.moved, reason: "another gateway is taking this device over; come back")
        }
        // Another gateway may have heard of the app, or of its end, a moment earlier than this one.
        guard let app = owner.registry[adopted.hello.appID] else {
            guard owner.registry.known(adopted.hello.appID) != nil else {
                return close(.moved, reason: "this gateway is told of the app in a moment; come back")
            }
            return close(.appDisabled, reason: EventLoopHost.disabledReason)
        }
        cid = adopted.cid
        let now = Int64(owner.loop.now)
        let delay = owner.context.flaps.withLock { $0.delay(of: adopted.cid, now: now) }
        guard delay == 0 else { return slow(by: delay) }
        guard !partition.isStandingStill || owner.welcomes.standingRoom > 0 else {
            return refuse(Self.standing, window: owner.retryWindow(for: .overloaded))
        }
        switch partition.admission(of: adopted.cid, of: app, isRegistration: adopted.newSecret != nil) {
        case .free: break
        case .counted: countedApp = app.key
        case .refused(let reason): return refuse(reason, window: EventLoopHost.quotaWindow)
        }
        guard let admitted = partition.sessions.admit(self) else {
            return close(.overloaded, reason: "the gateway holds as many connections as it may; come back later")
        }
        (session, self.partition) = (admitted, partition)
        isKnownToShard = true
        partition.hello(adopted.command(session: session))
    }

    /// The device connects and leaves over and over: its next Hello is welcome after that time.
    private func slow(by delay: Int64) {
        let least = UInt32(clamping: max(1_000, delay))
        owner.metrics.count(.flappingRefused)
        refuse(Self.flapping, window: (least, least + least / 2))
    }

    /// The device is one more than its app may have; it has no Welcome yet.
    func refuseAsSurplus() {
        guard phase == .awaitingWelcome else { return }
        isRefused = true
        refuse(EventLoopHost.quotaReason, window: EventLoopHost.quotaWindow)
    }

    /// Nothing is committed for the device's part now, and its Hello would keep others waiting.
    func refuseAsStanding() {
        guard phase == .awaitingWelcome else { return }
        isRefused = true
        refuse(Self.standing, window: owner.retryWindow(for: .overloaded))
    }

    /// The device sends no more: the Welcome, and what comes after it, is still for it.
    override func peerEnded(_ stream: ByteStream) -> Bool {
        guard phase == .awaitingWelcome else { return false }
        stream.setTimeout(afterMilliseconds: EventLoopHost.halfClosedMilliseconds)
        return true
    }

    private static let standing: StaticString = "the store of this device's part does not answer; come back later"

    /// Says why not now, and when.
    private func refuse(_ reason: StaticString, window: (UInt32, UInt32)) {
        guard let stream else { return }
        let frame = owner.closeFrame(.overloaded, reason: reason, window: window)
        _ = frame.withUnsafeBytes { stream.write($0) }
        Self.note(.overloaded, reason, owner)
        finish(.overloaded)
    }

    private static let flapping: StaticString =
        "the device connects and leaves over and over; come back after the time given"

    func handshakeTimedOut() {
        guard phase == .awaitingHello else { return }
        if let stream, stream.waitsToBeRead {
            guard hasWaitedLonger else {
                // It has spoken, and the loop did not come to it yet.
                hasWaitedLonger = true
                return owner.beginHandshake(self, from: stream.peer)
            }
            return close(.overloaded, reason: EventLoopHost.storm)
        }
        close(.helloTimeout, reason: "no Hello came in time")
    }

    func handshakeDisplaced() {
        guard phase == .awaitingHello else { return }
        close(.overloaded, reason: EventLoopHost.noRoom)
    }

    var kind: ConnectionKind { .device }
    var isShakingHands: Bool { phase == .awaitingHello && stream != nil }

    /// The session is open: gives the stream away; `nil` if it is over, of which this object is about to be told.
    func handOver() -> ByteStream? {
        guard phase == .awaitingWelcome, let stream, stream.isOpen else { return nil }
        stream.clearTimeout()
        phase = .closed
        (isKnownToShard, session, partition) = (false, .none, nil)
        return stream
    }

    // MARK: End

    /// Says why and hangs up.
    ///
    /// With `isForgotten` the shard itself wants the session closed and need not be told of its end.
    func close(_ code: CloseCode, reason: StaticString, isForgotten: Bool = false) {
        guard phase != .closed else { return }
        if isForgotten { isKnownToShard = false }
        if let stream {
            Self.write(code, reason: reason, to: stream, owner, isRefusal: true)
        } else {
            Self.note(code, reason, owner)
        }
        finish(code)
    }

    /// Writes the Close frame.
    static func write(
        _ code: CloseCode, reason: StaticString, to stream: ByteStream, _ owner: EventLoopHost, isRefusal: Bool = false
    ) {
        _ = owner.closeFrame(code, reason: reason, isRefusal: isRefusal).withUnsafeBytes { stream.write($0) }
        note(code, reason, owner)
    }

    static func note(_ code: CloseCode, _ reason: StaticString, _ owner: EventLoopHost) {
        owner.log.write(.debug, .connectionClosed, [.code: LogValue(code.rawValue), .reason: .text("\(reason)")])
    }

    private func finish(_ code: CloseCode) {
        let wasShakingHands = phase == .awaitingHello
        phase = .closed
        owner.metrics.count(.closed(code))
        if wasShakingHands { owner.endHandshake(self) }
        leave()
        owner.endConnection(.device)
        // Its end is looked at without waiting for a newcomer's turn, but a TLS handshake goes on in one.
        if let stream, !stream.isInHandshake { stream.isNewcomer = false }
        stream?.closeAfterFlush(code: WebSocketCode(code))
    }

    /// Gives the slot back and tells the shard, once.
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
        // There is no room for a Close frame, and a client that does not read would not see it.
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
    /// What a WebSocket's close frame says beside ours, in the range that RFC 6455 leaves to applications.
    init(_ code: CloseCode) { self.init(rawValue: UInt16(4_000 + code.rawValue)) }
}

extension EventLoopHost {
    /// A new cid; in a cluster one of the part that the proof names, so that one gateway is asked whether it was taken before.
    ///
    /// Without the app's secret nobody can choose a proof, so registrations go to all parts alike.
    fileprivate func mintDevice(of app: App, for proof: [UInt8]) -> DeviceID {
        let wanted = Int(proof.prefix(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }) % partitionCount
        while true {
            let (high, low) = SecureRandom.words()
            let cid = DeviceID(high: high, low: low)
            if context.cluster == nil || app.bucket(of: cid).loop(of: partitionCount) == wanted { return cid }
        }
    }
}
