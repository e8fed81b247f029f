internal import Platform

/// One connection of an HTTP server: cuts what it receives into requests, one at a time, and writes their answers.
///
/// While an answer is owed nothing is read, so a client that sends ahead fills the kernel's buffers and not ours, and one
/// that shuts its half down behind its request still gets its answer.
final class HTTPConnection: StreamDelegate {
    private enum Phase {
        case reading
        /// A handler has the request.
        case answering
        /// The last answer is written.
        case over
    }

    /// Until the connection's end is told, the two hold each other.
    private let server: HTTPServer
    private let loop: EventLoop
    private let peer: SocketAddress?
    private var stream: ByteStream?
    private var phase = Phase.reading
    private var reader: HTTPReader
    /// When a request began that is not complete, its one deadline runs.
    private var isTimed = false
    /// Where the server keeps this connection.
    var position = 0
    /// What it does, since when, and its neighbours who do the same; kept by the room.
    var place = HTTPConnectionLimit.Place.working
    var placedAt: UInt64 = 0
    unowned(unsafe) var before: HTTPConnection?
    unowned(unsafe) var after: HTTPConnection?
    let network: UInt64
    /// As `DetachedConnection.countedNetwork`.
    let countedNetwork: UInt64
    /// What the body under way has reserved.
    private var share = PeerBudget.Share()

    init(_ connection: DetachedConnection, server: HTTPServer) {
        (self.server, loop, peer) = (server, server.loop, connection.peer)
        network = connection.peer?.network ?? 0
        countedNetwork = connection.countedNetwork
        reader = HTTPReader(
            headerByteLimit: server.configuration.headerByteLimit, bodyByteLimit: server.configuration.bodyByteLimit,
            hasBodyPolicy: server.hasBodyPolicy, memory: server.requestMemory)
        super.init()
        let tls = server.configuration.tls
        stream = ByteStream(
            attaching: connection, on: loop, delegate: self, outboxByteLimit: Limits.answerByteCount, tls: tls,
            isGated: true)
        // A TLS client must get through its handshake before the first byte of a request can be seen.
        stream?.setTimeout(
            afterMilliseconds: tls == nil
                ? server.configuration.idleMilliseconds
                : min(server.configuration.requestMilliseconds, Limits.handshakeMilliseconds))
    }

    deinit {
        // An exchange may have held the request beyond the connection's end.
        server.configuration.budget?.release(&share, network: network)
    }

    var peerHost: String { peer?.host ?? "" }
    var isLoopback: Bool { peer?.isLoopback ?? false }

    // MARK: Requests

