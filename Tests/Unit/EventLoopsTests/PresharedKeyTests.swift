import Cryptography
import EventLoops
import Glibc
import Platform
import Testing

@Suite("Pre-shared key")
struct PresharedKeyTests {
    static let secret = [UInt8](repeating: 7, count: 32)

    private func context(_ secret: [UInt8] = Self.secret, _ group: String = "here") throws -> TLSContext {
        try TLSContext(psk: PresharedKey(secret: secret, group: group))
    }

    /// Returns the close reasons on the server when a client with this context connects.
    private func serverReason(of client: TLSContext) throws -> [CloseReason] {
        var reasons: [CloseReason] = []
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let port = try loop.serve(tls: try context()) {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, _ in
                    Issue.record("a stranger's bytes came through")
                    return bytes.count
                }
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let stranger = try TestClient(port: port)
            #expect(try stranger.startTLS(client) != .done || (try? stranger.receive())?.isEmpty ?? true)
            stranger.close()
            reasons = try #require(delegates.wait { !$0.isEmpty }.first).value.ended.wait { !$0.isEmpty }
        }
        return reasons
    }

    private func isTLSFailure(_ reasons: [CloseReason]) -> Bool {
        if reasons.count == 1, case .tlsFailed = reasons[0] { true } else { false }
    }

    @Test("peers with one secret and one name connect, with a fresh key exchange in TLS 1.3")
    func rightSecret() throws {
        try withLoop { loop in
            let port = try loop.serve(tls: try context()) {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, stream in
                    #expect(stream.write(bytes))
                    return bytes.count
                }
                return delegate
            }
            let client = try TestClient(port: port)
            let session = try TLSSession(
                connecting: try context(), descriptor: client.descriptor, serverName: "longwire-link")
            #expect(session.handshake() == .done)
            #expect(session.protocolName == "TLSv1.3" && session.usesPresharedKey)
            let sent: [UInt8] = [1, 2, 3]
            #expect(sent.withUnsafeBytes { session.write($0) } == .bytes(3))
            var room = [UInt8](repeating: 0, count: 8)
            #expect(room.withUnsafeMutableBytes { session.read(into: $0) } == .bytes(3))
            #expect(room.prefix(3).elementsEqual(sent))
        }
    }

    @Test("a wrong secret, another group's name, a client without a key and TLS 1.2 are refused")
    func strangers() throws {
        #expect(isTLSFailure(try serverReason(of: try context([UInt8](repeating: 8, count: 32)))))
        #expect(isTLSFailure(try serverReason(of: try context(Self.secret, "there"))))
        // Trusts any certificate, and has no key.
        #expect(isTLSFailure(try serverReason(of: try TLSContext(trusting: .anyone))))
        let old = try TLSContext(trusting: .anyone)
        old.limitToTLS12()
        #expect(isTLSFailure(try serverReason(of: old)))
    }

    @Test("plain bytes end the handshake")
    func plainBytes() throws {
        try withLoop { loop in
            let delegates = Probe<Unchecked<TestDelegate>>()
            let port = try loop.serve(tls: try context()) {
                let delegate = TestDelegate()
                delegates.note(Unchecked(delegate))
                return delegate
            }
            let client = try TestClient(port: port)
            try client.send([UInt8](repeating: 0xFF, count: 4_096))
            _ = client.receiveAll()
            let delegate = try #require(delegates.wait { !$0.isEmpty }.first).value
            #expect(isTLSFailure(delegate.ended.wait { !$0.isEmpty }))
        }
    }

    @Test("a client with the key refuses a server that presents a certificate")
    func certificateInstead() throws {
        try withTemporaryDirectory { folder in
            let (server, _) = try makeContexts(in: folder)
            try withLoop { loop in
                let port = try loop.serve(tls: server) { TestDelegate() }
                let client = try TestClient(port: port)
                guard case .failed = try client.startTLS(try context()) else {
                    Issue.record("the client took a certificate for the key")
                    return
                }
            }
        }
    }

    @Test("a refused connection is reported as refused, with TLS and without")
    func refused() throws {
        try withLoop { loop in
            // The port was free a moment ago, so it has no listener.
            let port = try ListeningSocket("127.0.0.1:0").address.port
            let ended = Probe<CloseReason>()
            let tls = try context()
            loop.run {
                let delegate = TestDelegate()
                delegate.onReceived = { bytes, _ in bytes.count }
                guard let address = try? RemoteAddress.resolve(host: "127.0.0.1", port: port).first else { return }
                do {
                    let connection = try DetachedConnection(connectingTo: address)
                    let noting = NotingDelegate(ended)
                    _ = ByteStream(
                        attaching: connection, on: loop, delegate: noting, tls: tls, serverName: "longwire-link")
                } catch {
                    ended.note(.failed(error as? SystemError ?? SystemError(operation: "connect", code: 0)))
                }
            }
            guard case .failed(let error)? = ended.wait(until: { !$0.isEmpty }).first else {
                Issue.record("ended by \(ended.values)")
                return
            }
            #expect(error.isConnectionRefused)
        }
    }

    @Test("a server accepts all its keys and a client offers its first, so a secret can be changed stepwise")
    func change() throws {
        let (old, new) = ([UInt8](repeating: 1, count: 32), [UInt8](repeating: 2, count: 32))
        let steps = [[old], [old, new], [new, old], [new]]
        func context(_ secrets: [[UInt8]]) throws -> TLSContext {
            try TLSContext(psk: secrets.map { try PresharedKey(secret: $0, group: "here") })
        }
        func talk(_ server: [[UInt8]], _ client: [[UInt8]]) throws -> Bool {
            var isDone = false
            try withLoop { loop in
                let port = try loop.serve(tls: try context(server)) { TestDelegate() }
                let peer = try TestClient(port: port)
                let session = try TLSSession(
                    connecting: try context(client), descriptor: peer.descriptor, serverName: "longwire-link")
                isDone = session.handshake() == .done && session.usesPresharedKey
                peer.close()
            }
            return isDone
        }
        for (step, next) in zip(steps, steps.dropFirst()) {
            #expect(try talk(step, next) && talk(next, step), "a step of the change parts the gateways")
        }
        #expect(try !talk([old], [new, old]), "a key that the server does not have")
    }

    @Test("a secret that is too short is refused with its length; keys depend on secret and name")
    func derivation() throws {
        #expect(throws: TLSFailure.self) { try PresharedKey(secret: [UInt8](repeating: 1, count: 31), group: "a") }
        do {
            _ = try PresharedKey(secret: [1], group: "a")
        } catch {
            #expect(error.description.contains("has 1 bytes and must have 32"))
        }
        // RFC 5869, test case 1, its first 32 bytes.
        let key = HKDFSHA256.key(
            secret: [UInt8](repeating: 0x0B, count: 22), salt: Array(0...0x0C), information: Array(0xF0...0xF9))
        #expect(
            key == [
                0x3C, 0xB2, 0x5F, 0x25, 0xFA, 0xAC, 0xD5, 0x7A, 0x90, 0x43, 0x4F, 0x64, 0xD0, 0x36, 0x2F, 0x2A, 0x2D,
                0x2D, 0x0A, 0x90, 0xCF, 0x1A, 0x5A, 0x4C, 0x5D, 0xB0, 0x2D, 0x56, 0xEC, 0xC4, 0xC5, 0xBF,
            ])
    }
}

private final class NotingDelegate: StreamDelegate {
    let ended: Probe<CloseReason>
    init(_ ended: Probe<CloseReason>) { self.ended = ended }
    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int { bytes.count }
    override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.note(reason) }
}
