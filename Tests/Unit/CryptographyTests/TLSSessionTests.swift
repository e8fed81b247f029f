import COpenSSL
import Cryptography
import Foundation
import Glibc
import Testing

@Suite("TLS session")
struct TLSSessionTests {
    @Test("a few records without data are skipped, and a flood of them fails the read", arguments: [0, 3, 100])
    func keyUpdates(count: Int) throws {
        let folder = NSTemporaryDirectory() + "/longwire-tls-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try SelfSignedCertificate.write(
            names: "DNS:localhost", days: 1, certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
        let context = try TLSContext(certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")

        var ends: [CInt] = [0, 0]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0, &ends) == 0)
        defer { for end in ends { close(end) } }
        let server = try TLSSession(accepting: context, descriptor: ends[0])
        let clientContext = try #require(SSL_CTX_new(TLS_client_method()))
        defer { SSL_CTX_free(clientContext) }
        let client = try #require(SSL_new(clientContext))
        defer { SSL_free(client) }
        try #require(SSL_set_fd(client, ends[1]) == 1)
        SSL_set_connect_state(client)
        var isDone = false
        for _ in 0..<10 where !isDone {
            let isClientDone = SSL_do_handshake(client) == 1
            isDone = server.handshake() == .done && isClientDone
        }
        try #require(isDone)
        server.share(TLSSocket())

        for _ in 0..<count {
            try #require(SSL_key_update(client, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(client) == 1)
        }
        try #require(SSL_write(client, "x", 1) == 1)
        let result = withUnsafeTemporaryAllocation(byteCount: 16, alignment: 1) { server.read(into: $0) }
        #expect(result == (count < 100 ? .bytes(1) : .failed("the peer sent too many TLS records without data")))
    }
}
