import EventLoops
import Glibc
import Platform
import Testing

/// A server that answers with what it understood: method, target, the header `x`, the body.
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

@Suite("HTTP requests")
struct HTTPRequestTests {
    @Test(
        "a request cut anywhere is the same request",
        arguments: [
            "POST /cut?a=b HTTP/1.1\r\nHost: x\r\nx:  some value \t\r\nContent-Length: 4\r\n\r\nbody",
            "\r\nPOST /cut?a=b HTTP/1.1\r\nX: some value\r\nTransfer-Encoding: Chunked\r\n\r\n"
                + "3;a=b\r\nbod\r\n01\r\ny\r\n0\r\nTrailer: t\r\n\r\n",
        ])
    func cutAnywhere(request: String) throws {
        try withEcho { loop, port in
            let bytes = Array(request.utf8)
            let client = try TestClient(port: port)
            for cut in 1..<bytes.count {
                try client.send(Array(bytes[..<cut]))
                // One turn at least lies between the two pieces.
                _ = loop.run {}
                try client.send(Array(bytes[cut...]))
                #expect(try client.receiveAnswer().body == "POST /cut?a=b some value body")
            }
        }
    }

    @Test("between requests a reader holds no memory; readers of one loop take turns with the same piece")
    func bareBetweenRequests() throws {
        let memory = HTTPRequestMemory()
        var first = HTTPReader(headerByteLimit: 8_192, bodyByteLimit: 1 << 20, memory: memory)
        var second = HTTPReader(headerByteLimit: 8_192, bodyByteLimit: 1 << 20, memory: memory)
        /// Where the body lies.
        func take(_ reader: inout HTTPReader, _ body: String) throws -> UnsafeRawPointer? {
            let request = Array("POST / HTTP/1.1\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)".utf8)
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
        // What is larger than a piece is the reader's own, and goes as well.
        _ = try take(&second, String(repeating: "x", count: 10_000))
        second.next()
        let areBare = (first.isBare, second.isBare)
        #expect(areBare.0 && areBare.1)
    }

    @Test(
        "what two readers could cut differently, or nobody should send, is refused",
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
            try client.send(request + "GET /smuggled HTTP/1.1\r\n\r\n")
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.hasPrefix("HTTP/1.1 400 "), "\(answer)")
            #expect(answer.contains("\r\nConnection: close\r\n"))
            #expect(!answer.contains("smuggled"))
        }
    }

    @Test(
        "what is asked of the server and not offered is named",
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
            try client.send(request)
            client.shutDownWriting()
            let answer = String(decoding: client.receiveAll(), as: UTF8.self)
            #expect(answer.hasPrefix("HTTP/1.1 \(status) "), "\(answer)")
        }
    }

    @Test("a client that shuts its half down behind its request still gets the answer")
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
            try client.send("GET / HTTP/1.1\r\n\r\n")
            seen.wait { $0.count == 1 }
            client.shutDownWriting()
            let gone = Probe<Bool>()
            while gone.values.last != true { _ = loop.run { gone.note(owed.exchange?.isPeerGone ?? false) } }
            _ = loop.run { owed.exchange.take()?.respond(status: 200, body: Array("late".utf8)) }
            #expect(String(decoding: client.receiveAll(), as: UTF8.self).hasSuffix("\r\n\r\nlate"))
        }
    }
}

/// Used on the loop only.
private final class Owed: @unchecked Sendable {
    var exchange: HTTPExchange?
}
