@testable import EventLoops
import Glibc
import Platform
import Testing

/// Runs a server that echoes the parsed method, target, header `x` and body.
private func withEcho(_ body: (EventLoop, UInt16) throws -> Void) throws {
    try withLoop { loop in
        let handle = ListeningSocket.Handle(try ListeningSocket("127.0.0.1:0"))
        _ = loop.run {
            do {
                let server = try HTTPServer(on: loop, socket: handle.take()) { exchange in
                    let text = "\(exchange.method.rawValue) \(exchange.rawTarget) \(exchange.header("X") ?? "-") "
                    exchange.respond(status: 200, contentType: "text/plain", body: Array(text.utf8) + exchange.body)
                }
                loop.onStop { server.stopAccepting() }
            } catch {
                Issue.record(error)
            }
        }
        try body(loop, handle.address.port)
    }
}

private func withHost(_ request: String) -> String {
    let line = " HTTP/1.1\r\n"
    guard let range = request.firstRange(of: line) else { return request }
    return request[..<range.upperBound] + "Host: x\r\n" + request[range.upperBound...]
}

/// Returns the status that refuses one request, 200 if it is accepted, `nil` while it is incomplete.
private func refusal(_ request: String, headerByteLimit: Int = 8_192) -> Int? {
    var reader = HTTPReader(headerByteLimit: headerByteLimit, bodyByteLimit: 1 << 20)
    do throws(HTTPHead.Refusal) {
        var offset = 0
        let bytes = Array(request.utf8)
        while offset < bytes.count {
            let taken = try bytes[offset...].withUnsafeBytes { bytes in
                Result { () throws(HTTPHead.Refusal) in try reader.take(bytes) }
            }.get()
            if case .complete = taken.step { return 200 }
            guard taken.byteCount > 0 else { return nil }
            offset += taken.byteCount
        }
        return nil
    } catch {
        return error.status
    }
}

@Suite("HTTP requests")
struct HTTPRequestTests {
    @Test(
        "a request is the same wherever it is split",
        arguments: [
            "POST /cut?a=b HTTP/1.1\r\nHost: x\r\nx:  some value \t\r\nContent-Length: 4\r\n\r\nbody",
            "\r\nPOST /cut?a=b HTTP/1.1\r\nHost: x\r\nX: some value\r\nTransfer-Encoding: Chunked\r\n\r\n"
                + "3;a=b\r\nbod\r\n01\r\ny\r\n0\r\nTrailer: t\r\n\r\n",
        ])
    func cutAnywhere(request: String) throws {
        try withEcho { loop, port in
            let bytes = Array(request.utf8)
            let client = try TestClient(port: port)
            for cut in 1..<bytes.count {
                try client.send(Array(bytes[..<cut]))
                // At least one turn runs between the two pieces.
                _ = loop.run {}
                try client.send(Array(bytes[cut...]))
                #expect(try client.receiveAnswer().body == "POST /cut?a=b some value body")
            }
        }
    }

    @Test("between requests a reader holds no memory; readers of one loop share the same buffer")
    func bareBetweenRequests() throws {
        let memory = HTTPRequestMemory()
        var first = HTTPReader(headerByteLimit: 8_192, bodyByteLimit: 1 << 20, memory: memory)
        var second = HTTPReader(headerByteLimit: 8_192, bodyByteLimit: 1 << 20, memory: memory)
        func take(_ reader: inout HTTPReader, _ body: String) throws -> UnsafeRawPointer? {
            let request = Array("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)".utf8)
            let taken = try request.withUnsafeBytes { try reader.take($0) }
            let (read, isBare) = (String(decoding: reader.body, as: UTF8.self), reader.isBare)
            #expect(taken.step == .complete && taken.byteCount == request.count && read == body && !isBare)
            return reader.body.baseAddress
        }
        let place = try take(&first, "one")
        first.next()
        let other = try take(&second, "two")
        let third = try take(&first, "three")
        #expect(other == place && third != place)
        second.next()
        first.next()
        // A body larger than the shared buffer gets the reader's own buffer, which is freed as well.
        _ = try take(&second, String(repeating: "x", count: 10_000))
        second.next()
        let areBare = (first.isBare, second.isBare)
        #expect(areBare.0 && areBare.1)
    }

