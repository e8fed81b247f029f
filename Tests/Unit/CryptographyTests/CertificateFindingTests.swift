import Cryptography
import Foundation
import Testing

@Suite("Certificate findings")
struct CertificateFindingTests {
    @Test("a certificate that expires within the given time is reported, and a valid one is not")
    func ends() throws {
        let folder = NSTemporaryDirectory() + "/longwire-findings-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let (certificate, key) = (folder + "/c.pem", folder + "/k.pem")
        try SelfSignedCertificate.write(
            names: "DNS:localhost", days: 10, certificatePath: certificate, keyPath: key)
        let context = try TLSContext(certificatePath: certificate, keyPath: key)
        #expect(context.certificateFindings(endingWithin: 9 * 86_400).isEmpty)
        let found = context.certificateFindings(endingWithin: 11 * 86_400)
        #expect(found.map(\.weight) == [.unwise])
        #expect(found.first?.description.hasPrefix("the certificate ends in ") == true)
        // The texts may differ: a second later one day less is left.
        let ofClient = context.certificateFindings(endingWithin: 11 * 86_400, isServer: false)
        #expect(ofClient.map(\.weight) == [.unwise])
    }

    @Test("a client's context without a certificate reports that")
    func none() throws {
        let found = try TLSContext(trusting: .anyone).certificateFindings(endingWithin: 0)
        #expect(found.map(\.description) == ["there is no certificate"])
    }

    @Test("unreadable authorities are reported with their file")
    func authorities() throws {
        let folder = NSTemporaryDirectory() + "/longwire-findings-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let (certificate, key, junk) = (folder + "/c.pem", folder + "/k.pem", folder + "/junk.pem")
        try SelfSignedCertificate.write(names: "DNS:localhost", days: 1, certificatePath: certificate, keyPath: key)
        try "no PEM at all".write(toFile: junk, atomically: true, encoding: .utf8)
        let failure = #expect(throws: TLSFailure.self) {
            _ = try TLSContext(
                certificatePath: certificate, keyPath: key, clients: ClientCertificates(authoritiesFile: junk))
        }
        #expect(failure?.description.contains(junk) == true)
        #expect(try TLSContext(certificatePath: certificate, keyPath: key).clientAuthoritiesEnd == nil)
        let strict = try TLSContext(
            certificatePath: certificate, keyPath: key, clients: ClientCertificates(authoritiesFile: certificate))
        #expect(strict.clientAuthoritiesEnd != nil && strict.clientAuthoritiesEnd == strict.certificateEnd)
    }
}
