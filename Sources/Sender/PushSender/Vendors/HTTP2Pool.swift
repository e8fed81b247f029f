internal import Cryptography
internal import EventLoops
internal import HTTP2
internal import HTTPClient
internal import Platform
internal import Structures
internal import TextForms

/// The sender's own HTTP/2 connections to vendors, on its loop; a request costs a fraction of one over libcurl.
///
/// The pool takes `https` requests without a proxy to hosts of the configuration. Hosts that devices name (Web Push) stay on
/// libcurl's thread, because a hostile server could occupy the loop. Requests also go to libcurl while the pool has no connection
/// to their origin, and libcurl then reports the cause. Confined to the loop.
final class HTTP2Pool {
    typealias Done = (VendorTransport.Answer) -> Void
    /// Resolves an endpoint, and calls back on the loop.
    typealias Resolve = (Lane.Endpoint, @escaping (NameLookups.Outcome) -> Void) -> Void

    struct Limits: Sendable {
        /// The maximum number of connections to an origin.
        var connections = 4
        var connection = RequestConnection.Limits(
            streams: VendorTransport.streamLimit, settingsMilliseconds: 3_000, pingMilliseconds: .max / 2)
        /// The idle timeout of a connection; NAT routers usually drop idle connections later than this.
        var idleMilliseconds: UInt64 = 60_000
        /// The time for which a request waits while no connection is established; it then goes to libcurl.
        var patienceMilliseconds: UInt64 = 500
        /// The time for which an origin that failed is remembered, with its backoff.
        var memoryMilliseconds: UInt64 = 3_600_000
        /// The lifetime of resolved addresses.
        var addressMilliseconds: UInt64 = 300_000
        /// The backoff between connection attempts: doubled each time within this range.
        var pause: ClosedRange<UInt64> = 1_000...60_000
        /// The maximum number of origins; requests to further ones go to libcurl.
        var origins = 512
    }

    /// The part of a call that requests on one connection have in common.
    struct OriginKey: Hashable {
        var host: String
        var port: UInt16
        var authoritiesFile: String?
    }

    let loop: EventLoop
    let limits: Limits
    private let resolver: Resolve
    /// Sends a request over libcurl.
    private let fallback: (HTTPCall, @escaping Done) -> Void
    private var origins: [OriginKey: PooledOrigin] = [:]
    private var marked: [PooledOrigin] = []
    private var contexts: [String?: TLSContext] = [:]
    private var isOver = false

    init(
        on loop: EventLoop, limits: Limits, resolver: @escaping Resolve,
        fallback: @escaping (HTTPCall, @escaping Done) -> Void
    ) {
        (self.loop, self.limits, self.resolver, self.fallback) = (loop, limits, resolver, fallback)
        loop.onTurnEnd { [unowned self] in dispatchMarked() }
        loop.onTick { [unowned self] now in
            for origin in origins.values { origin.tick(now) }
            origins = origins.filter { !$0.value.isUnused(now) }
        }
    }

    var connectionCount: Int { origins.values.reduce(0) { $0 + $1.connectionCount } }

    /// Queues a request for the end of this turn or the next one; `done` is called on the loop.
    ///
    /// - Returns: whether the pool took the request.
    func submit(_ call: HTTPCall, _ done: @escaping Done) -> Bool {
        guard !isOver, call.version == .http2, call.method == .post || call.method == .get, call.proxy == nil,
            call.addresses == .any, call.trust.certificateFile == nil, let target = RequestTarget(call.url),
            let origin = origin(of: call, target)
        else { return false }
        let now = loop.now
        let deadline = now + UInt64(max(0, call.timeoutMilliseconds))
        guard origin.add(WaitingRequest(call: call, target: target, at: now, deadline: deadline, done: done)) else {
            return false
        }
        // The lanes submit after this turn's `dispatchMarked`.
        loop.turnAgain()
        return true
    }

    private func origin(of call: HTTPCall, _ target: RequestTarget) -> PooledOrigin? {
        let key = OriginKey(host: target.host, port: target.port, authoritiesFile: call.trust.authoritiesFile)
        if let origin = origins[key] { return origin }
        guard origins.count < limits.origins else { return nil }
        let origin = PooledOrigin(key, of: self)
        origins[key] = origin
        return origin
    }

    /// Returns the TLS settings for a file of trusted certificates, or `nil` if libcurl has to report its fault.
    func context(_ authoritiesFile: String?) -> TLSContext? {
        if let context = contexts[authoritiesFile] { return context }
        guard let made = try? TLSContext(trusting: authoritiesFile.map { .certificates(path: $0) } ?? .system) else {
            return nil
        }
        made.requireHTTP2()
        contexts[authoritiesFile] = made
        return made
    }

