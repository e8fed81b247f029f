internal import Platform

/// A connection of an HTTP server, which parses one request at a time and writes the responses.
///
/// Nothing is read while a response is pending, so pipelined requests stay in the kernel's buffers. A client that shuts down its
/// sending side after a request still gets the response.
final class HTTPConnection: StreamDelegate {
    private enum Phase {
        case reading
        case answering
        case over
    }

    /// The server; both objects retain each other until the end of the connection is reported.
    private let server: HTTPServer
    private let loop: EventLoop
    private let peer: SocketAddress?
    private var stream: ByteStream?
    private var phase = Phase.reading
    private var reader: HTTPReader
    /// Whether the deadline of an incomplete request is running.
    private var isTimed = false
    var position = 0
    /// The connection's state, its start time and the neighbors in the list of that state, managed by `HTTPConnectionLimit`.
    var place = HTTPConnectionLimit.Place.working
    var placedAt: UInt64 = 0
    unowned(unsafe) var before: HTTPConnection?
    unowned(unsafe) var after: HTTPConnection?
    let network: UInt64
    private let countedNetwork: UInt64
    /// The rules for reading the client's address from a proxy's requests; `nil` for any other peer.
    private let forwarding: ForwardedClients?
    /// The client of the current request, cached at its first use; the inner value is `nil` if the proxy names no client.
    private var forwarded: SocketAddress??
    private var share = PeerBudget.Share()
    /// The address that `share` is charged to.
    private var shareNetwork: UInt64 = 0

    init(_ connection: DetachedConnection, server: HTTPServer) {
        (self.server, loop, peer) = (server, server.loop, connection.peer)
        network = connection.peer?.network ?? 0
        countedNetwork = connection.countedNetwork
        forwarding = connection.peer.flatMap { server.addresses?.forwarding(of: $0) }
        reader = HTTPReader(
            headerByteLimit: server.configuration.headerByteLimit, bodyByteLimit: server.configuration.bodyByteLimit,
            hasBodyPolicy: server.hasBodyPolicy, acceptsCodings: server.configuration.acceptsCodings,
            memory: server.requestMemory)
        super.init()
        let tls = server.configuration.tls
        stream = ByteStream(
            attaching: connection, on: loop, delegate: self, outboxByteLimit: Limits.answerByteCount, tls: tls,
            isGated: true)
        // A TLS client must complete its handshake before it can send a request.
        stream?.setTimeout(
            afterMilliseconds: tls == nil
                ? server.configuration.idleMilliseconds
                : min(server.configuration.requestMilliseconds, Limits.handshakeMilliseconds))
    }

    deinit {
        // An exchange may have kept the request and its reservation after the connection's end.
        server.configuration.budget?.release(&share, network: shareNetwork)
    }

    /// The sender of the current request: the client that a proxy names, or the peer.
    ///
    /// A request whose proxy names no client counts as the proxy's own.
    private var client: SocketAddress? {
        guard let forwarding else { return peer }
        if let known = forwarded { return known ?? peer }
        let named = forwarding.client(in: reader.elements(of: forwarding.header.name))
        // Loopback is exempt from limits, so no header may claim it.
        let found = named?.isLoopback == true ? nil : named
        forwarded = .some(found)
        return found ?? peer
    }

    var clientHost: String { client?.host ?? "" }
    var clientNetwork: UInt64 { client?.network ?? 0 }
    /// The address under which the current request is counted; 0 for an exempt address.
    var countedClient: UInt64 {
        guard forwarding != nil, let client, let addresses = server.addresses else { return countedNetwork }
        return client == peer && client.isLoopback ? client.network : addresses.countedNetwork(of: client)
    }

    var isLoopback: Bool { peer?.isLoopback ?? false }
    /// Whether the sender of the current request is on this machine; never for a request that a proxy passes on.
    var isClientLoopback: Bool { forwarding == nil && isLoopback }

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
            // No further request is parsed while the client does not read its responses.
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

    /// Starts the deadline of a request at its first byte, so that slow sending does not extend it.
    private func beginTimer() {
        guard !isTimed else { return }
        isTimed = true
        server.room.move(self, to: .unproven, now: loop.now)
        stream?.setTimeout(afterMilliseconds: server.configuration.requestMilliseconds)
    }

