/// One HTTP request and the one answer it will get, now or later, on its own loop.
///
/// The connection reads nothing further until the answer is given, so an answer must come in any case; an exchange
/// that is dropped without one answers 500 by itself. After the answer, and after the server was closed, there is no
/// request any more: its texts are empty and a further answer does nothing.
package final class HTTPExchange {
    package let method: HTTPMethod
    /// The loop's monotonic milliseconds when the request was complete.
    package let startedAt: UInt64

    private let loop: EventLoop
    private let server: HTTPServer
    /// Has the request's bytes, also when its socket is closed; `nil` once answered or abandoned.
    private var connection: HTTPConnection?
    /// Where the server keeps this exchange among those that wait.
    var position = 0

    init(_ connection: HTTPConnection, method: HTTPMethod, server: HTTPServer) {
        (self.connection, self.method, self.server, loop) = (connection, method, server, server.loop)
        startedAt = server.loop.now
    }

    deinit {
        // Dropped off the loop it could not be answered.
        guard connection != nil else { return }
        loop.preconditionInLoop()
        respond(status: 500, contentType: "text/plain", body: Array("no answer was given\n".utf8))
    }

    // MARK: The request

    /// The other end's address without its port, and whether it is on this machine.
    package var peerHost: String { connection?.peerHost ?? "" }
    package var isLoopback: Bool { connection?.isLoopback ?? false }
    package var peer: SocketAddress? { connection?.socketPeer }
    /// As `SocketAddress.network`; 0: not known.
    package var network: UInt64 { connection?.network ?? 0 }
    /// The address that requests are counted to; 0: to none.
    package var countedNetwork: UInt64 { connection?.countedNetwork ?? 0 }

    /// Path and query as they were sent, never normalised: `//v2/x` stays so.
    ///
    /// Of an absolute URI what stands behind its host, which may be nothing.
    package var rawTarget: String { String(decoding: rawTargetBytes, as: UTF8.self) }

    /// The same bytes without a copy; good until the answer.
    package var rawTargetBytes: UnsafeRawBufferPointer {
        connection?.targetBytes() ?? UnsafeRawBufferPointer(start: nil, count: 0)
    }

    /// A header that has one value, in any case; `nil` if there is none, or several lines that differ.
    package func header(_ name: String) -> String? {
        var name = name
        return name.withUTF8 { name in
            connection?.value(UnsafeRawBufferPointer(name)).map { String(decoding: $0, as: UTF8.self) }
        }
    }

    /// The same without a copy; good until the answer.
    package func headerBytes(_ name: StaticString) -> UnsafeRawBufferPointer? {
        connection?.value(UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    }

    /// The body in one piece, good until the answer; `Limits.bodyPaddingByteCount` readable zeros follow it.
    package var body: UnsafeRawBufferPointer { connection?.body() ?? UnsafeRawBufferPointer(start: nil, count: 0) }

    // MARK: The answer

    package var isAnswered: Bool { connection == nil }

    /// Whether nobody waits for the answer any more, as far as the kernel knows; for long polls.
    package var isPeerGone: Bool {
        loop.preconditionInLoop()
        return connection?.isPeerGone ?? true
    }

    /// Answers the request; a connection that died meanwhile makes it vanish without harm.
    ///
    /// - Parameters:
    ///   - status: from 200 to 599.
    ///   - contentType: empty for none.
    ///   - headers: further ones; a value with a line break is left out.
    ///   - body: copied; not sent for HEAD, where only its length shows.
    ///   - closing: ends the connection after the answer.
    package func respond(
        status: Int, contentType: String = "application/json", headers: [(name: String, value: String)] = [],
        body: UnsafeRawBufferPointer, closing: Bool = false
    ) {
        loop.preconditionInLoop()
        guard let connection else { return }
        self.connection = nil
        let isSent = connection.answer(
            status: status, contentType: contentType, headers: headers, body: body, closing: closing)
        server.answered(self, isSent: isSent)
    }

    package func respond(
        status: Int, contentType: String = "application/json", headers: [(name: String, value: String)] = [],
        body: [UInt8] = [], closing: Bool = false
    ) {
        body.withUnsafeBytes {
            respond(status: status, contentType: contentType, headers: headers, body: $0, closing: closing)
        }
    }

    /// Answers a request for a WebSocket by the rules of one and by `judge`'s.
    ///
    /// - Returns: the status that was answered, and the connection when it is a WebSocket now: the caller's to attach, and
    ///   to call `beginWebSocket` on. Without it the connection ends.
    package func upgrade(
        judging judge: (WebSocketGreeting.Request) -> WebSocketGreeting.Verdict
    ) -> (status: Int, connection: DetachedConnection?) {
        loop.preconditionInLoop()
        guard let connection else { return (503, nil) }
        self.connection = nil
        let result = connection.upgrade(judging: judge)
        server.answered(self, isSent: result.status != 101 || result.connection != nil)
        return result
    }

    /// Forgets the request without an answer, because the server goes.
    func abandon() { connection = nil }
}
