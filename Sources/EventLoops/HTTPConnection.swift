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

    init(_ connection: DetachedConnection, server: HTTPServer) {
        (self.server, loop, peer) = (server, server.loop, connection.peer)
        reader = HTTPReader(
            headerByteLimit: server.configuration.headerByteLimit, bodyByteLimit: server.configuration.bodyByteLimit)
        super.init()
        let tls = server.configuration.tls
        stream = ByteStream(
            attaching: connection, on: loop, delegate: self, outboxByteLimit: Limits.answerByteCount, tls: tls)
        // A TLS client must get through its handshake before the first byte of a request can be seen.
        stream?.setTimeout(
            afterMilliseconds: tls == nil
                ? server.configuration.idleMilliseconds
                : min(server.configuration.requestMilliseconds, Limits.handshakeMilliseconds))
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
            case .expectsContinue:
                beginTimer()
                _ = write("HTTP/1.1 100 Continue\r\n\r\n")
                return offset
            case .incomplete:
                beginTimer()
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
        stream?.setTimeout(afterMilliseconds: server.configuration.requestMilliseconds)
    }

    private func complete() {
        phase = .answering
        isTimed = false
        server.handle(HTTPExchange(self, method: reader.method, server: server))
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
        reader.next()
        guard !isLast, isSent else {
            phase = .over
            stream?.closeAfterFlush()
            return isSent
        }
        phase = .reading
        stream?.setTimeout(afterMilliseconds: server.configuration.idleMilliseconds)
        stream?.resumeReading()
        return true
    }

    /// Answers a request that reaches no handler, and ends the connection.
    private func refuse(_ refusal: HTTPHead.Refusal) {
        server.noteRefusal()
        let text = UnsafeRawBufferPointer(start: refusal.reason.utf8Start, count: refusal.reason.utf8CodeUnitCount)
        _ = write(
            HTTPAnswer(
                status: refusal.status, contentType: "text/plain", headers: [], body: text, showsBody: true,
                isLast: true, isHTTP10: false), date: server.date())
        phase = .over
        reader.next()
        stream?.closeAfterFlush()
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
        server.remove(self)
    }

    /// Ends the connection at once, because the server goes.
    func close() {
        phase = .over
        stream?.close()
    }
}
