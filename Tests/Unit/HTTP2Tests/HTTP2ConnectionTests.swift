import Cryptography
import Glibc
import Platform
import Testing

@testable import EventLoops
@testable import HTTP2

private final class Seen: HTTP2Stream {
    var fields: [String: String] = [:]
    var received: [UInt8] = []
    var hasEnd = false
    var code: UInt32?
    var answer: ((Seen) -> Void)?

    override func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        fields[String(decoding: name, as: UTF8.self)] = String(decoding: value, as: UTF8.self)
    }
    override func received(body bytes: UnsafeBufferPointer<UInt8>) { received += bytes }
    override func receivedEnd() {
        hasEnd = true
        answer?(self)
    }
    override func closed(_ code: UInt32) { self.code = code }
}

private final class Peer: HTTP2Observer {
    var goodbyes: [(last: Int32, code: UInt32, debug: String)] = []
    var pongs = 0
    var isOpen = true
    var streams: [Seen] = []
    var answer: ((Seen) -> Void)?

    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) {
        goodbyes.append((lastStream, code, String(decoding: debug, as: UTF8.self)))
    }
    override func pongReceived() { pongs += 1 }
    override func opened() -> HTTP2Stream? {
        guard isOpen else { return nil }
        let stream = Seen()
        stream.answer = answer
        streams.append(stream)
        return stream
    }
}

/// A client's and a server's session with the test as the transport.
private final class Pair {
    let clientSide = Peer()
    let serverSide = Peer()
    let client: HTTP2Session
    let server: HTTP2Session

    init(concurrentStreams: UInt32 = 10, headerByteLimit: Int = 4_096) throws {
        var settings = HTTP2Session.Settings()
        (settings.concurrentStreams, settings.headerByteLimit) = (concurrentStreams, headerByteLimit)
        client = try HTTP2Session(.client, observer: clientSide)
        server = try HTTP2Session(.server, settings: settings, observer: serverSide)
    }

    /// Transfers bytes both ways in pieces of `step` until none are left.
    func exchange(step: Int = .max) throws {
        var isMoving = true
        while isMoving {
            isMoving = false
            for (from, to) in [(client, server), (server, client)] {
                while let bytes = from.nextOutput() {
                    isMoving = true
                    var rest = Array(bytes)[...]
                    while !rest.isEmpty {
                        try Array(rest.prefix(step)).withUnsafeBytes { try to.receive($0) }
                        rest = rest.dropFirst(step)
                    }
                }
            }
        }
    }

    func request(_ path: String, body: [UInt8] = []) -> Seen? {
        let stream = Seen()
        stream.body = body
        var headers = HTTP2Headers()
        headers.add(":method", "POST")
        headers.add(":scheme", "https")
        headers.add(":authority", "localhost")
        headers.add(":path", path)
        headers.add("authorization", "bearer x", isSensitive: true)
        return client.request(headers, stream) ? stream : nil
    }

    /// Answers with the request's content.
    func echo(_ stream: Seen) {
        var headers = HTTP2Headers()
        headers.add(":status", "200")
        headers.add("x-path", stream.fields[":path"] ?? "")
        stream.body = stream.received
        server.respond(headers, stream)
    }
}

