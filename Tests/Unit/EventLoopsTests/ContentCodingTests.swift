import EventLoops
import Testing

@Suite("Content codings of requests")
struct ContentCodingTests {
    private func refusal(
        _ headers: String, body: String, acceptsCodings: Bool = false
    ) -> (status: Int, reason: String)? {
        var reader = HTTPReader(headerByteLimit: 8_192, bodyByteLimit: 1 << 20, acceptsCodings: acceptsCodings)
        let request = Array("POST /x HTTP/1.1\r\nHost: x\r\n\(headers)\r\n\(body)".utf8)
        do {
            _ = try request.withUnsafeBytes { try reader.take($0) }
            return nil
        } catch {
            guard let refusal = error as? HTTPHead.Refusal else { return (0, "\(error)") }
            return (refusal.status, "\(refusal.reason)")
        }
    }

    @Test(
        "a body with a content coding is refused with 415, and the reason names the coding",
        arguments: ["gzip", "BR", "Deflate", "zstd"])
    func named(coding: String) throws {
        for length in ["Content-Length: 4\r\n", "Transfer-Encoding: chunked\r\n"] {
            let found = try #require(refusal("content-encoding: \(coding)\r\n\(length)", body: "bodybody"))
            #expect(found.status == 415 && found.reason.contains("Content-Encoding \(coding.lowercased()) "))
        }
        let unknown = try #require(refusal("Content-Encoding: gzip, br\r\nContent-Length: 4\r\n", body: "body"))
        #expect(unknown.status == 415)
    }

    @Test("a server that decodes bodies itself accepts any coding")
    func accepted() {
        let headers = "Content-Encoding: aes128gcm\r\nContent-Length: 4\r\n"
        #expect(refusal(headers, body: "body") != nil)
        #expect(refusal(headers, body: "body", acceptsCodings: true) == nil)
    }

    @Test("a request without a coding or without a body is accepted")
    func plain() {
        #expect(refusal("Content-Encoding: identity\r\nContent-Length: 4\r\n", body: "body") == nil)
        #expect(refusal("Content-Encoding:\r\nContent-Length: 4\r\n", body: "body") == nil)
        #expect(refusal("Content-Encoding: gzip\r\nContent-Length: 0\r\n", body: "") == nil)
        #expect(refusal("Content-Encoding: gzip\r\n", body: "") == nil)
    }
}
