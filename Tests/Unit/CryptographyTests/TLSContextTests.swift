import Cryptography
import Foundation
import Testing

@Suite("TLS context")
struct TLSContextTests {
    private func withFolder(_ body: (String) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "/longwire-tls-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try body(folder)
    }

    private func write(_ name: String, in folder: String) throws -> (certificate: String, key: String) {
        let paths = (certificate: "\(folder)/\(name).crt", key: "\(folder)/\(name).key")
        try SelfSignedCertificate.write(
            names: "DNS:localhost", days: 1, certificatePath: paths.certificate, keyPath: paths.key)
        return paths
    }

    @Test("a certificate with its own key is accepted")
    func good() throws {
        try withFolder { folder in
            let files = try write("a", in: folder)
            _ = try TLSContext(certificatePath: files.certificate, keyPath: files.key)
            _ = try TLSContext(trusting: .certificates(path: files.certificate))
        }
    }

    @Test("each error names the file and the cause")
    func faults() throws {
        try withFolder { folder in
            let (one, other) = (try write("a", in: folder), try write("b", in: folder))
            let junk = folder + "/junk"
            try "no PEM at all".write(toFile: junk, atomically: true, encoding: .utf8)
            let cases: [(certificate: String, key: String, file: String, matter: String)] = [
                (folder + "/none", one.key, folder + "/none", "No such file"),
                (one.certificate, folder + "/none", folder + "/none", "No such file"),
                (junk, one.key, junk, "no usable PEM certificate"),
                (one.certificate, junk, junk, "no usable PEM private key"),
                (one.certificate, other.key, other.key, one.certificate),
            ]
            for example in cases {
                let failure = #expect(throws: TLSFailure.self) {
                    _ = try TLSContext(certificatePath: example.certificate, keyPath: example.key)
                }
                #expect(failure?.description.contains(example.file) == true)
                #expect(failure?.description.contains(example.matter) == true)
            }
            #expect(throws: TLSFailure.self) { _ = try TLSContext(trusting: .certificates(path: junk)) }
        }
    }

    @Test(
        "a name that no certificate can have is refused, and its session is freed once",
        arguments: ["", String(repeating: "a", count: 300)])
    func badServerName(name: String) throws {
        let context = try TLSContext(trusting: .anyone)
        let error = #expect(throws: TLSFailure.self) {
            _ = try TLSSession(connecting: context, descriptor: 0, serverName: name)
        }
        #expect(error?.description.contains("cannot be a TLS server name") == true)
    }
}