    @Test(
        "ambiguous and invalid requests are refused",
        arguments: [
            "GET / HTTP/1.1\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", "GET / HTTP/1.1\r\n A: b\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\n: b\r\n\r\n", "GET / HTTP/1.1\r\nA\r\n\r\n", "GET / HTTP/1.1\r\nA: \u{0}\r\n\r\n",
            "GET /\u{1} HTTP/1.1\r\n\r\n", "GET /\u{7F} HTTP/1.1\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            " GET / HTTP/1.1\r\n\r\n", "GET /\r\n\r\n", "GET / http/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: \r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\na",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
        ])
    func refused(request: String) throws {
        try withEcho { _, port in
            let client = try TestClient(port: port)
            try client.send(withHost(request) + "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.hasPrefix("HTTP/1.1 400 "), "\(answer)")
            #expect(answer.contains("\r\nConnection: close\r\n"))
            #expect(!answer.contains("smuggled"))
        }
    }

    @Test(
        "a requested feature that the server lacks is named",
        arguments: [
            ("BREW / HTTP/1.1\r\n\r\n", 501), ("get / HTTP/1.1\r\n\r\n", 501), ("GET / HTTP/2.0\r\n\r\n", 505),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
            ("POST / HTTP/1.1\r\nExpect: the unexpected\r\n\r\n", 417),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", 413),
            ("GET / HTTP/1.1\r\n" + String(repeating: "A: b\r\n", count: 300) + "\r\n", 431),
        ])
    func named(request: String, status: Int) throws {
        try withEcho { _, port in
            let client = try TestClient(port: port)
            try client.send(withHost(request))
            client.shutDownWriting()
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.hasPrefix("HTTP/1.1 \(status) "), "\(answer)")
        }
    }

