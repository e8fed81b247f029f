internal import CLibevent
internal import Platform

/// The request methods that an HTTP server answers.
package enum HTTPMethod: String, Sendable {
    case get = "GET"
    case post = "POST"
    case put = "PUT"
    case delete = "DELETE"
    case head = "HEAD"

    init?(_ type: evhttp_cmd_type) {
        switch type {
        case EVHTTP_REQ_GET: self = .get
        case EVHTTP_REQ_POST: self = .post
        case EVHTTP_REQ_PUT: self = .put
        case EVHTTP_REQ_DELETE: self = .delete
        case EVHTTP_REQ_HEAD: self = .head
        default: return nil
        }
    }
}

/// One HTTP request and the one answer it will get, now or later, on its own loop.
///
/// The connection reads nothing further until the answer is given, so an answer must come in any case; an exchange
/// that is dropped without one answers 500 by itself. After the answer, and after the server was closed, there is no
/// request any more: its texts are empty and a further answer does nothing.
package final class HTTPExchange {
    package let method: HTTPMethod
    /// The other end's address without its port, and whether it is on this machine.
    package let peerHost: String
    package let isLoopback: Bool

    /// The loop's monotonic milliseconds when the request was complete.
    package let startedAt: UInt64

    private let loop: EventLoop
    private unowned let server: HTTPServer
    /// libevent's request: ours to answer while this is set, which ends when the server closes.
    private(set) var request: UnsafeMutablePointer<evhttp_request>?
    /// Where the server keeps this exchange among those that wait.
    var position = 0

    init(_ request: UnsafeMutablePointer<evhttp_request>, method: HTTPMethod, server: HTTPServer) {
        (self.request, self.method, self.server, loop) = (request, method, server, server.loop)
        startedAt = server.loop.now
        var address: UnsafeMutablePointer<CChar>?
        var port: UInt16 = 0
        if let connection = evhttp_request_get_connection(request) {
            evhttp_connection_get_peer(connection, &address, &port)
        }
        peerHost = address.map { String(cString: $0) } ?? ""
        isLoopback = peerHost.hasPrefix("127.") || peerHost == "::1" || peerHost.hasPrefix("::ffff:127.")
        // Zeros behind the body for parsers that read in wide steps; then all of it in one piece.
        if let input = evhttp_request_get_input_buffer(request) {
            withUnsafeTemporaryAllocation(byteCount: Limits.bodyPaddingByteCount, alignment: 1) { padding in
                padding.initializeMemory(as: UInt8.self, repeating: 0)
                evbuffer_add(input, padding.baseAddress, padding.count)
            }
        }
    }

    deinit {
        // Dropped off the loop it could not be answered, and its memory belongs to the loop's libevent.
        guard request != nil else { return }
        loop.preconditionInLoop()
        respond(status: 500, contentType: "text/plain", body: Array("no answer was given\n".utf8))
    }

    // MARK: The request

    /// The request target as it was sent, never normalised: `//v2/x` stays so.
    ///
    /// An absolute URI is shown whole.
    package var rawTarget: String {
        request.flatMap { evhttp_request_get_uri($0) }.map { String(cString: $0) } ?? ""
    }

    /// The same bytes without a copy; good until the answer.
    package var rawTargetBytes: UnsafeRawBufferPointer {
        Self.bytes(request.flatMap { evhttp_request_get_uri($0) })
    }

    /// The first header of that name, in any case; `nil` if there is none.
    package func header(_ name: String) -> String? {
        guard let request, let headers = evhttp_request_get_input_headers(request) else { return nil }
        return evhttp_find_header(headers, name).map { String(cString: $0) }
    }

    /// The same without a copy; good until the answer.
    package func headerBytes(_ name: StaticString) -> UnsafeRawBufferPointer? {
        guard let request, let headers = evhttp_request_get_input_headers(request) else { return nil }
        let value = name.utf8Start.withMemoryRebound(to: CChar.self, capacity: name.utf8CodeUnitCount + 1) {
            evhttp_find_header(headers, $0)
        }
        return value.map { Self.bytes($0) }
    }

    /// The body in one piece, good until the answer; `Limits.bodyPaddingByteCount` readable zeros follow it.
    package var body: UnsafeRawBufferPointer {
        guard let request, let input = evhttp_request_get_input_buffer(request) else {
            return UnsafeRawBufferPointer(start: nil, count: 0)
        }
        let count = evbuffer_get_length(input) - Limits.bodyPaddingByteCount
        return UnsafeRawBufferPointer(start: evbuffer_pullup(input, -1), count: max(count, 0))
    }

    private static func bytes(_ text: UnsafePointer<CChar>?) -> UnsafeRawBufferPointer {
        guard let text else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        var count = 0
        while text[count] != 0 { count += 1 }
        return UnsafeRawBufferPointer(start: text, count: count)
    }

    // MARK: The answer

    package var isAnswered: Bool { request == nil }

    /// Whether nobody waits for the answer any more, as far as the kernel knows; for long polls.
    package var isPeerGone: Bool {
        loop.preconditionInLoop()
        guard let request, let connection = evhttp_request_get_connection(request),
            let stream = evhttp_connection_get_bufferevent(connection)
        else { return true }
        return Sockets.isPeerGone(descriptor: bufferevent_getfd(stream))
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
        guard let request else { return }
        self.request = nil
        server.answered(self, request, status: status)
        let output = evhttp_request_get_output_headers(request)
        if !contentType.isEmpty { evhttp_add_header(output, "Content-Type", contentType) }
        for header in headers { evhttp_add_header(output, header.name, header.value) }
        if closing || server.isClosing { evhttp_add_header(output, "Connection", "close") }
        if status != 204 { evhttp_add_header(output, "Content-Length", String(body.count)) }
        if method != .head, status != 204, !body.isEmpty, let buffer = evhttp_request_get_output_buffer(request) {
            evbuffer_add(buffer, body.baseAddress, body.count)
        }
        // libevent owns the request from here on; without a connection this frees it.
        evhttp_send_reply(request, CInt(status), nil, nil)
    }

    package func respond(
        status: Int, contentType: String = "application/json", headers: [(name: String, value: String)] = [],
        body: [UInt8] = [], closing: Bool = false
    ) {
        body.withUnsafeBytes {
            respond(status: status, contentType: contentType, headers: headers, body: $0, closing: closing)
        }
    }

    /// Forgets the request without an answer, because the server goes.
    func abandon() -> UnsafeMutablePointer<evhttp_request>? { request.take() }
}
