package import Cryptography
package import Platform

/// An HTTP/1.1 server on one event loop, over byte streams.
///
/// It needs one read and one write per request; libevent's evhttp took six system calls and sent a response one turn later.
package final class HTTPServer: Resident {
    package struct Configuration: Sendable {
        /// The maximum size of request line and headers together, above which the response is 431.
        package var headerByteLimit = 64 * 1024
        /// The maximum size of a body, above which the response is 413; the handler's own, lower limit gives a specific error.
        package var bodyByteLimit = 8 * 1024 * 1024
        /// The timeout from a request's first byte to its last.
        package var requestMilliseconds: UInt64 = 15_000
        /// The timeout of a connection without a request, or with a response that the client does not read.
        package var idleMilliseconds: UInt64 = 75_000
        /// The maximum number of connections on this loop, unless the server shares an `HTTPConnectionLimit`.
        package var connectionLimit = 4096
        /// The memory budget of larger requests until their responses.
        package var budget: PeerBudget?
        package var busyReply = HTTPReply(status: 503, body: Array("too many requests are under way, retry\n".utf8))
        package var tls: TLSContext?
        /// Whether a body may have a content coding, which the handler decodes; if `false`, the response to such a body is 415.
        package var acceptsCodings = false
        /// Returns the seconds since 1970 for the header `Date`.
        package var unixSeconds: @Sendable () -> UInt64 = { 0 }

        package init() {}
    }

    /// The number of responses, including lost ones.
    package private(set) var answeredCount: UInt64 = 0
    /// The number of responses whose connection had already ended.
    package private(set) var lostAnswerCount: UInt64 = 0
    /// The number of requests and connections refused before the handler.
    package private(set) var refusedCount: UInt64 = 0

    let loop: EventLoop
    let requestMemory = HTTPRequestMemory()
    private(set) var isClosing = false
    /// The limits per address of the listener's connections; `nil` without them.
    private(set) var addresses: AddressGuard?
    private(set) var configuration: Configuration
    private let handler: (HTTPExchange) -> Void
    private let judge: ((HTTPRequestHead) -> HTTPPrecheck)?
    package let room: HTTPConnectionLimit
    package private(set) var listener: Listener?
    private var isOpen = true
    private var connections: [HTTPConnection] = []
    /// The pending exchanges, not retained: the handler holds an exchange, which removes itself at its end.
    private var waiting: [Unmanaged<HTTPExchange>] = []
    private var dates = HTTPDateCache()

    /// Serves on `socket`.
    ///
    /// `handler` receives each request on the loop and responds immediately or later. Servers of a loop may share a `room`.
    /// `judge` decides about a head whose body is large or not yet received, before the body is stored. Without `judge` a body
    /// may have `bodyByteLimit` bytes.
    package convenience init(
        on loop: EventLoop, socket: consuming ListeningSocket, configuration: Configuration = Configuration(),
        room: HTTPConnectionLimit? = nil, judge: ((HTTPRequestHead) -> HTTPPrecheck)? = nil,
        handler: @escaping (HTTPExchange) -> Void
    ) throws(SystemError) {
        self.init(on: loop, configuration: configuration, room: room, judge: judge, handler: handler)
        try listen(socket)
    }

    /// Creates a server without a listener; `accept` adds connections.
    package init(
        on loop: EventLoop, configuration: Configuration = Configuration(), room: HTTPConnectionLimit? = nil,
        judge: ((HTTPRequestHead) -> HTTPPrecheck)? = nil, handler: @escaping (HTTPExchange) -> Void
    ) {
        loop.preconditionInLoop()
        (self.loop, self.configuration, self.handler, self.judge) = (loop, configuration, handler, judge)
        self.room = room ?? HTTPConnectionLimit(limit: configuration.connectionLimit)
        super.init()
        // The loop keeps the server alive until it is closed.
        loop.add(self)
    }

    /// Also accepts connections from `socket`; may be called once.
    package func listen(
        _ socket: consuming ListeningSocket, balancers: [AddressRange] = [], addresses: AddressGuard? = nil
    ) throws(SystemError) {
        self.addresses = addresses
        var door = addresses.map { addresses in
            Listener.Door(addresses) { [unowned self] in turnAway($0, refused: $1) }
        }
        door?.isHTTP = true
        listener = try Listener(
            on: loop, socket: socket, balancers: balancers, door: door, batchCount: Limits.httpAcceptBatchCount
        ) { [unowned self] connection in accept(connection) }
    }

    /// Replaces the certificates for new connections; open connections keep theirs.
    package func renewTLS(_ context: TLSContext) {
        loop.preconditionInLoop()
        if configuration.tls != nil { configuration.tls = context }
    }

    // MARK: Connections

    package var connectionCount: Int { connections.count }

    package var waitingCount: Int { waiting.count }

    package func accept(_ detached: DetachedConnection) {
        guard room.enter(detached.peer?.network ?? 0, now: loop.now) else {
            refusedCount += 1
            return turnAway(detached)
        }
        let connection = HTTPConnection(detached, server: self)
        connection.position = connections.count
        connections.append(connection)
        room.move(connection, to: .idle, now: loop.now)
    }

    /// Refuses a connection because the limit is reached and no other connection can be replaced.
    private func turnAway(_ detached: DetachedConnection) {
        turnAway(detached, status: 503, retryAfterSeconds: 1, "all connections are in use, retry\n")
    }

    /// Refuses a connection because its address has too many connections or makes them too fast.
    private func turnAway(_ detached: DetachedConnection, refused refusal: AddressRefusal) {
        refusedCount += 1
        turnAway(
            detached, status: 429, retryAfterSeconds: refusal.retryAfterSeconds,
            refusal.kind == .connections
                ? "this address has as many connections as it may have, retry later\n"
                : "this address connects more often than it may, retry later\n")
    }

    private func turnAway(
        _ detached: DetachedConnection, status: Int, retryAfterSeconds: Int, _ text: StaticString
    ) {
        guard configuration.tls == nil else {
            return detached.turnAway(with: UnsafeRawBufferPointer(start: nil, count: 0))
        }
        let answer = HTTPAnswer(
            status: status, contentType: "text/plain", headers: [("Retry-After", "\(retryAfterSeconds)")],
            body: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount), showsBody: true,
            isLast: true, isHTTP10: false)
        var bytes: [UInt8] = []
        answer.withHead(date: date()) { bytes += $0 }
        bytes += answer.sentBody
        bytes.withUnsafeBytes { detached.turnAway(with: $0) }
    }

    func remove(_ connection: HTTPConnection) {
        guard connection.position < connections.count, connections[connection.position] === connection else { return }
        room.leave(connection)
        let last = connections.removeLast()
        if last !== connection {
            connections[connection.position] = last
            last.position = connection.position
        }
    }

    // MARK: Requests

    func handle(_ exchange: HTTPExchange) {
        exchange.position = waiting.count
        waiting.append(Unmanaged.passUnretained(exchange))
        // A request for the whole server (`OPTIONS *`) is only a probe.
        guard !exchange.rawTargetBytes.elementsEqual("*".utf8) else {
            return exchange.respond(status: 204, contentType: "")
        }
        handler(exchange)
    }

    /// Whether the server decides about a body before it is received.
    var hasBodyPolicy: Bool { judge != nil }

    func judgement(_ head: HTTPRequestHead) -> HTTPPrecheck {
        judge?(head) ?? .take(byteLimit: configuration.bodyByteLimit, isProven: false)
    }

    func noteRefusal() { refusedCount += 1 }

    func answered(_ exchange: HTTPExchange, isSent: Bool) {
        answeredCount += 1
        if !isSent { lostAnswerCount += 1 }
        let last = waiting.removeLast()
        if last.toOpaque() != Unmanaged.passUnretained(exchange).toOpaque() {
            waiting[exchange.position] = last
            last.takeUnretainedValue().position = exchange.position
        }
    }

    func date() -> HTTPDate { dates.date(atSecond: configuration.unixSeconds()) }

    // MARK: End

    /// Stops accepting connections and closes each open one after its next response.
    package func stopAccepting() {
        loop.preconditionInLoop()
        isClosing = true
        listener?.close()
        listener = nil
    }

    /// Closes everything; pending exchanges become empty.
    package func close() {
        loop.preconditionInLoop()
        guard isOpen else { return }
        shutDown()
        loop.remove(self)
    }

    override func loopStops() { shutDown() }

    private func shutDown() {
        stopAccepting()
        guard isOpen else { return }
        isOpen = false
        for exchange in waiting { exchange.takeUnretainedValue().abandon() }
        waiting = []
        for connection in connections { connection.close() }
    }
}
