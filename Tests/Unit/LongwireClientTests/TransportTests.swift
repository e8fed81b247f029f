import Cryptography
import Foundation
import Glibc
import Testing

@testable import LongwireClient

@Suite("Transport")
struct TransportTests {
    /// A peer that accepts one connection, echoes one message, and ends.
    private struct Peer {
        let listener: CInt
        let port: UInt16
        var connection: CInt = -1
        var tls: TLSSession?

        init() throws {
            listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            var size = socklen_t(MemoryLayout<sockaddr_in>.size)
            let listener = listener
            let isListening = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                    bind(listener, address, size) == 0 && listen(listener, 1) == 0
                        && getsockname(listener, address, &size) == 0
                }
            }
            try #require(isListening)
            port = UInt16(bigEndian: address.sin_port)
        }

        mutating func accept(_ context: TLSContext? = nil) throws {
            connection = Glibc.accept(listener, nil, nil)
            try #require(connection >= 0)
            guard let context else { return }
            System.makeNonBlocking(connection)
            tls = try TLSSession(accepting: context, descriptor: connection)
        }

        /// Accepts a connection, and runs `work` repeatedly until a client connects.
        mutating func acceptWhile(_ work: () throws -> Void) throws {
            var waiting = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
            while poll(&waiting, 1, 10) == 0 { try work() }
            try accept()
        }

        func end() {
            if connection >= 0 { close(connection) }
            close(listener)
        }
    }

    private static func withContext(_ body: (TLSContext, _ certificate: String, _ digest: [UInt8]) throws -> Void)
        throws
    {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("longwire-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let (certificate, key) = (folder.path + "/c.pem", folder.path + "/k.pem")
        try SelfSignedCertificate.write(
            names: "DNS:localhost,IP:127.0.0.1", days: 1, certificatePath: certificate, keyPath: key)
        let lines = try String(contentsOfFile: certificate, encoding: .utf8).split(separator: "\n")
        let der = try #require(Data(base64Encoded: lines.filter { !$0.hasPrefix("-----") }.joined()))
        let digest = SHA256.digest(Array(der)).bytes
        try body(TLSContext(certificatePath: certificate, keyPath: key), certificate, digest)
    }

    /// Waits until the name is resolved and the connection started, because a peer that accepts earlier would block.
    private static func begin(_ transport: SocketTransport) throws {
        while transport.interest == nil { try transport.serve() }
    }

    /// Drives both sides until the client's is open; throws the client's errors.
    private static func open(_ transport: SocketTransport, _ peer: Peer) throws {
        while !transport.isOpen {
            _ = peer.tls?.handshake()
            try transport.serve()
        }
    }

    private static func readAll(_ transport: SocketTransport, _ count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count { bytes += try transport.read() }
        return bytes
    }

    @Test("plain: bytes pass both ways, and the end follows the last of them")
    func plain() throws {
        var peer = try Peer()
        let transport = try SocketTransport(
            to: Endpoint(host: "127.0.0.1", port: peer.port), security: nil, wake: {})
        try Self.begin(transport)
        try peer.accept()
        try Self.open(transport, peer)
        try transport.write([1, 2, 3])
        var received = [UInt8](repeating: 0, count: 8)
        #expect(recv(peer.connection, &received, 8, 0) == 3)
        #expect(send(peer.connection, [4, 5] as [UInt8], 2, 0) == 2)
        peer.end()

        #expect(try Self.readAll(transport, 2) == [4, 5])
        #expect(throws: TransportFailure.self) { while true { _ = try transport.read() } }
    }

    /// A name server that answers when the test decides.
    private final class SlowNames: Sendable {
        let latch = Latch()
        let port: UInt16
        init(port: UInt16) { self.port = port }

        func look(_ endpoint: Endpoint) -> NameLookUp.Addresses {
            latch.wait()
            return SocketTransport.addresses(of: Endpoint(host: "127.0.0.1", port: port))
        }
    }

    @Test("a slow name lookup blocks no caller, and the connection follows it")
    func slowName() throws {
        var peer = try Peer()
        defer { peer.end() }
        let (names, woken) = (SlowNames(port: peer.port), Latch())
        let transport = try SocketTransport(
            to: Endpoint(host: "gateway.example", port: 7), security: nil, wake: { woken.open() },
            resolve: { names.look($0) })
        try transport.serve()
        #expect(!transport.isOpen && transport.interest == nil, "there is nothing that poll could wait for")
        names.latch.open()
        woken.wait()
        try transport.serve()
        try Self.begin(transport)
        try peer.accept()
        try Self.open(transport, peer)
    }

    @Test("a name that is not found is an error with the system's message")
    func unknownName() throws {
        let woken = Latch()
        let transport = try SocketTransport(
            to: Endpoint(host: "name.invalid", port: 7), security: nil, wake: { woken.open() },
            resolve: { _ in .failure(TransportFailure(reason: "no such name")) })
        woken.wait()
        #expect(throws: TransportFailure(reason: "no such name")) { try transport.serve() }
    }

    @Test("a client that waits for a name stops at once")
    func stopWhileResolving() throws {
        let (names, begun, ended) = (SlowNames(port: 7), Latch(), Latch())
        let mailbox = try ClientMailbox()
        let core = ClientCore(
            configuration: ClientConfiguration(host: "gateway.example", port: 7, appID: "demo", appSecret: "s"),
            state: nil, cryptography: SystemCryptography(), seed: 1)
        let runner = ClientRunner(
            core: core, mailbox: mailbox, store: MemoryStateStore(),
            makeTransport: { (endpoint, security, wake) throws(TransportFailure) in
                let transport = try SocketTransport(
                    to: endpoint, security: security, wake: wake, resolve: { names.look($0) })
                begun.open()
                return transport
            },
            handler: { _ in .processed }, events: { _ in })
        try #require(
            ClientThread.start {
                runner.run()
                ended.open()
            })
        begun.wait()
        #expect(mailbox.post(.stop))
        // The lookup is still running. A client that waited for it would never end.
        ended.wait()
        names.latch.open()
    }

    @Test("only a few hanging lookups run at a time")
    func manySlowNames() throws {
        let (names, allowance) = (SlowNames(port: 7), ThreadAllowance())
        var transports: [SocketTransport] = []
        var refused: TransportFailure?
        while refused == nil, transports.count <= Limits.backgroundThreadCount {
            do throws(TransportFailure) {
                transports.append(
                    try SocketTransport(
                        to: Endpoint(host: "gateway.example", port: 7), security: nil, wake: {}, within: allowance,
                        known: KnownAddresses(), resolve: { names.look($0) }))
            } catch {
                refused = error
            }
        }
        names.latch.open()
        #expect(transports.count == Limits.backgroundThreadCount)
        #expect(refused?.reason == "cannot look up gateway.example: earlier look-ups are unfinished")
    }

    @Test("a port without a listener is an error, not a wait")
    func refused() throws {
        let peer = try Peer()
        peer.end()
        #expect(throws: TransportFailure.self) {
            let transport = try SocketTransport(
                to: Endpoint(host: "127.0.0.1", port: peer.port), security: nil, wake: {})
            while !transport.isOpen { try transport.serve() }
        }
    }

    @Test("TLS: a trusted gateway is accepted, with its pin or without one, but not with another pin")
    func pinning() throws {
        try Self.withContext { context, certificate, digest in
            let other = [UInt8](repeating: 7, count: 32)
            for (pins, isBelieved) in [([], true), ([other, digest], true), ([other], false)] as [([[UInt8]], Bool)] {
                var peer = try Peer()
                defer { peer.end() }
                let security = TransportSecurity(trustedCertificatesPath: certificate, pins: pins)
                let transport = try SocketTransport(
                    to: Endpoint(host: "127.0.0.1", port: peer.port), security: security, wake: {})
                try Self.begin(transport)
                try peer.accept(context)
                guard isBelieved else {
                    #expect(throws: TransportFailure.self) { try Self.open(transport, peer) }
                    continue
                }
                try Self.open(transport, peer)
                try transport.write([9])
                let session = try #require(peer.tls)
                var byte: UInt8 = 0
                while withUnsafeMutableBytes(of: &byte, { session.read(into: $0) }) != .bytes(1) {}
                #expect(byte == 9)
            }
        }
    }

    @Test("TLS: a pin alone does not make a certificate trusted")
    func pinIsNoTrust() throws {
        try Self.withContext { context, _, digest in
            var peer = try Peer()
            defer { peer.end() }
            let transport = try SocketTransport(
                to: Endpoint(host: "127.0.0.1", port: peer.port), security: TransportSecurity(pins: [digest]), wake: {})
            try Self.begin(transport)
            try peer.accept(context)
            #expect(throws: TransportFailure.self) { try Self.open(transport, peer) }
        }
    }

    @Test("pins are digests, and need TLS")
    func configuration() {
        var configuration = ClientConfiguration(host: "gateway.example", port: 7_000, appID: "demo")
        configuration.pinnedCertificates = [[UInt8](repeating: 1, count: 32)]
        #expect(throws: LongwireClientError.self) { try configuration.validate() }
        configuration.usesTLS = true
        #expect(throws: Never.self) { try configuration.validate() }
        configuration.pinnedCertificates = [[1, 2, 3]]
        #expect(throws: LongwireClientError.self) { try configuration.validate() }
    }

    private static func address(_ host: String, _ port: UInt16) throws -> [UInt8] {
        try #require(try SocketTransport.addresses(of: Endpoint(host: host, port: port)).get().first)
    }

    @Test("hanging lookups block no connection: earlier addresses are used, and literals need none")
    func hangingNames() throws {
        let (names, allowance, known) = (SlowNames(port: 7), ThreadAllowance(), KnownAddresses())
        defer { names.latch.open() }
        var peer = try Peer()
        defer { peer.end() }
        let endpoint = Endpoint(host: "gateway.example", port: peer.port)
        known.remember([try Self.address("127.0.0.1", peer.port)], of: endpoint)
        func connect(to endpoint: Endpoint) throws -> SocketTransport {
            try SocketTransport(
                to: endpoint, security: nil, wake: {}, within: allowance, known: known, resolve: { names.look($0) })
        }
        var hanging: [SocketTransport] = []
        for _ in 0..<Limits.backgroundThreadCount { hanging.append(try connect(to: endpoint)) }
        #expect(hanging[0].interest == nil && hanging[0].deadline != nil, "a look-up has its time first")
        for transport in [try connect(to: endpoint), try connect(to: Endpoint(host: "127.0.0.1", port: peer.port))] {
            try Self.begin(transport)
            try peer.accept()
            try Self.open(transport, peer)
        }
        try Self.begin(hanging[0])
        #expect(hanging[0].interest != nil, "and when that is over, the known addresses")
    }

    @Test("an address that never answers is followed by the next one")
    func deadAddress() throws {
        // Its backlog is full, so a connection is neither accepted nor refused.
        let dead = try Peer()
        defer { dead.end() }
        var fillers: [SocketTransport] = []
        for _ in 0..<8 {
            let filler = try SocketTransport(to: Endpoint(host: "127.0.0.1", port: dead.port), security: nil, wake: {})
            try filler.serve()
            fillers.append(filler)
        }
        var peer = try Peer()
        defer { peer.end() }
        let addresses = [try Self.address("127.0.0.1", dead.port), try Self.address("127.0.0.1", peer.port)]
        let transport = try SocketTransport(
            to: Endpoint(host: "gateway.example", port: 7), security: nil, wake: {}, known: KnownAddresses(),
            resolve: { _ in .success(addresses) })
        try Self.begin(transport)
        #expect(transport.deadline != nil)
        try peer.acceptWhile { try transport.serve() }
        try Self.open(transport, peer)
    }
}