@Suite("HTTP/2 sessions") struct HTTP2SessionTests {
    @Test("requests and answers arrive complete, however the bytes are split", arguments: [1, 7, 9, 1_000_000])
    func exchange(step: Int) throws {
        let pair = try Pair()
        pair.serverSide.answer = { pair.echo($0) }
        let body = (0..<100_000).map { UInt8(truncatingIfNeeded: $0) }
        let streams = try (0..<3).map { try #require(pair.request("/\($0)", body: $0 == 1 ? body : [])) }
        try pair.exchange(step: step)
        for (index, stream) in streams.enumerated() {
            #expect(stream.fields[":status"] == "200" && stream.fields["x-path"] == "/\(index)")
            #expect(stream.received == (index == 1 ? body : []) && stream.hasEnd && stream.code == HTTP2Code.none)
        }
        #expect(pair.serverSide.streams.allSatisfy { $0.fields["authorization"] == "bearer x" })
        #expect(pair.client.streamCount == 0 && pair.server.streamCount == 0 && pair.client.isAlive)
    }

    @Test("the server's limit of streams reaches the client, and requests above it wait")
    func concurrency() throws {
        let pair = try Pair(concurrentStreams: 2)
        try pair.exchange()
        #expect(pair.client.peerConcurrentStreams == 2)
        let streams = try (0..<5).map { try #require(pair.request("/\($0)")) }
        try pair.exchange()
        #expect(pair.serverSide.streams.count == 2)
        for answered in 1...5 {
            pair.echo(pair.serverSide.streams[answered - 1])
            try pair.exchange()
            #expect(streams.count(where: { $0.code == HTTP2Code.none }) == answered)
        }
    }

    @Test("a GOAWAY refuses later streams, keeps earlier ones, and no request starts after it")
    func goodbye() throws {
        let pair = try Pair()
        let streams = try (0..<3).map { try #require(pair.request("/\($0)")) }
        try pair.exchange()
        pair.server.goAway(lastStream: streams[0].id, debug: Array("{\"reason\":\"Shutdown\"}".utf8))
        try pair.exchange()
        #expect(streams.map(\.code) == [nil, HTTP2Code.refusedStream, HTTP2Code.refusedStream])
        #expect(pair.clientSide.goodbyes.map(\.last) == [streams[0].id])
        #expect(pair.clientSide.goodbyes.first?.debug == "{\"reason\":\"Shutdown\"}")
        #expect(!pair.client.takesRequests && pair.request("/late") == nil)
        pair.echo(pair.serverSide.streams[0])
        try pair.exchange()
        #expect(streams[0].code == HTTP2Code.none && !pair.client.isAlive)
    }

    @Test("waiting requests are refused by a GOAWAY")
    func goodbyeToWaiting() throws {
        let pair = try Pair(concurrentStreams: 1)
        try pair.exchange()
        let streams = try (0..<3).map { try #require(pair.request("/\($0)")) }
        try pair.exchange()
        pair.server.goAway()
        try pair.exchange()
        pair.echo(pair.serverSide.streams[0])
        try pair.exchange()
        #expect(streams.map(\.code) == [HTTP2Code.none, HTTP2Code.refusedStream, HTTP2Code.refusedStream])
        #expect(pair.client.streamCount == 0)
    }

    @Test("a GOAWAY in place of the settings is a normal end, not a protocol error", arguments: [1, 4, 9, 100])
    func goodbyeFirst(step: Int) throws {
        let pair = try Pair()
        let stream = try #require(pair.request("/"))
        while pair.client.nextOutput() != nil {}
        let debug = Array("{\"reason\":\"BadCertificate\"}".utf8)
        let bytes: [UInt8] =
            [0, 0, UInt8(8 + debug.count), 7, 0, 0, 0, 0, 0] + [0, 0, 0, 0] + [0, 0, 0, 2] + debug
        var rest = bytes[...]
        while !rest.isEmpty {
            try Array(rest.prefix(step)).withUnsafeBytes { try pair.client.receive($0) }
            rest = rest.dropFirst(step)
        }
        #expect(pair.clientSide.goodbyes.map(\.code) == [2])
        #expect(pair.clientSide.goodbyes.first?.debug == "{\"reason\":\"BadCertificate\"}")
        #expect(stream.code == HTTP2Code.refusedStream && !pair.client.isAlive && !pair.client.takesRequests)
    }

    private func feed(_ bytes: [UInt8], to session: HTTP2Session) throws(HTTP2Failure) {
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        defer { copy.deallocate() }
        copy.copyBytes(from: bytes)
        try session.receive(UnsafeRawBufferPointer(copy))
    }

    @Test("garbage in place of frames throws or ends the session, and does not trap")
    func garbage() throws {
        var random = SystemRandomNumberGenerator()
        for side in [HTTP2Session.Side.client, .server] {
            for _ in 0..<200 {
                let observer = Peer()
                let session = try HTTP2Session(side, observer: observer)
                let count = Int.random(in: 1...400, using: &random)
                let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
                do throws(HTTP2Failure) {
                    try feed(bytes, to: session)
                    while session.nextOutput() != nil {}
                } catch {
                    #expect(!error.description.isEmpty)
                }
            }
        }
        for bytes in [[0, 0, 7, 7, 0, 0, 0, 0, 0], [255, 0, 0, 7, 0, 0, 0, 0, 0]] as [[UInt8]] {
            let session = try HTTP2Session(.client, observer: Peer())
            #expect(throws: HTTP2Failure.self) { try feed(bytes, to: session) }
        }
    }

    @Test("too many header bytes reset only their stream")
    func headerBound() throws {
        let pair = try Pair(headerByteLimit: 1_024)
        pair.serverSide.answer = { pair.echo($0) }
        let large = try #require(pair.request("/" + String(repeating: "x", count: 2_000)))
        let small = try #require(pair.request("/small"))
        try pair.exchange()
        #expect(large.code != HTTP2Code.none && large.code != nil)
        #expect(small.code == HTTP2Code.none && small.fields[":status"] == "200")
    }

    @Test("a refused request, a reset and a ping arrive")
    func rest() throws {
        let pair = try Pair()
        try pair.exchange()
        pair.serverSide.isOpen = false
        let refused = try #require(pair.request("/"))
        try pair.exchange()
        #expect(refused.code == HTTP2Code.refusedStream)
        pair.serverSide.isOpen = true
        let reset = try #require(pair.request("/"))
        try pair.exchange()
        pair.server.reset(pair.serverSide.streams[0], HTTP2Code.enhanceYourCalm)
        pair.client.ping()
        try pair.exchange()
        #expect(reset.code == HTTP2Code.enhanceYourCalm && pair.clientSide.pongs == 1)
        let cut = try #require(pair.request("/"))
        pair.client.endStreams(HTTP2Code.cancel)
        #expect(cut.code == HTTP2Code.cancel && pair.client.streamCount == 0)
    }
}

private final class End: HTTP2Connection {
    var reasons: [String] = []
    var isUp = false
    var goodbyes: [Int32] = []

    override func established() { isUp = true }
    override func ended(_ reason: String) { reasons.append(reason) }
    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) { goodbyes.append(lastStream) }
    override func opened() -> HTTP2Stream? {
        let stream = Seen()
        stream.answer = { [unowned self] stream in
            var headers = HTTP2Headers()
            headers.add(":status", "200")
            stream.body = stream.received
            session?.respond(headers, stream)
        }
        return stream
    }
}

@Suite("HTTP/2 connections") struct HTTP2ConnectionTests {
    /// Runs a loop in steps until `isDone`, or records a failure.
    private func run(_ loop: EventLoop, until isDone: () -> Bool) {
        var now = SystemClock.monotonicMilliseconds
        for _ in 0..<20_000 {
            loop.step(at: now, isTick: true)
            if isDone() { return }
            usleep(1_000)
            now += 1
        }
        Issue.record("waited in vain")
    }

    private func request(_ body: [UInt8], on end: End) -> Seen? {
        let stream = Seen()
        stream.body = body
        var headers = HTTP2Headers()
        headers.add(":method", "POST")
        headers.add(":scheme", "https")
        headers.add(":authority", "localhost")
        headers.add(":path", "/")
        guard end.session?.request(headers, stream) == true else { return nil }
        end.flush()
        return stream
    }

    private func withEnds(
        serverName: String = "localhost", isHTTP2: Bool = true, _ body: (EventLoop, End, () -> End?) throws -> Void
    ) throws {
        let folder = try FileSystem.makeTemporaryDirectory(prefix: "longwire-http2-")
        defer { try? FileSystem.removeTree(folder) }
        try SelfSignedCertificate.write(
            names: "DNS:localhost", days: 2, certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
        let trusting = try TLSContext(trusting: .certificates(path: folder + "/c.pem"))
        let serving = try TLSContext(certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
        serving.requireHTTP2()
        if isHTTP2 { trusting.requireHTTP2() }
        let loop = try EventLoop(index: 0)
        defer { loop.stop() }
        var accepted: End?
        let listener = try Listener(on: loop, socket: try ListeningSocket("127.0.0.1:0")) { connection in
            let end = End()
            accepted = end
            #expect(throws: Never.self) { try end.accept(connection, on: loop, tls: serving) }
        }
        let address = try #require(try RemoteAddress.resolve(host: "127.0.0.1", port: listener.address.port).first)
        let client = End()
        try client.connect(
            try DetachedConnection(connectingTo: address), on: loop, tls: trusting, serverName: serverName)
        try body(loop, client, { accepted })
        client.close()
        accepted?.close()
    }

    @Test("a large exchange passes TLS, and a GOAWAY ends both ends once")
    func exchange() throws {
        try withEnds { loop, client, server in
            run(loop) { client.isUp }
            let body = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            let stream = try #require(request(body, on: client))
            run(loop) { stream.code != nil }
            #expect(stream.code == HTTP2Code.none && stream.received == body)
            let end = try #require(server())
            end.session?.goAway()
            end.flush()
            run(loop) { !client.reasons.isEmpty && !end.reasons.isEmpty }
            #expect(client.goodbyes == [stream.id] && client.reasons.count == 1 && end.reasons.count == 1)
        }
    }

    @Test("a wrong server name and a missing HTTP/2 are distinguished from network errors")
    func refused() throws {
        try withEnds(serverName: "elsewhere.example") { loop, client, _ in
            run(loop) { !client.reasons.isEmpty }
            #expect(!client.isUp && client.reasons[0].contains("hostname mismatch"))
        }
        try withEnds(isHTTP2: false) { loop, client, server in
            run(loop) { !client.reasons.isEmpty || client.isUp }
            run(loop) { server()?.reasons.isEmpty == false || client.isUp }
        }
    }

    @Test("a port without a listener ends the connection and its streams")
    func unreachable() throws {
        let loop = try EventLoop(index: 0)
        defer { loop.stop() }
        var port: UInt16 = 0
        do {
            let listener = try Listener(on: loop, socket: try ListeningSocket("127.0.0.1:0")) { _ in }
            port = listener.address.port
            listener.close()
        }
        let address = try #require(try RemoteAddress.resolve(host: "127.0.0.1", port: port).first)
        let client = End()
        let context = try TLSContext(trusting: .system)
        try client.connect(try DetachedConnection(connectingTo: address), on: loop, tls: context, serverName: "x")
        let stream = try #require(request([1], on: client))
        run(loop) { !client.reasons.isEmpty }
        #expect(stream.code == HTTP2Code.internalError && !client.isUp)
        #expect(throws: RemoteAddress.Failure.self) {
            try RemoteAddress.resolve(host: "no-such-host.invalid", port: 1)
        }
    }
}
