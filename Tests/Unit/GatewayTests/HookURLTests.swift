import Configuration
import Testing

@testable import Gateway

@Suite("Hook URL and secret")
struct HookURLTests {
    @Test(
        "https to any host and http to this machine are accepted",
        arguments: [
            "https://example.com/a?b=c", "https://10.0.0.1:8443", "http://127.0.0.1:9/x", "http://localhost/",
            "http://[::1]:80/", "HTTP://127.8.8.8",
        ])
    func takes(text: String) throws {
        #expect(try HookURL(text).text == text)
    }

    static let refused: [(text: String, refusal: HookURL.Refusal)] = [
        ("", .malformed), ("example.com", .malformed), ("ftp://127.0.0.1", .malformed), ("https://", .malformed),
        ("https:///path", .malformed), ("https://a b", .malformed), ("https://a\\b", .malformed),
        ("https://a#f", .malformed), ("https://a:0", .malformed), ("https://a:x", .malformed),
        ("https://[::1", .malformed), ("https://user@host", .hasCredentials), ("http://a:b@127.0.0.1", .hasCredentials),
        ("http://example.com", .plaintextBeyondLoopback), ("http://127.0.0.1.example.com", .plaintextBeyondLoopback),
        ("http://0.0.0.0", .plaintextBeyondLoopback), ("http://[::2]/", .plaintextBeyondLoopback),
        ("http://2130706433/", .plaintextBeyondLoopback),
    ]

    @Test("all other URLs are refused", arguments: refused)
    func refuses(text: String, refusal: HookURL.Refusal) {
        #expect(throws: refusal) { try HookURL(text) }
    }
}
