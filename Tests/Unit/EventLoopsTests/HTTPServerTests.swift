import Cryptography
import EventLoops
import Glibc
import Platform
import Testing

/// A server on one loop that records its handler's requests.
private final class Served: @unchecked Sendable {
    // Used on the loop, except for the probe and the port.
    let requests = Probe<String>()
    var waiting: [HTTPExchange] = []
    var server: HTTPServer?
    var port: UInt16 = 0
}

private func withServer(
    _ configuration: HTTPServer.Configuration = .init(),
    judge: (@Sendable (HTTPRequestHead) -> HTTPPrecheck)? = nil,
    handler: @escaping @Sendable (Served, HTTPExchange) -> Void = { _, exchange in
        exchange.respond(status: 200, contentType: "text/plain", body: exchange.body)
    },
    _ body: (EventLoop, Served) throws -> Void
) throws {
    let served = Served()
    try withLoop { loop in
        let handle = ListeningSocket.Handle(try ListeningSocket("127.0.0.1:0"))
        served.port = handle.address.port
        _ = loop.run {
            do {
                served.server = try HTTPServer(
                    on: loop, socket: handle.take(), configuration: configuration, judge: judge
                ) {
                    served.requests.note("\($0.method.rawValue) \($0.rawTarget)")
                    handler(served, $0)
                }
            } catch {
                Issue.record(error)
            }
            loop.onStop {
                served.server = nil
                served.waiting = []
            }
        }
        try body(loop, served)
    }
}

