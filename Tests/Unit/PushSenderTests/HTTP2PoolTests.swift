import Cryptography
import EventLoops
import HTTPClient
import Platform
import Testing

@testable import HTTP2
@testable import PushSender

/// A server of HTTP/2 with TLS on the test's loop.
private final class Server {
    final class Exchange: HTTP2Stream {
        var fields: [String: String] = [:]
        var received: [UInt8] = []
        weak var connection: Connection?

        override func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
            fields[String(decoding: name, as: UTF8.self)] = String(decoding: value, as: UTF8.self)
        }
        override func received(body bytes: UnsafeBufferPointer<UInt8>) { received += bytes }
        override func receivedEnd() { connection?.server?.answer(self) }

        func respond(_ status: Int, _ fields: KeyValuePairs<StaticString, String> = [:], body: [UInt8] = []) {
            var headers = HTTP2Headers()
            headers.add(":status", "\(status)")
            for (name, value) in fields { headers.add(name, value) }
            self.body = body
            connection?.session?.respond(headers, self)
        }
    }

    final class Connection: HTTP2Connection {
        weak var server: Server?
        override func opened() -> HTTP2Stream? {
            guard let server else { return nil }
            server.requestCount += 1
            guard !server.refusesStreams else { return nil }
            let exchange = Exchange()
            exchange.connection = self
            return exchange
        }
        override func ended(_ reason: String) { server?.connections.removeAll { $0 === self } }
    }

    var listener: Listener?
    var connections: [Connection] = []
    var acceptedCount = 0
    var requestCount = 0
    var refusesStreams = false
    /// Whether new connections are closed before TLS, as by a server that is down.
    var isDown = false
    var answer: (Exchange) -> Void = { $0.respond(200, body: $0.received) }

    init(on loop: EventLoop, tls: TLSContext, streams: UInt32 = 100) throws {
        var settings = HTTP2Session.Settings()
        settings.concurrentStreams = streams
        listener = try Listener(on: loop, socket: try ListeningSocket("127.0.0.1:0")) { [unowned self] detached in
            acceptedCount += 1
            guard !isDown else { return }
            let connection = Connection()
            connection.server = self
            connections.append(connection)
            #expect(throws: Never.self) { try connection.accept(detached, on: loop, tls: tls, settings: settings) }
        }
    }
}

private final class PoolRig {
    let loop: EventLoop
    let folder: String
    let server: Server
    private(set) var pool: HTTP2Pool!
    private(set) var answers: [VendorTransport.Answer] = []
    private(set) var passed: [HTTPCall] = []
    /// Whether the fallback answers with 299.
    var fallbackAnswers = true
    /// Whether lookups get an answer.
    var resolves = true
    var loopError: UInt64 = 0

