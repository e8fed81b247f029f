internal import CLibevent
package import Cryptography
internal import Glibc
package import Platform

/// HTTP/1.1 on one loop, by libevent's evhttp (2.1.12 or later), with the bounds that evhttp lacks.
package final class HTTPServer: Resident {
    /// The bounds of a server.
    package struct Configuration: Sendable {
        /// Request line and headers together; more is answered 400 by libevent.
        package var headerByteLimit = 64 * 1024
        /// A body; more is answered 413 by libevent.
        ///
        /// It stands well above what the handler itself accepts, so that the
        /// handler can say in its own words what is too large.
        package var bodyByteLimit = 8 * 1024 * 1024
        /// From a request's first byte to its last; slower ones lose their connection.
        package var requestMilliseconds: UInt64 = 15_000
        /// A connection without a request, or one that does not take its answer.
        package var idleMilliseconds: UInt64 = 75_000
        /// Open connections on this loop; further ones wait in the kernel.
        package var connectionLimit = 4096
        /// For HTTPS.
        package var tls: TLSContext?

        package init() {}
    }

    package let address: SocketAddress
    /// Requests that got an answer, whether or not their connection still lived.
    package private(set) var answeredCount: UInt64 = 0
    /// Answers for which the connection had gone.
    package private(set) var lostAnswerCount: UInt64 = 0
    /// Requests refused here, before the handler.
    package private(set) var refusedCount: UInt64 = 0

    let loop: EventLoop
    private(set) var isClosing = false
    private var configuration: Configuration
    private let handler: (HTTPExchange) -> Void
    private var http: OpaquePointer?
    private var socket: OpaquePointer?
    private var connections: [OpaquePointer: HTTPConnection] = [:]
    /// Not retained: whoever owes an answer holds the exchange, and its end takes it out of here.
    private var waiting: [Unmanaged<HTTPExchange>] = []

    /// Serves on `socket`; `handler` gets each request on the loop and answers then or later.
    package init(
        on loop: EventLoop, socket: consuming ListeningSocket, configuration: Configuration = Configuration(),
        handler: @escaping (HTTPExchange) -> Void
    ) throws(SystemError) {
        loop.preconditionInLoop()
        (self.loop, self.configuration, self.handler) = (loop, configuration, handler)
        address = socket.address
        super.init()
        guard let http = evhttp_new(loop.base) else { throw SystemError(operation: "evhttp_new", code: ENOMEM) }
        self.http = http
        configure(http)
        let descriptor = socket.take()
        guard let bound = evhttp_accept_socket_with_handle(http, descriptor) else {
            Glibc.close(descriptor)
            evhttp_free(http)
            throw SystemError(operation: "evhttp_accept_socket", subject: address.description, code: ENOMEM)
        }
        self.socket = bound
        // Without a free descriptor a listener would spin; the sweep turns it on again.
        evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(bound)) { listener, _ in
            evconnlistener_disable(listener)
        }
        // The loop keeps the server alive until it is closed, so libevent's context pointers never dangle.
        loop.add(self)
        loop.own(descriptor)
        loop.onTick { [weak self] now in self?.sweep(now) }
    }

    private func configure(_ http: OpaquePointer) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        evhttp_set_max_headers_size(http, configuration.headerByteLimit)
        evhttp_set_max_body_size(http, configuration.bodyByteLimit)
        var idle = timeval(
            tv_sec: Int(configuration.idleMilliseconds / 1000),
            tv_usec: Int(configuration.idleMilliseconds % 1000 * 1000))
        evhttp_set_timeout_tv(http, &idle)
        evhttp_set_default_content_type(http, nil)
        let methods =
            EVHTTP_REQ_GET.rawValue | EVHTTP_REQ_POST.rawValue | EVHTTP_REQ_PUT.rawValue
            | EVHTTP_REQ_DELETE.rawValue | EVHTTP_REQ_HEAD.rawValue
        evhttp_set_allowed_methods(http, UInt16(methods))
        evhttp_set_bevcb(http, { _, context in HTTPServer.from(context).makeStream() }, context)
        evhttp_set_gencb(
            http,
            { request, context in
                guard let request else { return }
                HTTPServer.from(context).received(request)
            }, context)
    }

    private static func from(_ context: UnsafeMutableRawPointer?) -> HTTPServer {
        guard let context else { preconditionFailure("libevent lost the context pointer") }
        return Unmanaged<HTTPServer>.fromOpaque(context).takeUnretainedValue()
    }

    /// Takes new certificates for the connections to come; those that are open keep theirs.
    package func renewTLS(_ context: TLSContext) {
        loop.preconditionInLoop()
        if configuration.tls != nil { configuration.tls = context }
    }

    // MARK: Connections

    package var connectionCount: Int { connections.count }

    /// Requests whose answer is owed.
    package var waitingCount: Int { waiting.count }

    private func makeStream() -> OpaquePointer? {
        let stream: OpaquePointer?
        if let tls = configuration.tls {
            guard let handle = tls.makeServerHandle() else { return nil }
            // Frees the SSL handle with itself, and so has to close the socket, too.
            stream = bufferevent_openssl_socket_new(
                loop.base, -1, handle, BUFFEREVENT_SSL_ACCEPTING, CInt(BEV_OPT_CLOSE_ON_FREE.rawValue))
            if let stream { bufferevent_openssl_set_allow_dirty_shutdown(stream, 1) }
        } else {
            // The socket must live as long as the bufferevent, which `HTTPConnection` holds until the next sweep: its
            // events stay registered, and under a number that was used again they would take the next connection's
            // bytes. The peer sees the end at once all the same, since evhttp shuts the socket down itself.
            stream = bufferevent_socket_new(loop.base, -1, CInt(BEV_OPT_CLOSE_ON_FREE.rawValue))
        }
        guard let stream else { return nil }
        // A TLS client must get through its handshake before the first byte of a request can be seen.
        let startedAt = configuration.tls == nil ? 0 : loop.now
        connections[stream] = HTTPConnection(stream, loop: loop, startedAt: startedAt)
        adjustAccepting()
        return stream
    }

    private func sweep(_ now: UInt64) {
        guard http != nil else { return }
        var overdue: [HTTPConnection] = []
        var dead: [HTTPConnection] = []
        for connection in connections.values {
            if !connection.isAlive {
                dead.append(connection)
            } else if connection.requestStartedAt != 0,
                now > connection.requestStartedAt + configuration.requestMilliseconds
            {
                overdue.append(connection)
            }
        }
        for connection in overdue { connection.timeOut() }
        for connection in dead {
            connections[connection.stream] = nil
            connection.forget()
        }
        adjustAccepting()
    }

    private func adjustAccepting() {
        guard let socket, let listener = evhttp_bound_socket_get_listener(socket) else { return }
        if connections.count >= configuration.connectionLimit {
            evconnlistener_disable(listener)
        } else {
            evconnlistener_enable(listener)
        }
    }

    // MARK: Requests

    private func received(_ request: UnsafeMutablePointer<evhttp_request>) {
        guard let connection = connection(of: request) else { return refuse(request, 400, "no connection") }
        connection.requestCompleted()
        let lengths = contentLengths(request)
        guard lengths.count <= 1 else { return refuse(request, 400, "Content-Length is given more than once") }
        let isChunked = evhttp_find_header(evhttp_request_get_input_headers(request), "Transfer-Encoding") != nil
        // The two disagree about where the request ends, and whoever stands in front of us may read it the other way.
        guard lengths.isEmpty || !isChunked else {
            return refuse(request, 400, "Content-Length and Transfer-Encoding are both given")
        }
        let length: Int
        if let text = lengths.first {
            guard text.utf8.allSatisfy({ (48...57).contains($0) }), let number = Int(text) else {
                return refuse(request, 400, "Content-Length is not a number")
            }
            length = number
        } else {
            length = 0
        }
        // evhttp reads no body of a HEAD and would take one for the next request.
        let held = evhttp_request_get_input_buffer(request).map { evbuffer_get_length($0) } ?? 0
        let isHead = evhttp_request_get_command(request) == EVHTTP_REQ_HEAD
        guard isChunked ? !isHead : held == length else {
            return refuse(request, 400, "this method takes no body")
        }
        handle(request)
    }

    private func handle(_ request: UnsafeMutablePointer<evhttp_request>) {
        guard let method = HTTPMethod(evhttp_request_get_command(request)) else {
            return refuse(request, 501, "the method is not supported")
        }
        let exchange = HTTPExchange(request, method: method, server: self)
        exchange.position = waiting.count
        waiting.append(Unmanaged.passUnretained(exchange))
        handler(exchange)
    }

    private func connection(of request: UnsafeMutablePointer<evhttp_request>) -> HTTPConnection? {
        evhttp_request_get_connection(request).flatMap { evhttp_connection_get_bufferevent($0) }.flatMap {
            connections[$0]
        }
    }

    private func contentLengths(_ request: UnsafeMutablePointer<evhttp_request>) -> [String] {
        var result: [String] = []
        var next = evhttp_request_get_input_headers(request)?.pointee.tqh_first
        while let header = next {
            if strcasecmp(header.pointee.key, "Content-Length") == 0 {
                result.append(String(cString: header.pointee.value))
            }
            next = header.pointee.next.tqe_next
        }
        return result
    }

    private func refuse(_ request: UnsafeMutablePointer<evhttp_request>, _ status: CInt, _ reason: String) {
        refusedCount += 1
        let output = evhttp_request_get_output_headers(request)
        evhttp_add_header(output, "Content-Type", "text/plain")
        evhttp_add_header(output, "Connection", "close")
        let text = Array("\(reason)\n".utf8)
        evbuffer_add(evhttp_request_get_output_buffer(request), text, text.count)
        evhttp_send_reply(request, status, nil, nil)
    }

    func answered(_ exchange: HTTPExchange, _ request: UnsafeMutablePointer<evhttp_request>, status: Int) {
        answeredCount += 1
        let last = waiting.removeLast()
        if last.toOpaque() != Unmanaged.passUnretained(exchange).toOpaque() {
            waiting[exchange.position] = last
            last.takeUnretainedValue().position = exchange.position
        }
        if let connection = connection(of: request) {
            connection.requestAnswered()
        } else {
            lostAnswerCount += 1
        }
    }

    // MARK: End

    /// Takes no new connections, and closes each one that is open with its next answer.
    package func stopAccepting() {
        loop.preconditionInLoop()
        isClosing = true
        guard let http, let socket else { return }
        self.socket = nil
        evhttp_del_accept_socket(http, socket)
    }

    /// Closes everything; exchanges that still wait for an answer become empty.
    package func close() {
        loop.preconditionInLoop()
        guard http != nil else { return }
        shutDown()
        loop.remove(self)
    }

    override func loopStops() { shutDown() }

    private func shutDown() {
        stopAccepting()
        guard let http else { return }
        self.http = nil
        for exchange in waiting {
            let request = exchange.takeUnretainedValue().abandon()
            // libevent frees what is on a connection; the others have nobody but us.
            if let request, evhttp_request_get_connection(request) == nil { evhttp_request_free(request) }
        }
        waiting = []
        let open = connections.values
        connections = [:]
        evhttp_free(http)
        for connection in open { connection.forget() }
    }
}