    /// Reads the file again before the next connection, because its certificates may have been replaced.
    func renewTrust(_ authoritiesFile: String?) { contexts[authoritiesFile] = nil }

    /// Ends all requests: those not yet sent as `cancelledUnsent`, the others as `cancelled`.
    func abandon() {
        isOver = true
        for origin in origins.values { origin.abandon() }
    }

    // MARK: For origins

    /// Marks an origin for `dispatch` at the end of this turn.
    func mark(_ origin: PooledOrigin) {
        guard !origin.isMarked else { return }
        origin.isMarked = true
        marked.append(origin)
    }

    private func dispatchMarked() {
        while !marked.isEmpty {
            let origins = marked
            marked = []
            for origin in origins {
                origin.isMarked = false
                origin.dispatch()
            }
        }
    }

    func resolve(_ key: OriginKey, _ done: @escaping (NameLookups.Outcome) -> Void) {
        resolver(Lane.Endpoint(host: key.host, port: key.port), done)
    }

    /// Passes a request to libcurl; its timeout is the time left until the request's deadline.
    func pass(_ request: WaitingRequest) {
        var call = request.call
        call.timeoutMilliseconds = Int(max(1, request.deadline - min(request.deadline, loop.now)))
        fallback(call, request.done)
    }
}

/// The parts of an `https` URL that a request needs.
struct RequestTarget: Equatable {
    var host: String
    var port: UInt16 = 443
    /// The host as in the URL, with a port other than 443.
    var authority: String
    /// The path with the query.
    var path: String

    /// Returns `nil` for a URL of another scheme or with a user, which libcurl handles.
    init?(_ url: String) {
        guard url.hasPrefix("https://") else { return nil }
        let rest = url.dropFirst(8)
        let text = rest.prefix { $0 != "/" && $0 != "?" && $0 != "#" }
        path = String(rest.dropFirst(text.count).prefix { $0 != "#" })
        if !path.hasPrefix("/") { path = "/" + path }
        guard !text.isEmpty, !text.contains("@") else { return nil }
        let name: Substring
        if text.hasPrefix("[") {
            guard let end = text.firstIndex(of: "]") else { return nil }
            (name, host) = (text[...end], String(text[text.index(after: text.startIndex)..<end]))
        } else {
            name = text.prefix { $0 != ":" }
            host = String(name)
        }
        let tail = text[name.endIndex...]
        if !tail.isEmpty {
            guard tail.hasPrefix(":"), let number = UInt16(tail.dropFirst()), number > 0 else { return nil }
            port = number
        }
        host = host.lowercased()
        authority = port == 443 ? String(name) : "\(name):\(port)"
        guard !host.isEmpty, (authority + path).utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else { return nil }
    }
}

/// A request that waits for a connection.
struct WaitingRequest {
    var call: HTTPCall
    var target: RequestTarget
    /// The time of the submission, in the loop's milliseconds.
    var at: UInt64
    /// The end of its time, in the loop's milliseconds.
    var deadline: UInt64
    var done: HTTP2Pool.Done
}

/// The connections to one origin, and the requests that wait for them.
final class PooledOrigin {
    private let key: HTTP2Pool.OriginKey
    private unowned let pool: HTTP2Pool
    private var waiting = Ring<WaitingRequest>()
    private var connections: [PooledConnection] = []
    private var addresses: [RemoteAddress] = []
    private var resolvedAt: UInt64 = 0
    private var isResolving = false
    private var failures = 0
    private var connectsAt: UInt64 = 0
    private var usedAt: UInt64
    var isMarked = false

    init(_ key: HTTP2Pool.OriginKey, of pool: HTTP2Pool) {
        (self.key, self.pool) = (key, pool)
        usedAt = pool.loop.now
    }

    var connectionCount: Int { connections.count }

    func isUnused(_ now: UInt64) -> Bool {
        let memory = failures > 0 ? pool.limits.memoryMilliseconds : pool.limits.idleMilliseconds
        return waiting.isEmpty && connections.isEmpty && !isResolving && !isMarked && now >= usedAt + memory
    }

    private var hasConnection: Bool { connections.contains { $0.hasSettings && !$0.isLeaving } }

    /// Queues a request; returns false if it must go to libcurl, because no connection can be established now.
    func add(_ request: WaitingRequest) -> Bool {
        let now = pool.loop.now
        usedAt = now
        guard now >= connectsAt || hasConnection else { return false }
        waiting.append(request)
        pool.mark(self)
        return true
    }