@Suite("HTTP server")
struct HTTPServerTests {
    @Test("a connection serves request after request, also pipelined ones, in order")
    func keepAlive() throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            for number in 0..<3 {
                try client.send("POST /\(number) HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na\(number)")
                let answer = try client.receiveAnswer()
                #expect(answer.head.hasPrefix("HTTP/1.1 200 OK\r\n"))
                #expect(answer.body == "a\(number)")
            }
            var text = ""
            for number in 3..<20 {
                text += "POST /\(number) HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n\(number % 10)b"
            }
            try client.send(text)
            for number in 3..<20 { #expect(try client.receiveAnswer().body == "\(number % 10)b") }
            #expect(served.requests.values == (0..<20).map { "POST /\($0)" })
        }
    }

    @Test("a connection right after a closed one gets all of its bytes")
    func noBytesStolen() throws {
        var configuration = HTTPServer.Configuration()
        // Only limits the duration of a failure.
        configuration.requestMilliseconds = 2_000
        try withServer(configuration) { _, served in
            // The descriptor's number is reused at once, and libevent needs more than one read for these heads.
            for number in 0..<20 {
                let client = try TestClient(port: served.port)
                let filler = String(repeating: "a", count: 6_000)
                try client.send("GET /\(number)?\(filler) HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 200"))
                _ = client.receiveAll()
                client.close()
            }
        }
    }

    @Test("targets arrive as they were sent", arguments: ["//v2/app/push?x=%2F", "/a/../b//c", "/%zz", "/a?b=/c"])
    func rawTargets(target: String) throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            try client.send("GET \(target) HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 200"))
            #expect(served.requests.values == ["GET \(target)"])
        }
    }

    @Test(
        "each method arrives with its body, and the connection stays open", arguments: ["POST", "PUT", "DELETE", "GET"])
    func methods(method: String) throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            let head = "\(method) /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
            try client.send(head + "hello")
            #expect(try client.receiveAnswer().body == "hello")
            // The body in pieces, followed by half of the next request.
            try client.send(head + "he")
            try client.send("llo\(method) /y HT")
            #expect(try client.receiveAnswer().body == "hello")
            try client.send("TP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            #expect(try client.receiveAnswer().body == "")
            #expect(served.requests.values == ["\(method) /x", "\(method) /x", "\(method) /y"])
        }
    }

    @Test("requests of common client libraries are accepted", arguments: ["GET", "POST", "DELETE", "PUT"])
    func commonClients(method: String) throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            for connection in ["Keep-Alive", "keep-alive, TE", ""] {
                let line = connection.isEmpty ? "" : "Connection: \(connection)\r\n"
                try client.send("\(method) /a HTTP/1.1\r\nHost: x\r\n\(line)\r\n")
                #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 200"))
            }
            try client.send("\(method) /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
            #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 100"))
            try client.send("abc")
            #expect(try client.receiveAnswer().body == "abc")
            try client.send("\(method) /a HTTP/1.0\r\n\r\n")
            #expect(String(decoding: client.receiveAll(), as: UTF8.self).contains(" 200 "))
            #expect(served.requests.values == Array(repeating: "\(method) /a", count: 5))
        }
    }

    @Test("HEAD gets the length and no body; other methods are refused")
    func head() throws {
        try withServer(handler: { _, exchange in exchange.respond(status: 200, body: Array("12345".utf8)) }) {
            _, served in
            let client = try TestClient(port: served.port)
            try client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
            let head = try client.receiveAnswer(hasBody: false).head
            #expect(head.contains("Content-Length: 5\r\n"))
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.receiveAnswer().body == "12345")
            try client.send("CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 501"))
        }
    }

    @Test("headers are found in any case, the body has zero padding, and the peer is known")
    func exchangeParts() throws {
        let seen = Probe<[String]>()
        try withServer(handler: { _, exchange in
            let body = exchange.body
            let isPadded = (0..<Limits.bodyPaddingByteCount).allSatisfy {
                body.baseAddress?.load(fromByteOffset: body.count + $0, as: UInt8.self) == 0
            }
            seen.note([
                exchange.header("token") ?? "-", exchange.header("absent") ?? "-",
                exchange.headerBytes("TOKEN").map { String(decoding: $0, as: UTF8.self) } ?? "-",
                String(decoding: exchange.rawTargetBytes, as: UTF8.self), "\(body.count) \(isPadded)",
                exchange.peerHost, "\(exchange.isLoopback)",
            ])
            exchange.respond(status: 204, contentType: "", headers: [("X-Kind", "test")])
            #expect(exchange.isAnswered && exchange.body.isEmpty && exchange.rawTarget.isEmpty)
        }) { _, served in
            let client = try TestClient(port: served.port)
            try client.send("POST /t HTTP/1.1\r\nHost: x\r\nToKeN: secret\r\nContent-Length: 3\r\n\r\nabc")
            let answer = try client.receiveAnswer()
            #expect(answer.head.hasPrefix("HTTP/1.1 204"))
            #expect(answer.head.contains("X-Kind: test\r\n"))
            #expect(seen.values == [["secret", "-", "secret", "/t", "3 true", "127.0.0.1", "true"]])
        }
    }

    @Test(
        "an ambiguous request is refused",
        arguments: [
            ("POST", "Content-Length: 3\r\nContent-Length: 3\r\n"),
            ("DELETE", "Content-Length: 3\r\ncontent-length: 0\r\n"),
            ("POST", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), ("HEAD", "Transfer-Encoding: chunked\r\n"),
            ("HEAD", "content-length: 4\r\n"),
            ("HEAD", "Content-Length: 3\r\n"),
            ("DELETE", "Content-Length: +3\r\n"), ("DELETE", "Content-Length: -3\r\n"),
            ("POST", "Content-Length: x\r\n"),
        ])
    func ambiguous(method: String, headers: String) throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            try client.send("\(method) / HTTP/1.1\r\nHost: x\r\n\(headers)\r\n3\r\nabc\r\n0\r\n\r\n")
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.hasPrefix("HTTP/1.1 400") || answer.hasPrefix("HTTP/1.1 413"))
            #expect(served.requests.values.isEmpty)
        }
    }

    @Test("a chunked body is reassembled", arguments: ["POST", "DELETE"])
    func chunked(method: String) throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            try client.send("\(method) / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            try client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            #expect(try client.receiveAnswer().body == "abcde")
        }
    }

    @Test("ten megabytes are refused before they are read", arguments: ["POST", "DELETE"])
    func largeBody(method: String) throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            try client.send("\(method) / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.hasPrefix("HTTP/1.1 413"))
            #expect(served.requests.values.isEmpty)
        }
    }

    @Test("headers above the limit are refused")
    func largeHeaders() throws {
        try withServer { _, served in
            let client = try TestClient(port: served.port)
            try? client.send("GET / HTTP/1.1\r\nHost: x\r\nX: \(String(repeating: "a", count: 100_000))\r\n\r\n")
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.isEmpty || answer.hasPrefix("HTTP/1.1 4"))
            #expect(served.requests.values.isEmpty)
        }
    }

    @Test("garbage is answered or closed, and the server keeps running")
    func garbage() throws {
        try withServer { _, served in
            for text in [
                "\r\n\r\n", "GET\r\n\r\n", "\u{0}\u{1}\u{2}\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", ":::\r\n:\r\n\r\n",
            ] {
                let client = try TestClient(port: served.port)
                try client.send(text)
                client.shutDownWriting()
                _ = client.receiveAll()
            }
            let client = try TestClient(port: served.port)
            try client.send("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 200"))
        }
    }

    @Test(
        "a slowly arriving request loses its connection, although each byte is in time",
        arguments: ["GET / HTTP/1.1\r\nX: ", "DELETE / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"])
    func slowRequest(start: String) throws {
        var configuration = HTTPServer.Configuration()
        configuration.requestMilliseconds = 200
        try withServer(configuration) { loop, served in
            let client = try TestClient(port: served.port)
            try client.send(start)
            // Ends when the server has closed the connection, after which a send fails.
            while (try? client.send("a")) != nil { _ = loop.run {} }
            #expect(served.requests.values.isEmpty)
            let gone = Probe<Int>()
            _ = loop.run { loop.onTick { _ in gone.note(served.server?.connectionCount ?? -1) } }
            gone.wait { $0.last == 0 }
        }
    }

    @Test("an idle connection is closed eventually, one with a pending answer is not")
    func idle() throws {
        var configuration = HTTPServer.Configuration()
        // Long enough for the request to arrive in time, even on a busy machine.
        configuration.idleMilliseconds = 1_000
        configuration.requestMilliseconds = 1_000
        try withServer(configuration, handler: { served, exchange in served.waiting.append(exchange) }) {
            loop, served in
            let asking = try TestClient(port: served.port)
            try asking.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            try #require(served.requests.wait { $0.count == 1 }.count == 1)
            let idle = try TestClient(port: served.port)
            #expect(try idle.receive().isEmpty)
            _ = loop.run {
                #expect(!served.waiting[0].isPeerGone)
                served.waiting.removeFirst().respond(status: 200, body: [65])
            }
            #expect(try asking.receiveAnswer().body == "A")
        }
    }

    @Test("a cut exchange closes its connection without a response, and leaves others open")
    func cut() throws {
        try withServer(handler: { served, exchange in served.waiting.append(exchange) }) { loop, served in
            let clients = try (0..<3).map { _ in try TestClient(port: served.port) }
            for (index, client) in clients.enumerated() {
                try client.send("GET /\(index) HTTP/1.1\r\nHost: x\r\n\r\n")
                served.requests.wait { $0.count == index + 1 }
            }
            let counts = Probe<Int>()
            _ = loop.run {
                let exchange = served.waiting.remove(at: 0)
                exchange.cut()
                // Neither has an effect after the end.
                exchange.cut()
                exchange.respond(status: 200)
                counts.note(served.server?.connectionCount ?? -1)
                counts.note(served.server?.waitingCount ?? -1)
            }
            #expect(try clients[0].receive().isEmpty)
            #expect(counts.values == [2, 2])
            _ = loop.run { for exchange in served.waiting { exchange.respond(status: 200, body: [65]) } }
            for client in clients[1...] { #expect(try client.receiveAnswer().body == "A") }
        }
    }

    @Test("a client that disconnects before its answer is detected, and the answer is ignored")
    func disconnectBeforeAnswer() throws {
        try withServer(handler: { served, exchange in served.waiting.append(exchange) }) { loop, served in
            for round in 0..<20 {
                let client = try TestClient(port: served.port)
                try client.send("POST /\(round) HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
                served.requests.wait { $0.count == round + 1 }
                if round % 2 == 0 { client.close() } else { client.reset() }
                let gone = Probe<Bool>()
                while gone.values.last != true {
                    _ = loop.run { gone.note(served.waiting[0].isPeerGone) }
                }
                _ = loop.run {
                    #expect(served.waiting[0].body.elementsEqual([120]))
                    served.waiting.removeFirst().respond(status: 200, body: [UInt8](repeating: 1, count: 1 << 20))
                }
            }
            let gone = Probe<Int>()
            _ = loop.run { loop.onTick { _ in gone.note(served.server?.connectionCount ?? -1) } }
            gone.wait { $0.last == 0 }
            #expect(loop.run { served.server?.waitingCount } == 0)
        }
    }

    @Test("an answer on a broken connection does not end the process by a signal")
    func brokenPipe() async {
        await #expect(processExitsWith: .exitCode(7)) {
            signal(SIGPIPE, SIG_DFL)
            try withServer(handler: { served, exchange in served.waiting.append(exchange) }) { loop, served in
                let client = try TestClient(port: served.port)
                try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                served.requests.wait { $0.count == 1 }
                client.reset()
                let gone = Probe<Bool>()
                while gone.values.last != true { _ = loop.run { gone.note(served.waiting[0].isPeerGone) } }
                let ticks = Probe<Int>()
                _ = loop.run {
                    served.waiting.removeFirst().respond(status: 200, body: [1])
                    loop.onTick { _ in ticks.note(served.server?.connectionCount ?? -1) }
                }
                ticks.wait { $0.last == 0 }
            }
            exit(7)
        }
    }

    @Test("a dropped exchange sends a default answer")
    func dropped() throws {
        try withServer(handler: { _, _ in }) { _, served in
            let client = try TestClient(port: served.port)
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 500"))
        }
    }

    @Test("a server that closes with pending answers frees everything; later answers do nothing")
    func closeWithWaiting() throws {
        try withServer(handler: { served, exchange in served.waiting.append(exchange) }) { loop, served in
            var clients: [TestClient] = []
            for number in 0..<6 {
                let client = try TestClient(port: served.port)
                try client.send("GET /\(number) HTTP/1.1\r\nHost: x\r\n\r\n")
                clients.append(client)
            }
            // One connection without its body, and one within its headers.
            for text in ["DELETE /d HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", "GET / HT"] {
                let client = try TestClient(port: served.port)
                try client.send(text)
                clients.append(client)
            }
            served.requests.wait { $0.count == 6 }
            let both = Probe<Int>()
            _ = loop.run { loop.onTick { _ in both.note(served.server?.connectionCount ?? 8) } }
            both.wait { $0.last == 8 }
            clients[0].reset()
            _ = loop.run {
                served.server?.close()
                for exchange in served.waiting {
                    #expect(exchange.isPeerGone && exchange.isAnswered)
                    exchange.respond(status: 200)
                }
            }
            for client in clients.dropFirst() { #expect(client.receiveAll().isEmpty) }
            #expect(throws: SystemError.self) { _ = try TestClient(port: served.port) }
        }
    }

    @Test("a stopping server sends pending answers and closes those connections")
    func stopAccepting() throws {
        try withServer(handler: { served, exchange in served.waiting.append(exchange) }) { loop, served in
            let client = try TestClient(port: served.port)
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            served.requests.wait { $0.count == 1 }
            _ = loop.run {
                served.server?.stopAccepting()
                served.waiting.removeFirst().respond(status: 200, body: [66])
            }
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.contains("Connection: close\r\n"))
            #expect(answer.hasSuffix("\r\n\r\nB"))
            #expect(throws: SystemError.self) { _ = try TestClient(port: served.port) }
        }
    }

    @Test("a newcomer to a full server replaces the longest idle connection, and none with requests in flight")
    func connectionLimit() throws {
        var configuration = HTTPServer.Configuration()
        configuration.connectionLimit = 2
        let held: @Sendable (Served, HTTPExchange) -> Void = { served, exchange in
            if exchange.rawTarget == "/held" { return served.waiting.append(exchange) }
            exchange.respond(status: 200)
        }
        try withServer(configuration, handler: held) { loop, served in
            let first = try TestClient(port: served.port)
            let second = try TestClient(port: served.port)
            for client in [first, second] {
                try client.send("GET /in HTTP/1.1\r\nHost: x\r\n\r\n")
                _ = try client.receiveAnswer()
            }
            try second.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
            served.requests.wait { $0.count == 3 }
            let third = try TestClient(port: served.port)
            try third.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(first.receiveAll().isEmpty, "the idle one had to go")
            served.requests.wait { $0.count == 4 }
            let fourth = try TestClient(port: served.port)
            #expect(String(decoding: fourth.receiveAll(), as: UTF8.self).hasPrefix("HTTP/1.1 503"))
            let numbers = Probe<UInt64>()
            _ = loop.run {
                guard let room = served.server?.room else { return }
                for number in [UInt64(room.count), room.displacedCount, room.refusedCount] { numbers.note(number) }
                for exchange in served.waiting { exchange.respond(status: 200) }
            }
            for client in [second, third] { #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 200")) }
            numbers.wait { $0.count == 3 }
            #expect(numbers.values == [2, 1, 1])
        }
    }

    @Test("a crowd of one address with partial requests makes room for other addresses, and displaces none")
    func crowdOfHalfRequests() throws {
        var configuration = HTTPServer.Configuration()
        configuration.connectionLimit = 16
        try withServer(configuration) { loop, served in
            let connected = { loop.run { served.server?.room.count } ?? nil }
            // Connections without a complete request, as during a slow client's TLS handshake.
            let calm = try (2..<6).map { try TestClient(port: served.port, source: $0) }
            var crowd: [TestClient] = []
            for _ in 0..<40 {
                let client = try TestClient(port: served.port, source: 9)
                try client.send("POST /half HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")
                crowd.append(client)
            }
            #expect(comes { connected() == 16 })
            for source in 12..<20 as Range<UInt32> {
                let client = try TestClient(port: served.port, source: source)
                try client.send("GET /whole HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 200"))
            }
            for client in calm {
                try client.send("GET /calm HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 200"))
            }
        }
    }

    @Test("unauthenticated requests have half of the budget, however many addresses send them")
    func strangersShare() throws {
        var configuration = HTTPServer.Configuration()
        let budget = PeerBudget(.init(requests: 200_000, requestsOfNetwork: 90_000, others: 1 << 20))
        configuration.budget = budget
        try withServer(configuration, judge: Self.judge) { _, served in
            // Unfinished heads of 40,000 bytes, then a complete one with a small pending body.
            var strangers: [TestClient] = []
            for source in 2..<6 as Range<UInt32> {
                let client = try TestClient(port: served.port, source: source)
                let head = "GET / HTTP/1.1\r\nHost: x\r\nX: " + String(repeating: "h", count: 40_000)
                try client.send(source == 5 ? head + "\r\nContent-Length: 9\r\n\r\n" : head)
                strangers.append(client)
            }
            #expect(comes { budget.refusedCount == 2 })
            #expect(budget.requestByteCount <= 100_000)
            let honest = try TestClient(port: served.port)
            let body = String(repeating: "b", count: 85_000)
            try honest.send("POST / HTTP/1.1\r\nHost: x\r\ntoken: t\r\nContent-Length: 85000\r\n\r\n")
            try honest.send(body)
            #expect(try honest.receiveAnswer().body == body)
            for client in strangers { client.close() }
            #expect(comes { budget.requestByteCount == 0 })
        }
    }

    @Test("a request that arrived in one read counts until its answer", arguments: ["length", "chunks", "head"])
    func wholeRequests(large: String) throws {
        let bytes = String(repeating: "b", count: 20_000)
        let rest =
            switch large {
            case "length": "token: t\r\nContent-Length: 20000\r\n\r\n\(bytes)"
            case "chunks": "token: t\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n\(bytes)\r\n0\r\n\r\n"
            default: "X: \(bytes)\r\n\r\n"
            }
        var configuration = HTTPServer.Configuration()
        let budget = PeerBudget(.init(requests: 200_000, requestsOfNetwork: 50_000, others: 1 << 20))
        configuration.budget = budget
        let keep: @Sendable (Served, HTTPExchange) -> Void = { served, exchange in served.waiting.append(exchange) }
        try withServer(configuration, judge: Self.judge, handler: keep) { loop, served in
            let clients = try (0..<5).map { _ in try TestClient(port: served.port) }
            for client in clients { try client.send("POST / HTTP/1.1\r\nHost: x\r\n\(rest)") }
            #expect(comes { budget.refusedCount == 3 })
            #expect(served.requests.values.count == 2)
            #expect(40_000...50_000 ~= budget.requestByteCount)
            _ = loop.run { for exchange in served.waiting { exchange.respond(status: 200) } }
            #expect(comes { budget.requestByteCount == 0 })
            let statuses = try clients.map { try $0.receiveAnswer().head.prefix(12) }
            #expect(statuses.filter { $0 == "HTTP/1.1 200" }.count == 2)
            #expect(statuses.filter { $0 == "HTTP/1.1 503" }.count == 3)
        }
    }

    /// Accepts bodies of up to 100,000 bytes from a client with a token, and refuses others with its own answer.
    private static let judge: @Sendable (HTTPRequestHead) -> HTTPPrecheck = { head in
        guard head.header("token") != nil else { return .refuse(HTTPReply(status: 401, body: Array("who?".utf8))) }
        guard head.bodyByteCount <= 100_000 else { return .refuse(HTTPReply(status: 400, body: Array("size".utf8))) }
        return .take(byteLimit: 100_000, isProven: true)
    }

    @Test(
        "a body is refused at its head or while its chunks grow",
        arguments: [
            ("Content-Length: 90000", "", "401", "who?"),
            ("token: t\r\nContent-Length: 100001", "", "400", "size"),
            ("token: t\r\nContent-Length: 99999999999999999999", "", "400", "size"),
            ("token: t\r\nContent-Length: 100000", "body", "200", ""),
            ("token: t\r\nExpect: 100-continue\r\nContent-Length: 100001", "", "400", "size"),
            ("Transfer-Encoding: chunked", "", "401", "who?"),
            ("token: t\r\nTransfer-Encoding: chunked", "chunks", "400", "size"),
        ])
    func judgedBodies(headers: String, what: String, status: String, words: String) throws {
        var configuration = HTTPServer.Configuration()
        let budget = PeerBudget(.init(requests: 300_000, requestsOfNetwork: 200_000, others: 1 << 20))
        configuration.budget = budget
        try withServer(configuration, judge: Self.judge) { _, served in
            let client = try TestClient(port: served.port)
            try client.send("POST / HTTP/1.1\r\nHost: x\r\n\(headers)\r\n\r\n")
            switch what {
            case "body": try client.send(String(repeating: "b", count: 100_000))
            case "chunks":
                let chunk = "8000\r\n\(String(repeating: "c", count: 0x8000))\r\n"
                for _ in 0..<3 { try client.send(chunk) }
                try client.send(chunk)
            default: break
            }
            let answer = try client.receiveAnswer()
            #expect(answer.head.hasPrefix("HTTP/1.1 \(status)"))
            if status == "200" {
                #expect(answer.body.count == 100_000)
            } else {
                #expect(answer.body == words && answer.head.contains("Connection: close"))
                #expect(served.requests.values.isEmpty)
            }
            #expect(budget.requestByteCount == 0)
        }
    }

    /// Polls until a condition holds or a time limit passes.
    private func comes(_ isTrue: () -> Bool) -> Bool {
        for _ in 0..<20_000 where !isTrue() { usleep(1_000) }
        return isTrue()
    }

    @Test("bodies in flight are bounded in total and per address; those above the bound are refused as retryable")
    func bodyBudget() throws {
        var configuration = HTTPServer.Configuration()
        let budget = PeerBudget(.init(requests: 250_000, requestsOfNetwork: 200_000, others: 1 << 20))
        configuration.budget = budget
        try withServer(configuration, judge: Self.judge) { _, served in
            let head = "POST / HTTP/1.1\r\nHost: x\r\ntoken: t\r\nContent-Length: 90000\r\n\r\n"
            let under = try (0..<2).map { _ in try TestClient(port: served.port) }
            for client in under { try client.send(head + "begun") }
            // Bodies are in flight once their bytes are reserved.
            #expect(comes { budget.requestByteCount >= 180_000 })
            let late = try TestClient(port: served.port)
            try late.send(head)
            #expect(try late.receiveAnswer().head.hasPrefix("HTTP/1.1 503"))
            under[0].close()
            #expect(comes { budget.requestByteCount <= 90_000 })
            let next = try TestClient(port: served.port)
            try next.send(head + String(repeating: "n", count: 90_000))
            #expect(try next.receiveAnswer().body.count == 90_000)
        }
    }

    @Test("HTTPS serves the same, and a silent client is closed in time")
    func https() throws {
        try withTemporaryDirectory { folder in
            let (server, trusting) = try makeContexts(in: folder)
            var configuration = HTTPServer.Configuration()
            configuration.tls = server
            configuration.requestMilliseconds = 1000
            try withServer(configuration) { _, served in
                let client = try TestClient(port: served.port)
                #expect(try client.startTLS(trusting) == .done)
                for number in 0..<3 {
                    let body = String(repeating: "\(number)", count: 50_000)
                    try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n\(body)")
                    #expect(try client.receiveAnswer().body == body)
                }
                let silent = try TestClient(port: served.port)
                #expect(silent.receiveAll().isEmpty)
            }
        }
    }
}
