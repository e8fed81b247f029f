import Cryptography
import Foundation
import Glibc
import Testing

@testable import LongwireClient

/// The Linux side of the seam against a peer on the loopback interface.
@Suite("Transport")
struct TransportTests {
    /// Accepts one connection, echoes one message, and ends.
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

    /// Drives both sides until the client's is open; throws what the client's throws.
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

    @Test("plain: bytes travel both ways, and the end is told behind the last of them")
    func plain() throws {
        var peer = try Peer()
        let transport = try SocketTransport(
            to: Endpoint(host: "127.0.0.1", port: peer.port), security: nil, wake: {})
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

    @Test("a port where nobody listens is a failure, not a wait")
    func refused() throws {
        let peer = try Peer()
        peer.end()
        #expect(throws: TransportFailure.self) {
            let transport = try SocketTransport(
                to: Endpoint(host: "127.0.0.1", port: peer.port), security: nil, wake: {})
            while !transport.isOpen { try transport.serve() }
        }
    }

    @Test("TLS: a trusted gateway is believed, with its pin or without one; with another pin it is not")
    func pinning() throws {
        try Self.withContext { context, certificate, digest in
            let other = [UInt8](repeating: 7, count: 32)
            for (pins, isBelieved) in [([], true), ([other, digest], true), ([other], false)] as [([[UInt8]], Bool)] {
                var peer = try Peer()
                defer { peer.end() }
                let security = TransportSecurity(trustedCertificatesPath: certificate, pins: pins)
                let transport = try SocketTransport(
                    to: Endpoint(host: "127.0.0.1", port: peer.port), security: security, wake: {})
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

    @Test("TLS: a pin alone does not make a stranger trusted")
    func pinIsNoTrust() throws {
        try Self.withContext { context, _, digest in
            var peer = try Peer()
            defer { peer.end() }
            let transport = try SocketTransport(
                to: Endpoint(host: "127.0.0.1", port: peer.port), security: TransportSecurity(pins: [digest]), wake: {})
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
}