    init(streams: UInt32 = 100, limits: HTTP2Pool.Limits = HTTP2Pool.Limits()) throws {
        loop = try EventLoop(index: 0)
        folder = try FileSystem.makeTemporaryDirectory(prefix: "longwire-pool-")
        try SelfSignedCertificate.write(
            names: "DNS:localhost", days: 2, certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
        let tls = try TLSContext(certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
        tls.requireHTTP2()
        server = try Server(on: loop, tls: tls, streams: streams)
        pool = HTTP2Pool(
            on: loop, limits: limits,
            resolver: { [unowned self] endpoint, done in
                if self.resolves { done(NameLookups.askSystem("127.0.0.1", endpoint.port)) }
            },
            fallback: { [unowned self] call, done in
                passed.append(call)
                if fallbackAnswers { done(.success(HTTPClient.HTTPReply(status: 299, body: []))) }
            })
    }

    deinit {
        loop.stop()
        try? FileSystem.removeTree(folder)
    }

    func call(_ path: String = "/send", body: [UInt8] = [1, 2, 3]) -> HTTPCall {
        var call = HTTPCall(
            "https://localhost:\(server.listener?.address.port ?? 0)\(path)",
            headers: [("Authorization", "Bearer x"), ("X-Empty", "")], body: body, userAgent: "test",
            timeoutMilliseconds: 5_000)
        call.version = .http2
        call.trust.authoritiesFile = folder + "/c.pem"
        return call
    }

    @discardableResult
    func submit(_ call: HTTPCall) -> Bool { pool.submit(call) { [unowned self] in answers.append($0) } }

    var statuses: [Int] {
        answers.map { answer in if case .success(let reply) = answer { reply.status } else { 0 } }
    }
    var failures: [HTTPCallFailure] {
        answers.compactMap { answer in if case .failure(let failure) = answer { failure } else { nil } }
    }

    func step() { loop.step(at: SystemClock.monotonicMilliseconds + loopError, isTick: true) }

    func run(sourceLocation: SourceLocation = #_sourceLocation, until isDone: () -> Bool) {
        for _ in 0..<30_000 {
            if isDone() { return }
            step()
        }
        Issue.record("the condition did not come true", sourceLocation: sourceLocation)
    }
}

@Suite("The HTTP/2 connections to vendors") struct HTTP2PoolTests {
    @Test("requests share connections, which open one by one as far as their streams are used")
    func shared() throws {
        var limits = HTTP2Pool.Limits()
        limits.connections = 3
        let rig = try PoolRig(streams: 10, limits: limits)
        var seen: [Server.Exchange] = []
        rig.server.answer = { seen.append($0) }
        for number in 0..<40 { #expect(rig.submit(rig.call("/\(number)?a=b", body: [UInt8(number)]))) }
        rig.run { seen.count == 30 }
        #expect(rig.server.acceptedCount == 3 && rig.pool.connectionCount == 3)
        let first = try #require(seen.first)
        #expect(first.fields[":method"] == "POST" && first.fields[":path"] == "/0?a=b" && first.received == [0])
        #expect(first.fields["authorization"] == "Bearer x" && first.fields["x-empty"] == nil)
        #expect(first.fields["content-length"] == "1" && first.fields["user-agent"] == "test")
        #expect(first.fields[":authority"] == "localhost:\(rig.server.listener?.address.port ?? 0)")
        rig.server.answer = { $0.respond(200, body: $0.received) }
        for exchange in seen { exchange.respond(200, body: exchange.received) }
        for connection in rig.server.connections { connection.flush() }
        rig.run { rig.answers.count == 40 }
        #expect(rig.statuses == Array(repeating: 200, count: 40) && rig.passed.isEmpty)
        #expect(rig.server.requestCount == 40)
    }

    @Test("an answer has its status, body, Location and Retry-After as seconds or date")
    func answer() throws {
        let rig = try PoolRig()
        let date = "Fri, 01 Jan 2100 00:00:00 GMT"
        for (status, retryAfter) in [(201, "30"), (429, date), (503, "soon"), (400, "-4")] {
            rig.server.answer = {
                $0.respond(status, ["retry-after": retryAfter, "location": "https://x/y"], body: [9])
            }
            rig.submit(rig.call())
            let count = rig.answers.count
            rig.run { rig.answers.count > count }
        }
        let replies = try rig.answers.map { try $0.get() }
        #expect(replies.map(\.status) == [201, 429, 503, 400])
        #expect(replies.map(\.retryAfterMilliseconds) == [30_000, 86_400_000, nil, nil])
        #expect(replies.allSatisfy { $0.body == [9] && $0.location == "https://x/y" })
        #expect(rig.server.acceptedCount == 1)
    }

    @Test("without a connection requests go to libcurl with the rest of their time, until the backoff ends")
    func fallback() throws {
        let rig = try PoolRig()
        rig.server.isDown = true
        for _ in 0..<3 { #expect(rig.submit(rig.call())) }
        rig.run { rig.answers.count == 3 }
        #expect(rig.statuses == [299, 299, 299] && rig.server.acceptedCount == 1)
        #expect(rig.passed.allSatisfy { 1...5_000 ~= $0.timeoutMilliseconds })
        #expect(!rig.submit(rig.call()))
        rig.server.isDown = false
        rig.loopError = 61_000
        rig.step()
        #expect(rig.submit(rig.call()))
        rig.run { rig.answers.count == 4 }
        #expect(rig.statuses.last == 200)
    }

    @Test("a request that the server did not process goes to libcurl with the rest of its time")
    func refused() throws {
        let rig = try PoolRig()
        rig.server.refusesStreams = true
        rig.submit(rig.call())
        rig.run { rig.answers.count == 1 }
        #expect(rig.statuses == [299] && rig.server.requestCount == 1)
        #expect(rig.passed.allSatisfy { 1...5_000 ~= $0.timeoutMilliseconds })
    }

    @Test("requests do not wait for a lookup that gets no answer")
    func slowLookup() throws {
        let rig = try PoolRig()
        rig.resolves = false
        for _ in 0..<2 { #expect(rig.submit(rig.call())) }
        rig.step()
        #expect(rig.answers.isEmpty)
        rig.loopError = 600
        rig.run { rig.answers.count == 2 }
        #expect(rig.statuses == [299, 299] && rig.passed.allSatisfy { $0.timeoutMilliseconds <= 4_500 })
    }

    @Test("after a GOAWAY later requests are sent on another connection, none twice")
    func goAway() throws {
        let rig = try PoolRig()
        rig.submit(rig.call())
        rig.run { rig.answers.count == 1 }
        let connection = try #require(rig.server.connections.first)
        connection.session?.goAway()
        connection.flush()
        rig.run { rig.pool.connectionCount == 0 }
        for _ in 0..<5 { #expect(rig.submit(rig.call())) }
        rig.run { rig.answers.count == 6 }
        #expect(rig.statuses == Array(repeating: 200, count: 6))
        #expect(rig.server.acceptedCount == 2 && rig.server.requestCount == 6)
    }

    @Test("a request without an answer in time may have arrived; its silent connection is closed")
    func silent() throws {
        let rig = try PoolRig()
        rig.submit(rig.call())
        rig.run { rig.answers.count == 1 }
        rig.server.answer = { _ in }
        let connection = try #require(rig.server.connections.first)
        rig.submit(rig.call())
        rig.run { rig.server.requestCount == 2 }
        connection.saysNothing()
        rig.loopError = 5_100
        rig.run { rig.answers.count == 2 }
        #expect(rig.failures.map(\.kind) == [.timeout] && rig.failures.map(\.mayHaveArrived) == [true])
        rig.loopError = 11_000
        rig.run { rig.pool.connectionCount == 0 }
        rig.server.answer = { $0.respond(200) }
        rig.loopError = 80_000
        rig.step()
        rig.submit(rig.call())
        rig.run { rig.answers.count == 3 }
        #expect(rig.statuses.last == 200)
    }

    @Test("a connection that breaks ends its requests, which may have arrived")
    func broken() throws {
        let rig = try PoolRig()
        rig.server.answer = { _ in }
        for _ in 0..<3 { rig.submit(rig.call()) }
        rig.run { rig.server.requestCount == 3 }
        try #require(rig.server.connections.first).close()
        rig.run { rig.answers.count == 3 }
        #expect(rig.failures.map(\.kind) == [.cut, .cut, .cut])
        #expect(rig.failures.allSatisfy(\.mayHaveArrived) && rig.passed.isEmpty)
    }

    @Test("an answer above the limit ends its request only")
    func tooLarge() throws {
        let rig = try PoolRig()
        var call = rig.call()
        call.answerByteLimit = 1_000
        rig.server.answer = { $0.respond(200, body: Array(repeating: 1, count: 100_000)) }
        rig.submit(call)
        rig.run { rig.answers.count == 1 }
        #expect(rig.failures.map(\.kind) == [.tooLarge])
        rig.server.answer = { $0.respond(200, body: Array(repeating: 1, count: 1_000)) }
        rig.submit(call)
        rig.run { rig.answers.count == 2 }
        #expect(rig.statuses.last == 200 && rig.server.acceptedCount == 1)
    }

    @Test("calls of other kinds go to libcurl")
    func others() throws {
        let rig = try PoolRig()
        var calls = Array(repeating: rig.call(), count: 6)
        calls[0].version = .http1
        calls[1].proxy = HTTPProxy(url: "http://127.0.0.1:1")
        calls[2].trust.certificateFile = rig.folder + "/c.pem"
        calls[3].url = calls[3].url.replacing("https", with: "http")
        // Hosts that devices name must not occupy the loop.
        calls[4].addresses = .globalOrLoopback
        calls[5].method = .patch
        for call in calls { #expect(!rig.submit(call)) }
        var untrusted = rig.call()
        untrusted.trust.authoritiesFile = rig.folder + "/none.pem"
        #expect(rig.submit(untrusted))
        rig.run { rig.answers.count == 1 }
        #expect(rig.statuses == [299] && rig.server.acceptedCount == 0)
    }

    @Test("an end of the sender cancels requests, and says which were sent")
    func abandoned() throws {
        var limits = HTTP2Pool.Limits()
        limits.connections = 1
        let rig = try PoolRig(streams: 2, limits: limits)
        rig.server.answer = { _ in }
        for _ in 0..<4 { rig.submit(rig.call()) }
        rig.run { rig.server.requestCount == 2 }
        rig.pool.abandon()
        rig.run { rig.answers.count == 4 && rig.pool.connectionCount == 0 }
        #expect(rig.failures.map(\.kind) == Array(repeating: .cancelled, count: 4))
        #expect(rig.failures.count { $0.mayHaveArrived } == 2)
        #expect(!rig.submit(rig.call()))
    }

    @Test("idle connections are closed, and origins without connections are forgotten")
    func idle() throws {
        let rig = try PoolRig()
        rig.submit(rig.call())
        rig.run { rig.answers.count == 1 }
        rig.loopError = 59_000
        for _ in 0..<10 { rig.step() }
        #expect(rig.pool.connectionCount == 1)
        rig.loopError = 61_000
        rig.run { rig.pool.connectionCount == 0 }
        rig.submit(rig.call())
        rig.run { rig.answers.count == 2 }
        #expect(rig.statuses == [200, 200] && rig.server.acceptedCount == 2 && rig.passed.isEmpty)
    }

    @Test(
        "a URL is split into host, port, authority and path",
        arguments: [
            ("https://fcm.googleapis.com/v1/a:send", "fcm.googleapis.com", 443, "fcm.googleapis.com", "/v1/a:send"),
            ("https://Host.example:8443?q=1#part", "host.example", 8_443, "Host.example:8443", "/?q=1"),
            ("https://[::1]:9/x", "::1", 9, "[::1]:9", "/x"), ("https://a", "a", 443, "a", "/"),
            ("https://a:443/b", "a", 443, "a", "/b"),
        ])
    func target(url: String, host: String, port: Int, authority: String, path: String) throws {
        let target = try #require(RequestTarget(url))
        #expect(target.host == host && Int(target.port) == port)
        #expect(target.authority == authority && target.path == path)
    }

    @Test(
        "a URL that libcurl must handle is not split",
        arguments: [
            "http://a/b", "https://", "https:///x", "https://user@a/b", "https://a:/b", "https://a:0/b",
            "https://a:65536/b", "https://[::1/b", "https://a/b c", "https://a/\u{FC}", "https://a:8x/", "ftp://a",
        ])
    func noTarget(url: String) { #expect(RequestTarget(url) == nil) }
}