    /// Sends waiting requests as far as the connections have room, and opens a connection when they are full.
    func dispatch() {
        while let request = waiting.first {
            guard let connection = connections.max(by: { $0.room < $1.room }), connection.room > 0 else { break }
            _ = waiting.popFirst()
            if !connection.send(request) { pool.pass(request) }
        }
        for connection in connections { connection.flush() }
        if !waiting.isEmpty { openIfFull(pool.loop.now) }
    }

    private func openIfFull(_ now: UInt64) {
        guard !isResolving else { return }
        let usable = connections.filter { !$0.isLeaving && !$0.isSuspect }
        // Requests wait for a connection that opens, and for room on one that works.
        guard usable.allSatisfy(\.hasSettings), usable.count < pool.limits.connections,
            connections.count < 2 * pool.limits.connections
        else { return }
        guard now >= connectsAt else {
            if usable.isEmpty { passOn() }
            return
        }
        if now >= resolvedAt + pool.limits.addressMilliseconds { addresses = [] }
        guard let address = addresses.first else { return resolve() }
        guard let context = pool.context(key.authoritiesFile) else { return failed() }
        do {
            let connection = PooledConnection(self, on: pool.loop, limits: pool.limits.connection)
            try connection.connect(
                try DetachedConnection(connectingTo: address), on: pool.loop, tls: context, serverName: key.host)
            connections.append(connection)
        } catch {
            failed()
        }
    }

    private func resolve() {
        isResolving = true
        pool.resolve(key) { [weak self] result in
            guard let self else { return }
            isResolving = false
            (addresses, resolvedAt) = ((try? result.get()) ?? [], pool.loop.now)
            if addresses.isEmpty { failed() }
            pool.mark(self)
        }
    }

    /// Handles a connection that could not be established: the next attempt uses another address after a pause.
    private func failed() {
        let (range, now) = (pool.limits.pause, pool.loop.now)
        let pause = min(range.upperBound, range.lowerBound << UInt64(min(failures, 12)))
        failures += 1
        connectsAt = now + .random(in: pause / 2...pause)
        if !addresses.isEmpty { addresses.append(addresses.removeFirst()) }
        pool.renewTrust(key.authoritiesFile)
        if !hasConnection { passOn() }
    }

    /// Passes all waiting requests to libcurl.
    private func passOn() {
        while let request = waiting.popFirst() { pool.pass(request) }
    }

    func opened() { pool.mark(self) }

    func answered() { failures = 0 }

    /// Passes a request that the server has not processed to libcurl.
    func again(_ request: WaitingRequest) { pool.pass(request) }

    /// Handles a connection that accepts no more requests; the first one that has answered nothing counts as a failure.
    func left(_ connection: PooledConnection) {
        if !connection.hasAnswered, !connection.isExpected {
            connection.isExpected = true
            failed()
        }
        pool.mark(self)
    }

    func ended(_ connection: PooledConnection) {
        connections.removeAll { $0 === connection }
        left(connection)
    }

    func tick(_ now: UInt64) {
        for connection in connections {
            if connection.isIdle, connection.hasSettings, now >= connection.usedAt + pool.limits.idleMilliseconds {
                connection.isExpected = true
                connection.leave()
            }
            connection.tick(now)
        }
        if !hasConnection, let first = waiting.first, now >= first.at + pool.limits.patienceMilliseconds { passOn() }
        // All requests to an origin have nearly the same time, so the oldest ends first.
        while let request = waiting.first, now >= request.deadline {
            _ = waiting.popFirst()
            request.done(
                .failure(
                    HTTPCallFailure(
                        kind: .timeout, description: "\(key.host): timeout", cause: "no connection had room in time",
                        mayHaveArrived: false)))
        }
        if !waiting.isEmpty { pool.mark(self) }
    }

    func abandon() {
        while let request = waiting.popFirst() { request.done(.failure(.cancelledUnsent)) }
        for connection in connections {
            connection.abandon()
            connection.close()
        }
    }
}

/// A connection of the pool.
final class PooledConnection: RequestConnection {
    private unowned let origin: PooledOrigin
    private(set) var usedAt: UInt64
    /// Whether the end of the connection is no failure: an idle connection is closed, or its failure was counted.
    var isExpected = false
    private var isAbandoned = false

    init(_ origin: PooledOrigin, on loop: EventLoop, limits: RequestConnection.Limits) {
        (self.origin, usedAt) = (origin, loop.now)
        super.init(on: loop, limits: limits)
    }

