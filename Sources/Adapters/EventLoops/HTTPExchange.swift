/// An HTTP request and its single response, given immediately or later on the same loop.
///
/// The connection reads nothing until the response, so a response is required. An exchange that is released without one responds
/// with 500. After the response or the server's end the request's texts are empty, and a further response has no effect.
package final class HTTPExchange {
    package let method: HTTPMethod
    /// The loop's monotonic time in milliseconds at which the request was complete.
    package let startedAt: UInt64

    private let loop: EventLoop
    private let server: HTTPServer
    /// The connection that owns the request's bytes, kept after its socket closes; `nil` after the response or when the server ends.
    private var connection: HTTPConnection?
    var position = 0

    init(_ connection: HTTPConnection, method: HTTPMethod, server: HTTPServer) {
        (self.connection, self.method, self.server, loop) = (connection, method, server, server.loop)
        startedAt = server.loop.now
    }

    deinit {
        // A response is possible on the loop only.
        guard connection != nil else { return }
        loop.preconditionInLoop()
        respond(status: 500, contentType: "text/plain", body: Array("no answer was given\n".utf8))
    }

    // MARK: The request

    /// The sender's address: the client that a configured HTTP proxy names, or the peer.
    package var peerHost: String { connection?.clientHost ?? "" }
    package var isLoopback: Bool { connection?.isClientLoopback ?? false }
    package var peer: SocketAddress? { connection?.socketPeer }
    /// The value of `SocketAddress.network`, or 0 if unknown.
    package var network: UInt64 { connection?.clientNetwork ?? 0 }
    /// The address under which requests are counted, or 0 if they are not counted.
    package var countedNetwork: UInt64 { connection?.countedClient ?? 0 }

    /// The path and query as sent, not normalized: `//v2/x` is unchanged; it may be empty for an absolute URI.
    package var rawTarget: String { String(decoding: rawTargetBytes, as: UTF8.self) }

    /// The bytes of `rawTarget` without a copy, valid until the response.
    package var rawTargetBytes: UnsafeRawBufferPointer {
        connection?.targetBytes() ?? UnsafeRawBufferPointer(start: nil, count: 0)
    }

    /// Returns a header's value, or `nil` without the header or if several lines differ; the name's case is ignored.
    package func header(_ name: String) -> String? {
        var name = name
        return name.withUTF8 { name in
            connection?.value(UnsafeRawBufferPointer(name)).map { String(decoding: $0, as: UTF8.self) }
        }
    }

    /// Returns the bytes of a header's value without a copy, valid until the response.
    package func headerBytes(_ name: StaticString) -> UnsafeRawBufferPointer? {
        connection?.value(UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    }

    /// The complete body, valid until the response; `Limits.bodyPaddingByteCount` readable zeros follow it.
    package var body: UnsafeRawBufferPointer { connection?.body() ?? UnsafeRawBufferPointer(start: nil, count: 0) }

    // MARK: The answer

    package var isAnswered: Bool { connection == nil }

    /// Whether the peer of a long poll has disconnected, according to the kernel.
    package var isPeerGone: Bool {
        loop.preconditionInLoop()
        return connection?.isPeerGone ?? true
    }

    /// Sends the response; has no effect if the connection has ended.
    ///
    /// - Parameters:
    ///   - status: from 200 to 599.
    ///   - contentType: empty for none.
    ///   - headers: further headers. A value with a line break is omitted.
    ///   - body: copied. For HEAD only its length is sent.
    ///   - closing: whether to close the connection after the response.
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

    /// Closes the connection without a response, as a failing server does.
    ///
    /// Must not be called while the handler runs.
    package func cut() {
        loop.preconditionInLoop()
        guard let connection else { return }
        self.connection = nil
        connection.displace()
        server.answered(self, isSent: false)
    }

    /// Responds to a WebSocket request by the protocol's rules and by `judge`.
    ///
    /// - Returns: the status of the response, and the connection after a successful upgrade. The caller must attach it and call
    ///   `beginWebSocket`. Otherwise the connection ends.
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

    /// Discards the request without a response because the server stops.
    func abandon() { connection = nil }
}