    private func complete() {
        // A large request that arrived in one read has no reservation yet, and needs one until the response.
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

    /// Asks the server whether to accept the body before any of it is stored; returns `false` when the request was refused.
    private func admitBody() -> Bool {
        let announced = reader.announcedByteCount ?? 0
        if reader.announcedByteCount != nil, announced <= Limits.freeBodyByteCount {
            guard heldHeadByteCount == 0 || reserve(heldHeadByteCount) else { return false }
            // A small body is read before the request is refused, so the connection stays usable: clients renew an expired token
            // on it.
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

    /// Extends the reservation of a long head or of a chunked body as it grows; a chunked body reserves in advance.
    private func reserveGrown() -> Bool {
        let head = reader.unfinishedHeadByteCount
        if head > 0 { return head <= Limits.freeBodyByteCount || reserve(head) }
        guard reader.announcedByteCount == nil,
            reader.receivedByteCount > max(share.byteCount, Limits.freeBodyByteCount)
        else { return true }
        return reserve(reader.receivedByteCount + Limits.reservedBodyByteCount)
    }

    /// The size of a long head, which is held until the response, or 0.
    private var heldHeadByteCount: Int {
        reader.headByteCount > Limits.freeBodyByteCount ? reader.headByteCount : 0
    }

    /// The number of held bytes that need a reservation.
    private var countedByteCount: Int {
        let body = reader.receivedByteCount
        return heldHeadByteCount + (body > Limits.freeBodyByteCount ? body : 0)
    }

    private func reserve(_ byteCount: Int) -> Bool {
        guard let budget = server.configuration.budget else { return true }
        if shareNetwork == 0 { shareNetwork = clientNetwork }
        guard !budget.grow(&share, to: byteCount, network: shareNetwork) else { return true }
        end(with: server.configuration.busyReply)
        return false
    }

    private func forgetRequest() {
        reader.next()
        server.configuration.budget?.release(&share, network: shareNetwork)
        (forwarded, shareNetwork) = (nil, 0)
    }

    // MARK: Interface of an exchange

    func targetBytes() -> UnsafeRawBufferPointer { reader.target }
    func value(_ name: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? { reader.value(name) }
    func body() -> UnsafeRawBufferPointer { reader.body }

    var isPeerGone: Bool {
        guard let descriptor = stream?.slot?.pointee.descriptor else { return true }
        return Sockets.isPeerGone(descriptor: descriptor)
    }

    // MARK: Answers

    /// Writes a request's response and continues with the next request; returns `false` if the connection is closed.
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

    /// Responds to a WebSocket request; returns the connection after a successful upgrade and closes it otherwise.
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
            // Bytes read ahead are dropped: a client must not send frames before the response.
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

    /// Responds to a request that reaches no handler, and closes the connection.
    private func refuse(_ refusal: HTTPHead.Refusal) {
        // A body that is too large gets the API's own response, if it has one.
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

    /// Closes after the last response; further input is discarded until the peer's end or a short timeout.
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
            // The handler is slow, not the client. The timeout for reading the response starts with the response.
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
        // A pending response still needs the request and its reservation.
        if case .reading = phase { forgetRequest() }
        server.remove(self)
    }

    /// Whether the connection can be closed without loss: no output is pending and no input is unread.
    var isDisposable: Bool {
        guard let slot = stream?.slot, slot.pointee.outbox.byteCount == 0 else { return stream == nil }
        // Input before the handshake is no request. It stays unread while the stream waits at the gate.
        return place == .over || stream?.isInHandshake == true || !Sockets.hasInput(descriptor: slot.pointee.descriptor)
    }

    /// Whether an operator exempted the connection's address from the limits; loopback does not count as exempt.
    var isExempt: Bool { server.addresses != nil && network != 0 && countedNetwork == 0 && !isLoopback }

    var isSilent: Bool { (stream?.outboxByteCount ?? 0) == 0 }

    func displace() {
        phase = .over
        forgetRequest()
        server.remove(self)
        stream?.close()
    }

    func close() {
        phase = .over
        stream?.close()
    }
}