    func send(_ request: WaitingRequest) -> Bool {
        let (call, target) = (request.call, request.target)
        var headers = HTTP2Headers()
        headers.add(":method", call.method == .get ? "GET" : "POST")
        headers.add(":scheme", "https")
        headers.add(":authority", target.authority)
        headers.add(":path", target.path)
        headers.add("user-agent", call.userAgent)
        headers.add("accept", "*/*")
        // Some services answer 411 to a request without it.
        if call.method == .post { headers.add("content-length", "\(call.body.count)") }
        for (name, value) in call.headers where !value.isEmpty {
            headers.add(lowercasing: name, value, isSensitive: name.lowercased() == "authorization")
        }
        usedAt = loop.now
        return send(headers, PooledRequest(request, on: self))
    }

    override func becameReady() { origin.opened() }

    override func answered(_ request: SentRequest) {
        guard let pooled = request as? PooledRequest else { return }
        usedAt = loop.now
        origin.answered()
        pooled.request.done(pooled.result)
    }

    override func lost(_ request: SentRequest, isUntouched: Bool) {
        guard let pooled = request as? PooledRequest else { return }
        usedAt = loop.now
        let isLate = loop.now >= pooled.deadline
        if isAbandoned {
            pooled.fail(.cancelled, "the call was cancelled", mayHaveArrived: !isUntouched)
        } else if pooled.isTooLarge {
            pooled.fail(.tooLarge, "the answer is too large")
        } else if isUntouched, !isLate {
            origin.again(pooled.request)
        } else if isLate {
            pooled.fail(.timeout, "the vendor did not answer in time", mayHaveArrived: !isUntouched)
        } else {
            pooled.fail(.cut, "the connection ended before the answer")
        }
    }

    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) {
        super.goneAway(lastStream: lastStream, code: code, debug: debug)
        origin.left(self)
    }

    /// Ends the requests in flight as cancelled.
    func abandon() { isAbandoned = true }

    override func ended(_ reason: String) {
        super.ended(reason)
        origin.ended(self)
    }
}

/// A request on a connection of the pool, and its answer.
final class PooledRequest: SentRequest {
    fileprivate let request: WaitingRequest
    fileprivate private(set) var isTooLarge = false
    private var reply = HTTPClient.HTTPReply(status: 0, body: [])

    init(_ request: WaitingRequest, on connection: PooledConnection) {
        self.request = request
        super.init(on: connection, sentAt: connection.loop.now, deadline: request.deadline)
        if request.call.method != .get { body = request.call.body }
    }

    override func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        func isNamed(_ text: StaticString) -> Bool {
            name.elementsEqual(UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
        }
        if isNamed(":status") {
            // A final status replaces that of an interim response (1xx) and its fields.
            reply = HTTPClient.HTTPReply(status: Int(String(decoding: value, as: UTF8.self)) ?? 0, body: [])
        } else if isNamed("retry-after") {
            reply.retryAfterMilliseconds = Self.milliseconds(retryAfter: value)
        } else if isNamed("location") {
            reply.location = String(decoding: value, as: UTF8.self)
        }
    }

    /// Returns the delay of a Retry-After field, which is a number of seconds or a date; at most a day.
    private static func milliseconds(retryAfter value: UnsafeBufferPointer<UInt8>) -> Int64? {
        let seconds =
            Int64(String(decoding: value, as: UTF8.self))
            ?? HTTPDate.secondsSince1970(value).map { $0 - Int64(SystemClock.wallMilliseconds / 1_000) }
        guard let seconds, seconds > 0 else { return nil }
        return min(seconds, 86_400) * 1_000
    }

    override func received(body bytes: UnsafeBufferPointer<UInt8>) {
        guard !isTooLarge else { return }
        guard reply.body.count + bytes.count <= request.call.answerByteLimit else {
            isTooLarge = true
            return connection.cancel(self)
        }
        reply.body += bytes
    }

    fileprivate var result: VendorTransport.Answer {
        (200...599).contains(reply.status)
            ? .success(reply) : .failure(failure(.other, "the answer has no status", mayHaveArrived: true))
    }

    fileprivate func fail(_ kind: HTTPCallFailure.Kind, _ cause: String, mayHaveArrived: Bool = true) {
        request.done(.failure(failure(kind, cause, mayHaveArrived: mayHaveArrived)))
    }

    private func failure(_ kind: HTTPCallFailure.Kind, _ cause: String, mayHaveArrived: Bool) -> HTTPCallFailure {
        HTTPCallFailure(
            kind: kind, description: "\(request.target.authority): \(cause)", cause: cause,
            mayHaveArrived: mayHaveArrived)
    }
}