    override func handshakeFinished(_ stream: ByteStream) {
        stream.setTimeout(afterMilliseconds: server.configuration.idleMilliseconds)
    }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        var offset = 0
        while offset < bytes.count {
            switch phase {
            case .over: return bytes.count
            case .answering:
                stream.pauseReading()
                return offset
            case .reading: break
            }
            // A client that does not take its answers is not given more of them.
            guard reader.hasBegun || stream.outboxByteCount <= Limits.waitingAnswerByteCount else {
                stream.pauseReading()
                stream.notifyWhenDrained()
                return offset
            }
            let step: HTTPReader.Step
            do throws(HTTPHead.Refusal) {
                let taken = try reader.take(UnsafeRawBufferPointer(rebasing: bytes[offset...]))
                (offset, step) = (offset + taken.byteCount, taken.step)
            } catch {
                refuse(error)
                return bytes.count
            }
            switch step {
            case .complete: complete()
            case .needsPolicy:
                beginTimer()
                guard admitBody() else { return bytes.count }
            case .expectsContinue:
                beginTimer()
                _ = write("HTTP/1.1 100 Continue\r\n\r\n")
                return offset
            case .incomplete:
                beginTimer()
                guard reserveGrown() else { return bytes.count }
                return offset
            }
        }
        if case .answering = phase { stream.pauseReading() }
        return offset
    }

    /// From its first byte on a request has a bounded time, however its bytes trickle in.
    private func beginTimer() {
        guard !isTimed else { return }
        isTimed = true
        server.room.move(self, to: .unproven, now: loop.now)
        stream?.setTimeout(afterMilliseconds: server.configuration.requestMilliseconds)
    }

    private func complete() {
        // A request that came in one read waits for its answer, too.
        guard countedByteCount <= share.byteCount || reserve(countedByteCount) else { return }
        phase = .answering
        isTimed = false
        server.room.move(self, to: .working, now: loop.now)
        server.handle(HTTPExchange(self, method: reader.method, server: server))
    }

    // MARK: Bodies

    private func head(bodyByteCount: Int) -> HTTPRequestHead {
        HTTPRequestHead(
            connection: self, method: reader.method, target: reader.target, bodyByteCount: bodyByteCount,
            isLoopback: isLoopback)
    }

    /// Asks whether the body is wanted, before any of it is kept; false when the request was refused.
    private func admitBody() -> Bool {
        let announced = reader.announcedByteCount ?? 0
        if reader.announcedByteCount != nil, announced <= Limits.freeBodyByteCount {
            guard heldHeadByteCount == 0 || reserve(heldHeadByteCount) else { return false }
            // Refused behind its body, a request costs its sender no connection: clients renew a stale token on theirs.
            reader.allow(byteLimit: announced)
            if reader.expectsContinue { _ = write("HTTP/1.1 100 Continue\r\n\r\n") }
            return true
        }
        switch server.judgement(head(bodyByteCount: announced)) {
        case .refuse(let reply):
            end(with: reply)
            return false
        case .take(let limit, let isProven):
            guard announced <= limit else {
                refuse(HTTPHead.Refusal(status: 413, reason: "the body is too large"))
                return false
            }
            if isProven { server.configuration.budget?.prove(&share) }
            guard reserve(announced + heldHeadByteCount) else { return false }
            reader.allow(byteLimit: limit)
            if isProven { server.room.move(self, to: .working, now: loop.now) }
            if reader.expectsContinue { _ = write("HTTP/1.1 100 Continue\r\n\r\n") }
            return true
        }
    }

    /// A head beyond a packet or two, and a body of chunks, reserve as they grow; the body some ahead of what is there.
    private func reserveGrown() -> Bool {
        let head = reader.unfinishedHeadByteCount
        if head > 0 { return head <= Limits.freeBodyByteCount || reserve(head) }
        guard reader.announcedByteCount == nil,
            reader.receivedByteCount > max(share.byteCount, Limits.freeBodyByteCount)
        else { return true }
        return reserve(reader.receivedByteCount + Limits.reservedBodyByteCount)
    }

    /// A long head, which waits for its body or for the answer.
    private var heldHeadByteCount: Int {
        reader.headByteCount > Limits.freeBodyByteCount ? reader.headByteCount : 0
    }

    /// Bytes that the request holds beyond those that need no reservation.
    private var countedByteCount: Int {
        let body = reader.receivedByteCount
        return heldHeadByteCount + (body > Limits.freeBodyByteCount ? body : 0)
    }

    private func reserve(_ byteCount: Int) -> Bool {
        guard let budget = server.configuration.budget, !budget.grow(&share, to: byteCount, network: network) else {
            return true
        }
        end(with: server.configuration.busyReply)
        return false
    }

    /// Forgets the request and gives back what it held.
    private func forgetRequest() {
        reader.next()
        server.configuration.budget?.release(&share, network: network)
    }

    // MARK: What an exchange sees

    func targetBytes() -> UnsafeRawBufferPointer { reader.target }
    func value(_ name: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? { reader.value(name) }
    func body() -> UnsafeRawBufferPointer { reader.body }

    var isPeerGone: Bool {
        guard let descriptor = stream?.slot?.pointee.descriptor else { return true }
        return Sockets.isPeerGone(descriptor: descriptor)
    }

    // MARK: Answers

    /// Writes one request's answer and goes on with the next; false when nobody is there any more.
    func answer(
        status: Int, contentType: String, headers: [(name: String, value: String)], body: UnsafeRawBufferPointer,
        closing: Bool
    ) -> Bool {
        let isLast = closing || server.isClosing || !reader.keepsAlive
        let isSent = write(
            HTTPAnswer(
                status: status, contentType: contentType, headers: headers, body: body,
                showsBody: reader.method != .head, isLast: isLast, isHTTP10: reader.isHTTP10), date: server.date())
        forgetRequest()
        guard !isLast, isSent else {
            sayGoodbye()
            return isSent
        }
        phase = .reading
        if stream != nil { server.room.move(self, to: .idle, now: loop.now) }
        stream?.setTimeout(afterMilliseconds: server.configuration.idleMilliseconds)
        stream?.resumeReading()
        return true
    }

    /// Answers a request for a WebSocket; gives the connection away if it becomes one, and ends it otherwise.
    func upgrade(
        judging judge: (WebSocketGreeting.Request) -> WebSocketGreeting.Verdict
    ) -> (status: Int, connection: DetachedConnection?) {
        let answer = WebSocketGreeting.answer(reader, judge)
        defer { forgetRequest() }
        switch answer {
        case .accepted(let bytes):
            phase = .over
            let isSent = bytes.withUnsafeBytes { stream?.writeRaw($0) ?? false }
            stream?.clearTimeout()
            // Frames that came too early are dropped with what else was read ahead: no client may send them.
            let nothing = UnsafeRawBufferPointer(start: nil, count: 0)
            let connection = isSent ? stream?.detach(unconsumed: nothing) : nil
            if connection != nil { stream = nil }
            server.remove(self)
            return (101, connection)
        case .refused(let status, let bytes):
            _ = bytes.withUnsafeBytes { stream?.writeRaw($0) }
            sayGoodbye()
            return (status, nil)
        case .incomplete: preconditionFailure("a whole request is incomplete")
        }
    }

    var socketPeer: SocketAddress? { peer }

    /// Answers a request that reaches no handler, and ends the connection.
    private func refuse(_ refusal: HTTPHead.Refusal) {
        // Too large a body is answered in the API's own words, as far as there are any.
        if refusal.status == 413, server.hasBodyPolicy,
            case .refuse(let reply) = server.judgement(head(bodyByteCount: .max))
        {
            return end(with: reply)
        }
        let text = UnsafeRawBufferPointer(start: refusal.reason.utf8Start, count: refusal.reason.utf8CodeUnitCount)
        end(with: HTTPReply(status: refusal.status, body: Array(text)))
    }

    private func end(with reply: HTTPReply) {
        server.noteRefusal()
        reply.body.withUnsafeBytes { body in
            _ = write(
                HTTPAnswer(
                    status: reply.status, contentType: reply.contentType, headers: reply.headers, body: body,
                    showsBody: reader.method != .head, isLast: true, isHTTP10: false), date: server.date())
        }
        forgetRequest()
        sayGoodbye()
    }

    /// The last answer is written: what still comes is read and dropped until the peer's end, for a short time.
    private func sayGoodbye() {
        phase = .over
        guard let stream else { return }
        server.room.move(self, to: .over, now: loop.now)
        stream.closeAfterFlush()
    }

    private func write(_ answer: HTTPAnswer, date: HTTPDate) -> Bool {
        guard let stream else { return false }
        return answer.withHead(date: date) { head in
            stream.write(byteCount: head.count + answer.sentBody.count) { room in
                room.copyMemory(from: head)
                UnsafeMutableRawBufferPointer(rebasing: room[head.count...]).copyMemory(from: answer.sentBody)
            }
        }
    }

    private func write(_ text: StaticString) -> Bool {
        stream?.write(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)) ?? false
    }

    // MARK: End

    override func timedOut(_ stream: ByteStream) {
        if case .answering = phase {
            // Not the client's fault; the time for taking the answer begins with the answer.
            return stream.setTimeout(afterMilliseconds: server.configuration.idleMilliseconds)
        }
        stream.close(.timedOut)
    }

    override func outboxDrained(_ stream: ByteStream) {
        if case .answering = phase { return }
        stream.resumeReading()
    }

    override func closed(_ stream: ByteStream, _ reason: CloseReason) {
        self.stream = nil
        // While an answer is owed the request stays, and with it its share.
        if case .reading = phase { forgetRequest() }
        server.remove(self)
    }

    /// Nobody would miss it: nothing waits to be sent, and nothing has come that was not looked at.
    var isDisposable: Bool {
        guard let slot = stream?.slot, slot.pointee.outbox.byteCount == 0 else { return stream == nil }
        // What a handshake waits with is no request: at the gate it stays unread.
        return place == .over || stream?.isInHandshake == true || !Sockets.hasInput(descriptor: slot.pointee.descriptor)
    }

    /// Its address is one that an operator has exempted from the bounds of addresses.
    ///
    /// Loopback does not count as exempt: on one machine all callers have it.
    var isExempt: Bool { server.isGuarded && network != 0 && countedNetwork == 0 && !isLoopback }

    /// No answer waits to be sent.
    var isSilent: Bool { (stream?.outboxByteCount ?? 0) == 0 }

    /// Ends the connection at once to make room for another.
    func displace() {
        phase = .over
        forgetRequest()
        server.remove(self)
        stream?.close()
    }

    /// Ends the connection at once, because the server goes.
    func close() {
        phase = .over
        stream?.close()
    }
}