    @Test(
        "a request has exactly one Host, which is a name or an address",
        arguments: [
            ("GET / HTTP/1.1\r\n\r\n", 400), ("GET / HTTP/1.0\r\n\r\n", 200), ("Host:", 400),
            ("Host: a\r\nHost: a", 400),
            ("Host: a\r\nHost: b", 400), ("Host: a b", 400), ("Host: a b@c/d", 400), ("Host: u@a", 400),
            ("Host: a/b", 400),
            ("Host: a?b", 400), ("Host: http://a", 400), ("Host: a:b", 400), ("Host: a:1:2", 400),
            ("Host: a:65536", 400),
            ("Host: :80", 400), ("Host: [::1", 400), ("Host: [::1]x", 400), ("Host: [1.2.3.4]", 400),
            ("Host: ::1", 400),
            ("Host: a%2", 400), ("Host: a%zz", 400), ("Host: \u{E4}", 400), ("Host: a\\b", 400), ("Host: \"a\"", 400),
            ("Host: a", 200), ("Host: a:", 200), ("Host: A-1.b_c~:8080", 200), ("Host: 127.0.0.1:7080", 200),
            ("Host: [::1]:7080", 200), ("Host: [::ffff:1.2.3.4]", 200), ("Host: a%2Eb", 200), ("host:\ta\t", 200),
            ("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400), ("GET / HTTP/1.0\r\nHost: a b\r\n\r\n", 400),
            ("GET http://a/ HTTP/1.1\r\n\r\n", 400), ("GET http://a:80/b HTTP/1.1\r\nHost: c\r\n\r\n", 200),
            ("GET HTTPS://a HTTP/1.1\r\nHost: c\r\n\r\n", 200), ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ])
    func hosts(text: String, status: Int) {
        #expect(refusal(text.contains("HTTP/") ? text : "GET / HTTP/1.1\r\n\(text)\r\n\r\n") == status, "\(text)")
    }

    @Test("an absolute URI yields its path and its host, whatever the case of its scheme")
    func absoluteForm() throws {
        for (target, path) in [
            ("http://a:1/b?c", "/b?c"), ("HTTP://a//b", "//b"), ("https://[::1]?c=/d", "?c=/d"), ("http://a", ""),
        ] {
            var reader = HTTPReader(headerByteLimit: 8_192, bodyByteLimit: 0)
            let request = Array("GET \(target) HTTP/1.1\r\nHost: other\r\n\r\n".utf8)
            let taken = try request.withUnsafeBytes { try reader.take($0) }
            let (found, host) = (
                String(decoding: reader.target, as: UTF8.self), String(decoding: reader.host, as: UTF8.self)
            )
            #expect(taken.step == .complete && found == path)
            #expect(!host.isEmpty && target.contains("://\(host)"))
        }
    }

    @Test(
        "a line without CR LF is answered at once",
        arguments: [
            "\n", "GET /healthz HTTP/1.0\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: x\n", "GET / HTTP/1.1\rH",
            "GET / HTTP/1.1\r\nHost: x\rA", "GET / HTTP/1.1\r\nHost: x\r\n\n", "GET / HTTP/1.1\r\nHost: x\r\n\rA",
            "\rG", "GET /\r\n",
            "chunked3\n", "chunked3;a=b\n", "chunked3\rx", "chunked3\r\nabc\n", "chunked3\r\nabcd", "chunked0\r\n\n",
            "chunked0\r\nA: b\n",
            "chunked0\r\nA: b\r\r", "chunked0\r\nno name\r\n", "chunked0\r\n A: b\r\n",
            "chunked3;\r\n", "chunked3 \r\n", "chunked3;a=\r\n", "chunked3;a=\"b\r\n", "chunked3 a\r\n",
            "chunked0x3\r\n", "chunked+3\r\n",
        ])
    func lineEnds(text: String) {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        let request = text.hasPrefix("chunked") ? head + text.dropFirst(7) : text
        #expect(refusal(request) == 400)
        // Any split leads to the same refusal at the same byte.
        for cut in 0..<request.utf8.count {
            #expect(refusal(String(decoding: request.utf8.prefix(cut), as: UTF8.self)) == nil, "\(cut)")
        }
    }

    @Test("chunks have extensions with blanks around them, and leading zeros")
    func extensions() {
        for size in ["3;a", "3;a=b", "3 ; a = \"b\\\";c\"\t;d", "00000000000003", "3;a=\"\""] {
            let body = "\(size)\r\nabc\r\n0;z\r\nA: b\r\n\r\n"
            #expect(
                refusal("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body) == 200, "\(size)")
        }
    }

    @Test(
        "a header in several lines is the list that one line would be",
        arguments: [
            ("Connection: keep-alive\r\nConnection: close", 200), ("Expect: 100-continue\r\nExpect: 100-continue", 200),
            ("Expect: 100-continue\r\nExpect: other", 417), ("Expect: 100-continue, other", 417),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", 400), ("Transfer-Encoding: chunked, gzip", 400),
            ("Transfer-Encoding: chunked, chunked", 400), ("Transfer-Encoding:", 400),
            ("Transfer-Encoding: identity", 400),
            ("Transfer-Encoding: xchunked", 400), ("Transfer-Encoding: chunked\r\nContent-Length: 0", 400),
            ("Authorization: a\r\nAuthorization: a", 200), ("Authorization: a\r\nAuthorization: b", 400),
            ("Origin: http://a\r\nOrigin: http://b", 400), ("Content-Length: 0\r\nContent-Length: 0", 400),
        ])
    func severalLines(lines: String, status: Int) {
        #expect(
            refusal("POST / HTTP/1.1\r\nHost: x\r\n\(lines)\r\n\r\n" + (lines.contains("chunked") ? "0\r\n\r\n" : ""))
                == status)
    }

    @Test("a refusal names the part that is too long: the request line or the headers")
    func tooLong() {
        let long = String(repeating: "a", count: 300)
        #expect(refusal("GET /\(long) HTTP/1.1\r\n", headerByteLimit: 256) == 414)
        #expect(refusal("GET / HTTP/1.1\r\nHost: \(long)", headerByteLimit: 256) == 431)
        #expect(refusal("GET / HTTP/2.0\r\nHost: \(long)", headerByteLimit: 256) == 505)
    }

    @Test("HEAD is answered without a body, also when it is refused")
    func headWithoutBody() throws {
        try withEcho { _, port in
            for (request, status) in [
                ("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 200), ("HEAD / HTTP/1.1\r\nHost: x\r\nExpect: y\r\n\r\n", 417),
            ] {
                let client = try TestClient(port: port)
                try client.send(request)
                client.shutDownWriting()
                let answer = String(decoding: client.receiveAll(), as: UTF8.self)
                #expect(answer.hasPrefix("HTTP/1.1 \(status) ") && answer.hasSuffix("\r\n\r\n"), "\(answer)")
            }
            let client = try TestClient(port: port)
            try client.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.receiveAnswer().head.hasPrefix("HTTP/1.1 204 "))
        }
    }

    @Test("a client that closes its sending half after its request still gets the answer")
    func halfClosed() throws {
        try withLoop { loop in
            let handle = ListeningSocket.Handle(try ListeningSocket("127.0.0.1:0"))
            let seen = Probe<Int>()
            let owed = Owed()
            _ = loop.run {
                do {
                    let server = try HTTPServer(on: loop, socket: handle.take()) { exchange in
                        owed.exchange = exchange
                        seen.note(1)
                    }
                    loop.onStop { server.stopAccepting() }
                } catch {
                    Issue.record(error)
                }
            }
            let client = try TestClient(port: handle.address.port)
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            seen.wait { $0.count == 1 }
            client.shutDownWriting()
            let gone = Probe<Bool>()
            while gone.values.last != true { _ = loop.run { gone.note(owed.exchange?.isPeerGone ?? false) } }
            _ = loop.run { owed.exchange.take()?.respond(status: 200, body: Array("late".utf8)) }
            #expect(String(decoding: client.receiveAll(), as: UTF8.self).hasSuffix("\r\n\r\nlate"))
        }
    }
}

/// Used only on the loop.
private final class Owed: @unchecked Sendable {
    var exchange: HTTPExchange?
}
