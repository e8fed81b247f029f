package import Cryptography
package import Platform

/// HTTP/1.1 on one loop, over byte streams.
///
/// One read and one write a request, in the turn's own rhythm: libevent's evhttp, which stood here before, took six
/// system calls, and an answer left a turn later than it was given.
package final class HTTPServer: Resident {
    /// The bounds of a server.
    package struct Configuration: Sendable {
        /// Request line and headers together; more is answered 431.
        package var headerByteLimit = 64 * 1024
        /// A body; more is answered 413.
        ///
        /// It stands well above what the handler itself accepts, so that the
        /// handler can say in its own words what is too large.
        package var bodyByteLimit = 8 * 1024 * 1024
        /// From a request's first byte to its last; slower ones lose their connection.
        package var requestMilliseconds: UInt64 = 15_000
        /// A connection without a request, or one that does not take its answer.
        package var idleMilliseconds: UInt64 = 75_000
        /// Open connections on this loop, unless the server shares an `HTTPConnectionLimit` with others.
        package var connectionLimit = 4096
        /// For requests that are more than small, until their answers.
        package var budget: PeerBudget?
        /// Answers a request for whose body there is no room now.
        package var busyReply = HTTPReply(status: 503, body: Array("too many requests are under way, retry\n".utf8))
        /// For HTTPS.
        package var tls: TLSContext?
        /// Seconds since 1970 for the field `Date`.
        package var unixSeconds: @Sendable () -> UInt64 = { 0 }

        package init() {}
    }

    /// Requests that got an answer, whether or not their connection still lived.
    package private(set) var answeredCount: UInt64 = 0
    /// Answers for which the connection had gone.
    package private(set) var lostAnswerCount: UInt64 = 0
    /// Requests refused here, before the handler.
    package private(set) var refusedCount: UInt64 = 0

    let loop: EventLoop
    /// What its connections receive requests in.
    let requestMemory = HTTPRequestMemory()
    private(set) var isClosing = false
    /// Its listener's connections are counted by their addresses.
    private(set) var isGuarded = false
    private(set) var configuration: Configuration
    private let handler: (HTTPExchange) -> Void
    private let judge: ((HTTPRequestHead) -> HTTPPrecheck)?
    package let room: HTTPConnectionLimit
    /// What it takes connections from, once `listen` was called.
    package private(set) var listener: Listener?
    private var isOpen = true
    private var connections: [HTTPConnection] = []
    /// Not retained: the handler that owes an answer holds the exchange, and the end of the exchange takes it out of
    /// here.
    private var waiting: [Unmanaged<HTTPExchange>] = []
    private var dates = HTTPDateCache()

    /// Serves on `socket`; `handler` gets each request on the loop and answers then or later.
    ///
    /// Servers of one loop may share a `room`. `judge` looks at a head whose body is large or has not come along,
    /// before any of it is kept; without it a body may have `bodyByteLimit` bytes.
    package convenience init(
        on loop: EventLoop, socket: consuming ListeningSocket, configuration: Configuration = Configuration(),
        room: HTTPConnectionLimit? = nil, judge: ((HTTPRequestHead) -> HTTPPrecheck)? = nil,
        handler: @escaping (HTTPExchange) -> Void
    ) throws(SystemError) {
        self.init(on: loop, configuration: configuration, room: room, judge: judge, handler: handler)
        try listen(socket)
    }

    /// Serves what `accept` is given and listens nowhere.
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

    /// Takes connections from `socket`, too; once at most.
    package func listen(
        _ socket: consuming ListeningSocket, balancers: [AddressRange] = [], addresses: AddressGuard? = nil
    ) throws(SystemError) {
        isGuarded = addresses != nil
        var door = addresses.map { addresses in
            Listener.Door(addresses) { [unowned self] in turnAway($0, refused: $1) }
        }
        door?.isHTTP = true
        listener = try Listener(
            on: loop, socket: socket, balancers: balancers, door: door, batchCount: Limits.httpAcceptBatchCount
        ) { [unowned self] connection in accept(connection) }
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

    /// Takes a connection: the listener's, or one that the caller has made.
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

    /// There is no room, and nobody who could make any.
    private func turnAway(_ detached: DetachedConnection) {
        turnAway(detached, status: 503, retryAfterSeconds: 1, "all connections are in use, retry\n")
    }

    /// The connection's address has as many connections as it may, or made them too fast.
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
        // The one request for the server as a whole is a probe and no more.
        guard !exchange.rawTargetBytes.elementsEqual("*".utf8) else {
            return exchange.respond(status: 204, contentType: "")
        }
        handler(exchange)
    }

    /// What becomes of a request whose body is still to come.
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

    /// Takes no new connections, and closes each one that is open with its next answer.
    package func stopAccepting() {
        loop.preconditionInLoop()
        isClosing = true
        listener?.close()
        listener = nil
    }

    /// Closes everything; exchanges that still wait for an answer become empty.
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
