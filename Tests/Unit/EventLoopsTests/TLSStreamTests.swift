import Cryptography
import EventLoops
import Platform
import Testing

/// Returns a server context with a new certificate for localhost, and a client context that trusts only it.
func makeContexts(in folder: String) throws -> (server: TLSContext, client: TLSContext) {
    try SelfSignedCertificate.write(
        names: "DNS:localhost,IP:127.0.0.1", days: 2, certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
    return (
        try TLSContext(certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem"),
        try TLSContext(trusting: .certificates(path: folder + "/c.pem"))
    )
}

@Suite("TLS stream")
struct TLSStreamTests {
    private func echo(_ delegates: Probe<Unchecked<TestDelegate>>? = nil) -> TestDelegate {
        let delegate = TestDelegate()
        delegate.onReceived = { bytes, stream in
            #expect(stream.write(bytes))
            return bytes.count
        }
        delegates?.note(Unchecked(delegate))
        return delegate
    }

    @Test("bytes are echoed, and a close_notify ends the stream")
    func echoes() throws {
        try withTemporaryDirectory { folder in
            let (server, trusting) = try makeContexts(in: folder)
            try withLoop { loop in
                let port = try loop.serve(tls: server, outboxByteLimit: 16 << 20) { echo() }
                let client = try TestClient(port: port)
                #expect(try client.startTLS(trusting) == .done)
                try client.send([1, 2, 3])
                #expect(try client.receive(exactly: 3) == [1, 2, 3])
                let bulk = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 13) }
                for _ in 0..<10 {
                    try client.send(bulk)
                    #expect(try client.receive(exactly: bulk.count) == bulk)
                }
            }
        }
    }

    @Test("connections of one loop share OpenSSL's buffers without affecting each other")
    func turns() throws {
        try withTemporaryDirectory { folder in
            let (server, trusting) = try makeContexts(in: folder)
            try withLoop { loop in
                let delegates = Probe<Unchecked<TestDelegate>>()
                let port = try loop.serve(tls: server, outboxByteLimit: 16 << 20) { echo(delegates) }
                var clients = try (0..<12).map { _ in
                    let client = try TestClient(port: port)
                    #expect(try client.startTLS(trusting) == .done)
                    return client
                }
                let bulk = (0..<70_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
                while clients.count > 3 {
                    // All connections are active at once, so that reads and writes of different sessions interleave.
                    for client in clients { try client.send(bulk) }
                    for client in clients { #expect(try client.receive(exactly: bulk.count) == bulk) }
                    // They disconnect without a close_notify, which ends only their own streams.
                    clients.removeLast(3)
                    _ = loop.run {}
                }
                for client in clients {
                    try client.send([1, 2, 3])
                    #expect(try client.receive(exactly: 3) == [1, 2, 3])
                }
            }
        }
    }

    @Test("a close after the flush sends close_notify after the last byte")
    func goodbye() throws {
        try withTemporaryDirectory { folder in
            let (server, trusting) = try makeContexts(in: folder)
            try withLoop { loop in
                let delegates = Probe<Unchecked<TestDelegate>>()
                let port = try loop.serve(tls: server, outboxByteLimit: 4 << 20) {
                    let delegate = TestDelegate()
                    delegate.onReceived = { bytes, stream in
                        #expect(stream.write(byteCount: 1 << 20) { $0.initializeMemory(as: UInt8.self, repeating: 3) })
                        stream.closeAfterFlush(deadlineMilliseconds: timeoutMilliseconds)
                        return bytes.count
                    }
                    delegates.note(Unchecked(delegate))
                    return delegate
                }
                let client = try TestClient(port: port)
                #expect(try client.startTLS(trusting) == .done)
                try client.send([1])
                #expect(try client.receive(exactly: 1 << 20) == [UInt8](repeating: 3, count: 1 << 20))
                // Empty only for a close_notify. A bare end of the stream throws.
                #expect(try client.receive().isEmpty)
                client.close()
                let delegate = try #require(delegates.values.first).value
                #expect(delegate.ended.wait { !$0.isEmpty } == [.closedHere])
            }
        }
    }

    @Test("a peer that does not use TLS is closed with the reason")
    func notTLS() throws {
        try withTemporaryDirectory { folder in
            let (server, _) = try makeContexts(in: folder)
            try withLoop { loop in
                let delegates = Probe<Unchecked<TestDelegate>>()
                let port = try loop.serve(tls: server) { echo(delegates) }
                let client = try TestClient(port: port)
                try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                _ = client.receiveAll()
                let delegate = try #require(delegates.values.first).value
                let reasons = delegate.ended.wait { !$0.isEmpty }
                guard case .tlsFailed = reasons.first else {
                    Issue.record("ended by \(reasons)")
                    return
                }
                #expect(reasons.count == 1)
            }
        }
    }

    @Test("a silent peer loses its connection at the handshake timeout")
    func silentPeer() throws {
        try withTemporaryDirectory { folder in
            let (server, _) = try makeContexts(in: folder)
            try withLoop { loop in
                let ended = Probe<CloseReason>()
                let port = try loop.listen { [unowned loop] connection in
                    let stream = ByteStream(attaching: connection, on: loop, delegate: EndNoting(ended), tls: server)
                    stream.setTimeout(afterMilliseconds: 100)
                }
                let client = try TestClient(port: port)
                #expect(client.receiveAll().isEmpty)
                #expect(ended.wait { !$0.isEmpty } == [.tlsFailed("the handshake timed out")])
            }
        }
    }

    @Test("a client refuses a certificate that it does not trust, or of another server name")
    func mistrust() throws {
        try withTemporaryDirectory { folder in
            let (server, trusting) = try makeContexts(in: folder)
            try withLoop { loop in
                let port = try loop.serve(tls: server) { echo() }
                let stranger = try TestClient(port: port).startTLS(TLSContext(trusting: .system))
                guard case .failed(let reason) = stranger else {
                    Issue.record("trusted without a reason")
                    return
                }
                #expect(reason.contains("certificate verify failed"))
                let other = try TestClient(port: port).startTLS(trusting, name: "elsewhere.example")
                guard case .failed(let mismatch) = other else {
                    Issue.record("took another server's certificate")
                    return
                }
                #expect(mismatch.lowercased().contains("hostname mismatch"))
                #expect(try TestClient(port: port).startTLS(trusting, name: "127.0.0.1") == .done)
                #expect(try TestClient(port: port).startTLS(TLSContext(trusting: .anyone)) == .done)
            }
        }
    }
}
