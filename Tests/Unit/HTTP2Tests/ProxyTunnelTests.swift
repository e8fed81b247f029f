import Testing

@testable import HTTP2

@Suite("A tunnel through a proxy") struct ProxyTunnelTests {
    private let tunnel = ProxyTunnel(target: "api.push.apple.com:443", authorization: "Basic x")

    private func read(_ text: String) -> ProxyTunnel.Answer { tunnel.read(Array(text.utf8)) }

    @Test("the proxy gets one request with the target and the credentials")
    func request() {
        #expect(
            String(decoding: tunnel.request, as: UTF8.self)
                == "CONNECT api.push.apple.com:443 HTTP/1.1\r\nHost: api.push.apple.com:443\r\n"
                + "Proxy-Authorization: Basic x\r\n\r\n")
    }

    @Test("an answer of 2xx opens the tunnel at its last byte")
    func opens() {
        let answer = "HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n"
        let bytes = Array(answer.utf8)
        for count in bytes.indices { #expect(tunnel.read(Array(bytes[..<count])) == .incomplete) }
        #expect(read(answer) == .open)
        guard case .refused = read(answer + "x") else {
            Issue.record("bytes behind the answer were taken")
            return
        }
    }

    @Test(
        "a refusal has a reason",
        arguments: [
            ("HTTP/1.1 407 \u{1B}[2J\r\n\r\n", "credentials"), ("HTTP/1.1 403 no\r\n\r\n", "does not allow CONNECT"),
            ("HTTP/1.1 502\r\n\r\n", "cannot reach api.push.apple.com:443"), ("HTTP/1.1 302 x\r\n\r\n", "(302)"),
            ("SSH-2.0-x\r\n\r\n", "does not answer as an HTTP proxy"), ("HTTP/2 200\r\n\r\n", "not answer as an HTTP"),
            ("HTTP/1.1 +20 x\r\n\r\n", "(20)"), (String(repeating: "x", count: 16_384), "too long"),
        ])
    func refuses(answer: String, reason: String) {
        guard case .refused(let text) = read(answer) else {
            Issue.record("not refused")
            return
        }
        #expect(text.contains(reason) && !text.contains("\u{1B}"))
    }
}
